"""Multi-head attention with fixed weights as a product of sparse matrices.

N tokens, D width, H heads. Tokens are rows of X, and vec puts the rows end to end.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from octavo.exercises import Choice, Exercise, Finding, Formula, Part, Truth, verdict
from octavo.exercises.framework.evidence import count_flops, normal, tabulate
from octavo.ops.attention.multi_head import Heads, concatenated, folded, layer_matrix, maps
from octavo.pages.figures.shaded_cells import shaded_matrices

SHAPES = ((4, 6, 1), (5, 6, 2), (3, 6, 3), (7, 8, 4))  # tokens, width, heads
OF_LAYER = {"N": "whole", "D": "whole", "H": "whole"}


def eye(size: int) -> Tensor:
    return torch.eye(size, dtype=torch.float64)


def random_layer(N: int, D: int, H: int) -> tuple[Tensor, Heads, Tensor]:
    """Tokens, a layer with random weights, and its attention weights for these tokens."""
    x_ND, layer = normal(N, D, seed=N), Heads(H, *(normal(4, D, D, seed=D) / D**0.5))
    return x_ND, layer, maps(x_ND[None], layer)[0]


def mixing_matrix(a_HNN: Tensor, D: int) -> Tensor:
    """The factor that mixes tokens: each head's weights act on its own D / H entries of the values."""
    H = len(a_HNN)
    K = D // H
    heads = torch.stack([torch.kron(eye(H)[h], torch.ones(K, dtype=torch.float64)) for h in range(H)])
    return sum((torch.kron(a_HNN[h], torch.diag(heads[h])) for h in range(H)), torch.zeros(1, dtype=torch.float64))


def factors(N: int, D: int, H: int) -> tuple[Tensor, Tensor, Tensor]:
    """Values, mixing and output: three sparse N D × N D matrices whose product is the layer."""
    _, layer, a_HNN = random_layer(N, D, H)
    return torch.kron(eye(N), layer.value_ED), mixing_matrix(a_HNN, D), torch.kron(eye(N), layer.out_DD)


def product_is_layer() -> Finding:
    worst = 0.0
    for N, D, H in SHAPES:
        x_ND, layer, a_HNN = random_layer(N, D, H)
        values, mixing, output = factors(N, D, H)
        whole = output @ mixing @ values
        y_ND = (whole @ x_ND.flatten()).view(N, D)
        worst = max(worst, (y_ND - concatenated(x_ND[None], layer)[0]).abs().max().item(),
                    (whole - layer_matrix(a_HNN, layer)).abs().max().item())  # fmt: skip
    note = f"four layers in float64: the product, octavo's layer and its one large matrix differ by {worst:.0e}"
    return Finding(verdict(worst < 1e-12), note, "to 1e-12")


def folded_factors(N: int, D: int, H: int) -> tuple[Tensor, Tensor]:
    """Two sparse matrices whose product is the layer: H folded copies of every token, then their mixture."""
    _, layer, a_HNN = random_layer(N, D, H)
    copies = torch.kron(eye(N), folded(layer).flatten(0, 1))  # N H D × N D: token by token, head by head
    mixture = torch.einsum("hnm,de->ndmhe", a_HNN, eye(D)).flatten(2).flatten(0, 1)
    return copies, mixture


def two_factors() -> Finding:
    worst = 0.0
    for N, D, H in SHAPES:
        _, layer, a_HNN = random_layer(N, D, H)
        copies, mixture = folded_factors(N, D, H)
        worst = max(worst, (mixture @ copies - layer_matrix(a_HNN, layer)).abs().max().item())
    note = f"four layers in float64: the product of the two and octavo's large matrix differ by {worst:.0e}"
    return Finding(verdict(worst < 1e-12), note, "to 1e-12")


def folded_nonzeros(which: int) -> Callable[[], Finding]:
    return count("N D H", lambda *shape: int(folded_factors(*shape)[which].count_nonzero()),
                 "nonzero entries counted in the two matrices of four layers")  # fmt: skip


def which_transpose() -> Finding:
    N, D = 4, 3
    a_NN, w_DD, x_ND = normal(N, N).softmax(-1), normal(D, D, seed=1), normal(N, D, seed=2)
    wt_DD = w_DD.T.contiguous()  # which kron asks for
    options = {"transposed": torch.kron(a_NN, wt_DD), "plain": torch.kron(a_NN, w_DD),
               "swapped": torch.kron(wt_DD, a_NN)}  # fmt: skip
    y_ND = a_NN @ x_ND @ w_DD
    [found] = [name for name, one in options.items() if torch.allclose(one @ x_ND.flatten(), y_ND.flatten())]
    return Finding(found, f"{N} tokens of width {D}: only one of the three maps X to A X W_v", "to 1e-8")


def count(names: str, function: Callable[[int, int, int], int], note: str) -> Callable[[], Finding]:
    return lambda: Finding(tabulate(names, SHAPES, function), note)


def nonzeros(which: int) -> Callable[[], Finding]:
    return count("N D H", lambda *shape: int(factors(*shape)[which].count_nonzero()),
                 "nonzero entries counted in the matrices of four layers")  # fmt: skip


def distinct(N: int, D: int, H: int) -> int:
    return len({entry for one in factors(N, D, H) for entry in one.flatten().tolist()} - {0.0})


def multiplications(N: int, D: int, H: int) -> int:
    """Of values, weighted sums and output, one after the other."""
    x_ND, layer, a_HNN = random_layer(N, D, H)

    def compute() -> None:
        v_HNK = (x_ND @ layer.value_ED.T).unflatten(-1, (H, -1)).transpose(0, 1)
        (a_HNN @ v_HNK).transpose(0, 1).flatten(1) @ layer.out_DD.T

    return count_flops(compute) // 2


def sparse_figure() -> str:
    values, mixing, _ = factors(4, 4, 2)
    return shaded_matrices(
        [("values", values), ("mixing", mixing), ("their product", mixing @ values)],
        "4 tokens of width 4, two heads. Darker cells have larger absolute values; empty cells are zero. The factors "
        "are sparse, their product is not.",
    )  # fmt: skip


SPARSE = Exercise(
    id="sparse-factors", title="Attention as a product of sparse matrices", figure=sparse_figure, where={},
    question="The attention weights are fixed, so a layer with H heads of width D/H is linear in the N D numbers of "
    "its tokens, `vec(X)`, with the rows of X end to end. Write its N D × N D matrix as a product: one factor "
    "computes the values, one mixes the tokens, one is the output projection. ⊗ is the Kronecker product.",
    answer="Values: `kron(I, T(W_v))`, N equal blocks on the diagonal. Mixing: block (n, m) is diagonal, with the "
    "weight `a_n_m` of the entry's head; with one head it is `kron(A, I)`. Output: `kron(I, T(W_o))`. The factors "
    "have `N*D^2`{first}, `N^2*D`{second} and `N*D^2`{first} nonzero entries, made from only `H*N^2 + "
    "2*D^2`{numbers} distinct numbers. That is the sense in which attention is a sparse matrix with shared "
    "parameters: the product of the first two, with blocks `a_n_m*T(W_v)`, is not sparse. With value and output "
    "matrices folded into one matrix for each head, two sparse factors are enough: one makes H copies of every "
    "token, the other mixes them. They have `H*N*D^2`{two-copies} and `H*N^2*D`{two-mixing} nonzero entries.",
    parts=[
        Part("product", "The product of the three factors (output, mixing and values, from left to right) is the "
             "matrix of the whole layer.", Truth("true"), "numeric",
             product_is_layer, why="`kron(A, T(W)) = kron(A, I)*kron(I, T(W))`, since `kron(P, Q)*kron(R, S) = "
             "kron(P*R, Q*S)`; with several heads each head's `A` acts on its own entries.",
             wrong={"thought that a product of sparse matrices is sparse": False}),
        Part("order", "One head, no output projection, tokens as rows: which matrix maps `vec(X)` to `vec(A*X*W_v)`?",
             Choice("transposed", {"transposed": "`kron(A, T(W_v))`", "plain": "`kron(A, W_v)`",
                                   "swapped": "`kron(T(W_v), A)`"}), "numeric", which_transpose,
             why="Output entry (n, l) is the sum of `a_n_m*x_m_p*W_p_l`: block (n, m) has `a_n_m*W_p_l` in row l and "
             "column p."),
        Part("first", "How many nonzero entries can the value factor have?", Formula("N*D^2", OF_LAYER),
             "counted", nonzeros(0), why="N blocks of D × D on the diagonal: one of N entries in every row of blocks.",
             wrong={"counted one block": ("D^2", lambda D: D * D),
                    "counted all entries": ("N^2*D^2", lambda N, D: (N * D) ** 2)}),
        Part("second", "How many nonzero entries can the mixing factor "
             "have?", Formula("N^2*D", OF_LAYER), "counted", nonzeros(1),
             why="A diagonal block of size D for every pair of tokens.",
             wrong={"counted one entry per pair of tokens": ("N^2", lambda N: N * N),
                    "gave every head all D entries": ("H*N^2*D", lambda N, D, H: sum(N * N * D for _ in range(H)))}),
        Part("heads", "How many multiplications do the three factors take, one after the other?",
             Formula("2*N*D^2 + N^2*D", OF_LAYER), "counted",
             count("N D H", multiplications, "half of the FLOPs that PyTorch counts for four layers"),
             why="One for each nonzero entry. The dense matrix would take one for every pair of entries.",
             wrong={"used the dense matrix": ("N^2*D^2", lambda N, D: (N * D) ** 2),
                    "left out the output projection": ("N*D^2 + N^2*D", lambda N, D: N * D * D + N * N * D)}),
        Part("numbers", "How many distinct nonzero numbers do the three factors contain?",
             Formula("H*N^2 + 2*D^2", OF_LAYER), "counted",
             count("N D H", distinct, "distinct nonzero numbers in the matrices of four layers"),
             why="H attention matrices and two D × D weight matrices; everything else is repetition.",
             wrong={"counted one attention matrix": ("N^2 + 2*D^2", lambda N, D: N * N + 2 * D * D),
                    "forgot that parameters are shared": ("N^2*D + 2*N*D^2", lambda N, D: N * N * D + 2 * N * D * D)}),
        Part("two",
             "With value and output matrices folded into one D × D matrix for each head, the layer is the product of "
             "two sparse matrices: H copies of every token, each multiplied by its head's matrix, and their mixture "
             "with the attention weights.", Truth("true"), "numeric", two_factors,
             why="`sum(h, A_h*X*W_h)` is a row of matrices, the attention of each head, times a column of copies.",
             wrong={"thought that concatenation needs a third factor": False}),
        Part("two-copies", "Of these two sparse factors, how many nonzero entries can the one that makes the copies "
             "have?", Formula("H*N*D^2", OF_LAYER),
             "counted", folded_nonzeros(0), why="H matrices of D × D for each of the N tokens.",
             wrong={"counted one head": ("N*D^2", lambda N, D: N * D * D),
                    "gave each head its share of the width": ("N*D^2/H", lambda N, D, H: N * D * D / H)}),
        Part("two-mixing", "Of the two sparse factors, how many nonzero entries can the one that mixes the H copies "
             "have?", Formula("H*N^2*D", OF_LAYER), "counted", folded_nonzeros(1),
             why="Each head has a diagonal block of size D for every pair of tokens.",
             wrong={"gave each head its share of the width": ("N^2*D", lambda N, D: N * N * D),
                    "counted the attention weights": ("H*N^2", lambda N, H: H * N * N)}),
    ])  # fmt: skip

EXERCISES = (SPARSE,)
