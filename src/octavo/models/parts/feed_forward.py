"""The parts of a block that process each token by itself: norms and feed-forward layers.

D width, F inner width. Matrices are (out, in).
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from octavo.models.parts.config import GPTConfig
from octavo.models.recurrent import init_matrix
from octavo.ops.feed_forward import ACTIVATIONS, gated, mlp
from octavo.ops.norm import layer_norm, rms_norm


class Norm(nn.Module):
    """Vectors brought to a mean square of one, and for a layer norm to a mean of zero, then scaled by weights."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.kind, self.eps = config.norm, config.norm_eps
        self.weight_D = nn.Parameter(torch.empty(config.width))
        self.bias_D = nn.Parameter(torch.empty(config.width)) if config.bias and config.norm == "layer" else None

    def initialise(self, config: GPTConfig, generator: torch.Generator) -> None:
        self.weight_D.data.fill_(1)
        if self.bias_D is not None:
            self.bias_D.data.zero_()

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "rms":
            return rms_norm(x, self.weight_D.to(x.dtype), self.eps)
        bias_D = None if self.bias_D is None else self.bias_D.to(x.dtype)
        return layer_norm(x, self.weight_D.to(x.dtype), bias_D, self.eps)


class MLP(nn.Module):
    """Up to the inner width, through an activation, and down again."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        D, F = config.width, config.inner
        self.activation = ACTIVATIONS[config.feed_forward]
        self.up_FD = nn.Parameter(torch.empty(F, D))
        self.down_DF = nn.Parameter(torch.empty(D, F))
        self.up_bias_F = nn.Parameter(torch.empty(F)) if config.bias else None
        self.down_bias_D = nn.Parameter(torch.empty(D)) if config.bias else None

    def initialise(self, config: GPTConfig, generator: torch.Generator) -> None:
        init_inner(self.up_FD, config, generator)
        init_residual(self.down_DF, config, generator)
        zero(self.up_bias_F, self.down_bias_D)

    def forward(self, x: Tensor) -> Tensor:
        return mlp(x, self.up_FD, self.down_DF, self.activation, self.up_bias_F, self.down_bias_D)


class GatedMLP(nn.Module):
    """Up twice, one of them as the gate of the other (SwiGLU), and down again."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        D, F = config.width, config.inner
        self.gate_FD = nn.Parameter(torch.empty(F, D))
        self.up_FD = nn.Parameter(torch.empty(F, D))
        self.down_DF = nn.Parameter(torch.empty(D, F))

    def initialise(self, config: GPTConfig, generator: torch.Generator) -> None:
        init_inner(self.gate_FD, config, generator)
        init_inner(self.up_FD, config, generator)
        init_residual(self.down_DF, config, generator)

    def forward(self, x: Tensor) -> Tensor:
        return gated(x, self.gate_FD, self.up_FD, self.down_DF)


FEED_FORWARDS: dict[str, type[MLP] | type[GatedMLP]] = {"gelu": MLP, "gelu-exact": MLP, "relu2": MLP, "gated": GatedMLP}


def init_tables(tables: Iterable[Tensor | None], config: GPTConfig, generator: torch.Generator) -> None:
    """Tables of embeddings and positions, those that there are."""
    for table in tables:
        if table is not None and config.init == "gpt2":
            _normal(table, 0.02, generator)
        else:
            init_matrix(table, "normal", generator)


def init_inner(weight: Tensor, config: GPTConfig, generator: torch.Generator) -> None:
    """A matrix inside a part."""
    if config.init == "gpt2":
        _normal(weight, 0.02, generator)
    else:
        init_matrix(weight, "xavier", generator)


def init_residual(weight: Tensor, config: GPTConfig, generator: torch.Generator) -> None:
    """The matrix whose products are added to the stream: nothing at first, or less the more of them there are."""
    if config.init == "gpt2":
        _normal(weight, 0.02 * (2 * config.layers) ** -0.5, generator)
    else:
        weight.data.zero_()


def _normal(weight: Tensor, deviation: float, generator: torch.Generator) -> None:
    weight.data.copy_(torch.empty(weight.shape).normal_(0, deviation, generator=generator))


def zero(*biases: Tensor | None) -> None:
    """Biases start with nothing."""
    for bias in biases:
        if bias is not None:
            bias.data.zero_()
