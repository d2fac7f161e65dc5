"""Where two laws meet, and how sure that is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from octavo.experiments.scale.power_law import Fit, Interval, Law

MAX_TIMES = 100.0  # times the measured range, on either side; beyond it, it is a guess
GRID_POINTS = 400  # between the two ends
HALVINGS = 50

NOWHERE = Interval(math.nan, math.nan)
Kind = Literal["crosses", "ahead", "behind"]


@dataclass(frozen=True)
class Crossing:
    """Where the first law passes below (`overtakes`) or above the second.

    `ahead`, `behind`: no crossing within MAX_TIMES; the first is below, or above, the second everywhere. The interval's
    ends are 0 or infinite where refits do not cross on that side.
    """

    kind: Kind
    at: float = math.nan
    interval: Interval = NOWHERE
    overtakes: bool = True
    share: float = 1.0  # of the refits that say the same
    low: float = 0.0  # what was measured
    high: float = math.inf

    @property
    def measured(self) -> bool:
        """Whether it lies within what was measured, so that nothing was extrapolated."""
        return self.low <= self.at <= self.high


def crossing(first: Fit, second: Fit, low: float, high: float) -> Crossing:
    """Where the first law crosses the second, from MAX_TIMES times below `low` to MAX_TIMES times above `high`."""
    ends = low / MAX_TIMES, high * MAX_TIMES
    count = max(len(first.refits), len(second.refits))
    # Backwards, because refits from the same seed and number of points have the same noise in the same order.
    pairs = [
        (first.refits[i % len(first.refits)], second.refits[-1 - i % len(second.refits)])
        for i in range(count)
    ]  # fmt: skip
    found = _roots(first.law, second.law, *ends)
    if not found:
        ahead = first.law(high) < second.law(high)
        same = [not _roots(*pair, *ends) and (pair[0](high) < pair[1](high)) == ahead for pair in pairs]
        return Crossing("ahead" if ahead else "behind", share=sum(same) / count, low=low, high=high)
    centre = math.sqrt(low * high)
    at, overtakes = min(found, key=lambda root: abs(math.log(root[0] / centre)))
    others = [_same(*pair, ends, at, overtakes) for pair in pairs]
    share = sum(0 < other < math.inf for other in others) / count
    return Crossing("crosses", at, Interval.of(others), overtakes, share, low, high)


def _roots(first: Law, second: Law, low: float, high: float) -> list[tuple[float, bool]]:
    """Every place where the order of the two changes, and whether the first falls below the second there."""
    x = np.geomspace(low, high, GRID_POINTS)
    above = first(x) - second(x) > 0
    changes = np.flatnonzero(above[:-1] != above[1:]).tolist()
    return [(_halved(first, second, float(x[i]), float(x[i + 1])), bool(above[i])) for i in changes]


def _halved(first: Law, second: Law, low: float, high: float) -> float:
    """The place of a change between two others, by halving on a logarithmic scale."""
    above = first(low) > second(low)
    for _ in range(HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if (first(middle) > second(middle)) == above else (low, middle)
    return math.sqrt(low * high)


def _same(first: Law, second: Law, ends: tuple[float, float], at: float, overtakes: bool) -> float:
    """Where a refit crosses the same way, nearest to `at`; 0 or infinity where it already has, or never does."""
    roots = [root for root, falls in _roots(first, second, *ends) if falls == overtakes]
    if roots:
        return min(roots, key=lambda root: abs(math.log(root / at)))
    return 0.0 if (first(at) < second(at)) == overtakes else math.inf
