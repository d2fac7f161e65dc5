"""An axis: the range of some numbers, linear or logarithmic, and the round numbers to write beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

TICKS = 6  # about as many are written
SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
WRITTEN_OUT = range(-3, 4)  # powers of ten
DIGIT_WIDTH = 7.7  # units, in the widest of the fonts that a browser may choose
WIDTHS = {  # units of other characters
    **dict.fromkeys(",.·", 3.9), **dict.fromkeys("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", 5.0), "-": 4.4, "M": 10.4,
}  # fmt: skip


@dataclass(frozen=True)
class Axis:
    """From `low` to `high`, which on a logarithmic axis are positive; on a linear one, ticks are a `step` apart."""

    low: float
    high: float
    log: bool
    step: float

    @classmethod
    def around(cls, values: Sequence[float], log: bool = False, tight: bool = False) -> Axis:
        """An axis for finite numbers (positive ones, if it is logarithmic); it ends at a tick near by, or tightly."""
        low, high = min(values), max(values)
        if low == high:
            low, high = (low / 2, high * 2) if log else (low - (abs(low) / 2 or 1), high + (abs(high) / 2 or 1))
        step = _step(high - low)
        if tight:
            return cls(low, high, log, step)
        if not log:
            return cls(step * math.floor(low / step + 1e-9), step * math.ceil(high / step - 1e-9), log, step)
        round_numbers = _log_ticks(low / 10, high * 10)
        below = [tick for tick in round_numbers if tick <= low * (1 + 1e-9)]
        above = [tick for tick in round_numbers if tick >= high * (1 - 1e-9)]
        margin = (high / low) ** 0.05  # where the next round number is far away
        return cls(max(below, default=low / margin), min(above, default=high * margin), log, step)

    @property
    def label_width(self) -> float:
        """The units that the widest of its labels takes."""
        return max((sum(WIDTHS.get(sign, DIGIT_WIDTH) for sign in label) for _, label in self.ticks), default=0.0)

    def share(self, value: float) -> float:
        """How far along the axis a value lies, from 0 to 1."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Round numbers on the axis, as they are written."""
        if self.log:
            return [(tick, number(tick)) for tick in _log_ticks(self.low, self.high)]
        first, last = math.ceil(self.low / self.step - 1e-9), math.floor(self.high / self.step + 1e-9)
        return [(self.step * i, number(self.step * i)) for i in range(first, last + 1)]


@dataclass(frozen=True)
class EvenLogAxis(Axis):
    """Logarithmic, so that equal heights are equal percentages, with evenly spaced numbers beside it.

    Bits per byte rarely span a power of ten.
    """

    @property
    def ticks(self) -> list[tuple[float, str]]:
        return Axis(self.low, self.high, False, self.step).ticks


def _step(span: float) -> float:
    """A round distance, 1, 2 or 5 times a power of ten, that cuts the span in about TICKS."""
    power = 10.0 ** math.floor(math.log10(span / TICKS))
    return next(factor * power for factor in (1, 2, 5, 10, 20) if span / (factor * power) <= TICKS)


def _log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten, every second or third of them where there are many; where there are few, 2 and 5 times them."""
    first, last = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
    every = max(1, math.ceil((last - first) / TICKS))
    factors = (1, 2, 5) if math.log10(high / low) < 2.5 else (1,)
    powers = [p for p in range(first, last + 1) if p % every == 0]
    ticks = [factor * 10.0**p for p in powers for factor in factors]
    return [tick for tick in ticks if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]


def number(value: float) -> str:
    """A number in few characters: 0.05, 2,000, 20k, 3M, 10⁻⁸."""
    if not math.isfinite(value):
        return "not finite"
    if value == 0:
        return "0"
    power = math.floor(math.log10(abs(value)) + 1e-9)
    for least, unit in ((6, "M"), (4, "k")):
        if least <= power < 9:
            return f"{value / 10.0 ** (least // 3 * 3):.4g}{unit}"
    if power in WRITTEN_OUT:
        return f"{float(f'{value:.4g}'):,g}"
    digits = f"{value / 10.0**power:.3g}"
    ten = "10" + str(power).translate(SUPERSCRIPT)
    return ten if digits == "1" else f"{digits}·{ten}"
