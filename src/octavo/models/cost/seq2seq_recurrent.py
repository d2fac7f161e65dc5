"""What a recurrent encoder-decoder with attention costs, from its shape alone.

B batch, N tokens of a source, M of a target, D width, G = gates × D, V target vocabulary, L layers. Forward, in
operations, a multiplication and an addition each:

    encoder             4 B N G (I + D)       W x and U h in both directions; I is D, above the first layer 2 D
    keys, first states  4 B N D² + 4 B L D²   of what both directions say, once for all targets
    decoder             4 B M G D             of each layer
    attention           6 B M N D + 6 B M D²  scores, sums of vectors of 2 D; what was found joins the state
    additive scores     2 B M D² more         W s

In the backward pass each product is two, but for an additive score, which hands nothing back to tanh by a product.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from octavo.models.cost.parts import Cost, Part, Shape, linear, output, repeated
from octavo.models.cost.seq2seq import PairShape
from octavo.ops.recurrent import GATES

if TYPE_CHECKING:
    from octavo.models.encoder_decoder import Sizes
    from octavo.models.seq2seq_recurrent import RecurrentSeq2SeqConfig


def recurrent_seq2seq_cost(config: RecurrentSeq2SeqConfig, sizes: Sizes, shape: PairShape) -> Cost:
    """All parts, those of all layers together; the numbers are of every source and all its targets."""
    window = shape.target * shape.languages
    parts = recurrent_seq2seq_parts(config, sizes, shape)
    return Cost("seq2seq-recurrent", sizes.target_vocab, Shape(shape.batch, window), parts)


def recurrent_seq2seq_parts(config: RecurrentSeq2SeqConfig, sizes: Sizes, shape: PairShape) -> tuple[Part, ...]:
    """Embeddings, what is done once for a source, what is done for each target, and the output."""
    D, L, V = config.width, config.layers, sizes.target_vocab
    G = GATES[config.cell] * D
    read, written = shape.batch * shape.source, shape.batch * shape.target * shape.languages
    rows = V + sizes.languages + (0 if config.tied == "all" else sizes.source_vocab)
    reading = [product for inputs in (D, *[2 * D] * (L - 1)) for product in ((G, inputs), (G, D))]
    writer = linear("decoder", written, [(G, D), (G, D)], bias=2 * G)
    bridge = linear("first states", shape.batch * L, [(D, 2 * D)])  # one matrix for all layers
    return (
        Part("embeddings", rows * D),
        linear("encoder, both directions", read, 2 * reading, bias=4 * L * G),
        bridge,
        *_attention(config, read, written, shape.source),
        repeated(writer, L),
        output(written, V, D, config.tied != "none", bias=V),
    )


def _attention(config: RecurrentSeq2SeqConfig, read: int, written: int, N: int) -> tuple[Part, ...]:
    """Keys of the sources; scores, sums and what is made of them for each token that is written."""
    if config.score == "none":
        return ()
    D, additive = config.width, config.score == "additive"
    products = linear("attention", written, [(D, 3 * D), *([(D, D)] if additive else [])], bias=D if additive else 0)
    scores, sums = 2 * written * N * D, 4 * written * N * D
    back = 2 * sums + (scores if additive else 2 * scores)  # what a score hands back to tanh is no product
    pairs = replace(
        products, forward=products.forward + scores + sums, needed=products.needed + scores + sums,
        backward=products.backward + back,
    )  # fmt: skip
    return linear("attention, source", read, [(D, 2 * D)]), pairs
