"""Mamba-2 (Dao and Gu 2024): a state-space model whose steps the tokens choose; by its duality, linear attention with a
decay for each head.

B batch, T tokens, H heads, P size of a head (of a value), N size of the state (of a key), D width, I = H P inner width,
E = I + 2 N channels of the convolution, C its tokens.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from octavo.models.linear_attention.config import Mamba2Config
from octavo.models.linear_attention.mixer import Inputs, Mixer, Sizes, per_head, show_gate
from octavo.models.linear_attention.model import LinearAttentionLM
from octavo.models.linear_attention.paces import draw_paces, log_decay
from octavo.models.linear_attention.spec import linear_attention_spec
from octavo.models.parts.attention import join_heads, split_heads
from octavo.ops.norm import rms_norm
from octavo.ops.short_convolution import short_convolution


class Mamba2Mixer(Mixer):
    """A_t = exp(-a Δ_t), k_t = Δ_t B_t, q_t = C_t; beside the state a way past it, d v_t."""

    def __init__(self, config: Mamba2Config) -> None:
        super().__init__(config)
        D, inner, N, H = config.width, config.inner, config.state_size, config.heads
        self.gate_ID = nn.Parameter(torch.empty(inner, D))
        self.value_ID = nn.Parameter(torch.empty(inner, D))
        self.key_ND = nn.Parameter(torch.empty(N, D))
        self.query_ND = nn.Parameter(torch.empty(N, D))
        self.step_HD = nn.Parameter(torch.empty(H, D))
        self.convolution_bias_E = nn.Parameter(torch.empty(inner + 2 * N)) if config.convolution else None
        self.step_bias_H = nn.Parameter(torch.empty(H))
        self.log_pace_H = nn.Parameter(torch.empty(H))
        self.skip_H = nn.Parameter(torch.empty(H))
        self.norm_I = nn.Parameter(torch.empty(inner))
        self.out_DI = nn.Parameter(torch.empty(D, inner))

    @classmethod
    def sizes(cls, config: Any) -> Sizes:
        D, inner, N, H, C = config.width, config.inner, config.state_size, config.heads, config.convolution
        E = inner + 2 * N
        shapes = [(2 * inner, D), (2 * N, D), (H, D)]
        vectors = (C + 1) * E * bool(C) + 3 * H + inner
        return Sizes(shapes, vectors, (D, inner), H, N, config.head_size, E)

    def initialise(self, config: Any, generator: torch.Generator) -> None:
        super().initialise(config, generator)
        draw_paces(self.log_pace_H, self.step_bias_H, generator)
        self.skip_H.data.fill_(1)

    def project(self, x_BTD: Tensor, past_BPE: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Of all heads the same query and key."""
        xBC_BTE = F.linear(x_BTD, torch.cat([self.value_ID, self.key_ND, self.query_ND]))
        if self.convolution_CE is not None:
            xBC_BTE, past_BPE = short_convolution(xBC_BTE, past_BPE, self.convolution_CE, self.convolution_bias_E)
        N = self.config.state_size
        v_BTI, k_BTN, q_BTN = F.silu(xBC_BTE).split([self.config.inner, N, N], -1)
        return q_BTN[:, None], k_BTN[:, None], split_heads(v_BTI, self.config.heads), past_BPE

    def inputs(self, x_BTD: Tensor, q: Tensor, k: Tensor, v: Tensor, rest: list[Tensor]) -> tuple[Inputs, list[Tensor]]:
        dt_BHT = F.softplus(per_head(x_BTD, self.step_HD, self.step_bias_H))
        g_BHT = log_decay(dt_BHT, self.log_pace_H)
        show_gate("decay", g_BHT.exp()[..., None])
        k_BHTN = k * dt_BHT[..., None]
        return Inputs(q.expand_as(k_BHTN), k_BHTN, v, g_BHT[..., None]), rest

    def read(self, y_BHTV: Tensor, given: Inputs, rest: list[Tensor]) -> Tensor:
        return y_BHTV + self.skip_H[:, None, None].to(y_BHTV.dtype) * given.v_BHTV

    def out(self, y_BHTV: Tensor, x_BTD: Tensor) -> Tensor:
        y_BTI = join_heads(y_BHTV) * F.silu(F.linear(x_BTD, self.gate_ID))
        return F.linear(rms_norm(y_BTI, self.norm_I.to(y_BTI.dtype), self.config.norm_eps), self.out_DI)


class Mamba2(LinearAttentionLM):
    """S_t = exp(-a Δ_t) S_{t-1} + Δ_t B_t v_tᵀ."""

    mixer = Mamba2Mixer


SPEC = linear_attention_spec(
    "mamba2", "Mamba-2", "a state-space model whose steps the tokens choose (Mamba-2)",
    Mamba2, Mamba2Config, decays="how much of the state is retained", exports=("hf",),
    equation="""v_t, B_t, C_t = silu(convolution(W x))
Δ_t = softplus(W_Δ x_t + b)
S_t = exp(-a Δ_t) S_{t-1} + Δ_t B_t v_tᵀ
y_t = C_t S_t + d v_t
o_t = norm(y_t ⊙ silu(W_z x_t))""",
)  # fmt: skip
