"""Attention heads: why they have width D/H, and why the output of a layer has the shape of its input.

N tokens, D width, H heads, K width of a head. Parameters are counted in octavo's own layers.
"""

from __future__ import annotations

import torch
from torch import nn

from octavo.exercises import Exercise, Finding, Formula, Part, Truth, verdict
from octavo.exercises.framework.evidence import count_flops, meta, tabulated
from octavo.exercises.topics.heads import OF_LAYER, SHAPES, count_parameters, random_heads, random_tokens
from octavo.ops.attention.multi_head import maps
from octavo.ops.attention.reference import attend_reference
from octavo.pages.figures.lines import Series, lines


def heads_of_width(D: int, H: int, K: int) -> nn.ModuleDict:
    """The projections of a layer with H heads of width K."""
    return nn.ModuleDict({
        "query": nn.Linear(D, H * K, bias=False), "key": nn.Linear(D, H * K, bias=False),
        "value": nn.Linear(D, H * K, bias=False), "out": nn.Linear(H * K, D, bias=False),
    })  # fmt: skip


def count_multiplications(H: int, K: int, N: int) -> int:
    """Multiplications for the scores and the weighted sums of all heads."""
    q = meta(1, H, N, K)
    return count_flops(lambda: attend_reference(q, q, q)) // 2


def share_is_free() -> Finding:
    weights = {count_parameters(heads_of_width(48, H, 48 // H), 2) for H in (1, 2, 3, 4, 6, 12)}
    operations = {count_multiplications(H, 48 // H, 5) for H in (1, 2, 3, 4, 6, 12)}
    note = f"width 48, 1 to 12 heads: weights {weights}, multiplications for scores and weighted sums {operations}"
    return Finding(verdict(len(weights) == len(operations) == 1), note)


def nothing_costs_more() -> Finding:
    entries = [maps(random_tokens(5, 48), random_heads(48, H)).numel() for H in (1, 4, 12)]
    note = f"width 48, 5 tokens: with 1, 4 and 12 heads there are {entries} attention weights"
    return Finding(verdict(len(set(entries)) == 1), note)


def width_figure() -> str:
    D, heads = 48, (1, 2, 3, 4, 6, 12)
    return lines(
        [Series("heads of width D", [(H, count_parameters(heads_of_width(D, H, D), 2)) for H in heads]),
         Series("heads of width D/H", [(H, count_parameters(heads_of_width(D, H, D // H), 2)) for H in heads])],
        f"Weights of a layer of width {D}, counted.", ("heads H", "weights"),
    )  # fmt: skip


WIDTH = Exercise(
    id="head-width", title="Why heads have width D/H", figure=width_figure,
    question="A layer of width D has H heads. Compare heads of width D/H with heads of the full width D: how many "
    "weights and multiplications do they need?",
    answer="Together, heads of width D/H have as many weights and multiplications as one head of width D: `4*D^2`, and "
    "`2*N^2*D` for scores and weighted sums, for any H. Heads of full width need H times that. What grows with H in "
    "any case is the number of attention weights, `H*N^2`.",
    parts=[
        Part("weights", "How many weights (queries, keys, values, output) do H heads of width D have?",
             Formula("4*H*D^2", {"D": "whole", "H": "whole"}), "counted", tabulated("D H _", SHAPES,
                 "the weights of PyTorch's linear layers for heads of width D, counted for five shapes")(
                 lambda D, H, _: count_parameters(heads_of_width(D, H, D), 2)),
             why="Each head has its own D × D matrices for all four.",
             wrong={"gave the number for heads of width D/H": "4*D^2",
                    "forgot that the output matrix grows too": "3*H*D^2 + D^2"}),
        Part("operations", "How many multiplications do their scores and weighted sums take for N tokens?",
             Formula("2*H*N^2*D", OF_LAYER), "counted", tabulated("D H N", SHAPES,
                 "half of the FLOPs that PyTorch counts in octavo's attention with heads of width D, five shapes")(
                 lambda D, H, N: count_multiplications(H, D, N)),
             why="For each head `N^2*D` for the scores and as many for the weighted sums of values.",
             wrong={"gave the number for heads of width D/H": "2*N^2*D", "left out the weighted sums": "H*N^2*D"}),
        Part("free", "With heads of width D/H, neither the weights nor these multiplications depend on H.",
             Truth("true"), "counted", share_is_free,
             why="H heads of width D/H together have D columns, like one head of width D; the same holds for scores "
             "and weighted sums.", wrong={"thought that every head adds cost": False}),
        Part("nothing", "So with heads of width D/H, more heads need no additional resources.", Truth("false"),
             "counted", nothing_costs_more,
             why="Each head has its own attention weights: `H*N^2` exponentials, and as much memory if they are "
             "stored.", wrong={"forgot the attention weights": True}),
    ])  # fmt: skip


def any_output_width() -> Finding:
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 1, 1, 5, 4, generator=generator)
    shapes = [tuple(attend_reference(q, k, torch.randn(1, 1, 5, V, generator=generator)).shape[2:]) for V in (1, 3, 9)]
    note = f"values of width 1, 3 and 9 gave outputs of shape {shapes}"
    return Finding(verdict(shapes != [(5, 1), (5, 3), (5, 9)]), note, "exact shape")


def residual_needs_it() -> Finding:
    """Adding tensors of different widths fails, except for width one, which is broadcast."""
    x_ND, failed = torch.zeros(5, 4), []
    for width in (1, 3, 4, 9):
        try:
            failed.append((x_ND + torch.zeros(5, width)).shape != x_ND.shape)
        except RuntimeError:
            failed.append(True)
    note = (
        f"adding widths 1, 3, 4 and 9 to width 4 in PyTorch fails: {failed}; width 1 is broadcast, which is not "
        "a residual"
    )
    return Finding(verdict(failed[1] and failed[3] and not failed[2]), note, "exact shape")


def rows_are_queries() -> Finding:
    generator = torch.Generator().manual_seed(0)
    shapes = []
    for T, S in ((1, 7), (5, 7), (9, 2)):
        q, k = torch.randn(1, 1, T, 4, generator=generator), torch.randn(1, 1, S, 4, generator=generator)
        shapes.append(attend_reference(q, k, k).shape[2] == T)
    note = "1, 5 and 9 queries over 7, 7 and 2 keys: as many outputs as queries each time"
    return Finding(verdict(all(shapes)), note, "exact count")


SIZE = Exercise(
    id="same-size", title="Why input and output have the same size",
    question="Attention layers in a transformer output as many vectors as they read, of the same width.",
    answer="Attention itself has one output per query, with the width of the values or of the output matrix. The width "
    "is D because the output is added to the input, and because layers of equal shape are stacked.",
    parts=[
        Part("width", "Attention requires its output to be as wide as its input.", Truth("false"), "numeric",
             any_output_width,
             why="Values and output may have any width; only queries and keys must have the same one.",
             wrong={"mistook a design choice for a requirement": True}),
        Part("residual", "The sum `x + attention(x)` needs the output to be as wide as the input.", Truth("true"),
             "numeric", residual_needs_it,
             why="Vectors are added entry by entry. Beware of width 1: libraries broadcast it silently.",
             wrong={"thought that addition pads automatically": False}),
        Part("rows", "There are as many outputs as queries, however many keys there are.", Truth("true"), "numeric",
             rows_are_queries, why="Each query has one row of attention weights, and each row gives one weighted sum.",
             wrong={"used the number of keys": False}),
    ])  # fmt: skip

EXERCISES = (WIDTH, SIZE)
