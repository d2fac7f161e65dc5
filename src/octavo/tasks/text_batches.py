"""Batches of labelled texts, and their loss. B texts of a batch, N of all, C classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from octavo.core import seeded_generator
from octavo.datasets.labels import Labelled
from octavo.training.stage import Objective, RowBatch


def shares(y_N: Tensor, classes: int, balance: bool) -> Tensor:
    """Each example's share in the loss: the same for all, or such that every class has the same."""
    count_C = torch.bincount(y_N, minlength=classes).float()
    return 1 / (classes * count_C)[y_N] if balance else torch.full((len(y_N),), 1 / max(1, len(y_N)))


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

    def __call__(self, step: int) -> RowBatch:
        epoch, place = divmod(step, self.steps)
        if self.order[0] != epoch:
            generator = seeded_generator(self.seed * 1009 + epoch)
            self.order = epoch, torch.randperm(len(self.y_N), generator=generator)
        rows_B = self.order[1][place * self.batch_size : (place + 1) * self.batch_size]
        return RowBatch((self.take(rows_B), self.y_N[rows_B], self.weight_N[rows_B]), float(len(rows_B)))


class ClassLoss(Objective):
    """Cross-entropy of texts and their classes, each weighted by its share."""

    def forward(self, state: Any, part: tuple[Any, Tensor, Tensor]) -> tuple[Tensor, Any]:
        inputs, y_B, weight_B = part
        logits_BC = self.model(inputs).float()
        loss_B = F.cross_entropy(logits_BC, y_B, reduction="none", label_smoothing=self.smoothing)
        return (loss_B * weight_B).sum(), state
