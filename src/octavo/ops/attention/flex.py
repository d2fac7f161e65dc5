"""FlexAttention: a pattern compiled into PyTorch's kernel, which skips the blocks of pairs that the pattern forbids.

B batch, H heads, G key and value heads, T queries, S keys, K size of a query or key, V size of a value.
"""

from __future__ import annotations

import warnings
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from octavo.ops.attention.patterns import CAUSAL, Pattern

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

# FlexAttention and the compiler are imported where they are used: every command would wait a second for them.

MIN_FLEX_KEYS = 4096  # below, the blocks that are skipped are not worth the seconds of compiling
MAX_COMPILED_KERNELS = 64  # and block masks: one for each pattern, length and device
MAX_MASK_ENTRIES = 1 << 24  # held while its blocks are found; beyond, that is compiled too


def attend_flex(
    q_BHTK: Tensor, k_BGSK: Tensor, v_BGSV: Tensor, pattern: Pattern, *,
    bias_HTS: Tensor | None, scale: float | None, dropout: float,
) -> Tensor:  # fmt: skip
    """Attention without the blocks of 128 × 128 pairs that the pattern forbids; a row of nothing gives zeros."""
    assert dropout == 0.0  # `unsupported_reason` has refused it
    (B, H, T, _), (G, S) = q_BHTK.shape, k_BGSK.shape[1:3]
    blocks = block_mask(pattern, T, S, q_BHTK.device)
    change = None if bias_HTS is None else add_bias(bias_HTS.expand(B, H, T, S))
    y_BHTV: Tensor = kernel(q_BHTK.device.type)(q_BHTK, k_BGSK, v_BGSV, change, blocks, scale, H > G)
    return y_BHTV


def is_fastest(q_BHTK: Tensor, k_BGSK: Tensor, dropout: float) -> bool:
    """Whether it is likely the fastest path: on a GPU, in half precision, at lengths where there are blocks to skip."""
    many = q_BHTK.shape[-2] > 1 and k_BGSK.shape[-2] >= MIN_FLEX_KEYS
    half = q_BHTK.dtype in (torch.bfloat16, torch.float16)
    return many and half and q_BHTK.is_cuda and unsupported_reason(dropout, q_BHTK, k_BGSK) is None


def unsupported_reason(dropout: float, *inputs: Tensor) -> str | None:
    """Why FlexAttention cannot compute this; None if it can."""
    on_gpu = inputs[0].is_cuda
    if dropout:
        return f"FlexAttention drops no weights, and dropout={dropout}"
    if on_gpu and inputs[0].dtype == torch.float64:
        return "FlexAttention has no kernel for float64 on a GPU"
    if not on_gpu and torch.is_grad_enabled() and any(x.requires_grad for x in inputs):
        return f"FlexAttention has no gradient on the device {inputs[0].device}"
    if torch.compiler.is_compiling():
        return "FlexAttention is compiled by itself, which cannot happen while something else is"
    return None


@cache
def kernel(device: str) -> Any:
    """The kernel, compiled, on a GPU; elsewhere the equations behind it."""
    if device != "cuda":
        return _unfused
    from torch import _dynamo as dynamo
    from torch.nn.attention.flex_attention import flex_attention

    compiled = torch.compile(flex_attention)
    ready: set[tuple[Any, ...]] = (
        set()
    )  # what is compiled, by the block mask's identity: `block_mask` keeps those in use

    def fused(*inputs: Any) -> Any:
        *tensors, change, blocks, scale, shared = inputs
        needs = torch.is_grad_enabled() and any(x.requires_grad for x in tensors)
        kind = (*((x.shape, x.stride(), x.dtype) for x in tensors), change is None, id(blocks), scale, shared, needs)
        if change is None and kind in ready:
            return compiled(*inputs)
        ready.add(kind)
        # Each pattern is a kernel of its own; after eight of them the compiler would give up and hold all the scores.
        with dynamo.config.patch(recompile_limit=MAX_COMPILED_KERNELS), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of torch's about its own compiler: nobody here can act on them
            return compiled(*inputs)

    return fused


def _unfused(q_BHTK: Tensor, k_BGSK: Tensor, v_BGSV: Tensor, *rest: Any) -> Any:
    from torch.nn.attention.flex_attention import flex_attention

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
        return flex_attention(q_BHTK.detach(), k_BGSK.detach(), v_BGSV.detach(), *rest)


@lru_cache(MAX_COMPILED_KERNELS)
def block_mask(pattern: Pattern, T: int, S: int, device: torch.device) -> BlockMask:
    """Which blocks of pairs the pattern allows wholly, in part or not at all."""
    from torch import _dynamo as dynamo
    from torch.nn.attention.flex_attention import create_block_mask

    here = pattern.on(device)

    def allows(b: Tensor, h: Tensor, t: Tensor, s: Tensor) -> Tensor:
        return here.row(b).allows(t + S - T, s)

    make: Any = torch.compile(create_block_mask) if T * S > MAX_MASK_ENTRIES else create_block_mask
    with dynamo.config.patch(recompile_limit=MAX_COMPILED_KERNELS), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        blocks: BlockMask = make(allows, pattern.rows, None, T, S, device)
    return blocks


def add_bias(bias_BHTS: Tensor) -> Any:
    """A bias in the form FlexAttention asks for."""

    def change(score: Tensor, b: Tensor, h: Tensor, t: Tensor, s: Tensor) -> Tensor:
        return score + bias_BHTS[b, h, t, s]

    return change


@cache
def compiles(device: torch.device, dtype: torch.dtype, K: int) -> bool:
    """Whether it can be compiled here: tried once on two small heads, because not every machine has a compiler."""
    x_BHTK = torch.zeros(1, 2, 128, K, device=device, dtype=dtype, requires_grad=True)
    try:
        attend_flex(x_BHTK, x_BHTK, x_BHTK, CAUSAL, bias_HTS=None, scale=None, dropout=0.0).sum().backward()
    except Exception:
        return False
    return True
