"""Linear attention: the softmax's exponential is replaced by a product of features, so that sums can be carried.

B batch, H heads, T tokens, N chunks of C tokens, K features, V size of a value.

    from octavo.ops import linear
    q, k = linear.features("elu", q_BHTK, k_BHTK)
    y_BHTV, state = linear.attend_linear(q, k, v_BHTV)              # a text
    y_BHTV, state = linear.attend_linear(q2, k2, v2_BHTV, state)    # the text that follows it

These sums forget nothing; `attend_decaying` (in `decaying.py`) forgets, by decay and by the delta rule.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from octavo.errors import UserError
from octavo.ops.linear import reference
from octavo.ops.linear.decaying import attend_decaying, attend_fading, attend_with_sums, fixed_decays, stabilised
from octavo.ops.linear.decaying_reference import decaying_weights
from octavo.ops.linear.feature_maps import FEATURES, Features, draw_random_features, features
from octavo.ops.linear.kernels import require_support, serves, unsupported_reason
from octavo.ops.linear.reference import State, linear_weights, ratio
from octavo.ops.linear.sums import check_shapes, in_chunks, wide_enough

__all__ = [
    "FEATURES", "Features", "State", "attend_decaying", "attend_fading", "attend_with_sums", "decaying_weights",
    "draw_random_features", "features", "fixed_decays", "linear_weights", "stabilised", "wide_enough",
]  # and what is below  # fmt: skip

Path = Literal["auto", "parallel", "chunked", "recurrent", "kernel"]
PATHS: tuple[Path, ...] = ("auto", "parallel", "chunked", "recurrent", "kernel")

CHUNK = 64


def attend_linear(
    q_BHTK: Tensor, k_BHTK: Tensor, v_BHTV: Tensor, state: State | None = None, *,
    path: Path = "auto", chunk: int | None = None,
) -> tuple[Tensor, State]:  # fmt: skip
    """Causal linear attention on features: y_t = q_t S_t / (q_t · z_t), and the state after the last token.

    Sums are kept in single precision at least, also under autocast; y has the precision of v. `chunk` is how many
    tokens "chunked" and "kernel" take at once; without it each takes what suits it. `linear_weights` is the map that is
    applied in effect.
    """
    check(q_BHTK, k_BHTK, v_BHTV, chunk)
    if path not in PATHS:
        raise UserError(f"path must be one of {', '.join(PATHS)}: path={path}; try auto")
    if path == "auto":
        path = choose(q_BHTK, v_BHTV, chunk)
        if path == "kernel" and not serves("plain", q_BHTK, v_BHTV):
            path = "chunked"
    before = start(q_BHTK, v_BHTV) if state is None else state
    if path == "kernel":
        return through_kernel(q_BHTK, k_BHTK, v_BHTV, before, chunk)
    wide = wide_enough(*before, q_BHTK, k_BHTK, v_BHTV)
    before = before[0].to(wide), before[1].to(wide)
    q_BHTK, k_BHTK, wide_v_BHTV = q_BHTK.to(wide), k_BHTK.to(wide), v_BHTV.to(wide)
    with torch.autocast(q_BHTK.device.type, enabled=False):
        if path == "parallel":
            y_BHTV, after = reference.parallel(q_BHTK, k_BHTK, wide_v_BHTV, before)
        elif path == "recurrent":
            y_BHTV, after = reference.recurrent(q_BHTK, k_BHTK, wide_v_BHTV, before)
        else:
            y_BHTV, after = chunked(q_BHTK, k_BHTK, wide_v_BHTV, before, chunk or CHUNK)
    return y_BHTV.to(v_BHTV.dtype), after


def chunked(q_BHTK: Tensor, k_BHTK: Tensor, v_BHTV: Tensor, state: State, chunk: int) -> tuple[Tensor, State]:
    """Inside a chunk of C tokens the map of all pairs, between chunks the state: T (C + K) V operations, where the map
    of all takes T² V and single steps come one after another.

    The last chunk is filled up with tokens that match nothing. The denominator is the numerator of a value that is
    always one, so a column of ones beside the values (W = V + 1) carries z with S and the sums are written once.
    """
    T = q_BHTK.shape[2]
    chunk = min(chunk, max(T, 1))
    S_BHKV, z_BHK = state
    S_BH1KW = torch.cat([S_BHKV, z_BHK[..., None]], -1)[:, :, None]
    w_BHTW = F.pad(v_BHTV, (0, 1), value=1.0)
    q_BHNCK, k_BHNCK, w_BHNCW = (in_chunks(x, chunk) for x in (q_BHTK, k_BHTK, w_BHTW))
    # Sums of what came before, never "up to and with this chunk, less this chunk": that would cancel digits away.
    after_BHNKW = torch.cat([S_BH1KW, k_BHNCK.mT @ w_BHNCW], 2).cumsum(2)
    num_BHNCW = (q_BHNCK @ k_BHNCK.mT).tril() @ w_BHNCW + q_BHNCK @ after_BHNKW[:, :, :-1]
    num_BHTW = num_BHNCW.flatten(2, 3)[:, :, :T]
    last_BHKW = after_BHNKW[:, :, -1]
    return ratio(num_BHTW[..., :-1], num_BHTW[..., -1:]), (last_BHKW[..., :-1], last_BHKW[..., -1])


def start(q_BHTK: Tensor, v_BHTV: Tensor) -> State:
    """The state before the first token: nothing was added up."""
    B, H, _, K = q_BHTK.shape
    wide = wide_enough(q_BHTK, v_BHTV)
    return v_BHTV.new_zeros(B, H, K, v_BHTV.shape[-1], dtype=wide), v_BHTV.new_zeros(B, H, K, dtype=wide)


def choose(q_BHTK: Tensor, v_BHTV: Tensor, chunk: int | None = None) -> Path:
    """The path that "auto" takes."""
    T = q_BHTK.shape[2]
    if T == 1:
        return "recurrent"
    if (chunk or CHUNK) >= T:
        return "parallel"  # one chunk, without the sums between chunks
    if chunk is not None:  # the kernel takes only a few sizes
        return "chunked"
    return "kernel" if not unsupported_reason(q_BHTK, v_BHTV) else "chunked"


def through_kernel(
    q_BHTK: Tensor, k_BHTK: Tensor, v_BHTV: Tensor, state: State, chunk: int | None
) -> tuple[Tensor, State]:
    """The Triton kernel; q and k are taken in the precision of v."""
    require_support(q_BHTK, v_BHTV)
    from octavo.ops.linear import triton_attention as kernel

    dtype = v_BHTV.dtype
    return kernel.attend_triton(q_BHTK.to(dtype), k_BHTK.to(dtype), v_BHTV, state, chunk)


def check(q_BHTK: Tensor, k_BHTK: Tensor, v_BHTV: Tensor, chunk: int | None) -> None:
    """Refuse shapes that do not belong together."""
    check_shapes(q_BHTK, k_BHTK, v_BHTV)
    if chunk is not None and chunk < 1:
        raise UserError(f"chunk must be at least 1: chunk={chunk}; try chunk={CHUNK}")
