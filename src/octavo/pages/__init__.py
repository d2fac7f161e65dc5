"""Pages that open offline. They only read; what they show was measured."""

from octavo.pages.run import page_maker, run_page
from octavo.pages.run_facts import bits_per_byte, stored, title_of
from octavo.pages.surprisal import opening

__all__ = [
    "bits_per_byte", "opening", "page_maker", "run_page", "stored", "title_of",
]  # fmt: skip
