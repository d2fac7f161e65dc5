"""Averaging two values under noise in a key, with one head and with two " "heads.

The noise " "can flip the " "sign of the key, so variances are given over all draws and given that it " "did not.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import mpmath
import numpy as np
from numpy.typing import NDArray

from octavo.exercises import Exercise, Finding, Formula, Function, Interval, IntervalAt, Number, Part, Truth, verdict
from octavo.exercises.framework.evidence import mean_interval
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
              for b, s in ((50.0, 1.0), (200.0, 0.5)) for variance in [single_variance(b, s)]]  # fmt: skip
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


NOISY_KEY = ("Keys a and b are orthonormal, but noise changes the length of key a: it becomes "
             "`1 + s*z`, with z standard normal and `s^2 = 1/2`.")  # fmt: skip
QUERY_LENGTHS = [10 ** (i / 8) for i in range(-8, 17)]
BS = {"b": "positive", "s": "positive"}

ONE_HEAD = Exercise(
    id="average-one-head-noise", title="One head averages under noise in a key",
    question=NOISY_KEY + " One head averages the two values with the query `q = b*(k_a + k_b)`, made from the keys "
    "without noise. w is the attention weight of value a; other keys are ignored.",
    answer="The scores are `b*(1 + s*z)` and b, so `w = 1/(1 + exp(-b*s*z))`: the noise is multiplied by b. The mean "
    "of w is 1/2 by symmetry. Its variance is that of a logistic-normal variable and has no simple formula: it is "
    "`(b*s)^2/16` for small b and rises to 1/4, where the output is one value or the other, never their mean. A short "
    "query has a small variance but lets other keys in: one head cannot avoid both.",
    figure=lambda: lines([Series("variance", [(b, single_variance(b)) for b in QUERY_LENGTHS]),
        Series("formula for small b", [(b, b * b / 32) for b in QUERY_LENGTHS if b < 2.6]),
        Series("expansion for large b", [(b, 0.25 - 1 / (b * math.sqrt(math.pi))) for b in QUERY_LENGTHS if b > 2.6])],
        "The variance of the weight, and its approximations for short and for long queries.",
        ("length b of the query", "variance"), log_x=True),
    parts=[
        Part("mean", "What is E(w) for b = 10?", Number("1/2", rel=1e-9), "numeric", single_mean,
             why="z and -z are equally likely, and they give w and 1 - w.",
             wrong={"put the mean length, not the score difference, into the sigmoid": 0.7310586}),
        Part("variance", "What is Var(w) for b = 10?", Number(0.1953206549), "numeric", single_at_ten,
             why="`E((w - 1/2)^2)` is an integral over z; `1/4 - 1/(b*s*sqrt(2*pi))` is already close.",
             wrong={"used the formula for short queries": 3.125, "used the limit": 0.25,
                    "used the expansion for long queries": 0.19358104}),
        Part("function", "Write Var(w) as a function of b and s.", Function("variance", single_variance, VARIANCES,
             "variance(b: number, s: number) -> number", rel=1e-6, abs=0), "numeric", exact_variances,
             why="`E((w - 1/2)^2)` with `w = 1/(1 + exp(-b*s*z))`, integrated over z.",
             wrong={"used the formula for short queries": lambda b, s: (b * s) ** 2 / 16,
                    "used the expansion for long queries": lambda b, s: 0.25 - 1 / (b * s * math.sqrt(2 * math.pi))}),
        Part("short", "To leading order in b, what is Var(w) for a short query?", Formula("b^2*s^2/16", BS), "symbolic",
             single_short, why="The slope of the sigmoid at 0 is 1/4, and `b*s*z` has variance `(b*s)^2`.",
             wrong={"forgot to square the slope": "b^2*s^2/4", "did not square b": "b*s^2/16"}),
        Part("long", "Give Var(w) for a long query, up to and including the term in `1/b`.",
             Formula("1/4 - 1/(b*s*sqrt(2*pi))", BS), "numeric", single_long,
             why="`Var(w) = 1/4 - E(w*(1 - w))`, and `w*(1 - w)` is a bump of area 1 in `b*s*z`, where the density of "
             "z is `1/sqrt(2*pi)`.",
             wrong={"gave only the limit": "1/4", "left out the density at 0": "1/4 - 1/(b*s)"}),
        Part("limit", "Which value does Var(w) approach as b -> infinity?", Number("1/4"), "monte carlo", single_limit,
             why="w becomes 1 or 0 with probability 1/2 each.",
             wrong={"thought that a sharp softmax removes the noise": 0, "gave the standard deviation": 0.5,
                    "gave the variance of a uniform weight": "1/12"}),
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


def variance_interval(w: Array) -> Interval:
    return mean_interval((w - w.mean()) ** 2, STANDARD_ERRORS)


def two_heads_settle() -> Finding:
    length = lengths()
    table = {
        b: (float(two_head_weight(length, b).var()), float(two_head_weight(length[length > 0], b).var()))
        for b in (10.0, 1e3, 1e5)
    }
    note = "; ".join(
        f"b = {b:g}: all draws {every:.4f}, length above 0 {positive:.1e}" for b, (every, positive) in table.items()
    )
    return Finding(verdict(table[1e5][0] < 1e-4, table[1e5][1] < 1e-4 < table[10.0][1]), note, "below 1e-4 at b = 1e5")


def conditioned_single() -> Finding:
    length = lengths()
    w = (length[length > 0] > 1).astype(float)  # as b -> infinity the longer key has all the weight
    return Finding(variance_interval(w), f"{len(w):,} of {DRAWS:,} draws, 4 standard errors")


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
         Series("two heads, key a not flipped", [(b, variance(two[b], not_flipped)) for b in steps])],
        "The variance of the weight of value a. One head multiplies the noise by b; two heads fail only where the "
        "noise flips the sign of the key.",
        ("length b of the query", "variance"), log_x=True,
    )  # fmt: skip


TWO_HEADS = Exercise(
    id="average-two-heads-noise", title="Two heads average under the same noise", figure=noise_figure,
    question=NOISY_KEY + " Two heads with the queries `b*k_a` and `b*k_b` copy one value each, and the output is their "
    "mean. b is large, and there are other keys, whose scores are 0.",
    answer="The noise does not affect the second head. The first has the score `b*(1 + s*z)`: for large b only the "
    "sign of `1 + s*z` matters. It is positive with probability Phi(1/s) = Phi(1.414) = 0.9214, and then the output is "
    "the mean of both values with a variance that vanishes. Otherwise the first head attends to all the other keys "
    "instead. So the textbook's 'variance near zero' holds only given `1 + s*z > 0`; over all draws the variance is "
    "0.0181, a fourteenth of one head's 0.25. The condition does not help one head, whose weight switches at length 1, "
    "not at 0.",
    parts=[
        Part("finds", "With which probability does the first head copy value a, as b -> infinity?",
             Number(0.9213503965), "monte carlo",
             lambda: Finding(mean_interval(lengths() > 0, STANDARD_ERRORS), f"{DRAWS:,} draws, 4 standard errors"),
             why="`P(1 + s*z > 0) = Phi(1/s)` with `1/s = sqrt(2)`.",
             wrong={"forgot that the noise can flip the key": 1, "forgot the square root of the variance": 0.97724987,
                    "asked for a length above 1": 0.5}),
        Part("variance", "What is the variance of the weight of value a in the output, over all draws, as b -> "
             "infinity?", Number(0.01811596085), "monte carlo",
             lambda: Finding(variance_interval(two_head_weight(lengths(), 1e5)),
                 f"b = 1e5, {DRAWS:,} draws, 4 standard errors"),
             why="The weight in the first head is 1 with probability p = 0.9214, else 0; the mean of the heads halves "
             "it: `p*(1 - p)/4`.",
             wrong={"used the sum of the heads instead of their mean": 0.07246384, "thought there is none": 0,
                    "gave that of one head": 0.25}),
        Part("settles", "The variance of the output of the two heads goes to zero as b -> infinity.",
             Truth("nearly", only_if="the noise does not flip the key, `1 + s*z > 0`"), "monte carlo", two_heads_settle,
             why="Given `1 + s*z > 0`, the output of every draw tends to the mean of both values. The other 7.9% of "
             "the draws tend to something else.", wrong={"forgot that noise can flip the key": True}),
        Part("one-head-given", "What is the variance of one head's weight as b -> infinity, given `1 + s*z > 0`?",
             Number(0.2481782724), "monte carlo", conditioned_single,
             why="Its weight is 1 where `z > 0`, which under the condition has probability `0.5/0.92135 = 0.54268`, "
             "and `0.54268*(1 - 0.54268) = 0.24818`.",
             wrong={"thought that the condition helps as it does with two heads": 0,
                    "gave that of two heads": 0.01811596}),
    ])  # fmt: skip

EXERCISES = (ONE_HEAD, TWO_HEADS)
