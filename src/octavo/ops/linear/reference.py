"""The reference implementation of linear attention: as a map of all pairs, and as a state and a step.

B batch, H heads, T queries, S keys, K features, V size of a value. q and k are features: positive numbers.

    y_t = sum over s <= t of (q_t · k_s) v_s / sum over s <= t of (q_t · k_s)        all pairs, T² K
        = q_t S_t / (q_t · z_t),   S_t = S_{t-1} + k_t v_tᵀ,   z_t = z_{t-1} + k_t    a state, T K V
"""

from __future__ import annotations

import torch
from torch import Tensor

State = tuple[Tensor, Tensor]  # S_BHKV, z_BHK

MIN_DENOMINATOR = 1e-30  # a denominator up to this is no match at all; far above what single precision rounds to zero


def parallel(q_BHTK: Tensor, k_BHTK: Tensor, v_BHTV: Tensor, state: State) -> tuple[Tensor, State]:
    """The T x T map of all pairs, applied to the values; what was before comes from the state."""
    S_BHKV, z_BHK = state
    p_BHTT = (q_BHTK @ k_BHTK.mT).tril()
    num_BHTV = p_BHTT @ v_BHTV + q_BHTK @ S_BHKV
    den_BHT1 = p_BHTT.sum(-1, keepdim=True) + q_BHTK @ z_BHK[..., None]
    return ratio(num_BHTV, den_BHT1), (S_BHKV + k_BHTK.mT @ v_BHTV, z_BHK + k_BHTK.sum(-2))


def linear_weights(q_BHTK: Tensor, k_BHSK: Tensor, state: State | None = None, *, causal: bool = True) -> Tensor:
    """a_BHTS, the attention weights: rows sum to one.

    After a state the rows sum to less: the rest belongs to the keys before these.
    """
    wide = torch.promote_types(q_BHTK.dtype, torch.float32)
    q_BHTK, k_BHSK = q_BHTK.to(wide), k_BHSK.to(wide)
    with torch.autocast(q_BHTK.device.type, enabled=False):
        p_BHTS = q_BHTK @ k_BHSK.mT
        if causal:
            p_BHTS = p_BHTS.tril()
        den_BHT1 = p_BHTS.sum(-1, keepdim=True)
        if state is not None:
            den_BHT1 = den_BHT1 + q_BHTK @ state[1][..., None].to(wide)
        return ratio(p_BHTS, den_BHT1)


def recurrent(q_BHTK: Tensor, k_BHTK: Tensor, v_BHTV: Tensor, state: State) -> tuple[Tensor, State]:
    """One step after another: the definition."""
    y = []
    for q_BHK, k_BHK, v_BHV in zip(q_BHTK.unbind(2), k_BHTK.unbind(2), v_BHTV.unbind(2), strict=True):
        y_BHV, state = step(q_BHK, k_BHK, v_BHV, state)
        y.append(y_BHV)
    return torch.stack(y, 2) if y else torch.empty_like(v_BHTV), state


def step(q_BHK: Tensor, k_BHK: Tensor, v_BHV: Tensor, state: State) -> tuple[Tensor, State]:
    """S = S + k vᵀ, z = z + k, y = q S / (q · z)."""
    S_BHKV, z_BHK = state
    S_BHKV = S_BHKV + k_BHK[..., :, None] * v_BHV[..., None, :]
    z_BHK = z_BHK + k_BHK
    num_BHV = (q_BHK[..., None, :] @ S_BHKV).squeeze(-2)
    den_BH1 = (q_BHK * z_BHK).sum(-1, keepdim=True)
    return ratio(num_BHV, den_BH1), (S_BHKV, z_BHK)


def full(q_BHTK: Tensor, k_BHSK: Tensor, v_BHSV: Tensor) -> Tensor:
    """Every query attends to every key, for encoders: y_t = q_t S / (q_t · z) with one S and one z of all keys."""
    S_BHKV, z_BHK = k_BHSK.mT @ v_BHSV, k_BHSK.sum(-2)
    return ratio(q_BHTK @ S_BHKV, q_BHTK @ z_BHK[..., None])


def ratio(num: Tensor, den: Tensor) -> Tensor:
    """num / den; a query that matches nothing (den is zero) gets zeros, and no gradient."""
    matches = den > MIN_DENOMINATOR
    return torch.where(matches, num / torch.where(matches, den, 1), 0)
