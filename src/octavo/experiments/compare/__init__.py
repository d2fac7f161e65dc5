"""Every model on one text: trained within a budget, measured on the same bytes, set side by side."""

from octavo.experiments.compare.config import CompareConfig
from octavo.experiments.compare.rows import CompareRow, Comparison, read_comparison
from octavo.experiments.compare.run import compare

__all__ = ["CompareConfig", "CompareRow", "Comparison", "compare", "read_comparison"]
