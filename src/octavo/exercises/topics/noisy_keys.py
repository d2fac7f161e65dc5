"""Averaging two values under noise in a key, with one head and with two heads.

The noise can flip the sign of the key, so variances are given over all draws and given that it did not.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import mpmath
import numpy as np
from numpy.typing import NDArray

from octavo.exercises import (
    Choice,
    Exercise,
    Finding,
    Formula,
    Function,
    Interval,
    IntervalAt,
    Number,
    Part,
    Truth,
    verdict,
)
from octavo.exercises.framework.symbolic import symbols
from octavo.pages.figures.charts import Series, lines

NOISE = math.sqrt(0.5)  # standard deviation of the noisy key's length around 1
DRAWS, STANDARD_ERRORS = 1_000_000, 4  # of Monte Carlo estimates and their intervals
Array = NDArray[np.float64]


def normal_mean(function: Callable[[Array], Array]) -> float:
    """E f(Z) for a standard normal Z by the trapezoidal rule, which converges very fast for such integrands."""
    z = np.linspace(-12, 12, 480_001)
    return float((function(z) * np.exp(-(z**2) / 2)).sum() * (z[1] - z[0]) / math.sqrt(2 * math.pi))


def sigmoid(x: Array) -> Array:
    return 0.5 * (1 + np.tanh(x / 2))


def single_variance(b: float, noise: float = NOISE) -> float:
    """The variance of sigmoid(b s Z)."""
    return normal_mean(lambda z: (sigmoid(b * noise * z) - 0.5) ** 2)


def single_mean() -> Finding:
    mean = normal_mean(lambda z: sigmoid(10 * NOISE * z))
    return Finding(mean, f"numerical integral for b = 10: {mean:.12f}")


def single_at_ten() -> Finding:
    z = np.random.default_rng(3).normal(size=DRAWS)
    w = sigmoid(10 * NOISE * z)
    variance = single_variance(10.0)
    return Finding(variance, f"numerical integral; {DRAWS:,} draws give {w.var():.5f}")


VARIANCES = [(0.1, 1.0), (1.0, 0.5), (10.0, 0.7), (50.0, 2.0)]


def exact_variances() -> Finding:
    """Var = 1/4 - E(w (1 - w)), integrated by mpmath."""
    variances = []
    for b, s in VARIANCES:
        bump = mpmath.quad(lambda z: mpmath.sech(b * s * z / 2) ** 2 / 4 * mpmath.npdf(z),  # noqa: B023
                           [-12, -2, -0.5, -0.1, -0.02, 0, 0.02, 0.1, 0.5, 2, 12])  # fmt: skip
        variances.append(0.25 - float(bump))
    return Finding(variances, "1/4 - E(w (1 - w)) by mpmath: " + ", ".join(f"{x:.6f}" for x in variances))


def single_short() -> Finding:
    import sympy

    b, s = symbols({"b": "positive", "s": "positive"})
    x = sympy.Symbol("x", real=True)
    slope = sympy.diff(1 / (1 + sympy.exp(-x)), x).subs(x, 0)
    note = f"the slope of the sigmoid at 0 is {slope}; the variance of the score is (b s)^2"
    return Finding(slope**2 * b**2 * s**2, note)


def single_long() -> Finding:
    points = [IntervalAt({"b": b, "s": s}, variance - 4 / (b * s) ** 3, variance + 4 / (b * s) ** 3)
              for b, s in ((2000.0, 1.0), (3000.0, 0.5)) for variance in [single_variance(b, s)]]  # fmt: skip
    return Finding(points, "numerical integrals; the next term is of order 1/(b s)^3")


def single_steadier() -> Finding:
    variances = [single_variance(float(b)) for b in (1, 2, 5, 10, 30, 100)]
    falls = any(later < earlier for earlier, later in pairwise(variances))
    return Finding(
        verdict(falls), "b = 1, 2, 5, 10, 30, 100: variance " + ", ".join(f"{v:.4f}" for v in variances), "any decrease"
    )


def single_limit() -> Finding:
    squares = (sigmoid(1e9 * np.random.default_rng(4).normal(size=DRAWS)) - 0.5) ** 2  # the mean is 1/2 by symmetry
    variance, error = float(squares.mean()), STANDARD_ERRORS * float(squares.std()) / math.sqrt(DRAWS) + 1e-6
    return Finding(Interval(variance - error, variance + error), f"b = 1e9, {DRAWS:,} draws: the weight is 0 or 1")


NOISY_KEY = ("The keys `k_1` and `k_2` are orthonormal, but noise multiplies `k_1` by `1 + s*z`{length}, with z "
             "standard normal and `s^2 = 1/2`.")  # fmt: skip
GRID = np.linspace(-12, 12, 2401)  # values of z, for formulas in the texts
FLIPPED = float(mpmath.ncdf(-1 / NOISE))  # probability that the noise flips the key
NAMES = {
    "s": NOISE, "length": lambda s, z: 1 + s * z, "score": lambda b, length: b * length, "Phi": mpmath.ncdf,
    "w": lambda b, length: 1 / (1 + mpmath.exp(b - b * length)), "flipped": FLIPPED, "p": 1 - FLIPPED,
    "mirrored": lambda b, s, z: 1 / (1 + mpmath.exp(b * s * z)), "density": mpmath.npdf(0),
    "slope": lambda: mpmath.diff(lambda x: 1 / (1 + mpmath.exp(-x)), 0), "inverse": lambda b: 1 / mpmath.mpf(b),
    "score_variance": lambda b, s: np.var([float(b * s), -float(b * s)]), "one_head": lambda: np.var([0.0, 1.0]),
    "r": lambda p: 0.5 / p,
}  # fmt: skip
AT_TEN = {  # b = 10, and z is a grid of values
    "b": 10, "z": GRID, "w": lambda z: sigmoid(10 * NOISE * z), "spread": lambda: single_variance(10.0),
    "E": lambda x: float((x * np.exp(-(GRID**2) / 2)).sum() * 0.01 / math.sqrt(2 * math.pi)),
    "Var": lambda x: float(((x - 0.5) ** 2 * np.exp(-(GRID**2) / 2)).sum() * 0.01 / math.sqrt(2 * math.pi)),
    "bump": lambda w: w - w * w,
}  # fmt: skip
QUERY_LENGTHS = [10 ** (i / 8) for i in range(-8, 17)]
BS = {"b": "positive", "s": "positive"}

ONE_HEAD = Exercise(
    id="average-one-head-noise", title="One head averages under noise in a key",
    question=NOISY_KEY + " One head averages the two values with the query `q = b*(k_1 + k_2)`, made from the keys "
    "without noise. w is the attention weight of the first value; other keys are ignored.",
    where=NAMES,
    answer="The scores are `b*(1 + s*z)`{score} and b, so `w = 1/(1 + exp(-b*s*z))`: the noise is multiplied by b. "
    "The mean of w is 1/2{mean} by symmetry. Its variance is that of a logistic-normal variable and has no simple "
    "formula: it is `(b*s)^2/16`{short} for small b and rises to 1/4{limit}, where the output is one value or the "
    "other, never their mean. A short query has a small variance but lets other keys in: one head cannot avoid both.",
    figure=lambda: lines([Series("variance", [(b, single_variance(b)) for b in QUERY_LENGTHS]),
        Series("formula for small b", [(b, b * b / 32) for b in QUERY_LENGTHS if b < 2.6]),
        Series("expansion for large b", [(b, 0.25 - 1 / (b * math.sqrt(math.pi))) for b in QUERY_LENGTHS if b > 2.6])],
        "The variance of the weight, and its approximations for short and for long queries.",
        ("length b of the query", "variance"), log_x=True),
    parts=[
        Part("mean", "What is E(w) for `b = 10`?", Number("1/2"), "numeric", single_mean, where={"b": 10},
             why="z and `-z` are equally likely, and they give w and `1 - w`{mirrored}.",
             wrong={"put the mean length, not the score difference, into the sigmoid":
                        (0.7310585786, lambda: float(sigmoid(np.array(1.0))))}),
        Part("variance", "What is Var(w) for `b = 10`?", Number(0.1953206549), "numeric", single_at_ten, where=AT_TEN,
             why="`E((w - 1/2)^2)`{} is an integral over z; `1/4 - 1/(b*s*sqrt(2*pi))`{long} is already close.",
             wrong={"used the formula for short queries": (3.125, lambda: (10 * NOISE) ** 2 / 16),
                    "used the limit": (0.25, lambda: np.var([0.0, 1.0])),
                    "used the expansion for long queries":
                        (0.1935810417, lambda: 0.25 - 1 / (10 * NOISE * math.sqrt(2 * math.pi)))}),
        Part("function", "Write Var(w) as a function of b and s.", Function("variance", single_variance, VARIANCES,
             "variance(b: number, s: number) -> number", rel=1e-6, abs=0), "numeric", exact_variances,
             why="`E((w - 1/2)^2)`{spread} with `w = 1/(1 + exp(-b*s*z))`, integrated over z.", where=AT_TEN,
             wrong={"used the formula for short queries": lambda b, s: (b * s) ** 2 / 16,
                    "used the expansion for long queries": lambda b, s: 0.25 - 1 / (b * s * math.sqrt(2 * math.pi))}),
        Part("short", "To leading order in b, what is Var(w) for a short query?", Formula("b^2*s^2/16", BS), "symbolic",
             single_short, why="The slope of the sigmoid at zero is 1/4{slope}, and `b*s*z` has variance "
                  "`(b*s)^2`{score_variance}.",
             wrong={"forgot to square the slope": ("b^2*s^2/4", lambda b, s: mpmath.diff(mpmath.tanh,
                 0) / 4 * (b * s) ** 2),
                    "did not square b": ("b*s^2/16", lambda b, s: b * (s * mpmath.diff(mpmath.tanh, 0) / 4) ** 2)}),
        Part("long", "Give Var(w) for a long query, up to and including the term in `1/b`{inverse}.",
             Formula("1/4 - 1/(b*s*sqrt(2*pi))", BS), "numeric", single_long,
             why="`Var(w) = 1/4 - E(w*(1 - w))`, and `w*(1 - w)`{bump} is a bump of area one in `b*s*z`, where the "
             "density of z is `1/sqrt(2*pi)`{density}.", where=AT_TEN,
             wrong={"gave only the limit": ("1/4", lambda: np.var([0.0, 1.0])),
                    "left out the density at zero": ("1/4 - 1/(b*s)", lambda b, s: mpmath.mpf(1) / 4 - 1 / (b * s))}),
        Part("limit", "Which value does Var(w) approach as `b -> inf`?", Number("1/4"), "monte carlo", single_limit,
             why="w becomes one or zero, with equal probabilities.",
             wrong={"thought that a sharp softmax removes the noise": (0, lambda: np.var([0.5, 0.5])),
                    "gave the standard deviation": (0.5, lambda: np.std([0.0, 1.0])),
                    "gave the variance of a uniform weight":
                        ("1/12", lambda: mpmath.quad(lambda x: (x - 0.5) ** 2, [0, 1]))}),
        Part("steadier", "A longer query reduces the variance of this average.", Truth("false"), "numeric",
             single_steadier, why="`b*s` multiplies the noise, so the variance grows with b.",
             wrong={"thought that a sharper softmax suppresses noise": True}),
    ])  # fmt: skip


def two_head_weight(length: Array, b: float) -> Array:
    """The weight of value a in the mean of two heads with the queries b k_a and b k_b, among 10 keys."""
    first: Array = 1 / (1 + 9 * np.exp(np.clip(-b * length, -700, 700)))
    second = math.exp(-b) / (1 + 9 * math.exp(-b))
    return np.asarray((first + second) / 2)


def lengths() -> Array:
    return 1 + NOISE * np.random.default_rng(5).normal(size=DRAWS)


def two_heads_settle() -> Finding:
    length = lengths()
    table = {
        b: (float(two_head_weight(length, b).var()), float(two_head_weight(length[length > 0], b).var()))
        for b in (10.0, 1e3, 1e5)
    }
    note = "; ".join(
        f"b = {b:g}: all draws {every:.4f}, length above 0 {positive:.1e}" for b, (every, positive) in table.items()
    )
    halved = float(two_head_weight((1 + length) / 2, 1e5).var())  # half of the noise: 1 + s z / 2
    under = {
        "not-flipped": table[1e5][1] < 1e-4 < table[10.0][1],
        "smaller": halved < 1e-4,
        "any": table[1e5][0] < 1e-4,
    }
    return Finding(verdict(table[1e5][0] < 1e-4, under), note, "below 1e-4 at b = 1e5")


def probability_found() -> Finding:
    found = mpmath.quad(mpmath.npdf, [-1 / NOISE, 0, mpmath.inf])
    return Finding(float(found), f"the integral of the density; {DRAWS:,} draws: {float((lengths() > 0).mean()):.4f}")


def variance_over_all() -> Finding:
    w = two_head_weight(1 + NOISE * np.linspace(-12, 12, 480_001), 1e5)
    mean = normal_mean(lambda z: w)
    found = normal_mean(lambda z: (w - mean) ** 2)
    sampled = float(two_head_weight(lengths(), 1e5).var())
    return Finding(found, f"b = 1e5, numerical integral; {DRAWS:,} draws: {sampled:.5f}")


def conditioned_single() -> Finding:
    length = lengths()
    w = (length[length > 0] > 1).astype(float)  # as b -> infinity the longer key has all the weight
    shares = [float(mpmath.quad(mpmath.npdf, [low, 1, mpmath.inf])) for low in (0, -1 / NOISE)]
    mean = shares[0] / shares[1]
    return Finding(mean - mean**2, f"integrals of the density; {len(w):,} of {DRAWS:,} draws: {w.var():.4f}")


def noise_figure() -> str:
    z = np.linspace(-6, 6, 4001)
    density = np.exp(-(z**2) / 2) / np.exp(-(z**2) / 2).sum()
    not_flipped = np.where(1 + NOISE * z > 0, density, 0)

    def variance(w: Array, p: Array) -> float:
        p = p / p.sum()
        return float(p @ w**2 - (p @ w) ** 2)

    steps = [10 ** (i / 8) for i in range(-4, 29)]
    two = {b: two_head_weight(1 + NOISE * z, b) for b in steps}
    return lines(
        [Series("one head", [(b, variance(sigmoid(b * NOISE * z), density)) for b in steps]),
         Series("two heads", [(b, variance(two[b], density)) for b in steps]),
         Series("two heads, key not flipped", [(b, variance(two[b], not_flipped)) for b in steps])],
        "The variance of the weight of the first value. One head multiplies the noise by b; two heads fail only where "
        "the noise flips the sign of the key.",
        ("length b of the query", "variance"), log_x=True,
    )  # fmt: skip


TWO_HEADS = Exercise(
    id="average-two-heads-noise", title="Two heads average under the same noise", figure=noise_figure,
    question=NOISY_KEY + " Two heads with the queries `b*k_1` and `b*k_2` copy one value each, and the output is their "
    "mean. b is large, and there are other keys, whose scores are zero.",
    where=NAMES,
    answer="The noise does not affect the second head. The first has the score `b*(1 + s*z)`{score}: for large b only "
    "the sign of `1 + s*z`{length} matters. It is positive with probability `Phi(1/s) = Phi(sqrt(2)) = 0.9214`, and "
    "then the output is the mean of both values with a variance that vanishes. Otherwise the first head attends to "
    "all the other keys instead. So the textbook's 'variance near zero' holds only given that `1 + s*z`{length} is "
    "positive; over all draws the variance is 0.0181{variance}, a fourteenth of one head's 0.25{one_head}. The "
    "condition does not help one head, whose weight switches where the factor is one, not zero.",
    parts=[
        Part("finds", "What is the probability that the first head copies the first value, as `b -> inf`?",
             Number(0.9213503965), "numeric", probability_found,
             why="It does if `1 + s*z`{length} is positive, which has probability `Phi(1/s)`{}, with `1/s = sqrt(2)`.",
             wrong={"forgot that the noise can flip the key": (1, lambda: float(mpmath.quad(mpmath.npdf, [-9, 0, 9]))),
                    "forgot the square root of the variance": (0.9772498681, lambda: float(mpmath.ncdf(1 / NOISE**2))),
                    "asked for a length above one": (0.5, lambda: float(mpmath.ncdf(0)))}),
        Part("variance", "What is the variance of the weight of the first value in the output, over all "
             "draws, as `b -> inf`?", Number(0.01811596085), "numeric", variance_over_all,
             why="The weight in the first head is one with probability p = 0.9214{finds}, else zero; the mean of the "
             "heads halves it: `p*(1 - p)/4`{}.",
             wrong={"used the sum of the heads instead of their mean": (0.0724638434, lambda: FLIPPED - FLIPPED**2),
                    "thought there is none": (0, lambda: np.var([0.5, 0.5])),
                    "gave that of one head": (0.25, lambda: np.var([0.0, 1.0]))}),
        Part("settles", "The variance of the output of the two heads goes to zero as `b -> inf`.",
             Truth("nearly", Choice("not-flipped", {"smaller": "s is half as large",
             "not-flipped": "the noise does not flip the key: its factor stays positive",
             "any": "the two values are orthogonal"})), "monte carlo", two_heads_settle,
             why="Given that `1 + s*z`{length} is positive, the output of every draw tends to the mean of both values. "
             "The other 7.9%{flipped} of the draws tend to something else.", wrong={"forgot that noise can flip the "
             "key": True}),
        Part("one-head-given", "What is the variance of one head's weight as `b -> inf`, given that "
             "`1 + s*z`{length} is positive?",
             Number(0.2481782724), "numeric", conditioned_single,
             why="Its weight is one where z is positive, which under the condition has probability "
             "`r = 0.5/Phi(sqrt(2)) = 0.54268`, and `r*(1 - r) = 0.24818`.",
             wrong={"thought that the condition helps as it does with two heads": (0, lambda: np.var([0.5, 0.5])),
                    "gave that of two heads": (0.01811596085, lambda: (FLIPPED - FLIPPED**2) / 4)}),
    ])  # fmt: skip

EXERCISES = (ONE_HEAD, TWO_HEADS)
