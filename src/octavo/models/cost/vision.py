"""What a vision transformer costs, from its shape alone, pattern by pattern; activations are left out.

B images, N patches, T = N or N + 1 tokens, D width, F inner width, V classes, L layers, P side of a patch, C channels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from octavo.models.cost.parts import Cost, Part, Shape, linear, repeated
from octavo.ops.attention import FULL, Axial, Neighbourhood, Pattern
from octavo.ops.attention import image_patterns as grid
from octavo.ops.channel_attention import channel_operations

if TYPE_CHECKING:
    from octavo.models.vit import Vit, VitConfig


def vision_cost(name: str, kind: type[Vit], config: VitConfig, sizes: Mapping[str, int], batch: int = 1) -> Cost:
    """The cost of vit or davit for so many images of the sizes height, width, channels and classes."""
    with torch.device("meta"):  # where shapes take no memory
        model = kind(config, **sizes)
    T = model.rows * model.columns + config.tokens
    shape = Shape(batch=batch, window=T)
    return Cost(name, sizes["classes"], shape, vision_parts(model, shape, channel_layers(name, config)))


def channel_layers(name: str, config: VitConfig) -> int:
    """How many layers look at channels: every second of a davit."""
    return config.layers // 2 if name == "davit" else 0


def vision_parts(model: Vit, shape: Shape, channel: int) -> tuple[Part, ...]:
    """Every part, those of all layers together."""
    config, block = model.config, model.config.block
    B, T, D, L = shape.batch, shape.window, config.width, config.layers
    N, F, V = model.rows * model.columns, block.inner, model.sizes["classes"]
    P, C = model.patch_DCPP.shape[-1], model.sizes["channels"]
    bias = int(config.bias)
    norm = D * (2 if bias and config.norm == "layer" else 1)
    feed = [(F, D), (F, D), (D, F)] if config.feed_forward == "gated" else [(F, D), (D, F)]
    feed_bias = bias * (F + D) * (config.feed_forward != "gated")
    tables = (N * D if config.positions == "learned" else 0) + config.tokens * D
    computed, needed = attention_operations(model.pattern, T, D, B)
    back = 2 * computed + recomputed_scores(model.pattern, T, D, B)
    mixed = B * channel_operations(T, D, config.heads)
    return (
        _without_gradient(_by_adam(linear("patches", B * N, [(D, C * P * P)], bias=D))),
        Part("positions and token", tables),
        Part("norms", (2 * L + 1) * norm, read=(2 * L + 1) * norm),
        repeated(linear("queries, keys, values", B * T, [(D, D)] * 3, bias=bias * 3 * D), L),
        repeated(Part("attention", forward=computed, needed=needed, backward=back), L - channel),
        repeated(Part("channel attention", forward=mixed, needed=mixed, backward=2 * mixed), channel),
        repeated(linear("out", B * T, [(D, D)], bias=bias * D), L),
        repeated(linear("feed-forward", B * T, feed, bias=feed_bias), L),
        _by_adam(linear("classes", B, [(V, D)], bias=V)),
    )


def attention_operations(pattern: Pattern, T: int, D: int, B: int = 1) -> tuple[int, int]:
    """Operations of one layer's attention: computed, and needed. A pair takes 4 D: a score and a sum, 2 D each."""
    if pattern == FULL:
        return 4 * B * D * T * T, 4 * B * D * T * T
    assert isinstance(pattern, Axial | Neighbourhood)
    computed = grid.computed(pattern) if grid.is_faster(pattern) else T * T
    return 4 * B * D * computed, 4 * B * D * grid.pairs(pattern)


def recomputed_scores(pattern: Pattern, T: int, D: int, B: int = 1) -> int:
    """Scores that a fused kernel computes again for the gradient: all, or only a token's own where keys are cut up."""
    if pattern == FULL or not isinstance(pattern, Axial | Neighbourhood) or not grid.is_faster(pattern):
        return 2 * B * D * T * T
    return 2 * B * D * T * pattern.globals


def _without_gradient(part: Part) -> Part:
    """The image is given, not learnt: of the two products in the backward pass one is left."""
    return replace(part, backward=part.forward)


def _by_adam(part: Part) -> Part:
    """Tables are not Muon's to change."""
    return replace(part, matrices=0)
