"""Self-attention without its layers around it: orthogonal inputs, one large matrix, many queries at once.

N tokens, D width, T queries, S keys, K size of a query, V size of a value, r length of an input.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from octavo.exercises import Choice, Exercise, Finding, Formula, IntervalAt, Number, Part, Truth, verdict
from octavo.ops.attention.multi_head import Heads, layer_matrix
from octavo.ops.attention.reference import attend_reference
from octavo.pages.figures.lines import Series, lines
from octavo.pages.figures.matrices import shaded_matrices

EXACT = 1e-12  # what float64 may lose, relatively
OF_INPUTS = {"N": "whole", "r": "positive"}


def plain_attention(x_ND: Tensor) -> Tensor:
    """Y = softmax(X Xᵀ) X: every input is query, key and value at once, and nothing is scaled."""
    x = x_ND[None, None]
    return attend_reference(x, x, x, scale=1.0)[0, 0]


def orthogonal_rows(N: int, r: float, D: int = 0) -> Tensor:
    """N orthogonal inputs of length r, turned so that no axis is special."""
    generator = torch.Generator().manual_seed(N)
    size = max(D, N)
    turned, _ = torch.linalg.qr(torch.randn(size, size, generator=generator, dtype=torch.float64))
    x_ND: Tensor = r * turned[:N]
    return x_ND


def _relative_error(N: int, r: float) -> float:
    x_ND = orthogonal_rows(N, r)
    return float(((plain_attention(x_ND) - x_ND).norm(dim=1) / r).max())


def _near(values: dict[str, float], x: float) -> IntervalAt:
    return IntervalAt(values, x * (1 - EXACT) - 1e-15, x * (1 + EXACT) + 1e-15)


POINTS = [(2, 1.0), (3, 0.5), (5, 1.5), (8, 2.0), (16, 1.0)]


def orthogonal_equal() -> Finding:
    errors = {(N, r): _relative_error(N, r) for N, r in ((10, 1.0), (10, 2.0), (10, 8.0), (1, 1.0))}
    said = ", ".join(f"N = {N}, length {r:g}: {error:.1e}" for (N, r), error in errors.items())
    limit = errors[10, 8.0] < 1e-12 and errors[1, 1.0] < 1e-12
    return Finding(
        verdict(max(errors.values()) < 1e-12, limit), f"how far y lies from x, relative to x: {said}", "to 1e-12"
    )


def own_weight() -> Finding:
    """The share of x_n in y_n: orthogonal inputs let it be read off by a dot product."""
    found = []
    for N, r in POINTS:
        x_ND = orthogonal_rows(N, r)
        found.append(_near({"N": N, "r": r}, (plain_attention(x_ND)[0] @ x_ND[0]).item() / r**2))
    return Finding(found, "attention of float64 inputs for five choices of N and r, to 12 digits")


def orthogonal_error() -> Finding:
    found = [_near({"N": N, "r": r}, _relative_error(N, r)) for N, r in POINTS]
    return Finding(found, "attention of float64 inputs for five choices of N and r, to 12 digits")


def length_for_one_percent() -> Finding:
    low, high = 1.0, 5.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _relative_error(10, middle) > 0.01 else (low, middle)
    return Finding(high, "halving an interval of lengths around an error of 1 % for 10 inputs, 60 times")


def zero_input() -> Finding:
    x_ND = orthogonal_rows(4, 6.0)
    x_ND[0] = 0
    y_ND = plain_attention(x_ND)
    off = (y_ND - x_ND).norm(dim=1)
    note = (
        f"inputs of length 6, one of them zero: the others miss x by {off[1:].max():.0e}, the zero one gets "
        f"{off[0]:.2f} long"
    )
    return Finding(verdict(off.max().item() < 1e-9), note, "to 1e-9")


def orthogonal_figure() -> str:
    lengths = [one / 10 for one in range(1, 41)]
    return lines(
        [Series(f"N = {N}", [(r, _relative_error(N, r)) for r in lengths]) for N in (2, 10, 100)],
        "How far attention moves orthogonal inputs: nearly not at all, once they are long.",
        ("length of the inputs", "error, relative to x"), log_y=True,
    )  # fmt: skip


ORTHOGONAL = Exercise(
    id="orthogonal-inputs",
    title="Attention over orthogonal inputs",
    question="N inputs of length r are orthogonal to each other: `dot(x_n, x_m) = 0`. Attention without weights takes "
    "`y_n = sum(m, a_n_m*x_m)` with `a_n_m` in proportion to `exp(dot(x_n, x_m))`. It is said that then `y_n = x_n`.",
    answer="A score of zero is not a weight of zero: `exp(0) = 1`. Each input gives itself `exp(r^2)` and every other "
    "one 1, so `y_n - x_n` has the length `r*sqrt(N*(N-1))/(exp(r^2)+N-1)`. That is small only when `exp(r^2)` is "
    "large against N; it is zero only for N = 1 or in the limit.",
    figure=orthogonal_figure,
    parts=[
        Part("equal", "If the inputs are orthogonal, then `y_n = x_n`.", Truth("nearly",
             "there is one input alone, or `exp(r^2)` is so much larger than N that the rest is rounded away"),
             "numeric", orthogonal_equal,
             why="Softmax gives every input something, also those that have nothing in common with the query.",
             wrong={"took a score of zero for a weight of zero": True}),
        Part("own-weight", "How much of `x_n` is in `y_n`?", Formula("exp(r^2)/(exp(r^2)+N-1)", OF_INPUTS), "numeric",
             own_weight, why="Its own score is `r^2`, the other N - 1 are 0.",
             wrong={"took a score of zero for a weight of zero": "1",
                    "left out the others' part of the sum": "exp(r^2)/N",
                    "counted itself twice": "exp(r^2)/(exp(r^2)+N)", "took r for its square": "exp(r)/(exp(r)+N-1)"}),
        Part("error", "How long is `y_n - x_n`, relative to `x_n`?", Formula("sqrt(N*(N-1))/(exp(r^2)+N-1)", OF_INPUTS),
             "numeric", orthogonal_error,
             why="With `b = 1/(exp(r^2)+N-1)`, `x_n` loses `(N-1)*b` of itself and gains b of each of N - 1 others, "
             "all at right angles: `b*sqrt((N-1)^2 + (N-1)) = b*sqrt(N*(N-1))`.",
             wrong={"forgot that x_n itself shrinks": "sqrt(N-1)/(exp(r^2)+N-1)",
                    "forgot what comes from the others": "(N-1)/(exp(r^2)+N-1)",
                    "added lengths as if the others were parallel": "2*(N-1)/(exp(r^2)+N-1)"}),
        Part("one-percent", "Ten inputs: which length r brings that error down to 0.01?",
             Number("sqrt(log(100*sqrt(90)-9))", rel=1e-4), "numeric", length_for_one_percent,
             why="Solve `sqrt(90)/(exp(r^2)+9) = 0.01` for r.",
             wrong={"forgot to take the root of the logarithm": "log(100*sqrt(90)-9)",
                    "asked for 0.1": "sqrt(log(10*sqrt(90)-9))"}),
        Part("zero", "For orthogonal inputs of any lengths, once the lengths other than zero are large, every `y_n` is "
             "close to `x_n`.", Truth("false"), "numeric", zero_input,
             why="A zero vector is orthogonal to everything. All its scores are equal, so it gets the mean of all "
             "inputs.", wrong={"forgot that zero is orthogonal to everything, itself included": True}),
    ],
)  # fmt: skip


def one_head(D: int, value_DD: Tensor) -> Heads:
    """A layer with one head whose output matrix does nothing."""
    one_DD = torch.eye(D, dtype=torch.float64)
    return Heads(1, one_DD, one_DD, value_DD, one_DD)


def _matrix(N: int, D: int, value_DD: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The matrix that attention is for its inputs, and its map."""
    generator = torch.Generator().manual_seed(N * D)
    a_NN = torch.randn(N, N, generator=generator, dtype=torch.float64).softmax(-1)
    whole = layer_matrix(a_NN[None], one_head(D, torch.eye(D, dtype=torch.float64) if value_DD is None else value_DD))
    return whole.matrix, a_NN


def which_block() -> Finding:
    N, D = 4, 3
    matrix, a_NN = _matrix(N, D)
    block = matrix.unflatten(0, (N, D)).unflatten(2, (N, D))[1, :, 2]  # from token 2 to token 1
    shapes = {"identity": a_NN[1, 2] * torch.eye(D, dtype=torch.float64), "full": a_NN[1, 2].expand(D, D),
              "map": a_NN[:D, :D]}  # fmt: skip
    [found] = [name for name, shape in shapes.items() if torch.equal(block, shape)]
    return Finding(
        found,
        f"the matrix of a layer with {N} tokens of width {D}, made by octavo; block (2, 3) was compared",
        "exactly the same",
    )


def count_entries() -> Finding:
    sizes = [(2, 3), (4, 3), (5, 8), (7, 1)]
    found = [int(_matrix(N, D)[0].count_nonzero()) for N, D in sizes]
    return Finding(
        [IntervalAt({"N": N, "D": D}, x, x) for (N, D), x in zip(sizes, found, strict=True)],
        "counted in the matrices of four layers made by octavo",
    )


def count_different() -> Finding:
    sizes = [(2, 3), (4, 3), (5, 8), (7, 2)]
    found = [len(set(_matrix(N, D)[0].flatten().tolist()) - {0.0}) for N, D in sizes]
    return Finding(
        [IntervalAt({"N": N, "D": D}, x, x) for (N, D), x in zip(sizes, found, strict=True)],
        "different numbers other than zero, counted in the matrices of four layers made by octavo",
    )


def still_sparse() -> Finding:
    N, D = 4, 3
    generator = torch.Generator().manual_seed(0)
    value_DD = torch.randn(D, D, generator=generator, dtype=torch.float64)
    matrix, a_NN = _matrix(N, D, value_DD)
    kron = torch.equal(matrix, torch.kron(a_NN, value_DD))
    filled = int(matrix.count_nonzero())
    note = f"a random value matrix: {filled} of {matrix.numel()} entries are not zero; it is the map ⊗ W_v: {kron}"
    return Finding(verdict(filled < matrix.numel()), note)


def matrix_figure() -> str:
    N, D = 4, 3
    value_DD = torch.randn(D, D, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    plain, a_NN = _matrix(N, D)
    return shaded_matrices(
        [
            (title, m_NM.tolist())
            for title, m_NM in (("the map A", a_NN), ("A ⊗ I", plain), ("A ⊗ W_v", _matrix(N, D, value_DD)[0]))
        ],
        f"{N} tokens of width {D}: the map, and the large matrix of Y = A X and of Y = A X W_v. The stronger a cell's "
        "colour, the larger its number in size; empty cells are zero.",
    )


IN_ND = {"N": "whole", "D": "whole"}
MATRIX = Exercise(
    id="one-matrix",
    title="Self-attention as one large matrix",
    question="With its map A held fixed, attention `Y = A*X` of N tokens of width D is a linear layer on all N D "
    "numbers at once. What does its N D × N D matrix look like?",
    answer="It is `kron(A, I)`: block (n, m) is `a_n_m*I`. Of `N^2*D^2` entries only `N^2*D` can differ from zero, a "
    "share of `1/D`, and each of the `N^2` weights stands there D times. A value matrix makes every block `a_n_m*W_v`: "
    "no longer sparse, but still one D × D matrix shared by all pairs of tokens.",
    figure=matrix_figure,
    parts=[
        Part("block", "What is the block from token m to token n?", Choice("identity",
             {"identity": "`a_n_m*I`", "full": "`a_n_m` in every place", "map": "the map A itself"}), "numeric",
             which_block,
             why="`y_n` takes each of its D numbers from the same place of `x_m`, all with the same weight."),
        Part("entries", "How many entries can differ from zero?", Formula("N^2*D", IN_ND), "counted", count_entries,
             why="There are `N^2` blocks, and each has only its diagonal.",
             wrong={"counted all of them, as in a fully connected layer": "N^2*D^2", "counted the map once": "N^2",
                    "counted one block per token": "N*D^2"}),
        Part("different", "How many different numbers other than zero are there?", Formula("N^2", IN_ND), "counted",
             count_different, why="The weights are shared: each `a_n_m` stands D times in its block.",
             wrong={"forgot that the diagonal repeats one number": "N^2*D", "one row of the map is not all": "N"}),
        Part("values", "With a value matrix `W_v` in between, `Y = A*X*W_v`, the large matrix is still sparse.",
             Truth("false"), "counted", still_sparse,
             why="Block (n, m) becomes `a_n_m` times `W_v` (transposed, where tokens are columns): every entry is "
             "filled. What stays is the sharing: `N^2 + D^2` numbers describe `N^2*D^2` entries.",
             wrong={"mixed up sparse with shared": True}),
    ],
)  # fmt: skip


def one_by_one() -> Finding:
    generator = torch.Generator().manual_seed(0)
    T, S, K, V = 5, 7, 4, 3
    q, k, v = (
        torch.randn(1, 1, n, size, generator=generator, dtype=torch.float64) for n, size in ((T, K), (S, K), (S, V))
    )
    together = attend_reference(q, k, v)[0, 0]
    rows = []
    for t in range(T):
        scores = [(q[0, 0, t] @ k[0, 0, s]).item() / math.sqrt(K) for s in range(S)]
        total = sum(map(math.exp, scores))
        rows.append(sum(math.exp(score) / total * v[0, 0, s] for s, score in enumerate(scores)))
    error = (together - torch.stack(rows)).abs().max().item()  # type: ignore[arg-type]
    return Finding(
        verdict(error < 1e-14),
        f"{T} queries over {S} keys, one at a time in plain Python: they differ by {error:.0e}",
        "to 1e-14",
    )


def which_axis() -> Finding:
    generator = torch.Generator().manual_seed(0)
    e_TS = torch.randn(3, 5, generator=generator, dtype=torch.float64)
    rows, columns, both = e_TS.softmax(-1), e_TS.softmax(-2), e_TS.flatten().softmax(-1).view(3, 5)
    sums = {"keys": rows.sum(-1), "queries": columns.sum(-1), "both": both.sum(-1)}
    [found] = [name for name, total in sums.items() if torch.allclose(total, torch.ones(3, dtype=torch.float64))]
    return Finding(found, "only one of the three gives every query weights that add up to one", "to 1e-8")


def multiplications() -> Finding:
    found = []
    for T, S, K, V in ((1, 7, 4, 4), (5, 7, 4, 3), (2, 3, 8, 5)):
        q, k, v = torch.ones(1, 1, T, K), torch.ones(1, 1, S, K), torch.ones(1, 1, S, V)
        with FlopCounterMode(display=False) as counter:
            attend_reference(q, k, v)
        x = counter.get_total_flops() / 2
        found.append(IntervalAt({"T": T, "S": S, "d": K, "v": V}, x, x))
    return Finding(found, "torch counts the operations of octavo's attention: a multiplication and an addition are two")


def many_figure() -> str:
    generator = torch.Generator().manual_seed(0)
    e_TS = 2 * torch.randn(5, 8, generator=generator, dtype=torch.float64)
    return shaded_matrices(
        [("over the keys", e_TS.softmax(-1).tolist()), ("over the queries", e_TS.softmax(-2).tolist())],
        "5 queries (rows) and 8 keys (columns), random scores. On the left every row adds up to one, which is "
        "attention; on the right every column does.",
    )


MANY = Exercise(
    id="matrix-form",
    title="Many queries at once",
    question="T queries of size d look at S keys of the same size, whose values have size v. Stacked as rows they are "
    "the matrices Q, K and V.",
    answer="`Y = softmax(Q*T(K)/sqrt(d))*V`, where the softmax runs along each row, over the keys. Each query's row is "
    "what it would be alone: queries do not see each other.",
    figure=many_figure,
    parts=[
        Part("same", "Row t of `softmax(Q*T(K)/sqrt(d))*V` is what query t alone would get.", Truth("true"), "numeric",
             one_by_one,
             why="Row t of the scores holds only query t; softmax works row by row; and row t of a product uses only "
             "row t of its left factor.", wrong={"thought that queries compete with each other": False}),
        Part("axis", "Along what does the softmax add up to one?", Choice("keys",
             {"keys": "over the keys, for each query", "queries": "over the queries, for each key",
             "both": "over all pairs"}), "numeric", which_axis,
             why="The weights of one query are a distribution over what it can look at."),
        Part("multiplications", "How many multiplications do the two matrix products take?",
             Formula("T*S*(d+v)", {"T": "whole", "S": "whole", "d": "whole", "v": "whole"}), "counted", multiplications,
             why="`T*S` scores of d products each, then `T*v` sums over S values each.",
             wrong={"counted the scores alone": "T*S*d", "took the products one after the other as one": "T*S*d*v"}),
    ],
)  # fmt: skip

EXERCISES = (ORTHOGONAL, MATRIX, MANY)
