"""An exercise and its parts: each part is one claim with an answer, evidence for it, and common wrong answers."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import mpmath

from octavo.errors import UserError
from octavo.exercises.framework.answers import (
    Answer,
    Choice,
    Formula,
    Interval,
    IntervalAt,
    Judgement,
    Number,
    Truth,
    read_number,
)  # fmt: skip
from octavo.exercises.framework.bound_text import Text
from octavo.exercises.framework.facts import Facts
from octavo.exercises.framework.formula import parse
from octavo.exercises.framework.formula_values import DIGITS, points, value

EvidenceKind = Literal["symbolic", "exact", "numeric", "monte carlo", "autograd", "counted", "trained"]
CONDITIONAL_CREDIT = 0.5  # share of the points for an answer that is right only under a condition
MISTAKE_TOLERANCE = 1e-6  # relative, of the value of a mistake: below what is asked of students
MISTAKE_POINTS = 8  # at which a wrong formula is computed


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
    where: Mapping[str, Any] = field(default_factory=dict)  # names in the texts, besides those of the exercise
    makers: Mapping[str, Any] = field(default_factory=dict)  # name of a mistake -> the function that makes it

    def __post_init__(self) -> None:
        """Split (answer, function) pairs of `wrong` and `only_if`, and keep the bindings of the texts' numbers."""
        makers = dict(self.makers)
        for attribute in ("wrong", "only_if"):
            answers = {}
            for name, given in getattr(self, attribute).items():
                is_pair = isinstance(given, tuple)
                answers[Text(name)] = given[0] if is_pair else given
                makers |= {Text(name): given[1]} if is_pair else {}
            object.__setattr__(self, attribute, answers)
        object.__setattr__(self, "makers", makers)
        for attribute in ("ask", "why"):
            object.__setattr__(self, attribute, Text(getattr(self, attribute)))

    def texts(self) -> list[str]:
        """All prose of the part."""
        choice = self.answer.condition if isinstance(self.answer, Truth) else self.answer
        options = choice.options.values() if isinstance(choice, Choice) else ()
        phrase = [self.answer.phrase] if isinstance(self.answer, Truth) else []
        return [self.ask, self.why, *phrase, *options, *self.wrong, *self.only_if]

    def check(self, full: bool = False, facts: Facts | None = None) -> Evidence:
        """Compute the evidence and compare with it the answer, the mistakes and, given facts, the texts."""
        start = time.perf_counter()
        try:
            finding = (self.full or self.evidence)() if full else self.evidence()
        except MissingDataError as missing:
            return Evidence(False, "", "", "", str(missing), time.perf_counter() - start, skipped=True)
        problems = self.problems(finding.value, facts)
        note = f"{finding.note}; but {'; '.join(problems)}" if problems else finding.note
        return Evidence(
            not problems, format_value(finding.value), format_value(self.answer.right), self._tolerance(finding), note,
            time.perf_counter() - start,
        )  # fmt: skip

    def problems(self, found: Any, facts: Facts | None = None) -> list[str]:
        """What the evidence does not confirm: the answer, its condition, its precision, a mistake, or a text."""
        problems = [self.answer.compare(self.answer.right, found)]
        if isinstance(self.answer, Truth):
            judgement = found if isinstance(found, Judgement) else Judgement(found, None)
            problems.append(self.answer.compare_condition(judgement))
        if isinstance(self.answer, Number | Formula) and facts:
            problems.append(self.answer.too_loose(found))
        problems += [self._mistake_problem(name) for name in self.makers]
        problems += [problem for text in self.texts() for problem in facts.problems(text)] if facts else []
        return [problem for problem in problems if problem]

    def _mistake_problem(self, name: str) -> str | None:
        """How the answer of a named mistake differs from what the mistake leads to."""
        given, make = {**self.wrong, **self.only_if}[name], self.makers[name]
        if isinstance(self.answer, Formula):
            made = self._wrong_formula(given, make)
        elif isinstance(self.answer, Number):
            x, expected = make(), read_number(given)
            made = math.isclose(x, expected, rel_tol=MISTAKE_TOLERANCE, abs_tol=MISTAKE_TOLERANCE if not given else 0)
        elif isinstance(self.answer, Truth):
            made = self.answer.verdict(make()) == self.answer.verdict(given)
        else:
            made = make() == given
        return None if made else f"{name}: this does not give {format_value(given)}"

    def _wrong_formula(self, given: str, make: Any) -> bool:
        """Whether a wrong formula has the values that the mistake gives; a mapping fixes symbols of the right one."""
        assert isinstance(self.answer, Formula)
        symbols, agreed = self.answer.symbols, 0
        wrong, right = parse(given, symbols), parse(self.answer.right, symbols)
        with mpmath.workdps(DIGITS):
            for at in points(symbols):
                at = {name: int(x) if symbols[name] == "whole" else mpmath.mpf(x) for name, x in at.items()}
                try:
                    if isinstance(make, Mapping):
                        at |= make
                        made = value(right, at)
                    else:
                        made = make(**{name: at[name] for name in inspect.signature(make).parameters})
                    x = value(wrong, at)
                except (ArithmeticError, ValueError):
                    continue
                if abs(x - made) > MISTAKE_TOLERANCE * max(abs(x), abs(made)):
                    return False
                agreed += 1
                if agreed == MISTAKE_POINTS:
                    return True
        return agreed > 0

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
            accepted = ("nearly", "false") if self.answer.right == "nearly" else (self.answer.right,)
            for other in ("true", "false", "nearly"):
                if other not in accepted and other not in verdicts:
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
    where: Mapping[str, Any] | None = None  # names in the texts, which are checked unless it is None

    def __post_init__(self) -> None:
        for attribute in ("question", "answer"):
            object.__setattr__(self, attribute, Text(getattr(self, attribute)))

    def facts(self, part: Part | None = None) -> Facts | None:
        """What the texts of the exercise, or of one of its parts, are checked against."""
        if self.where is None:
            return None
        where = {**self.where, **(part.where if part else {})}
        return Facts(where, {one.id: one.answer for one in self.parts}, part.id if part else "")

    def text_problems(self) -> list[str]:
        """The numbers and formulas of the question and the answer that are not confirmed."""
        facts = self.facts()
        return [problem for text in (self.question, self.answer) for problem in facts.problems(text)] if facts else []

    def part(self, name: str) -> Part:
        """The part with this id."""
        for part in self.parts:
            if part.id == name:
                return part
        raise UserError(f"{self.id} has no part {name!r}; it has {', '.join(part.id for part in self.parts)}")

    def check(self, full: bool = False) -> Iterator[tuple[Part, Evidence]]:
        """Every part with its evidence, in order."""
        for part in self.parts:
            yield part, part.check(full, self.facts(part))


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
