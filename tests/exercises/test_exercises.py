"""Every part of every exercise: its evidence agrees with its answer, and refuses the usual wrong ones."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from octavo.exercises.framework.answers import Choice, Function, Truth
from octavo.exercises.framework.exercise import Exercise, Part
from octavo.exercises.framework.grading import grade
from octavo.exercises.framework.mathml import prose_as_html, prose_as_text
from octavo.exercises.framework.registry import exercises

EVERY = [one for some in exercises().values() for one in some]
PARTS = [pytest.param(one, part, id=f"{one.id}.{part.id}") for one in EVERY for part in one.parts]
VERDICTS: dict[Any, Any] = {"true": True, "false": False, "nearly": "only if so"}
NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


@pytest.mark.parametrize(("exercise", "part"), PARTS)
def test_the_evidence_agrees_with_the_answer_and_refuses_the_wrong_ones(exercise: Exercise, part: Part) -> None:
    found, note, tolerance = part.evidence()
    assert note, "evidence says what was done"
    if isinstance(part.answer, Truth | Choice) and part.kind in ("numeric", "monte carlo", "autograd", "trained"):
        assert tolerance, "a verdict that rests on numbers says how close they have to be"
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
    if not isinstance(part.answer, Choice):
        assert part.wrong, "all but choices need the usual wrong answers by name"
    if isinstance(part.answer, Truth):
        assert bool(part.answer.only_if) == (part.answer.right == "nearly")
    for text in (part.ask, part.why, getattr(part.answer, "only_if", ""), *part.only_if):
        assert prose_as_text(text) is not None
        assert prose_as_html(text) is not None


def answered(part: Part, given: Any) -> str:
    """A line of an answer file."""
    said = VERDICTS.get(given, given) if isinstance(part.answer, Truth) else given
    plain = said if isinstance(said, bool | int | float) else str(said)
    return f"{part.id} = {json.dumps(plain)}"


def test_the_grader_takes_every_right_answer_and_names_every_usual_mistake(tmp_path: Path) -> None:
    """Functions are left out: their results are compared above, and test_exercises_grade.py runs files."""
    most = max(len(part.wrong) for one in EVERY for part in one.parts)
    wanted: dict[tuple[str, str, str], str] = {}
    for n in range(-1, most):  # student -1 has everything right, student n makes the n-th mistake
        lines = []
        for one in EVERY:
            lines.append(f"[{one.id}]")
            for part in one.parts:
                given = [("", part.answer.right)] if n < 0 else [*part.wrong.items()][n : n + 1]
                if given and not isinstance(part.answer, Function):
                    lines.append(answered(part, given[0][1]))
                    wanted[f"student{n}", one.id, part.id] = given[0][0]
        folder = tmp_path / f"student{n}"
        folder.mkdir()
        (folder / "answers.toml").write_text("\n".join(lines), encoding="utf-8")
    found = {(student.name, row.exercise, row.part): row for student in grade(tmp_path, EVERY) for row in student.rows}
    for key, mistake in wanted.items():
        row = found[key]
        assert (row.outcome == "right") == (not mistake), row
        assert row.outcome != "refused", row
        assert row.why.startswith(mistake), (mistake, row)


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
