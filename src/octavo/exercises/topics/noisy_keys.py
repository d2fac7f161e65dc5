"""Averages under noise in a key: one head and two, over all draws and given that the noise did not turn the key."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import mpmath
import numpy as np
from numpy.typing import NDArray

from octavo.exercises import Exercise, Finding, Formula, Function, Interval, IntervalAt, Number, Part, Truth, verdict
from octavo.exercises.framework.symbolic import symbols
from octavo.pages.figures.lines import Series, lines

SPREAD = math.sqrt(0.5)  # of the noisy key's length around 1
DRAWS, SURE = 1_000_000, 4  # Monte Carlo draws, and standard errors either side
Array = NDArray[np.float64]


def normal_mean(function: Callable[[Array], Array]) -> float:
    """E f(Z) for a standard normal Z: the trapezium rule, which converges faster than any power for such integrands."""
    z = np.linspace(-12, 12, 480_001)
    return float((function(z) * np.exp(-(z**2) / 2)).sum() * (z[1] - z[0]) / math.sqrt(2 * math.pi))


def sigmoid(x: Array) -> Array:
    return 0.5 * (1 + np.tanh(x / 2))


def single_variance(b: float, spread: float = SPREAD) -> float:
    """The variance of sigmoid(b s Z)."""
    return normal_mean(lambda z: (sigmoid(b * spread * z) - 0.5) ** 2)


def single_mean() -> Finding:
    mean = normal_mean(lambda z: sigmoid(10 * SPREAD * z))
    return Finding(mean, f"numeric integral for b = 10: {mean:.12f}")


def single_at_ten() -> Finding:
    z = np.random.default_rng(3).normal(size=DRAWS)
    w = sigmoid(10 * SPREAD * z)
    variance = single_variance(10.0)
    note = f"numeric integral; {DRAWS:,} draws give {w.var():.5f}"
    return Finding(variance, note)


VARIANCES = [(0.1, 1.0), (1.0, 0.5), (10.0, 0.7), (50.0, 2.0)]


def exact_variances() -> Finding:
    """Another way: Var = 1/4 - E(w (1 - w)), with mpmath."""
    found = []
    for b, s in VARIANCES:
        bump = mpmath.quad(lambda z: mpmath.sech(b * s * z / 2) ** 2 / 4 * mpmath.npdf(z),  # noqa: B023
                           [-12, -2, -0.5, -0.1, -0.02, 0, 0.02, 0.1, 0.5, 2, 12])  # fmt: skip
        found.append(0.25 - float(bump))
    return Finding(found, "1/4 - E(w (1 - w)) by mpmath: " + ", ".join(f"{one:.6f}" for one in found))


def single_short() -> Finding:
    import sympy

    b, s = symbols({"b": "positive", "s": "positive"})
    x = sympy.Symbol("x", real=True)
    slope = sympy.diff(1 / (1 + sympy.exp(-x)), x).subs(x, 0)
    return Finding(slope**2 * b**2 * s**2, f"the sigmoid's slope at 0 is {slope}; the score's variance is (b s)^2")


def single_long() -> Finding:
    points = [
        IntervalAt({"b": b, "s": s}, single_variance(b, s) - 4 / (b * s) ** 3, single_variance(b, s) + 4 / (b * s) ** 3)
        for b, s in ((50.0, 1.0), (200.0, 0.5))
    ]
    return Finding(points, "numeric integrals; the next term is of order 1/(b s)^3")


def single_steadier() -> Finding:
    variances = [single_variance(float(b)) for b in (1, 2, 5, 10, 30, 100)]
    falls = any(later < earlier for earlier, later in pairwise(variances))
    return Finding(
        verdict(falls), "b = 1, 2, 5, 10, 30, 100: variance " + ", ".join(f"{v:.4f}" for v in variances), "less or not"
    )


def single_limit() -> Finding:
    squares = (sigmoid(1e9 * np.random.default_rng(4).normal(size=DRAWS)) - 0.5) ** 2  # the mean is 1/2 by symmetry
    variance, error = float(squares.mean()), SURE * float(squares.std()) / math.sqrt(DRAWS) + 1e-6
    return Finding(Interval(variance - error, variance + error), f"b = 1e9, {DRAWS:,} draws: the weight is 0 or 1")


NOISY_KEY = ("Keys a and b are orthogonal with length 1, but noise changes the length of key a: it becomes "
             "`1 + s*z`, z standard normal, `s^2 = 1/2`.")  # fmt: skip
BETWEEN = [10 ** (i / 8) for i in range(-8, 17)]
BS = {"b": "positive", "s": "positive"}

ONE_HEAD = Exercise(
    id="average-one-head-noise",
    title="One head averages under noise in a key",
    question=NOISY_KEY + " One head averages the two values with `q = b*(k_a + k_b)`, with the keys as they were "
    "meant. Look at w, the weight of value a, when other keys play no part.",
    answer="The scores are `b*(1 + s*z)` and b, so `w = 1/(1 + exp(-b*s*z))`: the noise is multiplied by the query's "
    "length. The mean of w is 1/2 by symmetry. Its variance is that of a logistic-normal variable and has no simple "
    "formula: it begins as `(b*s)^2/16` and rises to 1/4, where each result is one value or the other and never the "
    "mean. A short query is steady but lets other keys in: one head cannot have both.",
    figure=lambda: lines(
     [Series("variance", [(b, single_variance(b)) for b in BETWEEN]),
      Series("short query's formula", [(b, b * b / 32) for b in BETWEEN if b < 2.6]),
      Series("long query's formula", [(b, 0.25 - 1 / (b * math.sqrt(math.pi))) for b in BETWEEN if b > 2.6])],
     "The variance of the weight, and the formulas for short and for long queries.",
     ("length b of the query", "variance"), log_x=True),
    parts=[
        Part("mean", "What is E(w) for b = 10?", Number("1/2", rel=1e-9), "numeric", single_mean,
             why="z and -z are equally likely, and they give w and 1 - w.",
             wrong={"put the mean of the length, not of the score, into the sigmoid": 0.7310586}),
        Part("variance", "What is Var(w) for b = 10?", Number(0.1953206549), "numeric", single_at_ten,
             why="`E((w - 1/2)^2)`, an integral over z; `1/4 - 1/(b*s*sqrt(2*pi))` is close already.",
             wrong={"took the short-query formula": 3.125, "took the limit": 0.25,
                    "took only the first two terms of the long-query formula": 0.19358104}),
        Part("function", "Write Var(w) as a function of b and s.", Function("variance", single_variance, VARIANCES,
             "variance(b: number, s: number) -> number", rel=1e-6, abs=0), "numeric", exact_variances,
             why="`E((w - 1/2)^2)` with `w = 1/(1 + exp(-b*s*z))`, integrated over z.",
             wrong={"took the short query's formula": lambda b, s: (b * s) ** 2 / 16,
                    "took the long query's formula": lambda b, s: 0.25 - 1 / (b * s * math.sqrt(2 * math.pi))}),
        Part("short", "To leading order in b, what is Var(w) for a short query?", Formula("b^2*s^2/16", BS), "symbolic",
             single_short, why="The sigmoid's slope at 0 is 1/4, and `b*s*z` has the variance `(b*s)^2`.",
             wrong={"forgot to square the slope": "b^2*s^2/4", "left the query's length linear": "b*s^2/16"}),
        Part("long", "Give Var(w) for a long query, up to and including the term in `1/b`.",
             Formula("1/4 - 1/(b*s*sqrt(2*pi))", BS), "numeric", single_long,
             why="`Var(w) = 1/4 - E(w*(1 - w))`, and `w*(1 - w)` is a bump of area 1 in `b*s*z`, at the height "
             "`1/sqrt(2*pi)` of the density.",
             wrong={"took only the limit": "1/4", "left out the density's height": "1/4 - 1/(b*s)"}),
        Part("limit", "Which value does Var(w) tend to as the query grows?", Number("1/4"), "monte carlo", single_limit,
             why="w becomes 1 or 0 with probability 1/2 each.",
             wrong={"thought a sharp softmax removes the noise": 0, "gave the standard deviation": 0.5,
                    "gave the variance of a uniform weight": "1/12"}),
        Part("steadier", "A longer query makes this average steadier.", Truth("false"), "numeric", single_steadier,
             why="`b*s` multiplies the noise, so the variance only grows.",
             wrong={"thought that a sharper softmax shuts noise out": True}),
    ],
)  # fmt: skip


def two_head_weight(length: Array, b: float) -> Array:
    """The share of value a in the mean of two heads, whose queries are b k_a and b k_b, among 10 keys."""
    first: Array = 1 / (1 + 9 * np.exp(np.clip(-b * length, -700, 700)))
    second = math.exp(-b) / (1 + 9 * math.exp(-b))
    return np.asarray((first + second) / 2)


def lengths() -> Array:
    return 1 + SPREAD * np.random.default_rng(5).normal(size=DRAWS)


def variance_interval(w: Array) -> Interval:
    squares = (w - w.mean()) ** 2
    error = SURE * float(squares.std()) / math.sqrt(len(w))
    return Interval(float(squares.mean()) - error, float(squares.mean()) + error)


def finds_its_key() -> Finding:
    found = lengths() > 0
    share, error = float(found.mean()), SURE * float(found.std()) / math.sqrt(DRAWS)
    return Finding(Interval(share - error, share + error), f"{DRAWS:,} draws, 4 standard errors")


def two_head_variance() -> Finding:
    return Finding(variance_interval(two_head_weight(lengths(), 1e5)), f"b = 1e5, {DRAWS:,} draws, 4 standard errors")


def two_heads_settle() -> Finding:
    length = lengths()
    table = {
        b: (float(two_head_weight(length, b).var()), float(two_head_weight(length[length > 0], b).var()))
        for b in (10.0, 1e3, 1e5)
    }
    note = "; ".join(
        f"b = {b:g}: all draws {every:.4f}, length above 0 {kept:.1e}" for b, (every, kept) in table.items()
    )
    return Finding(verdict(table[1e5][0] < 1e-4, table[1e5][1] < 1e-4 < table[10.0][1]), note, "below 1e-4 at b = 1e5")


def conditioned_single() -> Finding:
    length = lengths()
    w = (length[length > 0] > 1).astype(float)  # an endless query: the longer key has all
    return Finding(variance_interval(w), f"{len(w):,} of {DRAWS:,} draws, 4 standard errors")


def noise_figure() -> str:
    z = np.linspace(-6, 6, 4001)
    density = np.exp(-(z**2) / 2) / np.exp(-(z**2) / 2).sum()
    kept = np.where(1 + SPREAD * z > 0, density, 0)

    def variance(w: Array, p: Array) -> float:
        p = p / p.sum()
        return float(p @ w**2 - (p @ w) ** 2)

    steps = [10 ** (i / 8) for i in range(-4, 29)]
    two = {b: two_head_weight(1 + SPREAD * z, b) for b in steps}
    return lines(
        [Series("one head", [(b, variance(sigmoid(b * SPREAD * z), density)) for b in steps]),
         Series("two heads", [(b, variance(two[b], density)) for b in steps]),
         Series("two heads, key a not turned", [(b, variance(two[b], kept)) for b in steps])],
        "How much the share of value a varies. One head multiplies the noise by the query's length; two heads only "
        "fail where the noise turns the key around.",
        ("length b of the query", "variance"), log_x=True,
    )  # fmt: skip


TWO_HEADS = Exercise(
    id="average-two-heads-noise",
    title="Two heads average under the same noise",
    question=NOISY_KEY + " Two heads with the queries `b*k_a` and `b*k_b` copy one value each, and the result is their "
    "mean. b is as large as you like; the other keys score 0.",
    answer="The second head does not meet the noise at all. The first has the score `b*(1 + s*z)`: a long query only "
    "asks whether `1 + s*z` is positive. It is with probability Phi(1/s) = Phi(1.414) = 0.9214, and then the result is "
    "the mean of both values with a variance that vanishes. Otherwise the first head looks at all the other keys "
    "instead. So the textbook's 'variance near zero' is a statement about the draws with `1 + s*z > 0`; over all draws "
    "0.0181 remains, a fourteenth of one head's 0.25. The same condition does not help one head, whose weight changes "
    "sides at length 1, not at 0.",
    figure=noise_figure,
    parts=[
        Part("finds", "With which probability does the first head, b without end, copy value a?", Number(0.9213503965),
             "monte carlo", finds_its_key, why="`P(1 + s*z > 0) = Phi(1/s)` with `1/s = sqrt(2)`.",
             wrong={"thought the noise cannot turn a key": 1, "forgot the square root of the variance": 0.97724987,
                    "asked for a length above 1": 0.5}),
        Part("variance", "What is the variance of the share of value a in the result, over all draws?",
             Number(0.01811596085), "monte carlo", two_head_variance,
             why="The first head has 1 or 0 of it with p = 0.9214; half of that counts: `p*(1 - p)/4`.",
             wrong={"took the heads' sum instead of the mean": 0.07246384, "said there is none": 0,
                    "kept one head's": 0.25}),
        Part("settles", "The variance of the two heads' result goes to zero as b grows.", Truth("nearly",
             only_if="the noise does not turn the key around, `1 + s*z > 0`"), "monte carlo", two_heads_settle,
             why="Given `1 + s*z > 0` every draw tends to the mean of both values. The others, 7.9% of all, tend to "
             "something else.", wrong={"forgot that noise can turn the key round": True}),
        Part("one-head-given", "What is the variance of one head's weight, b without end, given `1 + s*z > 0`?",
             Number(0.2481782724), "monte carlo", conditioned_single,
             why="Its weight is 1 where `z > 0`: given the condition with probability `0.5/0.92135 = 0.54268`, and "
             "`0.54268*(1 - 0.54268) = 0.24818`.",
             wrong={"thought the condition helps as it helps two heads": 0,
                    "took the two heads' variance": 0.01811596}),
    ],
)  # fmt: skip

EXERCISES = (ONE_HEAD, TWO_HEADS)
