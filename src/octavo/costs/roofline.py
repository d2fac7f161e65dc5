"""How fast a model can be at best on a machine: bound by products or by memory, whichever takes longer.

The time that a small model spends on starting its many small products is not in it. What is reached of the bound is an
assumption here; on the machine at hand training can be timed instead (`octavo.training.step_timing`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch

from octavo.costs.memory import SIZE, Optimizer, Precision, decoding_traffic, training_memory, training_traffic
from octavo.errors import UserError, did_you_mean
from octavo.io.memory import available
from octavo.models.cost.parts import Cost

COPIED = {"cpu": 1 << 26, "cuda": 1 << 30}  # bytes: far more than a cache holds
SIDE = {"cpu": 1024, "cuda": 8192}  # of the square matrices that the machine's peak is measured with
REPEATS = 4
TRIES = 5  # at the machine's peak: on a busy one, the best of a few is nearer to it


@dataclass(frozen=True)
class Machine:
    """The most that a machine does."""

    name: str
    flops: float
    """Floating-point operations a second of large matrix products, dense, in half precision where it has that."""
    bandwidth: float
    """Bytes a second, to and from memory."""
    memory: float
    """Bytes."""

    @property
    def balance(self) -> float:
        """Operations for each byte at which products and memory take equally long."""
        return self.flops / self.bandwidth


# NVIDIA's datasheets, without sparsity: bfloat16 with sums in float32, but for the T4, which has only float16.
GPUS: dict[str, Machine] = {
    "t4": Machine("T4", 65e12, 300e9, 16e9),
    "l4": Machine("L4", 121e12, 300e9, 24e9),
    "rtx-4090": Machine("RTX 4090", 165.2e12, 1008e9, 24e9),
    "a100-80": Machine("A100 SXM 80 GB", 312e12, 2039e9, 80e9),
    "h100": Machine("H100 SXM", 989e12, 3350e9, 80e9),
    "h200": Machine("H200 SXM", 989e12, 4800e9, 141e9),
}


def named_gpu(name: str) -> Machine:
    """A GPU by its name."""
    if name not in GPUS:
        advice = did_you_mean(name, GPUS, f"try {', '.join(GPUS)}")
        raise UserError(f"there is no datasheet of {name!r}; {advice}")
    return GPUS[name]


def fastest(work: Callable[[], object], device: torch.device) -> float:
    """Seconds of the quickest of a few repetitions."""
    best = float("inf")
    for _ in range(REPEATS):
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        began = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best = min(best, time.perf_counter() - began)
    return best


def copy_rate(device: torch.device) -> float:
    """Bytes a second that copying a large tensor moves: what is read and what is written."""
    source = torch.zeros(COPIED[device.type], dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * len(source) / fastest(lambda: target.copy_(source), device)


def matmul_rate(device: torch.device, dtype: torch.dtype) -> float:
    """The machine's floating-point operations a second on a product of large matrices: the most to hope for."""
    generator = torch.Generator(device).manual_seed(0)  # its own: the caller's random numbers stay as they are
    side = SIDE[device.type]
    a, b = (torch.randn(side, side, device=device, generator=generator).to(dtype) for _ in range(2))
    return 2 * side**3 / fastest(lambda: a @ b, device)


def measured_machine(device: torch.device, precision: Precision) -> Machine:
    """What this machine reaches, measured: large products of that precision, and copies."""
    memory = torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else available()
    peak = max(matmul_rate(device, getattr(torch, precision)) for _ in range(TRIES))
    return Machine(f"this machine ({device.type})", peak, copy_rate(device), memory)


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


def predict_training(
    cost: Cost, machine: Machine, utilisation: float = UTILISATION,
    optimizer: Optimizer = "muon", precision: Precision = "bfloat16",
) -> Prediction:  # fmt: skip
    """Of steps on the cost's shape."""
    moved, held = training_traffic(cost, optimizer, precision), training_memory(cost, optimizer, precision).total
    return _predict("training", machine, utilisation, cost.units, cost.training_flops, moved, held)


def predict_decoding(
    cost: Cost, machine: Machine, utilisation: float = UTILISATION, precision: Precision = "bfloat16"
) -> Prediction:
    """Of one token after another; the cost is of a window of one."""
    assert cost.shape.window == 1, "decoding is token by token"
    rows, size = cost.shape.batch, SIZE[precision]
    held = size * cost.parameters + rows * cost.cache_bytes(cost.shape.past + 1, size)
    moved = decoding_traffic(cost, precision)
    return _predict("decoding", machine, utilisation, rows, cost.total("forward"), moved, held)


def _predict(
    work: Work, machine: Machine, utilisation: float, tokens: int, flops: int, moved: int, held: int
) -> Prediction:
    """The slower of the two: the products at the machine's peak, the bytes at its bandwidth."""
    at_best = tokens / max(flops / machine.flops, moved / machine.bandwidth)
    return Prediction(
        machine.name, work, flops / tokens, moved / tokens, flops / moved, machine.balance, at_best,
        held, held <= machine.memory, tokens, utilisation * at_best,
    )  # fmt: skip
