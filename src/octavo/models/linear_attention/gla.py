"""Gated linear attention (GLA; Yang et al. 2024): each channel of a head's keys forgets as the token says.

B batch, T tokens, H heads, K size of a key, D width, R rank.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from octavo.models.linear_attention.config import GatedLinearConfig
from octavo.models.linear_attention.mixer import HeadMixer, Inputs, Sizes, show_gate
from octavo.models.linear_attention.model import LinearAttentionLM
from octavo.models.linear_attention.spec import linear_attention_spec
from octavo.models.parts.attention import split_heads
from octavo.ops import linear

TEMPERATURE = 16  # the root that is taken of the gate, so that at first a channel forgets slowly


class GatedLinearMixer(HeadMixer):
    """A_t = diag(α_t), α_t = σ(U_a V_a x_t + b)^(1/16)."""

    def __init__(self, config: GatedLinearConfig) -> None:
        super().__init__(config)
        D, R = config.width, config.decay_rank
        self.decay_down_RD = nn.Parameter(torch.empty(R, D))
        self.decay_up_DR = nn.Parameter(torch.empty(D, R))
        self.decay_bias_D = nn.Parameter(torch.empty(D))

    @classmethod
    def sizes(cls, config: Any) -> Sizes:
        D, R, one = config.width, config.decay_rank, super().sizes(config)
        shapes = [*one.shapes_OI, (R, D), (D, R)]
        return one._replace(shapes_OI=shapes, vectors=one.vectors + D, decays=config.head_size)

    def inputs(self, x_BTD: Tensor, q: Tensor, k: Tensor, v: Tensor, rest: list[Tensor]) -> tuple[Inputs, list[Tensor]]:
        a_BTD = F.linear(F.linear(x_BTD, self.decay_down_RD), self.decay_up_DR)
        a_BTD = a_BTD.to(linear.wide_enough(a_BTD)) + self.decay_bias_D
        g_BHTK = split_heads(F.logsigmoid(a_BTD) / TEMPERATURE, self.config.heads)
        show_gate("decay", g_BHTK.exp())
        return Inputs(q, k * k.shape[-1] ** -0.5, v, g_BHTK), rest


class GLA(LinearAttentionLM):
    """S_t = diag(α_t) S_{t-1} + k_t v_tᵀ."""

    mixer = GatedLinearMixer


SPEC = linear_attention_spec(
    "gla", "gated linear attention", "gated linear attention: each channel of a key forgets as the token says",
    GLA, GatedLinearConfig, decays="how much of a channel is retained",
    equation="""q_t, √K k_t, v_t = silu(convolution(W x))
α_t = σ(U_a V_a x_t + b)^(1/16)
S_t = diag(α_t) S_{t-1} + k_t v_tᵀ
o_t = norm(q_t S_t) ⊙ silu(W_g x_t)""",
)  # fmt: skip
