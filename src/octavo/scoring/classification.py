"""How good a classifier is: accuracy, F1, how far its probabilities can be believed, and the confusion matrix.

B examples, C classes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from octavo.scoring.answers import Point, calibration_error, coverage_curve, reliability, thinned

COOLEST, HOTTEST = 1 / 20, 20.0  # temperatures that are tried


@dataclass(frozen=True)
class Classified:
    """What was measured on some examples."""

    examples: int
    accuracy: float
    macro_f1: float
    """The mean of the classes' F1: a rare class counts as much as a common one."""
    log_loss: float
    """Mean of -ln p of the true class."""
    brier: float
    """Mean squared distance of the probabilities from the truth."""
    ece: float
    """Mean distance of confidence from accuracy, in ten bins (expected calibration error)."""
    classes: list[str]
    confusion_CC: list[list[int]]
    """Row: the true class; column: the answer."""
    per_class: list[dict[str, Any]] = field(repr=False)
    curve: list[Point] = field(repr=False)
    """What comes of answering only the surest."""

    @property
    def spread(self) -> float:
        """The standard error of the accuracy."""
        return math.sqrt(self.accuracy * (1 - self.accuracy) / max(1, self.examples))

    def to_json(self) -> dict[str, Any]:
        return {
            "examples": self.examples, "accuracy": self.accuracy, "standard_error": self.spread,
            "macro_f1": self.macro_f1, "log_loss": self.log_loss, "brier": self.brier, "ece": self.ece,
            "classes": self.classes, "confusion": self.confusion_CC, "per_class": self.per_class,
            "curve": thinned(self.curve),
        }  # fmt: skip


def classified(p_BC: Tensor, y_B: Tensor, classes: list[str]) -> Classified:
    """Measure probabilities against the true classes; rows of the confusion matrix are true classes."""
    p_BC, C = p_BC.double(), len(classes)
    confidence_B, answer_B = p_BC.max(1)
    confidences, right = confidence_B.tolist(), (answer_B == y_B).tolist()
    confusion_CC = torch.bincount(y_B * C + answer_B, minlength=C * C).view(C, C)
    true_C, predicted_C, hit_C = confusion_CC.sum(1), confusion_CC.sum(0), confusion_CC.diag()
    f1_C = 2 * hit_C / (true_C + predicted_C).clamp(min=1)
    log_loss_B = -p_BC.gather(1, y_B[:, None]).squeeze(1).clamp(min=torch.finfo(torch.float64).tiny).log()
    per_class = [
        {"class": name, "examples": int(true_C[c]), "precision": float(hit_C[c] / predicted_C[c].clamp(min=1)),
         "recall": float(hit_C[c] / true_C[c].clamp(min=1)), "f1": float(f1_C[c])}
        for c, name in enumerate(classes)
    ]  # fmt: skip
    return Classified(
        len(y_B), float((answer_B == y_B).double().mean()), float(f1_C.double().mean()), float(log_loss_B.mean()),
        float((p_BC - F.one_hot(y_B, C)).square().sum(1).mean()), calibration_error(reliability(confidences, right)),
        classes, confusion_CC.tolist(), per_class, coverage_curve(confidences, right),
    )  # fmt: skip


def best_temperature(logits_BC: Tensor, y_B: Tensor) -> float:
    """The number that logits must be divided by for the truth to be most probable (Guo et al. 2017); the loss is
    convex in its inverse, so a search by thirds finds it.
    """
    logits_BC, low, high = logits_BC.double(), 1 / HOTTEST, 1 / COOLEST

    def mean_nats(inverse: float) -> float:
        return float(F.cross_entropy(logits_BC * inverse, y_B))

    for _ in range(60):
        first, second = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, second) if mean_nats(first) < mean_nats(second) else (first, high)
    return 2 / (low + high)
