"""The metrics of the tasks: answers and their confidence, classification, translation.

Exact match; the share of questions that are answered above a threshold (coverage) and how many of those answers are
right (accuracy); the mean distance of confidence from accuracy in ten bins (calibration error). B examples, C classes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby, zip_longest
from types import ModuleType
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from octavo.errors import UserError

BINS = 10
SHOWN = 100  # points of a curve
LEVELS = (0.5, 0.7, 0.9)  # accuracies that a threshold is reported for


class CoveragePoint(NamedTuple):
    """What comes of answering only with this confidence or more."""

    threshold: float
    coverage: float
    accuracy: float


class Bin(NamedTuple):
    """Answers of like confidence."""

    answers: int
    confidence: float
    accuracy: float


def exact_match(said: str, right: str) -> bool:
    """Whether they are the same, character by character, but for white space."""
    return " ".join(said.split()) == " ".join(right.split())


def coverage_curve(confidence_N: Sequence[float], right_N: Sequence[bool]) -> list[CoveragePoint]:
    """A point for each confidence that occurs, the highest threshold first; equals are answered together."""
    ranked = sorted(zip(confidence_N, right_N, strict=True), key=lambda one: -one[0])
    points, answered, good = [], 0, 0
    for threshold, same in groupby(ranked, key=lambda one: one[0]):
        hits = [right for _, right in same]
        answered, good = answered + len(hits), good + sum(hits)
        points.append(CoveragePoint(threshold, answered / len(ranked), good / answered))
    return points


def threshold_for(curve: Sequence[CoveragePoint], accuracy: float) -> CoveragePoint | None:
    """The lowest threshold whose answers are right so often; None where there is none."""
    good = [point for point in curve if point.accuracy >= accuracy]
    return max(good, key=lambda point: point.coverage, default=None)


def at_threshold(curve: Sequence[CoveragePoint], threshold: float) -> CoveragePoint | None:
    """What comes of this threshold: the last point whose own is no lower; None where nothing is answered."""
    above = [point for point in curve if point.threshold >= threshold]
    return max(above, key=lambda point: point.coverage, default=None)


def thinned(curve: Sequence[CoveragePoint]) -> list[list[float]]:
    """The curve with about as many points as can be seen; the last, where everything is answered, among them."""
    every = max(1, len(curve) // SHOWN)
    return [list(point) for point in (*curve[:-1:every], *curve[-1:])]


def reliability(confidence_N: Sequence[float], right_N: Sequence[bool]) -> list[Bin]:
    """The answers in ten bins of confidence; those without any are left out."""
    some: list[list[tuple[float, bool]]] = [[] for _ in range(BINS)]
    for confidence, right in zip(confidence_N, right_N, strict=True):
        some[min(BINS - 1, int(confidence * BINS))].append((confidence, right))
    return [
        Bin(len(one), sum(c for c, _ in one) / len(one), sum(right for _, right in one) / len(one))
        for one in some if one
    ]  # fmt: skip


def calibration_error(bins: Sequence[Bin]) -> float:
    """How far confidence is from accuracy, on average over all answers."""
    whole = max(1, sum(one.answers for one in bins))
    return sum(one.answers * abs(one.confidence - one.accuracy) for one in bins) / whole


@dataclass(frozen=True)
class Answered:
    """What was measured on some questions."""

    questions: int
    exact_match: float
    confidence: float  # the mean
    ece: float
    curve: list[CoveragePoint] = field(repr=False)
    bins: list[Bin] = field(repr=False)

    @property
    def spread(self) -> float:
        """The standard error of the exact match."""
        return math.sqrt(self.exact_match * (1 - self.exact_match) / max(1, self.questions))

    def to_json(self) -> dict[str, Any]:
        levels = [(level, threshold_for(self.curve, level)) for level in LEVELS]
        return asdict(self) | {
            "standard_error": self.spread, "curve": thinned(self.curve), "bins": [list(one) for one in self.bins],
            "at_accuracy": [{"wanted": level, **point._asdict()} for level, point in levels if point],
        }  # fmt: skip


def answered(confidence_N: Sequence[float], right_N: Sequence[bool]) -> Answered:
    """Measure answers whose confidence is known, and of which it is known whether they are right."""
    count = max(1, len(right_N))
    bins = reliability(confidence_N, right_N)
    return Answered(
        len(right_N), sum(right_N) / count, sum(confidence_N) / count, calibration_error(bins),
        coverage_curve(confidence_N, right_N), bins,
    )  # fmt: skip


COOLEST, HOTTEST = 1 / 20, 20.0  # temperatures that are tried


@dataclass(frozen=True)
class Classified:
    """What was measured on some examples."""

    examples: int
    accuracy: float
    macro_f1: float  # the mean of the classes' F1: a rare class counts as much as a common one
    log_loss: float  # mean of -ln p of the true class
    brier: float  # mean squared distance of the probabilities from the truth
    ece: float  # mean distance of confidence from accuracy, in ten bins (expected calibration error)
    classes: list[str]
    confusion_CC: list[list[int]]  # row: the true class; column: the answer
    per_class: list[dict[str, Any]] = field(repr=False)
    curve: list[CoveragePoint] = field(repr=False)  # what comes of answering only the surest

    @property
    def spread(self) -> float:
        """The standard error of the accuracy."""
        return math.sqrt(self.accuracy * (1 - self.accuracy) / max(1, self.examples))

    def to_json(self) -> dict[str, Any]:
        record = asdict(self) | {"standard_error": self.spread, "curve": thinned(self.curve)}
        return record | {"confusion": record.pop("confusion_CC")}


def classified(p_BC: Tensor, y_B: Tensor, classes: list[str], answer_B: Tensor | None = None) -> Classified:
    """Measure probabilities against the true classes; rows of the confusion matrix are true classes. The answers are
    the most probable classes, where none are given.
    """
    p_BC, C = p_BC.double(), len(classes)
    answer_B = p_BC.argmax(1) if answer_B is None else answer_B
    confidence_B = p_BC.gather(1, answer_B[:, None])[:, 0]
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


@dataclass(frozen=True)
class Translated:
    """Figures of one language; a signature says how sacrebleu counted, so that others can count the same way."""

    bleu: float
    chrf: float
    exact: float  # the share of translations that are a reference, character by character
    sentences: int
    signature: str
    chrf_signature: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def score_translations(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> Translated:
    """Every output against what it may be: one reference or several."""
    if len(outputs) != len(references) or not outputs:
        raise UserError(f"every translation needs references: {len(outputs)} translations, {len(references)} of those")
    sacrebleu = load_sacrebleu()
    # As sacrebleu wants them: the first reference of all, then the second of all, None where there is none.
    columns = [list(column) for column in zip_longest(*references)]
    bleu, chrf = sacrebleu.BLEU(), sacrebleu.CHRF()
    bleu_score, chrf_score = bleu.corpus_score(list(outputs), columns), chrf.corpus_score(list(outputs), columns)
    hits = sum(output in known for output, known in zip(outputs, references, strict=True))
    return Translated(
        bleu_score.score, chrf_score.score, hits / len(outputs), len(outputs), str(bleu.get_signature()),
        str(chrf.get_signature()),
    )  # fmt: skip


def load_sacrebleu() -> ModuleType:
    """The library, which is optional."""
    try:
        import sacrebleu
    except ImportError as error:
        raise UserError(
            "translations are scored with sacrebleu, which is missing: pip install 'octavo[translate]'"
        ) from error
    return sacrebleu
