"""A linear chain of tags: log-partition, marginals and best paths, in logarithms and for sentences of any length.

B sentences, T tokens of the longest, C tags. The score of the tags y of a sentence of n tokens is

    s(y) = start(y_1) + Σ_t e_t(y_t) + Σ_t transition(y_{t-1}, y_t) + end(y_n)

and p(y) = exp(s(y) - log Z). With log-probabilities as scores it is a hidden Markov model, otherwise a conditional
random field (Lafferty et al. 2001). What stands behind a sentence's length changes nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Chain(NamedTuple):
    """The scores that do not depend on the tokens."""

    start_C: Tensor
    transition_CC: Tensor  # from the row's tag to the column's
    end_C: Tensor


def is_token(lengths_B: Tensor, T: int) -> Tensor:
    """mask_BT: what is no padding."""
    return torch.arange(T, device=lengths_B.device) < lengths_B[:, None]


def path_scores(chain: Chain, e_BTC: Tensor, y_BT: Tensor, lengths_B: Tensor) -> Tensor:
    """s_B of the given tags."""
    if not e_BTC.shape[1]:
        return e_BTC.new_zeros(len(e_BTC))
    mask_BT = is_token(lengths_B, e_BTC.shape[1])
    y_BT = torch.where(mask_BT, y_BT, 0)
    emission_BT = e_BTC.gather(2, y_BT[..., None])[..., 0]
    transition_BT = chain.transition_CC[y_BT[:, :-1], y_BT[:, 1:]]
    last_B = y_BT.gather(1, (lengths_B - 1).clamp(min=0)[:, None])[:, 0]
    s_B = (emission_BT * mask_BT).sum(1) + (transition_BT * mask_BT[:, 1:]).sum(1)
    return torch.where(lengths_B > 0, s_B + chain.start_C[y_BT[:, 0]] + chain.end_C[last_B], 0.0)


def _forward(chain: Chain, e_BTC: Tensor, lengths_B: Tensor) -> list[Tensor]:
    """α_t(j) = e_t(j) + log Σ_i exp(α_{t-1}(i) + transition(i, j)), behind the last token as it was."""
    alpha_BC = chain.start_C + e_BTC[:, 0]
    alphas = [alpha_BC]
    for t in range(1, e_BTC.shape[1]):
        next_BC = e_BTC[:, t] + (alpha_BC[:, :, None] + chain.transition_CC).logsumexp(1)
        alpha_BC = torch.where((t < lengths_B)[:, None], next_BC, alpha_BC)
        alphas.append(alpha_BC)
    return alphas


def log_partition(chain: Chain, e_BTC: Tensor, lengths_B: Tensor) -> Tensor:
    """log Z_B, by the forward algorithm; its gradients are the expected counts of tags and transitions."""
    if not e_BTC.shape[1]:
        return e_BTC.new_zeros(len(e_BTC))
    logz_B = (_forward(chain, e_BTC, lengths_B)[-1] + chain.end_C).logsumexp(1)
    return torch.where(lengths_B > 0, logz_B, 0.0)


def marginals(chain: Chain, e_BTC: Tensor, lengths_B: Tensor) -> Tensor:
    """p_BTC, the probability of each tag at each token, by forward-backward; zero behind a sentence's end.

    β_t(i) = log Σ_j exp(transition(i, j) + e_{t+1}(j) + β_{t+1}(j))        p_t(i) = exp(α_t(i) + β_t(i)) / Z
    """
    T = e_BTC.shape[1]
    if not T:
        return e_BTC
    alphas = _forward(chain, e_BTC, lengths_B)
    beta_BC = chain.end_C.expand(len(e_BTC), -1)
    after = [(alphas[-1] + beta_BC).softmax(1)]
    for t in range(T - 1, 0, -1):
        before_BC = (chain.transition_CC + (e_BTC[:, t] + beta_BC)[:, None]).logsumexp(2)
        beta_BC = torch.where((t < lengths_B)[:, None], before_BC, beta_BC)
        after.append((alphas[t - 1] + beta_BC).softmax(1))
    return torch.stack(after[::-1], 1) * is_token(lengths_B, T)[..., None]


def best_paths(chain: Chain, e_BTC: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
    """The tags y_BT of the highest score, 0 behind a sentence's end, and that score s_B: the Viterbi algorithm.

    δ_t(j) = e_t(j) + max_i δ_{t-1}(i) + transition(i, j)
    """
    (B, T, C), mask_BT = e_BTC.shape, is_token(lengths_B, e_BTC.shape[1])
    if not T:
        return torch.zeros(B, 0, dtype=torch.long, device=e_BTC.device), e_BTC.new_zeros(B)
    itself_C = torch.arange(C, device=e_BTC.device)
    best_BC, origins = chain.start_C + e_BTC[:, 0], []
    for t in range(1, T):
        reached_BC, origin_BC = (best_BC[:, :, None] + chain.transition_CC).max(1)
        here_B1 = mask_BT[:, t, None]
        best_BC = torch.where(here_B1, reached_BC + e_BTC[:, t], best_BC)
        origins.append(torch.where(here_B1, origin_BC, itself_C))
    s_B, y_B = (best_BC + chain.end_C).max(1)
    path = [y_B]
    for origin_BC in reversed(origins):
        path.append(origin_BC.gather(1, path[-1][:, None])[:, 0])
    return torch.stack(path[::-1], 1) * mask_BT, torch.where(lengths_B > 0, s_B, 0.0)
