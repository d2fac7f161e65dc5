"""n-gram models: counting, estimating, looking up, and the ARPA format."""

from octavo.models.ngram.model import NGram, NGramConfig

__all__ = ["NGram", "NGramConfig"]
