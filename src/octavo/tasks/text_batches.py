"""Batches of labelled texts, and their loss. B texts of a batch, N of all, C classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from octavo.core import seeded_generator
from octavo.datasets.labels import Labelled


def shares(y_N: Tensor, classes: int, balance: bool) -> Tensor:
    """Each example's share in the loss: the same for all, or such that every class has the same."""
    count_C = torch.bincount(y_N, minlength=classes).float()
    return 1 / (classes * count_C)[y_N] if balance else torch.full((len(y_N),), 1 / max(1, len(y_N)))


class TextBatch(NamedTuple):
    """Examples by number, in the epoch's own order."""

    rows_B: Tensor
    batches: TextBatches
    fresh: bool = True

    @property
    def rows(self) -> int:
        return len(self.rows_B)

    @property
    def targets(self) -> float:
        return float(len(self.rows_B))

    @property
    def examples(self) -> int:
        return len(self.rows_B)

    def part(self, start: int, end: int, device: torch.device) -> tuple[Any, Tensor, Tensor]:
        rows = self.rows_B[start:end]
        inputs, y_B, weight_B = self.batches.take(rows), self.batches.y_N[rows], self.batches.weight_N[rows]
        return inputs.to(device), y_B.to(device), weight_B.to(device)


class TextBatches:
    """The n-th batch, which depends on n alone."""

    def __init__(
        self, data: Labelled, take: Callable[[Tensor], Any], batch_size: int, balance: bool, seed: int
    ) -> None:
        self.take, self.y_N, self.seed = take, torch.from_numpy(data.y_N), seed
        self.weight_N = shares(self.y_N, len(data.classes), balance) * len(data)
        self.batch_size = min(batch_size, len(data))
        self.steps = len(data) // self.batch_size
        self.order: tuple[int, Tensor] = (-1, torch.empty(0))  # the last epoch's

    def __call__(self, step: int) -> TextBatch:
        epoch, place = divmod(step, self.steps)
        if self.order[0] != epoch:
            generator = seeded_generator(self.seed * 1009 + epoch)
            self.order = epoch, torch.randperm(len(self.y_N), generator=generator)
        return TextBatch(self.order[1][place * self.batch_size : (place + 1) * self.batch_size], self)


class ClassLoss(nn.Module):
    """Cross-entropy of texts and their classes, each weighted by its share."""

    def __init__(self, model: nn.Module, smoothing: float) -> None:
        super().__init__()
        self.model, self.smoothing = model, smoothing

    def forward(self, state: Any, part: tuple[Any, Tensor, Tensor]) -> tuple[Tensor, Any]:
        inputs, y_B, weight_B = part
        logits_BC = self.model(inputs).float()
        loss_B = F.cross_entropy(logits_BC, y_B, reduction="none", label_smoothing=self.smoothing)
        return (loss_B * weight_B).sum(), state
