"""Feed-forward layers: what a block does with each token by itself.

D width, F inner width. Matrices are (out, in).
"""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor


def gelu(x: Tensor) -> Tensor:
    """GELU by tanh, as GPT-2 has it: x Φ(x), nearly."""
    return F.gelu(x, approximate="tanh")


def squared_relu(x: Tensor) -> Tensor:
    """max(x, 0)²."""
    return F.relu(x).square()


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"gelu": gelu, "gelu-exact": F.gelu, "relu2": squared_relu}


def mlp(
    x: Tensor, up_FD: Tensor, down_DF: Tensor, activation: Callable[[Tensor], Tensor], up_bias_F: Tensor | None = None,
    down_bias_D: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """W₂ f(W₁ x + b₁) + b₂."""
    return F.linear(activation(F.linear(x, up_FD, up_bias_F)), down_DF, down_bias_D)


def gated(x: Tensor, gate_FD: Tensor, up_FD: Tensor, down_DF: Tensor) -> Tensor:
    """W₂ (silu(G x) · W₁ x)."""
    return F.linear(F.silu(F.linear(x, gate_FD)) * F.linear(x, up_FD), down_DF)
