"""Helpers for computing evidence: random tensors, tables of values, intervals of estimates, FLOPs, datasets."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from octavo.datasets.sources import where
from octavo.exercises.framework.answers import Interval, IntervalAt
from octavo.exercises.framework.exercise import Finding, MissingDataError
from octavo.ops.attention.reference import attend_reference


def normal(*shape: int, seed: int = 0) -> Tensor:
    """Standard normal float64 numbers from a generator with this seed."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def tabulate(
    names: str, points: Iterable[Sequence[Any]], function: Callable[..., float], abs: float = 0.0, rel: float = 0.0
) -> list[IntervalAt]:
    """The values of a function at points, with a tolerance.

    `names` are the symbols of the function's arguments, such as "N D"; "_" is one that the formula does not use.
    """
    table = []
    for point in points:
        x = function(*point)
        error = abs + rel * math.fabs(x) if abs or rel else 0
        symbols = {name: value for name, value in zip(names.split(), point, strict=True) if name != "_"}
        table.append(IntervalAt(symbols, x - error, x + error))
    return table


def tabulated(
    names: str, points: Iterable[Sequence[Any]], note: str, abs: float = 0.0, rel: float = 0.0
) -> Callable[[Callable[..., float]], Callable[[], Finding]]:
    """Decorator that makes a function of numbers evidence: its values at points, as `tabulate` computes them."""
    return lambda function: lambda: Finding(tabulate(names, points, function, abs, rel), note)


def mean_interval(samples: Any, standard_errors: float) -> Interval:
    """The mean of independent samples (a tensor or an array), plus and minus some standard errors."""
    mean, error = float(samples.mean()), standard_errors * float(samples.std()) / math.sqrt(len(samples))
    return Interval(mean - error, mean + error)


def share_error(share: float, samples: int, standard_errors: float) -> float:
    """Some standard errors of a share that was estimated from so many samples."""
    return standard_errors * math.sqrt(share * (1 - share) / samples)


def bisect(holds: Callable[[float], bool], low: float, high: float, steps: int = 200) -> float:
    """The smallest number from which on a condition holds."""
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def count_flops(compute: Callable[[], Any]) -> int:
    """The floating-point operations of matrix products, by PyTorch's counter: a multiply-add counts as two."""
    with FlopCounterMode(display=False) as counter:
        compute()
    return int(counter.get_total_flops())


def count_attention_flops(queries: int, keys: int, width: int, heads: int = 1) -> int:
    """The operations of scores and weighted sums in octavo's attention."""
    q, k = meta(1, heads, queries, width), meta(1, heads, keys, width)
    return count_flops(lambda: attend_reference(q, k, k))


def meta(*shape: int) -> Tensor:
    """A tensor without data: operations on it are counted, not computed."""
    return torch.empty(*shape, device="meta")


def dataset(name: str) -> Path:
    """The file or folder of a named dataset; a claim whose dataset is not on this machine is skipped."""
    path = where(name)
    if path is None:
        raise MissingDataError(f"needs the dataset {name}: octavo data get {name}")
    return path
