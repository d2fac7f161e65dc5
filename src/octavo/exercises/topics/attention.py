"""Self-attention as a function: orthogonal inputs, one large matrix, many queries at once.

N tokens, D width, T queries, S keys, K size of a query, V size of a value, r norm of an input.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import mpmath
import numpy as np
import torch
from torch import Tensor

from octavo.exercises import Choice, Exercise, Finding, Formula, Number, Part, Truth, verdict
from octavo.exercises.framework.evidence import bisect, count_flops, meta, normal, tabulated
from octavo.ops.attention.multi_head import Heads, layer_matrix
from octavo.ops.attention.reference import attend_reference
from octavo.pages.figures.charts import Series, lines
from octavo.pages.figures.shaded_cells import shaded_matrices

ERROR = 0.01  # of an output, relative to its input
ROUNDING = {"rel": 1e-12, "abs": 1e-15}  # tolerance for float64
OF_INPUTS = {"N": "whole", "r": "positive"}


def plain_attention(x_ND: Tensor) -> Tensor:
    """Y = softmax(X Xᵀ) X: queries, keys and values are the inputs themselves, without scaling."""
    x = x_ND[None, None]
    return attend_reference(x, x, x, scale=1.0)[0, 0]


def orthogonal_rows(N: int, r: float, D: int = 0) -> Tensor:
    """N orthogonal inputs of norm r, randomly rotated."""
    rotation, _ = torch.linalg.qr(normal(max(D, N), max(D, N), seed=N))
    x_ND: Tensor = r * rotation[:N]
    return x_ND


def _relative_error(N: int, r: float) -> float:
    x_ND = orthogonal_rows(N, r)
    return float(((plain_attention(x_ND) - x_ND).norm(dim=1) / r).max())


def _norm_for(error: float, N: int = 10) -> float:
    """The norm at which N orthogonal inputs have this error."""
    return bisect(lambda r: _relative_error(N, r) <= error, 0.5, 5.0, steps=60)


def share(scores: Sequence[Any]) -> Any:
    """The weight of the first of these scores."""
    return mpmath.exp(scores[0]) / mpmath.fsum(mpmath.exp(one) for one in scores)


POINTS, POINTS_NOTE = (
    [(2, 1.0), (3, 0.5), (5, 1.5), (8, 2.0), (16, 1.0)],
    "attention in float64 for five choices of N and r, to 12 digits",
)


def orthogonal_equal() -> Finding:
    errors = {(N, r): _relative_error(N, r) for N, r in ((10, 1.0), (10, 2.0), (10, 8.0), (1, 1.0))}
    listed = ", ".join(f"N = {N}, norm {r:g}: {error:.1e}" for (N, r), error in errors.items())
    unit = _relative_error(3, 1.0)
    under = {"single": errors[1, 1.0] < 1e-12, "unit": unit < 1e-12, "small": _relative_error(2, 0.5) < 1e-12}
    note = f"relative distance of y from x: {listed}"
    return Finding(verdict(max(errors.values()) < 1e-12, under), note, "to 1e-12")


@tabulated("N r", POINTS, POINTS_NOTE, **ROUNDING)
def own_weight(N: int, r: float) -> float:
    """The weight of x_n in y_n, read off by a dot product because the inputs are orthogonal."""
    x_ND = orthogonal_rows(N, r)
    return (plain_attention(x_ND)[0] @ x_ND[0]).item() / r**2


def zero_input() -> Finding:
    x_ND = orthogonal_rows(4, 6.0)
    x_ND[0] = 0
    y_ND = plain_attention(x_ND)
    distance = (y_ND - x_ND).norm(dim=1)
    note = (
        f"inputs of norm 6, one of them zero: the others differ from x by {distance[1:].max():.0e}, the zero input "
        f"gets an output of norm {distance[0]:.2f}"
    )
    return Finding(verdict(distance.max().item() < 1e-9), note, "to 1e-9")


def orthogonal_figure() -> str:
    norms = [r / 10 for r in range(1, 41)]
    return lines(
        [Series(f"N = {N}", [(r, _relative_error(N, r)) for r in norms]) for N in (2, 10, 100)],
        "The distance between output and input for orthogonal inputs: it vanishes for large norms.",
        ("norm of the inputs", "relative distance"), log_y=True,
    )  # fmt: skip


ORTHOGONAL = Exercise(
    id="orthogonal-inputs", title="Attention over orthogonal inputs", figure=orthogonal_figure,
    where={"r": (0.5, 1.0, 1.5), "N": (2, 3, 5), "unnormalized": lambda r: mpmath.exp(r * r), "inputs": 10,
           "target": ERROR, "x": lambda N, r: orthogonal_rows(N, r).numpy(), "loss": lambda x, r: x[0] @ x[0],
           "distance": lambda N, r: r * _relative_error(N, r), "others": lambda N: sum(1 for n in range(N) if n),
           "b": lambda N, r: (plain_attention(orthogonal_rows(N, r))[0] @ orthogonal_rows(N, r)[1]).item() / r**2,
           "lost": lambda N, r: 1 - (plain_attention(orthogonal_rows(N, r))[0] @ orthogonal_rows(N,
               r)[0]).item() / r**2},
    question="N inputs of norm r are orthogonal: `dot(x_n, x_m) = 0`. Self-attention without projections computes `y_n "
    "= sum(m, a_n_m*x_m)` with `a_n_m` proportional to `exp(dot(x_n, x_m))`. It is sometimes claimed that then `y_n = "
    "x_n`.",
    answer="A score of zero is not a weight of zero: `exp(0) = 1`. Before normalization each input has weight "
    "`exp(r^2)`{unnormalized} for itself and one for every other input, so `y_n - x_n` has norm "
    "`r*sqrt(N*(N-1))/(exp(r^2)+N-1)`{distance}. That is small only if `exp(r^2)`{unnormalized} is much larger than N; "
    "it is zero only for a single input or in the limit.",
    parts=[
        Part("equal", "If the inputs are orthogonal, then `y_n = x_n`.", Truth("nearly", Choice("single", {
             "unit": "all inputs have norm one", "small": "the norm of every input is below one",
             "single": "there is only one input"})), "numeric", orthogonal_equal,
             why="Softmax gives every input a positive weight, even those orthogonal to the query.",
             wrong={"mistook a score of zero for a weight of zero": True}),
        Part("own-weight", "What is the attention weight of `x_n` in `y_n`?",
             Formula("exp(r^2)/(exp(r^2)+N-1)", OF_INPUTS), "numeric", own_weight,
             why="Its own score is `r^2`{loss}, the other `N - 1`{others} are zero.",
             wrong={"mistook a score of zero for a weight of zero": ("1", lambda r: share([r * r])),
                    "left the other inputs out of the sum": ("exp(r^2)/N", lambda N, r: mpmath.exp(r * r) / N),
                    "counted itself twice": ("exp(r^2)/(exp(r^2)+N)", lambda N, r: share([r * r] + [0] * N)),
                    "used the norm as its own score":
                        ("exp(r)/(exp(r)+N-1)", lambda N, r: share([r] + [0] * (N - 1)))}),
        Part("error", "What is the norm of `y_n - x_n`, relative to that of `x_n`?",
             Formula("sqrt(N*(N-1))/(exp(r^2)+N-1)", OF_INPUTS), "numeric",
             tabulated("N r", POINTS, POINTS_NOTE, **ROUNDING)(_relative_error),
             why="With `b = 1/(exp(r^2)+N-1)`, `x_n` loses `(N-1)*b`{lost} of itself and gains b of each of the "
             "`N - 1`{others} others, all orthogonal. So the relative error is `b*sqrt((N-1)^2 + (N-1))`{}, "
             "which is `b*sqrt(N*(N-1))`{}.",
             wrong={"forgot that x_n itself shrinks": ("sqrt(N-1)/(exp(r^2)+N-1)",
                        lambda N, r: mpmath.norm([1 - share([r * r] + [0] * (N - 1))] * (N - 1)) / (N - 1)),
                    "forgot the contribution of the others":
                        ("(N-1)/(exp(r^2)+N-1)", lambda N, r: 1 - share([r * r] + [0] * (N - 1))),
                    "added norms as if the others were parallel":
                        ("2*(N-1)/(exp(r^2)+N-1)", lambda N, r: 2 * (1 - share([r * r] + [0] * (N - 1))))}),
        Part("one-percent", "10{inputs} inputs: which norm r reduces the relative error of `y_n` to 0.01{target}?",
             Number("sqrt(log(100*sqrt(90)-9))"), "numeric",
             lambda: Finding(bisect(lambda r: _relative_error(10, r) <= ERROR, 1.0, 5.0, steps=60),
                 "bisection for the norm at which 10 inputs have an error of 1 %"),
             why="Solve for the r at which `sqrt(90)/(exp(r^2)+9)`{target} is 0.01{target}.", where={"r": lambda:
                 _norm_for(ERROR)},
             wrong={"forgot the square root of the logarithm": ("log(100*sqrt(90)-9)", lambda: _norm_for(ERROR) ** 2),
                    "solved for ten times the error": ("sqrt(log(10*sqrt(90)-9))", lambda: _norm_for(10 * ERROR))}),
        Part("zero", "If all orthogonal inputs are either zero or have a large norm, every `y_n` is close to `x_n`.",
             Truth("false"), "numeric", zero_input,
             why="A zero vector is orthogonal to everything. All its scores are equal, so its output is the mean of "
             "all inputs.", wrong={"forgot that zero is orthogonal to everything, itself included": True}),
    ])  # fmt: skip


def one_head(D: int, value_DD: Tensor) -> Heads:
    """A layer with one head whose query, key and output matrices are the identity."""
    one_DD = torch.eye(D, dtype=torch.float64)
    return Heads(1, one_DD, one_DD, value_DD, one_DD)


def _matrix(N: int, D: int, value_DD: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The matrix of attention as a linear map of its inputs, and the attention weights."""
    a_NN = normal(N, N, seed=N * D).softmax(-1)
    one = one_head(D, torch.eye(D, dtype=torch.float64) if value_DD is None else value_DD)
    return layer_matrix(a_NN[None], one), a_NN


def which_block() -> Finding:
    N, D = 4, 3
    matrix, a_NN = _matrix(N, D)
    block = matrix.unflatten(0, (N, D)).unflatten(2, (N, D))[1, :, 2]  # from token 2 to token 1
    shapes = {"identity": a_NN[1, 2] * torch.eye(D, dtype=torch.float64), "full": a_NN[1, 2].expand(D, D),
              "map": a_NN[:D, :D]}  # fmt: skip
    [found] = [name for name, shape in shapes.items() if torch.equal(block, shape)]
    note = f"block (2, 3) of the matrix that octavo builds for {N} tokens of width {D}"
    return Finding(found, note, "exactly equal")


def matrix_with_values(N: int, D: int) -> tuple[Tensor, Tensor, Tensor]:
    """A, W_v, and the matrix of Y = A X W_v with tokens as rows, one column for each basis vector of X."""
    a_NN, value_DD = normal(N, N, seed=N * D).softmax(-1), normal(D, D)
    basis = torch.eye(N * D, dtype=torch.float64).unflatten(1, (N, D))
    columns = [(a_NN @ x_ND @ value_DD).flatten() for x_ND in basis]
    return a_NN, value_DD, torch.stack(columns, 1)


def value_block() -> Finding:
    a_NN, value_DD, matrix = matrix_with_values(4, 3)
    candidates = {"transposed": torch.kron(a_NN, value_DD.T.contiguous()), "plain": torch.kron(a_NN, value_DD),
                  "swapped": torch.kron(value_DD.T.contiguous(), a_NN)}  # fmt: skip
    [found] = [name for name, product in candidates.items() if torch.allclose(matrix, product, rtol=0, atol=1e-15)]
    octavo = torch.equal(_matrix(4, 3, value_DD.T.contiguous())[0], candidates["transposed"])
    note = f"Y = A X W_v for every basis vector of X, 4 tokens of width 3; octavo's layer_matrix agrees: {octavo}"
    return Finding(found, note, "to 1e-15")


def still_sparse() -> Finding:
    _, _, matrix = matrix_with_values(4, 3)
    filled = int(matrix.count_nonzero())
    note = f"a random value matrix: {filled} of {matrix.numel()} entries are not zero"
    return Finding(verdict(filled < matrix.numel()), note)


def matrix_figure() -> str:
    N, D = 4, 3
    value_DD = normal(D, D)
    plain, a_NN = _matrix(N, D)
    return shaded_matrices(
        [("weights A", a_NN), ("A ⊗ I", plain), ("A ⊗ W_vᵀ", _matrix(N, D, value_DD)[0])],
        f"{N} tokens of width {D}: the attention weights A, and the large matrices of Y = A X and Y = A X W_v. Darker "
        "cells have larger absolute values; empty cells are zero.",
    )


IN_ND = {"N": "whole", "D": "whole"}
MATRIX = Exercise(
    id="one-matrix", title="Self-attention as one large matrix", figure=matrix_figure,
    where={"N": (2, 4, 5), "D": (3, 3, 2), "blocks": lambda N: sum(1 for n in range(N) for m in range(N)),
           "all": lambda N, D: _matrix(N, D)[0].numel(), "filled": lambda N, D: int(_matrix(N, D)[0].count_nonzero()),
           "fraction": lambda all, filled: filled / all, "a": np.array([[0.2, 0.3], [0.5, 0.6]]),
           "described": lambda N, D: sum(one.numel() for one in matrix_with_values(N, D)[:2])},
    question="With fixed attention weights `A`, attention `Y = A*X` of N tokens of width D is a linear layer on all N "
    "D numbers. What is its N D × N D matrix? ⊗ is the Kronecker product.",
    answer="It is `kron(A, I)`: block (n, m) is `a_n_m*I`. Of `N^2*D^2`{all} entries only `N^2*D`{entries} can be "
    "nonzero, a fraction of `1/D`{fraction}, and each of the `N^2`{different} weights occurs D times. A value matrix "
    "makes every block `a_n_m*T(W_v)` and the whole `kron(A, T(W_v))`: no longer sparse, but still one D × D matrix "
    "shared by all pairs of tokens.",
    parts=[
        Part("block", "What is the block from token m to token n?", Choice("identity", {"identity": "`a_n_m*I`",
             "full": "`a_n_m` in every entry", "map": "the matrix `A` itself"}), "numeric", which_block,
             why="Each of the D entries of `y_n` depends on the same entry of `x_m`, all with the same weight."),
        Part("entries", "How many entries can be nonzero?", Formula("N^2*D", IN_ND), "counted",
             tabulated("N D", [(2, 3), (4, 3), (5, 8), (7, 1)],
                 "counted in the matrices that octavo builds for four layers")(
                 lambda N, D: int(_matrix(N, D)[0].count_nonzero())),
             why="There are `N^2`{blocks} blocks, and only the diagonal of each is nonzero.",
             wrong={"counted all of them, as in a fully connected layer":
                        ("N^2*D^2", lambda N, D: torch.nn.Linear(N * D, N * D, bias=False).weight.numel()),
                    "counted the attention weights once": ("N^2", lambda N: torch.zeros(N, N).numel()),
                    "counted one block per token": ("N*D^2", lambda N, D: sum(D * D for _ in range(N)))}),
        Part("different", "How many distinct nonzero numbers does the large matrix of `Y = A*X` "
             "contain?", Formula("N^2", IN_ND), "counted",
             tabulated("N D", [(2, 3), (4, 3), (5, 8), (7, 2)],
                 "distinct nonzero numbers in the matrices that octavo builds for four layers")(
                 lambda N, D: len(set(_matrix(N, D)[0].flatten().tolist()) - {0.0})),
             why="The weights are shared: each `a_n_m` occurs D times in its block.",
             wrong={"forgot that the diagonal repeats one number":
                        ("N^2*D", lambda N, D: sum(D for n in range(N) for m in range(N))),
                    "counted only one row of the weights": ("N", lambda N: len(range(N)))}),
        Part("value-matrix", "With a value matrix, `Y = A*X*W_v`, where tokens are the rows of X: what is the large "
             "matrix?", Choice("transposed", {"transposed": "`kron(A, T(W_v))`", "plain": "`kron(A, W_v)`",
             "swapped": "`kron(T(W_v), A)`"}), "numeric", value_block,
             why="The D entries of a token are stacked as a column, so a product with `W_v` from the right becomes one "
             "with its transpose from the left: block (n, m) is `a_n_m*T(W_v)`. It is `W_v` itself only if tokens are "
             "columns."),
        Part("values", "With a value matrix, `Y = A*X*W_v`, the large matrix is still sparse.", Truth("false"),
             "counted", still_sparse,
             why="Block (n, m) becomes `a_n_m` times the transpose of `W_v`, as tokens are rows: every entry can be "
             "nonzero. The weights are still shared: `N^2 + D^2`{described} numbers describe `N^2*D^2`{all} entries.",
             wrong={"confused sparse with shared": True}),
    ])  # fmt: skip


def one_by_one() -> Finding:
    generator = torch.Generator().manual_seed(0)
    T, S, K, V = 5, 7, 4, 3
    q, k, v = (
        torch.randn(1, 1, n, size, generator=generator, dtype=torch.float64) for n, size in ((T, K), (S, K), (S, V))
    )
    all_at_once = attend_reference(q, k, v)[0, 0]
    rows = []
    for t in range(T):
        scores = [(q[0, 0, t] @ k[0, 0, s]).item() / math.sqrt(K) for s in range(S)]
        total = sum(map(math.exp, scores))
        rows.append(sum(math.exp(score) / total * v[0, 0, s] for s, score in enumerate(scores)))
    error = (all_at_once - torch.stack(rows)).abs().max().item()  # type: ignore[arg-type]
    note = f"{T} queries over {S} keys, one at a time in plain Python: the results differ by {error:.0e}"
    return Finding(verdict(error < 1e-14), note, "to 1e-14")


def which_axis() -> Finding:
    e_TS = normal(3, 5)
    rows, columns, both = e_TS.softmax(-1), e_TS.softmax(-2), e_TS.flatten().softmax(-1).view(3, 5)
    sums = {"keys": rows.sum(-1), "queries": columns.sum(-1), "both": both.sum(-1)}
    [found] = [name for name, total in sums.items() if torch.allclose(total, torch.ones(3, dtype=torch.float64))]
    return Finding(found, "only one of the three gives every query weights that sum to one", "to 1e-8")


@tabulated("T S d v", ((1, 7, 4, 4), (5, 7, 4, 3), (2, 3, 8, 5)),
    "half of the FLOPs that PyTorch counts in octavo's attention")  # fmt: skip
def multiplications(T: int, S: int, K: int, V: int) -> float:
    return count_flops(lambda: attend_reference(meta(1, 1, T, K), meta(1, 1, S, K), meta(1, 1, S, V))) / 2


def many_figure() -> str:
    e_TS = 2 * normal(5, 8)
    return shaded_matrices(
        [("over the keys", e_TS.softmax(-1)), ("over the queries", e_TS.softmax(-2))],
        "5 queries (rows) and 8 keys (columns), random scores. On the left every row sums to one, which is "
        "attention; on the right every column does.",
    )


MANY = Exercise(
    where={}, id="matrix-form", title="Many queries at once", figure=many_figure,
    question="T queries of size d attend to S keys of the same size, whose values have size v. Stacked as rows they "
    "are the matrices Q, K and V.",
    answer="`Y = softmax(Q*T(K)/sqrt(d))*V`, where the softmax runs along each row, over the keys. Each query's row is "
    "the same as if it were alone: queries do not interact.",
    parts=[
        Part("same", "Row t of `softmax(Q*T(K)/sqrt(d))*V` is the output of query t alone.", Truth("true", Choice("", {
             "equal": "there are as many queries as keys",
             "self": "queries and keys come from the same tokens", "unscaled": "the scores are not "
             "scaled"})), "numeric",
             one_by_one,
             why="Row t of the scores depends only on query t; softmax works row by row; and row t of a product uses "
             "only row t of its left factor.", wrong={"thought that queries compete with each other": False}),
        Part("axis", "Over which axis is the softmax taken?", Choice("keys", {"keys": "over the keys, for each query",
             "queries": "over the queries, for each key", "both": "over all pairs"}), "numeric", which_axis,
             why="The weights of one query are a distribution over the keys it attends to."),
        Part("multiplications", "How many multiplications do the two matrix products take?",
             Formula("T*S*(d+v)", {"T": "whole", "S": "whole", "d": "whole", "v": "whole"}), "counted", multiplications,
             why="`T*S` scores of d products each, then `T*v` sums over S values each.",
             wrong={"counted the scores alone": ("T*S*d", lambda T, S, d: sum(d for _ in range(T) for _ in range(S))),
                    "multiplied the costs of the two products":
                        ("T*S*d*v", lambda T, S, d, v: sum(d * v for _ in range(T) for _ in range(S)))}),
    ])  # fmt: skip

EXERCISES = (ORTHOGONAL, MATRIX, MANY)
