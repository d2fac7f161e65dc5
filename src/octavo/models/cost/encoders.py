"""What encoders cost, from their settings alone: BERT and vision transformers. They carry nothing from token to token.

What BERT saves for the backward pass is by the same rules as for the transformer's parts; no BERT is measured against
it. What a vision transformer saves is left out.

B texts or images, T tokens of each (of an image, N patches or one more), D width, F inner width, V vocabulary or
classes, L layers, P side of a patch, C channels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from octavo.errors import UserError
from octavo.models.cost.parts import Cost, Part, Shape, attention_products, linear, repeated
from octavo.models.cost.transformer import feed_forward_part, feed_forward_saved, norms, out_part, qkv_part
from octavo.ops.attention import Axial, Neighbourhood, Pattern
from octavo.ops.attention import image_patterns as grid
from octavo.ops.channel_attention import channel_operations

if TYPE_CHECKING:
    from octavo.models.bert import BertConfig
    from octavo.models.vit import Vit, VitConfig


def bert_cost(config: BertConfig, vocab: int, shape: Shape) -> Cost:
    """BERT with the heads of the tasks that it learns from."""
    return Cost("bert", vocab, shape, bert_parts(config, vocab, shape))


def bert_parts(config: BertConfig, V: int, shape: Shape) -> tuple[Part, ...]:
    """Every part, those of all layers together; heads only of the tasks that it learns from."""
    N, B, D, L, T = shape.tokens, shape.batch, config.width, config.layers, shape.window
    if config.context < T:
        raise UserError(f"there are {config.context} positions: window={T}; try --window {config.context}")
    block, pairs, saved = config.parts, 4 * B * T * T * D, N * (D + config.heads)
    parts = [
        Part("embeddings", V * D),
        Part("positions", config.context * D),
        Part("segments", config.segments * D),
        norms(block, 2 * L + 1, saved=(2 * L + 1) * N * (2 * D + 2)),
        repeated(qkv_part(block, N, saved=3 * N * D), L),
        repeated(attention_products("attention", pairs, pairs, shape.kernel, saved), L),
        repeated(out_part(block, N), L),
        repeated(feed_forward_part(block, N, feed_forward_saved(block, N)), L),
    ]
    if config.pooler:
        parts.append(linear("pooler", B, [(D, D)], bias=D, saved=2 * B * D))  # of each text's first token
    words = linear("masked words", N, [(D, D), (V, D)], bias=D + 2 * D + V, saved=N * (4 * D + 2))
    own = words.parameters - (V * D if config.tied else 0)
    heads = {
        "words": replace(words, parameters=own, matrices=D * D, saved_bytes=N * (4 * V + 8)),
        "next": linear("next sentence", B, [(2, D)], bias=2),
        "order": linear("sentence order", B, [(2, D)], bias=2),
        "replaced": linear("replaced words", N, [(D, D), (1, D)], bias=D + 1, saved=3 * N * D),
    }
    return (*parts, *(heads[task] for task in config.tasks))


def vision_cost(name: str, kind: type[Vit], config: VitConfig, sizes: Mapping[str, int], batch: int = 1) -> Cost:
    """The cost of vit or davit for so many images of the sizes height, width, channels and classes."""
    with torch.device("meta"):  # where shapes take no memory
        model = kind(config, **sizes)
    shape = Shape(batch=batch, window=model.rows * model.columns + config.tokens)
    channel_layers = config.layers // 2 if name == "davit" else 0  # every second one
    return Cost(name, sizes["classes"], shape, vision_parts(model, shape, channel_layers))


def vision_parts(model: Vit, shape: Shape, channel_layers: int) -> tuple[Part, ...]:
    """Every part, those of all layers together."""
    config, block = model.config, model.config.block
    B, T, D, L = shape.batch, shape.window, config.width, config.layers
    N, V = model.rows * model.columns, model.sizes["classes"]
    P, C = model.patch_DCPP.shape[-1], model.sizes["channels"]
    patches = linear("patches", B * N, [(D, C * P * P)], bias=D, muon=False)
    between = B * channel_operations(T, D, config.heads)
    return (
        replace(patches, backward=patches.forward),  # the image has no gradient: one product is left
        Part("positions and token", (N * D if config.positions == "learned" else 0) + config.tokens * D),
        norms(block, 2 * L + 1),
        repeated(qkv_part(block, B * T), L),
        repeated(patch_attention(model.pattern, T, 4 * B * D), L - channel_layers),
        repeated(Part("channel attention", forward=between, needed=between, backward=2 * between), channel_layers),
        repeated(out_part(block, B * T), L),
        repeated(feed_forward_part(block, B * T), L),
        linear("classes", B, [(V, D)], bias=V, muon=False),
    )


def patch_attention(pattern: Pattern, T: int, each: int) -> Part:
    """One layer's attention, `each` operations for a pair: a score and a sum. Where the keys are cut up, only the
    scores of the tokens in front are computed again in the backward pass.
    """
    if not isinstance(pattern, Axial | Neighbourhood):
        return attention_products("attention", each * T * T, each * T * T, "fused")
    needed = each * grid.pairs(pattern)
    if not grid.is_faster(pattern):
        return attention_products("attention", each * T * T, needed, "fused")
    forward = each * grid.computed(pattern)
    return Part("attention", forward=forward, needed=needed, backward=2 * forward + each * T * pattern.globals // 2)
