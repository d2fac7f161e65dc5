"""The neural bigram: the last token's vector goes through one hidden layer, and a softmax predicts the next token.

    x = the token's vector      h = sigmoid(x W1 + b1)      p(next | token) = softmax(h W2 + b2)

B batch, T time, V vocabulary, Y tokens that can come next (all but begin), D dimensions of a vector, H hidden units,
C contexts (distinct tokens), P pairs of a token and the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from octavo.config import CountOrZero, LearningRate, Length, Width, check_ranges
from octavo.core import LanguageModel
from octavo.ops.tracing import is_tracing, tap

SPREAD = 0.4  # standard deviation of vectors that are drawn: the hidden layer starts where the sigmoid is steep
MAX_LOGITS = 1 << 23  # held where only their sums are wanted: 32 MB


@dataclass(frozen=True)
class BigramConfig:
    """How a neural bigram is made and trained."""

    vectors: str = ""
    """Word vectors to start from: a file in GloVe's or word2vec's text format, or glove-6b-50d; without it, drawn."""
    dim: Width = 50
    """Dimensions of a token's vector."""
    hidden: Width = 50
    """Hidden units."""
    steps: CountOrZero = 800
    """At most so many steps of training; the rate falls to zero over them."""
    batch: Length = 128
    """About so many distinct tokens, with all that was counted after them, make a step."""
    rate: LearningRate = 0.03
    """Adam's rate at the start."""
    patience: CountOrZero = 5
    """Stop after so many times 50 steps that bring nothing better on held-out text; 0 takes all steps."""

    def __post_init__(self) -> None:
        check_ranges(self)


class Weights(NamedTuple):
    """What is learnt, or the gradient of a loss by it; x_CD holds the vectors of the contexts at hand."""

    x_CD: Tensor
    W1_DH: Tensor
    b1_H: Tensor
    W2_HY: Tensor
    b2_Y: Tensor


class Pairs(NamedTuple):
    """How often tokens follow contexts: n_P times next_P after the context in row row_P; no pair is there twice."""

    row_P: Tensor
    next_P: Tensor
    n_P: Tensor


def forward_pass(w: Weights) -> tuple[Tensor, Tensor]:
    """h_CH and logits_CY."""
    h_CH = torch.sigmoid(w.x_CD @ w.W1_DH + w.b1_H)
    logits_CY = torch.addmm(w.b2_Y, h_CH, w.W2_HY)
    return h_CH, logits_CY


@torch.no_grad()
def loss_and_gradient(w: Weights, pairs: Pairs) -> tuple[Tensor, Weights]:
    """The sum over pairs of n · -log p(next | context), and its gradient, by the chain rule from the last line up."""
    h_CH, logits_CY = forward_pass(w)
    n_C1 = torch.zeros_like(h_CH[:, :1]).index_add_(0, pairs.row_P, pairs.n_P[:, None])
    at_P = pairs.row_P * logits_CY.shape[1] + pairs.next_P
    logits_CY -= logits_CY.amax(1, keepdim=True)  # the softmax stays the same, and exp cannot overflow
    score_P = logits_CY.view(-1)[at_P]
    e_CY = logits_CY.exp_()
    z_C1 = e_CY.sum(1, keepdim=True)
    loss = (n_C1 * z_C1.log()).sum() - (pairs.n_P * score_P).sum()

    dlogits_CY = e_CY.mul_(n_C1 / z_C1)  # n_C p_CY - n_CY: what was expected less what was counted
    dlogits_CY.view(-1).index_add_(0, at_P, -pairs.n_P)
    dW2_HY = h_CH.T @ dlogits_CY
    db2_Y = dlogits_CY.sum(0)
    dh_CH = dlogits_CY @ w.W2_HY.T
    da_CH = dh_CH * h_CH * (1 - h_CH)
    dW1_DH = w.x_CD.T @ da_CH
    db1_H = da_CH.sum(0)
    dx_CD = da_CH @ w.W1_DH.T
    return loss, Weights(dx_CD, dW1_DH, db1_H, dW2_HY, db2_Y)


def pair_logp(w: Weights, row_P: Tensor, next_P: Tensor) -> Tensor:
    """log p_P of next_P after the contexts in the rows row_P; the contexts' normalisers are summed once each."""
    h_CH = torch.sigmoid(w.x_CD @ w.W1_DH + w.b1_H)
    chunk = max(1, MAX_LOGITS // max(1, len(w.b2_Y)))
    parts = [torch.addmm(w.b2_Y, part, w.W2_HY).logsumexp(1) for part in h_CH.split(chunk)]
    logz_C = torch.cat(parts) if parts else h_CH.new_zeros(0)
    return (h_CH[row_P] * w.W2_HY.T[next_P]).sum(1) + w.b2_Y[next_P] - logz_C[row_P]


class Bigram(LanguageModel[None]):
    """There is no state: `step` is given the last token, and nothing else counts. Begin is never predicted."""

    begin_resets = True
    max_scored_tokens = 1 << 16
    receptive_field = 1

    def __init__(self, config: BigramConfig, vocab: int) -> None:
        super().__init__()
        self.config, self.vocab, self.begin = config, vocab, vocab - 1
        self.x_VD = nn.Parameter(torch.zeros(vocab, config.dim))
        self.W1_DH = nn.Parameter(torch.zeros(config.dim, config.hidden))
        self.b1_H = nn.Parameter(torch.zeros(config.hidden))
        self.W2_HY = nn.Parameter(torch.zeros(config.hidden, vocab - 1))
        self.b2_Y = nn.Parameter(torch.zeros(vocab - 1))

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> None:
        """Vectors and W1 are drawn; W2 and the biases are zero, so that the first gradient is b2's and W2's."""
        self.x_VD.copy_(SPREAD * torch.randn(self.x_VD.shape, generator=generator))
        self.W1_DH.copy_(torch.randn(self.W1_DH.shape, generator=generator) * self.config.dim**-0.5)
        for zero in (self.b1_H, self.W2_HY, self.b2_Y):
            zero.zero_()

    def weights(self, context_C: Tensor | None = None) -> Weights:
        """The weights, with the vectors of these contexts; without any, with the very tensor of all vectors."""
        x_CD = self.x_VD if context_C is None else self.x_VD[context_C]
        return Weights(x_CD, self.W1_DH, self.b1_H, self.W2_HY, self.b2_Y)

    def start(self, batch: int) -> None:
        return None

    def step(self, state: None, x_B: Tensor) -> tuple[Tensor, None]:
        h_BH, logits_BY = forward_pass(self.weights(x_B.long()))
        tap("hidden", h_BH)
        return F.pad(logits_BY, (0, 1), value=-torch.inf), None

    def absorb(self, state: None, x_BT: Tensor) -> tuple[Tensor, None]:
        h_CH, logits_CY = forward_pass(self.weights(x_BT.reshape(-1).long()))
        tap("hidden", h_CH.view(*x_BT.shape, self.config.hidden))
        return F.pad(logits_CY, (0, 1), value=-torch.inf).view(*x_BT.shape, self.vocab), None

    def token_log_probs(self, state: None, x_BT: Tensor) -> tuple[Tensor, None]:
        if is_tracing():  # somebody wants to see the hidden layer at every token
            return super().token_log_probs(state, x_BT)
        context_C, row_BT = torch.unique(x_BT[:, :-1], return_inverse=True)
        next_P = x_BT[:, 1:].reshape(-1).long()
        can_come_P = next_P != self.begin
        logp_P = pair_logp(self.weights(context_C.long()), row_BT.reshape(-1), next_P.where(can_come_P, 0))
        return logp_P.where(can_come_P, -torch.inf).view(row_BT.shape), None
