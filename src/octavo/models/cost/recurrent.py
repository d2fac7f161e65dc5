"""What recurrent networks cost, part by part.

B batch, T new tokens, N = B × T, D hidden units, V vocabulary, G = gates × D, L layers, M remembered states.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from octavo.models.cost.parts import Cache, Cost, Part, Shape, linear, output, repeated
from octavo.ops.recurrent import GATES, Cell

if TYPE_CHECKING:
    from octavo.models.recurrent import RecurrentConfig
    from octavo.models.rnn_attention import RNNAttentionConfig


def recurrent_cost(cell: Cell, config: RecurrentConfig, V: int, shape: Shape) -> Cost:
    """W x and U h in every layer; in backpropagation through time each of them twice."""
    N, B, D = shape.tokens, shape.batch, config.width
    dropped = N * D if config.dropout else 0
    G = GATES[cell] * D
    # Saved are the states, with one before the first, and the gates.
    saved = {"rnn": N * D + B * D, "gru": 5 * N * D + B * D, "lstm": 7 * N * D + 2 * B * D}[cell]
    parts = (
        Part("embeddings", V * D, saved=N * D + dropped),
        repeated(linear("layers", N, [(G, D), (G, D)], bias=2 * G, saved=saved + dropped), config.layers),
        vocabulary_part(N, V, D, config.tied),
    )
    state = Cache(constant=config.layers * D * (2 if cell == "lstm" else 1))
    return Cost(cell, V, shape, parts, (state,))


def vocabulary_part(N: int, V: int, D: int, tied: bool) -> Part:
    """Logits with a bias, and the loss: its input laid out anew, log-probabilities in single precision, targets."""
    return replace(output(N, V, D, tied, bias=V), saved=N * D, saved_bytes=N * (4 * V + 8) + 4)


def attentive_cost(config: RNNAttentionConfig, V: int, shape: Shape) -> Cost:
    """A recurrent layer, and at each step attention to the states remembered by then."""
    N, B, D = shape.tokens, shape.batch, config.width
    G = GATES[config.cell] * D
    saved = N * D if config.cell == "rnn" else 8 * N * D - B * D
    layer = linear("layers", N, [(G, D), (G, D)], bias=2 * G, saved=saved)
    layer = replace(layer, backward=layer.backward - 2 * B * G * D)  # the state before the first has no gradient
    parts = (
        Part("embeddings", V * D, saved=N * D * (2 if config.dropout else 1)),
        layer,
        attention_part(config, shape),
        vocabulary_part(N, V, D, config.tied),
    )
    memory = Cache(per_token=D, tokens=config.memory or None, constant=D)
    return Cost("rnn-attention", V, shape, parts, (memory,))


def attention_part(config: RNNAttentionConfig, shape: Shape) -> Part:
    """Scores and sums over the memory: 2 D operations each for a state; additive ones also W s and U h.

    A sum over a single state is no product, and neither is what an additive score hands back to tanh.
    """
    N, B, D = shape.tokens, shape.batch, config.width
    memories = [remembered(config, shape.past + t) for t in range(shape.window)]
    attended = B * sum(memories)
    scores, sums = 2 * attended * D, 2 * B * sum(m for m in memories if m > 1) * D
    forward, backward = scores + sums, 2 * sums + (scores if config.score == "additive" else 2 * scores)
    carried = 2 * B * memories[0] * D  # the first token attends to carried states only, which have no gradient
    backward -= (carried if memories[0] > 1 else 0) + (0 if config.score == "additive" else carried)
    parameters = matrices = 0
    saved = N * (D + 1) * config.norm + N * D + attended * (D + 1)
    if config.score == "additive":
        before = B * remembered(config, shape.past)  # what is remembered is matched anew when tokens come
        forward += 4 * N * D * D + 2 * before * D * D
        backward += 8 * N * D * D - 4 * B * D * D + 2 * before * D * D  # the last state's key is for tokens to come
        parameters, matrices = 2 * D * D + D, 2 * D * D
        saved += attended * D + B * D
    return Part(
        "attention", parameters, matrices, read=parameters, forward=forward, needed=forward, backward=backward,
        saved=saved,
    )  # fmt: skip


def remembered(config: RNNAttentionConfig, tokens: int) -> int:
    """States that can be attended to after so many tokens."""
    return min(tokens, config.memory) if config.memory else tokens
