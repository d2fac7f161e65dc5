"""Copying and averaging with attention: what one query can do, and how two summed values can be separated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import mpmath
import numpy as np
import torch

from octavo.exercises import Choice, Exercise, Finding, Formula, Number, Part, Truth, verdict
from octavo.exercises.framework.evidence import bisect, tabulated
from octavo.ops.attention import attention_weights
from octavo.pages.figures.charts import Series, lines

ROUNDING = 1e-12  # absolute tolerance for float64
MARGIN, SHARE = 10.0, 0.99  # of the best key


def weights_of(scores: list[float]) -> list[float]:
    """octavo's attention weights of one query with these scores."""
    q_11TK = torch.ones(1, 1, 1, 1, dtype=torch.float64)
    k_11SK = torch.tensor(scores, dtype=torch.float64)[None, None, :, None]
    weights: list[float] = attention_weights(q_11TK, k_11SK, scale=1.0).flatten().tolist()
    return weights


def first_weight(scores: Sequence[Any]) -> Any:
    """The softmax weight of the first score, with 50 digits."""
    return 1 / mpmath.fsum(mpmath.exp(one - scores[0]) for one in scores)


def pair_weight(score: Any, n: int) -> Any:
    """The weight of each of two keys with this score among n keys, the others of score 0."""
    if n < 2:
        raise ValueError("there must be two keys")
    return first_weight([score, score] + [0] * (n - 2))


def margin_for(n: int, p: float) -> float:
    """The smallest margin that leaves n - 1 other keys a total weight of p."""
    return bisect(lambda m: weights_of([m] + [0.0] * (n - 1))[0] >= 1 - p, -5.0, 40.0)


def factor_for(n: int, p: float, copies: int = 2) -> float:
    """The smallest b that leaves all keys but the copied ones a total weight of p."""
    return bisect(lambda b: sum(weights_of([b] * copies + [0.0] * (n - copies))[copies:]) <= p, -5.0, 50.0)


def least_weight() -> Finding:
    rng, worst = np.random.default_rng(1), math.inf
    for _ in range(2000):
        n, m = int(rng.integers(2, 60)), float(rng.uniform(0, 8))
        others = -m - rng.exponential(2.0, n - 1)
        others[0] = -m  # the closest one defines the margin
        worst = min(worst, weights_of([0.0, *others.tolist()])[0] - 1 / (1 + (n - 1) * math.exp(-m)))
    note = f"2,000 random sets of scores: never below the bound by more than {max(0.0, -worst):.0e}"
    return Finding(verdict(worst >= -ROUNDING), note, "to 1e-12")


@tabulated("n p", ((2, 0.1), (10, 0.01), (1000, 0.01), (1000, 0.5)),
    "the smallest margin with a weight of at least 1 - p, by bisection, to 1e-9", abs=1e-9)  # fmt: skip
def needed_margin(n: int, p: float) -> float:
    return margin_for(n, p)


def most_keys() -> Finding:
    most = next(n for n in range(2, 10_000) if weights_of([MARGIN] + [0.0] * n)[0] < SHARE)
    return Finding(most, f"keys added until the weight falls below {SHARE}: with {most + 1} keys it does")


def ten_is_enough() -> Finding:
    weights = {n: weights_of([MARGIN] + [0.0] * (n - 1))[0] for n in range(1, 1001)}
    note = "; ".join(f"{n:,} keys: {weights[n]:.6f}" for n in (2, 100, 223, 224, 1000))
    most = next(n for n, weight in weights.items() if weight < SHARE) - 1
    return Finding(verdict(min(weights.values()) >= SHARE, most), note, f"at least {SHARE}")


COPY = Exercise(
    id="copy-one-value", title="When attention copies one value",
    question="The score of one of n keys exceeds every other score by at least the margin m. What is the attention "
    "weight of its value?",
    where={"others": lambda n: len(range(1, n)), "half": lambda n: margin_for(n, 0.5), "gap": MARGIN, "share": SHARE,
           "odds": (1 - SHARE) / SHARE, "m": lambda n, p: margin_for(n, float(p)), "two": lambda m:
               weights_of([float(m), 0.0])[0],
           "rounding": np.finfo(float).eps / 2},
    answer="In the worst case all other scores are exactly m below. Then the weight is `1/(1 + (n - "
    "1)*exp(-m))`{weight}: the margin must exceed `ln(n - 1)`{half}, not a constant. At that margin the weight is one "
    "half; each further unit of margin divides the odds of the rest by e. Attention copies exactly only through "
    "rounding.",
    figure=lambda: lines([Series(f"{n:,} keys", [(m / 5, 1 / (1 + (n - 1) * math.exp(-m / 5))) for m in range(76)])
        for n in (2, 100, 10_000)], "The weight of the best key in the worst case. More keys shift the curve to the "
        "right by ln(n - 1).", ("margin", "weight")),
    parts=[
        Part("weight", "All other scores are exactly m below the best. What is the weight of the best key?",
             Formula("1/(1 + (n - 1)*exp(-m))", {"n": "whole", "m": "positive"}), "numeric",
             tabulated("n m", ((2, 1.0), (5, 3.0), (50, 0.5), (1000, 7.0)),
                 "octavo's attention weights of one query in float64, to 1e-12",
                 abs=ROUNDING)(lambda n, m: weights_of([m] + [0.0] * (n - 1))[0]),
             why="Divide numerator and denominator of the softmax by the exponential of the best score: it becomes "
             "one, and each of the `n - 1`{others} others `exp(-m)`.",
             wrong={"counted the best key among the others": ("1/(1 + n*exp(-m))", lambda n, m:
                 first_weight([m] + [0] * n)),
                    "compared with a single other key": ("1/(1 + exp(-m))", lambda m: first_weight([m, 0]))}),
        Part("bound", "With margin m the weight is at least `1/(1 + (n - 1)*exp(-m))`{weight}, whatever the other "
             "scores are.",
             Truth("true", Choice("", {
             "equal": "all other scores are equal",
             "few": "there are at most a hundred keys", "positive": "all scores are positive"})), "numeric",
                 least_weight,
             why="Lowering another score lowers the denominator, so equal scores at distance m are the worst case.",
             wrong={"thought that even lower scores could reduce the weight": False}),
        Part("margin", "Which margin leaves the others a total weight of p, in the worst case?",
             Formula("ln(n - 1) + ln((1 - p)/p)", {"n": "whole", "p": "share"}), "numeric", needed_margin,
             why="Solve `(n - 1)*exp(-m) = p/(1 - p)` for m.",
             wrong={"left out the number of keys": ("ln((1 - p)/p)", lambda p: mpmath.log((1 - p) / p)),
                    "mistook p for the odds": ("ln(n - 1) - ln(p)", lambda n, p: mpmath.log((n - 1) / p))}),
        Part("ten", "A margin of 10{gap} gives the best key at least 99%{share} of the weight.",
             Truth("nearly", Number(223, rel=0), "there are at most … keys"), "numeric", ten_is_enough,
             why="The others together may have 1/99{odds} of the weight of the best key, so there may be up to "
             "`1 + exp(10)/99 = 223.49` keys.",
             wrong={"forgot that many small weights add up": True}),
        Part("most-keys", "For up to how many keys does a margin of 10{gap} guarantee 99%{share} of the weight?",
             Number(223, rel=0), "numeric", most_keys,
             why="There may be `exp(10)/99 = 222.49` others, and the best key is one more.",
             wrong={"forgot the best key itself": (222, lambda: math.floor(math.exp(MARGIN) / 99)),
                    "required only half of the weight": (22027, lambda: 1 + math.floor(math.exp(MARGIN)))}),
        Part("exactly-one", "With two keys, above which margin is the weight exactly one in "
             "float64?", Number("53*ln(2)"),
             "numeric", lambda: Finding(bisect(lambda m: weights_of([m, 0.0])[0] == 1.0, 1.0, 100.0),
                 "the smallest margin at which float64 gives a weight of exactly 1, by bisection"),
             why="The weight is `1/(1 + exp(-m))`{two}; at or below `2^(-53)`{rounding} the exponential no longer "
             "changes the one. In exact arithmetic no margin is enough.",
             wrong={"used the smallest positive float64": ("1074*ln(2)", lambda: -math.log(math.ulp(0.0))),
                    "used all bits of a float64": ("64*ln(2)", lambda: math.log(2.0 ** np.finfo(float).bits))}),
    ])  # fmt: skip


def equal_weights() -> Finding:
    rng = np.random.default_rng(2)
    difference = {False: 0.0, True: 0.0}  # by whether the keys have equal norms
    for equal in difference:
        for _ in range(200):
            a, b = rng.normal(size=(2, 5))
            b = b * np.linalg.norm(a) / np.linalg.norm(b) if equal else b
            first, second = weights_of([float(a @ (a + b)), float(b @ (a + b))])
            difference[equal] = max(difference[equal], abs(first - second))
    note = (
        f"200 pairs of keys: the weights differ by up to {difference[False]:.2f}; with equal norms "
        f"{difference[True]:.0e}"
    )
    orthogonal, parallel = (weights_of([float(a @ (a + b)), float(b @ (a + b))])
                            for a, b in (np.diag([1.0, 2.0]), np.array([[1.0, 1.0], [2.0, 2.0]])))  # fmt: skip
    under = {"norms": difference[True] < 1e-9, "orthogonal": abs(orthogonal[0] - orthogonal[1]) < 1e-9,
             "parallel": abs(parallel[0] - parallel[1]) < 1e-9}  # fmt: skip
    return Finding(verdict(difference[False] < 1e-9, under), note, "to 1e-9")


AVERAGE = Exercise(
    id="average-two-values", title="A query that averages two values",
    question="The n keys are orthonormal. The query is `q = b*(k_1 + k_2)`, and scores are unscaled dot products.",
    where={"n": (3, 5, 8, 20), "p": (0.1, 0.3, 0.01, 0.6), "needed": lambda n, p: factor_for(n, p),
           "k": np.array([[1.0, 2.0, 0.5], [0.3, -1.0, 2.0]]), "share": 0.01,
           "difference": lambda k, b: float(b) * ((k[0] - k[1]) @ (k[0] + k[1]))},
    answer="Both keys have score b, all others zero, so each of the two has weight `1/(2 + (n - 2)*exp(-b))`{weight}. "
    "It is below one half for every b; the b that leaves the rest a total weight of p is `ln((n - 2)*(1 - "
    "p)/(2*p))`{needed}. The two weights are equal because the keys have equal norms, not because they are orthogonal.",
    figure=lambda: lines([Series(f"{n:,} keys", [(b / 4, 1 / (2 + (n - 2) * math.exp(-b / 4))) for b in range(61)])
        for n in (3, 100, 10_000)], "The weight of each of the two values: one half at most.", ("b", "weight")),
    parts=[
        Part("weight", "What is the weight of each of the two values?",
             Formula("1/(2 + (n - 2)*exp(-b))", {"n": "whole", "b": "positive"}), "numeric",
             tabulated("n b", ((2, 1.0), (3, 2.0), (100, 5.0), (1000, 12.0)),
                 "octavo's attention weights for scores b, b and n - 2 zeros, to 1e-12",
                 abs=ROUNDING)(lambda n, b: weights_of([b, b] + [0.0] * (n - 2))[0]),
             why="`exp(b)/(2*exp(b) + n - 2)`{}; divide both by `exp(b)`.",
             wrong={"forgot the other keys": ("1/2", lambda b: first_weight([b, b])),
                    "assumed a query of norm b": ("1/(2 + (n - 2)*exp(-b/sqrt(2)))",
                        lambda n, b: pair_weight(b / mpmath.sqrt(2), n))}),
        Part("length", "`n = 100`. Which b leaves the other 98{rest} keys a total weight of "
             "1%{share}?", Number("ln(98*99/2)"),
             "numeric", lambda: Finding(bisect(lambda b: sum(weights_of([b, b] + [0.0] * 98)[2:]) <= 0.01, 0.0, 50.0),
                 "the smallest b that leaves the other 98 keys 1% of the weight, by bisection"),
             why="`98*exp(-b)/(2 + 98*exp(-b)) = 1/100`, so `exp(b) = 98*99/2`.",
             where={"n": 100, "rest": lambda n: n - 2, "b": lambda n: factor_for(n, 0.01)},
             wrong={"forgot that two keys share the weight": ("ln(98*99)", lambda: factor_for(99, 0.01, 1)),
                    "counted all keys as others": ("ln(100*99/2)", lambda: factor_for(102, 0.01))}),
        Part("equal", "The query `q = b*(k_1 + k_2)` gives both values the same weight, whatever the two keys are.",
             Truth("nearly", Choice("norms", {"orthogonal": "the two keys are orthogonal", "norms":
                  "the two keys have equal norms",
             "parallel": "the two keys are parallel"})), "numeric", equal_weights,
             why="The scores differ by `b*(norm(k_1)^2 - norm(k_2)^2)`{difference}: `dot(k_1, k_2)` is in both and "
             "cancels.",
             wrong={"assumed keys of equal norm": True}),
    ])  # fmt: skip


def projector_works() -> Finding:
    rng = np.random.default_rng(6)
    basis, free = (np.linalg.qr(rng.normal(size=size))[0] for size in ((8, 5), (8, 3)))
    pairs = {"orthogonal": (basis[:, :3], basis[:, 3:]), "independent": (basis[:, :3], free[:, :2]),
             "equal": (basis[:, :3], free)}  # fmt: skip
    errors = {}
    for name, (a, b) in pairs.items():
        v_a, v_b = a @ rng.normal(size=a.shape[1]), b @ rng.normal(size=b.shape[1])
        errors[name] = float(np.abs(a @ a.T @ (v_a + v_b) - v_a).max())
    note = f"largest error {errors['independent']:.2f} for random subspaces, {errors['orthogonal']:.0e} if orthogonal"
    under = {name: error < 1e-9 for name, error in errors.items()}
    return Finding(verdict(under["independent"], under), note, "to 1e-9")


def two_directions(c: float) -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors a and b with the cosine c between them."""
    return np.array([1.0, 0.0]), np.array([c, math.sqrt(1 - c * c)])


@tabulated("c L", ((0.1, 2.0), (0.5, 1.0), (0.9, 3.0)), "a a^T applied to 5 a + L b, to 1e-12", abs=ROUNDING)
def projector_error(c: float, length: float) -> float:
    a, b = two_directions(c)
    return float(np.linalg.norm(np.outer(a, a) @ (5 * a + length * b) - 5 * a))


@tabulated("c", [(c,) for c in (0.1, 0.5, 0.9, 0.99)],
    "the largest singular value of the map that keeps a and removes b, to 1e-9 relative", rel=1e-9)  # fmt: skip
def oblique_norm(c: float) -> float:
    columns = np.stack(two_directions(c), 1)
    return float(np.linalg.norm(columns @ np.diag([1.0, 0.0]) @ np.linalg.inv(columns), 2))


def some_map_works() -> Finding:
    rng = np.random.default_rng(7)
    largest = 0.0
    for _ in range(100):
        a, b = rng.normal(size=(6, 2)), rng.normal(size=(6, 3))
        keep_a = np.hstack([a, np.zeros((6, 3))]) @ np.linalg.pinv(np.hstack([a, b]))
        v_a, v_b = a @ rng.normal(size=2), b @ rng.normal(size=3)
        largest = max(largest, float(np.abs(keep_a @ (v_a + v_b) - v_a).max()))
    shared = np.eye(6)[:, :1]  # a direction e in both subspaces: the sum 2 e can be e + e or 2 e + 0
    sums_equal = bool((1 * shared + 1 * shared == 2 * shared + 0 * shared).all())
    note = (
        f"independent subspaces: largest error {largest:.0e} in 100 draws; with a shared direction e, e + e and "
        "2e + 0 are the same sum of different parts"
    )
    under = {
        "independent": largest < 1e-8,
        "equal": not sums_equal,
        "small": not sums_equal,
    }  # e is a line in 6 dimensions
    return Finding(verdict(not sums_equal, under), note, "to 1e-8")


PROJECTOR = Exercise(
    id="projector-from-sum", title="A map that recovers one of two summed vectors",
    question="`v_a` lies in the span of the orthonormal columns of `A`, `v_b` in the span of the orthonormal columns "
    "of `B`. Only the sum `v_a + v_b` is known.",
    where={"A": np.eye(5)[:, :2], "B": np.eye(5)[:, 2:4], "I": np.eye(2), "c": (0.1, 0.5, 0.9),
           "a": np.array([1.0, 0.0]), "u": lambda c: np.array([1.0, -c / math.sqrt(1 - c * c)])},
    answer="If the two subspaces are orthogonal, `M = A*T(A)` works: `T(A)*A = I` keeps `v_a`, `T(A)*B = 0` removes "
    "`v_b`. If they are merely independent, a map still exists, the oblique projector along B, but it is not "
    "`A*T(A)`, and it amplifies noise by up to `1/sqrt(1 - c^2)`{oblique} for directions with cosine c. If they share "
    "a direction, no map exists.",
    figure=lambda: lines([Series("amplification of noise",
        [(c / 50, 1 / math.sqrt(1 - (c / 50) ** 2)) for c in range(50)]),
        Series("error of A times A transposed", [(c / 50, c / 50) for c in range(50)])],
        "Two directions with cosine c: the orthogonal projector lets a fraction c of the other vector through; the "
        "oblique one lets nothing through, but amplifies noise.", ("cosine c", "factor"), log_y=True),
    parts=[
        Part("projector", "`M = A*T(A)` recovers `v_a` from the sum.",
             Truth("nearly", Choice("orthogonal", {"independent": "the subspaces of `A` and `B` have only zero in "
                  "common",
             "orthogonal": "the subspaces of `A` and `B` are orthogonal", "equal":
             "`A` and `B` have the same number of columns"})),
             "numeric", projector_works,
             why="`A*T(A)*v_b` is zero for every `v_b` only if `T(A)*B = 0`.",
             wrong={"mistook different subspaces for orthogonal ones": True}),
        Part("error", "`A` and `B` are single unit vectors with cosine c between zero and one, and `v_b` has norm L. "
             "What is the norm of the error of `A*T(A)`?", Formula("c*L", {"c": "share", "L": "positive"}), "numeric",
             projector_error, why="`v_a` is unchanged; `v_b` contributes its projection on `a`, of norm `c*L`.",
             wrong={"used the remainder of v_b, not its projection":
                        ("sqrt(1 - c^2)*L", lambda c, L: L * mpmath.sin(mpmath.acos(c))),
                    "squared the cosine": ("c^2*L", lambda c, L: c * (c * L))}),
        Part("oblique", "What is the largest singular value of the map that keeps a and removes b, if their cosine is "
             "c?", Formula("1/sqrt(1 - c^2)", {"c": "share"}), "numeric", oblique_norm,
             why="It is `a*T(u)` with u orthogonal to b and `dot(u, a) = 1`, so `norm(u) = 1/sqrt(1 - c^2)`.",
             wrong={"thought that all projectors have norm one": ("1", lambda: np.linalg.norm(np.diag([1.0, 0.0]), 2)),
                    "used the cosine instead of the sine": ("1/c", lambda c: 1 / mpmath.cos(mpmath.acos(c)))}),
        Part("exists", "Some linear map recovers `v_a` from the sum.",
             Truth("nearly", Choice("independent", {"equal": "the two subspaces have the same dimension",
             "small": "together they have fewer dimensions than the space",
             "independent": "the two subspaces have only zero in common"})), "numeric", some_map_works,
             why="The columns of `A` and `B` together must be independent; then the coordinates of the sum are unique.",
             wrong={"forgot that subspaces can share a direction": True}),
    ])  # fmt: skip

EXERCISES = (COPY, AVERAGE, PROJECTOR)
