"""PPM, prediction by partial matching, as an estimator of an n-gram model.

The longest context that was seen predicts, or escapes to the one a token shorter. A token seen n times weighs s, the
escape e, and with S the sum of s after the context c,

    p(w | c) = s / (S + e) where w was seen after c, else e / (S + e) · p(w | c', without what was seen after c)

Leaving out what was seen after c is called exclusion. What was seen after c was also seen after the shorter c', and the
escape of c' keeps its weight. So all that is left there gets the same multiple (S' + e') / (S' - what is left out + e')
of what c' gives it as the longest context; that is p = alpha + gamma p' again, gamma being e / (S + e) times that.

M k-grams of one order, C their contexts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from octavo.models.ngram.counting import Level
from octavo.models.ngram.estimators import Weights, sum_over_words

Escape = Literal["a", "c", "d"]


@dataclass
class Shorter:
    """Of the order below: its k-grams, what they weigh, their probability, their rank without the first word; and what
    all that follows each of its contexts weighs, the escape included."""

    key_M: Tensor
    weight_M: Tensor
    p_M: Tensor
    suffix_M: Tensor
    total_C: Tensor


@dataclass
class PartialMatching:
    """Called with one order after another, from the words up; it remembers the order below."""

    escape: Escape
    exclusion: bool
    choices: int
    vocab: int
    below: Shorter | None = None

    def __call__(self, level: Level) -> Weights:
        key_M = level.context_M.long() * self.vocab + level.word_M
        weight_M, escape_C = escape_weights(level, self.escape, self.choices)
        total_C = sum_over_words(level, weight_M) + escape_C
        p_M = (weight_M / total_C[level.context_M]).nan_to_num_(0.0)
        gamma_C = torch.where(total_C > 0, escape_C / total_C, 1.0)  # a context that never went on knows nothing
        below = self.below or self._uniform(key_M)
        suffix_M = torch.searchsorted(below.key_M, below.suffix_M[level.context_M] * self.vocab + level.word_M)
        if self.below is None:
            suffix_M = torch.zeros_like(key_M)
        alpha_M = p_M
        if self.exclusion:
            lower_C = below.total_C[below.suffix_M]
            left_C = lower_C - sum_over_words(level, below.weight_M[suffix_M] * (weight_M > 0))
            gamma_C = torch.where(escape_C > 0, gamma_C * lower_C / left_C, gamma_C)
            alpha_M = p_M - gamma_C[level.context_M] * below.p_M[suffix_M] * (weight_M > 0)
        self.below = Shorter(key_M, weight_M, p_M, suffix_M, total_C)
        return Weights(alpha_M, gamma_C)

    def _uniform(self, like_M: Tensor) -> Shorter:
        """Below the words every token weighs one, and nothing escapes."""
        one = torch.ones(1, dtype=torch.float64, device=like_M.device)
        zero = torch.zeros(1, dtype=torch.long, device=like_M.device)
        return Shorter(zero, one, one / self.choices, zero, one * self.choices)


def escape_weights(level: Level, escape: Escape, choices: int) -> tuple[Tensor, Tensor]:
    """What each k-gram weighs and what the escape of each context does, with d different tokens after it.

    Method A (Cleary & Witten 1984): n and 1. C (Moffat 1990): n and d. D (Howard 1993): n - 1/2 and d/2. Where every
    token was seen there is nothing to escape to.
    """
    seen_M = level.count_M > 0
    weight_M = level.count_M.double()
    distinct_C = sum_over_words(level, seen_M)
    if escape == "d":
        weight_M = (weight_M - 0.5) * seen_M
    escape_C = {"a": (distinct_C > 0).double(), "c": distinct_C, "d": distinct_C / 2}[escape]
    return weight_M, escape_C * (distinct_C < choices)
