"""Copy and average: what one query can do with the values it finds, and how two summed values come apart."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch

from octavo.exercises import Exercise, Finding, Formula, IntervalAt, Number, Part, Truth, verdict
from octavo.ops.attention import attention_weights
from octavo.pages.figures.lines import Series, lines

NEARLY = 1e-12


def attention(scores: list[float]) -> list[float]:
    """octavo's own weights of one query with these scores."""
    q_11TK = torch.ones(1, 1, 1, 1, dtype=torch.float64)
    k_11SK = torch.tensor(scores, dtype=torch.float64)[None, None, :, None]
    found: list[float] = attention_weights(q_11TK, k_11SK, scale=1.0).flatten().tolist()
    return found


def root(rises: Callable[[float], bool], low: float, high: float) -> float:
    """Where `rises` becomes true, by halving."""
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (low, middle) if rises(middle) else (middle, high)
    return high


def copied_weight() -> Finding:
    points = []
    for n, m in ((2, 1.0), (5, 3.0), (50, 0.5), (1000, 7.0)):
        found = attention([m] + [0.0] * (n - 1))[0]
        points.append(IntervalAt({"n": n, "m": m}, found - NEARLY, found + NEARLY))
    return Finding(points, "octavo's attention weights of one query in float64, to 1e-12")


def least_weight() -> Finding:
    dice, worst = np.random.default_rng(1), math.inf
    for _ in range(2000):
        n, m = int(dice.integers(2, 60)), float(dice.uniform(0, 8))
        others = -m - dice.exponential(2.0, n - 1)
        others[0] = -m  # the nearest one defines the margin
        worst = min(worst, attention([0.0, *others.tolist()])[0] - 1 / (1 + (n - 1) * math.exp(-m)))
    return Finding(
        verdict(worst >= -NEARLY),
        f"2,000 random sets of scores: never below the bound by more than {max(0.0, -worst):.0e}",
        "to 1e-12",
    )


def needed_margin() -> Finding:
    points = []
    for n, p in ((2, 0.1), (10, 0.01), (1000, 0.01), (1000, 0.5)):
        m = root(lambda m: attention([m] + [0.0] * (n - 1))[0] >= 1 - p, -5.0, 40.0)  # noqa: B023
        points.append(IntervalAt({"n": n, "p": p}, m - 1e-9, m + 1e-9))
    return Finding(points, "the least margin whose softmax reaches 1 - p, by halving, to 1e-9")


def most_keys() -> Finding:
    most = next(n for n in range(2, 10_000) if attention([10.0] + [0.0] * n)[0] < 0.99)
    return Finding(most, f"one key more and more until the weight falls below 0.99: with {most + 1} keys it does")


def ten_is_enough() -> Finding:
    least = {n: attention([10.0] + [0.0] * (n - 1))[0] for n in (2, 100, 223, 224, 10_000)}
    note = "; ".join(f"{n:,} keys: {weight:.6f}" for n, weight in least.items())
    holds = [weight >= 0.99 for weight in least.values()]
    return Finding(verdict(all(holds), all(holds[:3])), note, "at least 0.99")


def saturated_margin() -> Finding:
    margin = root(lambda m: attention([m, 0.0])[0] == 1.0, 1.0, 100.0)
    return Finding(margin, "the least margin at which float64 gives a weight of exactly 1, by halving")


COPY = Exercise(
    id="copy-one-value",
    title="When attention copies one value",
    question="One of n keys scores higher than every other by at least the margin m. How much of the result is its "
    "value?",
    answer="In the worst case all others lie exactly m below. Then the weight is `1/(1 + (n - 1)*exp(-m))`: the margin "
    "works against `ln(n - 1)`, not against a constant. At `m = ln(n - 1)` the value has half the weight; each further "
    "unit of margin divides the odds of the rest by e. Attention copies exactly only in rounded arithmetic.",
    figure=lambda: lines(
         [Series(f"{n:,} keys", [(m / 5, 1 / (1 + (n - 1) * math.exp(-m / 5))) for m in range(76)])
          for n in (2, 100, 10_000)],
         "The weight of the best key in the worst case. More keys shift the curve right by ln(n - 1).",
         ("margin of its score", "weight"),
     ),
    parts=[
        Part("weight", "All other scores lie exactly m below the best. What is the weight of the best?",
             Formula("1/(1 + (n - 1)*exp(-m))", {"n": "whole", "m": "positive"}), "numeric", copied_weight,
             why="Divide numerator and denominator of the softmax by the best one's exponential: it becomes 1, each of "
             "the n - 1 others `exp(-m)`.",
             wrong={"counted the best key among the others": "1/(1 + n*exp(-m))",
                    "compared with a single other key": "1/(1 + exp(-m))"}),
        Part("bound", "With margin m the weight is at least `1/(1 + (n - 1)*exp(-m))`, wherever the other scores lie.",
             Truth("true"), "numeric", least_weight,
             why="Lowering another score lowers the denominator, so equal scores at distance m are the worst case.",
             wrong={"thought that scores lower still could take weight away": False}),
        Part("margin", "Which margin leaves the others together a share p, in the worst case?",
             Formula("ln(n - 1) + ln((1 - p)/p)", {"n": "whole", "p": "share"}), "numeric", needed_margin,
             why="Solve `(n - 1)*exp(-m) = p/(1 - p)` for m.",
             wrong={"left out the number of keys": "ln((1 - p)/p)", "took p for the odds": "ln(n - 1) - ln(p)"}),
        Part("ten", "A margin of 10 gives the best key at least 99% of the weight.",
             Truth("nearly", only_if="there are at most 223 keys"), "numeric", ten_is_enough,
             why="`(n - 1)*exp(-10) <= 1/99` asks for `n <= 1 + exp(10)/99 = 223.49`.",
             wrong={"forgot that many small weights add up": True}),
        Part("most-keys", "Up to how many keys does a margin of 10 guarantee 99% of the weight?", Number(223, rel=0),
             "numeric", most_keys, why="`n - 1 <= exp(10)/99 = 222.49`, and the best key is one more.",
             wrong={"forgot the best key itself": 222, "asked only that half be copied": 22027}),
        Part("exactly-one", "With two keys, from which margin on is the weight exactly 1 in float64?",
             Number("53*ln(2)"), "numeric", saturated_margin,
             why="The weight is `1/(1 + exp(-m))`; below `2^(-53)` the exponential no longer changes 1. In exact "
             "arithmetic no margin is enough.",
             wrong={"took the smallest float64 for the limit": "1074*ln(2)", "took all 64 bits": "64*ln(2)"}),
    ],
)  # fmt: skip


def averaging_weight() -> Finding:
    points = []
    for n, b in ((2, 1.0), (3, 2.0), (100, 5.0), (1000, 12.0)):
        found = attention([b, b] + [0.0] * (n - 2))[0]
        points.append(IntervalAt({"n": n, "b": b}, found - NEARLY, found + NEARLY))
    return Finding(points, "scores b, b and n - 2 zeros through octavo's weights, to 1e-12")


def averaging_length() -> Finding:
    length = root(lambda b: sum(attention([b, b] + [0.0] * 98)[2:]) <= 0.01, 0.0, 50.0)
    return Finding(length, "the least b at which the 98 other keys share 1% of the weight, by halving")


def equal_weights() -> Finding:
    dice = np.random.default_rng(2)
    largest = {False: 0.0, True: 0.0}
    for same in largest:
        for _ in range(200):
            a, b = dice.normal(size=(2, 5))
            b = b * np.linalg.norm(a) / np.linalg.norm(b) if same else b
            first, second = attention([float(a @ (a + b)), float(b @ (a + b))])
            largest[same] = max(largest[same], abs(first - second))
    note = (
        f"200 pairs of keys: the weights differ by up to {largest[False]:.2f}; with equal lengths {largest[True]:.0e}"
    )
    return Finding(verdict(largest[False] < 1e-9, largest[True] < 1e-9), note, "to 1e-9")


AVERAGE = Exercise(
    id="average-two-values",
    title="A query that averages two values",
    question="The n keys have length 1 and are orthogonal. The query is `q = b*(k_1 + k_2)`, and scores are plain dot "
    "products.",
    answer="Both keys score b, all others 0, so each of the two has the weight `1/(2 + (n - 2)*exp(-b))`. It is below "
    "one half for every b, and needs `b = ln((n - 2)*(1 - p)/(2*p))` to leave the rest a share p. That the two are "
    "equal rests on equal lengths of the keys, not on their being orthogonal.",
    figure=lambda: lines(
     [Series(f"{n:,} keys", [(b / 4, 1 / (2 + (n - 2) * math.exp(-b / 4))) for b in range(61)]) for n in (3, 100,
     10_000)],
     "The weight of each of the two values: one half at most.", ("length b", "weight")),
    parts=[
        Part("weight", "Which weight has each of the two values?",
             Formula("1/(2 + (n - 2)*exp(-b))", {"n": "whole", "b": "positive"}), "numeric", averaging_weight,
             why="`exp(b)/(2*exp(b) + n - 2)`, divided by `exp(b)`.",
             wrong={"forgot the other keys": "1/2", "let the query have length b": "1/(2 + (n - 2)*exp(-b/sqrt(2)))"}),
        Part("length", "n = 100. Which b leaves the other 98 keys 1% of the weight together?", Number("ln(98*99/2)"),
             "numeric", averaging_length, why="`98*exp(-b)/(2 + 98*exp(-b)) = 1/100`, so `exp(b) = 98*99/2`.",
             wrong={"forgot that two keys share": "ln(98*99)", "counted 100 others": "ln(100*99/2)"}),
        Part("equal", "The query `q = b*(k_1 + k_2)` gives both values the same weight, whatever the two keys are.",
             Truth("nearly", only_if="the two keys are equally long"), "numeric", equal_weights,
             why="The scores differ by `b*(norm(k_1)^2 - norm(k_2)^2)`: the mixed product is in both and cancels.",
             wrong={"took keys of one length for granted": True}),
    ],
)  # fmt: skip


def projector_works() -> Finding:
    dice = np.random.default_rng(6)
    errors = {}
    for orthogonal in (False, True):
        basis = np.linalg.qr(dice.normal(size=(8, 5)))[0]
        a, b = basis[:, :3], (basis[:, 3:] if orthogonal else np.linalg.qr(dice.normal(size=(8, 2)))[0])
        v_a, v_b = a @ dice.normal(size=3), b @ dice.normal(size=2)
        errors[orthogonal] = float(np.abs(a @ a.T @ (v_a + v_b) - v_a).max())
    note = f"largest error {errors[False]:.2f} for two random subspaces, {errors[True]:.0e} for orthogonal ones"
    return Finding(verdict(errors[False] < 1e-9, errors[True] < 1e-9), note, "to 1e-9")


def two_directions(c: float) -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors a and b with the cosine c between them."""
    return np.array([1.0, 0.0]), np.array([c, math.sqrt(1 - c * c)])


def projector_error() -> Finding:
    points = []
    for c, length in ((0.1, 2.0), (0.5, 1.0), (0.9, 3.0)):
        a, b = two_directions(c)
        error = float(np.linalg.norm(np.outer(a, a) @ (5 * a + length * b) - 5 * a))
        points.append(IntervalAt({"c": c, "L": length}, error - NEARLY, error + NEARLY))
    return Finding(points, "a a^T applied to 5 a + L b, to 1e-12")


def oblique_norm() -> Finding:
    points = []
    for c in (0.1, 0.5, 0.9, 0.99):
        a, b = two_directions(c)
        columns = np.stack([a, b], 1)
        keep_a = columns @ np.diag([1.0, 0.0]) @ np.linalg.inv(columns)
        norm = float(np.linalg.norm(keep_a, 2))
        points.append(IntervalAt({"c": c}, norm * (1 - 1e-9), norm * (1 + 1e-9)))
    return Finding(points, "the largest singular value of the map that keeps a and removes b, to 1e-9 of it")


def some_map_works() -> Finding:
    dice = np.random.default_rng(7)
    largest = 0.0
    for _ in range(100):
        a, b = dice.normal(size=(6, 2)), dice.normal(size=(6, 3))
        keep_a = np.hstack([a, np.zeros((6, 3))]) @ np.linalg.pinv(np.hstack([a, b]))
        v_a, v_b = a @ dice.normal(size=2), b @ dice.normal(size=3)
        largest = max(largest, float(np.abs(keep_a @ (v_a + v_b) - v_a).max()))
    shared = np.eye(6)[:, :1]  # one direction in both subspaces: the sum 2 e can be e + e or 2 e + 0
    sums_equal = bool((1 * shared + 1 * shared == 2 * shared + 0 * shared).all())
    note = (
        f"independent subspaces: largest error {largest:.0e} in 100 draws; with a shared direction e, e + e and "
        "2e + 0 are the same sum of different parts"
    )
    return Finding(verdict(not sums_equal, largest < 1e-8), note, "to 1e-8")


PROJECTOR = Exercise(
    id="projector-from-sum",
    title="A map that recovers one of two summed vectors",
    question="`v_a` lies in the span of the orthonormal columns of A, `v_b` in that of the orthonormal columns of B. "
    "Only the sum `v_a + v_b` is known.",
    answer="If the two subspaces are orthogonal, `M = A*T(A)` works: `T(A)*A = I` keeps `v_a`, `T(A)*B = 0` removes "
    "`v_b`. If they are merely independent, a map still exists, the oblique projector along B, but it is not `A*T(A)`, "
    "and it stretches noise by up to `1/sqrt(1 - c^2)` for directions with cosine c. If they share a direction, no map "
    "exists.",
    figure=lambda: lines(
     [Series("noise stretched by", [(c / 50, 1 / math.sqrt(1 - (c / 50) ** 2)) for c in range(50)]),
      Series("error of A times A transposed", [(c / 50, c / 50) for c in range(50)])],
     "Two directions with cosine c: the plain projector lets a share c of the other vector through; the oblique one "
     "lets nothing through, and stretches noise.", ("cosine c", "factor"), log_y=True),
    parts=[
        Part("projector", "`M = A*T(A)` recovers `v_a` from the sum.",
             Truth("nearly", only_if="the subspaces of A and B are orthogonal"), "numeric", projector_works,
             why="`A*T(A)*v_b` is zero for every `v_b` only if `T(A)*B = 0`.",
             wrong={"took different subspaces for orthogonal ones": True}),
        Part("error", "A and B are single unit vectors with cosine c between 0 and 1, and `v_b` has length L. How long "
             "is the error of `A*T(A)`?", Formula("c*L", {"c": "share", "L": "positive"}), "numeric", projector_error,
             why="`v_a` comes through unchanged; `v_b` leaves its shadow `c*L` on a.",
             wrong={"took what is left of v_b, not its shadow": "sqrt(1 - c^2)*L", "squared the cosine": "c^2*L"}),
        Part("oblique", "Which largest singular value has the map that keeps a and removes b, with cosine c?",
             Formula("1/sqrt(1 - c^2)", {"c": "share"}), "numeric", oblique_norm,
             why="It is `a*T(u)` with u orthogonal to b and `dot(u, a) = 1`, so `norm(u) = 1/sqrt(1 - c^2)`.",
             wrong={"thought all projectors have norm 1": "1", "took the cosine for the sine": "1/c"}),
        Part("exists", "Some linear map recovers `v_a` from the sum.",
             Truth("nearly", only_if="the two subspaces have only zero in common"), "numeric", some_map_works,
             why="The columns of A and B together must be independent; then the coordinates of the sum are unique.",
             wrong={"forgot that subspaces can share a direction": True}),
    ],
)  # fmt: skip

EXERCISES = (COPY, AVERAGE, PROJECTOR)
