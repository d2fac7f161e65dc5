"""What BERT costs, from its settings alone: an encoder, in which every token sees every other.

What is saved for the backward pass is by the same rules as for the transformer's parts; no BERT is measured against it.

B batch, T tokens, N = B × T, D width, H heads, F inner width, V vocabulary, P positions, L layers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from octavo.errors import UserError
from octavo.models.cost.parts import Cost, Part, Shape, linear, repeated

if TYPE_CHECKING:
    from octavo.models.bert import BertConfig


def bert_cost(config: BertConfig, vocab: int, shape: Shape) -> Cost:
    """An encoder carries nothing from token to token."""
    return Cost("bert", vocab, shape, bert_parts(config, vocab, shape))


def bert_parts(config: BertConfig, V: int, shape: Shape) -> tuple[Part, ...]:
    """Every part, those of all layers together; heads only of the tasks that it learns from."""
    N, B, D, L, T = shape.tokens, shape.batch, config.width, config.layers, shape.window
    if config.context < T:
        raise UserError(f"there are {config.context} positions: window={T}; try --window {config.context}")
    F, norms = config.parts.inner, 2 * L + 1
    forward = L * 4 * B * T * T * D
    back = 5 * forward // 2 if shape.kernel == "fused" else 2 * forward
    parts = [
        Part("embeddings", V * D),
        Part("positions", config.context * D),
        Part("segments", config.segments * D),
        Part("norms", norms * 2 * D, read=norms * 2 * D, saved=norms * N * (2 * D + 2)),
        repeated(linear("queries, keys, values", N, [(D, D)] * 3, bias=3 * D, saved=3 * N * D), L),
        Part("attention", forward=forward, needed=forward, backward=back, saved=L * N * (D + config.heads)),
        repeated(linear("out", N, [(D, D)], bias=D), L),
        repeated(linear("feed-forward", N, [(F, D), (D, F)], bias=F + D, saved=2 * N * F), L),
    ]
    if config.pooler:
        parts.append(linear("pooler", B, [(D, D)], bias=D, saved=2 * B * D))  # of each text's first token
    heads = {
        "words": masked_words_part(config, V, N),
        "next": linear("next sentence", B, [(2, D)], bias=2),
        "order": linear("sentence order", B, [(2, D)], bias=2),
        "replaced": linear("replaced words", N, [(D, D), (1, D)], bias=D + 1, saved=3 * N * D),
    }
    return (*parts, *(heads[task] for task in config.tasks))


def masked_words_part(config: BertConfig, V: int, N: int) -> Part:
    """A layer of the width, a norm, and the product with the vocabulary, at every token."""
    D = config.width
    part = linear("masked words", N, [(D, D), (V, D)], bias=D + 2 * D + V, saved=N * (4 * D + 2))
    own = part.parameters - (V * D if config.tied else 0)
    return replace(part, parameters=own, matrices=D * D, saved_bytes=N * (4 * V + 8))
