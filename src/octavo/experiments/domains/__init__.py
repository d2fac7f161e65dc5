"""Models on the texts of two domains, and which words make the difference."""

from octavo.experiments.domains.result import Domains
from octavo.experiments.domains.run import domains

__all__ = ["Domains", "domains"]
