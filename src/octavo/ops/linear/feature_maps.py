"""Feature maps: phi(q) · phi(k) stands for the softmax's exp(q · k / sqrt(K)), and must be positive.

K size of a query or key, M features.

    elu      phi(x) = elu(x) + 1
    relu     phi(x) = max(x, 0) + a little
    random   phi(x)_i = exp(w_i · x - |x|²/2) / sqrt(M), w_i normal: on average over w, phi(q) · phi(k) = exp(q · k)

The random features are the only ones that estimate the softmax; q and k are scaled by K**-0.25 for its 1 / sqrt(K).
"""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from octavo.errors import UserError
from octavo.ops.linear.sums import without_autocast

Features = Literal["elu", "relu", "random"]
FEATURES: tuple[Features, ...] = ("elu", "relu", "random")

RELU_OFFSET = 1e-6  # what relu adds, so that a query that matches nothing takes the mean instead of 0 / 0
HIGHEST = 60.0  # the largest exponent of a key's feature: exp(60) may be summed 1e12 times in single precision


def elu_features(x: Tensor) -> Tensor:
    """phi(x) = elu(x) + 1: exp(x) below zero, x + 1 above.

    Written without elu's own exp(x) - 1: taking one off and adding it again leaves 0 of a small exp(x).
    """
    return F.relu(x) + x.clamp_max(0).exp()


def relu_features(x: Tensor) -> Tensor:
    """phi(x) = max(x, 0) + a little."""
    return F.relu(x) + RELU_OFFSET


def draw_random_features(K: int, M: int, generator: torch.Generator, dtype: torch.dtype = torch.float32) -> Tensor:
    """w_MK: M directions, each normal in K dimensions, and orthogonal to the others K by K.

    Orthogonal directions estimate with less variance than independent ones. A row of a random rotation has a uniform
    direction, so with the length of a normal vector each row on its own is normal, and the estimate stays unbiased.
    """
    if K < 1 or M < 1:
        raise UserError(f"random features need sizes of at least 1: K={K}, M={M}; try M={max(K, 1)}")
    device, blocks = generator.device, -(-M // K)
    normal_NKK = torch.randn(blocks, K, K, generator=generator, dtype=torch.float64, device=device)
    rotation_NKK, triangle_NKK = torch.linalg.qr(normal_NKK)
    # QR alone fixes signs by convention; those of the triangle's diagonal make the rotation uniform.
    rotation_NKK = rotation_NKK * triangle_NKK.diagonal(dim1=-2, dim2=-1).sign()[:, None, :]
    length_M1 = torch.randn(M, K, generator=generator, dtype=torch.float64, device=device).norm(dim=-1, keepdim=True)
    w_MK: Tensor = rotation_NKK.mT.reshape(-1, K)[:M] * length_M1
    return w_MK.to(dtype)


def log_features(x: Tensor, w_MK: Tensor) -> Tensor:
    """log phi(x) = w · x - |x|²/2 - log(M) / 2, with x scaled by K**-0.25; at least in single precision."""
    M, K = w_MK.shape
    wide = torch.promote_types(x.dtype, torch.float32)
    with without_autocast(x):  # an exponent's rounding error is a feature's relative error
        x = x.to(wide) * K**-0.25
        return x @ w_MK.to(wide).mT - x.square().sum(-1, keepdim=True) / 2 - math.log(M) / 2


def query_features(q: Tensor, w_MK: Tensor) -> Tensor:
    """phi(q) times a factor of each query's own, that makes its largest feature 1.

    The factor is in the numerator and the denominator of that query's answer and cancels there, exactly and in the
    gradient too (so it is taken for a constant). It depends on one query only, and so not on the future.
    """
    e = log_features(q, w_MK)
    return (e - e.amax(-1, keepdim=True).detach()).exp().to(storable(q))


def key_features(k: Tensor, w_MK: Tensor) -> Tensor:
    """phi(k), its exponents held at HIGHEST, which makes overflow impossible.

    A factor of each key's own would not cancel, and the largest over all keys would look at the future. One factor for
    all keys, from the bound w · x - |x|²/2 <= |w|²/2, is so small for large heads that ordinary keys vanish with it.
    The limit concerns only long keys that point along a w: they outweigh all others anyway.
    """
    return log_features(k, w_MK).clamp_max(HIGHEST).exp().to(storable(k))


def storable(x: Tensor) -> torch.dtype:
    """The input's own precision, except half: its largest number is too small for an exponential."""
    return torch.float32 if x.dtype == torch.float16 else x.dtype


def features(kind: Features, q: Tensor, k: Tensor, w_MK: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """(phi(q), phi(k)); w_MK from draw_random_features is for "random" only."""
    if kind not in FEATURES:
        raise UserError(f"features must be one of {', '.join(FEATURES)}: features={kind}; try elu")
    if kind == "random":
        if w_MK is None:
            raise UserError("random features need their directions: w_MK=None; draw them with draw_random_features")
        return query_features(q, w_MK), key_features(k, w_MK)
    phi = elu_features if kind == "elu" else relu_features
    return phi(q), phi(k)
