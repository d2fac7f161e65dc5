"""Pages that open offline: one for a run, one that compares several. They only read; what they show was measured."""

from octavo.report.compare import Entry, Peer, compare_page
from octavo.report.facts import bits_per_byte, stored, title_of
from octavo.report.run_page import page_maker, run_page
from octavo.report.surprise import opening

__all__ = [
    "Entry", "Peer", "bits_per_byte", "compare_page", "opening", "page_maker", "run_page", "stored", "title_of",
]  # fmt: skip
