"""Linear attention that forgets: S_t = A_t S_{t-1} + k_t v_tᵀ, y_t = q_t S_t, for every A_t that octavo's models have.

B batch, H heads, T tokens, N chunks of C tokens, K size of a key, V size of a value, J is 1 (a decay for each head) or
K (for each channel of its keys).

    from octavo.ops import linear
    y_BHTV, S = linear.attend_decaying(q_BHTK, k_BHTK, v_BHTV, g_BHT1)              # decay: A_t = exp(g_t)
    y_BHTV, S = linear.attend_decaying(q_BHTK, k_BHTK, v_BHTV, g_BHTK)              # each channel has its own
    y_BHTV, S = linear.attend_decaying(q_BHTK, k_BHTK, v_BHTV, g_BHT1, beta_BHT)    # A_t = exp(g_t) (I - β_t k_t k_tᵀ)

The equations, one step at a time, are in `decaying_reference`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from octavo.errors import UserError
from octavo.ops.linear import decaying_reference as reference
from octavo.ops.linear.kernels import KERNELS, Kind, require_support, serves
from octavo.ops.linear.reference import ratio
from octavo.ops.linear.sums import check_shapes, in_chunks, wide_enough, without_autocast
from octavo.ops.linear.wy_form import wy_form

DecayingPath = Literal["auto", "recurrent", "parallel", "chunked", "kernel"]
DECAYING_PATHS: tuple[DecayingPath, ...] = ("auto", "recurrent", "parallel", "chunked", "kernel")
MIN_LOG_DECAY = -5.0  # of a channel: in a step it forgets at most 99.3 %
CHANNEL_CHUNK = 16  # tokens; what a channel forgets in so many, exp(-80), is still a number in single precision
HEAD_CHUNK = 64  # tokens, where a head has one decay: only decays between pairs are computed, none above one


def attend_decaying(
    q_BHTK: Tensor, k_BHTK: Tensor, v_BHTV: Tensor, g_BHTJ: Tensor, beta_BHT: Tensor | None = None,
    S_BHKV: Tensor | None = None, *, path: DecayingPath = "auto", chunk: int | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """y_BHTV, and the state after the last token.

    g are logarithms of decays, at most zero; those of channels count as MIN_LOG_DECAY where they are below it. With β
    the delta rule is taken, which needs keys whose length β |k|² is at most 2, and one decay for a head. The state is
    kept in single precision at least, also under autocast; y has the precision of v. The kernel takes q and k in it.
    """
    check(q_BHTK, k_BHTK, v_BHTV, g_BHTJ, beta_BHT, chunk)
    if path not in DECAYING_PATHS:
        raise UserError(f"path must be one of {', '.join(DECAYING_PATHS)}: path={path}; try auto")
    B, H, T, K = q_BHTK.shape
    if path == "kernel" and (g_BHTJ.shape[-1] > 1 or chunk is not None):
        raise UserError('path "kernel" needs one decay for a head, and no chunk; try path="auto"')
    wide = wide_enough(q_BHTK, k_BHTK, v_BHTV)
    S_BHKV = v_BHTV.new_zeros(B, H, K, v_BHTV.shape[-1], dtype=wide) if S_BHKV is None else S_BHKV
    kind: Kind = "decay" if beta_BHT is None else "delta rule"
    if g_BHTJ.shape[-1] == 1 and chunk is None and takes_kernel(kind, q_BHTK, v_BHTV, S_BHKV, path):
        dtype, gates = v_BHTV.dtype, [g_BHTJ[..., 0], *([] if beta_BHT is None else [beta_BHT])]
        y_BHTV, S_BHKV = KERNELS[kind].attend(q_BHTK.to(dtype), k_BHTK.to(dtype), v_BHTV, *gates, S_BHKV)
        return y_BHTV, S_BHKV
    wide = wide_enough(q_BHTK, S_BHKV)
    if g_BHTJ.shape[-1] > 1:
        g_BHTJ = g_BHTJ.clamp_min(MIN_LOG_DECAY)
    given = (q_BHTK.to(wide), k_BHTK.to(wide), v_BHTV.to(wide), g_BHTJ.to(wide))
    beta_BHT = None if beta_BHT is None else beta_BHT.to(wide)
    with without_autocast(q_BHTK):
        if path == "chunked" or (path == "auto" and T != 1):
            chunk = chunk or chunk_of(g_BHTJ.shape[-1])
            y_BHTV, S_BHKV = chunked(*given, beta_BHT, S_BHKV.to(wide), chunk)
        else:
            form = reference.parallel if path == "parallel" else reference.recurrent
            y_BHTV, S_BHKV = form(*given, beta_BHT, S_BHKV.to(wide))
    return y_BHTV.to(v_BHTV.dtype), S_BHKV


def attend_with_sums(
    q_BHTK: Tensor, k_BHTK: Tensor, v_BHTV: Tensor, g_BHT1: Tensor, S_BHKW: Tensor, *, path: DecayingPath = "auto"
) -> tuple[Tensor, Tensor, Tensor]:
    """`attend_decaying` without β for values with a column of ones beside them, W = V + 1: what is read of the values,
    what is read of the ones (the sum of the weights), and the state.
    """
    if takes_kernel("decay with sums", q_BHTK, v_BHTV, S_BHKW, path):
        dtype = v_BHTV.dtype
        given = q_BHTK.to(dtype), k_BHTK.to(dtype), v_BHTV, g_BHT1[..., 0], S_BHKW[..., :-1], S_BHKW[..., -1]
        y_BHTV, den_BHT, S_BHKV, z_BHK = KERNELS["decay with sums"].attend(*given)
        return y_BHTV, den_BHT[..., None], torch.cat([S_BHKV, z_BHK[..., None]], -1)
    w_BHTW = F.pad(v_BHTV.to(S_BHKW.dtype), (0, 1), value=1.0)
    y_BHTW, S_BHKW = attend_decaying(q_BHTK, k_BHTK, w_BHTW, g_BHT1, None, S_BHKW, path=path)
    return y_BHTW[..., :-1], y_BHTW[..., -1:], S_BHKW


def attend_fading(
    q_BHTK: Tensor, k_BHTK: Tensor, v_BHTV: Tensor, g_H: Tensor, state: tuple[Tensor, Tensor]
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Plain linear attention whose sums fade: y_t = q_t S_t / (q_t · z_t), S_t = exp(g_h) S_{t-1} + k_t v_tᵀ, and z_t
    likewise. The state is (S_BHKV, z_BHK), as of `attend_linear`.
    """
    S_BHKV, z_BHK = state
    B, H, T, _ = q_BHTK.shape
    g_BHT1 = g_H[:, None, None].expand(B, H, T, 1)
    S_BHKW = torch.cat([S_BHKV, z_BHK[..., None]], -1)
    num_BHTV, den_BHT1, S_BHKW = attend_with_sums(q_BHTK, k_BHTK, v_BHTV, g_BHT1, S_BHKW)
    return ratio(num_BHTV, den_BHT1).to(v_BHTV.dtype), (S_BHKW[..., :-1], S_BHKW[..., -1])


def takes_kernel(kind: Kind, q_BHTK: Tensor, v_BHTV: Tensor, S: Tensor, path: DecayingPath) -> bool:
    """Whether the Triton kernel is asked for, or fits texts longer than a chunk; refuses what it cannot take."""
    if path == "kernel":
        require_support(q_BHTK, v_BHTV)
        return True
    long = q_BHTK.shape[2] > HEAD_CHUNK and S.dtype != torch.float64
    return path == "auto" and long and serves(kind, q_BHTK, v_BHTV)


def fixed_decays(H: int, device: torch.device | str | None = None) -> Tensor:
    """g_H, logarithms of what heads keep of their sums: 1/2 in the first, then 7/8, 31/32, 127/128, ..."""
    return torch.log1p(-(2.0 ** -(1 + 2 * torch.arange(H, dtype=torch.float64, device=device))))


def chunk_of(decays: int) -> int:
    """How many tokens a chunk has, for heads with so many decays."""
    return HEAD_CHUNK if decays == 1 else CHANNEL_CHUNK


def chunked(
    q_BHTK: Tensor, k_BHTK: Tensor, v_BHTV: Tensor, g_BHTJ: Tensor, beta_BHT: Tensor | None, S_BHKV: Tensor, chunk: int
) -> tuple[Tensor, Tensor]:
    """Inside a chunk of C tokens the map of all pairs, between chunks the state.

    Of the delta rule, what is written is u' - W S, of all chunks at once (`wy_form`). The last chunk is filled up with
    tokens that neither write nor forget.
    """
    T = q_BHTK.shape[2]
    chunk = min(chunk, max(T, 1))
    q_BHNCK, k_BHNCK, u_BHNCV, g_BHNCJ = (in_chunks(x, chunk) for x in (q_BHTK, k_BHTK, v_BHTV, g_BHTJ))
    G_BHNCJ = g_BHNCJ.cumsum(3)
    end_BHN1J, decay_BHNCJ = G_BHNCJ[..., -1:, :], G_BHNCJ.exp()
    products = decayed_pairs(G_BHNCJ)
    p_BHNCC, reads_BHNCK = products(q_BHNCK, k_BHNCK), q_BHNCK * decay_BHNCJ
    writes_BHNCK, keeps_BHNJ1 = k_BHNCK * (end_BHN1J - G_BHNCJ).exp(), end_BHN1J.exp().mT
    if beta_BHT is not None:
        beta_BHNC1 = in_chunks(beta_BHT[..., None], chunk)
        u_BHNCV, w_BHNCK = wy_form(k_BHNCK, u_BHNCV, beta_BHNC1, decay_BHNCJ, products)
    y = []
    for n in range(q_BHNCK.shape[2]):
        u_BHCV = u_BHNCV[:, :, n]
        if beta_BHT is not None:
            u_BHCV = u_BHCV - w_BHNCK[:, :, n] @ S_BHKV
        y.append(p_BHNCC[:, :, n] @ u_BHCV + reads_BHNCK[:, :, n] @ S_BHKV)
        S_BHKV = keeps_BHNJ1[:, :, n] * S_BHKV + writes_BHNCK[:, :, n].mT @ u_BHCV
    return torch.cat(y, 2)[:, :, :T] if y else torch.empty_like(v_BHTV), S_BHKV


def decayed_pairs(G_BHNCJ: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    """`reference.decayed_products` within each chunk: as one product also where each channel has its own decay."""
    if G_BHNCJ.shape[-1] == 1:
        decay_BHNCC = reference.decay_between(G_BHNCJ)
        return lambda q_BHNCK, k_BHNCK: (q_BHNCK @ k_BHNCK.mT) * decay_BHNCC
    return lambda q_BHNCK, k_BHNCK: ((q_BHNCK * G_BHNCJ.exp()) @ (k_BHNCK * (-G_BHNCJ).exp()).mT).tril()


def stabilised(i_BHT: Tensor, f_BHT: Tensor, m_BH: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """An exponential input gate, from its logarithm i and that of the forget gate f, brought to at most one.

    The state is kept divided by exp(m_t), with m_t = max(f_t + m_{t-1}, i_t): its gates are then exp(i_t - m_t) and
    exp(f_t + m_{t-1} - m_t), whose logarithms are returned, with m_BHT. With F_t = f_1 + .. + f_t that is
    m_t = F_t + max(m_0, i_1 - F_1, .., i_t - F_t). No result depends on m, so no gradient passes it.
    """
    with torch.no_grad():
        F_BHT = f_BHT.cumsum(-1)
        highest_BHT = i_BHT - F_BHT
        if i_BHT.shape[-1] > 1:  # of one token there is nothing to compare, and ONNX has no such operation
            highest_BHT = highest_BHT.cummax(-1).values
        m_BHT = F_BHT + torch.maximum(highest_BHT, m_BH[..., None])
        before_BHT = torch.cat([m_BH[..., None], m_BHT[..., :-1]], -1)[..., : m_BHT.shape[-1]]
    return i_BHT - m_BHT, f_BHT + (before_BHT - m_BHT), m_BHT


def check(
    q_BHTK: Tensor, k_BHTK: Tensor, v_BHTV: Tensor, g_BHTJ: Tensor, beta_BHT: Tensor | None, chunk: int | None
) -> None:
    """Refuse shapes that do not belong together."""
    check_shapes(q_BHTK, k_BHTK, v_BHTV)
    heads, K = q_BHTK.shape[:3], q_BHTK.shape[-1]
    if g_BHTJ.dim() != 4 or g_BHTJ.shape[:3] != heads or g_BHTJ.shape[-1] not in (1, K):
        raise UserError(
            f"decays must have shape (B, H, T, 1) or (B, H, T, K): {tuple(g_BHTJ.shape)}, K={K}; "
            "give a head one decay, or each of its channels one"
        )
    if beta_BHT is not None and (beta_BHT.shape != heads or g_BHTJ.shape[-1] != 1):
        raise UserError(
            f"the delta rule needs beta of shape (B, H, T) and one decay for a head: beta {tuple(beta_BHT.shape)}, "
            f"decays {tuple(g_BHTJ.shape)}; leave beta out where each channel has its own decay"
        )
    most = CHANNEL_CHUNK if g_BHTJ.shape[-1] > 1 else None
    if chunk is not None and (chunk < 1 or (most is not None and chunk > most)):
        limit = "at least 1" if most is None else f"from 1 to {most} where each channel has its own decay"
        raise UserError(f"chunk must be {limit}: chunk={chunk}; try chunk={chunk_of(g_BHTJ.shape[-1])}")
