"""Every part of every exercise: its evidence agrees with its answer, and refuses the usual wrong ones."""

from __future__ import annotations

import re

import pytest

from octavo.exercises.answers import Formula, Function, Number, Truth
from octavo.exercises.exercise import Exercise, Part
from octavo.exercises.registry import exercises
from octavo.exercises.written import prose_as_html, prose_as_text

EVERY = [one for some in exercises().values() for one in some]
PARTS = [pytest.param(one, part, id=f"{one.id}.{part.id}") for one in EVERY for part in one.parts]
NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


@pytest.mark.parametrize(("exercise", "part"), PARTS)
def test_the_evidence_agrees_with_the_answer_and_refuses_the_wrong_ones(exercise: Exercise, part: Part) -> None:
    found = part.evidence().value
    assert part.answer.compare(part.answer.right, found) is None
    for mistake, given in part.refused().items():
        assert part.answer.compare(given, found) is not None, f"the evidence accepts: {mistake}"
        assert part.answer.compare(given) is not None, f"the grader accepts: {mistake}"


@pytest.mark.parametrize(("exercise", "part"), PARTS)
def test_a_part_is_named_asked_and_explained(exercise: Exercise, part: Part) -> None:
    assert NAME.fullmatch(part.id)
    assert part.ask
    assert part.why
    assert part.refused()
    if isinstance(part.answer, Number | Formula | Function):
        assert part.wrong, "numbers, formulas and functions need the usual wrong answers by name"
    if isinstance(part.answer, Truth):
        assert bool(part.answer.only_if) == (part.answer.right == "nearly")
    for text in (part.ask, part.why, getattr(part.answer, "only_if", ""), *part.only_if):
        assert prose_as_text(text) is not None
        assert prose_as_html(text) is not None


@pytest.mark.parametrize("exercise", EVERY, ids=lambda one: one.id)
def test_an_exercise_can_be_read_and_drawn(exercise: Exercise) -> None:
    assert NAME.fullmatch(exercise.id)
    assert exercise.parts
    assert len({part.id for part in exercise.parts}) == len(exercise.parts)
    for text in (exercise.question, exercise.answer):
        assert "`" not in prose_as_text(text)
        assert prose_as_html(text).startswith("<p>")
    if exercise.figure is not None:
        assert "<svg" in exercise.figure()
