"""Permutation: what attention does when its tokens change places, step by step of the proof.

N tokens, D width. P is a permutation matrix: P X has the rows of X in another order.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations

import torch
from torch import Tensor

from octavo.exercises import Exercise, Finding, Part, Truth, verdict
from octavo.exercises.topics.heads import random_heads, random_tokens
from octavo.ops.attention import CAUSAL, FULL, Pattern
from octavo.ops.attention.multi_head import concatenated, maps, queries_and_keys
from octavo.ops.positions import added, sinusoids
from octavo.pages.figures.matrices import shaded_matrices

N, D, H = 4, 6, 2
EXACT = 1e-13  # what float64 may lose by adding in another order


def orders() -> list[Tensor]:
    """All 24 permutation matrices of four tokens."""
    return [torch.eye(N, dtype=torch.float64)[list(order)] for order in permutations(range(N))]


def worst(difference: Callable[[Tensor], Tensor]) -> float:
    """The largest difference over all orders."""
    return max(difference(p_NN).abs().max().item() for p_NN in orders())


def _told(error: float, what: str) -> Finding:
    return Finding(
        verdict(error < EXACT),
        f"all 24 orders of 4 random tokens: {what} differ by at most {error:.0e}",
        f"to {EXACT:g}",
    )


def rows_move() -> Finding:
    x_ND, w_DD = random_tokens(N, D)[0], random_heads(D, 1).query_DD
    return _told(worst(lambda p: (p @ x_ND) @ w_DD.T - p @ (x_ND @ w_DD.T)), "(P X) W and P (X W)")


def scores_move() -> Finding:
    q, k = queries_and_keys(random_tokens(N, D), random_heads(D, 1))
    q_NK, k_NK = q[0, 0], k[0, 0]
    return _told(worst(lambda p: (p @ q_NK) @ (p @ k_NK).T - p @ (q_NK @ k_NK.T) @ p.T), "P Q (P K)ᵀ and P (Q Kᵀ) Pᵀ")


def softmax_moves() -> Finding:
    e_NN = random_tokens(N, N)[0]
    return _told(
        worst(lambda p: (p @ e_NN @ p.T).softmax(-1) - p @ e_NN.softmax(-1) @ p.T), "softmax(P S Pᵀ) and P A Pᵀ"
    )


def inverse() -> Finding:
    same = all(torch.equal(p.T @ p, torch.eye(N, dtype=torch.float64)) for p in orders())
    return Finding(verdict(same), "Pᵀ P was the identity, exactly, for all 24")


def product_moves() -> Finding:
    a_NN, v_ND = random_tokens(N, N)[0].softmax(-1), random_tokens(N, D, 2)[0]
    return _told(worst(lambda p: (p @ a_NN @ p.T) @ (p @ v_ND) - p @ (a_NN @ v_ND)), "(P A Pᵀ)(P V) and P (A V)")


def layer_error(heads: int, pattern: Pattern = FULL, positions: bool = False) -> float:
    """How far a whole layer is from carrying every order over to its output."""
    w, x_1ND = random_heads(D, heads), random_tokens(N, D)
    p_ND = sinusoids(torch.arange(N), D, dtype=torch.float64) if positions else torch.zeros(N, D, dtype=torch.float64)

    def output(x: Tensor) -> Tensor:
        return concatenated(added(x, p_ND), w, pattern, path="plain")[0]

    return worst(lambda p: output((p @ x_1ND[0])[None]) - p @ output(x_1ND))


def one_head_layer() -> Finding:
    return _told(layer_error(1), "octavo's layer with one head, and its output reordered,")


def multi_head_layer() -> Finding:
    return _told(layer_error(H), "octavo's layer with two heads, and its output reordered,")


def invariant() -> Finding:
    w, x_1ND = random_heads(D, H), random_tokens(N, D)
    y_ND = concatenated(x_1ND, w, path="plain")[0]
    moved = worst(lambda p: concatenated((p @ x_1ND[0])[None], w, path="plain")[0] - y_ND)
    mean = worst(lambda p: concatenated((p @ x_1ND[0])[None], w, path="plain")[0].mean(0) - y_ND.mean(0))
    note = f"all 24 orders: the output changes by up to {moved:.2f}, the mean of its rows by {mean:.0e}"
    return Finding(verdict(moved < EXACT), note, f"to {EXACT:g}")


def with_positions() -> Finding:
    return _told(layer_error(H, positions=True), "with sinusoids added, outputs")


def with_mask() -> Finding:
    return _told(layer_error(H, CAUSAL), "with a causal mask, outputs")


def order_figure() -> str:
    w, x_1ND = random_heads(D, 1), 2 * random_tokens(N, D)
    p_NN = orders()[9]
    before, after = maps(x_1ND, w)[0, 0], maps((p_NN @ x_1ND[0])[None], w)[0, 0]
    masked = maps((p_NN @ x_1ND[0])[None], w, CAUSAL)[0, 0]
    return shaded_matrices(
        [("A", before.tolist()), ("A of P X", after.tolist()), ("with a mask", masked.tolist())],
        "The map of four tokens, that of the same tokens in another order, and the latter under a causal mask. The "
        "second is the first with rows and columns reordered; the mask is not.",
    )


PERMUTATION = Exercise(
    id="permutation",
    title="Attention does not know the order",
    question="P puts tokens in another order. Show that self-attention carries the order over, `Y(P*X) = P*Y(X)`, by "
    "checking every step; then say what still holds when a transformer adds the rest.",
    answer="`(P*X)*W = P*(X*W)` for queries, keys and values; `P*Q*T(P*K) = P*(Q*T(K))*T(P)`; softmax by rows gives "
    "`P*A*T(P)`; and `P*A*T(P)*P*V = P*(A*V)` because `T(P)*P = I`. This is equivariance, not invariance: the outputs "
    "move with their tokens. Positions or a causal mask break it, and that is what they are for.",
    figure=order_figure,
    parts=[
        Part("projections", "Step 1. Queries of reordered tokens are the reordered queries: `(P*X)*W = P*(X*W)`.",
             Truth("true"), "numeric", rows_move,
             why="A product of matrices may be bracketed either way. The same W serves every token.",
             wrong={"thought that W would have to be reordered too": False}),
        Part("scores", "Step 2. Scores are reordered by rows and columns: `(P*Q)*T(P*K) = P*(Q*T(K))*T(P)`.",
             Truth("true"), "numeric", scores_move, why="`T(P*K) = T(K)*T(P)`: rows are queries, columns are keys.",
             wrong={"thought that only the rows move": False}),
        Part("softmax", "Step 3. Softmax by rows carries that over: `softmax(P*S*T(P)) = P*softmax(S)*T(P)`.",
             Truth("true"), "numeric", softmax_moves,
             why="Reordering columns leaves each row's sum as it is; reordering rows moves whole rows.",
             wrong={"thought that a softmax depends on the order of its scores": False}),
        Part("inverse", "Step 4. `T(P)*P = I`.", Truth("true"), "exact", inverse,
             why="Every row and column of P has a single one, so its columns are orthogonal and of length one.",
             wrong={"took P for its own inverse, which holds for swaps alone, and doubted this": False}),
        Part("values", "Step 5. So the weighted sums move with their tokens: `(P*A*T(P))*(P*V) = P*(A*V)`.",
             Truth("true"), "numeric", product_moves, why="The two in the middle, `T(P)*P`, cancel.",
             wrong={"reordered twice": False}),
        Part("layer", "Together: a self-attention layer with one head carries any order over to its output.",
             Truth("true"), "numeric", one_head_layer,
             why="Steps 1 to 5 in turn: queries, keys and values move, so scores move, so weights move, so sums move.",
             wrong={"mixed up a layer with a layer that has positions": False}),
        Part("multi-head", "A multi-head layer does so too.", Truth("true"), "numeric", multi_head_layer,
             why="Each head does, heads are set side by side row by row, and `W_o` is step 1 again.",
             wrong={"thought that heads share out the tokens": False}),
        Part("invariant", "So the output of a self-attention layer does not change when the tokens are reordered.",
             Truth("false"), "numeric", invariant,
             why="Its rows change places with their tokens. What does not change is what ignores the order of rows, "
             "such as their mean.", wrong={"took equivariant for invariant": True}),
        Part("positions", "It carries any order over even when positions are added to the tokens.", Truth("false"),
             "numeric", with_positions,
             why="Positions stay where they are when tokens move: `P*X + E` is not `P*(X + E)`.",
             wrong={"moved the positions along with the tokens": True}),
        Part("causal", "It carries any order over even under a causal mask.", Truth("false"), "numeric", with_mask,
             why="The mask stays where it is, so a token that moves to the front sees less. A causal model has some "
             "sense of order without any positions.", wrong={"took the mask for part of the map that moves": True}),
    ],
)  # fmt: skip

EXERCISES = (PERMUTATION,)
