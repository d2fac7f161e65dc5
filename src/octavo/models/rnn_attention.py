"""A recurrent network with attention to its own earlier states.

B batch, T time, M remembered states, D hidden units, V vocabulary, G = gates × D.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from octavo.config import LengthOrZero, Share, Width, check_ranges
from octavo.models.cost.parts import Cache, Cost, Part, Shape, linear
from octavo.models.parts.checks import check_choices
from octavo.models.recurrent import TAPS, Embedded, Init, Layer, gates_view, init_matrix, short_budget, vocabulary_part
from octavo.models.spec import Candidate, ModelSpec
from octavo.models.views import GRADIENT_FLOW, MEMORY_ATTENTION
from octavo.ops.attention.scores import ScoreKind, additives, dots, scaled_dots, weighted_sum
from octavo.ops.recurrent import AFTER, GATES

State = tuple[Tensor, Tensor]  # h_BD, and the memory of the states so far, memory_BMD


@dataclass(frozen=True)
class RNNAttentionConfig:
    """How a recurrent network with self-attention is made."""

    cell: Literal["rnn", "gru"] = "rnn"
    """The recurrent step."""
    width: Width = 256
    """Hidden units, and the size of a token's embedding."""
    dropout: Share = 0.0
    """The share of values dropped while training: of embeddings and before the output."""
    tied: bool = True
    """Take the embeddings as output weights too; --no-tied gives the output weights of its own."""
    score: ScoreKind = "scaled"
    """How a state is matched with an earlier one: s·h, s·h / sqrt(D), or v·tanh(W s + U h)."""
    memory: LengthOrZero = 64
    """Number of earlier states that it attends to; 0: all."""
    norm: bool = True
    """Bring each state to a mean square of one before it is used; --no-norm lets h = s + a grow step by step."""
    init: Init = "orthogonal"
    """How the recurrent matrices are drawn, gate by gate; the others are he with he, otherwise xavier."""

    def __post_init__(self) -> None:
        check_ranges(self)
        check_choices(self)


class RNNAttention(Embedded):
    """s_t = RNN(x_t, h_{t-1}); a_t = the earlier states h_1 .. h_{t-1}, weighted by their match with s_t;
    h_t = s_t + a_t, with a_1 = 0.

    When a_t is the state before, h_t is that plus s_t, and so on without bound; so with `norm` every h is scaled to a
    mean square of one.
    """

    config: RNNAttentionConfig

    def __init__(self, config: RNNAttentionConfig, vocab: int) -> None:
        super().__init__(config, vocab)
        D = config.width
        self.recurrent = Layer(config.cell, D, D)
        if config.score == "additive":
            self.query_DD = nn.Parameter(torch.empty(D, D))
            self.key_DD = nn.Parameter(torch.empty(D, D))
            self.score_D = nn.Parameter(torch.empty(D))

    def initialise(self, generator: torch.Generator) -> None:
        super().initialise(generator)
        self.recurrent.initialise(self.config.init, 0.0, generator)
        if self.config.score == "additive":
            init_matrix(self.query_DD, "xavier", generator)
            init_matrix(self.key_DD, "xavier", generator)
            init_matrix(self.score_D, "normal", generator)

    def start(self, batch: int) -> State:
        D = self.config.width
        return self.embedding_VD.new_zeros(batch, D), self.embedding_VD.new_zeros(batch, 0, D)

    def embed(self, x: Tensor) -> Tensor:
        """Of a mean square near one, as the states are: else an input would drown in the state beside it."""
        return super().embed(x) * math.sqrt(self.config.width)

    def absorb(self, state: State, x_BT: Tensor) -> tuple[Tensor, State]:
        h_BD, memory_BMD = state
        if not x_BT.shape[1]:
            return self.logits(h_BD[:, None][:, :0]), state
        w = self.recurrent.weights
        Wx_TBG = F.linear(self.embed(x_BT.t()), w.ih_GI, w.bias_ih_G)
        keys_BMD = self._keys(memory_BMD)
        h_TBD = []
        for Wx_BG in Wx_TBG.unbind(0):
            s_BD = AFTER[self.config.cell](Wx_BG, h_BD, w)
            h_BD = self._scaled(s_BD + weighted_sum(self._scores(s_BD, keys_BMD), memory_BMD))
            memory_BMD = self._remember(memory_BMD, h_BD)
            keys_BMD = self._remember(keys_BMD, self._keys(h_BD)) if self.config.score == "additive" else memory_BMD
            h_TBD.append(h_BD)
        return self.logits(self.drop(torch.stack(h_TBD, 1))), (h_BD, memory_BMD)

    def name_state_parts(self, grads: list[Tensor]) -> dict[str, list[Tensor]]:
        """Gradients with respect to the state and to what the memory holds besides."""
        h_1D, memory_1MD = grads
        if memory_1MD.shape[1]:
            h_1D = h_1D + memory_1MD[:, -1]  # the newest in the memory is h itself: later steps see it on both ways
        # What else the memory holds are the states of earlier steps: each counts for the step that it comes from.
        return {"state": [h_1D], "memory": [memory_1MD[:, :-1]]}

    def _scaled(self, h_BD: Tensor) -> Tensor:
        return F.rms_norm(h_BD, h_BD.shape[-1:]) if self.config.norm else h_BD

    def _keys(self, h: Tensor) -> Tensor:
        """What queries are matched with: U h, or h itself."""
        return F.linear(h, self.key_DD) if self.config.score == "additive" else h

    def _scores(self, s_BD: Tensor, keys_BMD: Tensor) -> Tensor:
        s_B1D = s_BD[:, None]  # one query a row
        if self.config.score == "additive":
            return additives(F.linear(s_B1D, self.query_DD), keys_BMD, self.score_D)[:, 0]
        return (dots if self.config.score == "dot" else scaled_dots)(s_B1D, keys_BMD)[:, 0]

    def _remember(self, memory_BMD: Tensor, new_BD: Tensor) -> Tensor:
        """The memory with one state more, and without the oldest where that is one too many."""
        oldest = 1 if 0 < self.config.memory <= memory_BMD.shape[1] else 0
        return torch.cat([memory_BMD[:, oldest:], new_BD[:, None]], 1)


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


SPEC = ModelSpec(
    "rnn-attention", "recurrent network with attention", "a recurrent network with attention to its past states",
    "recurrent", RNNAttention, RNNAttentionConfig, cost=attentive_cost,
    views=(MEMORY_ATTENTION, gates_view(*TAPS["lstm"], *TAPS["gru"][:2]), GRADIENT_FLOW),
    candidates=lambda seconds, device: [
        Candidate("rnn-attention", "recurrent network with attention", "rnn-attention", short_budget(seconds))
    ],
    summarise=lambda model, tokens:
        f"{model.config.cell.upper()} with attention, of {tokens}, {model.config.width} units",
    equation="""s_t = RNN(x_t, h_{t-1})
a_t = Σ_i softmax_i(s_t · h_i / √D) h_i, over the last M states before t; a_1 = 0
h_t = norm(s_t + a_t)
p(x_{t+1} | x_1 .. x_t) = softmax(E h_t + b)""",
)  # fmt: skip
