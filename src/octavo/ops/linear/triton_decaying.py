"""Linear attention that forgets on a GPU, by Triton: one decay for each head and token, with the delta rule or without.

B batch, H heads, T tokens, N chunks of C tokens, K size of a key, V size of a value. Only imported where Triton is.

Forward, with S (and z, where the sums of the weights are asked for) of the chunks before:
    sum_chunks      S_n = kᵀ (v decayed to the chunk's end), z_n likewise        of each chunk on its own
    scan_chunks     S, z before each chunk                                      the only part that goes along the text
    answer          y = p v + exp(G) q S,  den = p 1 + exp(G) q z,  p = (q kᵀ, causal and decayed)
Backward, with R and r the gradients of S and z after each chunk:
    sum_gradients   R_n = qᵀ (dy decayed from the chunk's start), r_n likewise
    scan_chunks     R, r after each chunk, from the end
    query_gradients, key_gradients      dq, dk, dv, dg of each chunk on its own

Chunks' sums, decays, z, r and den are single precision; the states before and after each chunk are stored in the
precision of the values, because the matrix units multiply them in it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from octavo.ops.linear import triton_decaying_kernels as programs
from octavo.ops.linear.triton_attention import COLUMNS, EXACT, ROWS, at, room_like, rows_in_one_piece, single, sizes


def attend_triton_decaying(
    q_BHTK: Tensor, k_BHTK: Tensor, v_BHTV: Tensor, g_BHT: Tensor, S_BHKV: Tensor, z_BHK: Tensor | None = None,
    chunk: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """y_BHTV, den_BHT, and the last S_BHKV and z_BHK; den and z are empty where no z is given.

    q, k and v are of one precision, g, S and z single.
    """
    chunk = chunk or best_chunk(q_BHTK.shape[-1], v_BHTV.shape[-1], v_BHTV.dtype)
    apply: Any = DecayingAttention.apply
    out: tuple[Tensor, Tensor, Tensor, Tensor] = apply(q_BHTK, k_BHTK, v_BHTV, g_BHT, S_BHKV, z_BHK, chunk)
    return out


def best_chunk(K: int, V: int, dtype: torch.dtype) -> int:
    """The longest whose tiles stay in registers, as the compiler counts them for an H200."""
    return 32 if dtype == torch.float32 or K > 64 or K * V > 64 * 64 else 64


def warps(K: int, V: int, dtype: torch.dtype) -> int:
    """As many as a program's tiles need."""
    return 8 if dtype == torch.float32 or max(K, V) > 64 else 4


class DecayingAttention(Function):
    """The two halves as autograd wants them."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, g: Tensor, S: Tensor, z: Tensor | None, chunk: int
    ) -> tuple[Tensor, ...]:
        q, k, v = map(rows_in_one_piece, (q, k, v))
        ctx.sums, ctx.chunk = z is not None, chunk
        z = S.new_empty(0) if z is None else z.float().contiguous()
        g, S = g.float().contiguous(), S.float().contiguous()
        y, den, S_last, z_last, *saved = forward(q, k, v, g, S, z, chunk, ctx.sums)
        ctx.save_for_backward(q, k, v, g, *saved)
        return y, den, S_last, z_last

    @staticmethod
    def backward(ctx: Any, dy: Tensor, dden: Tensor, dS: Tensor, dz: Tensor) -> tuple[Tensor | None, ...]:
        given = rows_in_one_piece(dy), dden.contiguous(), dS.contiguous(), dz.contiguous()
        dq, dk, dv, dg, dS_first, dz_first = backward(*ctx.saved_tensors, *given, ctx.chunk, ctx.sums)
        return dq, dk, dv, dg, dS_first, dz_first if ctx.sums else None, None


# As operators of their own the launches are one node each to torch.compile, which need not look into them.
@torch.library.custom_op("octavo::decaying_attention", mutates_args=())
def forward(q: Tensor, k: Tensor, v: Tensor, g: Tensor, S: Tensor, z: Tensor, chunk: int, sums: bool) -> list[Tensor]:
    """y, den and the last S and z; and for the backward half the S and z before each chunk and the chunks' decays."""
    y, den, S_last, z_last, S_before, z_before, E = out = forward_room(q, k, v, g, S, z, chunk, sums)
    _, H, T, K, V, N, BH = sizes(q, v, chunk)
    shape = {"C": chunk, "K": K, "V": V, "SUMS": sums, "EXACT": EXACT, "num_warps": warps(K, V, v.dtype)}
    S_sum, z_sum = single(q, BH, N, K, V), torch.empty_like(z_before)
    with torch.cuda.device_of(q):  # a launch goes to the current device, wherever its tensors are
        programs.sum_chunks[(N, BH)](k, v, at(k), at(v), g, S_sum, z_sum, E, T, H, **shape)
        scan(S_sum, z_sum, E, S, z, S_before, z_before, S_last, z_last, back=False, sums=sums)
        programs.answer[(N, BH)](
            q, k, v, at(q), at(k), at(v), g, S_before, z_before, y, at(y), den, T, H, **shape
        )  # fmt: skip
    return list(out)


@forward.register_fake
def forward_room(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, S: Tensor, z: Tensor, chunk: int, sums: bool
) -> list[Tensor]:
    """Room for what `forward` returns."""
    _, _, _, K, V, N, BH = sizes(q, v, chunk)
    den, z_before = (single(q, *g.shape), single(q, BH, N, K)) if sums else (single(q, 0), single(q, 0))
    states = v.new_empty(BH, N, K, V), z_before, single(q, BH, N)
    return [room_like(v), den, torch.empty_like(S), torch.empty_like(z), *states]


@torch.library.custom_op("octavo::decaying_attention_backward", mutates_args=())
def backward(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, S_before: Tensor, z_before: Tensor, E: Tensor,
    dy: Tensor, dden: Tensor, dS: Tensor, dz: Tensor, chunk: int, sums: bool,
) -> list[Tensor]:  # fmt: skip
    """The gradients of q, k, v, g and of the first S and z."""
    out = backward_room(q, k, v, g, S_before, z_before, E, dy, dden, dS, dz, chunk, sums)
    dq, dk, dv, dg, dS_first, dz_first = out
    _, H, T, K, V, N, BH = sizes(q, v, chunk)
    shape = {"C": chunk, "K": K, "V": V, "SUMS": sums, "EXACT": EXACT, "num_warps": warps(K, V, v.dtype)}
    R_sum, r_sum = single(q, BH, N, K, V), torch.empty_like(z_before)
    R_after, r_after, dG = torch.empty_like(S_before), torch.empty_like(z_before), torch.empty_like(g)
    with torch.cuda.device_of(q):
        programs.sum_gradients[(N, BH)](q, dy, at(q), at(dy), g, dden, R_sum, r_sum, T, H, **shape)
        scan(R_sum, r_sum, E, dS, dz, R_after, r_after, dS_first, dz_first, back=True, sums=sums)
        programs.query_gradients[(N, BH)](
            q, k, v, dy, at(q), at(k), at(v), at(dy), g, dden, S_before, z_before, dq, at(dq), dG, T, H, **shape
        )  # fmt: skip
        programs.key_gradients[(N, BH)](
            q, k, v, dy, at(q), at(k), at(v), at(dy), g, dden, S_before, z_before, R_after, r_after,
            dk, dv, dk, at(dk), at(dv), at(dk), dG, dg, T, H, DELTA=False, **shape,
        )  # fmt: skip
    return list(out)


@backward.register_fake
def backward_room(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, S_before: Tensor, z_before: Tensor, E: Tensor,
    dy: Tensor, dden: Tensor, dS: Tensor, dz: Tensor, chunk: int, sums: bool,
) -> list[Tensor]:  # fmt: skip
    """Room for what `backward` returns."""
    return [room_like(q), room_like(k), room_like(v), torch.empty_like(g), torch.empty_like(dS), torch.empty_like(dz)]


def scan(S: Tensor, z: Tensor, E: Tensor, *rest: Tensor, back: bool, sums: bool) -> None:
    """One launch for S and z together."""
    BH, N, K, V = S.shape
    blocks = K * V // COLUMNS + sums
    programs.scan_chunks[(blocks, BH)](
        S, z, E, *rest, N, K=K, V=V, BLOCK=COLUMNS, R=ROWS, BACK=back, SUMS=sums, num_warps=1
    )
