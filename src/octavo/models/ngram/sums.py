"""Whether n-gram tables are probabilities: what follows a context must add up to one.

p(w | c) = alpha(c w) + gamma(c) p(w | c without its first word), and below the words stands the uniform distribution:
so all of them sum to one where, in every context, the alphas and gamma do. M nodes, C contexts, K words of an n-gram.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from octavo.errors import UserError
from octavo.models.ngram.trie import parents

if TYPE_CHECKING:
    from octavo.models.ngram.model import NGram

OWN_TOLERANCE = 1e-6  # alpha is stored with 24 bits: 6e-8 of a sum of one, and as much again for old runs' sums
ARPA_ROUNDING = 0.5e-4 * math.log(10)  # of a number in a file, as a share of it: four digits behind the point
CONTEXTS = 1 << 20  # summed at once
NODES = 1 << 16  # whose probabilities are computed at once
MOST_NEGATIVE = 1 << 20  # nodes below zero that are checked; of more, as many from all over the tables
NEGATIVE = ("arpa", "stupid", "ppm")  # whose alphas may lie below zero: the shorter context gives more


def check_probabilities(model: NGram) -> None:
    """Refuse tables that are no probabilities: look-ups and scores trust them."""
    check_sums(model)
    if float(model.alpha_M.min()) < 0:
        _check_negative(model)


def check_sums(model: NGram, names: Sequence[str] | None = None) -> None:
    """Refuse tables with a context after which the probabilities do not add up to one; `names` are those of tokens.

    An ARPA file may hand out less than one: tools that leave a share for words they do not know write such files. It
    may hand out more only by the rounding of its numbers.
    """
    alpha_M, gamma_C = model.alpha_M.numpy(), model.gamma_C.numpy()
    foreign = model.config.estimator == "arpa"
    least, most = float(alpha_M.min()), float(alpha_M.max())
    if not (math.isfinite(least) and math.isfinite(most) and bool(np.isfinite(gamma_C).all())):
        raise UserError("n-gram tables must hold finite numbers, and these hold others; the file is damaged")
    if float(gamma_C.min()) < 0 or (least < 0 and model.config.estimator not in NEGATIVE):
        raise UserError(
            f"n-gram tables must not be negative: {min(least, float(gamma_C.min())):g}; the file is damaged"
        )
    for start in range(0, len(gamma_C), CONTEXTS):
        gamma_c = gamma_C[start : start + CONTEXTS]
        excess_c = _sums(model.first_C[start : start + len(gamma_c) + 1].numpy(), alpha_M) + gamma_c - 1
        rounding_c = ARPA_ROUNDING * (1 + (model.config.order - 1) * gamma_c) if foreign else OWN_TOLERANCE
        beyond_c = (excess_c if foreign else np.abs(excess_c)) - rounding_c
        if beyond_c[worst := int(beyond_c.argmax())] > 0:
            raise UserError(
                f"what follows a context must have probabilities that sum to {'at most ' if foreign else ''}1: "
                f"{_shown(model, start + worst, names)} they sum to {1 + excess_c[worst]:.6g}; the n-grams are damaged"
            )


def _sums(first_c: NDArray[np.int32], alpha_M: NDArray[np.floating]) -> NDArray[np.float64]:
    """The sum of the alphas of each context, in double precision."""
    sum_c = np.zeros(len(first_c) - 1)
    continued = np.flatnonzero(np.diff(first_c))
    if len(continued):
        below = alpha_M[first_c[0] : first_c[-1]]
        sum_c[continued] = np.add.reduceat(below, first_c[continued] - first_c[0], dtype=np.float64)
    return sum_c


def _check_negative(model: NGram) -> None:
    """Where alpha is negative, what the shorter context hands down must make up for it."""
    negative_M = (model.alpha_M[:-1] < 0).nonzero().squeeze(1)
    if len(negative_M) > MOST_NEGATIVE:
        negative_M = negative_M[torch.linspace(0, len(negative_M) - 1, MOST_NEGATIVE, dtype=torch.float64).long()]
    for k, (low, high) in enumerate(model.order_ranges(), 1):
        of_order = negative_M[(negative_M >= low) & (negative_M < high)]
        for node_m in of_order.split(NODES) if len(of_order) else ():
            p_m = probability(model, words_of(model, node_m, k))
            if float(p_m.min()) < -ARPA_ROUNDING:
                raise UserError(
                    f"n-gram probabilities must not be negative: one of {k} tokens has {float(p_m.min()):.3g}; "
                    "the file is damaged"
                )


def words_of(model: NGram, node_M: Tensor, k: int) -> Tensor:
    """The k words of each node of that order, word_Mk."""
    words = [model.word_M[node_M]]
    for _ in range(k - 1):
        node_M = parents(model.first_C[:-1], node_M)
        words.append(model.word_M[node_M])
    return torch.stack(words[::-1], 1).long()


def probability(model: NGram, word_Mk: Tensor) -> Tensor:
    """p of the last word of each row after the words before it, and nothing before those."""
    contexts, nodes = model.matches(model.start(len(word_Mk)), word_Mk)
    last = [(context_Mk[:, -1:], node_Mk[:, -1:]) for context_Mk, node_Mk in zip(contexts, nodes, strict=True)]
    return model.probability(word_Mk[:, -1:], last)[:, 0]


def _shown(model: NGram, context: int, names: Sequence[str] | None) -> str:
    """A context in words: its tokens, or how many they are."""
    ranges = enumerate(model.order_ranges(), 1)
    k = next((k for k, (low, high) in ranges if low <= context < high), 0)
    if k and names is not None:
        words = words_of(model, torch.tensor([context]), k)[0].tolist()
        return f"after {' '.join(names[word] for word in words)!r}"
    return f"after {k} token{'s' if k > 1 else ''}" if k else "with no context"
