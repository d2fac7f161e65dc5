"""Every assertion of an exercise is bound to evidence: numbers in texts, conditions, named mistakes, tolerances."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from octavo.exercises import Choice, Exercise, Formula, Number, Part, Truth
from octavo.exercises.framework.bound_text import Text
from octavo.exercises.framework.facts import ITEM
from octavo.exercises.framework.registry import exercises_by_topic

ALL = [exercise for exercises in exercises_by_topic().values() for exercise in exercises]
CHECKED = [exercise for exercise in ALL if exercise.where is not None]
PARTS = [pytest.param(one, part, id=f"{one.id}.{part.id}") for one in CHECKED for part in one.parts]
NUMBER = re.compile(r"(?<![\w.])\d(?:[\d,]*\d)?(?:\.\d+)?")


def changed_numbers(text: str) -> Iterator[Text]:
    """The text once for every number in it, whose last digit is changed by one."""
    raw = getattr(text, "raw", text)
    for item in ITEM.finditer(raw):
        shown = item[1] or item[2]
        start = item.start() + bool(item[1])
        for number in NUMBER.finditer(shown):
            digits = number[0]
            last = str((int(digits[-1]) + 1) % 10) if digits[-1] != "9" else "8"
            end = start + number.end()
            yield Text(raw[: end - 1] + last + raw[end:])


@pytest.mark.parametrize("exercise", CHECKED, ids=lambda one: one.id)
def test_a_changed_number_in_a_question_or_a_summary_fails_the_check(exercise: Exercise) -> None:
    assert exercise.text_problems() == []
    for attribute in ("question", "answer"):
        for text in changed_numbers(getattr(exercise, attribute)):
            assert replace(exercise, **{attribute: text}).text_problems(), text.raw  # type: ignore[arg-type]


@pytest.mark.parametrize(("exercise", "part"), PARTS)
def test_a_changed_number_in_a_part_fails_the_check(exercise: Exercise, part: Part) -> None:
    facts = exercise.facts(part)
    assert facts is not None
    for text in part.texts():
        assert list(facts.problems(text)) == []
        for changed in changed_numbers(text):
            assert list(facts.problems(changed)), changed.raw


@pytest.mark.parametrize(("exercise", "part"), PARTS)
def test_every_mistake_comes_with_the_function_that_makes_it(exercise: Exercise, part: Part) -> None:
    if isinstance(part.answer, Number | Formula):
        assert set(part.makers) == {*part.wrong, *part.only_if}
        for name, given in part.wrong.items():
            changed: Any = f"({given}) + 1" if isinstance(given, str) else given * 1.01 + 1
            problems = replace(part, wrong={name: changed}, only_if={}, makers={name: part.makers[name]}).problems
            assert any(name in problem for problem in problems(part.answer.right)), f"any answer passes for {name}"


@pytest.mark.parametrize(("exercise", "part"), PARTS)
def test_a_condition_is_offered_among_others_or_asked_for(exercise: Exercise, part: Part) -> None:
    if isinstance(part.answer, Truth):
        assert (part.answer.condition is not None) or part.answer.right != "nearly"
        if isinstance(part.answer.condition, Choice):
            assert len(part.answer.condition.options) >= 3
            assert part.answer.condition.right in (*part.answer.condition.options, "")
        elif part.answer.condition is not None:
            assert "…" in part.answer.phrase
