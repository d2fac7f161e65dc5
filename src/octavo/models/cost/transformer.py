"""What a transformer costs, part by part.

B batch, T new tokens, S tokens seen, N = B × T, H heads, G heads of keys and values, K size of a head, D width,
E = G × K, F inner width, C context, V vocabulary, L layers, W window of a band.

The numbers saved for the backward pass are those of the plain steps of PyTorch, not compiled, from an empty state.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import torch

from octavo.errors import UserError
from octavo.models.cost.experts import expert_parts
from octavo.models.cost.parts import Cache, Cost, Part, Shape, attention_products, linear, output, repeated
from octavo.models.cost.recurrence import Recurrence, Run, recurrence_part, saved_for_backward
from octavo.models.parts.attention import LinearAttention, Place
from octavo.models.parts.config import GPTConfig
from octavo.ops.attention.dispatch import choose, simplest, window_of
from octavo.ops.attention.latent import absorbs
from octavo.ops.attention.patterns import CAUSAL, FULL, Pattern
from octavo.ops.cross_entropy import SMALL
from octavo.ops.linear import CHUNK


def transformer_cost(config: GPTConfig, V: int, shape: Shape) -> Cost:
    """Every part of a decoder, those of all layers together, and its cache.

    Of a norm are saved the input or its scaled self, its divisor, and the result; of the loss, log-probabilities in
    single precision and targets, or where there are many logits, which it makes and forgets some rows at a time, the
    gradients themselves.
    """
    N, D, L = shape.tokens, config.width, config.layers
    if config.absolute and shape.past + shape.window > config.context:
        raise UserError(
            f"a context that is read again holds at most context tokens: {shape.past + shape.window} tokens, "
            f"context={config.context}; try --window {max(1, config.context - shape.past)}"
        )
    dropped = N * D if config.dropout else 0
    norms_saved = (2 * L + 1) * N * (2 * D + (1 if config.norm == "rms" else 2))
    logits = replace(output(N, V, D, config.tied), saved_bytes=N * (4 * V + 8) + 4)
    if N * V > SMALL:
        norms_saved -= N * D  # of the last one's result only the gradient
        logits = replace(logits, saved=N * D, saved_bytes=4 * V * D, half_copies=0)
    parts = (
        Part("embeddings", V * D, saved=dropped),
        *position_parts(config, shape),
        *(repeated(part, L) for part in attention_parts(config, shape)),
        *(repeated(part, L) for part in feed_forward_parts(config, N, dropped)),
        norms(config, 2 * L + 1, norms_saved),
        logits,
    )
    return Cost("gpt", V, shape, parts, (transformer_cache(config),))


def transformer_cache(config: GPTConfig) -> Cache:
    """Keys and values of each layer, or for linear attention the sums that stand for all of them."""
    L, D, K = config.layers, config.width, config.head_size
    if config.kind.family == "linear":
        return Cache(constant=L * config.heads * (K * K + K), least_size=4)
    if config.kind.family == "synthesizer":
        return Cache(per_token=L * D, tokens=config.context)
    if config.kind.family == "latent":
        return Cache(per_token=L * (config.latent + config.rotary_size), tokens=config.cached_tokens)
    return Cache(per_token=2 * L * config.groups * K, tokens=config.cached_tokens)


# ---------------------------------------------------------------------- simple parts


def position_parts(config: GPTConfig, shape: Shape) -> tuple[Part, ...]:
    """Learned positions are a table; the angles of rotary ones are saved once for all layers."""
    if config.positions == "learned":
        return (Part("positions", config.context * config.width, saved_bytes=8 * shape.window),)
    if config.positions == "rotary" and config.kind.family != "synthesizer":
        return (Part("positions", saved=shape.window * config.rotary_size),)
    return ()


def norms(config: GPTConfig, count: int, saved: int = 0) -> Part:
    """So many norms."""
    parameters = count * config.width * (2 if config.norm == "layer" and config.bias else 1)
    return Part("norms", parameters, read=parameters, saved=saved)


def qkv_part(config: GPTConfig, N: int, saved: int = 0) -> Part:
    D, E = config.width, config.groups * config.head_size
    bias = D + 2 * E if config.bias else 0
    return linear("queries, keys, values", N, [(D, D), (E, D), (E, D)], bias, saved)


def out_part(config: GPTConfig, N: int, saved: int = 0) -> Part:
    D = config.width
    return linear("out", N, [(D, D)], D if config.bias else 0, saved)


def feed_forward_part(config: GPTConfig, N: int, saved: int = 0) -> Part:
    D, F = config.width, config.inner
    if config.feed_forward == "gated":
        return linear("feed-forward", N, [(F, D), (F, D), (D, F)], saved=saved)
    return linear("feed-forward", N, [(F, D), (D, F)], (F + D) if config.bias else 0, saved)


def feed_forward_parts(config: GPTConfig, N: int, dropped: int) -> tuple[Part, ...]:
    """The one layer for all tokens; or a mixture of experts, each token's copies processed by its own."""
    if not config.experts:
        return (feed_forward_part(config, N, feed_forward_saved(config, N) + dropped),)
    copies = N * config.experts_per_token
    return expert_parts(config, N, feed_forward_part(config, copies, feed_forward_saved(config, copies)), dropped)


def feed_forward_saved(config: GPTConfig, N: int) -> int:
    """What goes into the activation and what comes out; with a gate also both factors."""
    return N * config.inner * (4 if config.feed_forward == "gated" else 2)


# ---------------------------------------------------------------------- parts that attend to other tokens


def attention_parts(config: GPTConfig, shape: Shape) -> tuple[Part, ...]:
    """Those of one layer."""
    if config.kind.family == "synthesizer":
        return synthesizer_parts(config, shape)
    if config.kind.family == "latent":
        return latent_parts(config, shape)
    if config.kind.family == "linear" and config.head_decay != "none":
        return fading_parts(config, shape)
    N, D, E, H, G = shape.tokens, config.width, config.groups * config.head_size, config.heads, config.groups
    attention = linear_attention if config.kind.family == "linear" else softmax_attention
    projections, attended = attention(config, shape)
    saved = projections + (N * (D + E + H + G) if config.qk_norm else 0)
    qkv = replace(qkv_part(config, N, saved), copies=D * (D + 2 * E))
    return qkv, attended, out_part(config, N, N * D if config.dropout else 0)


def turned_saved(config: GPTConfig, N: int) -> int:
    """Queries and keys after their rotation by rotary positions."""
    return N * (config.width + config.groups * config.head_size) if config.positions == "rotary" else 0


def softmax_attention(config: GPTConfig, shape: Shape) -> tuple[int, Part]:
    """The numbers saved of queries, keys and values, and the part: scores and sums take 2 K operations each for a
    pair of tokens and a head.

    The kernels are given rectangles: all T × S pairs, or for a narrow window blocks of W queries and 2 W keys. PyTorch
    counts the whole rectangle also where a kernel leaves out what lies above the diagonal.
    """
    B, T, N, D, H, K = shape.batch, shape.window, shape.tokens, config.width, config.heads, config.head_size
    S = min(shape.past, config.cached_tokens) + T
    pattern, plain = simplest(config.pattern, T, S), shape.kernel == "plain"
    W = None if plain else band_width(config, T, S, pattern)
    blocks = -(-T // W) if W is not None and T > W else 0  # along the diagonal, each a copy
    if plain:  # the scaled and the softened scores, and the result
        saved, saved_bytes = 2 * B * H * T * S + N * D, T * S
    else:
        saved, saved_bytes = fused_saved(config, shape, S, pattern, blocks)
    computed = T * S if W is None else blocks * W * 2 * W if blocks else T * min(S, T + W - 1)
    each, pairs = 4 * B * H * K, pairs_of(pattern, T, S)
    projections = 0 if blocks else turned_saved(config, N) + N * (D + 2 * config.groups * K)
    part = attention_products("attention", each * computed, each * pairs, shape.kernel, saved, saved_bytes)
    return projections, part


def latent_parts(config: GPTConfig, shape: Shape) -> tuple[Part, ...]:
    """Latent attention in the form that it takes: attention itself is that of wider heads, whose keys are made from the
    latents of all tokens, or are the latents, one for all heads.
    """
    B, T, N, D, H = shape.batch, shape.window, shape.tokens, config.width, config.heads
    K, M, R = config.head_size, config.latent, config.rotary_size
    S = min(shape.past, config.cached_tokens) + T
    absorbed = absorbs(T, S, K, M, R)
    heads = replace(
        config, attention="full", width=H * ((M if absorbed else K) + R), kv_heads=int(absorbed), latent_width=0,
        positions="alibi" if config.positions == "alibi" else "none",
    )  # fmt: skip
    attended = softmax_attention(heads, shape)[1]
    made = [(H * (K + R), D), (M + R, D)]
    weights = D * (H * (K + R) + M + R)
    queries = replace(linear("queries, latents", N, made), copies=weights)
    upward = linear("keys, values", N if absorbed else B * S, [(H * K, M)] * 2)
    blocks = band_width(heads, T, S, simplest(heads.pattern, T, S)) is not None and shape.kernel == "fused"
    saved = latent_saved(config, blocks)
    upward = replace(upward, saved=N * saved, copies=0 if absorbed else 2 * H * K * M)
    return queries, upward, attended, linear("out", N, [(D, H * K)], saved=N * D if config.dropout else 0)


def latent_saved(config: GPTConfig, blocks: bool) -> int:
    """The numbers saved of a token's queries, latents, keys and values, where latents are expanded; a band keeps the
    blocks that it was cut into instead of queries, keys and values.
    """
    H, K, M, R = config.heads, config.head_size, config.latent, config.rotary_size
    normed = H * (K + R) + H + M + 1 if config.qk_norm else 0
    if R:  # the latents beside the turned keys, and the result without what was added to the values
        return normed + (M + R) + (-H * R if blocks else 3 * H * (K + R) + H * K)
    projected = 0 if config.qk_norm else H * K + M
    return normed + projected + (0 if blocks else 2 * H * K)


def band_width(config: GPTConfig, T: int, S: int, pattern: Pattern) -> int | None:
    """W where attention, on a CPU, takes the path of a band of W tokens along the diagonal."""
    q_BHTK = torch.empty(1, config.heads, T, config.head_size, device="meta")
    k_BGSK = torch.empty(1, config.groups, S, config.head_size, device="meta")
    return W if (W := window_of(pattern)) is not None and choose(q_BHTK, k_BGSK, pattern) == "band" else None


def pairs_of(pattern: Pattern, T: int, S: int) -> int:
    """`pattern.pairs`, in no time for the patterns that texts of any length are read with."""
    if pattern == FULL:
        return T * S
    W = S if pattern == CAUSAL else window_of(pattern)
    if W is None:
        return pattern.pairs(T, S)
    growing = max(0, min(T, W - (S - T)))  # queries that still see everything before them
    first = S - T + 1
    return growing * first + growing * (growing - 1) // 2 + (T - growing) * W


def fused_saved(config: GPTConfig, shape: Shape, S: int, pattern: Pattern, blocks: int) -> tuple[int, int]:
    """The result, each row's sum and the mask; a band also keeps the blocks that it was cut into."""
    B, T, N, D, H, G = shape.batch, shape.window, shape.tokens, config.width, config.heads, config.groups
    biased, rotary = config.positions == "alibi", config.positions == "rotary"
    if blocks:
        W = window_of(pattern) or T
        rows, masks = B * blocks * W, B * H if biased else 1
        mask = (B * H if biased else H // G) * blocks * W * 2 * W
        return (2 * rows + N) * D + 4 * rows * G * config.head_size + rows * H + mask, masks * blocks * W
    masked = biased or pattern not in (CAUSAL, FULL)
    # The result is laid out anew for the last product; so are queries whose heads share keys under a mask.
    copies = 1 + (masked or rotary) + (masked and G < H and not rotary)
    mask = (H if biased else H // G) * T * S if masked else 0
    return copies * N * D + N * H + mask, (H if biased else 1) * T if masked else 0


def linear_attention(config: GPTConfig, shape: Shape) -> tuple[int, Part]:
    """The numbers saved of queries, keys and values, and the part: all pairs of a chunk of C tokens, and one state of
    K × K between chunks.
    """
    B, T, H, K = shape.batch, shape.window, config.heads, config.head_size
    needed = B * H * T * 4 * K * K  # k vᵀ added to the state, and q times it
    if T == 1:
        forward, backward = 2 * B * H * K * K, 4 * B * H * K * K
    elif T <= CHUNK:  # the map of all pairs; the new state has no gradient, nor has the old one
        pairs, state = 4 * T * T * K, 2 * T * K * K + 2 * T * K
        forward, backward = B * H * (pairs + state + 2 * T * K * K), B * H * (2 * pairs + state)
    else:
        C, chunks = CHUNK, -(-T // CHUNK)
        forward = B * H * chunks * (2 * C * C * (2 * K + 1) + 4 * C * K * (K + 1))
        backward = 2 * forward
    if config.features == "random":  # fixed directions: the backward pass goes through them, but does not change them
        directions = 4 * B * H * T * K * K
        forward, backward, needed = forward + directions, backward + directions, needed + directions
    drawn = K * K if config.features == "random" else 0
    saved, saved_bytes = linear_attention_saved(config, shape)
    projections = 0
    if config.features == "elu":
        turned = turned_saved(config, shape.tokens)
        projections = turned if turned or config.qk_norm else shape.tokens * (config.width + 2 * config.groups * K)
    return projections, Part(
        "attention", drawn, fixed=drawn, read=drawn, forward=forward, needed=needed, backward=backward, saved=saved,
        saved_bytes=saved_bytes,
    )  # fmt: skip


def fading_parts(config: GPTConfig, shape: Shape) -> tuple[Part, ...]:
    """Linear attention whose sums fade: the recurrence of values and a column of ones beside them."""
    N, D, E, H, K = shape.tokens, config.width, config.groups * config.head_size, config.heads, config.head_size
    copies = D * (D + 2 * E)
    saved, saved_bytes = fading_saved(config, shape.batch, shape.window)
    attended = recurrence_part("attention", Recurrence(H, K, K + 1, fixed_decay=True), shape)
    drawn = directions = 0
    if config.features == "random":
        drawn, directions = K * K, 4 * N * H * K * K
    attended = replace(
        attended, parameters=drawn, fixed=drawn, read=drawn, forward=attended.forward + directions,
        needed=attended.needed + directions, backward=attended.backward + directions, saved_bytes=saved_bytes,
    )  # fmt: skip
    qkv = replace(qkv_part(config, N, saved - copies), copies=copies)
    return qkv, attended, out_part(config, N, N * D if config.dropout else 0)


@lru_cache(maxsize=256)
def fading_saved(config: GPTConfig, B: int, T: int) -> tuple[int, int]:
    """What such a layer saves for the backward pass, as `saved_for_backward` counts it."""

    def prepare(dtype: torch.dtype) -> Run:
        layer = LinearAttention(config).to(dtype).train()
        x_BTD = torch.empty(B, T, config.width, dtype=dtype, requires_grad=True)
        angles_TK = torch.empty(T, config.head_size, dtype=dtype)
        place = Place(angles_TK if config.positions == "rotary" else None)
        return (*layer.parameters(), x_BTD, angles_TK), lambda: layer.absorb(x_BTD, layer.start(B), place)

    return saved_for_backward(prepare)


def linear_attention_saved(config: GPTConfig, shape: Shape) -> tuple[int, int]:
    """Features and their exponents, the map of a chunk's pairs and the states, each laid out for its product."""
    B, T, N, D, H, K = shape.batch, shape.window, shape.tokens, config.width, config.heads, config.head_size
    made = {"elu": N * 5 * D, "relu": N * 2 * D, "random": N * (6 * D + H)}[config.features]
    if T <= CHUNK:
        laid_out = {"elu": 3, "relu": 3, "random": 1}[config.features]
        return made + N * ((laid_out + 2) * D + H * (T + 1)) + B * H * (K * K + K), N * H
    chunks = -(-T // CHUNK)
    rows = B * chunks * CHUNK
    pairs = rows * H * CHUNK + rows * (2 * D + 2 * H * (K + 1))
    return made + N * (D + H) + pairs + B * H * chunks * K * (K + 1), N * H


def synthesizer_parts(config: GPTConfig, shape: Shape) -> tuple[Part, ...]:
    """Synthesizers: the map comes from each token alone (dense) or is learnt as it is (random)."""
    B, T, N, D, H, K = shape.batch, shape.window, shape.tokens, config.width, config.heads, config.head_size
    S, C = shape.past + T, config.context
    dense = config.attention == "dense"
    projected = linear("values" if not dense else "queries, values", N, [(D, D)] * (2 if dense else 1))
    one = 2 * B * H * T * S * K
    summed = one if dense or S > 1 else 0  # with one map for all rows, a sum over one token is no product
    forward, pairs = summed + (one if dense else 0), pairs_of(CAUSAL, T, S)
    needed = forward // (T * S) * pairs
    places = H * C * (K if dense else C)
    attended = Part(
        "attention", places, read=H * S * K if dense else H * T * S, forward=forward, needed=needed,
        backward=2 * forward, saved_bytes=T * S + 4 * (B if dense else 1) * H * T * S,
        saved=N * D * (2 if dense else 1),
    )  # fmt: skip
    dropped = N * D if config.dropout else 0
    return projected, attended, linear("out", N, [(D, D)], saved=N * D + dropped)
