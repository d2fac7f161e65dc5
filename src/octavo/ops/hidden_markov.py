"""Hidden Markov models: the forward algorithm by steps and in chunks, forward-backward, and the Viterbi path.

B batch, T time, S hidden states, V vocabulary, C chunks of L tokens, R rows of B C S first states, N numbers of all
tokens. q_BS is the probability of each hidden state at the next token, given all tokens before it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from octavo.ops.linear_chain import Chain, best_paths, marginals
from octavo.ops.tracing import is_tracing, tap

MIN_CHUNKED_TOKENS = 32  # fewer are read by steps
MAX_CHUNKED_NUMBERS = 1 << 24  # held at once: q from every state after every token, 64 MB
MAX_CHUNKED_WORK = 1 << 18  # rows times S³: S times the operations of steps cost more than the steps' calls from here


class HiddenMarkov(NamedTuple):
    """The probabilities of a hidden Markov model; a token `begin` is no emission: after it the states start anew."""

    start_S: Tensor
    transition_SS: Tensor  # from the row's state to the column's
    emission_VS: Tensor  # of each token in each state
    begin: int

    def double(self) -> HiddenMarkov:
        """In double precision, on the CPU."""
        start_S, transition_SS, emission_VS = (p.to("cpu", torch.float64) for p in self[:3])
        return HiddenMarkov(start_S, transition_SS, emission_VS, self.begin)


def forward_step(m: HiddenMarkov, q_BS: Tensor, x_B: Tensor, e_BS: Tensor) -> tuple[Tensor, Tensor]:
    """One step of the forward algorithm: q' and p(x | what came before), from q and the emissions e of token x."""
    joint_BS = q_BS * e_BS
    p_B1 = joint_BS.sum(-1, keepdim=True) + torch.finfo(q_BS.dtype).tiny  # never 0 / 0
    belief_BS = tap("belief", joint_BS / p_B1)
    next_BS = torch.where((x_B == m.begin)[:, None], m.start_S, belief_BS @ m.transition_SS)
    return next_BS, p_B1[:, 0]


def forward_by_steps(m: HiddenMarkov, q_BS: Tensor, x_BT: Tensor) -> Tensor:
    """q_BTS after each token."""
    e_TBS = F.embedding(x_BT.t(), m.emission_VS)
    after = []
    for x_B, e_BS in zip(x_BT.unbind(1), e_TBS.unbind(0), strict=True):
        q_BS, _ = forward_step(m, q_BS, x_B, e_BS)
        after.append(q_BS)
    return torch.stack(after, 1)


def forward_in_chunks(m: HiddenMarkov, q_BS: Tensor, x_BT: Tensor) -> Tensor:
    """The same, √T chunks of √T tokens side by side: each is read from every hidden state that it could begin in.

    Then, chunk after chunk, the S results are weighed by how probable it is that the chunk began in each state, and
    that what was read follows from there: w_s = q_s p(x_1 .. x_l | s) / Σ. All sums of logarithms, so nothing becomes
    zero that is not.
    """
    (B, T), S = x_BT.shape, len(m.start_S)
    L = math.isqrt(T)
    C = T // L
    x_BCL = x_BT[:, : C * L].reshape(B, C, L)
    q_BCLSS, logp_BCLS = _from_every_state(m, x_BCL, S)
    after = []
    for c in range(C):
        logq_BS = q_BS.clamp(min=torch.finfo(q_BS.dtype).tiny).log()
        w_BLS = (logq_BS[:, None] + logp_BCLS[:, c]).softmax(-1)
        after.append((w_BLS[:, :, None] @ q_BCLSS[:, c])[:, :, 0])
        q_BS = after[-1][:, -1]
    if C * L < T:
        after.append(forward_by_steps(m, q_BS, x_BT[:, C * L :]))
    return torch.cat(after, 1)


def _from_every_state(m: HiddenMarkov, x_BCL: Tensor, S: int) -> tuple[Tensor, Tensor]:
    """q after each token of each chunk, for every state that the chunk may begin in, and log p of its tokens so far."""
    B, C = x_BCL.shape[:2]
    q_RS = torch.eye(S, dtype=m.start_S.dtype, device=x_BCL.device).repeat(B * C, 1)
    logp_R = q_RS.new_zeros(len(q_RS))
    after, logps = [], []
    for x_BC in x_BCL.unbind(-1):
        x_R = x_BC.flatten().repeat_interleave(S)
        q_RS, p_R = forward_step(m, q_RS, x_R, F.embedding(x_R, m.emission_VS))
        logp_R = logp_R + torch.where(x_R == m.begin, 0.0, p_R.log())
        after.append(q_RS.view(B, C, S, S))
        logps.append(logp_R.view(B, C, S))
    return torch.stack(after, 2), torch.stack(logps, 2)


def forward(m: HiddenMarkov, q_BS: Tensor, x_BT: Tensor) -> Tensor:
    """q_BTS after each token by the faster way; training goes by steps, whose backward pass saves less."""
    rows, S = q_BS.shape
    by_steps = m.emission_VS.requires_grad or q_BS.requires_grad or is_tracing()
    if by_steps or x_BT.shape[1] < MIN_CHUNKED_TOKENS or rows * S**3 > MAX_CHUNKED_WORK:
        return forward_by_steps(m, q_BS, x_BT)
    after = []
    for x_Bt in x_BT.split(max(MIN_CHUNKED_TOKENS, MAX_CHUNKED_NUMBERS // (rows * S**2)), 1):
        after.append(forward_in_chunks(m, q_BS, x_Bt))
        q_BS = after[-1][:, -1]
    return torch.cat(after, 1)


class Expectations(NamedTuple):
    """Expected counts of a text: how often a sequence starts in each state, a state follows another, emits a token."""

    start_S: Tensor
    transition_SS: Tensor
    emission_VS: Tensor
    log_likelihood: float


def expected_counts(m: HiddenMarkov, x_PT: Tensor, is_token_PT: Tensor) -> Expectations:
    """The E step of Baum-Welch: forward-backward over P sequences, padded behind where is_token_PT is false.

    α_t = q_t e_t / p_t        β_t = A (e_{t+1} β_{t+1}) / p_{t+1}        P(state at t) = α_t β_t
    """
    mask_TP1 = is_token_PT.t()[:, :, None]
    e_TPS = torch.where(mask_TP1, F.embedding(x_PT.t(), m.emission_VS), 1.0)
    q_PS = m.start_S.expand(len(x_PT), -1)
    alphas, p_TP1 = [], []
    for e_PS in e_TPS:
        joint_PS = q_PS * e_PS
        p_TP1.append(joint_PS.sum(-1, keepdim=True).clamp(min=torch.finfo(e_PS.dtype).tiny))
        alphas.append(joint_PS / p_TP1[-1])
        q_PS = alphas[-1] @ m.transition_SS
    pair_SS, beta_PS = torch.zeros_like(m.transition_SS), torch.ones_like(q_PS)
    emission_VS = torch.zeros_like(m.emission_VS)
    log_likelihood = 0.0
    for t in range(len(e_TPS) - 1, -1, -1):
        state_PS = alphas[t] * beta_PS * mask_TP1[t]
        emission_VS.index_add_(0, x_PT[:, t], state_PS)
        log_likelihood += float((p_TP1[t].log() * mask_TP1[t]).sum())
        if t:
            here_PS = e_TPS[t] * beta_PS / p_TP1[t]
            pair_SS += alphas[t - 1].T @ (here_PS * mask_TP1[t])
            beta_PS = torch.where(mask_TP1[t], here_PS @ m.transition_SS.T, 1.0)
    return Expectations(state_PS.sum(0), pair_SS * m.transition_SS, emission_VS, log_likelihood)


def state_probabilities(m: HiddenMarkov, x_T: Tensor) -> Tensor:
    """P(state at t | the whole text), p_TS: forward-backward over one sequence without begin tokens."""
    tiny = torch.finfo(m.start_S.dtype).tiny  # whose logarithm stands for that of 0
    return marginals(*_as_chain(m, x_T, tiny))[0]


def viterbi(m: HiddenMarkov, x_T: Tensor) -> tuple[Tensor, float]:
    """The most probable path of hidden states for one sequence without begin tokens, and its log-probability."""
    path_1T, logp_1 = best_paths(*_as_chain(m, x_T))
    return path_1T[0], float(logp_1)


def _as_chain(m: HiddenMarkov, x_T: Tensor, least: float = 0.0) -> tuple[Chain, Tensor, Tensor]:
    """The model's log-probabilities as the scores of a chain, those of the tokens, and how many there are."""
    start_S, transition_SS, e_TS = (
        p.clamp(min=least).log() for p in (m.start_S, m.transition_SS, F.embedding(x_T, m.emission_VS))
    )
    lengths_1 = torch.tensor([len(x_T)], device=x_T.device)
    return Chain(start_S, transition_SS, torch.zeros_like(start_S)), e_TS[None], lengths_1
