"""What the gates of a recurrent network do while it reads a text, and what its attention looks at.

T the tokens read, begin first; D hidden units; M remembered states.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from octavo.core import LanguageModel, device_of, eval_mode
from octavo.io.cooperative import Turn
from octavo.models import GPT, Mix
from octavo.ops.tracing import trace

DOORS = ("reset", "update", "input", "forget", "output")  # between 0, shut, and 1, open; the others have a sign
ATTENTION = "attention"
SHUT, OPEN = 0.1, 0.9  # below and above, a unit counts as saturated
STEPS = 32  # of a turn


@dataclass(frozen=True)
class Gate:
    """One gate of one layer over a text; the values that have a sign (hidden, candidate, cell) are shown alike."""

    name: str
    layer: int  # from 1
    value_TD: Tensor

    @property
    def signed(self) -> bool:
        return self.name not in DOORS

    @property
    def mean(self) -> Tensor:
        """Of each token, the mean over the units."""
        return self.value_TD.mean(1)

    @property
    def strength(self) -> Tensor:
        """The mean over the units as a number from 0 to 1: without the sign, and of a cell after its tanh."""
        return self.bounded().abs().mean(1)

    @property
    def low(self) -> Tensor:
        """The share of units that are shut; of those with a sign, that are near -1."""
        return (self.bounded() < (-OPEN if self.signed else SHUT)).double().mean(1)

    @property
    def high(self) -> Tensor:
        """The share of units that are open, or near 1."""
        return (self.bounded() > OPEN).double().mean(1)

    def busiest(self, count: int) -> list[int]:
        """The units whose values vary most over the text, the busiest first."""
        return self.bounded().std(0, correction=0).topk(min(count, self.value_TD.shape[1])).indices.tolist()

    def bounded(self) -> Tensor:
        """The values, none beyond -1 and 1: of a cell, what its tanh makes of them."""
        return self.value_TD.tanh() if self.name == "cell" else self.value_TD


@dataclass(frozen=True)
class Gates:
    """Everything that a model shows while it reads a text; a model without gates shows nothing."""

    gates: tuple[Gate, ...] = ()
    attention: tuple[tuple[float, ...], ...] = field(default=())
    """For each token read, the weight of every token before it; those that the memory has lost have none."""

    @property
    def layers(self) -> int:
        return max((gate.layer for gate in self.gates), default=0)


@torch.no_grad()
def gates_over(model: LanguageModel[Any], x_T: Sequence[int], turn: Turn = nullcontext) -> Gates:
    """Read begin and then the tokens, one `step` each, and note the gates.

    A step passes its layers from the bottom up, so the n-th value it shows under a name is the n-th layer's. A mixture
    would show its parts' values as if they were layers, and is left alone: look at its parts. A transformer has none.
    """
    if isinstance(model, GPT | Mix):
        return Gates()
    found: dict[tuple[str, int], list[Tensor]] = {}
    attention: list[tuple[float, ...]] = []
    state, read = model.start(1), list(enumerate([model.begin, *x_T]))
    for first in range(0, len(read), STEPS):
        with turn(), eval_mode(model):
            for t, token in read[first : first + STEPS]:
                with trace() as shown:
                    _, state = model.step(state, torch.tensor([token], device=device_of(model)))
                for weights_1M in shown.pop(ATTENTION, []):
                    attention.append(_over_all(weights_1M[0].tolist(), t))
                for name, values in shown.items():
                    for layer, value_1D in enumerate(values, 1):
                        found.setdefault((name, layer), []).append(value_1D[0].double().cpu())
    gates = [Gate(name, layer, torch.stack(values)) for (name, layer), values in found.items()]
    return Gates(tuple(sorted(gates, key=lambda gate: gate.layer)), tuple(attention))


def _over_all(weights: list[float], before: int) -> tuple[float, ...]:
    """The weights of a memory, which ends with the last token before, set out over all tokens before."""
    return (*[0.0] * (before - len(weights)), *weights)
