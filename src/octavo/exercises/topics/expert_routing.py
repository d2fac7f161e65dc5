"""Mixtures of experts: their parameters and operations, a router's weights, idle experts, and tokens that are dropped.

N tokens, X experts, k of them for each token, D width, F inner width.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product

import torch
from torch import Tensor

from octavo.core import seeded_generator
from octavo.exercises import Exercise, Finding, Formula, Part, Truth, verdict
from octavo.exercises.framework.evidence import count_flops, normal, tabulate
from octavo.models.parts.config import GPTConfig
from octavo.models.parts.experts import Experts
from octavo.ops.experts import mixed, route

TOLERANCE = 1e-10
SHAPES = ((4, 6, 3, 1), (8, 10, 5, 2), (6, 24, 4, 4))  # D, F, X, k


@lru_cache
def layer(D: int, F: int, X: int, k: int) -> Experts:
    """octavo's layer, of experts with two matrices each."""
    config = GPTConfig(
        width=D,
        heads=1,
        positions="none",
        feed_forward="relu2",
        feed_forward_width=F,
        experts=X,
        experts_per_token=k,
        init="gpt2",
    )
    made = Experts(config)
    made.initialise(config, seeded_generator(1))
    return made.double()


def count_weights(D: int, F: int, X: int, k: int = 1) -> int:
    return sum(p.numel() for p in layer(D, F, X, k).parameters() if p.dim() == 2)


def used_weights(D: int, F: int, X: int, k: int) -> int:
    """Of the router, and of the experts that process one token."""
    made = layer(D, F, X, k)
    return made.router_XD.numel() + k * sum(int(p.numel()) for p in made.experts[0].parameters())


def operations(D: int, F: int, X: int, k: int, N: int) -> int:
    return count_flops(lambda: layer(D, F, X, k)(normal(N, D)))


def weights() -> Finding:
    table = tabulate("D F X _", SHAPES, count_weights)
    return Finding(table, "matrices of octavo's layer, counted for three shapes")


def used() -> Finding:
    return Finding(tabulate("D F X k", SHAPES, used_weights), "the router and k experts of octavo's layer")


def cost() -> Finding:
    points = [(*shape, N) for shape, N in zip(SHAPES, (3, 7, 1), strict=True)]
    return Finding(tabulate("D F X k N", points, operations), "PyTorch's FLOP counter on octavo's layer, three shapes")


# ---------------------------------------------------------------------- routing


def routed_weight(a: float, b: float) -> float:
    """The weight of the expert with logit a, where one with logit b is chosen too, and a third is not."""
    logits_1X = torch.tensor([[float(a), float(b), min(float(a), float(b)) - 1]], dtype=torch.float64)
    chosen_1J, weights_1J = route(logits_1X, torch.zeros(3), 2)
    return float(weights_1J[chosen_1J == 0])


def share_of_two() -> Finding:
    points = [(a, b) for a in (2.0, -1.0, 0.25) for b in (1.5, -0.5)]
    return Finding(tabulate("a b", points, routed_weight, abs=TOLERANCE), "octavo's router with three experts")


def idle_share(X: int, N: int) -> float:
    """Over all ways of routing N tokens to one of X experts each: the mean share of experts that get none."""
    ways = list(product(range(X), repeat=N))
    return sum(X - len(set(way)) for way in ways) / (X * len(ways))


def idle() -> Finding:
    points = [(X, N) for X in (2, 3, 4) for N in (1, 2, 5)]
    return Finding(tabulate("X N", points, idle_share, rel=TOLERANCE), "all ways of routing up to 5 tokens, one by one")


def with_capacity(x_ND: Tensor, made: Experts, capacity: int) -> Tensor:
    """The layer where each expert takes its first so many tokens alone; the others get nothing from it."""
    chosen_NJ, weights_NJ = route(x_ND @ made.router_XD.T, made.balance_X, made.chosen)
    taken = [0] * len(made.experts)
    kept_NJ = torch.zeros_like(weights_NJ)
    for n, chosen_J in enumerate(chosen_NJ.tolist()):
        for j, e in enumerate(chosen_J):
            taken[e] += 1
            kept_NJ[n, j] = float(taken[e] <= capacity)
    return mixed(x_ND, chosen_NJ, weights_NJ * kept_NJ, list(made.experts))


@torch.no_grad()
def dropped() -> Finding:
    made, x_ND = layer(8, 10, 5, 2), normal(40, 8, seed=2)
    alone = [with_capacity(x_ND[n:], made, 4)[0] for n in range(40)]
    off = float((torch.stack(alone) - with_capacity(x_ND, made, 4)).abs().max())
    without = float((torch.cat([made(x_1D[None]) for x_1D in x_ND]) - made(x_ND)).abs().max())
    note = f"40 tokens, experts with room for 4: up to {off:.0e} off; without a limit {without:.0e}"
    return Finding(verdict(off > TOLERANCE > without), note, "to 1e-10")


SIZES = {"D": "whole", "F": "whole", "X": "whole"}
EXPERTS = Exercise(
    id="experts", title="A mixture of experts",
    question="A feed-forward layer is replaced by X experts, each with a matrix F × D, an activation and a matrix "
    "D × F. A router, a matrix X × D, gives each token a logit for every expert; the token is processed by the k "
    "experts with the highest logits, and the results are weighted by the softmax of these k logits. There are no "
    "biases. Count the multiplications and additions of matrix products.",
    where={"missed": lambda X: idle_share(int(X), 1)},
    answer="The layer has `X*(2*D*F + D)`{weights} weights, of which a token meets `2*k*D*F + X*D`{used}; N tokens "
    "take `N*(4*k*D*F + 2*X*D)`{cost} operations. Of two chosen experts the one with logit a has the weight "
    "`1/(1 + exp(b - a))`{share}. If routing were random, each expert would get none of N tokens with probability "
    "`(1 - 1/X)^N`{idle}. A limit on the tokens of an expert makes what one token gets depend on the others.",
    parts=[
        Part("weights", "How many weights does the layer have, its router included?",
             Formula("X*(2*D*F + D)", SIZES), "counted", weights,
             why="Each expert has two matrices of D F weights, and a row of the router.",
             wrong={"forgot the router": ("2*X*D*F", lambda D, F, X: X * 2 * D * F),
                    "counted one expert": ("2*D*F + X*D", lambda D, F, X: used_weights(D, F, X, 1))}),
        Part("used", "How many of them process one token?", Formula("2*k*D*F + X*D", {**SIZES, "k": "whole"}),
             "counted", used, why="The whole router, which must compare all experts, and k experts.",
             wrong={"took one row of the router for each chosen expert":
                    ("k*(2*D*F + D)", lambda D, F, k: k * (2 * D * F + D)),
                    "took all experts": ("X*(2*D*F + D)", lambda D, F, X: count_weights(D, F, X))}),
        Part("cost", "How many operations do N tokens take?",
             Formula("N*(4*k*D*F + 2*X*D)", {**SIZES, "k": "whole", "N": "whole"}), "counted", cost,
             why="Two for each weight that a token meets. However the tokens are spread over the experts, the sum is "
             "the same.",
             wrong={"let every expert process every token":
                    ("N*X*(4*D*F + 2*D)", lambda D, F, X, N: 2 * N * count_weights(D, F, X)),
                    "forgot the router": ("4*N*k*D*F", lambda D, F, k, N: 4 * N * k * D * F)}),
        Part("share", "Two experts are chosen, with logits a and b. What is the weight of the first?",
             Formula("1/(1 + exp(b - a))", {"a": "real", "b": "real"}), "numeric", share_of_two,
             why="`exp(a)` over `exp(a) + exp(b)`: a softmax over all experts, divided by what the chosen ones have of "
             "it, is the softmax over the chosen ones.",
             wrong={"exchanged the two": ("1/(1 + exp(a - b))", lambda a, b: routed_weight(b, a)),
                    "weighted both alike": ("1/2", lambda: routed_weight(0.0, 0.0))}),
        Part("idle", "Suppose that each of N tokens is routed to one of the X experts, all equally likely. Which share "
             "of the experts gets no token, on average?", Formula("(1 - 1/X)^N", {"X": "whole", "N": "whole"}),
             "exact", idle, why="Each token misses an expert with probability `1 - 1/X`{missed}, N times in a row.",
             wrong={"exchanged tokens and experts": ("(1 - 1/N)^X", lambda X, N: (1 - 1 / N) ** X),
                    "took the chance that one token misses it": ("1 - 1/X", lambda X: idle_share(int(X), 1))}),
        Part("dropped", "If an expert processes at most so many tokens of a batch and drops the rest, what the layer "
             "gives a token depends on the other tokens.", Truth("true"), "numeric", dropped,
             why="Whether there is room depends on how many tokens before it chose the same expert. octavo drops none, "
             "so that a token's probability is the same alone and in a batch.",
             wrong={"took routing for a function of the token alone": False}),
    ])  # fmt: skip

EXERCISES = (EXPERTS,)
