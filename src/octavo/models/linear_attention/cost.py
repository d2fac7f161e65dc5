"""What a linear recurrent model costs, part by part.

B rows, T tokens of a row, N = B × T, D width, L layers.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch

from octavo.models.cost.parts import Cache, Cost, Part, Shape, linear, output, repeated
from octavo.models.cost.recurrence import Run, recurrence_part, saved_for_backward
from octavo.models.cost.transformer import feed_forward_part
from octavo.models.linear_attention.config import LinearAttentionConfig
from octavo.models.linear_attention.mixer import Mixer, Sizes
from octavo.models.linear_attention.model import MixerBlock
from octavo.ops.cross_entropy import SMALL


def linear_attention_cost(
    name: str, mixer: type[Mixer], config: LinearAttentionConfig, vocab: int, shape: Shape
) -> Cost:  # fmt: skip
    """Every part, those of all layers together, and the state."""
    N, D, L, sizes = shape.tokens, config.width, config.layers, mixer.sizes(config)
    kind: Any = mixer  # a class is hashable, whatever its type says
    saved, saved_bytes = block_saved(kind, replace(config, layers=1), shape.batch, shape.window)
    norms = L * (1 if config.feed_forward == "none" else 2) + 1
    projections = linear("projections", N, sizes.shapes_OI, bias=sizes.vectors, saved=saved)
    logits = replace(output(N, vocab, D, config.tied), saved_bytes=N * (4 * vocab + 8) + 4)
    last_norm = N * (2 * D + 1)
    if N * vocab > SMALL:  # of the logits only gradients are saved, some rows at a time
        last_norm -= N * D
        logits = replace(logits, saved=N * D, saved_bytes=4 * vocab * D, half_copies=0)
    parts = [
        Part("embeddings", vocab * D, saved=N * D if config.dropout else 0),
        repeated(replace(projections, saved_bytes=saved_bytes), L),
        repeated(recurrence_part("recurrence", sizes.recurrence, shape), L),
        repeated(linear("out", N, [sizes.out_OI]), L),
        Part("norms", norms * D, read=norms * D, saved=last_norm),
        logits,
    ]
    if config.feed_forward != "none":
        parts.insert(4, repeated(feed_forward_part(config.parts, N), L))
    return Cost(name, vocab, shape, tuple(parts), caches(config, sizes))


def caches(config: LinearAttentionConfig, sizes: Sizes) -> tuple[Cache, ...]:
    """The state of every head, kept in single precision at least, and the last inputs of the convolution."""
    state = Cache(constant=config.layers * (sizes.heads * sizes.key * sizes.value + sizes.kept), least_size=4)
    return state, Cache(constant=config.layers * config.past * sizes.channels)


@lru_cache(maxsize=256)
def block_saved(mixer: type[Mixer], config: LinearAttentionConfig, B: int, T: int) -> tuple[int, int]:
    """What a block saves for the backward pass, as `saved_for_backward` counts it."""

    def prepare(dtype: torch.dtype) -> Run:
        block = MixerBlock(config, mixer).to(dtype).train()
        x_BTD = torch.empty(B, T, config.width, dtype=dtype, requires_grad=True)
        return (*block.parameters(), x_BTD), lambda: block.absorb(x_BTD, block.mixer.start(B))

    return saved_for_backward(prepare)
