"""Softmax: its range in exact and in floating-point arithmetic, and its derivatives where it is saturated.

z scores, a weights: `a_i = exp(z_i) / sum of exp(z_j)`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence

import mpmath
import numpy as np
import sympy
import torch

from octavo.exercises import Choice, Exercise, Finding, Function, Number, Part, Truth, verdict
from octavo.exercises.framework.evidence import normal
from octavo.pages.figures.charts import Series, lines

SCORES = (-3.0, 1.0, 100.0, 5.0, -1.0)
DIGITS = 80
CLEAR_CHANGE = 1e-3  # of a weight


def symbolic_softmax(n: int) -> tuple[list[sympy.Symbol], list[sympy.Expr]]:
    """n real scores and their weights."""
    z = list(sympy.symbols(f"z1:{n + 1}", real=True))
    total = sum(map(sympy.exp, z))
    return z, [sympy.exp(one) / total for one in z]


def sums_to_one() -> Finding:
    sums = [sympy.simplify(sum(symbolic_softmax(n)[1])) for n in range(1, 7)]
    return Finding(verdict(sums == [1] * 6), "SymPy sums the weights of 1 to 6 symbolic scores: the sum is 1 each time")


def positive() -> Finding:
    """Whether weights are above zero: in exact arithmetic, and in float64 for scores of several kinds."""
    with mpmath.workdps(DIGITS):
        exact = all(mpmath.exp(-gap) / (1 + mpmath.exp(-gap)) > 0 for gap in (1, 1000, 10**6))
    far, near = torch.tensor([[0.0, -1000.0], [0.0, -700.0]], dtype=torch.float64).softmax(-1)[:, 1].tolist()
    note = (
        f"in float64 a score 1000 below the largest has weight {far:g}, one 700 below {near:.1e}; exactly, all "
        "are above 0"
    )
    below = torch.tensor([[-1.0, -1001.0], [3.0, -2000.0]], dtype=torch.float64).softmax(-1)[:, 1].tolist()
    under = {"exact": exact, "distinct": far > 0, "negative": below[0] > 0, "few": below[1] > 0}
    return Finding(verdict(exact and far > 0, under), note, "exactly 0")


def first_zero_gap() -> Finding:
    gap = next(g for g in range(2000) if math.exp(-g) / (1.0 + math.exp(-g)) == 0.0)
    return Finding(gap, f"the first g with exp(-g) / (1 + exp(-g)) == 0.0; exp(-{gap - 1}) is {math.exp(1 - gap):g}")


def at_most_one() -> Finding:
    """1 - a_i is a sum of positive terms over a positive sum."""
    _, a = symbolic_softmax(4)
    rest = sympy.simplify((1 - a[0]) - sum(a[1:]))
    largest = (normal(10_000, 6) * 100).softmax(-1).max().item()
    note = f"1 - a_i is the sum of the others (SymPy); the largest of 60,000 computed weights is {largest:.17g}"
    return Finding(verdict(rest == 0 and all(one.is_positive for one in a) and largest <= 1), note)


def never_one() -> Finding:
    with mpmath.workdps(DIGITS):
        exact = all(1 / (1 + mpmath.exp(-gap)) < 1 for gap in (1, 40, 150))
    computed, near = torch.tensor([[40.0, 0.0], [30.0, 0.0]], dtype=torch.float64).softmax(-1)[:, 0].tolist()
    note = f"with a margin of 40 float64 gives exactly {computed:g}, with 30 it gives 1 - {1 - near:.1e}"
    rows = ([41.0, 1.0], [40.0, 0.0, 0.0], [40.0, -40.0])
    positive, three, symmetric = (torch.tensor(row, dtype=torch.float64).softmax(-1)[0].item() < 1 for row in rows)
    under = {"exact": exact, "positive": positive, "three": three, "symmetric": symmetric}
    return Finding(verdict(exact and computed < 1, under), note, "exactly 1")


def first_gap(holds: Callable[[int], bool]) -> int:
    """The first gap between two scores for which a condition holds."""
    return next(gap for gap in range(2000) if holds(gap))


def _small_weight(gap: int) -> np.float32:
    e = np.exp(np.float32(-gap))
    return np.float32(e / (np.float32(1) + e))


def first_one_gap() -> Finding:
    gap = next(g for g in range(2000) if 1.0 / (1.0 + math.exp(-g)) == 1.0)
    note = f"the first g with 1 / (1 + exp(-g)) == 1.0; exp(-{gap}) is {math.exp(-gap):.1e}, and 2^-53 is 1.1e-16"
    return Finding(gap, note)


def range_figure() -> str:
    gaps = range(0, 800, 8)
    exact = [(g, float(mpmath.log10(mpmath.exp(-g) / (1 + mpmath.exp(-g))))) for g in gaps]
    single = torch.tensor([[0.0, -g] for g in gaps], dtype=torch.float32).softmax(-1)[:, 1]
    computed = [(g, math.log10(a)) for g, a in zip(gaps, single.tolist(), strict=True) if a > 0]
    return lines(
        [Series("exact", exact), Series("float32", computed)],
        "The smaller of two weights. In float32 it underflows to zero at a gap of 104.",
        ("gap between the two scores", "log10 of the smaller weight"),
    )


RANGE = Exercise(
    id="softmax-range", title="Is a softmax a distribution?", figure=range_figure,
    question="Scores `z_1` to `z_n` become weights `a_i = exp(z_i)/sum(j, exp(z_j))`. Which of these statements hold "
    "exactly, and which still hold in floating-point arithmetic?",
    where={"tiny": math.ulp(0.0), "weight": lambda g: mpmath.exp(-g) / (1 + mpmath.exp(-g)), "half": 2.0**-53,
           "larger": lambda g: 1 / (1 + mpmath.exp(-g))},
    answer="In exact arithmetic, weights lie strictly between zero and one (for more than one score) and sum to one. "
    "In floating point they may be exactly zero or one. That matters as soon as a logarithm or a division follows, so "
    "losses use log-softmax, not the log of softmax.",
    parts=[
        Part("sums-to-one", "The weights sum to one.", Truth("true", Choice("", {
             "two": "there are at least two scores",
             "positive": "no score is negative", "distinct": "no two scores are equal"})), "symbolic", sums_to_one,
             why="All weights have the same denominator, and the numerators sum to it.",
             wrong={"considered rounding, which affects only the last digit": False}),
        Part("positive", "Every weight is strictly positive.", Truth("nearly", Choice("exact", {
             "exact": "the arithmetic is exact", "distinct": "no two scores are equal",
             "negative": "no score is positive", "few": "there are only two scores"})), "numeric", positive,
             why="`exp(z)` is positive for every real z, and so is the quotient. But the smallest positive float64 is "
             "about `4.9*10^(-324)`{tiny}, and anything below half of it rounds to zero. Then its logarithm is minus "
             "infinity.",
             wrong={"forgot that exp underflows to zero": True}),
        Part("first-zero", "The two scores are zero and `-g`. What is the smallest integer g for which float64 "
             "computes the second weight, `exp(-g)/(1 + exp(-g))`{weight}, as exactly zero?",
             Number(746, rel=0), "numeric", first_zero_gap,
             why="The smallest positive float64 is `2^(-1074)`{tiny}; half of it is `2^(-1075) = exp(-745.13)`. "
             "Anything below rounds to zero.",
             wrong={"used the smallest normal number and forgot the subnormal ones":
                        (709, lambda: first_gap(lambda g: math.exp(-g) / (1 + math.exp(-g)) < sys.float_info.min)),
                    "gave the value for float32": (104, lambda: first_gap(lambda g: _small_weight(g) == 0)),
                    "asked when the other weight rounds to one":
                        (37, lambda: first_gap(lambda g: 1 + math.exp(-g) == 1))}),
        Part("at-most-one", "Every weight is at most one.", Truth("true", Choice("", {
             "exact": "the arithmetic is exact",
             "positive": "no score is negative", "two": "there are at least two scores"})), "symbolic", at_most_one,
             why="One minus a weight is the sum of the other weights, none of which is negative.",
             wrong={"mistook the exponentials for the weights": False}),
        Part("never-one", "With two or more scores, no weight is exactly one.", Truth("nearly", Choice("exact", {
             "three": "there are at least three scores", "positive": "all scores are positive",
             "exact": "the arithmetic is exact", "symmetric": "the scores sum to zero"})), "numeric", never_one,
             why="In exact arithmetic, the other weights are positive. But anything below `1.1*10^(-16)`{half} is lost "
             "when it is added to one in float64.",
             wrong={"forgot that a small positive sum is lost next to one": True}),
        Part("first-one", "The two scores are g and zero. What is the smallest integer g for which float64 computes "
             "`1/(1 + exp(-g))`{larger} as exactly one?", Number(37, rel=0), "numeric", first_one_gap,
             why="One plus x rounds to one once x is at most `2^(-53)`{half}, and `2^(-53) = exp(-36.74)`.",
             wrong={"used the gap at which the other weight becomes zero":
                        (746, lambda: first_gap(lambda g: math.exp(-g) / (1 + math.exp(-g)) == 0)),
                    "gave the value for float32": (17, lambda: first_gap(lambda g:
                        np.float32(1) + np.exp(np.float32(-g)) == 1)),
                    "rounded the gap down": (36, lambda: math.floor(53 * math.log(2)))}),
    ])  # fmt: skip


def jacobian(z: Sequence[float]) -> list[list[float]]:
    """The Jacobian of softmax, without subtracting nearly equal numbers."""
    top = max(z)
    e = [math.exp(one - top) for one in z]
    total = math.fsum(e)
    a = [one / total for one in e]
    rest = [math.fsum(a[:i] + a[i + 1 :]) for i in range(len(a))]  # 1 - a_i, without the subtraction
    return [[a[i] * rest[i] if i == j else -a[i] * a[j] for j in range(len(a))] for i in range(len(a))]


def _jacobian_with_subtraction(z: Sequence[float]) -> list[list[float]]:
    a = [math.exp(one - max(z)) for one in z]
    a = [one / sum(a) for one in a]
    return [[a[i] * ((i == j) - a[j]) for j in range(len(a))] for i in range(len(a))]


def _jacobian_of_sigmoids(z: Sequence[float]) -> list[list[float]]:
    exact = jacobian(z)
    return [[exact[i][i] if i == j else 0.0 for j in range(len(z))] for i in range(len(z))]


CASES = ((list(SCORES),), ([0.0, 0.0],), ([2.0, -1.0, 0.5],), ([50.0, 0.0, -50.0],))


def jacobian_by_differences(z: Sequence[float]) -> list[list[mpmath.mpf]]:
    """The Jacobian from difference quotients with 500 digits: the definition of a derivative, without a formula."""
    with mpmath.workdps(500):
        step = mpmath.mpf(10) ** -150

        def weights(shifted: int, by: mpmath.mpf) -> list[mpmath.mpf]:
            e = [mpmath.exp(mpmath.mpf(one) + (by if j == shifted else 0)) for j, one in enumerate(z)]
            return [one / mpmath.fsum(e) for one in e]

        columns = []
        for j in range(len(z)):
            up, down = weights(j, step), weights(j, -step)
            columns.append([(one - other) / (2 * step) for one, other in zip(up, down, strict=True)])
        return [[columns[j][i] for j in range(len(z))] for i in range(len(z))]


def all_derivatives() -> Finding:
    results = [[[float(one) for one in row] for row in jacobian_by_differences(z)] for (z,) in CASES]
    smallest = min(abs(one) for row in results[0] for one in row)
    note = f"difference quotients with 500 digits; the smallest of the 25 is {smallest:.3g} in absolute value"
    return Finding(results, note)


def largest_derivative() -> Finding:
    largest = max(abs(one) for row in jacobian_by_differences(SCORES) for one in row)
    naive = max(abs(one) for row in _jacobian_with_subtraction(SCORES) for one in row)
    return Finding(float(largest), f"with 500 digits; 1 - a in float64 would have given {naive:.3g}")


def smallest_derivative() -> Finding:
    precise = jacobian_by_differences(SCORES)
    smallest = min(abs(one) for row in precise for one in row)
    single = torch.tensor(float(smallest), dtype=torch.float32).item()
    return Finding(float(smallest), f"with 500 digits; in float32 this is {single:g}")


def rows_sum_to_zero() -> Finding:
    z, a = symbolic_softmax(5)
    rows = [sympy.simplify(sum(sympy.diff(one, other) for other in z)) for one in a]
    columns = [sympy.simplify(sum(sympy.diff(one, other) for one in a)) for other in z]
    note = "SymPy differentiates the softmax of five symbolic scores"
    return Finding(verdict(rows == [0] * 5 and columns == [0] * 5), note)


def largest_moves_most() -> Finding:
    """How much raising each score by 1 changes the weights."""
    changes = []
    for j in range(len(SCORES)):
        z = torch.tensor([SCORES, SCORES], dtype=torch.float64)
        z[1, j] += 1
        before, after = z.softmax(-1)
        changes.append((after - before).abs().max().item())
    equal = torch.zeros(2, 5, dtype=torch.float64)
    equal[1, 2] += 1
    undecided = (equal[1].softmax(-1) - equal[0].softmax(-1)).abs().max().item()
    note = (
        f"raising any score by 1 changes no weight by more than {max(changes):.1e}; with equal scores, by "
        f"{undecided:.2f}"
    )
    return Finding(verdict(changes[2] > CLEAR_CHANGE), note, f"above {CLEAR_CHANGE}")


def derivative_figure() -> str:
    margins = [one / 4 for one in range(0, 161)]
    size = [(m, max(abs(one) for row in jacobian([m, 0.0, 0.0, 0.0, 0.0]) for one in row)) for m in margins]
    return lines(
        [Series("largest derivative", size)], "Five scores, one ahead: a saturated softmax has almost no gradient.",
        ("margin of the largest score", "derivative"), log_y=True,
    )  # fmt: skip


DERIVATIVES = Exercise(
    id="softmax-derivatives", title="Twenty-five derivatives of a softmax", figure=derivative_figure,
    where={"scores": np.array(SCORES), "z": np.array([0.3, -0.5, 0.8]), "count": len(SCORES) ** 2, "top": max(SCORES),
           "a": lambda z: [mpmath.exp(one) / mpmath.fsum(map(mpmath.exp, z)) for one in z], "limit": CLEAR_CHANGE,
           "rest": lambda a: a[0] + a[1], "others": lambda a: a[1] + a[2], "lowest": np.array(SCORES)[[0, 4]],
           "largest": lambda: max(abs(one) for row in jacobian(SCORES) for one in row),
           "leading": lambda: mpmath.exp(sorted(SCORES)[-2] - max(SCORES))},
    question="The scores are `list(-3, 1, 100, 5, -1)`{scores}. Compute all `d(a_i, z_j)` so precisely that none of "
    "them underflows. How sensitive are the weights to the scores?",
    answer="`d(a_i, z_i) = a_i*(1 - a_i)` and `d(a_i, z_j) = -a_i*a_j` for different i and j. The third weight "
    "differs from one by about `exp(-95)`{leading}, so `1 - a_3`{rest} must not be computed as a difference: float64 "
    "would give zero. The sum of the other weights is the same number without cancellation. All 25{count} are below "
    "`10^(-41)`{>largest}: a saturated softmax hardly changes, whichever score changes.",
    parts=[
        Part("all", "Write a function that returns the Jacobian as a list of rows: entry [i][j] is `d(a_i, z_j)`. "
             "Every entry must be right to nine digits.", Function("softmax_jacobian", jacobian, CASES,
             "softmax_jacobian(z: list) -> list of rows", rel=1e-9, abs=0.0), "numeric", all_derivatives,
             why="Subtract the largest score first, and compute `1 - a_i`{others} as the sum of the other weights.",
             wrong={"subtracted a from one and lost all digits": _jacobian_with_subtraction,
                    "forgot that the normalizing sum changes too": _jacobian_of_sigmoids}),
        Part("largest", "What is the largest of these 25{count} derivatives in absolute value?",
             Number("exp(-95)+exp(-99)+exp(-101)+exp(-103)"), "numeric", largest_derivative,
             why="It is `d(a_3, z_3) = a_3*(1 - a_3)`, and `a_3` is nearly one: `exp(-95) + exp(-99) + exp(-101) + "
             "exp(-103)`{}.",
             wrong={"rounded the diagonal entry to zero, so another seemed largest": ("exp(-95)",
                        lambda: max(abs(one) for row in _jacobian_with_subtraction(SCORES) for one in row)),
                    "subtracted the largest weight from one in float64":
                        (0, lambda: _jacobian_with_subtraction(SCORES)[2][2]),
                    "gave the largest possible derivative": (0.25, lambda:
                        max(x / 64 * (1 - x / 64) for x in range(64))),
                    "used the largest weight": (1, lambda: max(torch.tensor(SCORES).softmax(-1).tolist()))}),
        Part("smallest", "What is the smallest of these 25{count} derivatives in absolute "
             "value?", Number("exp(-204)"), "numeric",
             smallest_derivative,
             why="The two smallest weights belong to `list(-3, -1)`{lowest}: `exp(-103)*exp(-101)`{}. In float32 this "
             "underflows to zero.",
             wrong={"used the square of the smallest weight": ("exp(-206)", lambda:
                 math.exp(min(SCORES) - max(SCORES)) ** 2),
                    "let it underflow, as float32 does": (0, lambda: float(np.float32(math.exp(-204))))}),
        Part("sums", "Each row and each column of the Jacobian sums to zero.", Truth("true", Choice("", {
             "distinct": "no two scores are equal",
             "saturated": "one score dominates", "bounded": "no score is above one"})), "symbolic",
             rows_sum_to_zero,
             why="A row: adding a constant to all scores changes nothing. A column: the weights always sum to one.",
             wrong={"forgot that the weights always sum to one": False}),
        Part("sensitive", "The weights are sensitive to the dominant score 100{top}: raising it by one changes some "
             "weight by more than 0.001{limit}.", Truth("false"), "numeric", largest_moves_most,
             why="Every derivative has a factor that is nearly zero: `a_3` is close to one, the other weights are "
             "close to zero. Softmax is most sensitive where it is undecided.",
             wrong={"mistook a large score for a large derivative": True}),
    ])  # fmt: skip

EXERCISES = (RANGE, DERIVATIVES)
