"""Dot-product scores of random vectors: how large they are, how they are scaled, and what happens without scaling.

D or d is the number of entries, s their standard deviation, m the squared length of their mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product

import mpmath
import numpy as np
import torch

from octavo.exercises import Choice, Exercise, Finding, Formula, IntervalAt, Part, Truth, verdict
from octavo.exercises.framework.evidence import mean_interval, normal, tabulate, tabulated
from octavo.pages.figures.charts import Series, lines

STANDARD_ERRORS = 5  # of an interval: a right answer falls outside once in two million
IN_D = {"D": "whole"}


@tabulated("D", [(D,) for D in (1, 2, 3, 4, 5)],
    "entries are random signs: the exact mean over all pairs of such vectors, D from 1 to 5")  # fmt: skip
def mean_square(D: int) -> float:
    """The exact mean over all pairs of vectors of signs, whose entries have mean 0 and variance 1."""
    vectors = list(product((-1, 1), repeat=D))
    squares = [sum(x * y for x, y in zip(a, b, strict=True)) ** 2 for a in vectors for b in vectors]
    return sum(squares) / len(squares)


def sign_pairs(D: int) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of vectors of D signs, one pair in each column."""
    pairs = np.array(list(product((-1, 1), repeat=2 * D)), dtype=float).T
    return pairs[:D], pairs[D:]


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
    question="The entries of two vectors `a` and `b` of size D are independent, with mean zero and variance one. What "
    "is the mean square of their dot product?",
    where={"D": (1, 2, 3), "a": lambda D: sign_pairs(D)[0], "b": lambda D: sign_pairs(D)[1], "E": np.mean,
           "dot": lambda a, b: (a * b).sum(0), "terms": lambda D: sum(1 for _ in product(range(D), repeat=2))},
    answer="`E(dot(a, b)^2) = sum(i, sum(j, E(a_i*a_j)*E(b_i*b_j)))`. Of these `D^2`{terms} terms only the D with `i = "
    "j` are not zero, and each is one. So the typical size of a score is `sqrt(D)`, which is why scores are divided by "
    "it.",
    parts=[
        Part("mean", "What is `E(dot(a, b)^2)`{}?", Formula("D", IN_D), "exact", mean_square,
             why="Different entries are independent with mean zero, so their products have mean zero.",
             wrong={"counted the products of different entries too":
                        ("D^2", lambda D: sum(1 for _ in product(range(D), repeat=2))),
                    "gave its square root, the typical size": ("sqrt(D)", lambda D: mpmath.norm([1] * D)),
                    "forgot that D terms are added": ("1", lambda: np.var([-1, 1]))}),
        Part("both-needed", "This result requires uncorrelated entries in both vectors.", Truth("false"), "exact",
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
    wide_a, wide_b = torch.rand(2, 2000, 512, generator=generator, dtype=torch.float64).unbind()
    wide = torch.cosine_similarity(wide_a, wide_b)
    holds = [one.low <= 0 <= one.high for one in (shifted, centred, mean_interval(wide, STANDARD_ERRORS))]
    under = {"same": holds[0], "centred": holds[1], "large": holds[2]}
    return Finding(verdict(holds[0], under), note, "5 standard errors")


def mean_over_sphere(function: Callable[[mpmath.mpf], mpmath.mpf], D: int) -> mpmath.mpf:
    """The mean of a function of the cosine between a fixed and a uniformly random direction, as an integral."""
    with mpmath.workdps(30):
        halves = [0, mpmath.pi / 2, mpmath.pi]
        area = mpmath.quad(lambda t: mpmath.sin(t) ** (D - 2), halves)
        return mpmath.quad(lambda t: function(mpmath.cos(t)) * mpmath.sin(t) ** (D - 2), halves) / area


def integrate(function: Callable[[mpmath.mpf], mpmath.mpf]) -> mpmath.mpf:
    """The integral of a function of the angle between two directions."""
    return mpmath.quad(function, [0, mpmath.pi / 2, mpmath.pi])


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
    under = {"isotropic": uniform < 0.1, "centred": one_axis < 0.1, "sign": one_axis < 0.1}
    return Finding(verdict(one_axis < 0.1, under), note)


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
    where={"D": (2, 3, 5, 8), "t": (0.3, 0.7, 1.1, 2.0), "density": lambda t, D: mpmath.sin(t) ** (D - 2),
           "integrand": lambda t, D: abs(mpmath.cos(t)) * mpmath.sin(t) ** (D - 2),
           "integral": lambda D: integrate(lambda t: abs(mpmath.cos(t)) * mpmath.sin(t) ** (D - 2)),
           "area": lambda D: integrate(lambda t: mpmath.sin(t) ** (D - 2))},
    answer="The mean is zero if one of them has mean zero, for which symmetry about the origin suffices. A small "
    "cosine needs more: uniformly distributed directions. Then the mean of the squared cosine is `1/D`{square}, and "
    "that of its absolute value `gamma(D/2)/(sqrt(pi)*gamma((D+1)/2))`{absolute}.",
    parts=[
        Part("mean", "The mean of the cosine is zero.", Truth("nearly", Choice("centred", {
             "same": "both have the same distribution", "large": "D is large",
             "centred": "one of the two has mean zero, for example because `a` and `-a` are equally likely"})),
             "monte carlo", mean_cosine,
             why="The two are independent, so `E(dot(a, b)) = dot(E(a), E(b))`. Vectors with positive entries all lie "
             "in one orthant: their cosines are positive.",
             wrong={"forgot that random vectors need not have mean zero": True}),
        Part("small", "Symmetry about the origin is enough for random unit vectors to be nearly orthogonal in high "
             "dimensions.", Truth("nearly", Choice("isotropic", {"centred": "their mean is zero",
             "isotropic": "all directions are equally likely", "sign": "`a` and `-a` are equally likely"})),
             "exact", isotropic_needed,
             why="Plus or minus one fixed axis is symmetric, but its cosines are one and minus one. Cosines are small "
             "only if the variance is spread over all directions.",
             wrong={"forgot that a mean of zero does not make the values small": True}),
        Part("square", "For uniformly distributed directions, what is the mean of the squared cosine?", Formula("1/D",
            IN_D), "numeric",
             lambda: Finding(_integrals(lambda c: c**2),
                 "integrals over the angle for seven values of D, to 12 digits"),
             why="Choose axes so that b is the first. The squares of the D entries of a sum to one and have the "
             "same mean.", wrong={"forgot to divide by the norms": ("D", lambda D: sum(1 for _ in range(D))),
                                  "gave its square root": ("1/sqrt(D)", lambda D: 1 / mpmath.norm([1] * D))}),
        Part("absolute", "For uniformly distributed directions, what is `E(abs(cos))`, exactly? You may use the "
             "function gamma.",
             Formula("gamma(D/2)/(sqrt(pi)*gamma((D+1)/2))", IN_D), "numeric", absolute_cosine,
             why="The density of the angle t is proportional to `sin(t)^(D-2)`{density}. The integral of "
             "`abs(cos(t))*sin(t)^(D-2)`{integrand} is `2/(D-1)`{integral}, that of `sin(t)^(D-2)`{density} is "
             "`sqrt(pi)*gamma((D-1)/2)/gamma(D/2)`{area}; divide.",
             wrong={"used the root mean square": ("1/sqrt(D)", lambda D: 1 / mpmath.norm([1] * D)),
                    "left out the absolute value": ("0", lambda: np.mean([-1, 1])),
                    "gave the limit for large D, where entries are nearly normal":
                        ("sqrt(2/(pi*D))", lambda D: mpmath.quad(lambda x: abs(x) * mpmath.npdf(x), [-9, 0, 9])
                         / mpmath.sqrt(D))}),
    ])  # fmt: skip

EXERCISES = (SQUARE, COSINE)
