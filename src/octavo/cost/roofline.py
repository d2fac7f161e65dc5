"""How fast a model can be at best on a machine: bound by products or by memory, whichever takes longer.

The time that a small model spends on starting its many small products is not in it. What is reached of the bound is an
assumption here; on the machine at hand training can be timed instead (`octavo.training.step_timing`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from octavo.cost.machines import Machine
from octavo.cost.memory import SIZE, Optimizer, Precision, decoding_traffic, training_memory, training_traffic
from octavo.models.cost.parts import Cost

Work = Literal["training", "decoding"]
How = Literal["assumed", "timed"]
UTILISATION = 0.4  # an assumption: the share of the bound that is reached


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
    tokens_per_second_at_best: float
    """At the machine's peak and bandwidth."""
    held: int
    """Bytes that the machine has to hold."""
    fits: bool
    tokens_per_step: int
    predicted_tokens_per_second: float
    how: How = "assumed"
    """assumed: a share of what is possible at best; timed: steps of training were timed."""

    @property
    def predicted_seconds_per_step(self) -> float:
        return self.tokens_per_step / self.predicted_tokens_per_second

    @property
    def bound(self) -> str:
        return "memory" if self.intensity < self.balance else "products"


def seconds_of(flops: int, moved: int, machine: Machine) -> float:
    """The slower of the two: the products at the machine's peak, the bytes at its bandwidth."""
    return max(flops / machine.flops, moved / machine.bandwidth)


def predict_training(
    cost: Cost, machine: Machine, utilisation: float = UTILISATION,
    optimizer: Optimizer = "muon", precision: Precision = "bfloat16",
) -> Prediction:  # fmt: skip
    """Of steps on the cost's shape."""
    moved, flops, tokens = training_traffic(cost, optimizer, precision), cost.training_flops, cost.shape.tokens
    held, at_best = training_memory(cost, optimizer, precision).total, tokens / seconds_of(flops, moved, machine)
    return Prediction(
        machine.name, "training", flops / tokens, moved / tokens, flops / moved, machine.balance, at_best,
        held, held <= machine.memory, tokens, utilisation * at_best,
    )  # fmt: skip


def predict_decoding(
    cost: Cost, machine: Machine, utilisation: float = UTILISATION, precision: Precision = "bfloat16"
) -> Prediction:
    """Of one token after another; the cost is of a window of one."""
    assert cost.shape.window == 1, "decoding is token by token"
    moved, flops, rows = decoding_traffic(cost, precision), cost.total("forward"), cost.shape.batch
    held = SIZE[precision] * cost.parameters + rows * cost.cache_bytes(cost.shape.past + 1, SIZE[precision])
    at_best = rows / seconds_of(flops, moved, machine)
    return Prediction(
        machine.name, "decoding", flops / rows, moved / rows, flops / moved, machine.balance, at_best,
        held, held <= machine.memory, rows, utilisation * at_best,
    )  # fmt: skip
