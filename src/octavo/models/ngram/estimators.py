"""Turn counts into probabilities, all in one form:  p(w | c) = alpha(c w) + gamma(c) p(w | c without its first word).

Below the shortest context stands the uniform distribution. Every estimator is a choice of alpha and gamma; where a
context was never continued, gamma is 1 and it hands everything down. An estimator is called with one order after
another, from the words up. M k-grams of one order, C their contexts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from octavo.models.ngram.counting import Level

SLICE = 1 << 21  # n-grams worked on at once, so that what is made in between stays small


@dataclass
class Weights:
    """alpha of each k-gram of one order and gamma of each of their contexts."""

    alpha_M: Tensor
    gamma_C: Tensor


Estimator = Callable[[Level], Weights]
Discounts = tuple[float, float, float]
FALLBACK: Discounts = (0.5, 1.0, 1.5)


def kneser_ney(level: Level, d: Discounts | None = None) -> Weights:
    """Interpolated modified Kneser-Ney (Chen & Goodman 1998): lower orders count distinct words to the left.

    alpha is rounded as it will be stored, and gamma chosen so that each conditional still sums to one exactly. Where
    the level is a part of an order, `d` are the discounts of the whole order.
    """
    a_M = level.extension_M  # at the highest order: occurrences
    d_4 = torch.tensor([0.0, *(d or discounts(a_M))], dtype=torch.float64, device=a_M.device)
    total_C = sum_over_words(level, a_M)
    alpha_M = torch.empty_like(a_M, dtype=torch.float32)
    for part in _slices(level):
        a_m = a_M[part]
        alpha_m = (a_m - d_4[a_m.clamp(max=3)]) / total_C[level.context_M[part]]
        alpha_M[part] = alpha_m.nan_to_num_(0.0)
    gamma_C = sum_over_words(level, alpha_M).neg_().add_(1).clamp_(min=0)
    return Weights(alpha_M, gamma_C.masked_fill_(total_C == 0, 1.0))


def discounts(a_M: Tensor) -> Discounts:
    """Modified Kneser-Ney's discounts for counts of 1, 2 and 3 or more, from how many n-grams have each count.

    The formula needs n-grams with counts 1 to 4. Small or artificial data may have none, and it may then divide by
    zero or leave the range from 0 to the count: then constants serve, the ones that lmplz --discount_fallback takes.
    """
    return discounts_of([int((a_M == count).sum()) for count in (1, 2, 3, 4)])


def discounts_of(n_4: Sequence[int]) -> Discounts:
    """The discounts, given how many n-grams have the counts 1 to 4."""
    n1, n2, n3, n4 = n_4
    if not (n1 and n2 and n3 and n4):
        return FALLBACK
    y = n1 / (n1 + 2 * n2)
    d = (1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3)
    return d if all(0 <= d_i <= i for i, d_i in enumerate(d, 1)) else FALLBACK


def maximum_likelihood(level: Level) -> Weights:
    """Relative frequencies of the longest context that was seen; whatever never followed it has probability zero."""
    total_C = sum_over_words(level, level.count_M)
    return Weights(_frequencies(level, total_C), (total_C == 0).double())


@dataclass
class AddK:
    """(count + k) / (total + k * choices) at the highest order; the orders below only lead there."""

    k: float
    choices: int

    def __call__(self, level: Level) -> Weights:
        if not level.last:
            alpha_M = torch.zeros(len(level), dtype=torch.float64, device=level.word_M.device)
            return Weights(alpha_M, alpha_M.new_ones(level.contexts))
        total_C = sum_over_words(level, level.count_M) + self.k * self.choices
        return Weights(_frequencies(level, total_C), self.k * self.choices / total_C)


@dataclass
class StupidBackoff:
    """Relative frequency where seen, else `factor` times the shorter context's score, scaled to sum to one.

    It remembers of the order below: its keys, its probabilities, which of its k-grams each one becomes without its
    first word, and z, what the unscaled scores of each of its contexts add up to.
    """

    factor: float
    choices: int
    vocab: int
    key_below: Tensor = field(default_factory=lambda: torch.zeros(1, dtype=torch.int64))
    p_below: Tensor | None = None
    z_below: Tensor = field(default_factory=lambda: torch.ones(1, dtype=torch.float64))
    suffix_below: Tensor | None = None

    def __call__(self, level: Level) -> Weights:
        key_M = level.context_M.long() * self.vocab + level.word_M
        if self.p_below is None or self.suffix_below is None:  # words: below them is the uniform distribution
            lower_M = torch.full((len(level),), 1 / self.choices, dtype=torch.float64, device=key_M.device)
            z_lower_C, suffix_M = self.z_below.to(key_M.device), torch.zeros_like(key_M)
        else:
            key_suffix_M = self.suffix_below[level.context_M] * self.vocab + level.word_M
            suffix_M = torch.searchsorted(self.key_below, key_suffix_M)
            lower_M, z_lower_C = self.p_below[suffix_M], self.z_below[self.suffix_below]
        seen_M = level.count_M > 0
        total_C = sum_over_words(level, level.count_M)
        z_C = (total_C > 0) + self.factor * z_lower_C * (1 - sum_over_words(level, lower_M * seen_M))
        gamma_C = self.factor * z_lower_C / z_C
        gamma_M = gamma_C[level.context_M]
        alpha_M = (_frequencies(level, total_C) / z_C[level.context_M] - gamma_M * lower_M) * seen_M
        self.key_below, self.suffix_below = key_M, suffix_M
        self.p_below, self.z_below = alpha_M + gamma_M * lower_M, z_C
        return Weights(alpha_M, gamma_C)


def prune(level: Level, weight: Weights, threshold: int, kept_C: Tensor) -> Tensor:
    """Drop, in place, k-grams that occur at most `threshold` times, or whose contexts were dropped.

    Their probability goes to gamma. Thresholds do not fall with k, so the contexts of what stays stay too. Returns
    which k-grams stay.
    """
    kept_M = (level.count_M > threshold) & kept_C[level.context_M]
    lost_C = sum_over_words(level, weight.alpha_M * ~kept_M)
    rank_C = kept_C.cumsum(0) - 1
    weight.gamma_C, weight.alpha_M = (weight.gamma_C + lost_C)[kept_C], weight.alpha_M[kept_M]
    level.contexts = int(kept_C.sum())
    level.context_M = rank_C[level.context_M[kept_M]].int()
    level.word_M = level.word_M[kept_M]
    return kept_M


def _frequencies(level: Level, total_C: Tensor) -> Tensor:
    return (level.count_M / total_C[level.context_M]).nan_to_num_(0.0)


def sum_over_words(level: Level, value_M: Tensor) -> Tensor:
    """The sum over the k-grams that continue each context, in double precision."""
    sum_C = torch.zeros(level.contexts, dtype=torch.float64, device=value_M.device)
    for part in _slices(level):
        sum_C.index_add_(0, level.context_M[part], value_M[part].double())
    return sum_C


def _slices(level: Level) -> Iterator[slice]:
    return (slice(start, start + SLICE) for start in range(0, len(level), SLICE))
