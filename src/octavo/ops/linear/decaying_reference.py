"""The reference implementation of linear attention that forgets: step by step, and as a map of all pairs.

B batch, H heads, T tokens, K size of a key, V size of a value, J is 1 (a decay for each head) or K (for each channel of
its keys). g is the logarithm of a decay, G its sum so far; β is how much of a value is written.

    S_t = A_t S_{t-1} + k_t v_tᵀ                A_t = diag(exp g_t)                    decay alone
    S_t = A_t S_{t-1} + β_t k_t v_tᵀ            A_t = (I - β_t k_t k_tᵀ) exp g_t       the delta rule
    y_t = q_t S_t

With the delta rule, what a key k_t reads in the decayed state is taken out before v_t is written: the state learns the
difference u_t = β_t (v_t - k_t exp(g_t) S_{t-1}), and S_t = exp(g_t) S_{t-1} + k_t u_tᵀ is decay alone on u.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def step(
    q_BHK: Tensor, k_BHK: Tensor, v_BHV: Tensor, g_BHJ: Tensor, beta_BH: Tensor | None, S_BHKV: Tensor
) -> tuple[Tensor, Tensor]:
    """One token: S = exp(g) S + k uᵀ with u = v, or u = β (v - k exp(g) S), and y = q S."""
    S_BHKV = g_BHJ.exp()[..., None] * S_BHKV
    if beta_BH is not None:
        v_BHV = beta_BH[..., None] * (v_BHV - (k_BHK[..., None, :] @ S_BHKV).squeeze(-2))
    S_BHKV = S_BHKV + k_BHK[..., :, None] * v_BHV[..., None, :]
    return (q_BHK[..., None, :] @ S_BHKV).squeeze(-2), S_BHKV


def recurrent(
    q_BHTK: Tensor, k_BHTK: Tensor, v_BHTV: Tensor, g_BHTJ: Tensor, beta_BHT: Tensor | None, S_BHKV: Tensor
) -> tuple[Tensor, Tensor]:
    """One step after another: the definition."""
    y = []
    for t in range(q_BHTK.shape[2]):
        beta_BH = None if beta_BHT is None else beta_BHT[:, :, t]
        y_BHV, S_BHKV = step(q_BHTK[:, :, t], k_BHTK[:, :, t], v_BHTV[:, :, t], g_BHTJ[:, :, t], beta_BH, S_BHKV)
        y.append(y_BHV)
    return torch.stack(y, 2) if y else torch.empty_like(v_BHTV), S_BHKV


def parallel(
    q_BHTK: Tensor, k_BHTK: Tensor, v_BHTV: Tensor, g_BHTJ: Tensor, beta_BHT: Tensor | None, S_BHKV: Tensor
) -> tuple[Tensor, Tensor]:
    """All pairs at once: Y = P U + exp(G) Q S, with U = V, or (I + L) U = β (V - exp(G) K S), L = β K Kᵀ below the
    diagonal, decayed."""
    if not q_BHTK.shape[2]:
        return torch.empty_like(v_BHTV), S_BHKV
    G_BHTJ = g_BHTJ.cumsum(2)
    p_BHTT, u_BHTV = decayed_products(q_BHTK, k_BHTK, G_BHTJ), v_BHTV
    if beta_BHT is not None:
        L_BHTT = beta_BHT[..., None] * decayed_products(k_BHTK, k_BHTK, G_BHTJ)
        rest_BHTV = beta_BHT[..., None] * (v_BHTV - (k_BHTK * G_BHTJ.exp()) @ S_BHKV)
        u_BHTV = torch.linalg.solve_triangular(L_BHTT, rest_BHTV, upper=False, unitriangular=True)
    y_BHTV = p_BHTT @ u_BHTV + (q_BHTK * G_BHTJ.exp()) @ S_BHKV
    end_BH1J = G_BHTJ[:, :, -1:]
    return y_BHTV, end_BH1J.exp().mT * S_BHKV + (k_BHTK * (end_BH1J - G_BHTJ).exp()).mT @ u_BHTV


def decaying_weights(q_BHTK: Tensor, k_BHTK: Tensor, g_BHTJ: Tensor, beta_BHT: Tensor | None = None) -> Tensor:
    """a_BHTT, what each value counts for in each y, of a text that opens with an empty state: y = a v.

    Unlike attention weights they may be negative, and their rows sum to anything.
    """
    G_BHTJ = g_BHTJ.cumsum(2)
    p_BHTT = decayed_products(q_BHTK, k_BHTK, G_BHTJ)
    if beta_BHT is None:
        return p_BHTT
    L_BHTT = beta_BHT[..., None] * decayed_products(k_BHTK, k_BHTK, G_BHTJ)
    a_BHTT: Tensor = torch.linalg.solve_triangular(L_BHTT, p_BHTT, upper=False, left=False, unitriangular=True)
    return a_BHTT * beta_BHT[..., None, :]


def decayed_products(q_BHTK: Tensor, k_BHTK: Tensor, G_BHTJ: Tensor) -> Tensor:
    """p_ts = sum over the channels of q_t k_s exp(G_t - G_s) for s <= t, else 0.

    The exponents of the pairs themselves, none above zero, so that no decay is too strong.
    """
    if G_BHTJ.shape[-1] == 1:
        return (q_BHTK @ k_BHTK.mT) * decay_between(G_BHTJ)
    rows, T = [], q_BHTK.shape[2]
    for t in range(T):
        decay_BHSK = (G_BHTJ[:, :, t : t + 1] - G_BHTJ[:, :, : t + 1]).exp()
        row_BHS = (q_BHTK[:, :, t : t + 1] * k_BHTK[:, :, : t + 1] * decay_BHSK).sum(-1)
        rows.append(F.pad(row_BHS, (0, T - t - 1)))
    return torch.stack(rows, 2)


def decay_between(G_T1: Tensor) -> Tensor:
    """exp(G_t - G_s) for s <= t, else 0; what is masked is masked before exp, which could overflow there."""
    T = G_T1.shape[-2]
    future_TT = torch.ones(T, T, dtype=torch.bool, device=G_T1.device).triu(1)
    return (G_T1 - G_T1.mT).masked_fill(future_TT, -torch.inf).exp()
