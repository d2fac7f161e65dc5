"""Triton kernels for one token of one sequence: every product with a vector, with all that stands around it fused in.

H heads, G heads of keys and values, K size of a head, D width, E = (H + 2 G) K, F inner width, S slots, P parts that
the keys are split into. N rows of a matrix, I its columns. `_UP` is a size rounded up to a power of two.

One token needs every weight once, so a step is as fast as weights come from memory; each product is spread over the
whole chip in programs of a few rows each. With OVERLAP a program fetches its weights before it waits for the kernel
before it to end: the gap between two kernels is then spent on the memory's work. What a kernel reads before the wait
must therefore be constant during the step.
"""

from __future__ import annotations

import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]

# mypy: disable-error-code="no-untyped-def,misc,untyped-decorator"


@triton.jit
def _wait(OVERLAP: tl.constexpr):
    if OVERLAP:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def _normed(x_I, column_I, weight_I, bias_I, eps, SIZE: tl.constexpr, KIND: tl.constexpr, BIASED: tl.constexpr):
    """x normed as KIND says; what stands beyond SIZE is zero and stays it."""
    inside_I = column_I < SIZE
    if KIND == "layer":
        x_I = tl.where(inside_I, x_I - tl.sum(x_I, 0) / SIZE, 0.0)
    x_I = x_I * tl.rsqrt(tl.sum(x_I * x_I, 0) / SIZE + eps)
    x_I *= tl.load(weight_I + column_I, mask=inside_I, other=0.0).to(tl.float32)
    if BIASED:
        x_I += tl.load(bias_I + column_I, mask=inside_I, other=0.0).to(tl.float32)
    return x_I


@triton.jit
def _tile(weight_NI, first, ROWS: tl.constexpr, INNER: tl.constexpr, BLOCK: tl.constexpr, INNER_UP: tl.constexpr):
    """The rows from `first` on, whole."""
    row_N = first.to(tl.int64) + tl.arange(0, BLOCK)
    column_I = tl.arange(0, INNER_UP)
    inside = (row_N[:, None] < ROWS) & (column_I[None, :] < INNER)
    return tl.load(weight_NI + row_N[:, None] * INNER + column_I[None, :], mask=inside, other=0.0)


@triton.jit
def _activated(x, KIND: tl.constexpr):
    if KIND == "gelu":
        inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
        x = x / (1.0 + tl.exp(-2.0 * inner))  # (1 + tanh(y)) / 2 = 1 / (1 + exp(-2 y))
    elif KIND == "gelu-exact":
        x = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    elif KIND == "relu2":
        x = tl.maximum(x, 0.0)
        x = x * x
    elif KIND == "silu":
        x = x / (1.0 + tl.exp(-x))
    return x


@triton.jit
def embed(
    x_D, token_1, at_1, tokens_S, embedding_VD, positions_CD,
    D: tl.constexpr, D_UP: tl.constexpr, PLACED: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    """The token's vector, with that of its place where there is one; the token itself is written down."""
    _wait(OVERLAP)
    column_D = tl.arange(0, D_UP)
    inside_D = column_D < D
    token, at = tl.load(token_1), tl.load(at_1)
    x = tl.load(embedding_VD + token * D + column_D, mask=inside_D, other=0.0).to(tl.float32)
    if PLACED:
        x += tl.load(positions_CD + at * D + column_D, mask=inside_D, other=0.0).to(tl.float32)
    tl.store(x_D + column_D, x, mask=inside_D)
    tl.store(tokens_S + at, token)


@triton.jit
def normed_product(
    y_N, x_I, weight_NI, bias_N, gate_NI, norm_I, norm_bias_I, at_1, eps,
    ROWS: tl.constexpr, INNER: tl.constexpr, INNER_UP: tl.constexpr, BLOCK: tl.constexpr, NORM: tl.constexpr,
    NORM_BIASED: tl.constexpr, BIASED: tl.constexpr, ACTIVATION: tl.constexpr, GATED: tl.constexpr,
    LAST: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    """f(W norm(x) + b), or silu(G norm(x)) · W norm(x); the LAST of a step moves on to the next slot."""
    first = tl.program_id(0) * BLOCK
    w = _tile(weight_NI, first, ROWS, INNER, BLOCK, INNER_UP)
    if GATED:
        g = _tile(gate_NI, first, ROWS, INNER, BLOCK, INNER_UP)
    _wait(OVERLAP)
    column_I = tl.arange(0, INNER_UP)
    x = tl.load(x_I + column_I, mask=column_I < INNER, other=0.0)
    x = _normed(x, column_I, norm_I, norm_bias_I, eps, INNER, NORM, NORM_BIASED)
    y = tl.sum(w.to(tl.float32) * x[None, :], 1)
    row_N = first + tl.arange(0, BLOCK)
    if BIASED:
        y += tl.load(bias_N + row_N, mask=row_N < ROWS, other=0.0).to(tl.float32)
    if GATED:
        y *= _activated(tl.sum(g.to(tl.float32) * x[None, :], 1), "silu")
    else:
        y = _activated(y, ACTIVATION)
    tl.store(y_N + row_N, y, mask=row_N < ROWS)
    if LAST:  # noqa: SIM102 (known when the kernel is compiled, unlike the other)
        if first == 0:
            tl.store(at_1, tl.load(at_1) + 1)


@triton.jit
def added_product(
    x_N, y_I, weight_NI, bias_N,
    ROWS: tl.constexpr, INNER: tl.constexpr, INNER_UP: tl.constexpr, BLOCK: tl.constexpr, BIASED: tl.constexpr,
    OVERLAP: tl.constexpr,
):  # fmt: skip
    """x + W y + b, in place."""
    first = tl.program_id(0) * BLOCK
    w = _tile(weight_NI, first, ROWS, INNER, BLOCK, INNER_UP)
    _wait(OVERLAP)
    column_I = tl.arange(0, INNER_UP)
    y = tl.load(y_I + column_I, mask=column_I < INNER, other=0.0)
    _add(x_N, tl.sum(w.to(tl.float32) * y[None, :], 1), bias_N, first, ROWS, BLOCK, BIASED)


@triton.jit
def _add(x_N, y, bias_N, first, ROWS: tl.constexpr, BLOCK: tl.constexpr, BIASED: tl.constexpr):
    row_N = first + tl.arange(0, BLOCK)
    y += tl.load(x_N + row_N, mask=row_N < ROWS, other=0.0)
    if BIASED:
        y += tl.load(bias_N + row_N, mask=row_N < ROWS, other=0.0).to(tl.float32)
    tl.store(x_N + row_N, y, mask=row_N < ROWS)


@triton.jit
def _joined(
    sum_PHK, best_PH, total_PH, HEADS: tl.constexpr, HEADS_UP: tl.constexpr, SIZE: tl.constexpr, PARTS: tl.constexpr
):
    """y_HK: the parts' sums, brought to one scale, over their totals."""
    head_H = tl.arange(0, HEADS_UP)
    inside_H = head_H < HEADS
    place = head_H[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
    best_H = tl.load(best_PH + head_H, mask=inside_H, other=0.0)
    for part in tl.static_range(1, PARTS):
        best_H = tl.maximum(best_H, tl.load(best_PH + part * HEADS + head_H, mask=inside_H, other=0.0))
    y_HK = tl.zeros([HEADS_UP, SIZE], tl.float32)
    total_H = tl.zeros([HEADS_UP], tl.float32)
    for part in tl.static_range(PARTS):
        share_H = tl.exp(tl.load(best_PH + part * HEADS + head_H, mask=inside_H, other=0.0) - best_H)
        total_H += share_H * tl.load(total_PH + part * HEADS + head_H, mask=inside_H, other=1.0)
        y_HK += share_H[:, None] * tl.load(sum_PHK + part * HEADS * SIZE + place, mask=inside_H[:, None], other=0.0)
    return y_HK / total_H[:, None]


@triton.jit
def _joined_by_column(
    sum_PHK, best_PH, total_PH, HEADS: tl.constexpr, INNER: tl.constexpr, INNER_UP: tl.constexpr, SIZE: tl.constexpr,
    PARTS: tl.constexpr,
):  # fmt: skip
    """The same as one row, for heads of any size."""
    column_I = tl.arange(0, INNER_UP)
    inside_I = column_I < INNER
    head_I = column_I // SIZE
    best_I = tl.load(best_PH + head_I, mask=inside_I, other=0.0)
    for part in tl.static_range(1, PARTS):
        best_I = tl.maximum(best_I, tl.load(best_PH + part * HEADS + head_I, mask=inside_I, other=0.0))
    y_I = tl.zeros([INNER_UP], tl.float32)
    total_I = tl.zeros([INNER_UP], tl.float32)
    for part in tl.static_range(PARTS):
        share_I = tl.exp(tl.load(best_PH + part * HEADS + head_I, mask=inside_I, other=0.0) - best_I)
        total_I += share_I * tl.load(total_PH + part * HEADS + head_I, mask=inside_I, other=1.0)
        y_I += share_I * tl.load(sum_PHK + part * INNER + column_I, mask=inside_I, other=0.0)
    return y_I / total_I


@triton.jit
def added_attention(
    x_N, sum_PHK, best_PH, total_PH, weight_NI, bias_N,
    ROWS: tl.constexpr, INNER: tl.constexpr, INNER_UP: tl.constexpr, BLOCK: tl.constexpr, BIASED: tl.constexpr,
    HEADS: tl.constexpr, HEADS_UP: tl.constexpr, SIZE: tl.constexpr, SIZE_UP: tl.constexpr, PARTS: tl.constexpr,
    OVERLAP: tl.constexpr,
):  # fmt: skip
    """x + W y + b, in place, where y is put together from the sums over the parts of the keys."""
    first = tl.program_id(0) * BLOCK
    w = _tile(weight_NI, first, ROWS, INNER, BLOCK, INNER_UP)
    _wait(OVERLAP)
    if SIZE == SIZE_UP:  # then heads fall into rows, and what belongs to a head is loaded once for it
        y = tl.reshape(_joined(sum_PHK, best_PH, total_PH, HEADS, HEADS_UP, SIZE, PARTS), [INNER_UP])
    else:
        y = _joined_by_column(sum_PHK, best_PH, total_PH, HEADS, INNER, INNER_UP, SIZE, PARTS)
    _add(x_N, tl.sum(w.to(tl.float32) * y[None, :], 1), bias_N, first, ROWS, BLOCK, BIASED)


@triton.jit
def _head(qkv_E, head, at, cos_SK, sin_SK, eps, K: tl.constexpr, K_UP: tl.constexpr, NORMED: tl.constexpr,
          TURNED: tl.constexpr):  # fmt: skip
    """One head's query or key, normed and turned."""
    column_K = tl.arange(0, K_UP)
    inside_K = column_K < K
    x = tl.load(qkv_E + head * K + column_K, mask=inside_K, other=0.0)
    scale = 1.0
    if NORMED:
        scale = tl.rsqrt(tl.sum(x * x, 0) / K + eps)
    if TURNED:
        other_K = (column_K + K // 2) % K
        other = tl.load(qkv_E + head * K + other_K, mask=inside_K, other=0.0)
        x *= tl.load(cos_SK + at * K + column_K, mask=inside_K, other=0.0).to(tl.float32)
        x += other * tl.load(sin_SK + at * K + column_K, mask=inside_K, other=0.0).to(tl.float32)
    return x * scale


@triton.jit
def _block(keys_SK, values_SK, first, stop, K: tl.constexpr, K_UP: tl.constexpr, BLOCK: tl.constexpr):
    """Keys and values from `first` on, as far as they stand before `stop`."""
    slot_T = first + tl.arange(0, BLOCK)
    column_K = tl.arange(0, K_UP)
    place = slot_T[:, None] * K + column_K[None, :]
    inside = (slot_T[:, None] < stop) & (column_K[None, :] < K)
    return tl.load(keys_SK + place, mask=inside, other=0.0), tl.load(values_SK + place, mask=inside, other=0.0)


@triton.jit
def _look(q, y, best, total, k, v, first, stop, BLOCK: tl.constexpr):
    """The sums with another block of keys taken in."""
    seen_T = first + tl.arange(0, BLOCK) < stop
    e_T = tl.where(seen_T, tl.sum(k.to(tl.float32) * q[None, :], 1), -1e30)
    better = tl.maximum(best, tl.max(e_T, 0))
    a_T = tl.where(seen_T, tl.exp(e_T - better), 0.0)
    shrunk = tl.exp(best - better)
    return y * shrunk + tl.sum(a_T[:, None] * v.to(tl.float32), 0), better, total * shrunk + tl.sum(a_T, 0)


@triton.jit
def attend_cached(
    sum_PHK, best_PH, total_PH, qkv_E, keys_GSK, values_GSK, cos_SK, sin_SK, at_1, eps, scale,
    H: tl.constexpr, G: tl.constexpr, K: tl.constexpr, K_UP: tl.constexpr, SLOTS: tl.constexpr, SEEN: tl.constexpr,
    PARTS: tl.constexpr, BLOCK: tl.constexpr, BLOCKS: tl.constexpr, NORMED: tl.constexpr, TURNED: tl.constexpr,
    OVERLAP: tl.constexpr,
):  # fmt: skip
    """One head's query against one part of the keys: the best score, and relative to it the sums.

    The new key and value belong to the first part, which takes them from where they were computed; so nobody waits
    for them to be written.
    """
    head, part = tl.program_id(0), tl.program_id(1)
    group = head // (H // G)
    keys, values = keys_GSK + group * SLOTS * K, values_GSK + group * SLOTS * K
    at = tl.load(at_1)  # the slot moves on at the end of a step, and older keys do not change, so neither must wait
    start = tl.maximum(0, at + 1 - SEEN)
    step = tl.cdiv(at - start, PARTS * BLOCK) * BLOCK  # whole blocks for each part
    start += part * step
    stop = tl.minimum(start + step, at)
    k_TK, v_TK = _block(keys, values, start, stop, K, K_UP, BLOCK)
    _wait(OVERLAP)
    column_K = tl.arange(0, K_UP)
    inside_K = column_K < K
    q = _head(qkv_E, head, at, cos_SK, sin_SK, eps, K, K_UP, NORMED, TURNED) * scale
    best, total = tl.full([], -1e30, tl.float32), tl.full([], 0.0, tl.float32)
    y = tl.zeros([K_UP], tl.float32)
    if part == 0:
        k = _head(qkv_E, H + group, at, cos_SK, sin_SK, eps, K, K_UP, NORMED, TURNED)
        y = tl.load(qkv_E + (H + G + group) * K + column_K, mask=inside_K, other=0.0)
        best, total = tl.sum(q * k, 0), total + 1.0
        if head % (H // G) == 0:
            tl.store(keys + at * K + column_K, k, mask=inside_K)
            tl.store(values + at * K + column_K, y, mask=inside_K)
    y, best, total = _look(q, y, best, total, k_TK, v_TK, start, stop, BLOCK)
    for _ in range(1, BLOCKS):
        start += BLOCK
        k_TK, v_TK = _block(keys, values, start, stop, K, K_UP, BLOCK)
        y, best, total = _look(q, y, best, total, k_TK, v_TK, start, stop, BLOCK)
    tl.store(sum_PHK + (part * H + head) * K + column_K, y, mask=inside_K)
    tl.store(best_PH + part * H + head, best)
    tl.store(total_PH + part * H + head, total)


@triton.jit
def choose_in_blocks(best_M, where_M, logits_V, begin, V: tl.constexpr, BLOCK: tl.constexpr, OVERLAP: tl.constexpr):
    """The highest logit of each block of the vocabulary and its token, the lowest of equals; never begin."""
    _wait(OVERLAP)
    block = tl.program_id(0)
    token = block * BLOCK + tl.arange(0, BLOCK)
    logits = tl.load(logits_V + token, mask=(token < V) & (token != begin), other=-float("inf"))
    best = tl.max(logits, 0)
    tl.store(best_M + block, best)
    tl.store(where_M + block, tl.min(tl.where(logits == best, token, V), 0))


@triton.jit
def choose(token_1, chosen_N, count_1, best_M, where_M, V: tl.constexpr, M: tl.constexpr, M_UP: tl.constexpr,
           OVERLAP: tl.constexpr):  # fmt: skip
    """The best of the blocks becomes the next token, and is written down: as V where no logit is a number."""
    _wait(OVERLAP)
    block = tl.arange(0, M_UP)
    best = tl.load(best_M + block, mask=block < M, other=-float("inf"))
    where = tl.load(where_M + block, mask=block < M, other=V)
    token = tl.min(tl.where(best == tl.max(best, 0), where, V), 0).to(tl.int64)
    count = tl.load(count_1)
    tl.store(token_1, tl.minimum(token, V - 1))
    tl.store(chosen_N + count, token)
    tl.store(count_1, count + 1)
