"""How good answers are, and how far their confidence can be believed.

Exact match; the share of questions that are answered above a threshold (coverage) and how many of those answers are
right (accuracy); the mean distance of confidence from accuracy in ten bins (calibration error).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

BINS = 10
SHOWN = 100  # points of a curve
LEVELS = (0.5, 0.7, 0.9)  # accuracies that a threshold is reported for


class Point(NamedTuple):
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


def coverage_curve(confidence_N: Sequence[float], right_N: Sequence[bool]) -> list[Point]:
    """A point for each confidence that occurs, the highest threshold first; equals are answered together."""
    ranked = sorted(zip(confidence_N, right_N, strict=True), key=lambda one: -one[0])
    points, answered, good = [], 0, 0
    for threshold, same in groupby(ranked, key=lambda one: one[0]):
        hits = [right for _, right in same]
        answered, good = answered + len(hits), good + sum(hits)
        points.append(Point(threshold, answered / len(ranked), good / answered))
    return points


def threshold_for(curve: Sequence[Point], accuracy: float) -> Point | None:
    """The lowest threshold whose answers are right so often; None where there is none."""
    good = [point for point in curve if point.accuracy >= accuracy]
    return max(good, key=lambda point: point.coverage, default=None)


def at_threshold(curve: Sequence[Point], threshold: float) -> Point | None:
    """What comes of this threshold: the last point whose own is no lower; None where nothing is answered."""
    above = [point for point in curve if point.threshold >= threshold]
    return max(above, key=lambda point: point.coverage, default=None)


def thinned(curve: Sequence[Point]) -> list[list[float]]:
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
    confidence: float
    """The mean."""
    ece: float
    curve: list[Point] = field(repr=False)
    bins: list[Bin] = field(repr=False)

    @property
    def spread(self) -> float:
        """The standard error of the exact match."""
        return math.sqrt(self.exact_match * (1 - self.exact_match) / max(1, self.questions))

    def to_json(self) -> dict[str, Any]:
        levels = [(level, threshold_for(self.curve, level)) for level in LEVELS]
        return {
            "questions": self.questions, "exact_match": self.exact_match, "standard_error": self.spread,
            "confidence": self.confidence, "ece": self.ece, "curve": thinned(self.curve),
            "bins": [list(one) for one in self.bins],
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
