"""What can be shown of an adaptive mixture: which of its experts gave each token most.

B batch, N tokens of a text, T those of a piece, I experts, V vocabulary.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from octavo.models.views import TokenDetail, TokenTable, View

if TYPE_CHECKING:
    from octavo.models.adaptive_mix import AdaptiveMix

PIECE_NUMBERS = 1 << 21  # of the experts' distributions that are made at once
MIN_PIECE = 64  # tokens: where a piece begins, networks read their last segment again
MIXTURE = "mixture"


class ExpertCosts(NamedTuple):
    """The cost in bits of each token of a text by each expert alone, and by the mixture."""

    names: tuple[str, ...]
    bits_NI: NDArray[np.float64]
    bits_N: NDArray[np.float64]

    @property
    def winner_N(self) -> NDArray[np.int64]:  # noqa: N802
        """The expert that gave each token most; of several that gave it the same, the first, so of n-grams the
        shortest."""
        winner_N: NDArray[np.int64] = self.bits_NI.argmin(1)
        return winner_N


@torch.no_grad()
def expert_costs(model: AdaptiveMix, x_N: Sequence[int]) -> ExpertCosts:
    """Read a text after begin, and let every expert say beforehand what it expects of each token."""
    from octavo.models.adaptive_mix import expert_distributions, expert_names  # here, because it imports this module

    x_1N = torch.tensor([list(x_N)], dtype=torch.long)
    before_1N, states = model.prepend_begin(x_1N)[:, :-1], model.start(1)[0]
    names = unique([name for part in model.parts for name in expert_names(part)])
    length = max(MIN_PIECE, PIECE_NUMBERS // (len(names) * model.vocab))
    p_NI = np.empty((len(x_N), len(names)))
    for start in range(0, len(x_N), length):
        next_T = np.asarray(x_N[start : start + length])
        p_1TIV, _, states = expert_distributions(
            model.experts, model.gate, states, before_1N[:, start : start + length]
        )
        p_NI[start : start + length] = p_1TIV[0][np.arange(len(next_T)), :, next_T]
    bits_N = -model.score(x_1N)[0].double().numpy() / math.log(2)
    with np.errstate(divide="ignore"):
        return ExpertCosts(names, np.maximum(-np.log2(p_NI), 0.0), np.maximum(bits_N, 0.0))


def unique(names: Sequence[str]) -> tuple[str, ...]:
    """The names, numbered where several are the same."""
    total, seen = Counter(names), Counter[str]()
    found = []
    for name in names:
        seen[name] += 1
        found.append(f"{name} {seen[name]}" if total[name] > 1 else name)
    return tuple(found)


def expert_table(model: AdaptiveMix, x_N: Sequence[int]) -> TokenTable:
    """A view: what each token costs by each expert alone and by the mixture, and which expert gave it most."""
    costs = expert_costs(model, x_N)
    every = zip(costs.winner_N.tolist(), costs.bits_NI.tolist(), costs.bits_N.tolist(), strict=True)
    return TokenTable(
        "Colour: the expert that gave the token most, on its own; of several that gave it the same, the one with the "
        "shortest context.",
        ("expert", "its p", "bits"), tuple(_detail(costs.names, *one) for one in every), parts=costs.names,
        outro="The mixture weighs logits, bit by bit, with those of its own contexts and of the longest match, so it "
        "can give a token more than any of its experts.",
    )  # fmt: skip


def _detail(names: Sequence[str], winner: int, bits_I: Sequence[float], bits: float) -> TokenDetail:
    """The experts' rows and last the mixture's; bars are shares of the largest of their probabilities."""
    costs, least = (*bits_I, bits), min(*bits_I, bits)
    rows = tuple(
        (name, f"{2**-cost:.4f}", _in_digits(cost)) for name, cost in zip((*names, MIXTURE), costs, strict=True)
    )
    title = f"{_in_digits(bits)} bits; of the experts, {names[winner]} gave it most: {_in_digits(bits_I[winner])} bits"
    shares = tuple(2 ** (least - cost) if math.isfinite(cost) else 0.0 for cost in costs)
    return TokenDetail(winner, title, rows, shares, part_bits=costs)


def _in_digits(bits: float) -> str:
    return f"{bits:.2f}" if math.isfinite(bits) else "∞"


EXPERTS = View("experts", "Experts", "token-table", expert_table)
