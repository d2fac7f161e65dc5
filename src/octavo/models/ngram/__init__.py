"""n-gram models: counting, estimation, look-up, and the ARPA format."""

from octavo.models.ngram.model import NGram, NGramConfig
from octavo.models.ngram.spec import SPEC

__all__ = ["SPEC", "NGram", "NGramConfig"]
