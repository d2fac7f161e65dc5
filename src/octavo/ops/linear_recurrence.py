"""Linear recurrences, h_t = a_t ⊙ h_{t-1} + b_t, real or complex, by whichever path is fastest.

B batch, T tokens, D units; of a chunked path N chunks of C tokens, M = N C.

    from octavo.ops.linear_recurrence import linear_recurrence
    h_BTD = linear_recurrence(a_BTD, b_BTD)                         # a text
    h_BTD = linear_recurrence(a2_BTD, b2_BTD, h_BTD[:, -1])         # the text that follows it

No path divides, or leaves the numbers for their logarithms: where |a_t| ≤ 1 every product of some a's is at most one,
so nothing overflows, and a and b may have any sign.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from octavo.errors import UserError

Path = Literal["auto", "sequential", "chunked", "doubling"]
PATHS: tuple[Path, ...] = ("auto", "sequential", "chunked", "doubling")
NUMBERS_WORTH_A_CALL = 1 << 12  # of one token's batch: with so many, a call of PyTorch takes less time than its numbers


def linear_recurrence(
    a: Tensor, b_BTD: Tensor, h_BD: Tensor | None = None, path: Path = "auto", chunk: int = 0
) -> Tensor:
    """h_BTD after each token, from the state h_BD before the first; without one, from zero.

    a has the shape of b, or one that is broadcast to it, such as a_D of a recurrence that is the same at every token.
    Sums are kept in single precision at least. `chunk` is how many tokens the path "chunked" takes one by one; 0: what
    suits the shape.

        sequential   one token after the other: the reference implementation
        chunked      one token after the other in all chunks at the same time, then the chunks one after the other
        doubling     an associative scan: after k rounds, each h has the last 2**k tokens in it
    """
    if path not in PATHS:
        raise UserError(f"path must be one of {', '.join(PATHS)}: path={path}; try auto")
    if chunk < 0:
        raise UserError(f"chunk must not be negative: chunk={chunk}; leave it out")
    wide = wide_enough(a, b_BTD, *(() if h_BD is None else (h_BD,)))
    h_BD = b_BTD.new_zeros(b_BTD.shape[0], b_BTD.shape[2], dtype=wide) if h_BD is None else h_BD.to(wide)
    a_BTD, b_BTD = a.to(wide).expand_as(b_BTD), b_BTD.to(wide)
    if not b_BTD.shape[1]:
        return b_BTD
    if path == "sequential":
        return sequential(a_BTD, b_BTD, h_BD)
    if path == "auto":
        path = "doubling" if b_BTD.is_cuda else "chunked"
    h_BTD: Tensor = _Recurrence.apply(path, chunk, a_BTD, b_BTD, h_BD)  # type: ignore[no-untyped-call]
    return h_BTD


def wide_enough(*inputs: Tensor) -> torch.dtype:
    """The precision of sums over these: theirs, but single at least; complex if one of them is."""
    wide = torch.float32
    for one in inputs:
        wide = torch.promote_types(wide, one.dtype)
    return wide


def sequential(a_BTD: Tensor, b_BTD: Tensor, h_BD: Tensor) -> Tensor:
    """One step after the other: the definition."""
    h_BTD = []
    for a_BD, b_BD in zip(a_BTD.unbind(1), b_BTD.unbind(1), strict=True):
        h_BD = a_BD * h_BD + b_BD
        h_BTD.append(h_BD)
    return torch.stack(h_BTD, 1)


class _Recurrence(Function):
    """The gradient of a linear recurrence is one too, from the last token back to the first:

        g_t  = dh_t + a*_{t+1} g_{t+1}
        db_t = g_t
        da_t = h*_{t-1} g_t
        dh_0 = a*_1 g_1

    Saved are a and h alone, and nothing of how a path arrived at them. (x* is the conjugate of x.)
    """

    @staticmethod
    def forward(ctx: Any, path: str, chunk: int, a_BTD: Tensor, b_BTD: Tensor, h_BD: Tensor) -> Tensor:
        h_BTD = FAST[path](a_BTD, b_BTD, h_BD, chunk)
        ctx.path, ctx.chunk = path, chunk
        ctx.save_for_backward(a_BTD, h_BTD, h_BD)
        return h_BTD

    @staticmethod
    @once_differentiable  # what is kept has no history of its own: a second derivative would be wrong
    def backward(ctx: Any, *grad: Tensor) -> tuple[None, None, Tensor | None, Tensor, Tensor | None]:
        a_BTD, h_BTD, h_BD = ctx.saved_tensors
        back_a_BTD = a_BTD.flip(1).roll(1, 1).conj().resolve_conj()  # a_1 meets the zero that the way back starts from
        (dh_BTD,) = grad
        g_BTD = FAST[ctx.path](back_a_BTD, dh_BTD.flip(1), torch.zeros_like(h_BD), ctx.chunk).flip(1)
        _, _, needs_a, _, needs_h = ctx.needs_input_grad
        da_BTD = torch.cat([h_BD[:, None], h_BTD[:, :-1]], 1).conj() * g_BTD if needs_a else None
        return None, None, da_BTD, g_BTD, a_BTD[:, 0].conj() * g_BTD[:, 0] if needs_h else None


def chunked(a_BTD: Tensor, b_BTD: Tensor, h_BD: Tensor, chunk: int = 0) -> Tensor:
    """Inside all chunks at once token by token from zero, then from chunk to chunk: C + N calls instead of T.

    In a chunk that starts with the state s, h_c = h_c from zero + (a_1 ... a_c) s. With as many numbers a token as a
    call is worth, the second pass costs more than the calls it saves: then all tokens are one chunk.
    """
    B, T, D = b_BTD.shape
    C = min(T, chunk or (T if B * D >= NUMBERS_WORTH_A_CALL else math.isqrt(T)))
    N = T // C
    M = N * C
    h_BTD = torch.empty_like(b_BTD, memory_format=torch.contiguous_format)
    if N == 1:
        _step_by_step(a_BTD, b_BTD, h_BD, h_BTD)
        return h_BTD
    a_BNCD, b_BNCD, h_BNCD = (x[:, :M].unflatten(1, (N, C)) for x in (a_BTD, b_BTD, h_BTD))
    product_BNCD = torch.empty_like(h_BNCD)
    h_BNCD[:, :, 0], product_BNCD[:, :, 0] = b_BNCD[:, :, 0], a_BNCD[:, :, 0]
    for c in range(1, C):
        torch.addcmul(b_BNCD[:, :, c], a_BNCD[:, :, c], h_BNCD[:, :, c - 1], out=h_BNCD[:, :, c])
        torch.mul(product_BNCD[:, :, c - 1], a_BNCD[:, :, c], out=product_BNCD[:, :, c])
    before_BND = torch.empty_like(h_BNCD[:, :, 0])
    before_BND[:, 0] = h_BD
    for n in range(1, N):
        last_BD, all_BD = h_BNCD[:, n - 1, -1], product_BNCD[:, n - 1, -1]
        torch.addcmul(last_BD, all_BD, before_BND[:, n - 1], out=before_BND[:, n])
    h_BNCD.addcmul_(product_BNCD, before_BND[:, :, None])
    _step_by_step(a_BTD[:, M:], b_BTD[:, M:], h_BTD[:, M - 1], h_BTD[:, M:])
    return h_BTD


def _step_by_step(a_BTD: Tensor, b_BTD: Tensor, h_BD: Tensor, h_BTD: Tensor) -> None:
    """Each token's state written into h_BTD: a call a token, and nothing but a, b and h is read or written."""
    for t in range(b_BTD.shape[1]):
        torch.addcmul(b_BTD[:, t], a_BTD[:, t], h_BD, out=h_BTD[:, t])
        h_BD = h_BTD[:, t]


def doubling(a_BTD: Tensor, b_BTD: Tensor, h_BD: Tensor, chunk: int = 0) -> Tensor:
    """Hillis and Steele's scan over pairs: (a, b) then (a', b') is (a a', a' b + b'), which is associative.

    After the round of s tokens each pair stands for the last 2 s: log2(T) rounds over whole tensors, for a GPU.
    """
    T = b_BTD.shape[1]
    h_BTD = torch.cat([torch.addcmul(b_BTD[:, :1], a_BTD[:, :1], h_BD[:, None]), b_BTD[:, 1:]], 1)
    span = 1
    while span < T:
        later_BTD = torch.addcmul(h_BTD[:, span:], a_BTD[:, span:], h_BTD[:, :-span])
        a_BTD = torch.cat([a_BTD[:, :span], a_BTD[:, span:] * a_BTD[:, :-span]], 1)
        h_BTD = torch.cat([h_BTD[:, :span], later_BTD], 1)
        span *= 2
    return h_BTD


FAST: dict[str, Callable[..., Tensor]] = {"chunked": chunked, "doubling": doubling}


def convolve_powers(a_D: Tensor, b_BTD: Tensor, h_BD: Tensor | None = None) -> Tensor:
    """h_BTD where a is the same at every token: b convolved with the powers of a, by the fast Fourier transform.

        h_t = Σ_{s ≤ t} a^(t - s) b_s + a^t h_0

    Exact up to rounding, which it spreads over the whole text: of a prediction that must not depend on later tokens in
    its last digit, ask `linear_recurrence`.
    """
    wide = wide_enough(a_D, b_BTD, *(() if h_BD is None else (h_BD,)))
    a_D, b_BTD, T = a_D.to(wide), b_BTD.to(wide), b_BTD.shape[1]
    if not T:
        return b_BTD
    power_T1 = torch.arange(T + 1, device=a_D.device, dtype=torch.float64 if wide.to_real() == torch.float64 else None)
    kernel_TD = a_D ** power_T1[:, None]
    transform, back = (torch.fft.fft, torch.fft.ifft) if wide.is_complex else (torch.fft.rfft, torch.fft.irfft)
    length = 2 * T  # zeros behind, or the end of the text would be added to its beginning
    product = transform(b_BTD, length, 1) * transform(kernel_TD[:T], length, 0)
    h_BTD: Tensor = back(product, length, 1)[:, :T]
    return h_BTD if h_BD is None else h_BTD + kernel_TD[1:] * h_BD.to(wide)[:, None]
