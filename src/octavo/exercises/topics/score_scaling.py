"""Dot-product scores of random vectors: how large they are, how they are scaled, and what happens without scaling.

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
from octavo.exercises.framework.evidence import mean_interval, normal, tabulate, tabulated
from octavo.exercises.framework.symbolic import symbols
from octavo.pages.figures.charts import Series, lines

STANDARD_ERRORS = 5  # of an interval: a right answer falls outside once in two million
IN_D = {"D": "whole"}
OF_SCORE = {"d": "whole", "s": "positive", "m": "positive"}
KEYS = 16


@tabulated("D", [(D,) for D in (1, 2, 3, 4, 5)],
    "entries are random signs: the exact mean over all pairs of such vectors, D from 1 to 5")  # fmt: skip
def mean_square(D: int) -> float:
    """The exact mean over all pairs of vectors of signs, whose entries have mean 0 and variance 1."""
    vectors = list(product((-1, 1), repeat=D))
    squares = [sum(x * y for x, y in zip(a, b, strict=True)) ** 2 for a in vectors for b in vectors]
    return sum(squares) / len(squares)


def one_uncorrelated_is_enough() -> Finding:
    """b repeats one sign, so its entries are fully correlated; a takes all vectors of signs."""
    worst = 0.0
    for D in (2, 3, 5, 8):
        total = sum(sum(a) ** 2 * sign**2 for a in product((-1, 1), repeat=D) for sign in (-1, 1))
        worst = max(worst, abs(total / 2 ** (D + 1) - D))
    note = f"a has random signs, b repeats one sign: the exact mean square differs from D by {worst:g}"
    return Finding(verdict(worst != 0), note)


def square_figure() -> str:
    sizes, found = [2**power for power in range(11)], []
    for D in sizes:
        a, b = normal(2, 2000, D, seed=D)
        found.append((D, (a * b).sum(-1).square().mean().item()))
    return lines(
        [Series("2,000 draws", found), Series("D", [(D, D) for D in sizes]), Series("D²", [(D, D**2) for D in sizes])],
        "The mean square of the dot product of two random vectors grows as D, not as D².",
        ("size D", "mean square"), log_x=True, log_y=True,
    )  # fmt: skip


SQUARE = Exercise(
    id="score-square", title="How large is a dot product?", figure=square_figure,
    question="The entries of two vectors a and b of size D are independent, with mean 0 and variance 1. What is the "
    "mean square of their dot product?",
    answer="`E(dot(a, b)^2) = sum(i, sum(j, E(a_i*a_j)*E(b_i*b_j)))`. Of these `D^2` terms only the D with i = j are "
    "not zero, and each is 1. So the typical size of a score is `sqrt(D)`, which is why scores are divided by it.",
    parts=[
        Part("mean", "What is `E(dot(a, b)^2)`?", Formula("D", IN_D), "exact", mean_square,
             why="Different entries are independent with mean zero, so their products have mean zero.",
             wrong={"counted the products of different entries too": "D^2",
                    "gave its square root, the typical size": "sqrt(D)", "forgot that D terms are added": "1"}),
        Part("both-needed", "This requires the entries of both vectors to be uncorrelated.", Truth("false"), "exact",
             one_uncorrelated_is_enough,
             why="The mean square is the trace of the product of the two covariances. If one of them is the identity, "
             "only the diagonal of the other matters, and that is all ones.",
             wrong={"mistook a sufficient condition for a necessary one": True}),
    ])  # fmt: skip


def mean_cosine() -> Finding:
    """Two independent vectors with a mean that is not zero, and the same with a random sign."""
    generator = torch.Generator().manual_seed(1)
    a, b = torch.rand(2, 100_000, 8, generator=generator, dtype=torch.float64).unbind()
    cosine = torch.cosine_similarity(a, b)
    sign = torch.randint(2, (len(a),), generator=generator) * 2 - 1
    shifted, centred = (mean_interval(draws, STANDARD_ERRORS) for draws in (cosine, cosine * sign))
    note = (
        f"entries between 0 and 1: the mean cosine is {shifted.low:.3f} to {shifted.high:.3f}; with a random sign "
        f"{centred.low:.3f} to {centred.high:.3f} (5 standard errors)"
    )
    return Finding(
        verdict(shifted.low <= 0 <= shifted.high, centred.low <= 0 <= centred.high), note, "5 standard errors"
    )


def mean_over_sphere(function: Callable[[mpmath.mpf], mpmath.mpf], D: int) -> mpmath.mpf:
    """The mean of a function of the cosine between a fixed and a uniformly random direction, as an integral."""
    with mpmath.workdps(30):
        halves = [0, mpmath.pi / 2, mpmath.pi]
        area = mpmath.quad(lambda t: mpmath.sin(t) ** (D - 2), halves)
        return mpmath.quad(lambda t: function(mpmath.cos(t)) * mpmath.sin(t) ** (D - 2), halves) / area


def _integrals(function: Callable[[mpmath.mpf], mpmath.mpf]) -> list[IntervalAt]:
    sizes = [(D,) for D in (2, 3, 4, 5, 8, 20, 64)]
    return tabulate("D", sizes, lambda D: float(mean_over_sphere(function, D)), rel=1e-12)


def absolute_cosine() -> Finding:
    a, b = normal(2, 200_000, 8, seed=2)
    sampled = mean_interval(torch.cosine_similarity(a, b).abs(), STANDARD_ERRORS)
    note = f"integrals over the angle for seven values of D, to 12 digits; 200,000 draws with D = 8: {sampled}"
    return Finding(_integrals(abs), note)


def isotropic_needed() -> Finding:
    """Plus or minus one axis is symmetric about the origin, yet all such directions are parallel."""
    D = 512
    one_axis = sum(abs(a * b) for a, b in product((-1, 1), repeat=2)) / 4
    uniform = math.exp(math.lgamma(D / 2) - math.lgamma((D + 1) / 2)) / math.sqrt(math.pi)
    note = f"D = {D}: directions plus or minus one axis have E|cos| = {one_axis:g}; uniform directions, {uniform:.3f}"
    return Finding(verdict(one_axis < 0.1, uniform < 0.1), note)


def cosine_figure() -> str:
    sizes = [2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 256, 512]
    exact = [(D, math.exp(math.lgamma(D / 2) - math.lgamma((D + 1) / 2)) / math.sqrt(math.pi)) for D in sizes]
    return lines(
        [Series("mean of |cos|", exact), Series("root of the mean of cos²", [(D, D**-0.5) for D in sizes])],
        "Random directions become orthogonal as D grows, but slowly.",
        ("size D", "cosine"), log_x=True, log_y=True,
    )  # fmt: skip


COSINE = Exercise(
    id="random-cosine", title="Random directions are nearly orthogonal", figure=cosine_figure,
    question="Two independent random unit vectors in D dimensions: what is the mean of their cosine, how large is it "
    "typically, and what does that require of their distribution?",
    answer="The mean is zero if one of them has mean zero, for which symmetry about the origin suffices. A small "
    "cosine needs more: uniformly distributed directions. Then `E(cos^2) = 1/D` and `E(abs(cos)) = "
    "gamma(D/2)/(sqrt(pi)*gamma((D+1)/2))`.",
    parts=[
        Part("mean", "The mean of the cosine is zero.", Truth("nearly",
             "one of the two has mean zero, for example because a and -a are equally likely"), "monte carlo",
             mean_cosine,
             why="The two are independent, so `E(dot(a, b)) = dot(E(a), E(b))`. Vectors with positive entries all lie "
             "in one orthant: their cosines are positive.",
             wrong={"forgot that random vectors need not have mean zero": True}),
        Part("small", "Symmetry about the origin is enough for random unit vectors to be nearly orthogonal in high "
             "dimensions.", Truth("nearly", "all directions are equally likely, or at least `E(a*T(a)) = I/D`"),
             "exact", isotropic_needed,
             why="Plus or minus one fixed axis is symmetric, but its cosines are 1 and -1. Cosines are small only if "
             "the variance is spread over all directions.",
             wrong={"forgot that a mean of zero does not make the values small": True}),
        Part("square", "For uniformly distributed directions, what is `E(cos^2)`?", Formula("1/D", IN_D), "numeric",
             lambda: Finding(_integrals(lambda c: c**2),
                 "integrals over the angle for seven values of D, to 12 digits"),
             why="Choose axes so that b is the first. The squares of the D entries of a sum to 1 and have the same "
             "mean.", wrong={"forgot to divide by the norms": "D", "gave its square root": "1/sqrt(D)"}),
        Part("absolute", "And what is `E(abs(cos))`, exactly? You may use the function gamma.",
             Formula("gamma(D/2)/(sqrt(pi)*gamma((D+1)/2))", IN_D), "numeric", absolute_cosine,
             why="The density of the angle t is proportional to `sin(t)^(D-2)`. The integral of "
             "`abs(cos(t))*sin(t)^(D-2)` is `2/(D-1)`, that of `sin(t)^(D-2)` is `sqrt(pi)*gamma((D-1)/2)/gamma(D/2)`; "
             "divide.",
             wrong={"used the root mean square": "1/sqrt(D)", "left out the absolute value": "0",
                    "gave the limit for large D, where entries are nearly normal": "sqrt(2/(pi*D))"}),
    ])  # fmt: skip


def moments() -> tuple[sympy.Expr, sympy.Expr]:
    """Mean and variance of q.k from Gaussian moments, entry by entry; the squares of the means c sum to m."""
    d, s, m = symbols(OF_SCORE)
    c = sympy.Symbol("c", real=True)
    of_one = sympy.expand((c**2 + s**2) ** 2 - c**4)  # E[q^2] E[k^2] - (E[q] E[k])^2
    return m, d * of_one.coeff(c, 0) + of_one.coeff(c, 2) * m  # constants occur d times, the sum of c^2 is m


def _sample_scores(d: int, s: float, m: float) -> Tensor:
    generator = torch.Generator().manual_seed(d)
    mu_d = torch.rand(d, generator=generator, dtype=torch.float64)
    mu_d *= (m / mu_d.square().sum()).sqrt()
    q, k = torch.randn(2, 200_000, d, generator=generator, dtype=torch.float64).unbind()
    return ((mu_d + s * q) * (mu_d + s * k)).sum(-1)


def score_mean() -> Finding:
    points = [(3, 1.0, 2.0), (8, 0.5, 3.0), (16, 1.5, 0.5)]
    found = [IntervalAt({"d": d, "s": s, "m": m}, *mean_interval(_sample_scores(d, s, m), STANDARD_ERRORS))
             for d, s, m in points]  # fmt: skip
    return Finding(found, "200,000 draws at each of three points, with a mean of unequal entries; 5 standard errors")


def score_variance() -> Finding:
    exact, at = moments()[1], dict(zip(symbols(OF_SCORE), (8, 0.5, 3.0), strict=True))
    scores = _sample_scores(8, 0.5, 3.0)
    sampled = mean_interval((scores - scores.mean()).square(), STANDARD_ERRORS)
    assert sampled.low <= exact.subs(at) <= sampled.high, "the draws must agree with the moments"
    note = (
        f"from the moments of a normal distribution; for d = 8, s = 0.5, m = 3 that is {float(exact.subs(at)):.3f}, "
        f"and 200,000 draws gave {sampled.low:.3f} to {sampled.high:.3f} (5 standard errors)"
    )
    return Finding(exact, note)


def root_d_is_enough() -> Finding:
    d, s, m = symbols(OF_SCORE)
    variance = moments()[1] / d
    plain = sympy.simplify(variance.subs({m: 0, s: 1}))
    shifted = sympy.simplify(variance.subs({m: d, s: 1}))  # every entry has mean one
    note = f"with mean 0 and s = 1 the variance becomes {plain}; with all means 1 it becomes {shifted}"
    return Finding(verdict(shifted == 1, plain == 1), note)


def linear_mean() -> Finding:
    """The factor by which the mean of the scaled score grows when d doubles, for entries with mean c."""
    d, c = sympy.symbols("d c", positive=True)
    means = {"none": d * c**2, "root": d * c**2 / sympy.sqrt(d), "full": d * c**2 / d}
    grows = {name: sympy.simplify(mean.subs(d, 2 * d) / mean) for name, mean in means.items()}
    [linear] = [name for name, factor in grows.items() if factor == 2]
    factors = ", ".join(f"{name} {factor}" for name, factor in grows.items())
    return Finding(linear, f"when d doubles, the mean is multiplied by (SymPy): {factors}")


def mean_jacobian_norm(d: int, scale: float, rows: int = 2000) -> float:
    """The mean Frobenius norm of the Jacobian of a softmax over random scores."""
    generator = torch.Generator().manual_seed(d)
    q_RD = torch.randn(rows, d, generator=generator, dtype=torch.float64)
    k_KD = torch.randn(KEYS, d, generator=generator, dtype=torch.float64)
    a_RK = (q_RD @ k_KD.T * scale).softmax(-1)
    j_RKK = torch.diag_embed(a_RK) - a_RK[:, :, None] * a_RK[:, None, :]
    return j_RKK.square().sum((1, 2)).sqrt().mean().item()


def unscaled_vanishes() -> Finding:
    sizes = (4, 64, 1024, 4096)
    unscaled = [mean_jacobian_norm(d, 1.0) for d in sizes]
    scaled = [mean_jacobian_norm(d, d**-0.5) for d in sizes]
    falls = all(later < 0.6 * earlier for earlier, later in pairwise(unscaled))
    steady = max(scaled) < 1.5 * min(scaled)
    norms = (", ".join(f"{x:.3f}" for x in values) for values in (unscaled, scaled))
    note = "2,000 queries, {} keys, d = 4, 64, 1024, 4096: norm of the Jacobian {} unscaled, {} scaled".format(
        KEYS, *norms
    )
    return Finding(verdict(falls and steady), note, "falls by 40 % per step; steady within a factor of 1.5")


def scale_figure() -> str:
    sizes = [2**power for power in range(1, 12)]
    return lines(
        [Series("unscaled", [(d, mean_jacobian_norm(d, 1.0, 300)) for d in sizes]),
         Series("divided by the root of d", [(d, mean_jacobian_norm(d, d**-0.5, 300)) for d in sizes])],
        f"The mean norm of the Jacobian of a softmax over {KEYS} random scores, 300 queries.",
        ("size d of queries and keys", "norm of the Jacobian"), log_x=True, log_y=True,
    )  # fmt: skip


SCALE = Exercise(
    id="score-scale", title="Why scores are divided by the square root of d", figure=scale_figure,
    question="The vectors q and k have d entries and are drawn independently from a normal distribution with mean "
    "vector `mu`, squared norm `m = dot(mu, mu)`, and covariance `s^2*I`.",
    answer="`E(dot(q, k)) = m` and `Var(dot(q, k)) = d*s^4 + 2*s^2*m`. There is no further factor d: m already sums "
    "over the d entries. If every entry has mean c, then `m = d*c^2`, and both grow linearly in d. Dividing by "
    "`sqrt(d)` keeps the variance from growing, so the softmax does not saturate; the mean then still grows with "
    "`sqrt(d)`.",
    parts=[
        Part("mean", "What is `E(dot(q, k))`, in d, s and m?", Formula("m", OF_SCORE), "monte carlo", score_mean,
             why="Independent vectors: `E(dot(q, k)) = dot(E(q), E(k)) = dot(mu, mu)`.",
             wrong={"multiplied by d again, although m already sums over d entries": "d*m",
                    "assumed a mean of zero": "0", "added the variance, which belongs to dot(q, q)": "m + d*s^2"}),
        Part("variance", "What is `Var(dot(q, k))`?", Formula("d*s^4 + 2*s^2*m", OF_SCORE), "symbolic", score_variance,
             why="Entry by entry: `E(q_i^2*k_i^2) - mu_i^4 = (mu_i^2 + s^2)^2 - mu_i^4 = s^4 + 2*s^2*mu_i^2`. The "
             "first term occurs d times; the second sums to `2*s^2*m`.",
             wrong={"added a factor d, although m already sums over d entries": "d*s^4 + 2*d*s^2*m",
                    "forgot that the mean of one vector multiplies the noise of the other": "d*s^4 + m^2"},
             only_if={"`mu = 0`": "d*s^4"}),
        Part("unit", "By which factor must the score be multiplied for its variance to be one?",
             Formula("1/sqrt(d*s^4 + 2*s^2*m)", OF_SCORE), "symbolic", lambda: Finding(1 / sympy.sqrt(moments()[1]),
                 "one over the square root of the variance, which follows from the moments"),
             why="A factor f multiplies the variance by `f^2`.",
             wrong={"divided by the variance, not by its square root": "1/(d*s^4 + 2*s^2*m)"},
             only_if={"`mu = 0` and s = 1": "1/sqrt(d)", "`mu = 0`": "1/(sqrt(d)*s^2)"}),
        Part("root-d", "Dividing by `sqrt(d)` makes the variance one.", Truth("nearly", "the mean is zero and s = 1"),
             "symbolic", root_d_is_enough,
             why="In general it becomes `s^4 + 2*s^2*m/d`: it no longer grows with d if the means of the entries do "
             "not, but it is not one.", wrong={"assumed mean 0 and variance 1": True}),
        Part("linear-mean", "Every entry has mean c. Under which scaling is the mean of the score linear in d?",
             Choice("none", {"none": "no scaling", "root": "dividing by `sqrt(d)`", "full": "dividing by d"}),
             "symbolic", linear_mean,
             why="The mean is a sum of d terms `c^2`: `d*c^2`. Divided by `sqrt(d)` it is `sqrt(d)*c^2`, divided by d "
             "it is `c^2`."),
        Part("no-scaling", "Without scaling, the derivatives of the softmax vanish as d grows; divided by `sqrt(d)`, "
             "they do not.", Truth("true"), "monte carlo", unscaled_vanishes,
             why="Unscaled scores differ by about `sqrt(d)`. The largest one gets all the weight, and `a_i*((i=j) - "
             "a_j)` goes to zero for all i and j. Then no gradient reaches queries and keys.",
             wrong={"thought that the softmax normalizes its scores": False}),
    ])  # fmt: skip

EXERCISES = (SQUARE, COSINE, SCALE)
