"""What training has to hold: weights, gradients, what the optimizer remembers, and what is saved for the backward pass.

Weights, gradients and what the optimizer remembers are in single precision, as octavo trains; products may be in half.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from octavo.models.cost.parts import Cost

Optimizer = Literal["muon", "adamw"]
Precision = Literal["float32", "bfloat16"]
SIZE: dict[Precision, int] = {"float32": 4, "bfloat16": 2}  # bytes of a number


@dataclass(frozen=True)
class Memory:
    """Bytes while training."""

    weights: int
    gradients: int
    optimizer: int
    activations: int

    @property
    def total(self) -> int:
        return self.weights + self.gradients + self.optimizer + self.activations


def training_memory(cost: Cost, optimizer: Optimizer = "muon", precision: Precision = "bfloat16") -> Memory:
    """Of a step on the cost's shape."""
    learnt = cost.parameters - cost.total("fixed")
    return Memory(4 * cost.parameters, 4 * learnt, optimizer_bytes(cost, optimizer), activation_bytes(cost, precision))


def optimizer_bytes(cost: Cost, optimizer: Optimizer) -> int:
    """AdamW remembers two numbers for each that is learnt, Muon one for each of a matrix; counts of steps left out."""
    learnt = cost.parameters - cost.total("fixed")
    matrices = cost.total("matrices") if optimizer == "muon" else 0
    return 4 * (matrices + 2 * (learnt - matrices))


def activation_bytes(cost: Cost, precision: Precision) -> int:
    """What is saved for the backward pass, with copies of weights: in half precision, one of each that is multiplied;
    nothing where it is not counted.

    Nearly, for half precision: sums that PyTorch keeps in single precision there are taken for half.
    """
    if cost.unit != "token":
        return 0
    copies = cost.total("copies" if precision == "float32" else "half_copies")
    return SIZE[precision] * (cost.total("saved") + copies) + cost.total("saved_bytes")


def training_traffic(cost: Cost, optimizer: Optimizer = "muon", precision: Precision = "bfloat16") -> int:
    """Bytes that a step has to move at the least: everything once when it is made and once when it is used.

    Weights are read on the forward and in the backward pass; gradients are written, and read by the optimizer, which
    reads and writes weights and what it remembers; what is saved is written and read.
    """
    memory = training_memory(cost, optimizer, precision)
    return 4 * memory.weights + 2 * memory.gradients + 2 * memory.optimizer + 2 * memory.activations


def decoding_traffic(cost: Cost, precision: Precision = "bfloat16") -> int:
    """Bytes that a step of decoding has to read: the weights once for all rows, and each row's cache."""
    size = SIZE[precision]
    return size * cost.total("read") + cost.shape.batch * cost.cache_bytes(cost.shape.past + 1, size)
