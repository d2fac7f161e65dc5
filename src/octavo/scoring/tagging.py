"""The metrics of tagging: spans of B-, I- and O tags, and what a sequence tagger is measured by.

N words of all sentences, C tags.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from octavo.scoring.metrics import Classified, classified

OUTSIDE = "O"


class Span(NamedTuple):
    """The words from `start` up to `end`, which is not one of them."""

    kind: str
    start: int
    end: int


def is_bio(names: Sequence[str]) -> bool:
    """Whether tags mark spans: O, B-kind and I-kind, and no other."""
    return any(name.startswith("B-") for name in names) and all(
        name == OUTSIDE or (name[:2] in ("B-", "I-") and len(name) > 2) for name in names
    )


def spans_of(tags: Sequence[str]) -> list[Span]:
    """The spans of a sentence. An I- that continues nothing of its kind begins a span, as conlleval counts it."""
    found: list[Span] = []
    kind, start = "", 0
    for t, tag in enumerate([*tags, OUTSIDE]):
        continues = tag == f"I-{kind}" and kind != ""
        if kind and not continues:
            found.append(Span(kind, start, t))
        if not continues:
            kind, start = tag[2:], t  # O has none
    return found


def forbidden_pairs(names: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Which tags cannot begin a sentence, start_C, and which cannot follow which, pair_CC: an I- only goes on."""
    inside = [name[2:] if name.startswith("I-") else None for name in names]
    start_C = torch.tensor([kind is not None for kind in inside])
    pair_CC = torch.tensor([[kind is not None and before[2:] != kind for kind in inside] for before in names])
    return start_C, pair_CC


def is_well_formed(tags: Sequence[str]) -> bool:
    """Whether every I- continues a span of its kind."""
    return all(
        not tag.startswith("I-") or (before[2:] == tag[2:] and before != OUTSIDE)
        for before, tag in zip([OUTSIDE, *tags[:-1]], tags, strict=True)
    )


def _shares(right: int, predicted: int, true: int) -> dict[str, Any]:
    return {"spans": true, "precision": right / max(1, predicted), "recall": right / max(1, true),
            "f1": 2 * right / max(1, predicted + true)}  # fmt: skip


def span_scores(truths: Iterable[Sequence[str]], answers: Iterable[Sequence[str]]) -> dict[str, Any]:
    """Precision, recall and F1 of spans, all together and by kind; a span is right if its kind and both ends are."""
    true, predicted, right = Counter[str](), Counter[str](), Counter[str]()
    for truth, answer in zip(truths, answers, strict=True):
        spans, said = set(spans_of(truth)), set(spans_of(answer))
        for counter, some in ((true, spans), (predicted, said), (right, spans & said)):
            counter.update(span.kind for span in some)
    per_kind = [
        {"kind": kind, **_shares(right[kind], predicted[kind], true[kind])} for kind in sorted(true | predicted)
    ]
    return {**_shares(right.total(), predicted.total(), true.total()), "per_kind": per_kind}


@dataclass(frozen=True)
class TaggingScore:
    """What was measured on some sentences."""

    words: Classified
    """Of single words: accuracy, calibration, the confusion of tags."""
    sentences: int
    sentences_right: float
    """The share in which every tag is right."""
    unknown: int
    """Words that training has not seen, or too rarely."""
    unknown_accuracy: float
    baseline_accuracy: float | None
    """Of the tag that each word has most often in the training part; None where that is not at hand."""
    spans: dict[str, Any] | None
    """Of tags that mark spans: precision, recall, F1."""

    @property
    def accuracy(self) -> float:
        return self.words.accuracy

    def to_json(self) -> dict[str, Any]:
        own = {key: getattr(self, key) for key in (
            "sentences", "sentences_right", "unknown", "unknown_accuracy", "baseline_accuracy")}  # fmt: skip
        spans = {"spans": self.spans, "span_f1": self.spans["f1"]} if self.spans is not None else {}
        return self.words.to_json() | own | spans


class Answers(NamedTuple):
    """What a tagger says of some sentences, word after word."""

    p_NC: Tensor
    answer_N: Tensor
    y_N: Tensor
    known_N: Tensor
    """Which words training has seen."""
    common_N: Tensor | None
    """The tag that each word has most often in training, where that is known."""
    lengths: Sequence[int]


def score_tags(answers: Answers, names: list[str]) -> TaggingScore:
    """Measure answers against the true tags."""
    right_N = answers.answer_N == answers.y_N
    unknown_N = ~answers.known_N
    rows = [[[names[c] for c in some.tolist()] for some in one.split(list(answers.lengths))]
            for one in (answers.y_N, answers.answer_N)] if is_bio(names) else None  # fmt: skip
    whole = [bool(some.all()) for some in right_N.split(list(answers.lengths))]
    return TaggingScore(
        classified(answers.p_NC, answers.y_N, names, answers.answer_N), len(whole), sum(whole) / max(1, len(whole)),
        int(unknown_N.sum()), _mean(right_N[unknown_N]),
        None if answers.common_N is None else _mean(answers.common_N == answers.y_N),
        span_scores(*rows) if rows is not None else None,
    )  # fmt: skip


def _mean(right_N: Tensor) -> float:
    return float(right_N.double().mean()) if len(right_N) else 0.0
