"""The settings of an n-gram model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from octavo.config import Amount, CountOrZero, Range, check_ranges
from octavo.errors import UserError
from octavo.models.ngram.partial_matching import Escape

MAX_ORDER = 64  # words of an n-gram


@dataclass(frozen=True)
class NGramConfig:
    """How an n-gram model is made."""

    order: Annotated[int, Range(1, MAX_ORDER)] = 5
    """Tokens in the longest n-gram: predictions depend on order - 1 tokens."""
    estimator: Literal["kneser-ney", "mle", "add-k", "stupid", "ppm", "arpa"] = "kneser-ney"
    """Interpolated modified Kneser-Ney, maximum likelihood, add-k, stupid backoff scaled to sum to one, prediction by
    partial matching; or, for a model that was read from an ARPA file, arpa."""
    k: Amount = 1.0
    """What add-k adds to every count."""
    factor: Annotated[float, Range(0, 1.0)] = 0.4
    """What stupid backoff multiplies a shorter context's score by."""
    escape: Escape = "c"
    """ppm: what an escape to a shorter context weighs, by method A (one), C (as many as different tokens were seen) or
    D (half as many, and each token half less)."""
    exclusion: bool = True
    """ppm: leave out of a shorter context what the longer one would have predicted."""
    prune: tuple[CountOrZero, ...] = ()
    """Drop n-grams seen at most this often: one threshold an order, the last one serves the rest."""
    sentences: bool = False
    """Forget everything at the end of each line, as KenLM does."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.estimator == "add-k" and not self.k > 0:
            raise UserError(f"k must be above 0 for add-k: k={self.k}; for k = 0 use --estimator mle")
        if self.estimator == "stupid" and not 0 < self.factor < 1:
            raise UserError(f"factor must be between 0 and 1: factor={self.factor}; try --factor 0.4")
        if self.estimator == "ppm" and any(self.prune):
            raise UserError(f"ppm takes every context as it was seen: prune={self.prune}; leave --prune out")
        if len(self.prune) > self.order:
            raise UserError(
                f"one prune threshold an order is enough: order={self.order}, prune={self.prune}; drop some"
            )
        if list(self.prune) != sorted(self.prune) or any(t < 0 for t in self.prune):
            raise UserError(f"prune thresholds must not be negative or fall: prune={self.prune}; try --prune 0 0 1")

    def threshold(self, k: int) -> int:
        """k-grams seen at most so often are dropped; words always stay."""
        return self.prune[min(k, len(self.prune)) - 1] if self.prune and k > 1 else -1
