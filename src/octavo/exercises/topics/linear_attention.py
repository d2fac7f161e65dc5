"""Efficient attention: linear attention's algebra and its true cost."""

from __future__ import annotations

import bisect
from collections.abc import Callable

import sympy
import torch
from torch import Tensor

from octavo.exercises import Exercise, Finding, Formula, IntervalAt, Part, Truth, verdict
from octavo.exercises.topics.efficient import counted, empty
from octavo.ops import linear
from octavo.ops.attention.reference import attend_reference
from octavo.ops.linear.reference import full, recurrent
from octavo.pages.figures.lines import Series, lines

SIZES = {"N": "whole", "D": "whole", "F": "whole"}
CLOSE = 1e-10


def drawn(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def featured() -> tuple[Tensor, Tensor, Tensor]:
    q, k = linear.features("elu", drawn(1, 2, 11, 4), drawn(1, 2, 11, 4, seed=2))
    return q, k, drawn(1, 2, 11, 3, seed=3)


def same_in_both_orders() -> Finding:
    q, k, v = featured()
    difference = float((full(q, k, v) - linear.linear_weights(q, k, causal=False) @ v).abs().max())
    return Finding(
        verdict(difference < CLOSE), f"11 tokens, 2 heads: the two orders differ by {difference:.0e}", "to 1e-10"
    )


def same_with_mask() -> Finding:
    q, k, v = featured()
    right = linear.linear_weights(q, k, causal=True) @ v
    at_once, by_steps = (full(q, k, v), recurrent(q, k, v, linear.start(q, v))[0])
    wrong, repaired = (float((y - right).abs().max()) for y in (at_once, by_steps))
    return Finding(
        verdict(wrong < CLOSE),
        f"one sum over all keys is off by {wrong:.2f}; sums carried along by {repaired:.0e}",
        "to 1e-10",
    )


def pair_cost(n: int, d: int, f: int) -> int:
    q, v = torch.ones(1, 1, n, f), torch.ones(1, 1, n, d)
    return counted(lambda: linear.linear_weights(q, q, causal=False) @ v)


def linear_cost(n: int, d: int, f: int) -> int:
    return counted(lambda: full(empty(1, 1, n, f), empty(1, 1, n, f), empty(1, 1, n, d)))


def softmax_cost(n: int, d: int) -> int:
    return counted(lambda: attend_reference(empty(1, 1, n, d), empty(1, 1, n, d), empty(1, 1, n, d)))


def costs(count: Callable[[int, int, int], int]) -> Finding:
    sizes = ((5, 3, 2), (64, 16, 32), (100, 64, 8))
    points = []
    for n, d, f in sizes:
        operations = count(n, d, f)
        points.append(IntervalAt({"N": n, "D": d, "F": f}, operations, operations))
    return Finding(points, "PyTorch's counter on octavo's linear attention, three sizes")


def first(holds: Callable[[int], bool]) -> int:
    """The first of 1 .. 1000 from which on it holds."""
    return bisect.bisect_left(range(1, 1000), True, key=holds) + 1


def crossover() -> Finding:
    points = []
    for d, f in ((16, 64), (64, 16), (32, 200)):
        n = first(lambda n: linear_cost(n, d, f) < softmax_cost(n, d))  # noqa: B023
        points.append(IntervalAt({"D": d, "F": f}, n - 1, n))
    return Finding(points, "the first N at which PyTorch counts fewer operations, and the one before")


def cheaper() -> Finding:
    sizes = [(n, 32, f) for n in (8, 64, 512) for f in (16, 32, 128)]
    wins = [linear_cost(n, d, f) < softmax_cost(n, d) for n, d, f in sizes]
    expected = [n > f + f / (2 * d) for n, d, f in sizes]
    return Finding(
        verdict(all(wins), wins == expected), f"cheaper for {sum(wins)} of {len(sizes)} sizes, those with N > F"
    )


def enough_features() -> Finding:
    ranks = {n: sympy.Matrix(n, n, lambda i, j: 2 ** (i * j)).rank() for n in (2, 4, 6)}
    note = "one-dimensional queries i ln 2 and keys j have exponentials 2^(ij): ranks " + ", ".join(
        f"{rank} for {n} tokens" for n, rank in ranks.items()
    )
    return Finding(verdict(any(rank < n for n, rank in ranks.items())), note)


LINEAR = Exercise(
    id="linear-attention",
    title="Linear attention: the algebra and the true cost",
    question="The exponential `exp(dot(q, k))` is replaced by `dot(phi(q), phi(k))` with F positive features. There "
    "are N tokens and values of size D. Count the operations of products, multiplication and addition; making the "
    "features is not counted.",
    answer="`(Q*T(K))*V = Q*(T(K)*V)`: the second order never makes the N by N map. With the sum that normalises it "
    "takes `4*N*D*F + 2*N*F` operations, against `2*N^2*(D + F)` in the first order and `4*N^2*D` for softmax "
    "attention. Linear in N, but with D F in place of D N: it is cheaper only from about N = F on, `N > F*(1 + "
    "1/(2*D))` exactly. Under a mask the sums must be carried from token to token. It is another function than "
    "softmax: its unnormalised map has rank at most F, the exponential's can be N.",
    figure=lambda: lines(
     [Series("softmax", [(n, softmax_cost(n, 64)) for n in (2**i for i in range(4, 13))]),
      *(Series(f"linear, {f} features", [(n, linear_cost(n, 64, f)) for n in (2**i for i in range(4, 13))])
        for f in (64, 256))],
     "Operations of one head of size 64, counted. Each line meets softmax where N is the number of features.",
     ("tokens N", "operations"), True, True),
    parts=[
        Part("order", "Without a mask, both orders of multiplication give the same result.", Truth("true"), "numeric",
             same_in_both_orders,
             why="Matrix products are associative, and the normalising sum is a product with ones.",
             wrong={"took matrix products to depend on their brackets": False}),
        Part("mask", "With a causal mask, `Q*(T(K)*V)` still gives the result.", Truth("false"), "numeric",
             same_with_mask,
             why="`T(K)*V` adds over all keys, the later ones too. The sum must be that of the keys so far: a state.",
             wrong={"forgot that the sum over keys holds later ones too": True}),
        Part("pairs", "What does the first order cost, the map of all pairs times the values?",
             Formula("2*N^2*(D + F)", SIZES), "counted", lambda: costs(pair_cost),
             why="`2*N^2*F` for the map, `2*N^2*D` for its product with the values.",
             wrong={"took values and features to be of one size": "4*N^2*D", "left the values out": "2*N^2*F"},
             only_if={"F = D": "4*N^2*F"}),
        Part("linear", "What does the second order cost, the normalising sum's product included?",
             Formula("4*N*D*F + 2*N*F", SIZES), "counted", lambda: costs(linear_cost),
             why="`T(K)*V` and Q times it take `2*N*D*F` each; `Q*z` with z the sum of the keys takes `2*N*F`.",
             wrong={"one product only": "2*N*D*F", "left the normalising sum out": "4*N*D*F",
                    "thought of N alone": "4*N*D"}),
        Part("crossover", "From which N on (a real number) is it cheaper than softmax attention with queries and keys "
             "of size D?", Formula("F*(1 + 1/(2*D))", {"D": "whole", "F": "whole"}), "counted", crossover,
             why="Both cost the same where `4*N^2*D = 4*N*D*F + 2*N*F`; divide by `4*N*D`.",
             wrong={"compared with the map of features": "2*D*F/(D + F)", "took the width for it": "D",
                    "thought it always is": "1"}),
        Part("cheaper", "Linear attention is cheaper than softmax attention.", Truth("nearly",
             only_if="there are more tokens than features, `N > F*(1 + 1/(2*D))`"), "counted", cheaper,
             why="It exchanges N squared for N times F.",
             wrong={"compared the powers of N and forgot the features": True}),
        Part("softmax", "With sufficiently many features, some fixed number, it equals softmax attention for every "
             "text.", Truth("false"), "exact", enough_features,
             why="The map `Phi(Q)*T(Phi(K))` has rank at most F, while `exp(dot(q_i, k_j))` of N distinct "
             "one-dimensional queries and keys has rank N: a Vandermonde matrix. Random features only come near in the "
             "mean.", wrong={"took an approximation for an identity": True}),
    ],
)  # fmt: skip

EXERCISES = (LINEAR,)
