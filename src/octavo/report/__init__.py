"""Pages that open offline. They only read; what they show was measured."""

from octavo.report.facts import bits_per_byte, stored, title_of
from octavo.report.run_page import page_maker, run_page
from octavo.report.surprise import opening

__all__ = [
    "bits_per_byte", "opening", "page_maker", "run_page", "stored", "title_of",
]  # fmt: skip
