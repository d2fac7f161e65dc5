"""Multi-head latent attention: keys and values of all heads are made from one short vector a token, its latent.

B batch, T queries, S tokens seen, H heads, K size of a key without its rotary part, and of a value, R size of the
rotary part, M size of a latent, Z = M + R, E = H K. Matrices are (out, in).

What is remembered of a token is z = [c, k^R]: the latent c, and one key k^R that all heads share, turned to its place.
Each head's key is [U_k c, k^R], and its value U_v c. A query's product with U_k c is that of U_kᵀ q with c, so nothing
has to be made of the latents: the expanded and the absorbed form give the same.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from octavo.ops.attention.dispatch import attend
from octavo.ops.attention.patterns import Pattern

Form = Literal["auto", "expanded", "absorbed"]


def attend_latent(
    q_BHTQ: Tensor, z_BSZ: Tensor, key_EM: Tensor, value_EM: Tensor, pattern: Pattern, *,
    bias_HTS: Tensor | None = None, form: Form = "auto",
) -> Tensor:  # fmt: skip
    """y_BHTK of queries whose last R = Q - K numbers are turned to their place; auto takes the form that costs less."""
    (_, H, T, Q), (S, Z), M = q_BHTQ.shape, z_BSZ.shape[1:], key_EM.shape[1]
    K = len(key_EM) // H
    assert Q - K == Z - M, "queries and remembered tokens have rotary parts of one size"
    key_HKM, value_HKM = key_EM.unflatten(0, (H, K)), value_EM.unflatten(0, (H, K))
    absorbed = form == "absorbed" or (form == "auto" and absorbs(T, S, K, M, Z - M))
    serve = attend_absorbed if absorbed else attend_expanded
    return serve(q_BHTQ, z_BSZ, key_HKM, value_HKM, pattern, bias_HTS)


def absorbs(T: int, S: int, K: int, M: int, R: int) -> bool:
    """Whether the absorbed form takes fewer multiplications: it does where few queries meet many latents.

    Where nothing was read before, as in training from the beginning of a text, latents are always expanded.
    """
    expanded = 2 * S * K * M + 2 * T * S * (K + R)
    absorbed = 2 * T * K * M + 2 * T * S * (M + R)
    return S > T and absorbed < expanded


def attend_expanded(
    q_BHTQ: Tensor, z_BSZ: Tensor, key_HKM: Tensor, value_HKM: Tensor, pattern: Pattern, bias_HTS: Tensor | None
) -> Tensor:
    """Keys and values of every head are made from all latents; values are as long as keys, as fused kernels ask."""
    H, K, M = key_HKM.shape
    c_BSM, rotary_BSR = z_BSZ.split([M, z_BSZ.shape[-1] - M], -1)
    made_BSHI = F.linear(c_BSM, torch.cat([key_HKM, value_HKM], 1).flatten(0, 1)).unflatten(-1, (H, 2 * K))
    k_BSHQ, v_BSHQ = made_BSHI.chunk(2, -1)
    if R := rotary_BSR.shape[-1]:
        k_BSHQ = torch.cat([k_BSHQ, rotary_BSR[:, :, None].expand(-1, -1, H, -1)], -1)
        v_BSHQ = F.pad(v_BSHQ, (0, R))
    y_BHTQ = attend(q_BHTQ, k_BSHQ.transpose(1, 2), v_BSHQ.transpose(1, 2), pattern, bias_HTS=bias_HTS)
    return y_BHTQ[..., :K]


def attend_absorbed(
    q_BHTQ: Tensor, z_BSZ: Tensor, key_HKM: Tensor, value_HKM: Tensor, pattern: Pattern, bias_HTS: Tensor | None
) -> Tensor:
    """Queries are brought to the latents, which are keys and values of all heads, and their mean to each head."""
    _, K, M = key_HKM.shape
    q_BHTK, q_BHTR = q_BHTQ.split([K, q_BHTQ.shape[-1] - K], -1)
    q_BHTZ = torch.cat([q_BHTK @ key_HKM, q_BHTR], -1)
    z_B1SZ = z_BSZ[:, None]
    y_BHTZ = attend(q_BHTZ, z_B1SZ, z_B1SZ, pattern, bias_HTS=bias_HTS, scale=q_BHTQ.shape[-1] ** -0.5)
    return y_BHTZ[..., :M] @ value_HKM.mT
