"""What a linear recurrent model costs, part by part.

B rows, T tokens of a row, N = B × T, H heads, K size of a key, V columns of a head's state, C tokens of a chunk,
D width, L layers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from octavo.models.cost.parts import Cache, Cost, Part, Shape, linear, output, repeated
from octavo.models.cost.transformer import feed_forward_part
from octavo.models.linear_recurrent.config import LinearRecurrentConfig
from octavo.models.linear_recurrent.mixer import Mixer, Sizes
from octavo.models.linear_recurrent.model import MixerBlock
from octavo.ops.cross_entropy import SMALL
from octavo.ops.linear.decaying import chunk_of


def linear_recurrent_cost(
    name: str, mixer: type[Mixer], config: LinearRecurrentConfig, vocab: int, shape: Shape
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
        repeated(recurrence_part(sizes, shape), L),
        repeated(linear("out", N, [sizes.out_OI]), L),
        Part("norms", norms * D, read=norms * D, saved=last_norm),
        logits,
    ]
    if config.feed_forward != "none":
        parts.insert(4, repeated(feed_forward_part(config.parts, N), L))
    return Cost(name, vocab, shape, tuple(parts), caches(config, sizes))


def caches(config: LinearRecurrentConfig, sizes: Sizes) -> tuple[Cache, ...]:
    """The state of every head, kept in single precision at least, and the last inputs of the convolution."""
    state = Cache(constant=config.layers * (sizes.heads * sizes.key * sizes.value + sizes.kept), least_size=4)
    return state, Cache(constant=config.layers * config.past * sizes.channels)


def recurrence_part(sizes: Sizes, shape: Shape) -> Part:
    """The products of S_t = A_t S_{t-1} + k_t v_tᵀ and y_t = q_t S_t: of a step those with the state, of a chunk those
    of all pairs besides.

    The state before the first token has no gradient, nor is that after the last one used. Systems of equations, which
    the delta rule solves in each chunk, are no products: C² (K + V) multiplications and additions, not counted.
    """
    rows, T, K, V = shape.batch * sizes.heads, shape.window, sizes.key, sizes.value
    state = 2 * K * V  # a vector times the state
    needed = rows * T * state * (3 if sizes.delta else 2)
    if T == 1:
        forward = state * (2 if sizes.delta else 1)
        erased = state * (1 if sizes.fixed_decay else 2) if sizes.delta else 0
        backward = 2 * state + erased
    else:
        C = min(chunk_of(sizes.decays), T)
        chunks = -(-T // C)
        pairs = 2 * C * C
        inside = pairs * (K + V)  # the map of all pairs, and its product with the values
        forward = chunks * (inside + 2 * C * state)
        backward = chunks * (2 * inside + C * state) + (chunks - 1) * 3 * C * state
        if sizes.delta:  # L, and W S
            forward += chunks * (pairs * K + C * state)
            backward += chunks * (2 * pairs * K + pairs * (K + V) + C * state) + (chunks - 1) * C * state
    return Part("recurrence", forward=rows * forward, needed=needed, backward=rows * backward)


@lru_cache(maxsize=256)
def block_saved(mixer: type[Mixer], config: LinearRecurrentConfig, B: int, T: int) -> tuple[int, int]:
    """What a block saves for the backward pass: numbers in the precision of products, and bytes whatever that is.

    The many small steps of a recurrence have no formula that could be trusted, so a block is run without numbers (on
    PyTorch's meta device) and what autograd saves is counted: in single precision, and, for what stays single, in half.
    """
    wide = sum(size for number, size in _saved(mixer, config, B, T, torch.bfloat16) if number > 2)
    every = sum(size for _, size in _saved(mixer, config, B, T, torch.float32))
    saved_bytes = min(wide, every)
    return (every - saved_bytes) // 4, saved_bytes + (every - saved_bytes) % 4


def _saved(
    mixer: type[Mixer], config: LinearRecurrentConfig, B: int, T: int, dtype: torch.dtype
) -> list[tuple[int, int]]:  # fmt: skip
    """The size of a number, and that of the whole, of every storage that autograd saves; weights are left out."""
    with torch.device("meta"), torch.inference_mode(False), torch.enable_grad():
        block = MixerBlock(config, mixer).to(dtype).train()
        x_BTD = torch.empty(B, T, config.width, dtype=dtype, requires_grad=True)
        known = {_storage(one) for one in (*block.parameters(), x_BTD)}
        sizes: dict[int, tuple[int, int]] = {}
        held: list[Tensor] = []

        def pack(tensor: Tensor) -> Tensor:
            held.append(tensor)  # so that no storage is freed and its place taken by another
            if _storage(tensor) not in known:
                sizes[_storage(tensor)] = (tensor.element_size(), tensor.untyped_storage().nbytes())
            return tensor

        unpack: Callable[[Any], Any] = lambda tensor: tensor  # noqa: E731
        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            block.absorb(x_BTD, block.mixer.start(B))
    return list(sizes.values())


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
