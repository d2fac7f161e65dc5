"""n-gram models: counting, estimation, look-up, and counting that goes on while the model reads."""

from octavo.models.ngram.adaptive import AdaptiveNGram, AdaptiveNGramConfig
from octavo.models.ngram.adaptive_spec import SPEC as ADAPTIVE_SPEC
from octavo.models.ngram.config import NGramConfig
from octavo.models.ngram.model import NGram
from octavo.models.ngram.spec import SPEC

__all__ = ["ADAPTIVE_SPEC", "SPEC", "AdaptiveNGram", "AdaptiveNGramConfig", "NGram", "NGramConfig"]
