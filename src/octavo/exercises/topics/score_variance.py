"""Why scores are divided by the square root of d: their mean and variance, and gradients without it.

d is the number of entries, s their standard deviation, m the squared length of their mean.
"""

from __future__ import annotations

import math
from itertools import pairwise, product
from typing import Any

import mpmath
import numpy as np
import sympy
import torch
from torch import Tensor

from octavo.exercises import Choice, Exercise, Finding, Formula, Part, Truth, verdict
from octavo.exercises.framework.evidence import mean_interval, tabulate
from octavo.exercises.framework.symbolic import symbols
from octavo.exercises.topics.score_scaling import STANDARD_ERRORS
from octavo.pages.figures.charts import Series, lines

OF_SCORE = {"d": "whole", "s": "positive", "m": "positive"}
KEYS = 16


def moments() -> tuple[sympy.Expr, sympy.Expr]:
    """Mean and variance of q.k from Gaussian moments, entry by entry; the squares of the means c sum to m."""
    d, s, m = symbols(OF_SCORE)
    c = sympy.Symbol("c", real=True)
    of_one = sympy.expand((c**2 + s**2) ** 2 - c**4)  # E[q^2] E[k^2] - (E[q] E[k])^2
    return m, d * of_one.coeff(c, 0) + of_one.coeff(c, 2) * m  # constants occur d times, the sum of c^2 is m


def variance_by_entries(d: int, s: Any, m: Any) -> Any:
    """The variance of the score of d independent entries, whose means share m equally."""
    c2 = m / d
    return sum((c2 + s * s) ** 2 - c2 * c2 for _ in range(d))


def two_point_mean(d: int, s: float, m: float) -> float:
    """The exact mean of q.k if every entry is its mean plus or minus s."""
    mu = [math.sqrt(m * (i + 1) * 2 / (d * (d + 1))) for i in range(d)]  # unequal entries whose squares sum to m
    scores = [sum((c + a * s) * (c + b * s) for c, a, b in zip(mu, signs[:d], signs[d:], strict=True))
              for signs in product((-1, 1), repeat=2 * d)]  # fmt: skip
    return math.fsum(scores) / len(scores)


def _sample_scores(d: int, s: float, m: float) -> Tensor:
    generator = torch.Generator().manual_seed(d)
    mu_d = torch.rand(d, generator=generator, dtype=torch.float64)
    mu_d *= (m / mu_d.square().sum()).sqrt()
    q, k = torch.randn(2, 200_000, d, generator=generator, dtype=torch.float64).unbind()
    return ((mu_d + s * q) * (mu_d + s * k)).sum(-1)


def score_mean() -> Finding:
    found = tabulate("d s m", [(2, 1.0, 2.0), (3, 0.5, 3.0), (5, 1.5, 0.5)], two_point_mean, rel=1e-12)
    sampled = mean_interval(_sample_scores(8, 0.5, 3.0), STANDARD_ERRORS)
    note = f"exact means over entries that are their mean plus or minus s; 200,000 normal draws with m = 3: {sampled}"
    return Finding(found, note)


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
    centred, unit = (sympy.simplify(variance.subs(at)) == 1 for at in ({m: 0}, {s: 1}))
    return Finding(verdict(shifted == 1, {"standard": plain == 1, "centred": centred, "unit": unit}), note)


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
    "vector `mu`, squared norm `m = dot(mu, mu)`, and covariance `s^2*I`{covariance}.",
    where={"I": np.eye(2), "covariance": lambda s: np.cov(float(s) * np.array([[-1, -1, 1, 1], [-1, 1, -1, 1]]),
        ddof=0),
           "mu": np.array([0.5, -1.2, 0.3]), "d": (2, 3, 5), "c": (0.5, 1.5, 2.0), "E": np.mean,
           "spread": lambda d, c: np.dot([float(c)] * d, [float(c)] * d), "scaled": lambda d, s, m:
               variance_by_entries(d, s, m) / d,
           "q": lambda mu, s: np.array([[one - s, one - s, one + s, one + s] for one in mu], dtype=float),
           "k": lambda mu, s: np.array([[one - s, one + s, one - s, one + s] for one in mu], dtype=float),
           "second": lambda d, s, m: variance_by_entries(d, s, m) - variance_by_entries(d, s, 0),
           "factor": lambda f: np.var([float(f), -float(f)]), "rooted": lambda spread, d: spread / mpmath.sqrt(d),
           "term": lambda spread, d: spread / d},
    answer="The mean is m and the variance `d*s^4 + 2*s^2*m`{variance}. There is no further factor d: m already sums "
    "over the d entries. If every entry has mean c, then m is `d*c^2`{spread}, and both grow linearly in d. Dividing "
    "by `sqrt(d)` keeps the variance from growing, so the softmax does not saturate; the mean then still grows with "
    "`sqrt(d)`.",
    parts=[
        Part("mean", "What is `E(dot(q, k))`, in d, s and m?", Formula("m", OF_SCORE), "monte carlo", score_mean,
             why="Independent vectors: `E(dot(q, k)) = dot(E(q), E(k)) = dot(mu, mu)`.",
             wrong={"multiplied by d again, although m already sums over d entries":
                        ("d*m", lambda d, m: sum(m for _ in range(d))),
                    "assumed a mean of zero": ("0", lambda d, s: variance_by_entries(d, s, 0) * 0),
                    "added the variance, which belongs to `dot(q, q)`":
                        ("m + d*s^2", lambda d, s, m: sum(m / d + s * s for _ in range(d)))}),
        Part("variance", "What is `Var(dot(q, k))`?", Formula("d*s^4 + 2*s^2*m", OF_SCORE), "symbolic", score_variance,
             why="Entry by entry: `E(q_i^2*k_i^2) - mu_i^4 = (mu_i^2 + s^2)^2 - mu_i^4 = s^4 + 2*s^2*mu_i^2`. The "
             "first term occurs d times; the second sums to `2*s^2*m`{second}.",
             wrong={"added a factor d, although m already sums over d entries":
                        ("d*s^4 + 2*d*s^2*m", lambda d, s, m: sum(s**4 + 2 * s * s * m for _ in range(d))),
                    "forgot that the mean of one vector multiplies the noise of the other":
                        ("d*s^4 + m^2", lambda d, s, m: variance_by_entries(d, s, 0) + m * m)},
             only_if={"the mean is zero": ("d*s^4", {"m": 0})}),
        Part("unit", "By which factor must the score be multiplied for its variance to be one?",
             Formula("1/sqrt(d*s^4 + 2*s^2*m)", OF_SCORE), "symbolic", lambda: Finding(1 / sympy.sqrt(moments()[1]),
                 "one over the square root of the variance, which follows from the moments"),
             why="A factor f multiplies the variance by `f^2`{factor}.",
             wrong={"divided by the variance, not by its square root":
                        ("1/(d*s^4 + 2*s^2*m)", lambda d, s, m: 1 / variance_by_entries(d, s, m))},
             only_if={"the mean is zero and s is one": ("1/sqrt(d)", {"m": 0, "s": 1}),
                      "the mean is zero": ("1/(sqrt(d)*s^2)", {"m": 0})}),
        Part("root-d", "Dividing by `sqrt(d)` makes the variance one.", Truth("nearly", Choice("standard",
             {"centred": "the mean is zero", "unit": "s is one", "standard": "the mean is zero and s is one"})),
             "symbolic", root_d_is_enough,
             why="In general it becomes `s^4 + 2*s^2*m/d`{scaled}: it no longer grows with d if the means of the "
             "entries do not, but it is not one.", wrong={"assumed mean zero and variance one": True}),
        Part("linear-mean", "Every entry has mean c. Under which scaling is the mean of the score linear in d?",
             Choice("none", {"none": "no scaling", "root": "dividing by `sqrt(d)`", "full": "dividing by d"}),
             "symbolic", linear_mean,
             why="The mean is a sum of d terms `c^2`{term}: `d*c^2`{spread}. Divided by `sqrt(d)` it is "
             "`sqrt(d)*c^2`{rooted}, divided by d it is `c^2`{term}."),
        Part("no-scaling", "Without scaling, the derivatives of the softmax vanish as d grows; with scores divided by "
             "`sqrt(d)`, they do not.", Truth("true"), "monte carlo", unscaled_vanishes,
             why="Unscaled scores differ by about `sqrt(d)`. The largest one gets all the weight, and "
             "the derivatives, each a product of two weights or of a weight and the sum of the others, go to zero. "
             "Then no gradient reaches queries and keys.",
             wrong={"thought that the softmax normalizes its scores": False}),
    ])  # fmt: skip

EXERCISES = (SCALE,)
