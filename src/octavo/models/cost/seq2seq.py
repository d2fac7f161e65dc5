"""What encoder-decoders cost, from their shapes alone: the source is read once, however many targets are written.

B batch, N tokens of a source, M of a target (its language first), D width, H heads, F inner width, V target vocabulary,
G = gates × D, L layers. Forward, in operations, a multiplication and an addition each. Of a transformer's layer:

    encoder self-attention    8 B N D² + 4 B N² D     four products with weights; scores and sums, N × N
    cross-attention, source   4 B N D²                keys and values of the source, once for all targets
    cross-attention           4 B M D² + 4 B M N D    queries and output; scores and sums, M × N
    decoder self-attention    8 B M D² + 4 B M² D     of M × M pairs, M (M + 1) / 2 are needed

Of a recurrent network:

    encoder                   4 B N G (I + D)         W x and U h in both directions; I is D, above the first layer 2 D
    keys, first states        4 B N D² + 4 B L D²     of what both directions say, once for all targets
    decoder                   4 B M G D               of each layer
    attention                 6 B M N D + 6 B M D²    scores, sums of vectors of 2 D; what was found joins the state
    additive scores           2 B M D² more           W s

In the backward pass each product is two, but for an additive score, which hands nothing back to tanh by a product.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from octavo.errors import UserError
from octavo.models.cost.parts import Cost, Kernel, Part, Shape, attention_products, linear, output, repeated
from octavo.models.cost.transformer import feed_forward_part, norms
from octavo.ops.recurrent import GATES

if TYPE_CHECKING:
    from octavo.models.encoder_decoder import Sizes
    from octavo.models.seq2seq import Seq2SeqConfig
    from octavo.models.seq2seq_recurrent import RecurrentSeq2SeqConfig

SOURCE_SIDE = ("encoder self-attention", "encoder feed-forward", "cross-attention, source")  # done once for a source


@dataclass(frozen=True)
class PairShape:
    """How much is read and written together."""

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

    @property
    def read(self) -> int:
        """Tokens of all sources."""
        return self.batch * self.source

    @property
    def written(self) -> int:
        """Tokens of all targets."""
        return self.batch * self.target * self.languages

    @property
    def of_targets(self) -> Shape:
        """The shape that a cost is reported for."""
        return Shape(self.batch, self.target * self.languages, kernel=self.kernel)


def seq2seq_cost(config: Seq2SeqConfig, sizes: Sizes, shape: PairShape) -> Cost:
    """All parts, those of all layers together; the numbers are of every source and all its targets."""
    return Cost("seq2seq", sizes.target_vocab, shape.of_targets, seq2seq_parts(config, sizes, shape))


def seq2seq_parts(config: Seq2SeqConfig, sizes: Sizes, shape: PairShape) -> tuple[Part, ...]:
    """Embeddings, the encoder's parts, the decoder's, and the output."""
    D, N, M, read, written = config.width, shape.source, shape.target, shape.read, shape.written
    readers, writers, block = config.layers, config.decoder_depth, config.parts(config.decoder_depth)
    tables = _embeddings(config, sizes, 2 * config.context if config.positions == "learned" else 0)

    def products(name: str, tokens: int, count: int) -> Part:
        return linear(name, tokens, [(D, D)] * count, bias=count * D if config.bias else 0)

    def pairs(rows: int, queries: int, keys: int, needed: int) -> Part:
        each = 4 * rows * D
        return attention_products("", each * queries * keys, each * needed, shape.kernel)

    targets = shape.batch * shape.languages
    read_self = products("encoder self-attention", read, 4) + pairs(shape.batch, N, N, N * N)
    cross = products("cross-attention", written, 2) + pairs(targets, M, N, M * N)
    written_self = products("decoder self-attention", written, 4) + pairs(targets, M, M, M * (M + 1) // 2)
    return (
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


def _embeddings(config: Seq2SeqConfig | RecurrentSeq2SeqConfig, sizes: Sizes, positions: int = 0) -> Part:
    """Tables of vectors and of learned positions; an output of its own is counted with the output."""
    rows = sizes.target_vocab + sizes.languages + (0 if config.tied == "all" else sizes.source_vocab)
    return Part("embeddings", (rows + positions) * config.width)


def recurrent_seq2seq_cost(config: RecurrentSeq2SeqConfig, sizes: Sizes, shape: PairShape) -> Cost:
    """Embeddings, what is done once for a source, what is done for each target, and the output."""
    D, L, V, G = config.width, config.layers, sizes.target_vocab, GATES[config.cell] * config.width
    reading = [product for inputs in (D, *[2 * D] * (L - 1)) for product in ((G, inputs), (G, D))]
    parts = (
        _embeddings(config, sizes),
        linear("encoder, both directions", shape.read, 2 * reading, bias=4 * L * G),
        linear("first states", shape.batch * L, [(D, 2 * D)]),  # one matrix for all layers
        *_source_attention(config, shape),
        repeated(linear("decoder", shape.written, [(G, D), (G, D)], bias=2 * G), L),
        output(shape.written, V, D, config.tied != "none", bias=V),
    )
    return Cost("seq2seq-recurrent", V, shape.of_targets, parts)


def _source_attention(config: RecurrentSeq2SeqConfig, shape: PairShape) -> tuple[Part, ...]:
    """Keys of the sources; scores, sums and what is made of them for each token that is written."""
    if config.score == "none":
        return ()
    D, additive, written = config.width, config.score == "additive", shape.written
    shapes = [(D, 3 * D), (D, D)] if additive else [(D, 3 * D)]
    products = linear("attention", written, shapes, bias=D if additive else 0)
    scores, sums = 2 * written * shape.source * D, 4 * written * shape.source * D
    back = 2 * sums + (scores if additive else 2 * scores)  # what a score hands back to tanh is no product
    pairs = Part("", forward=scores + sums, needed=scores + sums, backward=back)
    return linear("attention, source", shape.read, [(D, 2 * D)]), products + pairs
