"""Heads: why they have the width they have, and why a layer gives out what it takes in.

N tokens, D width, H heads, K width of a head. Weights are counted in octavo's own layers.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from octavo.exercises import Exercise, Finding, Formula, IntervalAt, Part, Truth, verdict
from octavo.exercises.topics.heads import OF_LAYER, SHAPES, numbers_in, random_heads, random_tokens
from octavo.ops.attention.multi_head import maps
from octavo.ops.attention.reference import attend_reference
from octavo.pages.figures.lines import Series, lines


def heads_of_width(D: int, H: int, K: int) -> nn.ModuleDict:
    """A layer whose heads have any width."""
    return nn.ModuleDict({
        "query": nn.Linear(D, H * K, bias=False), "key": nn.Linear(D, H * K, bias=False),
        "value": nn.Linear(D, H * K, bias=False), "out": nn.Linear(H * K, D, bias=False),
    })  # fmt: skip


def score_operations(D: int, H: int, K: int, N: int) -> int:
    """Multiplications for the scores and for mixing the values, of all heads."""
    q = torch.ones(1, H, N, K)
    with FlopCounterMode(display=False) as counter:
        attend_reference(q, q, q)
    return int(counter.get_total_flops()) // 2


def full_width_weights() -> Finding:
    found = [IntervalAt({"D": D, "H": H}, x, x) for D, H, _ in SHAPES for x in [numbers_in(heads_of_width(D, H, D), 2)]]
    return Finding(found, "the weights of torch's linear layers for heads of width D, counted for five shapes")


def full_width_operations() -> Finding:
    found = [IntervalAt({"N": N, "D": D, "H": H}, x, x) for D, H, N in SHAPES for x in [score_operations(D, H, D, N)]]
    return Finding(found, "torch counts the multiplications of octavo's attention with heads of width D, five shapes")


def share_is_free() -> Finding:
    weights = {numbers_in(heads_of_width(48, H, 48 // H), 2) for H in (1, 2, 3, 4, 6, 12)}
    operations = {score_operations(48, H, 48 // H, 5) for H in (1, 2, 3, 4, 6, 12)}
    note = f"width 48, 1 to 12 heads: weights {weights}, multiplications for scores and mixing {operations}"
    return Finding(verdict(len(weights) == len(operations) == 1), note)


def nothing_costs_more() -> Finding:
    entries = [maps(random_tokens(5, 48), random_heads(48, H)).numel() for H in (1, 4, 12)]
    return Finding(
        verdict(len(set(entries)) == 1), f"width 48, 5 tokens: with 1, 4 and 12 heads the maps hold {entries} weights"
    )


def width_figure() -> str:
    D, heads = 48, (1, 2, 3, 4, 6, 12)
    return lines(
        [Series("heads of width D", [(H, numbers_in(heads_of_width(D, H, D), 2)) for H in heads]),
         Series("heads of width D/H", [(H, numbers_in(heads_of_width(D, H, D // H), 2)) for H in heads])],
        f"Weights of a layer of width {D}, counted.", ("heads H", "weights"),
    )  # fmt: skip


WIDTH = Exercise(
    id="head-width",
    title="Why heads have width D/H",
    question="A layer of width D has H heads. Compare heads of width D/H with heads of the full width D, in weights "
    "and in multiplications.",
    answer="Heads of width D/H share out what one head of width D would have: `4*D^2` weights and `2*N^2*D` "
    "multiplications for scores and mixing, whatever H. Heads of full width take H times that. What grows with H in "
    "any case is the number of maps: `H*N^2` softmax entries.",
    figure=width_figure,
    parts=[
        Part("weights", "How many weights (queries, keys, values, output) have H heads of width D?",
             Formula("4*H*D^2", {"D": "whole", "H": "whole"}), "counted", full_width_weights,
             why="Each head has its own D × D matrices for all four.",
             wrong={"that is for heads of width D/H": "4*D^2", "forgot that the output grows too": "3*H*D^2 + D^2"}),
        Part("operations", "How many multiplications do their scores and mixing take, for N tokens?",
             Formula("2*H*N^2*D", OF_LAYER), "counted", full_width_operations,
             why="For each head `N^2*D` for the scores and as much for mixing the values.",
             wrong={"that is for heads of width D/H": "2*N^2*D", "left out the mixing": "H*N^2*D"}),
        Part("free", "With heads of width D/H, neither the weights nor these multiplications depend on H.",
             Truth("true"), "counted", share_is_free,
             why="H heads of width D/H have D columns together, as one head of width D has; scores and mixing add up "
             "likewise.", wrong={"thought that every head costs extra": False}),
        Part("nothing", "So with heads of width D/H, more heads need no more of anything.", Truth("false"), "counted",
             nothing_costs_more,
             why="Each head has a map of its own: `H*N^2` exponentials and as much memory, where maps are kept.",
             wrong={"forgot the maps": True}),
    ],
)  # fmt: skip


def any_output_width() -> Finding:
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 1, 1, 5, 4, generator=generator)
    shapes = [tuple(attend_reference(q, k, torch.randn(1, 1, 5, V, generator=generator)).shape[2:]) for V in (1, 3, 9)]
    return Finding(
        verdict(shapes != [(5, 1), (5, 3), (5, 9)]),
        f"values of width 1, 3 and 9 gave outputs of shape {shapes}",
        "exactly this shape",
    )


def residual_needs_it() -> Finding:
    """Adding shapes that differ: refused, except a width of one, which is silently repeated."""
    x_ND, refused = torch.zeros(5, 4), []
    for width in (1, 3, 4, 9):
        try:
            refused.append((x_ND + torch.zeros(5, width)).shape != x_ND.shape)
        except RuntimeError:
            refused.append(True)
    note = (
        f"torch adding widths 1, 3, 4, 9 to 4: refused {refused}; a width of 1 is repeated, which is no residual either"
    )
    return Finding(verdict(refused[1] and refused[3] and not refused[2]), note, "exactly this shape")


def rows_are_queries() -> Finding:
    generator = torch.Generator().manual_seed(0)
    shapes = []
    for T, S in ((1, 7), (5, 7), (9, 2)):
        q, k = torch.randn(1, 1, T, 4, generator=generator), torch.randn(1, 1, S, 4, generator=generator)
        shapes.append(attend_reference(q, k, k).shape[2] == T)
    return Finding(
        verdict(all(shapes)),
        "1, 5 and 9 queries over 7, 7 and 2 keys: as many outputs as queries each time",
        "exactly as many",
    )


SIZE = Exercise(
    id="same-size",
    title="Why input and output have the same size",
    question="Attention layers in a transformer give out as many vectors, of the same width, as they take in.",
    answer="Attention itself gives one output for each query, of the width of the values or of the output matrix. The "
    "width is made D because the output is added to the input, and because equal layers are stacked.",
    parts=[
        Part("width", "Attention can only work if its output is as wide as its input.", Truth("false"), "numeric",
             any_output_width,
             why="Values and output may have any width; only queries and keys must agree with each other.",
             wrong={"took a choice for a law": True}),
        Part("residual", "The sum `x + attention(x)` needs the output to be as wide as the input.", Truth("true"),
             "numeric", residual_needs_it,
             why="Vectors are added entry by entry. Beware of a width of 1: libraries repeat it without a word.",
             wrong={"thought that adding pads by itself": False}),
        Part("rows", "There are as many outputs as queries, however many keys there are.", Truth("true"), "numeric",
             rows_are_queries, why="Each query makes one row of weights, and each row one weighted sum.",
             wrong={"took the number of keys": False}),
    ],
)  # fmt: skip

EXERCISES = (WIDTH, SIZE)
