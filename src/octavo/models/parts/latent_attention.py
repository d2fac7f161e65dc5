"""The layer of multi-head latent attention, whose state is one short vector a token.

B batch, T new tokens, S tokens seen, H heads, K size of a head, D width, M latent width, R size of the rotary part,
Q = K + R, Z = M + R, E = H K, J = H Q + Z.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from octavo.models.parts.config import GPTConfig
from octavo.models.parts.feed_forward import init_inner, init_residual
from octavo.ops.attention.latent import attend_latent
from octavo.ops.norm import rms_norm
from octavo.ops.positions import alibi_bias, rotate

if TYPE_CHECKING:
    from octavo.models.parts.attention import Place


class LatentAttention(nn.Module):
    """Latent attention: the state is the latent of each token that may be attended to again, and its rotary key."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        D, H, K, M, R = config.width, config.heads, config.head_size, config.latent, config.rotary_size
        self.config, self.pattern = config, config.pattern
        self.cache_tokens = config.cached_tokens
        self.query_ED = nn.Parameter(torch.empty(H * (K + R), D))
        self.latent_MD = nn.Parameter(torch.empty(M, D))
        self.rotary_RD = nn.Parameter(torch.empty(R, D)) if R else None
        self.key_EM = nn.Parameter(torch.empty(H * K, M))
        self.value_EM = nn.Parameter(torch.empty(H * K, M))
        self.out_DE = nn.Parameter(torch.empty(D, H * K))

    def initialise(self, config: GPTConfig, generator: torch.Generator) -> None:
        for weight in (self.query_ED, self.latent_MD, self.rotary_RD, self.key_EM, self.value_EM):
            if weight is not None:
                init_inner(weight, config, generator)
        init_residual(self.out_DE, config, generator)

    def start(self, batch: int) -> Any:
        return self.latent_MD.new_zeros(batch, 0, self.config.latent + self.config.rotary_size)

    def settled(self, state: Any) -> bool:
        return self.config.absolute or state.shape[1] == self.cache_tokens

    def absorb(self, x_BTD: Tensor, state: Any, place: Place) -> tuple[Tensor, Any]:
        config = self.config
        q_BHTQ, z_BTZ = self.project(x_BTD, place)
        z_BSZ = torch.cat([state.to(z_BTZ.dtype), z_BTZ], 1) if state.shape[1] else z_BTZ
        bias = None
        if config.positions == "alibi":
            bias = alibi_bias(config.heads, q_BHTQ.shape[2], z_BSZ.shape[1], q_BHTQ.dtype, x_BTD.device)
        key_EM, value_EM = self.key_EM.to(z_BSZ.dtype), self.value_EM.to(z_BSZ.dtype)
        y_BHTK = attend_latent(q_BHTQ, z_BSZ, key_EM, value_EM, self.pattern, bias_HTS=bias)
        return F.linear(y_BHTK.transpose(1, 2).flatten(2), self.out_DE), z_BSZ[:, -self.cache_tokens :]

    def project(self, x_BTD: Tensor, place: Place) -> tuple[Tensor, Tensor]:
        """q_BHTQ and z_BTZ, the latents and rotary keys beside them; scaled and turned as the config says."""
        config, H, M, R = self.config, self.config.heads, self.config.latent, self.config.rotary_size
        rotary = [] if self.rotary_RD is None else [self.rotary_RD]
        made_BTJ = F.linear(x_BTD, torch.cat([self.query_ED, self.latent_MD, *rotary]))
        q_BTE, c_BTM, k_BTR = made_BTJ.split([len(self.query_ED), M, R], -1)
        q_BHTQ = q_BTE.unflatten(-1, (H, -1)).transpose(1, 2)
        if config.qk_norm:  # but not of the rotary key, or distances could not outweigh what keys hold
            q_BHTQ, c_BTM = rms_norm(q_BHTQ, eps=config.norm_eps), rms_norm(c_BTM, eps=config.norm_eps)
        if place.angles_TK is None:
            return q_BHTQ, c_BTM
        q_BHTK, q_BHTR = q_BHTQ.split([config.head_size, R], -1)
        q_BHTQ = torch.cat([q_BHTK, rotate(q_BHTR, place.angles_TK)], -1)
        return q_BHTQ, torch.cat([c_BTM, rotate(k_BTR, place.angles_TK)], -1)
