"""Confidence intervals of bits per byte, and of the difference of two models on the same blocks of the held-out text.

N bytes of text in K blocks of equal length, S seeds. Neighbouring bytes are not independent, blocks nearly are. An
interval over blocks says how far another text of the same kind may lie from this one; seeds say how far another
training run may.

Two models a and b that pay a_SK and b_SK bits for the blocks are compared block by block, because a block that is hard
for one is hard for the other:

    d_k = (mean_s a_sk - mean_s b_sk) K / N        their mean d is the difference in bits per byte
    v   = s²(d_k) / K + s²(a_s) / S + s²(b_s) / S  the text's part, and each model's seeds' where it has several
    d ± t(0.975, ν) √v                             ν = v² / Σ v_i² / ν_i, Welch and Satterthwaite's

With one seed each it is the interval of the paired t-test. Where it holds zero, the two models are called a tie. It is
of two given models: of several comparisons, one in twenty errs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

MAX_BLOCKS = 40
MIN_BLOCK_BYTES = 64  # about a line of text: shorter blocks depend on their neighbours
CONFIDENCE = 0.95

BlockBits = Sequence[Sequence[float]]  # of each seed, the bits of each block


@dataclass(frozen=True)
class Difference:
    """By how many bits per byte one model needs more than another, with its 95 % confidence interval."""

    mean: float
    low: float
    high: float
    blocks: int

    @property
    def is_tie(self) -> bool:
        """Whether the text does not say which of them is better."""
        return self.low <= 0.0 <= self.high

    def in_words(self) -> str:
        """+0.012 bits per byte, 95 % interval 0.004 to 0.020."""
        return f"{self.mean:+.3f} bits per byte, 95 % interval {self.low:.3f} to {self.high:.3f}"


@dataclass(frozen=True)
class BlockCosts:
    """What every model of a comparison paid for the blocks of one text."""

    bytes: int = 0  # of the text; 0: not known
    bits: Mapping[str, BlockBits] = field(default_factory=dict)

    def difference(self, model: str, other: str) -> Difference | None:
        """How many more bits per byte the one needs than the other; None where they have no blocks to compare."""
        found = self.bits.get(model), self.bits.get(other)
        return paired_difference(found[0], found[1], self.bytes) if found[0] and found[1] else None


def block_count(size: int) -> int:
    """How many blocks a text of so many bytes has."""
    return min(MAX_BLOCKS, size // MIN_BLOCK_BYTES)


def block_ends(size: int) -> list[int]:
    """Where the blocks of a text end: all of one length, the first a byte longer where it does not divide."""
    count = block_count(size)
    return [(k + 1) * (size // count) + min(k + 1, size % count) for k in range(count)]


def block_bits(bits_N: NDArray[np.floating]) -> list[float]:
    """The bits of each block, from those of each byte."""
    ends = block_ends(len(bits_N))
    return [float(part.sum(dtype=np.float64)) for part in np.split(bits_N, ends[:-1])] if ends else []


def block_interval(bits_N: NDArray[np.floating]) -> tuple[tuple[float, float] | None, str]:
    """The 95 % confidence interval of the bits per byte, from blocks of equal length, and what it is over."""
    bits_K = block_bits(bits_N)
    if len(bits_K) < 2 or not np.isfinite(bits_K).all():
        return None, ""
    return t_interval([len(bits_K) * bits / len(bits_N) for bits in bits_K]), f"over {len(bits_K)} blocks of the text"


def t_interval(values: Sequence[float]) -> tuple[float, float]:
    """Student's confidence interval of the mean."""
    return _around(float(np.mean(values)), [_variance(values)])


def paired_difference(a_SK: BlockBits, b_SK: BlockBits, size: int) -> Difference | None:
    """The difference a - b in bits per byte of a text of so many bytes, tested on the same blocks.

    A compressor has only a sum, because what it writes for a block depends on the others: it is spread evenly.
    """
    counts = {len(bits_K) for bits_K in (*a_SK, *b_SK)}
    count = max(counts)
    if count < 2 or counts - {1, count}:
        return None
    first_SK, second_SK = (np.stack([_spread(bits_K, count) for bits_K in bits_SK]) for bits_SK in (a_SK, b_SK))
    if not (np.isfinite(first_SK).all() and np.isfinite(second_SK).all()):
        return None
    d_K = (first_SK.mean(0) - second_SK.mean(0)) * count / size
    seeds = [bits_SK.sum(1) / size for bits_SK in (first_SK, second_SK) if len(bits_SK) > 1]
    mean = float(d_K.mean())
    return Difference(mean, *_around(mean, [_variance(values) for values in (d_K, *seeds)]), count)


def _spread(bits_K: Sequence[float], count: int) -> NDArray[np.float64]:
    """The bits of each block; those of a sum alone, evenly over so many."""
    return np.array(bits_K, np.float64) if len(bits_K) == count else np.full(count, bits_K[0] / count)


def _variance(values: Sequence[float] | NDArray[np.float64]) -> tuple[float, int]:
    """The variance of the mean of the values, and its degrees of freedom."""
    return float(np.var(values, ddof=1)) / len(values), len(values) - 1


def _around(mean: float, variances: Sequence[tuple[float, int]]) -> tuple[float, float]:
    """The confidence interval around a mean whose variance is the sum of several, each with its degrees of freedom."""
    total = sum(variance for variance, _ in variances)
    if not total:
        return mean, mean
    freedom = total**2 / sum(variance**2 / free for variance, free in variances)
    half = float(stdtrit(freedom, (1 + CONFIDENCE) / 2)) * math.sqrt(total)
    return mean - half, mean + half
