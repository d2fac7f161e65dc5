"""Attention by the fastest kernel for the inputs; each is checked against `reference`.

B batch, H heads, G key and value heads (G divides H), T queries, S keys, K size of a query or key, V size of a value;
in the band, N blocks of W queries.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from octavo.errors import UserError
from octavo.ops.attention import flex, reference
from octavo.ops.attention.patterns import CAUSAL, FULL, Both, Causal, Local, Pattern
from octavo.ops.tracing import is_tracing, tap

Path = Literal["auto", "plain", "sdpa", "band", "flex", "products"]

MAX_HELD_WEIGHTS = 1 << 24  # attention weights that may be held in full


def attend(
    q_BHTK: Tensor, k_BGSK: Tensor, v_BGSV: Tensor, pattern: Pattern = FULL, *,
    bias_HTS: Tensor | None = None, scale: float | None = None, path: Path = "auto", dropout: float = 0.0,
) -> Tensor:  # fmt: skip
    """y_BHTV = softmax(q kᵀ) v over the pairs that the pattern allows; every path gives the same."""
    check(q_BHTK, k_BGSK, v_BGSV, pattern)
    T, S = q_BHTK.shape[-2], k_BGSK.shape[-2]
    inputs = [x for x in (q_BHTK, k_BGSK, v_BGSV, bias_HTS) if x is not None]
    if path != "auto" and (reason := unsupported_reason(path, pattern, dropout, *inputs)):
        raise UserError(f"the {path} path cannot serve this: {reason}; try path='auto'")
    pattern = simplest(pattern, T, S)
    chosen = choose(q_BHTK, k_BGSK, pattern, dropout) if path == "auto" else path
    if chosen != "plain" and is_tracing():
        tap("attention", reference.attention_weights(q_BHTK, k_BGSK, pattern, bias_HTS, scale))
    serve = PATHS[chosen if T and S else "plain"]  # kernels differ in what they make of nothing
    return serve(q_BHTK, k_BGSK, v_BGSV, pattern, bias_HTS=bias_HTS, scale=scale, dropout=dropout)


def choose(q_BHTK: Tensor, k_BGSK: Tensor, pattern: Pattern, dropout: float = 0.0) -> Path:
    """The path that has the attention weights while they are traced, otherwise the fastest."""
    if is_tracing():
        return "plain"
    if products_are_fastest(q_BHTK, k_BGSK):
        return "products"
    if (window := window_of(pattern)) is not None:
        # Cutting into blocks is expensive on a GPU, which is fast with a mask until that is large.
        S, least = k_BGSK.shape[-2], flex.MIN_FLEX_KEYS if q_BHTK.is_cuda else 0
        return "band" if 2 * window < S and least <= S else "sdpa"
    if pattern in (FULL, CAUSAL) or not flex.is_fastest(q_BHTK, k_BGSK, dropout):
        return "sdpa"
    return "flex" if flex.compiles(q_BHTK.device, q_BHTK.dtype, q_BHTK.shape[-1]) else "sdpa"


def unsupported_reason(path: Path, pattern: Pattern, dropout: float, *inputs: Tensor) -> str | None:
    """Why a path cannot compute this; None if it can."""
    if path not in PATHS:
        return f"the paths are auto, {', '.join(PATHS)}"
    if path == "band" and window_of(pattern) is None:
        return f"it is for CAUSAL & Local(window), the pattern is {pattern}"
    return flex.unsupported_reason(dropout, *inputs) if path == "flex" else None


def products_are_fastest(q_BHTK: Tensor, k_BGSK: Tensor) -> bool:
    """In half precision on a CPU, the gradient of PyTorch's fused attention is several times slower than products."""
    (B, H, T, _), S = q_BHTK.shape, k_BGSK.shape[-2]
    half_on_cpu = q_BHTK.dtype in (torch.bfloat16, torch.float16) and not q_BHTK.is_cuda
    return half_on_cpu and q_BHTK.requires_grad and torch.is_grad_enabled() and B * H * T * S <= MAX_HELD_WEIGHTS


def simplest(pattern: Pattern, T: int, S: int) -> Pattern:
    """The pattern without the parts that forbid nothing at these lengths."""
    window = window_of(pattern)
    if window is not None and window >= S:
        pattern = CAUSAL
    return FULL if pattern == CAUSAL and T == 1 else pattern


def window_of(pattern: Pattern) -> int | None:
    """The w of CAUSAL & Local(w); None of any other pattern."""
    match pattern:
        case Both(Causal(), Local(window)) | Both(Local(window), Causal()):
            return window
    return None


def sdpa(
    q_BHTK: Tensor, k_BGSK: Tensor, v_BGSV: Tensor, pattern: Pattern, *, bias_HTS: Tensor | None, **options: Any
) -> Tensor:
    """PyTorch's fused attention, which never holds the weights; with a mask only where one is needed."""
    T, S = q_BHTK.shape[-2], k_BGSK.shape[-2]
    if bias_HTS is None and pattern == FULL:
        return fused(q_BHTK, k_BGSK, v_BGSV, None, **options)
    if bias_HTS is None and pattern == CAUSAL and T == S:
        return triangle(q_BHTK, k_BGSK, v_BGSV, **options)
    return masked(q_BHTK, k_BGSK, v_BGSV, pattern.mask(T, S, q_BHTK.device), bias_HTS, **options)


def triangle(q_BHTK: Tensor, k_BGTK: Tensor, v_BGTV: Tensor, scale: float | None, dropout: float) -> Tensor:
    """Causal attention of as many keys as queries."""
    H = q_BHTK.shape[1]
    if q_BHTK.is_cuda and q_BHTK.dtype == torch.float32:  # PyTorch's fused kernel for it cannot share keys
        k_BGTK, v_BGTV = reference.for_each_head(k_BGTK, H), reference.for_each_head(v_BGTV, H)
    shared = k_BGTK.shape[1] < H
    return F.scaled_dot_product_attention(
        q_BHTK, k_BGTK, v_BGTV, is_causal=True, scale=scale, dropout_p=dropout, enable_gqa=shared
    )


def masked(
    q_BHTK: Tensor, k_BGSK: Tensor, v_BGSV: Tensor, mask: Tensor, bias_HTS: Tensor | None, **options: Any
) -> Tensor:
    """With a mask and a bias; a query that may attend to nothing attends to everything, and its result is dropped."""
    mask = reference.allowed(mask, bias_HTS)
    some = mask.any(-1, keepdim=True)
    if bias_HTS is None:
        kernel_mask = mask | ~some
    else:
        kernel_mask = torch.where(mask, bias_HTS, -torch.inf).masked_fill(~some, 0.0).to(q_BHTK.dtype)
    return fused(q_BHTK, k_BGSK, v_BGSV, kernel_mask, **options).masked_fill(~some, 0.0)


def fused(
    q_BHTK: Tensor, k_BGSK: Tensor, v_BGSV: Tensor, kernel_mask: Tensor | None, scale: float | None, dropout: float
) -> Tensor:
    """The fused kernel. Heads that share keys become one head with more queries, so no key is copied."""
    B, H, T, K = q_BHTK.shape
    G = k_BGSK.shape[1]
    if kernel_mask is not None:
        mask_BHTS = kernel_mask[(None,) * (4 - kernel_mask.dim())]
        if mask_BHTS.shape[1] > 1:
            kernel_mask = mask_BHTS.unflatten(1, (G, -1)).flatten(2, 3)
        else:
            kernel_mask = mask_BHTS.repeat(1, 1, H // G, 1) if H > G else mask_BHTS
    q_BGRK = q_BHTK.reshape(B, G, H // G * T, K)
    y = F.scaled_dot_product_attention(q_BGRK, k_BGSK, v_BGSV, kernel_mask, dropout, scale=scale)
    return y.reshape(B, H, T, v_BGSV.shape[-1])


def band(
    q_BHTK: Tensor, k_BGSK: Tensor, v_BGSV: Tensor, pattern: Pattern, *, bias_HTS: Tensor | None, **options: Any
) -> Tensor:
    """The last W tokens in time and memory of T × W: a block of W queries needs its own W keys and the W before.

    The N blocks take the batch's place in the kernel and the B × H heads that of the heads, so all share one mask.
    """
    B, H, T, _ = q_BHTK.shape
    W = window_of(pattern) or k_BGSK.shape[-2] + T  # a window without a limit, once what forbids nothing is left out
    seen = min(k_BGSK.shape[-2], T + W - 1)  # no query attends to older keys
    k_BGSK, v_BGSV = k_BGSK[:, :, -seen:], v_BGSV[:, :, -seen:]
    bias_HTS = None if bias_HTS is None else bias_HTS[..., -seen:]
    if T <= W:
        return sdpa(q_BHTK, k_BGSK, v_BGSV, pattern, bias_HTS=bias_HTS, **options)
    N = -(-T // W)
    front, back = W + T - seen, N * W - T  # the keys that lack before the first block, and behind the last
    q_NHWK = F.pad(q_BHTK, (0, 0, 0, back)).unflatten(2, (N, W)).movedim(2, 0).flatten(1, 2)
    k_NGWK, v_NGWV = (_with_block_before(F.pad(x, (0, 0, front, back)), W) for x in (k_BGSK, v_BGSV))
    if bias_HTS is not None:
        bias_BHTS = F.pad(bias_HTS.expand(B, H, T, seen), (front, back, 0, back))
        bias_HTS = _blocks_on_the_diagonal(bias_BHTS, W).flatten(1, 2)
    is_key_NS = (torch.arange((N + 1) * W, device=q_BHTK.device) >= front).unfold(0, 2 * W, W)
    mask_N1TS = (CAUSAL & Local(W)).mask(W, 2 * W, q_BHTK.device) & is_key_NS[:, None, None]
    y_NHWV = masked(q_NHWK, k_NGWK, v_NGWV, mask_N1TS, bias_HTS, **options)
    y_BHTV: Tensor = y_NHWV.unflatten(1, (B, H)).movedim(0, 2).flatten(2, 3)[:, :, :T]
    return y_BHTV


def _with_block_before(x_BGSK: Tensor, W: int) -> Tensor:
    """The keys that each block of queries attends to: its own and those of the block before."""
    x_NBGWK = x_BGSK.unflatten(2, (-1, W)).movedim(2, 0).flatten(1, 2)
    return torch.cat([x_NBGWK[:-1], x_NBGWK[1:]], 2)


def _blocks_on_the_diagonal(bias_BHTS: Tensor, W: int) -> Tensor:
    """The same of a bias: for block n of queries the columns of its keys, n and n + 1 counted from the pad."""
    blocks_BHNWMW = bias_BHTS.unflatten(3, (-1, W)).unflatten(2, (-1, W))
    before, own = (blocks_BHNWMW.diagonal(offset, 2, 4) for offset in (0, 1))
    return torch.cat([before, own], 3).movedim(-1, 0)


def check(q_BHTK: Tensor, k_BGSK: Tensor, v_BGSV: Tensor, pattern: Pattern) -> None:
    """Refuse heads that cannot share keys, keys without a value each, and lengths of another batch."""
    (B, H), G = q_BHTK.shape[:2], k_BGSK.shape[1]
    if pattern.rows not in (None, B):
        raise UserError(f"each row of the batch has one length: rows={B}, lengths={pattern.rows}; give {B} lengths")
    if G < 1 or H % G:
        raise UserError(f"key and value heads must divide the heads: heads={H}, kv_heads={G}; try kv_heads={H} or 1")
    if k_BGSK.shape[:3] != v_BGSV.shape[:3]:
        keys, values = tuple(k_BGSK.shape), tuple(v_BGSV.shape)
        raise UserError(f"each key has one value: keys {keys}, values {values}; give as many values as keys")


def products(
    q_BHTK: Tensor, k_BGSK: Tensor, v_BGSV: Tensor, pattern: Pattern, *,
    bias_HTS: Tensor | None, scale: float | None, dropout: float,
) -> Tensor:  # fmt: skip
    """The equations as products of many small matrices: the M = B × G sets of keys, with the R queries that meet each.

    The weights are held in full.
    """
    (B, H, T, K), G, S = q_BHTK.shape, k_BGSK.shape[1], k_BGSK.shape[2]
    mask = reference.allowed(pattern.mask(T, S, q_BHTK.device), bias_HTS)
    added = torch.zeros_like(mask, dtype=q_BHTK.dtype) if bias_HTS is None else bias_HTS.to(q_BHTK.dtype)
    added = added.masked_fill(~mask, torch.finfo(q_BHTK.dtype).min)  # not -inf: a row of those would be nan
    shared = added.repeat(H // G, 1) if added.dim() == 2 else added.expand(B, H, T, S).reshape(B * G, -1, S)
    q_MRK, k_MSK, v_MSV = q_BHTK.reshape(B * G, -1, K), k_BGSK.flatten(0, 1), v_BGSV.flatten(0, 1)
    a_MRS = torch.baddbmm(shared, q_MRK, k_MSK.mT, alpha=reference.scale_of(q_BHTK, scale)).softmax(-1)
    y_BHTV = (F.dropout(a_MRS, dropout) @ v_MSV).view(B, H, T, -1)
    sees_itself = T <= S and (pattern in (FULL, CAUSAL) or window_of(pattern) is not None) and bias_HTS is None
    return y_BHTV if sees_itself else y_BHTV.masked_fill(~mask.any(-1, keepdim=True), 0.0)


PATHS: dict[Path, Callable[..., Tensor]] = {
    "plain": reference.attend_reference, "sdpa": sdpa, "band": band, "flex": flex.attend_flex, "products": products,
}  # fmt: skip
