"""The classification head: a ReLU MLP on the mean of word vectors, or on the last state of another model.

B texts, D width of the vectors, H of the layers, C classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from octavo.errors import UserError
from octavo.models.parts.checks import check_dropout
from octavo.models.spec import ModelSpec


@dataclass(frozen=True)
class HeadConfig:
    """Settings of the MLP."""

    hidden: int = 100
    """Width of the hidden layers."""
    layers: int = 1
    """Number of hidden layers; 0: a single linear layer."""
    dropout: float = 0.3
    """Dropout probability of each layer's inputs."""

    def __post_init__(self) -> None:
        if self.hidden < 1 or self.layers < 0:
            raise UserError(
                f"hidden must be at least 1 and layers not negative: hidden={self.hidden}, layers={self.layers}"
            )
        check_dropout(self.dropout, example=0.3)


class Head(nn.Module):
    """A ReLU MLP: x' = max(0, W x + b) for each hidden layer, then logits."""

    def __init__(self, config: HeadConfig, width: int, classes: int) -> None:
        super().__init__()
        self.config = config
        widths = [width, *[config.hidden] * config.layers]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.out = nn.Linear(widths[-1], classes)

    def initialise(self, generator: torch.Generator) -> None:
        """Kaiming-uniform hidden layers, a Xavier-uniform output layer, zero biases."""
        for one in self.layers:
            nn.init.kaiming_uniform_(one.weight, nonlinearity="relu", generator=generator)  # type: ignore[arg-type]
            nn.init.zeros_(one.bias)  # type: ignore[arg-type]
        nn.init.xavier_uniform_(self.out.weight, generator=generator)
        nn.init.zeros_(self.out.bias)

    def forward(self, x_BD: Tensor) -> Tensor:
        for one in self.layers:
            x_BD = F.relu(one(F.dropout(x_BD, self.config.dropout, self.training)))
        logits_BC: Tensor = self.out(F.dropout(x_BD, self.config.dropout, self.training))
        return logits_BC


SPEC = ModelSpec(
    "head", "classifier head", "hidden layers on the vectors of a trained model", "classifier", Head, HeadConfig,
    task="classification",
)  # fmt: skip
