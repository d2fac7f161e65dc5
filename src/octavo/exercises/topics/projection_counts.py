"""Weights and biases of queries, keys and values alone, and what one head of width D/H costs.

N tokens, D width, H heads. Parameters are counted in octavo's own layers.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from octavo.exercises import Exercise, Finding, Formula, Part
from octavo.exercises.framework.evidence import count_flops, meta, tabulate, tabulated
from octavo.exercises.topics.heads import SHAPES, count_parameters, layer, random_heads, random_tokens
from octavo.ops.attention.multi_head import maps

IN_D, IN_ND, IN_N = {"D": "whole", "H": "whole"}, {"N": "whole", "D": "whole"}, {"N": "whole", "D": "whole"}
OF_LAYER = {"N": "whole", "D": "whole", "H": "whole"}


def projected(dimensions: int) -> Callable[[], Finding]:
    """Evidence: the parameters of octavo's attention layer without its output projection."""

    def count(D: int, H: int, _: int) -> int:
        inside = {name: p for name, p in layer(D, H).named_parameters() if not name.startswith("out")}
        assert len(inside) == 6, "three matrices and three bias vectors"
        return sum(p.numel() for p in inside.values() if p.dim() == dimensions)

    what = "matrices" if dimensions == 2 else "bias vectors"
    note = f"the {what} of queries, keys and values in octavo's attention layer, counted for five shapes"
    return lambda: Finding(tabulate("D _ _", SHAPES, count), note)


def connected(dimensions: int) -> Callable[[], Finding]:
    note = "the parameters of PyTorch's linear layer on all inputs, counted for five shapes"
    return lambda: Finding(
        tabulate("D _ N",
        SHAPES, lambda D, _, N: count_parameters(nn.Linear(N * D, N * D), dimensions)), note)  # fmt: skip


QKV = Exercise(
    id="qkv-counts", title="The parameters of queries, keys and values", where={},
    question="Self-attention with one head maps N inputs of size D to N outputs of size D. Queries, keys and values "
    "each have a weight matrix and a bias; there is no output projection. Compare it with a fully connected layer "
    "from all N D inputs to all N D outputs.",
    answer="Three D × D matrices and three bias vectors of size D: `3*D^2`{weights} weights and `3*D`{biases} "
    "biases, for any N. There are `N^2`{map} attention weights, which are computed, not stored. The fully connected "
    "layer has `N^2*D^2`{connected} weights and `N*D`{connected-biases} biases.",
    parts=[
        Part("weights", "How many weights compute queries, keys and "
             "values?", Formula("3*D^2", {"D": "whole"}), "counted",
             projected(2), why="Three matrices of size D × D.",
             wrong={"added an output projection": ("4*D^2", lambda D: 4 * D * D),
                    "left out the values": ("2*D^2", lambda D: 2 * D * D)}),
        Part("biases", "How many biases do queries, keys and values "
             "have?", Formula("3*D", {"D": "whole"}), "counted", projected(1),
             why="One for each of the D outputs of each of the three matrices.",
             wrong={"counted one for each projection": ("3", lambda: len(("query", "key", "value"))),
                    "added an output projection": ("4*D", lambda D: 4 * D)}),
        Part("map", "How many attention weights are there?", Formula("N^2", IN_N), "counted",
             tabulated("D N", [(4, 3), (6, 5), (8, 2)], "the attention weights of octavo's attention with one head")(
                 lambda D, N: maps(random_tokens(N, D), random_heads(D, 1)).numel()),
             why="One for each pair of an output and an input.",
             wrong={"counted each pair once": ("N*(N+1)/2", lambda N: sum(range(N + 1))),
                    "gave every entry its own": ("N^2*D", lambda N, D: N * N * D)}),
        Part("connected", "How many weights does the fully connected layer have?", Formula("N^2*D^2", IN_ND),
             "counted", connected(2), why="`N*D` outputs with `N*D` weights each.",
             wrong={"connected each token only with itself": ("N*D^2", lambda N, D: N * D * D),
                    "gave a pair of tokens one weight": ("N^2", lambda N: N * N)}),
        Part("connected-biases", "How many biases does the fully connected layer "
             "have?", Formula("N*D", IN_ND), "counted", connected(1),
             why="One for each of its `N*D` outputs.",
             wrong={"counted pairs of tokens": ("N^2", lambda N: N * N),
                    "counted one for each token": ("N", lambda N: N)}),
    ])  # fmt: skip


def head_projection(D: int, H: int, heads: int) -> int:
    """The weights of the queries of some of H heads."""
    w = random_heads(D, H)
    return int(w.query_DD.unflatten(0, (H, -1))[:heads].numel())


HEADS = Exercise(
    id="head-costs", title="What one head of width D/H costs", where={},
    question="A layer of width D has H heads, whose queries, keys and values have D/H entries each. Every head reads "
    "all D entries of all N tokens.",
    answer="The matrix of a head's queries is D × D/H, not D/H × D/H: all heads together have `D^2`{queries} query "
    "weights, as many as one head of width D. The scores of a head take `N^2*D/H`{scores} multiplications, those of "
    "all heads `N^2*D`{all-scores}. So heads of width D/H divide a fixed amount of work; they do not reduce it.",
    parts=[
        Part("queries", "How many weights do the queries of all H heads have together?", Formula("D^2", IN_D),
             "counted", tabulated("D H _", SHAPES, "the query matrix of octavo's layer, counted for five shapes")(
                 lambda D, H, _: head_projection(D, H, H)),
             why="H matrices of D × D/H.",
             wrong={"let each head read only its own D/H entries": ("D^2/H", lambda D, H: H * (D / H) ** 2),
                    "gave each head the full width": ("H*D^2", lambda D, H: H * D * D)}),
        Part("one-head", "How many weights do queries, keys and values of one head have?",
             Formula("3*D^2/H", IN_D), "counted",
             tabulated("D H _", SHAPES, "the rows of one head in octavo's three matrices, counted for five shapes")(
                 lambda D, H, _: 3 * head_projection(D, H, 1)),
             why="Three matrices of D × D/H.",
             wrong={"let it read only its own D/H entries": ("3*D^2/H^2", lambda D, H: 3 * (D / H) ** 2),
                    "gave it the full width": ("3*D^2", lambda D: 3 * D * D)}),
        Part("scores", "How many multiplications do the scores of one head take for N tokens?",
             Formula("N^2*D/H", OF_LAYER), "counted",
             tabulated("D H N", SHAPES, "half of the FLOPs that PyTorch counts for one head, five shapes")(
                 lambda D, H, N: count_flops(lambda: meta(N, D // H) @ meta(D // H, N)) // 2),
             why="A dot product of length D/H for every pair of tokens.",
             wrong={"gave the number of all heads": ("N^2*D", lambda N, D: N * N * D),
                    "squared the width of the head": ("D^2/H^2", lambda D, H: (D / H) ** 2)}),
        Part("all-scores", "How many multiplications do the scores of all heads take for N "
             "tokens?", Formula("N^2*D", OF_LAYER), "counted",
             tabulated("D H N", SHAPES, "half of the FLOPs that PyTorch counts for all heads, five shapes")(
                 lambda D, H, N: count_flops(lambda: meta(H, N, D // H) @ meta(H, D // H, N)) // 2),
             why="H heads with `N^2*D/H`{scores} each: the number of heads cancels.",
             wrong={"thought that smaller heads save work": ("N^2*D/H", lambda N, D, H: N * N * D / H),
                    "thought that more heads add work": ("H*N^2*D", lambda N, D, H: H * N * N * D)}),
    ])  # fmt: skip

EXERCISES = (QKV, HEADS)
