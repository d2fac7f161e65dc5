"""The encoder-decoder transformer: a bidirectional encoder of the source, a causal decoder with cross-attention to it.

B rows, S tokens of the source, T new tokens of the target, H heads, K size of a head, D width, C context.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from octavo.config import Context, Heads, Layers, Range, Share, Width, check_ranges
from octavo.errors import UserError
from octavo.models.cost.parts import Cost, Part, Shape, attention_products, linear, output, repeated
from octavo.models.cost.transformer import feed_forward_part, norms
from octavo.models.encoder_decoder import EncoderDecoder, Memory, Sizes, embeddings_part
from octavo.models.parts.attention import Attention, AttentionProjections, Place, split_heads
from octavo.models.parts.block import Block, TransformerBlock, add_positions
from octavo.models.parts.checks import check_choices
from octavo.models.parts.config import RENAMED_FEED_FORWARD, GPTConfig, shared_parts
from octavo.models.parts.feed_forward import FEED_FORWARDS, Norm, init_tables
from octavo.models.spec import ModelSpec
from octavo.models.views import View
from octavo.ops.attention import Pattern, attend
from octavo.ops.norm import rms_norm
from octavo.ops.positions import rotary_angles
from octavo.ops.tracing import tap

State = tuple[Tensor, tuple[Any, ...]]  # position_B, and each layer's keys and values
SOURCE_SIDE = ("encoder self-attention", "encoder feed-forward", "cross-attention, source")  # costs once a source


@dataclass(frozen=True)
class Seq2SeqConfig:
    """How a transformer of encoder and decoder is made."""

    RENAMED: ClassVar[dict[str, str]] = RENAMED_FEED_FORWARD

    width: Width = 256
    """The size of a token's vector."""
    layers: Layers = 4
    """Blocks of the encoder."""
    decoder_layers: Annotated[int, Range(0, 1 << 12)] = 0
    """Blocks of the decoder; 0: as many as the encoder's."""
    heads: Heads = 4
    """Number of attention heads, each with its share of the width."""
    feed_forward: Literal["gelu", "gelu-exact", "relu2", "gated"] = "gated"
    """The feed-forward layer's activation; gated: SwiGLU."""
    feed_forward_width: Annotated[int, Range(0, 1 << 20)] = 0
    """The inner width; 0: four times the width, or with a gate 8/3 times."""
    positions: Literal["rotary", "learned", "sinusoidal", "none"] = "rotary"
    """Position encoding, of source and target each by itself."""
    context: Context = 256
    """The longest source and the longest target, in tokens."""
    norm: Literal["rms", "layer"] = "rms"
    """The norm before each part."""
    qk_norm: bool = True
    """Bring queries and keys to a mean square of one; --no-qk-norm leaves them as they are."""
    bias: bool = False
    """Biases in products and norms."""
    tied: Literal["all", "target", "none"] = "all"
    """One table for sources, targets and output (all needs a shared tokenizer), for the last two, or one for each."""
    dropout: Share = 0.3
    """Dropout: of embeddings, and of what each part adds to the residual stream."""
    init: Literal["zero", "gpt2"] = "zero"
    """zero: what each part adds is nothing at first. gpt2: normal with deviation 0.02, less where parts add up."""

    def __post_init__(self) -> None:
        check_ranges(self)
        check_choices(self)
        _ = self.parts(self.layers), self.parts(self.decoder_depth)  # which check the rest

    @property
    def decoder_depth(self) -> int:
        """Blocks of the decoder."""
        return self.decoder_layers or self.layers

    def parts(self, layers: int) -> GPTConfig:
        """The settings of the parts shared with other transformers, in a stack of so many blocks."""
        return shared_parts(self, layers=layers)


class EncoderBlock(TransformerBlock):
    """A block of the encoder, bidirectional."""

    def __init__(self, parts: GPTConfig) -> None:
        super().__init__(parts, AttentionProjections(parts))

    def forward(self, x_BSD: Tensor, pattern: Pattern, place: Place) -> Tensor:
        q_BHSK, k_BHSK, v_BHSK = self.attention.project(self.norm1(x_BSD), place)
        x_BSD = x_BSD + self.drop(self.attention.out(attend(q_BHSK, k_BHSK, v_BHSK, pattern)))
        x_BSD = x_BSD + self.drop(self.feed_forward(self.norm2(x_BSD)))
        return tap("stream", x_BSD)


class CrossAttention(AttentionProjections):
    """Cross-attention: queries from the target, keys and values from the source."""

    def keys_values(self, h_BSD: Tensor) -> tuple[Tensor, Tensor]:
        """k_BHSK and v_BHSK, computed once for a source."""
        k_BHSK, v_BHSK = split_heads(F.linear(h_BSD, *self.joined(1)), 2 * self.config.heads).chunk(2, 1)
        return self._scaled(k_BHSK), v_BHSK

    def forward(self, x_BTD: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, pattern: Pattern) -> Tensor:
        q_BHTK = self._scaled(split_heads(F.linear(x_BTD, self.query_DD, self.query_bias), self.config.heads))
        return self.out(attend(q_BHTK, k_BHSK.to(q_BHTK.dtype), v_BHSK.to(q_BHTK.dtype), pattern))

    def _scaled(self, x_BHTK: Tensor) -> Tensor:
        return rms_norm(x_BHTK, eps=self.config.norm_eps) if self.config.qk_norm else x_BHTK


class DecoderBlock(Block):
    """A block of the decoder: causal self-attention, cross-attention to the source, feed-forward; pre-norm."""

    def __init__(self, parts: GPTConfig) -> None:
        super().__init__(parts)
        self.norm1, self.attention = Norm(parts), Attention(parts)
        self.norm2, self.cross_attention = Norm(parts), CrossAttention(parts)
        self.norm3, self.feed_forward = Norm(parts), FEED_FORWARDS[parts.feed_forward](parts)

    def absorb(self, x_BTD: Tensor, state: Any, place: Place, seen: Any, pattern: Pattern) -> tuple[Tensor, Any]:
        """`seen` are the keys and values of the source."""
        y_BTD, state = self.attention.absorb(self.norm1(x_BTD), state, place)
        x_BTD = x_BTD + self.drop(y_BTD)
        x_BTD = x_BTD + self.drop(self.cross_attention(self.norm2(x_BTD), *seen, pattern))
        x_BTD = x_BTD + self.drop(self.feed_forward(self.norm3(x_BTD)))
        return tap("stream", x_BTD), state


class Seq2Seq(EncoderDecoder):
    """A transformer with an encoder and a decoder."""

    config: Seq2SeqConfig

    def __init__(self, config: Seq2SeqConfig, source_vocab: int, target_vocab: int, languages: int = 1) -> None:
        super().__init__(config, source_vocab, target_vocab, languages)
        encoder, decoder, D = config.parts(config.layers), config.parts(config.decoder_depth), config.width
        learned = config.positions == "learned"
        self.source_positions_CD = nn.Parameter(torch.empty(config.context, D)) if learned else None
        self.target_positions_CD = nn.Parameter(torch.empty(config.context, D)) if learned else None
        self.encoder_blocks: Any = nn.ModuleList(EncoderBlock(encoder) for _ in range(config.layers))
        self.encoder_norm = Norm(encoder)
        self.decoder_blocks: Any = nn.ModuleList(DecoderBlock(decoder) for _ in range(config.decoder_depth))
        self.norm = Norm(decoder)

    def initialise(self, generator: torch.Generator) -> None:
        """Draw the weights that training starts from."""
        encoder, decoder = self.config.parts(self.config.layers), self.config.parts(self.config.decoder_depth)
        tables = (self.source_VD, self.target_VD, self.output_VD, self.source_positions_CD, self.target_positions_CD)
        init_tables(tables, encoder, generator)
        for block in self.encoder_blocks:
            block.initialise(encoder, generator)
        for block in self.decoder_blocks:
            block.initialise(decoder, generator)
        self.encoder_norm.initialise(encoder, generator)
        self.norm.initialise(decoder, generator)

    def encode(self, x_BS: Tensor, lengths_B: Tensor | None = None) -> Memory:
        """The cross-attention keys and values of the source, for each block of the decoder."""
        self._check_room(x_BS.shape[1], "source")
        bare = Memory(lengths_B, ())
        place_S = torch.arange(x_BS.shape[1], device=x_BS.device)
        x_BSD = add_positions(self.embed_source(x_BS), place_S, self.source_positions_CD, self.config.positions)
        x_BSD, place = self.drop(x_BSD), self._place(place_S, x_BSD.dtype)
        for block in self.encoder_blocks:
            x_BSD = block(x_BSD, bare.pattern, place)
        h_BSD = self.encoder_norm(x_BSD)
        return Memory(lengths_B, tuple(block.cross_attention.keys_values(h_BSD) for block in self.decoder_blocks))

    def start(self, memory: Memory) -> State:
        position_B = torch.zeros(len(memory), dtype=torch.long, device=self.target_VD.device)
        return position_B, tuple(block.attention.start(len(memory)) for block in self.decoder_blocks)

    def read(self, memory: Memory, state: State, x_BT: Tensor) -> tuple[Tensor, State]:
        position_B, before = state
        if self.config.positions == "learned" and x_BT.shape[1]:
            self._check_room(int(position_B[0]) + x_BT.shape[1], "target")
        place_T = position_B[0] + torch.arange(x_BT.shape[1], device=x_BT.device)
        x_BTD = F.embedding(x_BT, self.target_VD)
        x_BTD = self.drop(add_positions(x_BTD, place_T, self.target_positions_CD, self.config.positions))
        place, pattern, after = self._place(place_T, x_BTD.dtype), memory.pattern, []
        for block, one, seen in zip(self.decoder_blocks, before, memory.parts, strict=True):
            x_BTD, one = block.absorb(x_BTD, one, place, seen, pattern)
            after.append(one)
        return self.norm(x_BTD), (position_B + x_BT.shape[1], tuple(after))

    def _place(self, place_T: Tensor, dtype: torch.dtype) -> Place:
        if self.config.positions != "rotary":
            return Place(None)
        return Place(rotary_angles(place_T, self.config.width // self.config.heads, dtype=dtype))

    def _check_room(self, length: int, what: str) -> None:
        if length > self.config.context:
            raise UserError(
                f"a {what} must fit into the context: {length} tokens, context={self.config.context}; cut it, or train "
                f"with a larger --context"
            )

    def cross_attention(self, maps: Sequence[Tensor]) -> Sequence[Tensor]:
        """Each block of the decoder has self-attention, then cross-attention."""
        return maps[1::2]


def seq2seq_cost(config: Seq2SeqConfig, sizes: Sizes, shape: Shape) -> Cost:
    """All parts, those of all layers together; the numbers are of every source and all its targets.

    Forward, in operations, for B sources of N tokens and targets of M tokens (their language first), of a layer:

        encoder self-attention    8 B N D² + 4 B N² D     four products with weights; scores and sums, N × N
        cross-attention, source   4 B N D²                keys and values of the source, once for all targets
        cross-attention           4 B M D² + 4 B M N D    queries and output; scores and sums, M × N
        decoder self-attention    8 B M D² + 4 B M² D     of M × M pairs, M (M + 1) / 2 are needed
    """
    D, N, M, read, written = config.width, shape.source, shape.window, shape.batch * shape.source, shape.tokens
    readers, writers, block = config.layers, config.decoder_depth, config.parts(config.decoder_depth)
    tables = embeddings_part(config, sizes, 2 * config.context if config.positions == "learned" else 0)

    def products(name: str, tokens: int, count: int) -> Part:
        return linear(name, tokens, [(D, D)] * count, bias=count * D if config.bias else 0)

    def pairs(rows: int, queries: int, keys: int, needed: int) -> Part:
        each = 4 * rows * D
        return attention_products("", each * queries * keys, each * needed, shape.kernel)

    targets = shape.batch * shape.languages
    read_self = products("encoder self-attention", read, 4) + pairs(shape.batch, N, N, N * N)
    cross = products("cross-attention", written, 2) + pairs(targets, M, N, M * N)
    written_self = products("decoder self-attention", written, 4) + pairs(targets, M, M, M * (M + 1) // 2)
    parts = (
        tables,
        norms(block, 2 * readers + 3 * writers + 2),
        repeated(read_self, readers),
        repeated(replace(feed_forward_part(block, read), name="encoder feed-forward"), readers),
        repeated(products("cross-attention, source", read, 2), writers),
        repeated(cross, writers),
        repeated(written_self, writers),
        repeated(replace(feed_forward_part(block, written), name="decoder feed-forward"), writers),
        output(written, sizes.target_vocab, D, config.tied != "none"),
    )
    return Cost("seq2seq", sizes.target_vocab, shape, parts, unit="source")


ALIGNMENT = View("attention", "Alignment", "token-maps", "alignment")
SPEC = ModelSpec(
    "seq2seq", "encoder-decoder transformer", "a transformer that translates; see also translate", "encoder-decoder",
    Seq2Seq, Seq2SeqConfig, task="translation", cost=seq2seq_cost, views=(ALIGNMENT,),
    equation="""m_s = encoder(source), whose tokens attend to each other
x_t ← x_t + O attention(norm(x_t)), over the target's tokens up to t
x_t ← x_t + O Σ_s softmax_s(q_t · k(m_s) / √K) v(m_s)
x_t ← x_t + MLP(norm(x_t))
p(y_{t+1} | y_1 .. y_t, source) = softmax(E norm(x_t))""",
)  # fmt: skip
