"""Linear attention: its algebra and its exact cost."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

import mpmath
import sympy
import torch
from torch import Tensor

from octavo.exercises import Choice, Exercise, Finding, Formula, Part, Truth, verdict
from octavo.exercises.framework.evidence import count_attention_flops, count_flops, meta, normal, tabulate
from octavo.ops import linear
from octavo.ops.linear.reference import full, recurrent
from octavo.pages.figures.charts import Series, lines

SIZES = {"N": "whole", "D": "whole", "F": "whole"}
TOLERANCE = 1e-10


def random_features() -> tuple[Tensor, Tensor, Tensor]:
    """Features of queries and of keys, and values: 11 tokens, 2 heads."""
    q, k = linear.features("elu", normal(1, 2, 11, 4, seed=1), normal(1, 2, 11, 4, seed=2))
    return q, k, normal(1, 2, 11, 3, seed=3)


def same_in_both_orders() -> Finding:
    q, k, v = random_features()
    difference = float((full(q, k, v) - linear.linear_weights(q, k, causal=False) @ v).abs().max())
    note = f"11 tokens, 2 heads: the results of the two orders differ by {difference:.0e}"
    return Finding(verdict(difference < TOLERANCE), note, "to 1e-10")


def same_with_mask() -> Finding:
    q, k, v = random_features()
    right = linear.linear_weights(q, k, causal=True) @ v
    one_sum, running_sums = (full(q, k, v), recurrent(q, k, v, linear.start(q, v))[0])
    wrong, repaired = (float((y - right).abs().max()) for y in (one_sum, running_sums))
    note = f"one sum over all keys is off by {wrong:.2f}; running sums are off by {repaired:.0e}"
    return Finding(verdict(wrong < TOLERANCE), note, "to 1e-10")


def pair_cost(n: int, d: int, f: int) -> int:
    q, v = torch.ones(1, 1, n, f), torch.ones(1, 1, n, d)
    return count_flops(lambda: linear.linear_weights(q, q, causal=False) @ v)


def linear_cost(n: int, d: int, f: int) -> int:
    return count_flops(lambda: full(meta(1, 1, n, f), meta(1, 1, n, f), meta(1, 1, n, d)))


def costs(count: Callable[[int, int, int], int]) -> Finding:
    table = tabulate("N D F", ((5, 3, 2), (64, 16, 32), (100, 64, 8)), count)
    return Finding(table, "PyTorch's FLOP counter on octavo's linear attention, three sizes")


def first_size(holds: Callable[[int], bool]) -> int:
    """The first of 1 .. 1000 from which on a condition holds."""
    return bisect_left(range(1, 1000), True, key=holds) + 1


def crossing(d: int, f: int) -> float:
    """The N at which the two costs are equal, as one is proportional to N and the other to its square."""
    return linear_cost(1, d, f) / count_attention_flops(1, 1, d)


def crossover() -> Finding:
    sizes = ((16, 64), (64, 16), (32, 200))
    for d, f in sizes:  # the exact crossing lies between the last N that is not cheaper and the first that is
        n = first_size(lambda n: linear_cost(n, d, f) < count_attention_flops(n, n, d))  # noqa: B023
        assert n - 1 <= crossing(d, f) <= n, "the counts must cross where their growth says"
    table = tabulate("D F", sizes, crossing, rel=1e-12)
    return Finding(table, "PyTorch counts one cost that grows as N and one that grows as its square: where they meet")


def cheaper_sizes() -> Finding:
    sizes = [(n, 32, f) for n in (8, 64, 512) for f in (16, 32, 128)]
    cheaper = [linear_cost(n, d, f) < count_attention_flops(n, n, d) for n, d, f in sizes]
    expected = [n > f + f / (2 * d) for n, d, f in sizes]
    note = f"cheaper for {sum(cheaper)} of {len(sizes)} sizes, those with N > F"
    return Finding(verdict(all(cheaper), crossover().value if cheaper == expected else None), note)


def enough_features() -> Finding:
    ranks = {n: sympy.Matrix(n, n, lambda i, j: 2 ** (i * j)).rank() for n in (2, 4, 6)}
    note = "one-dimensional queries i ln 2 and keys j have exponentials 2^(ij): ranks " + ", ".join(
        f"{rank} for {n} tokens" for n, rank in ranks.items()
    )
    return Finding(verdict(any(rank < n for n, rank in ranks.items())), note)


LINEAR = Exercise(
    id="linear-attention", title="Linear attention: its algebra and its exact cost",
    question="The exponential `exp(dot(q, k))` is replaced by `dot(phi(q), phi(k))` with F positive features. There "
    "are N tokens and values of size D; Q and K are the matrices of features, V is that of the values. Count the "
    "multiplications and additions of matrix products; computing the features is not counted.",
    where={"N": (5, 64, 100), "D": (3, 16, 64), "F": (2, 32, 8), "softmax_cost": lambda N, D: count_attention_flops(N,
        N, D),
           "weights": lambda N, F: count_flops(lambda: meta(N, F) @ meta(F, N)),
           "values": lambda N, D: count_flops(lambda: meta(N, N) @ meta(N, D)),
           "product": lambda N, D, F: count_flops(lambda: meta(F, N) @ meta(N, D)),
           "normalizer": lambda N, F: count_flops(lambda: meta(N, F) @ meta(F, 1)),
           "divisor": lambda N, D: N * count_attention_flops(1, 1, D), "all_pairs": lambda N: meta(N, N).numel()},
    answer="`(Q*T(K))*V = Q*(T(K)*V)`: the second order never computes the N by N matrix. With the normalizing sum it "
    "takes `4*N*D*F + 2*N*F`{linear} operations, against `2*N^2*(D + F)`{pairs} in the first order and "
    "`4*N^2*D`{softmax_cost} for softmax attention. It is linear in N, but replaces N by F: it is cheaper only above "
    "about F tokens, exactly above `F*(1 + 1/(2*D))`{crossover}. With a causal mask the sums become a running state. "
    "It is not the same function as softmax attention: its unnormalized weight matrix has rank at most F, that of the "
    "exponential can have rank N.",
    figure=lambda: lines([
        Series("softmax", [(n, count_attention_flops(n, n, 64)) for n in (2**i for i in range(4, 13))]),
        *(Series(f"linear, {f} features", [(n, linear_cost(n, 64, f)) for n in (2**i for i in range(4, 13))])
        for f in (64, 256))], "Operations of one head of size 64, counted. Each line crosses softmax where N is about "
        "the number of features.", ("tokens N", "operations"), True, True),
    parts=[
        Part("order", "Without a mask, both orders of multiplication, `Q*T(K)` times V and Q times `T(K)*V`, give the "
             "same result.", Truth("true", Choice("", {
             "few": "there are fewer features than tokens",
             "equal": "values and features have the same size", "long": "there are more tokens than "
             "features"})), "numeric",
             same_in_both_orders,
             why="Matrix products are associative, and the normalizing sum is a product with ones.",
             wrong={"thought that matrix products are not associative": False}),
        Part("mask", "With a causal mask, `Q*(T(K)*V)` still gives the right result.", Truth("false"), "numeric",
             same_with_mask,
             why="`T(K)*V` sums over all keys, including later ones. The sum must cover only the keys so far: a "
             "running state.", wrong={"forgot that the sum includes later keys": True}),
        Part("pairs", "What does the first order cost: the weights of all pairs, times the values?",
             Formula("2*N^2*(D + F)", SIZES), "counted", lambda: costs(pair_cost),
             why="`2*N^2*F`{weights} for the weights, `2*N^2*D`{values} for their product with the values.",
             wrong={"gave the cost of softmax attention": ("4*N^2*D", lambda N, D: count_attention_flops(N, N, D)),
                    "left out the values": ("2*N^2*F", lambda N, F: count_flops(lambda: meta(N, F) @ meta(F, N)))},
             only_if={"values and features have the same size": ("4*N^2*F", lambda N, F: pair_cost(N, F, F))}),
        Part("linear", "What does the second order cost, including the product for the normalizing sum?",
             Formula("4*N*D*F + 2*N*F", SIZES), "counted", lambda: costs(linear_cost),
             why="`T(K)*V` and Q times it take `2*N*D*F`{product} each; `Q*z` with z the sum of the keys takes "
             "`2*N*F`{normalizer}.",
             wrong={"counted one product only": ("2*N*D*F", lambda N, D, F: count_flops(lambda: meta(F, N) @ meta(N,
                 D))),
                    "left out the normalizing sum":
                        ("4*N*D*F", lambda N, D, F: 2 * count_flops(lambda: meta(F, N) @ meta(N, D))),
                    "considered N only": ("4*N*D", lambda N, D: linear_cost(N, D, 1) - 2 * N)}),
        Part("crossover", "Above which N (a real number) is the second order cheaper than softmax attention with "
             "queries and keys of size D?", Formula("F*(1 + "
             "1/(2*D))", {"D": "whole", "F": "whole"}), "counted", crossover,
             why="Both cost the same where `4*N^2*D = 4*N*D*F + 2*N*F`; divide by `4*N*D`{divisor}.",
             where={"N": lambda D, F: mpmath.mpf(linear_cost(1, D, F)) / count_attention_flops(1, 1, D)},
             wrong={"compared with the first order":
                        ("F*(2*D + 1)/(D + F)", lambda D, F: linear_cost(1, D, F) / pair_cost(1, D, F)),
                    "used the width": ("D", lambda D: meta(D).numel()), "thought that it always is": ("1", lambda:
                        meta(1).numel())}),
        Part("cheaper", "Linear attention is cheaper than softmax attention.", Truth("nearly",
             Formula("F*(1 + 1/(2*D))", {"D": "whole", "F": "whole"}), "N is above …"), "counted", cheaper_sizes,
             why="It replaces `N^2`{all_pairs} by `N*F`.", wrong={"compared the powers of N and forgot F": True}),
        Part("softmax", "With some fixed, sufficiently large number of features, it equals softmax attention for every "
             "sequence.", Truth("false"), "exact", enough_features,
             why="The matrix `Phi(Q)*T(Phi(K))` has rank at most F, while `exp(dot(q_i, k_j))` for N distinct "
             "one-dimensional queries and keys has rank N: a Vandermonde matrix. Random features approximate it only "
             "in expectation.", wrong={"mistook an approximation for an identity": True}),
    ])  # fmt: skip

EXERCISES = (LINEAR,)
