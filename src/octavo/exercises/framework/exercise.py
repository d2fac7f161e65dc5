"""An exercise and its parts: each part is one claim with an answer, evidence for it, and the usual wrong answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from octavo.errors import UserError
from octavo.exercises.framework.answers import Answer, At, Choice, Interval, Truth

Kind = Literal["symbolic", "exact", "numeric", "monte carlo", "autograd", "counted", "trained"]
HALF = 0.5  # of the points, for an answer that is right only if something holds


class Found(NamedTuple):
    """What a check found by itself, without looking at the answer; `note` says in plain words what was done."""

    value: Any
    note: str = ""
    tolerance: str = ""  # of what was computed on the way to a verdict or a choice


class Evidence(NamedTuple):
    """A check's outcome: what was found, and whether the part's answer agrees with it."""

    holds: bool
    found: str
    expected: str
    tolerance: str
    note: str
    seconds: float


@dataclass(frozen=True)
class Part:
    """One claim. `evidence` finds the truth by another way than the answer; `wrong` are refused for the same reason."""

    id: str
    ask: str  # the question; formulas between backticks
    answer: Answer
    kind: Kind  # of evidence
    evidence: Callable[[], Found]  # computed when asked, never stored
    why: str  # the derivation in plain words, formulas between backticks
    wrong: Mapping[str, Any] = field(default_factory=dict)  # what the mistake is -> the answer it leads to
    only_if: Mapping[str, Any] = field(default_factory=dict)  # a condition -> the answer that is right only then
    full: Callable[[], Found] | None = None  # the real setting, where `evidence` is a small one
    points: float = 1.0

    def check(self, full: bool = False) -> Evidence:
        """Compute the evidence and hold the answer against it."""
        began = time.perf_counter()
        found = (self.full or self.evidence)() if full else self.evidence()
        refusal = self.answer.compare(self.answer.right, found.value)
        note = f"{found.note}; but {refusal}" if refusal else found.note
        return Evidence(
            refusal is None, words(found.value), words(self.answer.right), self._tolerance(found), note,
            time.perf_counter() - began,
        )  # fmt: skip

    def _tolerance(self, found: Found) -> str:
        if found.tolerance:
            return found.tolerance
        some = found.value if isinstance(found.value, list) else [found.value]
        measured = [one for one in some if isinstance(one, Interval | At)]
        if not measured:
            return self.answer.tolerance()
        return "inside the interval" if any(one.low != one.high for one in measured) else "exactly right"

    def refused(self) -> dict[str, Any]:
        """Every wrong answer by name, those included that only its kind makes wrong."""
        answers = {**self.wrong, **{f"right only if {condition}": given for condition, given in self.only_if.items()}}
        if isinstance(self.answer, Truth):
            said = {self.answer.verdict(given) for given in answers.values()}
            for other in ("true", "false", "nearly"):
                if other != self.answer.right and other not in said:
                    answers[f"said to be {other}"] = other
        if isinstance(self.answer, Choice):
            answers |= {f"chose {name}": name for name in self.answer.options
                        if name != self.answer.right and name not in answers.values()}  # fmt: skip
        return answers


@dataclass(frozen=True)
class Exercise:
    """A question with its parts; `answer` is the whole story in plain words, `figure` draws it as an HTML figure."""

    id: str
    title: str
    question: str
    answer: str
    parts: Sequence[Part]
    figure: Callable[[], str] | None = None

    def part(self, name: str) -> Part:
        """The part of that name."""
        for part in self.parts:
            if part.id == name:
                return part
        raise UserError(f"{self.id} has no part {name!r}; it has {', '.join(part.id for part in self.parts)}")

    def check(self, full: bool = False) -> Iterator[tuple[Part, Evidence]]:
        """Every part with its evidence, one after the other."""
        for part in self.parts:
            yield part, part.check(full)


def words(value: Any) -> str:
    """An answer or a finding on one line."""
    if callable(value):
        return getattr(value, "__doc__", None) or "a function"
    if isinstance(value, float):
        return f"{value:.8g}"
    if isinstance(value, list) and value and isinstance(value[0], At):
        return "; ".join(map(str, value))
    if isinstance(value, list):
        return f"{len(value)} results"
    return str(value)
