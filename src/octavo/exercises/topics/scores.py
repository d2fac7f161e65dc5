"""Scores of random vectors: how large a dot product is, how it is scaled, and what happens to those who do not.

D or d is the number of entries, s their standard deviation, m the squared length of their mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise, product

import mpmath
import sympy
import torch
from torch import Tensor

from octavo.exercises import Choice, Exercise, Finding, Formula, IntervalAt, Part, Truth, verdict
from octavo.exercises.framework.symbolic import symbols
from octavo.pages.figures.lines import Series, lines

SURE = 5  # standard errors either side: a right answer falls outside once in two million
IN_D = {"D": "whole"}
OF_SCORE = {"d": "whole", "s": "positive", "m": "positive"}
KEYS = 16


def measured(values: dict[str, float], draws_N: Tensor) -> IntervalAt:
    """The mean of draws, with its interval."""
    mean, error = draws_N.mean().item(), draws_N.std().item() / len(draws_N) ** 0.5
    return IntervalAt(values, mean - SURE * error, mean + SURE * error)


def mean_square() -> Finding:
    """All 2^D vectors of signs, which have mean 0 and variance 1, for a and for b: the mean square is a plain count."""
    found = []
    for D in (1, 2, 3, 4, 5):
        every = list(product((-1, 1), repeat=D))
        squares = [sum(a * b for a, b in zip(one, other, strict=True)) ** 2 for one in every for other in every]
        mean = sum(squares) / len(squares)
        found.append(IntervalAt({"D": D}, mean, mean))
    return Finding(found, "entries are random signs: the mean over all pairs of such vectors, D from 1 to 5, exactly")


def one_is_enough() -> Finding:
    """b's entries are all the same sign: as correlated as can be. a's are all signs there are."""
    worst = 0.0
    for D in (2, 3, 5, 8):
        total = sum(sum(signs) ** 2 * one**2 for signs in product((-1, 1), repeat=D) for one in (-1, 1))
        worst = max(worst, abs(total / 2 ** (D + 1) - D))
    note = f"a of random signs, b one sign D times over: over all cases the mean square misses D by {worst:g}"
    return Finding(verdict(worst != 0), note)


def square_figure() -> str:
    sizes, found = [2**power for power in range(11)], []
    for D in sizes:
        generator = torch.Generator().manual_seed(D)
        a, b = torch.randn(2, 2000, D, generator=generator, dtype=torch.float64).unbind()
        found.append((D, (a * b).sum(-1).square().mean().item()))
    return lines(
        [Series("2,000 draws", found), Series("D", [(D, D) for D in sizes]), Series("D²", [(D, D**2) for D in sizes])],
        "The mean square of the dot product of two random vectors: it grows as D, not as its square.",
        ("size D", "mean square"), log_x=True, log_y=True,
    )  # fmt: skip


SQUARE = Exercise(
    id="score-square",
    title="How large is a dot product?",
    question="The entries of two vectors a and b of size D are independent, with mean 0 and variance 1. How large is "
    "the square of their dot product on average?",
    answer="`E(dot(a, b)^2) = sum(i, sum(j, E(a_i*a_j)*E(b_i*b_j)))`. Of these `D^2` terms only the D with i = j are "
    "not zero, and each is one. So the typical size of a score is `sqrt(D)`, which is why scores are divided by it.",
    figure=square_figure,
    parts=[
        Part("mean", "What is `E(dot(a, b)^2)`?", Formula("D", IN_D), "exact", mean_square,
             why="Entries of different places are independent with mean zero, so their products vanish on average.",
             wrong={"counted the products of different places too": "D^2",
                    "that is its root, the typical size": "sqrt(D)", "forgot that D terms are added": "1"}),
        Part("both-needed", "For this, the entries of both vectors have to be uncorrelated.", Truth("false"), "exact",
             one_is_enough,
             why="The mean square is the trace of the product of the two covariances. If one of them is the identity, "
             "only the diagonal of the other counts, and that is all ones.",
             wrong={"took a sufficient condition for a necessary one": True}),
    ],
)  # fmt: skip


def mean_cosine() -> Finding:
    """Two independent directions: drawn around a mean that is not zero, and then with a random sign."""
    generator = torch.Generator().manual_seed(1)
    a, b = torch.rand(2, 100_000, 8, generator=generator, dtype=torch.float64).unbind()
    cosine = torch.cosine_similarity(a, b)
    sign = torch.randint(2, (len(a),), generator=generator) * 2 - 1
    lopsided, centred = measured({}, cosine), measured({}, cosine * sign)
    note = (
        f"entries between 0 and 1: the mean cosine is {lopsided.low:.3f} to {lopsided.high:.3f}; when a gets a random "
        f"sign, {centred.low:.3f} to {centred.high:.3f} (5 standard errors)"
    )
    return Finding(
        verdict(lopsided.low <= 0 <= lopsided.high, centred.low <= 0 <= centred.high), note, "5 standard errors"
    )


def over_the_sphere(function: Callable[[mpmath.mpf], mpmath.mpf], D: int) -> mpmath.mpf:
    """The mean of a function of the cosine of a fixed and an evenly random direction, as an integral over the angle."""
    with mpmath.workdps(30):
        halves = [0, mpmath.pi / 2, mpmath.pi]
        area = mpmath.quad(lambda t: mpmath.sin(t) ** (D - 2), halves)
        return mpmath.quad(lambda t: function(mpmath.cos(t)) * mpmath.sin(t) ** (D - 2), halves) / area


def _integrals(function: Callable[[mpmath.mpf], mpmath.mpf]) -> list[IntervalAt]:
    found = {D: float(over_the_sphere(function, D)) for D in (2, 3, 4, 5, 8, 20, 64)}
    return [IntervalAt({"D": D}, x * (1 - 1e-12), x * (1 + 1e-12)) for D, x in found.items()]


def square_cosine() -> Finding:
    return Finding(_integrals(lambda c: c**2), "integrals over the angle for seven sizes, to 12 digits")


def absolute_cosine() -> Finding:
    generator = torch.Generator().manual_seed(2)
    a, b = torch.randn(2, 200_000, 8, generator=generator, dtype=torch.float64).unbind()
    drawn = measured({"D": 8}, torch.cosine_similarity(a, b).abs())
    note = f"integrals over the angle for seven sizes, to 12 digits; 200,000 draws with {drawn}"
    return Finding(_integrals(abs), note)


def isotropic_needed() -> Finding:
    """Plus or minus one axis is symmetric about the origin, yet every pair of such directions is parallel."""
    D = 512
    lined_up = sum(abs(a * b) for a, b in product((-1, 1), repeat=2)) / 4
    spread = math.exp(math.lgamma(D / 2) - math.lgamma((D + 1) / 2)) / math.sqrt(math.pi)
    note = f"D = {D}: directions plus or minus one axis have E|cos| = {lined_up:g}; all directions alike, {spread:.3f}"
    return Finding(verdict(lined_up < 0.1, spread < 0.1), note)


def cosine_figure() -> str:
    sizes = [2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 256, 512]
    exact = [(D, math.exp(math.lgamma(D / 2) - math.lgamma((D + 1) / 2)) / math.sqrt(math.pi)) for D in sizes]
    return lines(
        [Series("mean of |cos|", exact), Series("root of the mean of cos²", [(D, D**-0.5) for D in sizes])],
        "Random directions come closer to a right angle as the space grows, but slowly.",
        ("size D", "cosine"), log_x=True, log_y=True,
    )  # fmt: skip


COSINE = Exercise(
    id="random-cosine",
    title="Random directions are nearly orthogonal",
    question="Two independent random vectors of length one in D dimensions: what is their cosine on average, how large "
    "is it, and what must be true of how they are drawn?",
    answer="The mean is zero as soon as one of them has mean zero, for which symmetry about the origin suffices. That "
    "the cosine is small needs more: directions spread evenly. Then `E(cos^2) = 1/D` and `E(abs(cos)) = "
    "gamma(D/2)/(sqrt(pi)*gamma((D+1)/2))`.",
    figure=cosine_figure,
    parts=[
        Part("mean", "The mean of the cosine is zero.", Truth("nearly",
             "one of the two has mean zero, as it has when a and -a are equally likely"), "monte carlo", mean_cosine,
             why="The two are independent, so `E(dot(a, b)) = dot(E(a), E(b))`. Vectors of positive entries all lie in "
             "one corner of the space: their cosines are positive.", wrong={"random does not mean centred": True}),
        Part("small", "Symmetry about the origin is enough for random unit vectors to be nearly orthogonal in high "
             "dimensions.", Truth("nearly", "it is the full symmetry: all directions equally likely, or at least "
             "`E(a*T(a)) = I/D`"), "exact", isotropic_needed,
             why="Plus or minus one fixed axis is symmetric, but its cosines are 1 and -1. What makes cosines small is "
             "that the length is spread over all directions.",
             wrong={"a mean of zero does not say that the values are small": True}),
        Part("square", "For evenly spread directions, what is `E(cos^2)`?", Formula("1/D", IN_D), "numeric",
             square_cosine,
             why="Choose axes so that b is the first. The squares of a's D entries add up to 1 and are alike on "
             "average.", wrong={"forgot to divide by the lengths": "D", "that is its root": "1/sqrt(D)"}),
        Part("absolute", "And what is `E(abs(cos))`, exactly? gamma is there as a function.",
             Formula("gamma(D/2)/(sqrt(pi)*gamma((D+1)/2))", IN_D), "numeric", absolute_cosine,
             why="The angle t has a density in proportion to `sin(t)^(D-2)`. The integral of "
             "`abs(cos(t))*sin(t)^(D-2)` is `2/(D-1)`, that of `sin(t)^(D-2)` is `sqrt(pi)*gamma((D-1)/2)/gamma(D/2)`; "
             "divide.",
             wrong={"took the root of the mean square": "1/sqrt(D)", "left out the absolute value": "0",
                    "that is only the limit for large D, as if entries were normal": "sqrt(2/(pi*D))"}),
    ],
)  # fmt: skip


def moments() -> tuple[sympy.Expr, sympy.Expr]:
    """Mean and variance of q.k from Gaussian moments, entry by entry; the squares of the means c add up to m."""
    d, s, m = symbols(OF_SCORE)
    c = sympy.Symbol("c", real=True)
    of_one = sympy.expand((c**2 + s**2) ** 2 - c**4)  # E[q^2] E[k^2] - (E[q] E[k])^2
    return m, d * of_one.coeff(c, 0) + of_one.coeff(c, 2) * m  # constants are met d times, c^2 becomes m


def _drawn_scores(d: int, s: float, m: float) -> Tensor:
    generator = torch.Generator().manual_seed(d)
    mu_d = torch.rand(d, generator=generator, dtype=torch.float64)
    mu_d *= (m / mu_d.square().sum()).sqrt()
    q, k = torch.randn(2, 200_000, d, generator=generator, dtype=torch.float64).unbind()
    return ((mu_d + s * q) * (mu_d + s * k)).sum(-1)


def score_mean() -> Finding:
    points = [(3, 1.0, 2.0), (8, 0.5, 3.0), (16, 1.5, 0.5)]
    found = [measured({"d": d, "s": s, "m": m}, _drawn_scores(d, s, m)) for d, s, m in points]
    return Finding(
        found, "200,000 draws for each of three choices, around a mean of unequal entries; 5 standard errors"
    )


def score_variance() -> Finding:
    exact, at = moments()[1], dict(zip(symbols(OF_SCORE), (8, 0.5, 3.0), strict=True))
    drawn = _drawn_scores(8, 0.5, 3.0)
    around = measured({}, (drawn - drawn.mean()).square())
    assert around.low <= exact.subs(at) <= around.high, "the draws must agree with the moments"
    note = (
        "from the moments of a normal distribution; for d = 8, s = 0.5, m = 3 that is "
        f"{float(exact.subs(at)):.3f}, and 200,000 draws gave {around.low:.3f} to {around.high:.3f} (5 standard errors)"
    )
    return Finding(exact, note)


def unit_scale() -> Finding:
    return Finding(1 / sympy.sqrt(moments()[1]), "one over the root of the variance, which was found from the moments")


def root_d_is_enough() -> Finding:
    d, s, m = symbols(OF_SCORE)
    variance = moments()[1] / d
    plain = sympy.simplify(variance.subs({m: 0, s: 1}))
    shifted = sympy.simplify(variance.subs({m: d, s: 1}))  # every entry has mean one
    note = f"with mean 0 and s = 1 the variance becomes {plain}; with all means 1 it becomes {shifted}"
    return Finding(verdict(shifted == 1, plain == 1), note)


def linear_mean() -> Finding:
    """Entries of mean c: by what the mean of the scaled score is multiplied when d doubles."""
    d, c = sympy.symbols("d c", positive=True)
    means = {"none": d * c**2, "root": d * c**2 / sympy.sqrt(d), "full": d * c**2 / d}
    grows = {name: sympy.simplify(mean.subs(d, 2 * d) / mean) for name, mean in means.items()}
    [linear] = [name for name, factor in grows.items() if factor == 2]
    said = ", ".join(f"{name} {factor}" for name, factor in grows.items())
    return Finding(linear, f"when d doubles, the mean is multiplied by (SymPy): {said}")


def jacobian_size(d: int, scale: float, rows: int = 2000) -> float:
    """The mean size (root of the sum of squares) of the derivatives of a softmax over random scores."""
    generator = torch.Generator().manual_seed(d)
    q_RD = torch.randn(rows, d, generator=generator, dtype=torch.float64)
    k_KD = torch.randn(KEYS, d, generator=generator, dtype=torch.float64)
    a_RK = (q_RD @ k_KD.T * scale).softmax(-1)
    j_RKK = torch.diag_embed(a_RK) - a_RK[:, :, None] * a_RK[:, None, :]
    return j_RKK.square().sum((1, 2)).sqrt().mean().item()


def unscaled_vanishes() -> Finding:
    sizes = (4, 64, 1024, 4096)
    plain = [jacobian_size(d, 1.0) for d in sizes]
    scaled = [jacobian_size(d, d**-0.5) for d in sizes]
    falls = all(later < 0.6 * earlier for earlier, later in pairwise(plain))
    steady = max(scaled) < 1.5 * min(scaled)
    unscaled, divided = (", ".join(f"{x:.3f}" for x in some) for some in (plain, scaled))
    note = (
        f"2,000 queries, {KEYS} keys, d = 4, 64, 1024, 4096: derivatives of size {unscaled} unscaled, {divided} scaled"
    )
    return Finding(verdict(falls and steady), note, "falls by 40 % a step; steady within a factor 1.5")


def scale_figure() -> str:
    sizes = [2**power for power in range(1, 12)]
    return lines(
        [Series("unscaled", [(d, jacobian_size(d, 1.0, 300)) for d in sizes]),
         Series("divided by the root of d", [(d, jacobian_size(d, d**-0.5, 300)) for d in sizes])],
        f"The mean size of a softmax's derivatives over {KEYS} random scores, 300 queries.",
        ("size d of queries and keys", "size"), log_x=True, log_y=True,
    )  # fmt: skip


SCALE = Exercise(
    id="score-scale",
    title="Why scores are divided by the root of d",
    question="The vectors q and k have d entries and are drawn independently from a normal distribution with the mean "
    "vector `mu`, of squared length `m = dot(mu, mu)`, and the covariance `s^2*I`.",
    answer="`E(dot(q, k)) = m` and `Var(dot(q, k)) = d*s^4 + 2*s^2*m`. There is no further factor d: the d entries' "
    "means are already added up in m. If every entry has mean c, then `m = d*c^2`, and both grow linearly in d. "
    "Dividing by `sqrt(d)` keeps the variance from growing, and the softmax stays where it still has derivatives; the "
    "mean then still grows with `sqrt(d)`.",
    figure=scale_figure,
    parts=[
        Part("mean", "What is `E(dot(q, k))`, in d, s and m?", Formula("m", OF_SCORE), "monte carlo", score_mean,
             why="Independent vectors: `E(dot(q, k)) = dot(E(q), E(k)) = dot(mu, mu)`.",
             wrong={"multiplied by d once more, but m already adds up d entries": "d*m", "took the mean for zero": "0",
                    "added the variance, which belongs to dot(q, q)": "m + d*s^2"}),
        Part("variance", "What is `Var(dot(q, k))`?", Formula("d*s^4 + 2*s^2*m", OF_SCORE), "symbolic", score_variance,
             why="Entry by entry: `E(q_i^2*k_i^2) - mu_i^4 = (mu_i^2 + s^2)^2 - mu_i^4 = s^4 + 2*s^2*mu_i^2`. The "
             "first term is met d times; the second adds up to `2*s^2*m`.",
             wrong={"a factor d that does not belong there: m already adds up d entries": "d*s^4 + 2*d*s^2*m",
                    "the mean of one vector is multiplied with the noise of the other": "d*s^4 + m^2"},
             only_if={"`mu = 0`": "d*s^4"}),
        Part("unit", "By which factor must the score be multiplied for its variance to be one?",
             Formula("1/sqrt(d*s^4 + 2*s^2*m)", OF_SCORE), "symbolic", unit_scale,
             why="A factor f multiplies the variance by `f^2`.",
             wrong={"divided by the variance, not by its root": "1/(d*s^4 + 2*s^2*m)"},
             only_if={"`mu = 0` and s = 1": "1/sqrt(d)", "`mu = 0`": "1/(sqrt(d)*s^2)"}),
        Part("root-d", "Dividing by `sqrt(d)` makes the variance one.", Truth("nearly", "the mean is zero and s = 1"),
             "symbolic", root_d_is_enough,
             why="In general it becomes `s^4 + 2*s^2*m/d`: it no longer grows with d as long as the entries' means do "
             "not, but it is not one.", wrong={"took the usual assumption for granted": True}),
        Part("linear-mean", "Every entry has mean c. Under which scaling is the mean of the score linear in d?",
             Choice("none", {"none": "no scaling", "root": "dividing by `sqrt(d)`", "full": "dividing by d"}),
             "symbolic", linear_mean,
             why="The mean adds up d terms of `c^2`: `d*c^2`. Divided by `sqrt(d)` it is `sqrt(d)*c^2`, divided by d "
             "it is `c^2`."),
        Part("no-scaling", "Without scaling, the derivatives of the softmax vanish as d grows; divided by `sqrt(d)`, "
             "they do not.", Truth("true"), "monte carlo", unscaled_vanishes,
             why="Unscaled scores differ by about `sqrt(d)`. The largest takes all, and `a_i*((i=j) - a_j)` goes to "
             "zero for all i and j. Then no gradient gets through to queries and keys.",
             wrong={"softmax divides by its sum anyway, but not its scores": False}),
    ],
)  # fmt: skip

EXERCISES = (SQUARE, COSINE, SCALE)
