"""The delta rule with a decay on a GPU, by Triton, from the triangular systems of its chunks on.

B batch, H heads, T tokens, N chunks of C tokens, K size of a key, V size of a value. Only imported where Triton is.

What is written in a chunk is U - W S, U and W the solutions of its triangular system (`wy_form`), which are PyTorch's,
for all chunks at once and with their gradients. The rest is decay alone on what is written:

Forward
    delta_states            U - W S, and S before each chunk        along the text, for some columns of the values
    answer                  y, as with decay alone
Backward, with R the gradient of S after each chunk
    delta_gradient_states   R                                       along the text, from the end
    query_gradients, key_gradients      dq, dk, dU, dg as with decay alone, and dW = -dU Sᵀ
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from octavo.ops.linear import triton_decaying_kernels as programs
from octavo.ops.linear.triton_attention import EXACT, at, room_like, rows_in_one_piece, single, sizes
from octavo.ops.linear.triton_decaying import warps

COLUMNS = 16  # of the values, in a program that goes along the text: many small programs fill a GPU
WARPS, GRADIENT_WARPS = 4, 8  # of such a program: as few as keep its tiles in registers


def attend_triton_delta(
    q_BHTK: Tensor, k_BHTK: Tensor, u_BHTV: Tensor, w_BHTK: Tensor, g_BHT: Tensor, S_BHKV: Tensor, chunk: int
) -> tuple[Tensor, Tensor]:
    """y_BHTV and the last S_BHKV; q, k, u and w of one precision, g and S single."""
    apply: Any = DeltaAttention.apply
    out: tuple[Tensor, Tensor] = apply(q_BHTK, k_BHTK, u_BHTV, w_BHTK, g_BHT, S_BHKV, chunk)
    return out


class DeltaAttention(Function):
    """The two halves as autograd wants them."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, u: Tensor, w: Tensor, g: Tensor, S: Tensor, chunk: int
    ) -> tuple[Tensor, ...]:
        q, k, u, w = map(rows_in_one_piece, (q, k, u, w))
        g, S = g.float().contiguous(), S.float().contiguous()
        y, S_last, written, S_before = forward(q, k, u, w, g, S, chunk)
        ctx.save_for_backward(q, k, written, w, g, S_before)
        ctx.chunk = chunk
        return y, S_last

    @staticmethod
    def backward(ctx: Any, dy: Tensor, dS: Tensor) -> tuple[Tensor | None, ...]:
        return *backward(*ctx.saved_tensors, rows_in_one_piece(dy), dS.contiguous(), ctx.chunk), None


# As operators of their own the launches are one node each to torch.compile, which need not look into them.
@torch.library.custom_op("octavo::delta_attention", mutates_args=())
def forward(q: Tensor, k: Tensor, u: Tensor, w: Tensor, g: Tensor, S: Tensor, chunk: int) -> list[Tensor]:
    """y and the last S; and for the backward half what is written, and the S before each chunk."""
    y, S_last, written, S_before = out = forward_room(q, k, u, w, g, S, chunk)
    _, H, T, K, V, N, BH = sizes(q, u, chunk)
    shape = {"C": chunk, "K": K, "V": V, "EXACT": EXACT}
    with torch.cuda.device_of(q):  # a launch goes to the current device, wherever its tensors are
        programs.delta_states[(V // COLUMNS, BH)](
            k, u, w, at(k), at(u), at(w), g, S, S_before, S_last, written, at(written), T, H, N, W=COLUMNS,
            num_warps=WARPS, **shape,
        )  # fmt: skip
        programs.answer[(N, BH)](
            q, k, written, at(q), at(k), at(written), g, S_before, g, y, at(y), g, T, H, SUMS=False,
            num_warps=warps(K, V, u.dtype), **shape,
        )  # fmt: skip
    return list(out)


@forward.register_fake
def forward_room(q: Tensor, k: Tensor, u: Tensor, w: Tensor, g: Tensor, S: Tensor, chunk: int) -> list[Tensor]:
    """Room for what `forward` returns."""
    _, _, _, K, V, N, BH = sizes(q, u, chunk)
    return [room_like(u), torch.empty_like(S), room_like(u), u.new_empty(BH, N, K, V)]


@torch.library.custom_op("octavo::delta_attention_backward", mutates_args=())
def backward(
    q: Tensor, k: Tensor, written: Tensor, w: Tensor, g: Tensor, S_before: Tensor, dy: Tensor, dS: Tensor, chunk: int
) -> list[Tensor]:
    """The gradients of q, k, u, w, g and of the first S."""
    out = backward_room(q, k, written, w, g, S_before, dy, dS, chunk)
    dq, dk, du, dw, dg, dS_first = out
    _, H, T, K, V, N, BH = sizes(q, written, chunk)
    shape = {"C": chunk, "K": K, "V": V, "EXACT": EXACT}
    R_after, dG = torch.empty_like(S_before), single(q, *g.shape)
    with torch.cuda.device_of(q):
        programs.delta_gradient_states[(V // COLUMNS, BH)](
            q, k, w, dy, at(q), at(k), at(w), at(dy), g, dS, R_after, dS_first, T, H, N, W=COLUMNS,
            num_warps=GRADIENT_WARPS, **shape,
        )  # fmt: skip
        shape.update(SUMS=False, num_warps=warps(K, V, written.dtype))
        given = q, k, written, dy, at(q), at(k), at(written), at(dy), g, g, S_before, g
        programs.query_gradients[(N, BH)](*given, dq, at(dq), dG, T, H, **shape)
        programs.key_gradients[(N, BH)](
            *given, R_after, g, dk, du, dw, at(dk), at(du), at(dw), dG, dg, T, H, DELTA=True, **shape
        )  # fmt: skip
    return list(out)


@backward.register_fake
def backward_room(
    q: Tensor, k: Tensor, written: Tensor, w: Tensor, g: Tensor, S_before: Tensor, dy: Tensor, dS: Tensor, chunk: int
) -> list[Tensor]:
    """Room for what `backward` returns."""
    return [*map(room_like, (q, k, written, w)), torch.empty_like(g), torch.empty_like(dS)]
