"""How fast a model can run on a machine: bound by products or by memory, whichever takes longer.

It is a bound: the time that a small model spends on starting its many small products is not in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from octavo.scoring.cost.machine import Machine
from octavo.scoring.cost.memory import (
    SIZE,
    Optimizer,
    Precision,
    decoding_traffic,
    training_memory,
    training_traffic,
)  # fmt: skip
from octavo.scoring.cost.parts import Cost

Work = Literal["training", "decoding"]
UTILISATION = 0.4  # an assumption: the share of the peak, and of the bandwidth, that is reached


@dataclass(frozen=True)
class Prediction:
    """Tokens a second, and why no more."""

    machine: str
    work: Work
    flops_per_token: float
    bytes_per_token: float
    intensity: float
    """Operations for each byte moved."""
    balance: float
    """The machine's: work of less intensity waits for memory."""
    tokens_per_second: float
    held: int
    """Bytes that the machine has to hold."""
    fits: bool

    @property
    def bound(self) -> str:
        return "memory" if self.intensity < self.balance else "products"


def seconds_of(flops: int, moved: int, machine: Machine, utilisation: float) -> float:
    """The slower of the two: the products at the machine's peak, the bytes at its bandwidth."""
    return max(flops / machine.flops, moved / machine.bandwidth) / utilisation


def predict_training(
    cost: Cost, machine: Machine, utilisation: float = UTILISATION,
    optimizer: Optimizer = "muon", precision: Precision = "bfloat16",
) -> Prediction:  # fmt: skip
    """Of steps on the cost's shape."""
    moved, flops, tokens = training_traffic(cost, optimizer, precision), cost.training_flops, cost.shape.tokens
    held = training_memory(cost, optimizer, precision).total
    return Prediction(
        machine.name, "training", flops / tokens, moved / tokens, flops / moved, machine.balance,
        tokens / seconds_of(flops, moved, machine, utilisation), held, held <= machine.memory,
    )  # fmt: skip


def predict_decoding(
    cost: Cost, machine: Machine, utilisation: float = UTILISATION, precision: Precision = "bfloat16"
) -> Prediction:
    """Of one token after another; the cost is of a window of one."""
    assert cost.shape.window == 1, "decoding is token by token"
    moved, flops, rows = decoding_traffic(cost, precision), cost.total("forward"), cost.shape.batch
    held = SIZE[precision] * cost.parameters + rows * cost.cache_bytes(cost.shape.past + 1, SIZE[precision])
    return Prediction(
        machine.name, "decoding", flops / rows, moved / rows, flops / moved, machine.balance,
        rows / seconds_of(flops, moved, machine, utilisation), held, held <= machine.memory,
    )  # fmt: skip
