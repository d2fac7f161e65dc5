"""What an encoder-decoder costs, from its shape alone: the source is read once, however many targets are written.

B batch, N tokens of a source, M of a target (its language first), D width, H heads, F inner width, V target vocabulary.
Of each layer, forward, in operations, a multiplication and an addition each:

    encoder self-attention    8 B N D² + 4 B N² D     four products with weights; scores and sums, N × N
    cross-attention, source   4 B N D²                keys and values of the source, once for all targets
    cross-attention           4 B M D² + 4 B M N D    queries and output; scores and sums, M × N
    decoder self-attention    8 B M D² + 4 B M² D     of M × M pairs, M (M + 1) / 2 are needed
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from octavo.errors import UserError
from octavo.models.cost.parts import Cost, Kernel, Part, Shape, linear, output, repeated
from octavo.models.cost.transformer import feed_forward_part
from octavo.models.parts.config import GPTConfig

if TYPE_CHECKING:
    from octavo.models.encoder_decoder import Sizes
    from octavo.models.seq2seq import Seq2SeqConfig

SOURCE_SIDE = ("encoder self-attention", "encoder feed-forward", "cross-attention, source")  # done once for a source


@dataclass(frozen=True)
class PairShape:
    """How much is read and written at once."""

    batch: int = 1
    """B, sources."""
    source: int = 1
    """N, tokens of a source."""
    target: int = 1
    """M, tokens of a target."""
    languages: int = 1
    """Targets of each source, all of M tokens."""
    kernel: Kernel = "fused"

    def __post_init__(self) -> None:
        for name in ("batch", "source", "target", "languages"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be at least 1: {name}={getattr(self, name)}; try 1")


def seq2seq_cost(config: Seq2SeqConfig, sizes: Sizes, shape: PairShape) -> Cost:
    """All parts, those of all layers together; the numbers are of every source and all its targets."""
    window = shape.target * shape.languages
    parts = seq2seq_parts(config, sizes, shape)
    return Cost("seq2seq", sizes.target_vocab, Shape(shape.batch, window, kernel=shape.kernel), parts)


def seq2seq_parts(config: Seq2SeqConfig, sizes: Sizes, shape: PairShape) -> tuple[Part, ...]:
    """Embeddings, the encoder's parts, the decoder's, and the output."""
    D, N, M = config.width, shape.source, shape.target
    readers, writers = config.layers, config.decoder_depth
    read, written = shape.batch * N, shape.batch * M * shape.languages
    B, targets = shape.batch, shape.batch * shape.languages
    parts = config.parts(writers)
    source = linear("", read, [(D, D)] * 2, bias=2 * D if config.bias else 0)
    asked = linear("", written, [(D, D)] * 2, bias=2 * D if config.bias else 0)
    return (
        Part("embeddings", _tables(config, sizes)),
        _norms(config),
        repeated(_attention("encoder self-attention", parts, read, _pairs(B, N, N, D, N * N, shape)), readers),
        repeated(replace(feed_forward_part(parts, read), name="encoder feed-forward"), readers),
        repeated(replace(source, name="cross-attention, source"), writers),
        repeated(_sum("cross-attention", asked, _pairs(targets, M, N, D, M * N, shape)), writers),
        repeated(_attention("decoder self-attention", parts, written,
                            _pairs(targets, M, M, D, M * (M + 1) // 2, shape)), writers),
        repeated(replace(feed_forward_part(parts, written), name="decoder feed-forward"), writers),
        output(written, sizes.target_vocab, D, config.tied != "none"),
    )  # fmt: skip


def _attention(name: str, parts: GPTConfig, tokens: int, pairs: Part) -> Part:
    """Queries, keys, values and output of tokens that look at each other."""
    D = parts.width
    return _sum(name, linear("", tokens, [(D, D)] * 4, bias=4 * D if parts.bias else 0), pairs)


def _pairs(rows: int, T: int, S: int, D: int, needed: int, shape: PairShape) -> Part:
    """Scores and sums of T queries and S keys; a fused kernel computes the scores again in the backward pass."""
    forward = 4 * rows * T * S * D
    backward = 2 * forward if shape.kernel == "plain" else 5 * forward // 2
    return Part("", forward=forward, needed=4 * rows * needed * D, backward=backward)


def _sum(name: str, products: Part, pairs: Part) -> Part:
    return replace(
        products, name=name, forward=products.forward + pairs.forward, needed=products.needed + pairs.needed,
        backward=products.backward + pairs.backward,
    )  # fmt: skip


def _tables(config: Seq2SeqConfig, sizes: Sizes) -> int:
    """Numbers of the embeddings and the learned positions; an output of its own is counted with the output."""
    rows = sizes.target_vocab + sizes.languages + (0 if config.tied == "all" else sizes.source_vocab)
    return (rows + (2 * config.context if config.positions == "learned" else 0)) * config.width


def _norms(config: Seq2SeqConfig) -> Part:
    count = 2 * config.layers + 3 * config.decoder_depth + 2
    numbers = count * config.width * (2 if config.norm == "layer" and config.bias else 1)
    return Part("norms", numbers, read=numbers)
