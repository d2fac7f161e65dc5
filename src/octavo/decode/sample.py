"""Sampling: the distribution is sharpened and cut, then a token is drawn from what is left.

B batch, V vocabulary. The filters are functions from logits to logits (a token that is cut has logit -inf) and
compose in this order: temperature, top-k, top-p, min-p. Each sees the distribution that the one before left.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from octavo.errors import UserError


@dataclass(frozen=True)
class Sample:
    """Draw the next token at random; the defaults draw from the model's own distribution."""

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.temperature < math.inf:
            raise UserError(f"temperature must be above 0: {self.temperature}; for the limit at 0 decode greedily")
        if self.top_k is not None and self.top_k < 1:
            raise UserError(f"top_k must be at least 1: {self.top_k}; leave it out to keep every token")
        if not 0 < self.top_p <= 1:
            raise UserError(f"top_p must be above 0 and at most 1: {self.top_p}; 1 keeps every token")
        if not 0 <= self.min_p <= 1:
            raise UserError(f"min_p must lie between 0 and 1: {self.min_p}; 0 keeps every token")

    def choose(self, logits_BV: Tensor, generator: torch.Generator | None) -> Tensor:
        """The next token of each row, with one random number a row."""
        if generator is None:
            raise ValueError("sampling draws from the generator it is given: pass torch.Generator().manual_seed(seed)")
        return draw(self.filtered(logits_BV).softmax(-1), generator)

    def filtered(self, logits_BV: Tensor) -> Tensor:
        """The logits after temperature, top-k, top-p and min-p, in this order."""
        logits_BV = logits_BV.double() / self.temperature
        if self.top_k is not None:
            logits_BV = keep_top_k(logits_BV, self.top_k)
        return keep_min_p(keep_top_p(logits_BV, self.top_p), self.min_p)


def keep_top_k(logits_BV: Tensor, k: int) -> Tensor:
    """Keep the k most probable tokens, and those exactly as probable as the k-th."""
    kth_B1 = logits_BV.topk(min(k, logits_BV.shape[-1])).values[..., -1:]
    return logits_BV.masked_fill(logits_BV < kth_B1, -torch.inf)


def keep_top_p(logits_BV: Tensor, p: float) -> Tensor:
    """Keep the fewest most probable tokens whose probabilities sum to at least p; of equals, the lower ids first."""
    if p >= 1:
        return logits_BV
    sorted_BV, ids_BV = logits_BV.sort(stable=True, dim=-1, descending=True)
    p_BV = sorted_BV.softmax(-1, dtype=torch.float64)
    enough_BV = p_BV.cumsum(-1) - p_BV >= p
    cut_BV = torch.zeros_like(enough_BV).scatter(-1, ids_BV, enough_BV)
    return logits_BV.masked_fill(cut_BV, -torch.inf)


def keep_min_p(logits_BV: Tensor, p: float) -> Tensor:
    """Keep the tokens at least p times as probable as the most probable one."""
    if p <= 0:
        return logits_BV
    least_B1 = logits_BV.amax(-1, keepdim=True) + math.log(p)
    return logits_BV.masked_fill(logits_BV < least_B1, -torch.inf)


def draw(p_BV: Tensor, generator: torch.Generator) -> Tensor:
    """One token a row with the given probabilities, by inverting the cumulative distribution."""
    c_BV = p_BV.double().cumsum(-1)
    total_B1 = c_BV[:, -1:].contiguous()
    u_B1 = torch.rand(len(p_BV), 1, generator=generator, dtype=torch.float64, device=generator.device)
    # u * total may round up to total, where no token lies: stay one step below it.
    at_B1 = torch.minimum(u_B1.to(c_BV.device) * total_B1, torch.nextafter(total_B1, torch.zeros_like(total_B1)))
    return torch.searchsorted(c_BV, at_B1, right=True).squeeze(-1)
