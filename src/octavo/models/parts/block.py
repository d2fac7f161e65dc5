"""What the blocks of all transformers share. B batch, T tokens, D width."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from octavo.models.parts.attention import ATTENTION_LAYERS, Place
from octavo.models.parts.config import GPTConfig
from octavo.models.parts.experts import Experts, feed_forward_for
from octavo.models.parts.feed_forward import Norm
from octavo.ops.positions import sinusoids
from octavo.ops.tracing import tap


def add_positions(x_BTD: Tensor, place_T: Tensor, positions_CD: Tensor | None, kind: str) -> Tensor:
    """Embeddings plus their absolute positions, learned or sinusoidal ones, in the precision of the products."""
    if positions_CD is not None:
        x_BTD = x_BTD + F.embedding(place_T, positions_CD)
    elif kind == "sinusoidal":
        x_BTD = x_BTD + sinusoids(place_T, x_BTD.shape[-1], dtype=x_BTD.dtype)
    return in_product_precision(x_BTD)


def in_product_precision(x_BTD: Tensor) -> Tensor:
    """The residual stream too is in the precision that autocast computes products in."""
    device = x_BTD.device.type
    return x_BTD.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else x_BTD


class Block(nn.Module):
    """Parts that add to the residual stream, in the order in which they are assigned."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.dropout = config.dropout

    def initialise(self, config: GPTConfig, generator: torch.Generator) -> None:
        """Draw the weights of each part in turn."""
        for part in self.children():
            part.initialise(config, generator)  # type: ignore[operator]

    def drop(self, y: Tensor) -> Tensor:
        return F.dropout(y, self.dropout) if self.training and self.dropout else y


class TransformerBlock(Block):
    """x + attention(norm(x)), then x + feed_forward(norm(x))."""

    def __init__(self, config: GPTConfig, attention: nn.Module | None = None) -> None:
        super().__init__(config)
        self.norm1: Any = Norm(config)
        self.attention: Any = ATTENTION_LAYERS[config.kind.family](config) if attention is None else attention
        self.norm2: Any = Norm(config)
        self.feed_forward: Any = feed_forward_for(config)

    def absorb(self, x_BTD: Tensor, state: Any, place: Place) -> tuple[Tensor, Any]:
        """The residual stream after new tokens, and the attention's new state."""
        y_BTD, state = self.attention.absorb(self.norm1(x_BTD), state, place)
        x_BTD = tap("middle", x_BTD + self.drop(y_BTD))
        x_BTD = tap("stream", x_BTD + self.drop(self.feed_forward(self.norm2(x_BTD))))
        return x_BTD, state

    def worth_compiling(self, x_BTD: Tensor, state: Any, place: Place) -> bool:
        """Whether training will meet inputs of these shapes many times; those of experts are new in every step."""
        settled: bool = self.attention.settled(state) and not isinstance(self.feed_forward, Experts)
        return settled
