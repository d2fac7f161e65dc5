"""Power laws: L(x) = floor + the sum over the variables of excess · (x / unit)^-exponent, fitted with an interval.

N points, D variables (bytes of text, parameters, ...), R refits, K exponents tried, P = 1 + D terms of the sum.

For given exponents the sum is linear in the floor and the excesses, so those are found exactly, none below zero; only
the exponents are searched, on a grid that narrows. Errors are relative: a miss of 1 % counts the same everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from octavo.errors import UserError

Array = NDArray[np.float64]
MIN_EXPONENT, MAX_EXPONENT = 1e-3, 4.0  # of the search; those of language models are well inside
FIRST_GRID = {1: 160, 2: 24}  # values of each exponent tried at first, by the number of variables
LATER_GRID, LATER_STAGES = 9, 14  # and in each later stage, around the best
NARROWING = 0.5  # of each stage's range; less would lose a valley that lies askew
REFITS = {1: 1000, 2: 300}
CONFIDENCE = 0.95
MAX_TIMES = 100.0  # times the measured range on either side, in which a crossing is searched for; beyond, it is a guess
GRID_POINTS = 400  # between the two ends
HALVINGS = 50
MIN_VALUES_FOR_FLOOR = 5  # of x; with fewer, a floor cannot be distinguished from a smaller exponent


@dataclass(frozen=True)
class Law:
    """L(x) = floor + sum of excess · (x / unit)^-exponent; the unit is the largest x measured."""

    floor: float
    excess: tuple[float, ...]
    exponent: tuple[float, ...]
    unit: tuple[float, ...]

    def __call__(self, *x: Any) -> Any:
        """Its value at x, one number or array for each variable."""
        terms = zip(self.excess, self.exponent, self.unit, x, strict=True)
        return self.floor + sum(a * (value / u) ** -b for a, b, u, value in terms)


class Interval(NamedTuple):
    """From `low` to `high`, between which CONFIDENCE of the refits lie."""

    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Interval:
        """Of refits, some of which may be infinite."""
        ordered, share = sorted(values), (1 - CONFIDENCE) / 2
        last = len(ordered) - 1
        return cls(ordered[math.floor(share * last)], ordered[math.ceil((1 - share) * last)])


NOWHERE = Interval(math.nan, math.nan)


@dataclass(frozen=True)
class Fit:
    """A law, and those fitted to the same points with other noise, which say how sure it is."""

    law: Law
    refits: tuple[Law, ...]
    points: int
    with_floor: bool
    error: float  # the typical relative miss of a point
    low: tuple[float, ...]  # the smallest x measured; the largest is the law's unit

    def interval(self, *x: float) -> Interval:
        """Of the law's value at x."""
        return Interval.of([law(*x) for law in self.refits])

    @property
    def floor(self) -> Interval:
        return Interval.of([law.floor for law in self.refits])

    def exponent(self, variable: int = 0) -> Interval:
        return Interval.of([law.exponent[variable] for law in self.refits])

    def excess(self, variable: int = 0) -> Interval:
        return Interval.of([law.excess[variable] for law in self.refits])

    @property
    def falls(self) -> bool:
        """Whether it surely falls over what was measured, that is, by more than the least exponent makes of a line."""
        high, low = self.law.unit, self.low
        drops = [float(law(*low) - law(*high)) for law in self.refits]
        least = 2 * MIN_EXPONENT * math.log(high[0] / low[0]) * float(self.law(*high))
        return Interval.of(drops).low > least

    @property
    def whole(self) -> bool:
        """Whether every variable surely plays its part."""
        return all(self.excess(d).low > 0 for d in range(len(self.law.unit)))


def constant(value: float) -> Fit:
    """A level line, such as a result that does not depend on x."""
    law = Law(value, (0.0,), (1.0,), (1.0,))
    return Fit(law, (law,), 1, True, 0.0, (1.0,))


def fit_law(
    x: Sequence[Sequence[float]] | Array, y: Sequence[float] | Array, floor: bool | None = None, seed: int = 0
) -> Fit:
    """The law of points y at x, a row of D variables each; repeated x (other seeds) are welcome.

    `floor` None: fitted where there are enough different x, otherwise 0. The interval is of refits to the
    law's own values with normal noise, as large as the misses are; how large that is, is uncertain itself with few
    points, so each refit draws it again (scaled inverse chi-squared), which gives Student's intervals.
    """
    x_ND, y_N = np.asarray(x, np.float64), np.asarray(y, np.float64)
    if x_ND.ndim != 2 or len(x_ND) != len(y_N) or not 1 <= x_ND.shape[1] <= 2:
        raise UserError(f"a law needs a row of one or two variables for each result: {x_ND.shape}, {y_N.shape}")
    if not (np.isfinite(x_ND).all() and (x_ND > 0).all() and np.isfinite(y_N).all() and (y_N > 0).all()):
        raise UserError("a power law goes through finite results above zero; leave out those that are infinite")
    N, D = x_ND.shape
    distinct = min(len(np.unique(x_ND[:, d])) for d in range(D))
    with_floor = (D > 1 or distinct >= MIN_VALUES_FOR_FLOOR) if floor is None else floor
    parameters = 2 * D + with_floor
    if distinct < 3 or parameters >= N:
        raise UserError(
            f"a power law of {parameters} numbers needs more than {parameters} points, at 3 or more different places: "
            f"there are {N}, at {distinct}; measure more lengths, sizes or budgets"
        )
    unit_D = x_ND.max(0)
    log_ND = np.log(x_ND / unit_D)
    b_1D, theta_1P = _search(log_ND, y_N[None], 1 / y_N, with_floor)
    fitted_N = _terms(log_ND, b_1D[0]) @ theta_1P[0]
    free = N - parameters
    squares = float((((y_N - fitted_N) / y_N) ** 2).sum())
    draw = np.random.default_rng(seed)
    R = REFITS[D]
    size_R = np.sqrt(squares / draw.chisquare(free, R))
    noisy_RN = fitted_N * (1 + size_R[:, None] * draw.standard_normal((R, N)))
    b_RD, theta_RP = _search(log_ND, noisy_RN, 1 / fitted_N, with_floor)
    unit, fitted = tuple(unit_D.tolist()), zip((*theta_1P, *theta_RP), (*b_1D, *b_RD), strict=True)
    laws = [Law(float(theta[0]), tuple(theta[1:].tolist()), tuple(b.tolist()), unit) for theta, b in fitted]
    low = tuple(x_ND.min(0).tolist())
    return Fit(laws[0], tuple(laws[1:]), N, with_floor, math.sqrt(squares / free), low)


def _terms(log_ND: Array, b_D: Array) -> Array:
    """What the floor and the excesses are multiplied by, for exponents of any leading shape."""
    powers = np.exp(-b_D[..., None, :] * log_ND)
    ones: Array = np.ones((*powers.shape[:-1], 1))
    return np.concatenate([ones, powers], -1)


def _search(log_ND: Array, y_RN: Array, weight_N: Array, with_floor: bool) -> tuple[Array, Array]:
    """For every row of results the exponents b_RD and the floor and excesses theta_RP with the least error."""
    R, D = len(y_RN), log_ND.shape[1]
    first = np.geomspace(MIN_EXPONENT, MAX_EXPONENT, FIRST_GRID[D])
    ratio = first[1] / first[0]
    b_KD: Array = np.array(list(product(first, repeat=D)))
    theta_RKP, error_RK = _linear(_terms(log_ND, b_KD)[None], y_RN, weight_N, with_floor)
    rows, best_R = np.arange(R), error_RK.argmin(1)
    b_RD, theta_RP, error_R = b_KD[best_R], theta_RKP[rows, best_R], error_RK[rows, best_R]
    for _ in range(LATER_STAGES):
        steps: Array = np.array(list(product(np.geomspace(1 / ratio, ratio, LATER_GRID), repeat=D)))
        b_RKD = np.clip(b_RD[:, None] * steps, MIN_EXPONENT, MAX_EXPONENT)
        theta_RKP, error_RK = _linear(_terms(log_ND, b_RKD), y_RN, weight_N, with_floor)
        best_R = error_RK.argmin(1)
        better_R = error_RK[rows, best_R] < error_R
        b_RD = np.where(better_R[:, None], b_RKD[rows, best_R], b_RD)
        theta_RP = np.where(better_R[:, None], theta_RKP[rows, best_R], theta_RP)
        error_R = np.where(better_R, error_RK[rows, best_R], error_R)
        ratio **= NARROWING
    return b_RD, theta_RP


def _linear(terms_RKNP: Array, y_RN: Array, weight_N: Array, with_floor: bool) -> tuple[Array, Array]:
    """The least-squares floor and excesses, none below zero, and their error, for all exponents tried.

    With so few unknowns, non-negative least squares is the best of the plain solutions with some of them zero.
    """
    R, P = len(y_RN), terms_RKNP.shape[-1]
    weighted = terms_RKNP * weight_N[:, None]
    gram = np.einsum("rknp,rknq->rkpq", weighted, weighted)
    target = np.einsum("rknp,rn->rkp", np.broadcast_to(weighted, (R, *weighted.shape[1:])), y_RN * weight_N)
    best_theta, best_error = np.zeros(target.shape), np.full(target.shape[:2], np.inf)
    free = range(0 if with_floor else 1, P)  # the terms that may be other than zero
    for used in (list(some) for count in range(len(free), 0, -1) for some in combinations(free, count)):
        theta: Any = np.zeros(target.shape)
        inner = gram[:, :, used][..., used] + 1e-13 * np.eye(len(used))
        theta[..., used] = np.linalg.solve(inner, target[..., used][..., None])[..., 0]
        misses = np.einsum("rknp,rkp->rkn", np.broadcast_to(weighted, (R, *weighted.shape[1:])), theta)
        error = ((misses - (y_RN * weight_N)[:, None]) ** 2).sum(-1)
        error = np.where((theta >= 0).all(-1), error, np.inf)
        better = error < best_error
        best_theta, best_error = np.where(better[..., None], theta, best_theta), np.where(better, error, best_error)
    return best_theta, best_error


@dataclass(frozen=True)
class Crossing:
    """Where the first law passes below (`overtakes`) or above the second.

    `ahead`, `behind`: no crossing within MAX_TIMES; the first is below, or above, the second everywhere. The interval's
    ends are 0 or infinite where refits do not cross on that side.
    """

    kind: Literal["crosses", "ahead", "behind"]
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
    pairs = [(first.refits[i % len(first.refits)], second.refits[-1 - i % len(second.refits)]) for i in range(count)]
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
