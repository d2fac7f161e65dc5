"""Attention weights as points of the simplex, and the difference between scaling scores and clipping them.

a weights, z scores, n number of weights, d size of queries and keys.
"""

from __future__ import annotations

import numpy as np
import sympy
import torch
from scipy.optimize import linprog
from torch import Tensor

from octavo.exercises import Exercise, Finding, Formula, Number, Part, Truth, verdict
from octavo.exercises.framework.evidence import normal, tabulated
from octavo.pages.figures.charts import Series, lines

N = 5


def largest_weight(total: float = 1.0) -> tuple[float, float, list[float]]:
    """The largest a_1 under the constraints, and the multipliers of the sum and of the signs, by linear programming."""
    solved = linprog([-1.0, *[0.0] * (N - 1)], A_eq=[[1.0] * N], b_eq=[total], bounds=[(0, None)] * N, method="highs")
    return -solved.fun, -float(solved.eqlin.marginals[0]), [float(one) for one in solved.lower.marginals]


def bound() -> Finding:
    return Finding(largest_weight()[0], f"linear programming: the largest of {N} coefficients under both constraints")


def multiplier() -> Finding:
    found, step = largest_weight()[1], 1e-3
    slope = (largest_weight(1 + step)[0] - largest_weight(1 - step)[0]) / (2 * step)
    note = f"linear programming gives {found:g}; the maximum changes by {slope:g} per unit of the sum"
    return Finding(slope, note)


def other_multipliers() -> Finding:
    return Finding(largest_weight()[2][1], "the multiplier of `a_2 >= 0`, by linear programming")


def is_stationary() -> Finding:
    a, lam = sympy.symbols(f"a1:{N + 1}"), sympy.Symbol("lam")
    lagrangian = a[0] + lam * (1 - sum(a))
    solutions = sympy.solve([sympy.diff(lagrangian, one) for one in (*a, lam)], [*a, lam])
    note = f"SymPy solves the {N + 1} equations of the Lagrangian: {len(solutions)} solutions"
    return Finding(verdict(bool(solutions)), note)


def sum_alone() -> Finding:
    drawn = np.random.default_rng(0).normal(size=(10_000, N))
    drawn += (1 - drawn.sum(1, keepdims=True)) / N
    largest = float(drawn.max())
    note = f"10,000 vectors that sum to one, of any sign: the largest entry is {largest:.2f}"
    return Finding(verdict(largest <= 1), note, "above 1")


LARGEST = np.eye(N)[0]  # the maximum: all other coefficients are zero
MULTIPLIERS = 1 - LARGEST  # of the signs: only those of the other coefficients are active
SIMPLEX = Exercise(
    id="weights-on-simplex", title="Nonnegative coefficients that sum to one",
    where={"n": N, "a": LARGEST, "mu": MULTIPLIERS, "lambda": lambda: largest_weight()[1], "two": lambda: 1 - (-1),
           "at_most": lambda a: max(a)},
    question="The coefficients `a_1` to `a_n` are nonnegative and sum to one. Show that each is at most one by "
    "maximizing `a_1`. To form the Lagrangian, subtract `lambda` times (the sum minus one) from `a_1`, and add "
    "`mu_m*a_m` for the constraint that `a_m` is nonnegative, for every m.",
    answer="The shortest proof needs no multiplier: `a_1` is one minus the others, and none of them is negative. "
    "With multipliers, the derivatives of the Lagrangian are zero: `1 - lambda + mu_1 = 0` and `-lambda + mu_2 = 0`, "
    "and so on for the others. At the maximum `a_1` is positive, so `mu_1 = 0`, hence `lambda = 1` and `mu_2 = 1`: "
    "the other coefficients are zero, and `a_1 = 1`. With the sum alone, `lambda` would have to be one and zero at "
    "once, and indeed there is no maximum: the bound needs nonnegative coefficients.",
    parts=[
        Part("bound", f"There are {N}{{n}} coefficients. What is the largest possible value of one of them?", Number(1),
             "numeric", bound,
             why="The others are nonnegative, so it is at most the sum, `a_1 = 1`, with equality if the others are "
             "zero.",
             wrong={"made all coefficients equal": ("1/5", lambda: 1 / N),
                    "split the sum between it and the others": ("1/2", lambda: 1 / 2)}),
        Part("multiplier", "What is `lambda` at the maximum?", Number(1), "numeric", multiplier,
             why="The multiplier is the change of the maximum per unit of the sum, and the maximum is the sum.",
             wrong={"took the constraint for inactive": (0, lambda: 0.0),
                    "divided by the number of coefficients": ("1/5", lambda: largest_weight()[1] / N)}),
        Part("other-multipliers", "What is `mu_2` at the maximum?", Number(1), "numeric", other_multipliers,
             why="`-lambda + mu_2 = 0`: whatever is forced into `a_2` is lost to `a_1`.",
             wrong={"took the constraint for inactive": (0, lambda: 0.0),
                    "used the wrong sign": (-1, lambda: -largest_weight()[2][1])}),
        Part("stationary", "Without the multipliers `mu_m`, setting the derivatives of the Lagrangian to zero "
             "still gives the maximum.", Truth("false"), "symbolic", is_stationary,
             why="The derivative with respect to `a_1` is one minus `lambda`, that with respect to `a_2` is minus "
             "`lambda`: they cannot both be zero.", wrong={"used only the constraint on the sum": True}),
        Part("sum-alone", "Coefficients that sum to one are at most one, whatever their signs.", Truth("false"),
             "numeric", sum_alone, why="`2 + (-1) = 1`.", wrong={"forgot that the proof needs nonnegative "
             "coefficients": True}),
    ])  # fmt: skip


SCORES, SIZE, LIMIT = (8.0, 16.0, 40.0), 64, 5.0


def scaled(scores: Tensor) -> Tensor:
    return torch.softmax(scores / SIZE**0.5, -1)


def clipped(scores: Tensor) -> Tensor:
    return scores.clamp(max=LIMIT).softmax(-1)


def weights_of(function: str) -> list[float]:
    scores = torch.tensor(SCORES, dtype=torch.float64)
    return {"scaled": scaled, "clipped": clipped}[function](scores).tolist()


def keeps_order(function: str) -> Finding:
    scores_BN = 30 * normal(1000, 6)
    weights_BN = {"scaled": scaled, "clipped": clipped}[function](scores_BN)
    order_BN = scores_BN.argsort(-1)
    steps = weights_BN.gather(-1, order_BN).diff(dim=-1)
    ties = int((steps <= 0).any(-1).sum())
    return Finding(verdict(ties == 0), f"1,000 rows of 6 random scores: in {ties} of them two weights are equal")


def clipped_gradient() -> Finding:
    scores = torch.tensor(SCORES, dtype=torch.float64, requires_grad=True)
    (by_clipped,) = torch.autograd.grad(clipped(scores)[2], scores)
    (by_scaled,) = torch.autograd.grad(scaled(scores)[2], scores)
    note = f"autograd: {by_clipped[2]:g} after clipping, {by_scaled[2]:.2g} after scaling"
    return Finding(float(by_clipped[2]), note)


@tabulated("r d", ((2.0, 4), (10.0, 64), (0.5, 9)), "the odds of two weights, before and after scaling", rel=1e-9)
def scaled_odds(r: float, d: int) -> float:
    scores = torch.tensor([r, 1.0], dtype=torch.float64).log()
    a = (scores / d**0.5).softmax(-1)
    return float(a[0] / a[1])


def mean_derivative(d: int, scale: float) -> float:
    """The mean largest derivative of a softmax over 16 keys with standard normal queries and keys of size d."""
    q_BD, k_BSD = normal(400, d, seed=d), normal(400, 16, d, seed=d + 1)
    a_BS = (torch.einsum("bd,bsd->bs", q_BD, k_BSD) * scale).softmax(-1)
    return float((a_BS * (1 - a_BS)).amax(-1).mean())


def gradients_explode() -> Finding:
    raw = {d: mean_derivative(d, 1.0) for d in (4, 64, 1024)}
    listed = ", ".join(f"{size:.3f} for d = {d}" for d, size in raw.items())
    note = f"the largest derivative of a softmax over 16 unscaled scores, on average: {listed}"
    return Finding(verdict(raw[1024] > raw[4]), note, "any larger")


def softmax_of(*scores: float) -> float:
    """The weight of the last of some scores."""
    return float(torch.tensor(scores, dtype=torch.float64).softmax(-1)[-1])


def scaled_gradient() -> float:
    scores = torch.tensor(SCORES, dtype=torch.float64, requires_grad=True)
    return float(torch.autograd.grad(scaled(scores)[2], scores)[0][2])


CLIPPING = Exercise(
    id="scaling-or-clipping", title="Scaling scores is not clipping them",
    where={"z": np.array(SCORES), "d": SIZE, "limit": LIMIT, "factor": lambda d: 1 / d**0.5,
           "s": lambda z, factor: z * factor,
           "largest_slope": lambda: max(a * (1 - a) for a in np.linspace(0, 1, 101))},
    question="Three scores are 8{z_1}, 16{z_2} and 40{z_3}; queries and keys have size `d = 64`. Scaling divides the "
    "scores by `sqrt(d) = 8`. Clipping replaces every score above 5{limit} by 5{limit}. Both are said to keep "
    "gradients from exploding.",
    answer="Scaling gives 1{s_1}, 2{s_2} and 5{s_3}: the order of the keys remains, all differences are reduced to "
    "1/8{factor}, and odds r become `r^(1/sqrt(d))`{odds}. Clipping makes all three equal: the differences are lost, "
    "and so is the gradient of every clipped score. And the problem is not an explosion: the derivatives of a "
    "softmax are at most 1/4{largest_slope}, and they vanish where it is saturated, which is what large unscaled "
    "scores lead to.",
    figure=lambda: lines([Series("scaled", [(x, scaled(torch.tensor([8.0, 16.0, x]))[2].item()) for x in range(41)]),
        Series("clipped at 5", [(x, clipped(torch.tensor([8.0, 16.0, x]))[2].item()) for x in range(41)])],
        "The weight of the third key by its score; the others have 8 and 16.", ("score", "weight")),
    parts=[
        Part("scaled", "What is the weight of the third key after scaling?", Number("1/(1 + exp(-3) + exp(-4))"),
             "numeric", lambda: Finding(weights_of("scaled")[2], "PyTorch's softmax of the scaled scores"),
             why="Its score is `s_3 - s_1 = 4` above the first and `s_3 - s_2 = 3` above the second.",
             wrong={"did not scale": ("1/(1 + exp(-24) + exp(-32))", lambda: softmax_of(*SCORES)),
                    "divided by d":
                    ("1/(1 + exp(-3/8) + exp(-1/2))", lambda: softmax_of(*(x / SIZE for x in SCORES)))}),
        Part("clipped", "What is the weight of the third key after clipping?", Number("1/3"), "numeric",
             lambda: Finding(weights_of("clipped")[2], "PyTorch's softmax of the clipped scores"),
             why="All three scores are above the limit, so all three become equal.",
             wrong={"clipped the third score only, and scaled the others":
                    ("1/(1 + exp(-3) + exp(-4))", lambda: softmax_of(1.0, 2.0, LIMIT)),
                    "thought that the largest score still wins": (1, lambda: 1.0)}),
        Part("order", "After scaling, keys with different scores still have different weights.", Truth("true"),
             "numeric", lambda: Finding(*keeps_order("scaled")[:2], "any tie"),
             why="Dividing all scores by the same positive number keeps their order.",
             wrong={"confused scaling with clipping": False}),
        Part("clipped-order", "After clipping, keys with different scores still have different weights.",
             Truth("false"), "numeric", lambda: Finding(*keeps_order("clipped")[:2], "any tie"),
             why="All scores above the limit become equal.", wrong={"confused clipping with scaling": True}),
        Part("clipped-gradient", "With clipping, what is the derivative of the third weight with respect to the third "
             "score?",
             Number(0, abs=1e-12), "autograd", clipped_gradient, why="Above the limit, clipping is constant.",
             wrong={"gave the derivative of a softmax with equal weights": ("2/9", lambda: 1 / 3 * (1 - 1 / 3)),
                    "gave that of the scaled scores":
                    ("(exp(-3) + exp(-4))/(8*(1 + exp(-3) + exp(-4))^2)", scaled_gradient)}),
        Part("odds", "Two keys have weights in the ratio r before scaling. What is the ratio after dividing the scores "
             "by `sqrt(d)`?", Formula("r^(1/sqrt(d))", {"r": "positive", "d": "whole"}), "numeric", scaled_odds,
             why="`ln(r)` is the difference of the scores, and it is divided by `sqrt(d)`: a softmax with temperature "
             "`sqrt(d)`.",
             wrong={"divided the ratio": ("r/sqrt(d)", lambda r, d: r / d**0.5),
                    "thought that it stays the same": ("r", lambda r: r)}),
        Part("explodes", "Without scaling, the derivatives of the softmax grow with d.", Truth("false"), "numeric",
             gradients_explode,
             why="They are products of two weights, or of a weight and the sum of all others. With scores of standard "
             "deviation `sqrt(d)` one weight is close to one, the others are close to zero, and all of these vanish.",
             wrong={"thought that large scores have large gradients": True}),
    ])  # fmt: skip

EXERCISES = (SIMPLEX, CLIPPING)
