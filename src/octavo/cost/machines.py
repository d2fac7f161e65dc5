"""Machines: what a GPU can do by its datasheet, and how fast this one copies."""

from __future__ import annotations

import time
from dataclasses import dataclass
from difflib import get_close_matches

import torch

from octavo.errors import UserError

COPIED = {"cpu": 1 << 26, "cuda": 1 << 30}  # bytes: far more than a cache holds
REPEATS = 8


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
        near = get_close_matches(name, GPUS, 1)
        raise UserError(
            f"there is no datasheet of {name!r}; " + (f"did you mean {near[0]}?" if near else f"try {', '.join(GPUS)}")
        )
    return GPUS[name]


def copy_rate(device: torch.device) -> float:
    """Bytes a second that copying a large tensor moves: what is read and what is written."""
    source = torch.zeros(COPIED[device.type], dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    best = float("inf")
    for _ in range(REPEATS):
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        began = time.perf_counter()
        target.copy_(source)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best = min(best, time.perf_counter() - began)
    return 2 * len(source) / best
