"""Linear attention on a GPU by Triton: three launches forward, three backward, each parallel over chunks.

B batch, H heads, T tokens, N chunks of C tokens, K features, V size of a value. Only imported where Triton is.

Forward, with S and z of the chunks before:
    sum_chunks      S_n = kᵀ v, z_n = the sum of k                   of each chunk on its own
    scan_chunks     S, z before each chunk                          the only part that goes along the text
    answer          num = (q kᵀ, causal) v + q S,  den = (q kᵀ, causal) 1 + q z,  y = num / den
Backward, dnum = dy / den and dden = -(dy · y) / den, with R and r of the chunks after:
    sum_gradients   R_n = qᵀ dnum, r_n = qᵀ dden
    scan_chunks     R, r after each chunk, from the end
    gradients       p = (q kᵀ, causal)          dp = (dnum vᵀ + dden 1ᵀ, causal)
                    dq = dp k + dnum Sᵀ + dden zᵀ    dk = dpᵀ q + v Rᵀ + r    dv = pᵀ dnum + k R

A chunk's sums are single precision; the states before and after each chunk are kept in the precision of the values,
because the matrix units multiply them in it; z, r and all denominators are single precision throughout. The state has
gradients at both ends: R starts from that of the last state, and ends as that of the first.
"""

from __future__ import annotations

from typing import Any

import torch
import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
from torch import Tensor
from torch.autograd import Function

from octavo.errors import UserError
from octavo.ops.linear import triton_kernels as programs
from octavo.ops.linear.reference import MIN_DENOMINATOR, State

INTERPRETED = not isinstance(programs.answer, triton.JITFunction)  # with TRITON_INTERPRET=1 it runs anywhere, slowly
CHUNKS = (16, 32, 64, 128)
EXACT = "ieee"  # products of single precision: by way of tf32 the kernels read out of bounds on an H200 (Triton 3.6)
COLUMNS, ROWS = 128, 16  # of the states that one warp adds up, and how many chunks it reads at once


def attend_triton(
    q_BHTK: Tensor, k_BHTK: Tensor, v_BHTV: Tensor, state: State, chunk: int | None = None
) -> tuple[Tensor, State]:
    """As the other paths; q, k and v of one precision, the state in single precision."""
    best = best_chunk(q_BHTK.shape[-1], v_BHTV.shape[-1], v_BHTV.dtype)
    chunk = chunk or best
    if chunk not in CHUNKS or chunk > best:
        fitting = [c for c in CHUNKS if c <= best]
        raise UserError(f"the kernel's chunk must be one of {fitting} here: chunk={chunk}; try chunk={best}")
    apply: Any = LinearAttention.apply
    y_BHTV, S_BHKV, z_BHK = apply(q_BHTK, k_BHTK, v_BHTV, *state, chunk)
    return y_BHTV, (S_BHKV, z_BHK)


def best_chunk(K: int, V: int, dtype: torch.dtype) -> int:
    """Long chunks have fewer states to write and read, but a program must hold its C x C and C x K tiles."""
    if (K, V) == (128, 32):  # in chunks of 64 Triton 3.6 gives a wrong gradient of q on an H200, for this size alone
        return 32
    return 128 if max(K, V) <= 64 and dtype == torch.bfloat16 else 64


def warps(chunk: int, K: int, V: int, dtype: torch.dtype) -> int:
    """As many as keep the tiles of `gradients` in registers, as the compiler counts them for an H200."""
    return 8 if dtype == torch.float32 or chunk * max(chunk, K, V) >= 8192 else 4


class LinearAttention(Function):
    """The two halves as autograd wants them."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, S: Tensor, z: Tensor, chunk: int) -> tuple[Tensor, ...]:
        q, k, v = map(rows_in_one_piece, (q, k, v))
        y, S_last, z_last, *saved = forward(q, k, v, S.float().contiguous(), z.float().contiguous(), chunk)
        ctx.save_for_backward(q, k, v, y, *saved)
        ctx.chunk = chunk
        return y, S_last, z_last

    @staticmethod
    def backward(ctx: Any, dy: Tensor, dS: Tensor, dz: Tensor) -> tuple[Tensor | None, ...]:
        dy = rows_in_one_piece(dy)
        return *backward(*ctx.saved_tensors, dy, dS.contiguous(), dz.contiguous(), ctx.chunk), None


# As operators of their own the launches are one node each to torch.compile, which need not look into them.
@torch.library.custom_op("octavo::linear_attention", mutates_args=())
def forward(q: Tensor, k: Tensor, v: Tensor, S: Tensor, z: Tensor, chunk: int) -> list[Tensor]:
    """y, the last S and z; and for the backward half den and the S and z before each chunk."""
    y, S_last, z_last, den, S_before, z_before = out = forward_room(q, k, v, S, z, chunk)
    _, H, T, K, V, N, BH = sizes(q, v, chunk)
    shape: dict[str, Any] = {"C": chunk, "K": K, "V": V, "EXACT": EXACT}
    shape["num_warps"] = warps(chunk, K, V, v.dtype)
    S_sum, z_sum = single(q, BH, N, K, V), single(q, BH, N, K)
    with torch.cuda.device_of(q):  # a launch goes to the current device, wherever its tensors are
        programs.sum_chunks[(N, BH)](k, v, at(k), at(v), S_sum, z_sum, T, H, **shape)
        scan(S_sum, z_sum, S, z, S_before, z_before, S_last, z_last, back=False)
        programs.answer[(N, BH)](
            q, k, v, at(q), at(k), at(v), S_before, z_before, y, at(y), den, T, H,
            MIN_DENOMINATOR=MIN_DENOMINATOR, **shape,
        )  # fmt: skip
    return list(out)


@forward.register_fake
def forward_room(q: Tensor, k: Tensor, v: Tensor, S: Tensor, z: Tensor, chunk: int) -> list[Tensor]:
    """Room for what `forward` returns."""
    _, _, T, K, V, N, BH = sizes(q, v, chunk)
    S_before, z_before = v.new_empty(BH, N, K, V), single(q, BH, N, K)
    return [room_like(v), torch.empty_like(S), torch.empty_like(z), single(q, BH, T), S_before, z_before]


@torch.library.custom_op("octavo::linear_attention_backward", mutates_args=())
def backward(
    q: Tensor, k: Tensor, v: Tensor, y: Tensor, den: Tensor, S_before: Tensor, z_before: Tensor,
    dy: Tensor, dS: Tensor, dz: Tensor, chunk: int,
) -> list[Tensor]:  # fmt: skip
    """The gradients of q, k, v and of the first S and z."""
    dq, dk, dv, dS_first, dz_first = out = backward_room(q, k, v, y, den, S_before, z_before, dy, dS, dz, chunk)
    _, H, T, K, V, N, BH = sizes(q, v, chunk)
    shape: dict[str, Any] = {"C": chunk, "K": K, "V": V, "EXACT": EXACT, "MIN_DENOMINATOR": MIN_DENOMINATOR}
    shape["num_warps"] = warps(chunk, K, V, v.dtype)
    R_sum, r_sum, dden = single(q, BH, N, K, V), single(q, BH, N, K), single(q, BH, T)
    R_after, r_after = torch.empty_like(S_before), torch.empty_like(z_before)
    with torch.cuda.device_of(q):
        programs.sum_gradients[(N, BH)](q, y, dy, at(q), at(y), at(dy), den, dden, R_sum, r_sum, T, H, **shape)
        scan(R_sum, r_sum, dS, dz, R_after, r_after, dS_first, dz_first, back=True)
        programs.gradients[(N, BH)](
            q, k, v, dy, at(q), at(k), at(v), at(dy), S_before, z_before, R_after, r_after, den, dden,
            dq, dk, dv, at(dq), at(dk), at(dv), T, H, **shape,
        )  # fmt: skip
    return list(out)


@backward.register_fake
def backward_room(
    q: Tensor, k: Tensor, v: Tensor, y: Tensor, den: Tensor, S_before: Tensor, z_before: Tensor,
    dy: Tensor, dS: Tensor, dz: Tensor, chunk: int,
) -> list[Tensor]:  # fmt: skip
    """Room for what `backward` returns."""
    return [room_like(q), room_like(k), room_like(v), torch.empty_like(dS), torch.empty_like(dz)]


def scan(S: Tensor, z: Tensor, *rest: Tensor, back: bool) -> None:
    """One launch for S and z together."""
    BH, N, K, V = S.shape
    blocks = K * V // COLUMNS + 1
    programs.scan_chunks[(blocks, BH)](S, z, *rest, N, K=K, V=V, BLOCK=COLUMNS, ROWS=ROWS, BACK=back, num_warps=1)


def sizes(q_BHTK: Tensor, v_BHTV: Tensor, chunk: int) -> tuple[int, ...]:
    """B, H, T, K, V, N and BH."""
    B, H, T, K = q_BHTK.shape
    return B, H, T, K, v_BHTV.shape[-1], -(-T // chunk), B * H


def at(x_BHTK: Tensor) -> tuple[int, ...]:
    """The steps in memory from one b, h and t to the next: any layout is read where it lies."""
    return x_BHTK.stride()[:3]


def rows_in_one_piece(x_BHTK: Tensor) -> Tensor:
    """The tensor itself, unless a token's numbers do not lie side by side."""
    return x_BHTK if x_BHTK.stride(-1) == 1 else x_BHTK.contiguous()


def room_like(x_BHTK: Tensor) -> Tensor:
    """Empty, with the heads of a token side by side in memory: joining them copies nothing."""
    B, H, T, K = x_BHTK.shape
    return x_BHTK.new_empty(B, T, H, K).transpose(1, 2)


def single(like: Tensor, *shape: int) -> Tensor:
    """Empty, in single precision."""
    return like.new_empty(shape, dtype=torch.float32)
