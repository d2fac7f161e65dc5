"""Attention heads: multi-head attention as a sum over heads, parameter counts, why heads have width D/H, and shapes.

N tokens, D width, H heads, K width of a head. Parameters are counted in octavo's own layers.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from octavo.exercises import Choice, Exercise, Finding, Formula, Number, Part, Truth, verdict
from octavo.exercises.framework.evidence import count_attention_flops, count_flops, meta, normal, tabulate, tabulated
from octavo.models.parts.attention import Attention
from octavo.models.parts.config import GPTConfig
from octavo.ops.attention.multi_head import Heads, concatenated, folded, maps, summed
from octavo.pages.figures.charts import Series, lines

OF_LAYER = {"N": "whole", "D": "whole", "H": "whole"}
SHAPES = ((8, 1, 6), (8, 2, 6), (12, 3, 5), (16, 4, 9), (16, 8, 3))  # width, heads, tokens


def random_heads(D: int, H: int, seed: int = 0) -> Heads:
    """A layer of random weights without biases."""
    return Heads(H, *(normal(4, D, D, seed=seed) / D**0.5))


def random_tokens(N: int, D: int, seed: int = 1) -> Tensor:
    """x_1ND: one sequence."""
    return normal(1, N, D, seed=seed)


def count_multiplications(D: int, H: int, N: int, fold: bool) -> int:
    """The multiplications after the softmax: with value and output matrices, or with one folded matrix per head."""
    w, x_ND = random_heads(D, H), random_tokens(N, D)[0]
    a_HNN, folded_HDD = maps(x_ND[None], w)[0], folded(w)
    outputs = []

    def compute() -> None:
        if fold:
            y_ND = sum(a_NN @ F.linear(x_ND, w_DD) for a_NN, w_DD in zip(a_HNN, folded_HDD, strict=True))
        else:
            v_HNK = F.linear(x_ND, w.value_ED).unflatten(-1, (H, -1)).transpose(0, 1)
            y_ND = F.linear((a_HNN @ v_HNK).transpose(0, 1).flatten(1), w.out_DD)
        outputs.append(torch.as_tensor(y_ND))

    flops = count_flops(compute)
    assert torch.allclose(outputs[0], concatenated(x_ND[None], w)[0]), "both must compute the layer"
    return flops // 2


def sum_of_heads() -> Finding:
    worst = 0.0
    for D, H, N in SHAPES:
        w, x_1ND = random_heads(D, H), random_tokens(N, D)
        worst = max(worst, (concatenated(x_1ND, w, path="plain") - summed(x_1ND, w)).abs().max().item())
    note = f"octavo's two implementations of a layer, five shapes, float64: they differ by {worst:.0e}"
    return Finding(verdict(worst < 1e-13), note, "to 1e-13")


def folded_rank() -> Finding:
    ranks = {int(torch.linalg.matrix_rank(one)) for one in folded(random_heads(12, 3))}
    return Finding(max(ranks), f"the rank of each of the three folded matrices: {ranks}")


@tabulated("_ H _", SHAPES, "octavo's folded matrices compared with its value and output matrices, five shapes")
def folded_weights(D: int, H: int, _: int) -> float:
    w = random_heads(D, H)
    return folded(w).numel() / (w.value_ED.numel() + w.out_DD.numel())


def saved_by_folding(D: int, H: int, N: int) -> int:
    """How many multiplications fewer folded matrices need."""
    return count_multiplications(D, H, N, False) - count_multiplications(D, H, N, True)


def count_product(rows: int, inner: int, columns: int) -> int:
    """The multiplications of one matrix product."""
    return count_flops(lambda: meta(rows, inner) @ meta(inner, columns)) // 2


def folding_saves() -> Finding:
    saved = {
        (D, H, N): count_multiplications(D, H, N, False) - count_multiplications(D, H, N, True) for D, H, N in SHAPES
    }
    one_head, more_heads = saved[8, 1, 6], [x for (_, H, _), x in saved.items() if H > 1]
    note = (
        f"multiplications saved: {one_head} with one head; with 2, 3, 4 and 8 heads {', '.join(map(str, more_heads))}"
    )
    long, wide = (saved_by_folding(D, 2, N) > 0 for D, N in ((8, 20), (16, 3)))
    under = {"one-head": one_head > 0, "two-heads": one_head > 0 and saved[8, 2, 6] > 0, "long": long, "wide": wide}
    return Finding(verdict(min(saved.values()) > 0, under), note)


@tabulated("D H N", SHAPES, "PyTorch counts the multiplications of both, after checking that they give the same output")
def operations_saved(D: int, H: int, N: int) -> int:
    return count_multiplications(D, H, N, False) - count_multiplications(D, H, N, True)


def folding_figure() -> str:
    D, N, heads = 16, 9, (1, 2, 4, 8, 16)
    return lines(
        [Series("one folded matrix per head", [(H, count_multiplications(D, H, N, True)) for H in heads]),
         Series("values, then output", [(H, count_multiplications(D, H, N, False)) for H in heads])],
        f"Multiplications after the softmax, width {D}, {N} tokens, counted. Folding helps with one head only.",
        ("heads H", "multiplications"), log_x=True, log_y=True,
    )  # fmt: skip


SUM = Exercise(
    id="heads-as-sum", title="Multi-head attention is a sum", figure=folding_figure,
    where={"D": (8, 8, 12, 16), "H": (1, 2, 3, 4), "N": (6, 6, 5, 9), "folded": lambda D, H: folded(random_heads(D,
        H))[0].numel(),
           "all_folded": lambda D, H: folded(random_heads(D, H)).numel(), "square": lambda D: random_heads(D,
               1).out_DD.numel(),
           "before": lambda D, H: (random_heads(D, H).value_ED.numel() + random_heads(D, H).out_DD.numel()) / H,
           "linear": lambda N, D: 2 * count_product(N, D, D), "sums": lambda N, D, H: H * count_product(N, N, D // H),
           "folded_linear": lambda N, D, H: H * count_product(N, D, D), "folded_sums": lambda N, D, H:
               H * count_product(N, N, D),
           "one_saved": lambda N, D: saved_by_folding(D, 1, N)},
    question="Multi-head attention concatenates H heads of width D/H and multiplies by `W_o`. Each head uses its own "
    "rows of `W_o`, so it has its own product `W_v_h*W_o_h`, which can be folded into one D × D matrix.",
    answer="`Y = sum(h, A_h*X*W_v_h*W_o_h)`. Folding gives each head a matrix with `D^2`{folded} weights instead of "
    "`2*D^2/H`{before}, but only rank D/H. It saves weights with one head, keeps their number with two, and increases "
    "it with more.",
    parts=[
        Part("sum", "Concatenated heads times `W_o` are the same as a sum over heads, each with its own D × D matrix.",
             Truth("true", Choice("", {
             "one-head": "there is one head",
             "equal": "all heads have the same weights",
             "wide": "a token has more entries than there are tokens"})), "numeric", sum_of_heads,
             why="A row of blocks times a column of blocks is the sum of the products of the blocks.",
             wrong={"thought that a sum cannot express a concatenation": False}),
        Part("rank", "`D = 12` and `H = 3`: what is the largest possible rank of one head's folded matrix?",
             Number(4, rel=0), "numeric", folded_rank, where={"D": 12, "H": 3},
             why="It is the product of a 12{D} × 4{} and a 4{} × 12{D} matrix.",
             wrong={"mistook the size of the matrix for its rank": (12, lambda: len(folded(random_heads(12, 3))[0])),
                    "used the number of heads": (3, lambda: len(folded(random_heads(12, 3))))}),
        Part("weights", "By which factor does folding change the number of value and output weights?",
             Formula("H/2", {"H": "whole"}), "counted", folded_weights,
             why="Folded: `H*D^2`{all_folded}. Before: `D^2`{square} for the values and `D^2`{square} for the output.",
             wrong={"forgot that every head has its own matrix": ("1/2", lambda: 8 * 8 / (2 * 8 * 8)),
                    "forgot the output projection": ("H", lambda H: sum(8 * 8 for _ in range(H)) / (8 * 8)),
                    "gave folded matrices the width of a head": ("1/(2*H)", lambda H:
                        sum(1 / H**2 for _ in range(H)) / 2)}),
        Part("saves", "Folding saves multiplications.", Truth("nearly", Choice("one-head", {
             "two-heads": "there are at most two heads", "one-head": "there is one head",
             "long": "there are more tokens than entries in a token", "wide":
             "a token has more entries than there are tokens"})),
             "counted", folding_saves,
             why="With one head, one product of `N*D^2`{one_saved} multiplications is saved. With more, every head "
             "works at the full width, both for its matrix and for the weighted sum.",
             wrong={"thought that one matrix is always cheaper than two": True}),
        Part("saved", "How many multiplications does folding save for N tokens? (Negative if it needs more.)",
             Formula("N*D^2*(2-H) + N^2*D*(1-H)", OF_LAYER), "counted", operations_saved,
             why="Before: `2*N*D^2`{linear} for values and output, `N^2*D`{sums} for the weighted sums. Folded: "
             "`H*N*D^2`{folded_linear} and `H*N^2*D`{folded_sums}.",
             wrong={"forgot that the weighted sums become H times as wide":
                        ("N*D^2*(2-H)", lambda N, D, H:
                            sum(D * D for _ in range(2 * N)) - sum(D * D for _ in range(H * N)))},
             only_if={"there is one head": ("N*D^2", {"H": 1})}),
    ])  # fmt: skip


def layer(D: int, H: int, bias: bool = True) -> Attention:
    """octavo's own attention layer."""
    return Attention(GPTConfig(width=D, heads=H, bias=bias, layers=1))


def count_parameters(module: nn.Module, dimensions: int) -> int:
    """The number of parameters in its matrices (2 dimensions) or its vectors (1)."""
    return sum(p.numel() for p in module.parameters() if p.dim() == dimensions)


def _count(
    names: str, module: Callable[[int, int, int], nn.Module], dimensions: int, what: str
) -> Callable[[], Finding]:
    """Evidence: the parameters in matrices (2 dimensions) or vectors (1) of a module, counted for five shapes."""

    def evidence() -> Finding:
        table = tabulate(names, SHAPES, lambda D, H, N: count_parameters(module(D, H, N), dimensions))
        return Finding(table, f"the {what}, counted for five shapes")

    return evidence


count_weights = _count("D _ _", lambda D, H, _: layer(D, H), 2, "matrices of octavo's attention layer")
count_biases = _count("D _ _", lambda D, H, _: layer(D, H), 1, "bias vectors of octavo's attention layer")
count_connected = _count("D _ N", lambda D, _, N: nn.Linear(N * D, N * D), 2, "weights of PyTorch's linear layer")
count_connected_biases = _count("D _ N", lambda D, _, N: nn.Linear(N * D, N * D), 1, "biases of PyTorch's linear layer")


def counts_figure() -> str:
    tokens = [1, 2, 4, 8, 16, 32, 64, 128, 256]
    D = 64
    attention = count_parameters(layer(D, 4), 2)
    return lines(
        [Series("fully connected", [(N, (N * D) ** 2) for N in tokens]),
         Series("attention", [(N, attention) for N in tokens])],
        f"Weights of one layer of width {D}: attention has the same number for any sequence length.",
        ("tokens N", "weights"), log_x=True, log_y=True,
    )  # fmt: skip


IN_D, IN_ND, IN_NH = {"D": "whole"}, {"N": "whole", "D": "whole"}, {"N": "whole", "H": "whole"}
COUNTS = Exercise(
    id="layer-counts", title="The parameters of an attention layer", figure=counts_figure,
    question="An attention layer of width D with H heads of width D/H has query, key, value and output matrices, each "
    "with a bias. It reads N tokens. Compare it with a fully connected layer from N D numbers to N D numbers.",
    where={},
    answer="Attention has `4*D^2`{weights} weights and `4*D`{biases} biases, whatever N and H. It computes, but does "
    "not store, `H*N^2`{map} attention weights. The fully connected layer stores `N^2*D^2`{connected} weights and "
    "`N*D` biases, and works for one N only.",
    parts=[
        Part("weights", "How many weights does the attention layer have, without biases?", Formula("4*D^2", IN_D),
             "counted", count_weights, why="Four D × D matrices. The heads share them and add none.",
             wrong={"forgot the output projection": ("3*D^2", lambda D: sum(D * D for _ in "qkv")),
                    "counted only queries and keys": ("2*D^2", lambda D: sum(D * D for _ in "qk"))}),
        Part("biases", "How many biases does the attention layer have?", Formula("4*D", IN_D), "counted", count_biases,
             why="One for each output of each of the four matrices.",
             wrong={"forgot the output projection": ("3*D", lambda D: sum(D for _ in "qkv")),
                    "counted one for each matrix": ("4", lambda: sum(1 for _ in "qkvo"))}),
        Part("map", "How many attention weights does it compute for N tokens?", Formula("H*N^2", IN_NH), "counted",
             tabulated("_ H N", SHAPES, "the attention weights of octavo's attention, counted for five shapes")(
                 lambda D, H, N: maps(random_tokens(N, D), random_heads(D, H)).numel()),
             why="Each head has a weight for every pair of tokens.",
             wrong={"counted one head": ("N^2", lambda N: sum(N for _ in range(N))),
                    "gave each unordered pair one entry instead of two": ("H*N*(N-1)/2", lambda H, N:
                        H * sum(range(N)))},
             only_if={"attention is causal": ("H*N*(N+1)/2", lambda H, N: H * sum(t + 1 for t in range(N)))}),
        Part("connected", "How many weights does the fully connected layer have?", Formula("N^2*D^2", IN_ND), "counted",
             count_connected, why="Each of the N D outputs has a weight for each of the N D inputs.",
             wrong={"connected tokens only with themselves": ("N*D^2", lambda N, D: sum(D * D for _ in range(N))),
                    "counted the entries of attention as one large matrix":
                        ("N^2*D", lambda N, D: sum(D for _ in range(N) for _ in range(N)))}),
        Part("connected-biases", "How many biases does the fully connected layer "
             "have?", Formula("N*D", IN_ND), "counted", count_connected_biases,
             why="Each of the N D outputs has its own.", wrong={"shared them among tokens": ("D", lambda D:
                 sum(1 for _ in range(D)))}),
    ])  # fmt: skip


def heads_of_width(D: int, H: int, K: int) -> nn.ModuleDict:
    """The projections of a layer with H heads of width K."""
    return nn.ModuleDict({
        "query": nn.Linear(D, H * K, bias=False), "key": nn.Linear(D, H * K, bias=False),
        "value": nn.Linear(D, H * K, bias=False), "out": nn.Linear(H * K, D, bias=False),
    })  # fmt: skip


def share_is_free() -> Finding:
    weights = {count_parameters(heads_of_width(48, H, 48 // H), 2) for H in (1, 2, 3, 4, 6, 12)}
    operations = {count_attention_flops(5, 5, 48 // H, H) // 2 for H in (1, 2, 3, 4, 6, 12)}
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
    where={"D": (8, 8, 12, 16), "H": (1, 2, 3, 4), "N": (6, 6, 5, 9),
           "narrow": lambda D, H: count_parameters(heads_of_width(D, H, D // H), 2),
           "products": lambda N, D, H: count_attention_flops(N, N, D // H, H) // 2, "scores": lambda N, D:
               count_product(N, D, N),
           "entries": lambda N, D, H: maps(random_tokens(N, D), random_heads(D, H)).numel()},
    answer="Together, heads of width D/H have as many weights and multiplications as one head of width D: "
    "`4*D^2`{narrow}, and `2*N^2*D`{products} for scores and weighted sums, for any H. Heads of full width need H "
    "times that. What grows with H in any case is the number of attention weights, `H*N^2`{entries}.",
    parts=[
        Part("weights", "How many weights (queries, keys, values, output) do H heads of width D have?",
             Formula("4*H*D^2", {"D": "whole", "H": "whole"}), "counted", tabulated("D H _", SHAPES,
                 "the weights of PyTorch's linear layers for heads of width D, counted for five shapes")(
                 lambda D, H, _: count_parameters(heads_of_width(D, H, D), 2)),
             why="Each head has its own D × D matrices for all four.",
             wrong={"gave the number for heads of width D/H": ("4*D^2", lambda D: sum(D * D for _ in "qkvo")),
                    "forgot that the output projection grows too":
                        ("3*H*D^2 + D^2", lambda H, D: sum(H * D * D for _ in "qkv") + D * D)}),
        Part("operations", "How many multiplications do their scores and weighted sums take for N tokens?",
             Formula("2*H*N^2*D", OF_LAYER), "counted", tabulated("D H N", SHAPES,
                 "half of the FLOPs that PyTorch counts in octavo's attention with heads of width D, five shapes")(
                 lambda D, H, N: count_attention_flops(N, N, D, H) // 2),
             why="For each head `N^2*D`{scores} for the scores and as many for the weighted sums of values.",
             wrong={"gave the number for heads of width D/H": ("2*N^2*D", lambda N, D:
                 2 * sum(D for _ in range(N * N))),
                    "left out the weighted sums": ("H*N^2*D", lambda N, D, H: sum(D for _ in range(H * N * N)))}),
        Part("free", "With heads of width D/H, neither the weights nor these multiplications depend on H.",
             Truth("true", Choice("", {
             "few": "there are at most four heads",
             "long": "there are more tokens than heads", "causal": "attention is causal"})), "counted", share_is_free,
             why="H heads of width D/H together have D columns, like one head of width D; the same holds for scores "
             "and weighted sums.", wrong={"thought that every head adds cost": False}),
        Part("nothing", "So with heads of width D/H, more heads need no additional resources.", Truth("false"),
             "counted", nothing_costs_more,
             why="Each head has its own attention weights: `H*N^2`{entries} exponentials, and as much memory if they "
             "are stored.", wrong={"forgot the attention weights": True}),
    ])  # fmt: skip

EXERCISES = (SUM, COUNTS, WIDTH)
