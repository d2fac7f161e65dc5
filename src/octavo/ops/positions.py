"""Position encodings: attention is over a set, and these give its tokens an order.

B batch, H heads, T queries, S keys, K size of a query or key, D width. Angles are computed in double precision and
only their sines and cosines rounded: an angle of millions, rounded itself, would be off by a visible part of a turn.
"""

from __future__ import annotations

import torch
from torch import Tensor

from octavo.errors import UserError


def frequencies(K: int, base: float = 10_000.0, device: torch.device | str | None = None) -> Tensor:
    """The K / 2 angles by which one step turns: from 1 down to nearly 1 / base, evenly in the logarithm."""
    if K < 2 or K % 2:
        raise UserError(f"positions turn pairs of numbers, so the size must be even: size={K}; try {max(2, K + K % 2)}")
    return base ** (-torch.arange(0, K, 2, dtype=torch.float64, device=device) / K)


def sinusoids(position_T: Tensor, D: int, base: float = 10_000.0, dtype: torch.dtype = torch.float32) -> Tensor:
    """p_TD = sin and cos of position × frequency, in turn: a shift turns each pair by an angle of its own."""
    angle_TK = position_T.double()[..., None] * frequencies(D, base, position_T.device)
    return torch.stack([angle_TK.sin(), angle_TK.cos()], -1).flatten(-2).to(dtype)


def added(x_BTD: Tensor, p_TD: Tensor) -> Tensor:
    """x + p: the width stays, and tokens and positions share it."""
    return x_BTD + p_TD


def concatenated(x_BTD: Tensor, p_TE: Tensor) -> Tensor:
    """x beside p: the width grows by that of the positions, and nothing is mixed."""
    return torch.cat([x_BTD, p_TE.expand(*x_BTD.shape[:-1], -1)], -1)


def rotary_angles(position_T: Tensor, K: int, base: float = 10_000.0, dtype: torch.dtype = torch.float32) -> Tensor:
    """angles_TK: cos and sin, K / 2 of each, that turn a query or key at each position; see `rotate`."""
    angle_TK = position_T.double()[..., None] * frequencies(K, base, position_T.device)
    return torch.cat([angle_TK.cos(), angle_TK.sin()], -1).to(dtype)


def rotate(x_BHTK: Tensor, angles_TK: Tensor) -> Tensor:
    """Turn each pair of numbers by its angle at its position; a score then depends on the distance alone.

    A pair is number i of the first half with number i of the second, as in Llama's published weights.
    """
    cos_TK, sin_TK = angles_TK.chunk(2, -1)
    x1, x2 = x_BHTK.chunk(2, -1)
    return torch.cat([x1 * cos_TK - x2 * sin_TK, x2 * cos_TK + x1 * sin_TK], -1).to(x_BHTK.dtype)


def alibi_slopes(H: int) -> Tensor:
    """How fast the score of each head falls with distance: 2^(-8/H), 2^(-16/H), ..., 2^-8.

    For H that is no power of two: those of the power below, then every second one of the power above.
    """
    if H < 1:
        raise UserError(f"heads must be at least 1: heads={H}; try heads=8")
    below = 1 << (H.bit_length() - 1)
    slopes = _geometric(below)
    return slopes if below == H else torch.cat([slopes, _geometric(2 * below)[0::2][: H - below]])


def alibi_bias(
    H: int, T: int, S: int, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
) -> Tensor:
    """bias_HTS = -slope × distance, for the last T of S positions, before and behind alike."""
    t_T1 = torch.arange(S - T, S, device=device)[:, None]
    s_S = torch.arange(S, device=device)
    return (-alibi_slopes(H).to(device)[:, None, None] * (t_T1 - s_S).abs()).to(dtype)


def _geometric(H: int) -> Tensor:
    return 2.0 ** (-8.0 * torch.arange(1, H + 1, dtype=torch.float64) / H)
