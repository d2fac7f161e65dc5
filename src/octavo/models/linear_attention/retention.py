"""Retention (RetNet; Sun et al. 2023): every head forgets at a pace of its own, which is never learnt.

B batch, T tokens, H heads, K size of a key, D width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from octavo.models.linear_attention.config import RetentionConfig
from octavo.models.linear_attention.mixer import HeadMixer, Inputs, Sizes
from octavo.models.linear_attention.model import LinearAttentionLM
from octavo.models.linear_attention.spec import linear_attention_spec
from octavo.ops import linear
from octavo.ops.positions import rotary_angles, rotate

SLOWEST = 5  # the first head keeps 1 - 2^-5 of its state a token, the next 1 - 2^-6, ...


class RetentionMixer(HeadMixer):
    """A_t = γ_h. Queries and keys are turned by their position, as rotary ones are."""

    @classmethod
    def sizes(cls, config: Any) -> Sizes:
        return super().sizes(config)._replace(fixed_decay=True)

    def start_rest(self, batch: int) -> tuple[Tensor, ...]:
        return (torch.zeros(batch, dtype=torch.long, device=self.out_DD.device),)  # the position

    def inputs(self, x_BTD: Tensor, q: Tensor, k: Tensor, v: Tensor, rest: list[Tensor]) -> tuple[Inputs, list[Tensor]]:
        (position_B,), (B, H, T, K) = rest, q.shape
        place_T = position_B[0] + torch.arange(T, device=q.device)  # the same in every row
        angles_TK = rotary_angles(place_T, K, dtype=q.dtype)
        q, k = rotate(q, angles_TK), rotate(k, angles_TK) * K**-0.5
        g_H = torch.log1p(-(2.0 ** -(SLOWEST + torch.arange(H, dtype=torch.float64, device=q.device))))
        return Inputs(q, k, v, g_H[:, None, None].to(linear.wide_enough(q)).expand(B, H, T, 1)), [position_B + T]


class Retention(LinearAttentionLM):
    """S_t = γ S_{t-1} + k_t v_tᵀ."""

    mixer = RetentionMixer


SPEC = linear_attention_spec(
    "retention", "retentive network", "a retentive network (RetNet): heads that forget at fixed paces",
    Retention, RetentionConfig, decays="",
    equation="""q_t, k_t, v_t = silu(convolution(W x)); q_t and k_t / √K turned by the position
S_t = γ_h S_{t-1} + k_t v_tᵀ, γ_h = 1 - 2^(-5-h)
o_t = norm(q_t S_t) ⊙ silu(W_g x_t)""",
)  # fmt: skip
