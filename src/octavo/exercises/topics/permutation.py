"""Permutation equivariance of attention, checked for every step of the proof.

N tokens, D width. P is a permutation matrix: P X has the rows of X in another order.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations

import torch
from torch import Tensor

from octavo.exercises import Choice, Exercise, Finding, Part, Truth, verdict
from octavo.exercises.topics.heads import random_heads, random_tokens
from octavo.ops.attention import CAUSAL, FULL, Pattern
from octavo.ops.attention.multi_head import concatenated, maps, queries_and_keys
from octavo.ops.positions import added, sinusoids
from octavo.pages.figures.shaded_cells import shaded_matrices

N, D, H = 4, 6, 2
TOLERANCE = 1e-13  # for float64 sums in another order


def permutation_matrices() -> list[Tensor]:
    """All 24 permutation matrices of four tokens."""
    return [torch.eye(N, dtype=torch.float64)[list(order)] for order in permutations(range(N))]


def largest_difference(difference: Callable[[Tensor], Tensor]) -> float:
    """The largest difference over all permutations."""
    return max(difference(p_NN).abs().max().item() for p_NN in permutation_matrices())


def _always_equal(what: str, difference: Callable[[Tensor], Tensor]) -> Finding:
    error = largest_difference(difference)
    note = f"all 24 permutations of 4 random tokens: {what} differ by at most {error:.0e}"
    return Finding(verdict(error < TOLERANCE), note, f"to {TOLERANCE:g}")


def projections_commute() -> Finding:
    x_ND, w_DD = random_tokens(N, D)[0], random_heads(D, 1).query_DD
    return _always_equal("(P X) W and P (X W)", lambda p: (p @ x_ND) @ w_DD.T - p @ (x_ND @ w_DD.T))


def scores_commute() -> Finding:
    q_NK, k_NK = (x[0, 0] for x in queries_and_keys(random_tokens(N, D), random_heads(D, 1)))
    return _always_equal("P Q (P K)ᵀ and P (Q Kᵀ) Pᵀ", lambda p: (p @ q_NK) @ (p @ k_NK).T - p @ (q_NK @ k_NK.T) @ p.T)


def softmax_commutes() -> Finding:
    e_NN = random_tokens(N, N)[0]
    return _always_equal(
        "softmax(P S Pᵀ) and P A Pᵀ", lambda p: (p @ e_NN @ p.T).softmax(-1) - p @ e_NN.softmax(-1) @ p.T
    )


def inverse() -> Finding:
    same = all(torch.equal(p.T @ p, torch.eye(N, dtype=torch.float64)) for p in permutation_matrices())
    return Finding(verdict(same), "Pᵀ P is exactly the identity for all 24")


def weighted_sums_commute() -> Finding:
    a_NN, v_ND = random_tokens(N, N)[0].softmax(-1), random_tokens(N, D, 2)[0]
    return _always_equal("(P A Pᵀ)(P V) and P (A V)", lambda p: (p @ a_NN @ p.T) @ (p @ v_ND) - p @ (a_NN @ v_ND))


def layer_commutes(what: str, heads: int, pattern: Pattern = FULL, positions: bool = False) -> Finding:
    """Whether a whole layer is permutation-equivariant."""
    w, x_1ND = random_heads(D, heads), random_tokens(N, D)
    p_ND = sinusoids(torch.arange(N), D, dtype=torch.float64) if positions else torch.zeros(N, D, dtype=torch.float64)

    def output(x: Tensor) -> Tensor:
        return concatenated(added(x, p_ND), w, pattern, path="plain")[0]

    return _always_equal(what, lambda p: output((p @ x_1ND[0])[None]) - p @ output(x_1ND))


def invariant() -> Finding:
    w, x_1ND = random_heads(D, H), random_tokens(N, D)
    y_ND = concatenated(x_1ND, w, path="plain")[0]
    moved = largest_difference(lambda p: concatenated((p @ x_1ND[0])[None], w, path="plain")[0] - y_ND)
    mean = largest_difference(lambda p: concatenated((p @ x_1ND[0])[None], w, path="plain")[0].mean(0) - y_ND.mean(0))
    note = f"all 24 permutations: the output changes by up to {moved:.2f}, the mean of its rows by {mean:.0e}"
    return Finding(verdict(moved < TOLERANCE), note, f"to {TOLERANCE:g}")


def order_figure() -> str:
    w, x_1ND = random_heads(D, 1), 2 * random_tokens(N, D)
    p_NN = permutation_matrices()[9]
    before, after = maps(x_1ND, w)[0, 0], maps((p_NN @ x_1ND[0])[None], w)[0, 0]
    masked = maps((p_NN @ x_1ND[0])[None], w, CAUSAL)[0, 0]
    return shaded_matrices(
        [("A", before), ("A of P X", after), ("with a mask", masked)],
        "The attention weights of four tokens, of the same tokens permuted, and of the latter with a causal mask. "
        "The second is the first with permuted rows and columns; the mask is not permuted.",
    )


PERMUTATION = Exercise(
    where={}, id="permutation", title="Attention ignores the order of its tokens", figure=order_figure,
    question="P is a permutation matrix, so P X has the tokens of X in another order. Show that self-attention is "
    "equivariant, `Y(P*X) = P*Y(X)`, by checking every step. Which statements still hold with the other parts of a "
    "transformer?",
    answer="`(P*X)*W = P*(X*W)` for queries, keys and values; `P*Q*T(P*K) = P*(Q*T(K))*T(P)`; row-wise softmax gives "
    "`P*A*T(P)`; and `P*A*T(P)*P*V = P*(A*V)` because `T(P)*P = I`. This is equivariance, not invariance: the "
    "outputs are permuted with their tokens. Positions and causal masks break it, so that the model can use the "
    "order.",
    parts=[
        Part("projections", "First step: the queries of permuted tokens are the permuted queries: `(P*X)*W = P*(X*W)`.",
             Truth("true"), "numeric", projections_commute,
             why="Matrix multiplication is associative. The same W is used for every token.",
             wrong={"thought that W must be permuted too": False}),
        Part("scores", "Second step: the rows and columns of the scores are permuted: `(P*Q)*T(P*K) = "
             "P*(Q*T(K))*T(P)`.",
             Truth("true"), "numeric", scores_commute, why="`T(P*K) = T(K)*T(P)`: rows are queries, columns are keys.",
             wrong={"thought that only the rows are permuted": False}),
        Part("softmax", "Third step: row-wise softmax commutes with that: `softmax(P*S*T(P)) = P*softmax(S)*T(P)`.",
             Truth("true"), "numeric", softmax_commutes,
             why="Permuting columns keeps the sum of each row; permuting rows moves whole rows.",
             wrong={"thought that a softmax depends on the order of its scores": False}),
        Part("inverse", "Fourth step: `T(P)*P = I`.", Truth("true"), "exact", inverse,
             why="Every row and column of P has a single one, so its columns are orthonormal.",
             wrong={"thought that P is its own inverse, which holds only for swaps": False}),
        Part("values", "Fifth step: so the weighted sums are permuted with their tokens: `(P*A*T(P))*(P*V) = P*(A*V)`.",
             Truth("true"), "numeric", weighted_sums_commute, why="`T(P)*P` in the middle is the identity.",
             wrong={"permuted twice": False}),
        Part("layer", "Together: a self-attention layer with one head is permutation-equivariant.", Truth("true",
            Choice("", {
             "swap": "the permutation swaps two tokens",
             "distinct": "no two tokens are equal", "unscaled": "the scores are not scaled"})),
             "numeric", lambda: layer_commutes("the outputs of octavo's layer with one head", 1),
             why="All five steps: queries, keys and values are permuted, hence the scores, the attention weights and "
             "the weighted sums.", wrong={"confused it with a layer that has positions": False}),
        Part("multi-head", "A multi-head layer is permutation-equivariant too.", Truth("true", Choice("", {
             "two": "there are exactly two heads",
             "swap": "the permutation swaps two tokens", "distinct": "no two tokens are equal"})), "numeric",
             lambda: layer_commutes("the outputs of octavo's layer with two heads", H),
             why="Each head is, heads are concatenated row by row, and `W_o` is the first step again.",
             wrong={"thought that each head handles some of the tokens": False}),
        Part("invariant", "The output of a self-attention layer does not change when the tokens are permuted.",
             Truth("false"), "numeric", invariant,
             why="Its rows are permuted with their tokens. Only functions that ignore the order of rows, such as "
             "their mean, do not change.", wrong={"confused equivariant with invariant": True}),
        Part("positions", "Self-attention is permutation-equivariant even when positions are added to the "
             "tokens.", Truth("false"),
             "numeric", lambda: layer_commutes("with sinusoidal positions, outputs", H, positions=True),
             why="Positions are not permuted with the tokens: `P*X + E` is not `P*(X + E)`.",
             wrong={"permuted the positions along with the tokens": True}),
        Part("causal", "Self-attention is permutation-equivariant even with a causal mask.", Truth("false"), "numeric",
             lambda: layer_commutes("with a causal mask, outputs", H, CAUSAL),
             why="The mask is not permuted, so a token that moves to the front attends to fewer tokens. A causal "
             "model has some sense of order even without positions.",
             wrong={"thought that the mask is permuted too": True}),
    ])  # fmt: skip


def column_matrices() -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values of four tokens as columns, each D × N."""
    return tuple(random_tokens(N, D, seed)[0].T for seed in (1, 2, 3))  # type: ignore[return-value]


def column_scores() -> Finding:
    q_DN, k_DN, _ = column_matrices()
    s_NN = k_DN.T @ q_DN
    options: dict[str, Callable[[Tensor], Tensor]] = {
        "both": lambda p: p.T @ s_NN @ p, "unchanged": lambda p: s_NN, "right": lambda p: s_NN @ p,
    }  # fmt: skip
    errors = {name: largest_difference(lambda p: (k_DN @ p).T @ (q_DN @ p) - option(p))  # noqa: B023
              for name, option in options.items()}  # fmt: skip
    [found] = [name for name, error in errors.items() if error < TOLERANCE]
    listed = ", ".join(f"{name} {error:.0e}" for name, error in errors.items())
    return Finding(found, f"all 24 permutations of 4 random tokens, largest differences: {listed}", f"to {TOLERANCE:g}")


def column_layer(cancelled: bool) -> Finding:
    """Whether attention over permuted columns is permuted; `cancelled` leaves P out of the scores."""
    q_DN, k_DN, v_DN = column_matrices()
    y_DN = v_DN @ (k_DN.T @ q_DN).softmax(0)

    def difference(p_NN: Tensor) -> Tensor:
        scores = k_DN.T @ q_DN if cancelled else (k_DN @ p_NN).T @ (q_DN @ p_NN)
        return (v_DN @ p_NN) @ scores.softmax(0) - y_DN @ p_NN

    return _always_equal("the two sides", difference)


COLUMNS = Exercise(
    where={}, id="permutation-columns", title="Permutation equivariance with tokens as columns",
    question="Tokens are the columns of X, so `X*P` has them in another order. Self-attention is `Sa(X) = "
    "V*softmax(T(K)*Q)`, where the softmax runs down each column. Show that `Sa(X*P) = Sa(X)*P`.",
    answer="Keys, queries and values become `K*P`, `Q*P` and `V*P`, so the scores become `T(P)*T(K)*Q*P`: their rows "
    "and columns are permuted, and so are those of the attention weights `A`. Then `V*P*T(P)*A*P = V*A*P`, because "
    "`P*T(P) = I` meets between values and weights. Inside the scores P and its transpose do not meet: whoever "
    "cancels them there is left with `V*P*A`, which is not the permuted output.",
    parts=[
        Part("scores", "What are the scores of the permuted tokens, with `S = T(K)*Q`?",
             Choice("both", {"both": "`T(P)*S*P`", "unchanged": "S: the permutations cancel", "right": "`S*P`"}),
             "numeric", column_scores, why="`T(K*P)*(Q*P) = T(P)*(T(K)*Q)*P`; P stands on the outside."),
        Part("layer", "`Sa(X*P) = Sa(X)*P`.", Truth("true"), "numeric", lambda: column_layer(False),
             why="The weights become `T(P)*A*P`, and `(V*P)*(T(P)*A*P) = (V*A)*P`.",
             wrong={"thought that the softmax depends on the order of the keys": False}),
        Part("cancelled",
             "With unchanged scores, as if P cancelled inside them, `V*P*softmax(S)` is the permuted output as well.",
             Truth("false"), "numeric", lambda: column_layer(True),
             why="It gives every permuted value the weight of another token.",
             wrong={"cancelled matrices that are not next to each other": True}),
    ])  # fmt: skip

EXERCISES = (PERMUTATION, COLUMNS)
