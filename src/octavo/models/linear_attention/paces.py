"""How fast a head forgets, as a state-space model has it: α = exp(-a Δ), a learnt for each head, Δ for each token.

B batch, H heads, T tokens.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

FASTEST = 16.0  # a is drawn from 1 to this
STEPS = (0.001, 0.1)  # what Δ is drawn from where a token says nothing, evenly in the logarithm


def log_decay(dt_BHT: Tensor, log_pace_H: Tensor) -> Tensor:
    """log α = -a Δ."""
    return -log_pace_H.exp()[:, None] * dt_BHT


def draw_paces(log_pace_H: Tensor, bias_H: Tensor, generator: torch.Generator) -> None:
    """The paces a, and the biases whose softplus are the steps Δ."""
    low, high = (math.log(step) for step in STEPS)
    log_pace_H.data.copy_(torch.empty(log_pace_H.shape).uniform_(1, FASTEST, generator=generator).log())
    dt_H = torch.empty(bias_H.shape).uniform_(low, high, generator=generator).exp()
    bias_H.data.copy_(dt_H + torch.log(-torch.expm1(-dt_H)))  # the inverse of softplus
