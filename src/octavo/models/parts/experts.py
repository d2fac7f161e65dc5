"""A mixture of experts in place of a block's feed-forward layer.

N tokens, X experts, J of them for each token, D width.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from octavo.models.parts.config import GPTConfig
from octavo.models.parts.feed_forward import FEED_FORWARDS, init_inner
from octavo.ops.experts import balance, mixed, mixed_by_all, route
from octavo.ops.tracing import is_tracing, tap

BALANCE_SPEED = 5.0  # of a logit for one of the learnt bias, which Adam moves by its learning rate in a step


class Experts(nn.Module):
    """Several feed-forward layers and a router, which takes a few of them for each token."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.chosen = config.experts_per_token
        self.router_XD = nn.Parameter(torch.empty(config.experts, config.width))
        self.balance_X = nn.Parameter(torch.empty(config.experts))
        made = (FEED_FORWARDS[config.feed_forward](config) for _ in range(config.experts))
        self.experts: Any = nn.ModuleList(made)

    def initialise(self, config: GPTConfig, generator: torch.Generator) -> None:
        init_inner(self.router_XD, config, generator)
        self.balance_X.data.zero_()
        for expert in self.experts:
            expert.initialise(config, generator)

    def forward(self, x: Tensor) -> Tensor:
        x_ND = x.flatten(0, -2)
        logits_NX = F.linear(x_ND, self.router_XD)
        wide_NX = logits_NX.to(torch.promote_types(logits_NX.dtype, torch.float32))
        chosen_NJ, weights_NJ = route(wide_NX, BALANCE_SPEED * self.balance_X.detach(), self.chosen)
        if is_tracing():
            tap(
                "experts",
                torch.zeros_like(wide_NX).scatter(1, chosen_NJ, weights_NJ).view(*x.shape[:-1], len(self.experts)),
            )
        if torch.compiler.is_exporting():  # a graph has no shapes that depend on numbers
            return mixed_by_all(x_ND, chosen_NJ, weights_NJ, self.experts).view_as(x)
        learning = torch.is_grad_enabled() and self.router_XD.requires_grad
        if self.training and learning:
            weights_NJ = balance(weights_NJ, self.balance_X, chosen_NJ)
        y_ND = mixed(x_ND, chosen_NJ, weights_NJ, self.experts, learning)
        return y_ND.view_as(x)


def feed_forward_for(config: GPTConfig) -> nn.Module:
    """The feed-forward layer of a block: one for all tokens, or a mixture of experts."""
    return Experts(config) if config.experts else FEED_FORWARDS[config.feed_forward](config)
