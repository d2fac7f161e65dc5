"""Heads: multi-head attention as a sum, and what a layer's numbers are.

N tokens, D width, H heads, K width of a head. Weights are counted in octavo's own layers.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from octavo.exercises import Exercise, Finding, Formula, IntervalAt, Number, Part, Truth, verdict
from octavo.models.parts.attention import Attention
from octavo.models.parts.config import GPTConfig
from octavo.ops.attention.multi_head import Heads, concatenated, folded, maps, summed
from octavo.pages.figures.lines import Series, lines

OF_LAYER = {"N": "whole", "D": "whole", "H": "whole"}
SHAPES = ((8, 1, 6), (8, 2, 6), (12, 3, 5), (16, 4, 9), (16, 8, 3))  # width, heads, tokens


def random_heads(D: int, H: int, seed: int = 0) -> Heads:
    """A layer of random weights without biases."""
    generator = torch.Generator().manual_seed(seed)
    return Heads(H, *(torch.randn(4, D, D, generator=generator, dtype=torch.float64) / D**0.5))


def random_tokens(N: int, D: int, seed: int = 1) -> Tensor:
    """x_1ND: one text."""
    return torch.randn(1, N, D, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def multiplied(D: int, H: int, N: int, fold: bool) -> int:
    """The multiplications after the map is known: values, mixing, output; or one folded matrix a head, and mixing."""
    w, x_ND = random_heads(D, H), random_tokens(N, D)[0]
    a_HNN, folded_HDD = maps(x_ND[None], w)[0], folded(w)
    with FlopCounterMode(display=False) as counter:
        if fold:
            y_ND = sum(a_NN @ F.linear(x_ND, one_DD) for a_NN, one_DD in zip(a_HNN, folded_HDD, strict=True))
        else:
            v_HNK = F.linear(x_ND, w.value_ED).unflatten(-1, (H, -1)).transpose(0, 1)
            y_ND = F.linear((a_HNN @ v_HNK).transpose(0, 1).flatten(1), w.out_DD)
    assert torch.allclose(torch.as_tensor(y_ND), concatenated(x_ND[None], w)[0]), "both must compute the layer"
    return int(counter.get_total_flops()) // 2


def sum_of_heads() -> Finding:
    worst = 0.0
    for D, H, N in SHAPES:
        w, x_1ND = random_heads(D, H), random_tokens(N, D)
        worst = max(worst, (concatenated(x_1ND, w, path="plain") - summed(x_1ND, w)).abs().max().item())
    return Finding(
        verdict(worst < 1e-13),
        f"octavo's two ways of writing a layer, five shapes, float64: they differ by {worst:.0e}",
        "to 1e-13",
    )


def folded_rank() -> Finding:
    ranks = {int(torch.linalg.matrix_rank(one)) for one in folded(random_heads(12, 3))}
    return Finding(max(ranks), f"the rank of each of the three folded matrices: {ranks}")


def folded_weights() -> Finding:
    found = []
    for D, H, _ in SHAPES:
        w = random_heads(D, H)
        share = folded(w).numel() / (w.value_ED.numel() + w.out_DD.numel())
        found.append(IntervalAt({"H": H}, share, share))
    return Finding(
        found, "numbers in octavo's folded matrices over those in its value and output matrices, five shapes"
    )


def folding_saves() -> Finding:
    saved = {(D, H, N): multiplied(D, H, N, False) - multiplied(D, H, N, True) for D, H, N in SHAPES}
    alone, several = saved[8, 1, 6], [x for (_, H, _), x in saved.items() if H > 1]
    note = f"multiplications saved: {alone} with one head; with 2, 3, 4 and 8 heads {', '.join(map(str, several))}"
    return Finding(verdict(min(saved.values()) > 0, alone > 0 and max(several) < 0), note)


def operations_saved() -> Finding:
    found = [(D, H, N, multiplied(D, H, N, False) - multiplied(D, H, N, True)) for D, H, N in SHAPES]
    return Finding(
        [IntervalAt({"N": N, "D": D, "H": H}, x, x) for D, H, N, x in found],
        "torch counts the multiplications of both ways, after checking that they give the same",
    )


def folding_figure() -> str:
    D, N, heads = 16, 9, (1, 2, 4, 8, 16)
    return lines(
        [Series("one folded matrix a head", [(H, multiplied(D, H, N, True)) for H in heads]),
         Series("values, then output", [(H, multiplied(D, H, N, False)) for H in heads])],
        f"Multiplications after the map is known, width {D}, {N} tokens, counted. Folding saves with one head only.",
        ("heads H", "multiplications"), log_x=True, log_y=True,
    )  # fmt: skip


SUM = Exercise(
    id="heads-as-sum",
    title="Multi-head attention is a sum",
    question="Multi-head attention sets H heads of width D/H side by side and multiplies by `W_o`. Rows of `W_o` "
    "belong to heads, so each head has a product `W_v_h*W_o_h` of its own, which can be folded into one D × D matrix.",
    answer="`Y = sum(h, A_h*X*W_v_h*W_o_h)`. Folding gives each head `D^2` weights instead of `2*D^2/H`, of which it "
    "can use only rank D/H. It saves with one head, costs nothing in weights with two, and is a loss with more.",
    figure=folding_figure,
    parts=[
        Part("sum", "Heads side by side, times `W_o`, are the same as a sum over heads, each with its own D × D "
             "matrix.", Truth("true"), "numeric", sum_of_heads,
             why="A row of blocks times a column of blocks is the sum of the blocks' products.",
             wrong={"took side by side for something that a sum cannot do": False}),
        Part("rank", "D = 12 and H = 3: what is the rank of one head's folded matrix, at most?", Number(4, rel=0),
             "numeric", folded_rank,
             why="It is a product of a 12 × 4 and a 4 × 12 matrix: everything goes through 4 numbers.",
             wrong={"took the size of the matrix for its rank": 12, "took the number of heads": 3}),
        Part("weights", "By which factor does folding change the number of weights of values and output?",
             Formula("H/2", {"H": "whole"}), "counted", folded_weights,
             why="Folded: `H*D^2`. Before: `D^2` for the values and `D^2` for the output.",
             wrong={"forgot that every head gets a matrix of its own": "1/2", "forgot the output matrix": "H",
                    "gave folded matrices the width of a head": "1/(2*H)"}),
        Part("saves", "Folding saves multiplications.", Truth("nearly", "there is one head"), "counted", folding_saves,
             why="With one head, one product of `N*D^2` is left out. With more, every head works on the full width, "
             "both for its matrix and for mixing tokens.", wrong={"one matrix instead of two sounds cheaper": True}),
        Part("saved", "How many multiplications does folding save, for N tokens? (negative: it costs)",
             Formula("N*D^2*(2-H) + N^2*D*(1-H)", OF_LAYER), "counted", operations_saved,
             why="Before: `2*N*D^2` for values and output, `N^2*D` for mixing. Folded: `H*N*D^2` and `H*N^2*D`.",
             wrong={"forgot that mixing is H times as wide": "N*D^2*(2-H)"}, only_if={"H = 1": "N*D^2"}),
    ],
)  # fmt: skip


def layer(D: int, H: int, bias: bool = True) -> Attention:
    """octavo's own attention layer."""
    return Attention(GPTConfig(width=D, heads=H, bias=bias, layers=1))


def numbers_in(module: nn.Module, dimensions: int) -> int:
    """How many numbers its matrices (2 dimensions) or its vectors (1) hold."""
    return sum(one.numel() for one in module.parameters() if one.dim() == dimensions)


def count_weights() -> Finding:
    found = [IntervalAt({"D": D}, x, x) for D, H, _ in SHAPES for x in [numbers_in(layer(D, H), 2)]]
    return Finding(found, "the matrices of octavo's attention layer, counted for five shapes")


def count_biases() -> Finding:
    found = [IntervalAt({"D": D}, x, x) for D, H, _ in SHAPES for x in [numbers_in(layer(D, H), 1)]]
    return Finding(found, "the bias vectors of octavo's attention layer, counted for five shapes")


def count_map() -> Finding:
    found = []
    for D, H, N in SHAPES:
        x = maps(random_tokens(N, D), random_heads(D, H)).numel()
        found.append(IntervalAt({"N": N, "H": H}, x, x))
    return Finding(found, "the maps of octavo's attention, counted for five shapes")


def _connected(N: int, D: int) -> nn.Linear:
    return nn.Linear(N * D, N * D)


def count_connected() -> Finding:
    found = [IntervalAt({"N": N, "D": D}, x, x) for D, _, N in SHAPES for x in [numbers_in(_connected(N, D), 2)]]
    return Finding(found, "the weights of torch's linear layer on all numbers of a text, counted for five shapes")


def count_connected_biases() -> Finding:
    found = [IntervalAt({"N": N, "D": D}, x, x) for D, _, N in SHAPES for x in [numbers_in(_connected(N, D), 1)]]
    return Finding(found, "the biases of torch's linear layer on all numbers of a text, counted for five shapes")


def counts_figure() -> str:
    tokens = [1, 2, 4, 8, 16, 32, 64, 128, 256]
    D = 64
    attention = numbers_in(layer(D, 4), 2)
    return lines(
        [Series("fully connected",
        [(N, (N * D) ** 2) for N in tokens]), Series("attention", [(N, attention) for N in tokens])],
        f"Weights of one layer of width {D}: attention has the same ones for a text of any length.",
        ("tokens N", "weights"), log_x=True, log_y=True,
    )  # fmt: skip


IN_D, IN_ND, IN_NH = {"D": "whole"}, {"N": "whole", "D": "whole"}, {"N": "whole", "H": "whole"}
COUNTS = Exercise(
    id="layer-counts",
    title="What an attention layer holds",
    question="An attention layer of width D with H heads of width D/H has queries, keys, values and an output, each "
    "with a bias. It reads N tokens. Compare it with a layer that connects all N D numbers with all N D numbers.",
    answer="Attention has `4*D^2` weights and `4*D` biases, whatever N and H. It computes, but does not store, `H*N^2` "
    "attention entries. The fully connected layer stores `N^2*D^2` weights and `N*D` biases, and fits only one N.",
    figure=counts_figure,
    parts=[
        Part("weights", "How many weights has the attention layer, without biases?", Formula("4*D^2", IN_D), "counted",
             count_weights, why="Four D × D matrices. The heads share them out and add none.",
             wrong={"forgot the output": "3*D^2", "queries and keys alone": "2*D^2"}),
        Part("biases", "How many biases?", Formula("4*D", IN_D), "counted", count_biases,
             why="One for each output of each of the four.",
             wrong={"forgot the output": "3*D", "one for each matrix": "4"}),
        Part("map", "How many attention entries does it compute for N tokens?", Formula("H*N^2", IN_NH), "counted",
             count_map, why="Each head has a weight for every pair of tokens.",
             wrong={"counted one head": "N^2", "gave each pair one entry instead of two": "H*N*(N-1)/2"},
             only_if={"every token sees only itself and earlier ones": "H*N*(N+1)/2"}),
        Part("connected", "How many weights has the fully connected layer?", Formula("N^2*D^2", IN_ND), "counted",
             count_connected, why="Each of N D outputs has a weight for each of N D inputs.",
             wrong={"connected tokens only with themselves": "N*D^2", "that is attention's map written out": "N^2*D"}),
        Part("connected-biases", "And how many biases?", Formula("N*D", IN_ND), "counted", count_connected_biases,
             why="Each of the N D outputs has one of its own.", wrong={"shared them among tokens": "D"}),
    ],
)  # fmt: skip

EXERCISES = (SUM, COUNTS)
