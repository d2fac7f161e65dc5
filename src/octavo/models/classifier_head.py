"""Layers from a vector to logits: what stands on an average of word vectors, or on another model's last state.

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
    """The layers above a vector."""

    hidden: int = 100
    """Width of the layers."""
    layers: int = 1
    """How many; 0: the classes are read off the vector."""
    dropout: float = 0.3
    """The share of a layer's inputs that training leaves out."""

    def __post_init__(self) -> None:
        if self.hidden < 1 or self.layers < 0:
            raise UserError(
                f"hidden must be at least 1 and layers not negative: hidden={self.hidden}, layers={self.layers}"
            )
        check_dropout(self.dropout, example=0.3)


class Head(nn.Module):
    """x' = max(0, W x + b), several times, and then logits."""

    def __init__(self, config: HeadConfig, width: int, classes: int) -> None:
        super().__init__()
        self.config = config
        widths = [width, *[config.hidden] * config.layers]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.out = nn.Linear(widths[-1], classes)

    def initialise(self, generator: torch.Generator) -> None:
        """He's way inside, zeros at the end: at first every class is as likely."""
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
