"""Every model on one text: trained within a budget, measured on the same bytes, set side by side."""

from octavo.ladder.climb import Climb, compare
from octavo.ladder.plan import CompareConfig
from octavo.ladder.rows import Comparison, Row, read_comparison

__all__ = ["Climb", "CompareConfig", "Comparison", "Row", "compare", "read_comparison"]
