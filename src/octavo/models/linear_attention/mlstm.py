"""The mLSTM of xLSTM (Beck et al. 2024): an LSTM whose cell is a matrix, with an exponential input gate.

B batch, T tokens, H heads, K size of a key, D width, W = V + 1: beside the values a column of ones, whose state is the
normaliser n.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from octavo.models.linear_attention.config import LinearAttentionConfig
from octavo.models.linear_attention.mixer import HeadMixer, Inputs, Sizes, per_head, show_gate
from octavo.models.linear_attention.model import LinearAttentionLM
from octavo.models.linear_attention.spec import linear_attention_spec
from octavo.models.parts.attention import split_heads
from octavo.ops import linear
from octavo.ops.short_convolution import short_convolution
from octavo.ops.tracing import tap

CAP = 15.0  # what the logarithms of gates are held below, softly
FORGET_BIASES = (1.0, 5.0)  # of the first and the last head: at first they retain from 73 to 99 % of their state
MOST_NEGATIVE = 80.0  # of m: exp(-m) must be a number in single precision


def capped(x: Tensor) -> Tensor:
    """x where it is small, and never beyond CAP."""
    return CAP * torch.tanh(x / CAP)


class MatrixLSTMMixer(HeadMixer):
    """A_t = f_t, with k_t times the input gate i_t; what is read is divided by the larger of |q · n| and 1."""

    def __init__(self, config: LinearAttentionConfig) -> None:
        super().__init__(config)
        H, D = config.heads, config.width
        self.input_HD = nn.Parameter(torch.empty(H, D))
        self.forget_HD = nn.Parameter(torch.empty(H, D))
        self.input_bias_H = nn.Parameter(torch.empty(H))
        self.forget_bias_H = nn.Parameter(torch.empty(H))

    @classmethod
    def sizes(cls, config: Any) -> Sizes:
        H, D, K = config.heads, config.width, config.head_size
        shapes = [(D, D)] * 4 + [(H, D)] * 2
        return Sizes(shapes, D + D * config.convolution + 2 * H, (D, D), H, K, K + 1, D, kept=H)

    def initialise(self, config: Any, generator: torch.Generator) -> None:
        super().initialise(config, generator)
        self.forget_bias_H.data.copy_(torch.linspace(*FORGET_BIASES, self.config.heads))

    def start_rest(self, batch: int) -> tuple[Tensor, ...]:
        dtype = linear.wide_enough(self.out_DD)
        return (self.out_DD.new_zeros(batch, self.config.heads, dtype=dtype),)  # m

    def project(self, x_BTD: Tensor, past_BPE: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Queries and keys are of the convolution, values of the token alone."""
        v_BTD, mixed_BTD = F.linear(x_BTD, self.value_DD), x_BTD
        if self.convolution_CE is not None:
            mixed_BTD, past_BPE = short_convolution(x_BTD, past_BPE, self.convolution_CE)
            mixed_BTD = F.silu(mixed_BTD)
        qk_BTE = F.linear(mixed_BTD, torch.cat([self.query_DD, self.key_DD]))
        q, k = split_heads(qk_BTE, 2 * self.config.heads).chunk(2, 1)
        return q, k, split_heads(v_BTD, self.config.heads), past_BPE

    def inputs(self, x_BTD: Tensor, q: Tensor, k: Tensor, v: Tensor, rest: list[Tensor]) -> tuple[Inputs, list[Tensor]]:
        i_BHT = capped(per_head(x_BTD, self.input_HD, self.input_bias_H))
        f_BHT = F.logsigmoid(capped(per_head(x_BTD, self.forget_HD, self.forget_bias_H)))
        log_i_BHT, log_f_BHT, m_BHT = linear.stabilised(i_BHT, f_BHT, rest[0])
        show_gate("input", log_i_BHT.exp()[..., None])
        show_gate("decay", f_BHT.exp()[..., None])
        k = k * (k.shape[-1] ** -0.5 * log_i_BHT.exp()[..., None])
        return Inputs(q, k, v, log_f_BHT[..., None]), [torch.cat([rest[0][..., None], m_BHT], -1)]

    def attend(self, given: Inputs, S_BHKV: Tensor) -> tuple[Tensor, Tensor]:
        """q S and q · n side by side."""
        y_BHTV, sums_BHT1, S_BHKW = linear.attend_with_sums(*given[:4], S_BHKV)
        return torch.cat([y_BHTV, sums_BHT1], -1), S_BHKW

    def read(self, y_BHTV: Tensor, given: Inputs, rest: list[Tensor]) -> Tensor:
        """q S / max(|q · n|, 1), both divided by exp(m)."""
        one_BHT1 = (-rest[0][..., 1:, None]).clamp_max(MOST_NEGATIVE).exp()
        return y_BHTV[..., :-1] / torch.maximum(y_BHTV[..., -1:].abs(), one_BHT1)

    def last(self, rest: list[Tensor]) -> list[Tensor]:
        return [rest[0][..., -1]]

    def gate(self, x_BTD: Tensor) -> Tensor:
        o_BTD = x_BTD.sigmoid()
        tap("output", o_BTD[:, -1:].flatten(1))
        return o_BTD


class MLSTM(LinearAttentionLM):
    """S_t = f_t S_{t-1} + i_t k_t v_tᵀ, read as q S / max(|q · n|, 1)."""

    mixer = MatrixLSTMMixer


SPEC = linear_attention_spec(
    "mlstm", "mLSTM", "an LSTM whose cell is a matrix (the mLSTM of xLSTM)",
    MLSTM, LinearAttentionConfig, decays="how much of the state is retained",
    inputs="how much is written, as a share of the most so far", outputs="how much of what is read is shown",
    equation="""q_t = W_q c_t, k_t = W_k c_t / √K, v_t = W_v x_t, with c = silu(convolution(x))
i_t = exp(w_i x_t + b_i), f_t = σ(w_f x_t + b_f)
S_t = f_t S_{t-1} + i_t k_t v_tᵀ, n_t = f_t n_{t-1} + i_t k_t
y_t = q_t S_t / max(|q_t · n_t|, 1)
o_t = norm(y_t) ⊙ σ(W_g x_t)""",
)  # fmt: skip
