"""The delta rule: what a key holds is overwritten (DeltaNet; Schlag et al. 2021, Yang et al. 2024), and forgotten too
(gated DeltaNet; Yang et al. 2025).

B batch, T tokens, H heads, K size of a key, D width.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from octavo.models.linear_attention.config import LinearAttentionConfig
from octavo.models.linear_attention.mixer import HeadMixer, Inputs, Sizes, per_head, show_gate, unit
from octavo.models.linear_attention.model import LinearAttentionLM
from octavo.models.linear_attention.paces import draw_paces, log_decay
from octavo.models.linear_attention.spec import linear_attention_spec


class DeltaMixer(HeadMixer):
    """A_t = I - β_t k_t k_tᵀ, with keys and queries of length one."""

    gated = False

    def __init__(self, config: LinearAttentionConfig) -> None:
        super().__init__(config)
        self.strength_HD = nn.Parameter(torch.empty(config.heads, config.width))

    @classmethod
    def sizes(cls, config: Any) -> Sizes:
        one = super().sizes(config)
        return one._replace(shapes_OI=[*one.shapes_OI, (config.heads, config.width)], delta=True, fixed_decay=True)

    def inputs(self, x_BTD: Tensor, q: Tensor, k: Tensor, v: Tensor, rest: list[Tensor]) -> tuple[Inputs, list[Tensor]]:
        beta_BHT = per_head(x_BTD, self.strength_HD).sigmoid()
        show_gate("strength", beta_BHT[..., None])
        return Inputs(unit(q), unit(k), v, self.log_decays(x_BTD, beta_BHT)[..., None], beta_BHT), rest

    def log_decays(self, x_BTD: Tensor, beta_BHT: Tensor) -> Tensor:
        """g_BHT: nothing is forgotten."""
        return torch.zeros_like(beta_BHT)


class GatedDeltaMixer(DeltaMixer):
    """A_t = α_t (I - β_t k_t k_tᵀ), α_t = exp(-a softplus(W_a x_t + b))."""

    gated = True

    def __init__(self, config: LinearAttentionConfig) -> None:
        super().__init__(config)
        H, D = config.heads, config.width
        self.decay_HD = nn.Parameter(torch.empty(H, D))
        self.decay_bias_H = nn.Parameter(torch.empty(H))
        self.log_pace_H = nn.Parameter(torch.empty(H))

    @classmethod
    def sizes(cls, config: Any) -> Sizes:
        H, D, one = config.heads, config.width, super().sizes(config)
        shapes = [*one.shapes_OI, (H, D)]
        return one._replace(shapes_OI=shapes, vectors=one.vectors + 2 * H, fixed_decay=False)

    def initialise(self, config: Any, generator: torch.Generator) -> None:
        super().initialise(config, generator)
        draw_paces(self.log_pace_H, self.decay_bias_H, generator)

    def log_decays(self, x_BTD: Tensor, beta_BHT: Tensor) -> Tensor:
        dt_BHT = F.softplus(per_head(x_BTD, self.decay_HD, self.decay_bias_H))
        g_BHT = log_decay(dt_BHT, self.log_pace_H)
        show_gate("decay", g_BHT.exp()[..., None])
        return g_BHT


class DeltaNet(LinearAttentionLM):
    """S_t = (I - β_t k_t k_tᵀ) S_{t-1} + β_t k_t v_tᵀ."""

    mixer = DeltaMixer


class GatedDeltaNet(LinearAttentionLM):
    """S_t = α_t (I - β_t k_t k_tᵀ) S_{t-1} + β_t k_t v_tᵀ."""

    mixer = GatedDeltaMixer


STRENGTH = "how much of what a key holds is overwritten"
DELTA_SPEC = linear_attention_spec(
    "deltanet", "DeltaNet", "linear attention by the delta rule: what a key holds is overwritten",
    DeltaNet, LinearAttentionConfig, decays="", strengths=STRENGTH,
    equation="""q_t, k_t, v_t = silu(convolution(W x)); |q_t| = |k_t| = 1
β_t = σ(W_β x_t)
S_t = (I - β_t k_t k_tᵀ) S_{t-1} + β_t k_t v_tᵀ
o_t = norm(q_t S_t)""",
)  # fmt: skip
GATED_DELTA_SPEC = linear_attention_spec(
    "gated-deltanet", "gated DeltaNet", "the delta rule with a decay: what a key holds is overwritten or forgotten",
    GatedDeltaNet, LinearAttentionConfig, decays="how much of the state is retained", strengths=STRENGTH,
    equation="""q_t, k_t, v_t = silu(convolution(W x)); |q_t| = |k_t| = 1
β_t = σ(W_β x_t), α_t = exp(-a softplus(W_a x_t + b))
S_t = α_t (I - β_t k_t k_tᵀ) S_{t-1} + β_t k_t v_tᵀ
o_t = norm(q_t S_t) ⊙ silu(W_g x_t)""",
)  # fmt: skip
