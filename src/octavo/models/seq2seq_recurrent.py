"""The recurrent network that translates: a bidirectional encoder, and a decoder that attends to it.

B rows, S tokens of the source, T new tokens of the target, D width, E = 2 D, what both directions say of a token.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from octavo.config import Context, Layers, Share, Width, check_ranges
from octavo.core import map_state
from octavo.models.cost.parts import Cost, Part, Shape, linear, output, repeated
from octavo.models.encoder_decoder import EncoderDecoder, Memory, Sizes, embeddings_part
from octavo.models.parts.checks import check_choices
from octavo.models.recurrent import Init, Layer, init_matrix
from octavo.models.seq2seq import ALIGNMENT
from octavo.models.spec import ModelSpec
from octavo.ops.attention.scores import additives, dots
from octavo.ops.bidirectional import both_directions
from octavo.ops.recurrent import GATES, layer
from octavo.ops.tracing import tap

State = tuple[Any, ...]  # for each layer of the decoder h_BD, or (h_BD, c_BD) of an LSTM


@dataclass(frozen=True)
class RecurrentSeq2SeqConfig:
    """How a recurrent encoder and decoder with attention are made."""

    cell: Literal["gru", "lstm"] = "gru"
    """The recurrent step."""
    width: Width = 256
    """Hidden units of each layer and direction, and the size of a token's embedding."""
    layers: Layers = 1
    """Layers of the encoder, each in both directions, and of the decoder."""
    score: Literal["dot", "additive", "none"] = "additive"
    """How what is written is matched with the source: s·(W h), or v·tanh(W s + U h); none: no attention at all."""
    context: Context = 256
    """The longest source and the longest target, in tokens."""
    tied: Literal["all", "target", "none"] = "all"
    """One table for sources, targets and output (all needs a shared tokenizer), for the last two, or one for each."""
    dropout: Share = 0.3
    """The share of values dropped while training: of embeddings, between layers and before the output."""
    init: Init = "orthogonal"
    """How recurrent matrices are drawn, gate by gate."""

    def __post_init__(self) -> None:
        check_ranges(self)
        check_choices(self)


class RecurrentSeq2Seq(EncoderDecoder):
    """s = the decoder's state; a = the source's places, weighted by their match with s; h = tanh(W [s, a])."""

    config: RecurrentSeq2SeqConfig

    def __init__(
        self, config: RecurrentSeq2SeqConfig, source_vocab: int, target_vocab: int, languages: int = 1
    ) -> None:
        super().__init__(config, source_vocab, target_vocab, languages)
        D, cell = config.width, config.cell
        inputs = [D, *[2 * D] * (config.layers - 1)]
        self.forwards: Any = nn.ModuleList(Layer(cell, size, D) for size in inputs)
        self.backwards: Any = nn.ModuleList(Layer(cell, size, D) for size in inputs)
        self.decoder_blocks: Any = nn.ModuleList(Layer(cell, D, D) for _ in range(config.layers))
        self.bridge_DE = nn.Parameter(torch.empty(D, 2 * D))
        attends = config.score != "none"
        self.key_DE = nn.Parameter(torch.empty(D, 2 * D)) if attends else None
        self.combine_DG = nn.Parameter(torch.empty(D, 3 * D)) if attends else None
        self.query_DD = nn.Parameter(torch.empty(D, D)) if config.score == "additive" else None
        self.score_D = nn.Parameter(torch.empty(D)) if config.score == "additive" else None
        self.bias_V = nn.Parameter(torch.empty(target_vocab))

    def initialise(self, generator: torch.Generator) -> None:
        """Draw the weights that training starts from."""
        for table in (self.source_VD, self.target_VD, self.output_VD):
            init_matrix(table, "normal", generator)
        for one in (*self.forwards, *self.backwards, *self.decoder_blocks):
            one.initialise(self.config.init, 1.0, generator)
        for matrix in (self.bridge_DE, self.key_DE, self.combine_DG, self.query_DD):
            init_matrix(matrix, "xavier", generator)
        init_matrix(self.score_D, "normal", generator)
        self.bias_V.data.zero_()

    def scores(self, h_BTD: Tensor) -> Tensor:
        return F.linear(h_BTD, self.output_weight, self.bias_V)

    def encode(self, x_BS: Tensor, lengths_B: Tensor | None = None) -> Memory:
        """What both directions say of each token, the keys made of it, and the state that writing begins with."""
        B, S = x_BS.shape
        lengths = x_BS.new_full((B,), S) if lengths_B is None else lengths_B
        y_SBE = self.drop(self.embed_source(x_BS.t()))
        starts = []
        for there, back in zip(self.forwards, self.backwards, strict=True):
            begin = self._nothing(B)
            to_SBD, fro_SBD = both_directions(
                partial(self._read_source, there, begin), partial(self._read_source, back, begin), y_SBE, lengths
            )
            last_BD = to_SBD.gather(0, (lengths - 1)[None, :, None].expand(1, -1, to_SBD.shape[-1]))[0]
            starts.append(F.linear(torch.cat([last_BD, fro_SBD[0]], -1), self.bridge_DE).tanh())
            y_SBE = self.drop(torch.cat([to_SBD, fro_SBD], -1))
        h_BSE = y_SBE.transpose(0, 1)
        seen = () if self.key_DE is None else (h_BSE, F.linear(h_BSE, self.key_DE))
        return Memory(lengths_B, (*seen, tuple(starts)))

    def _read_source(self, one: Layer, begin: Any, x_SBE: Tensor) -> Tensor:
        return layer(self.config.cell, x_SBE, begin, one.weights)[0]

    def start(self, memory: Memory) -> State:
        starts = memory.parts[-1]
        if self.config.cell == "gru":
            return tuple(starts)
        return tuple((h_BD, torch.zeros_like(h_BD)) for h_BD in starts)

    def read(self, memory: Memory, state: State, x_BT: Tensor) -> tuple[Tensor, State]:
        y_TBD, after = self.drop(F.embedding(x_BT.t(), self.target_VD)), []
        for one, before in zip(self.decoder_blocks, state, strict=True):
            before = map_state(before, partial(_like, y_TBD))
            y_TBD, last = layer(self.config.cell, y_TBD, before, one.weights)
            y_TBD = self.drop(y_TBD)
            after.append(last)
        s_BTD = y_TBD.transpose(0, 1)
        if self.key_DE is None or not x_BT.shape[1]:
            return s_BTD, tuple(after)
        return self._attend_source(memory, s_BTD), tuple(after)

    def _attend_source(self, memory: Memory, s_BTD: Tensor) -> Tensor:
        h_BSE, k_BSD, _ = memory.parts
        if self.score_D is not None and self.query_DD is not None:
            e_BTS = additives(F.linear(s_BTD, self.query_DD), k_BSD, self.score_D)
        else:
            e_BTS = dots(s_BTD, k_BSD.to(s_BTD.dtype))
        if memory.lengths_B is not None:
            there_B1S = torch.arange(k_BSD.shape[1], device=k_BSD.device) < memory.lengths_B[:, None, None]
            e_BTS = e_BTS.masked_fill(~there_B1S, -torch.inf)
        a_BTS = tap("attention", e_BTS.softmax(-1))
        seen_BTE = a_BTS @ h_BSE.to(a_BTS.dtype)
        assert self.combine_DG is not None
        return self.drop(F.linear(torch.cat([s_BTD, seen_BTE], -1), self.combine_DG).tanh())

    def _nothing(self, batch: int) -> Any:
        h_BD = self.target_VD.new_zeros(batch, self.config.width)
        return (h_BD, h_BD) if self.config.cell == "lstm" else h_BD


def _like(y_TBD: Tensor, h_BD: Tensor) -> Tensor:
    """The state in the inputs' precision, and in memory of its own: kernels do not take one that was only expanded."""
    return h_BD.to(y_TBD.dtype).contiguous()


def recurrent_seq2seq_cost(config: RecurrentSeq2SeqConfig, sizes: Sizes, shape: Shape) -> Cost:
    """Embeddings, what is done once for a source, what is done for each target, and the output.

    Forward, in operations, for B sources of N tokens and targets of M tokens:

        encoder                   4 B N G (I + D)         W x and U h, both directions; I is D, in upper layers 2 D
        keys, first states        4 B N D² + 4 B L D²     of what both directions say, once for all targets
        decoder                   4 B M G D               of each layer
        attention                 6 B M N D + 6 B M D²    scores, sums of vectors of 2 D; what was found joins the state
        additive scores           2 B M D² more           W s
    """
    D, L, V, G = config.width, config.layers, sizes.target_vocab, GATES[config.cell] * config.width
    reading = [product for inputs in (D, *[2 * D] * (L - 1)) for product in ((G, inputs), (G, D))]
    parts = (
        embeddings_part(config, sizes),
        linear("encoder, both directions", shape.batch * shape.source, 2 * reading, bias=4 * L * G),
        linear("first states", shape.batch * L, [(D, 2 * D)]),  # one matrix for all layers
        *_source_attention(config, shape),
        repeated(linear("decoder", shape.tokens, [(G, D), (G, D)], bias=2 * G), L),
        output(shape.tokens, V, D, config.tied != "none", bias=V),
    )
    return Cost("seq2seq-recurrent", V, shape, parts, unit="source")


def _source_attention(config: RecurrentSeq2SeqConfig, shape: Shape) -> tuple[Part, ...]:
    """Keys of the sources; scores, sums and what is made of them for each token that is written."""
    if config.score == "none":
        return ()
    D, additive, written = config.width, config.score == "additive", shape.tokens
    shapes = [(D, 3 * D), (D, D)] if additive else [(D, 3 * D)]
    products = linear("attention", written, shapes, bias=D if additive else 0)
    scores, sums = 2 * written * shape.source * D, 4 * written * shape.source * D
    back = 2 * sums + (scores if additive else 2 * scores)  # what a score hands back to tanh is no product
    pairs = Part("", forward=scores + sums, needed=scores + sums, backward=back)
    return linear("attention, source", shape.batch * shape.source, [(D, 2 * D)]), products + pairs


SPEC = ModelSpec(
    "seq2seq-recurrent", "recurrent encoder-decoder", "a recurrent network with attention that translates",
    "encoder-decoder", RecurrentSeq2Seq, RecurrentSeq2SeqConfig, task="translation", cost=recurrent_seq2seq_cost,
    views=(ALIGNMENT,),
    equation="""m_i = [→h_i, ←h_i], what both directions say of the source's token i
s_t = GRU(y_t, s_{t-1})
a_t = Σ_i softmax_i(v · tanh(W s_t + U m_i)) m_i
h_t = tanh(C [s_t, a_t])
p(y_{t+1} | y_1 .. y_t, source) = softmax(E h_t + b)""",
)  # fmt: skip
