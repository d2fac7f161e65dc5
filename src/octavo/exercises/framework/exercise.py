"""An exercise and its parts: each part is one claim with an answer, evidence for it, and common wrong answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from octavo.errors import UserError
from octavo.exercises.framework.answers import Answer, Choice, Interval, IntervalAt, Truth

EvidenceKind = Literal["symbolic", "exact", "numeric", "monte carlo", "autograd", "counted", "trained"]
CONDITIONAL_CREDIT = 0.5  # share of the points for an answer that is right only under a condition


class Finding(NamedTuple):
    """What an evidence function computed, independently of the answer; `note` describes the computation."""

    value: Any
    note: str = ""
    tolerance: str = ""  # of the numbers behind a verdict or a choice


class MissingDataError(Exception):
    """Evidence needs a dataset that is not on this machine: the claim is skipped, not refuted."""


class Evidence(NamedTuple):
    """The outcome of a check: what was found, and whether the part's answer agrees with it."""

    holds: bool
    found: str
    expected: str
    tolerance: str
    note: str
    seconds: float
    skipped: bool = False  # because a dataset is not on this machine; `note` says which

    @property
    def outcome(self) -> str:
        return "skipped" if self.skipped else "holds" if self.holds else "FAILS"


@dataclass(frozen=True)
class Part:
    """One claim. `evidence` computes the truth independently of the answer, and must refute the `wrong` answers."""

    id: str
    ask: str  # the question; formulas between backticks
    answer: Answer
    kind: EvidenceKind
    evidence: Callable[[], Finding]  # computed on request, never stored
    why: str  # the derivation in prose, formulas between backticks
    wrong: Mapping[str, Any] = field(default_factory=dict)  # name of a common mistake -> the answer it leads to
    only_if: Mapping[str, Any] = field(default_factory=dict)  # condition -> an answer that is right only under it
    full: Callable[[], Finding] | None = None  # evidence at full size, where `evidence` uses a small setting
    points: float = 1.0

    def check(self, full: bool = False) -> Evidence:
        """Compute the evidence and compare the answer with it."""
        start = time.perf_counter()
        try:
            finding = (self.full or self.evidence)() if full else self.evidence()
        except MissingDataError as missing:
            return Evidence(False, "", "", "", str(missing), time.perf_counter() - start, skipped=True)
        difference = self.answer.compare(self.answer.right, finding.value)
        note = f"{finding.note}; but {difference}" if difference else finding.note
        return Evidence(
            difference is None, format_value(finding.value), format_value(self.answer.right), self._tolerance(finding),
            note, time.perf_counter() - start,
        )  # fmt: skip

    def _tolerance(self, finding: Finding) -> str:
        if finding.tolerance:
            return finding.tolerance
        values = finding.value if isinstance(finding.value, list) else [finding.value]
        intervals = [value for value in values if isinstance(value, Interval | IntervalAt)]
        if not intervals:
            return self.answer.tolerance()
        return "inside the interval" if any(one.low != one.high for one in intervals) else "exact"

    def wrong_answers(self) -> dict[str, Any]:
        """Every wrong answer by the name of its mistake, including other verdicts and options than the right one."""
        answers = {**self.wrong, **{f"right only if {condition}": given for condition, given in self.only_if.items()}}
        if isinstance(self.answer, Truth):
            verdicts = {self.answer.verdict(given) for given in answers.values()}
            for other in ("true", "false", "nearly"):
                if other != self.answer.right and other not in verdicts:
                    answers[f"answered {other}"] = other
        if isinstance(self.answer, Choice):
            answers |= {f"chose {name}": name for name in self.answer.options
                        if name != self.answer.right and name not in answers.values()}  # fmt: skip
        return answers


@dataclass(frozen=True)
class Exercise:
    """A question with its parts; `answer` summarises the solution, `figure` returns an HTML figure."""

    id: str
    title: str
    question: str
    answer: str
    parts: Sequence[Part]
    figure: Callable[[], str] | None = None

    def part(self, name: str) -> Part:
        """The part with this id."""
        for part in self.parts:
            if part.id == name:
                return part
        raise UserError(f"{self.id} has no part {name!r}; it has {', '.join(part.id for part in self.parts)}")

    def check(self, full: bool = False) -> Iterator[tuple[Part, Evidence]]:
        """Every part with its evidence, in order."""
        for part in self.parts:
            yield part, part.check(full)


def format_value(value: Any) -> str:
    """An answer or a computed value on one line."""
    if callable(value):
        return getattr(value, "__doc__", None) or "a function"
    if isinstance(value, float):
        return f"{value:.8g}"
    if isinstance(value, list) and value and isinstance(value[0], IntervalAt):
        return "; ".join(map(str, value))
    if isinstance(value, list):
        return f"{len(value)} results"
    return str(value)
