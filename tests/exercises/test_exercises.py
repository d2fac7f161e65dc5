"""Every part of every exercise: its evidence agrees with its answer and refutes the common wrong answers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conftest import why_no_dataset
from octavo.exercises import Choice, Exercise, Formula, Function, Number, Part, Truth
from octavo.exercises.framework.answers import Answer, read_number
from octavo.exercises.framework.exercise import MissingDataError
from octavo.exercises.framework.mathml import prose_as_html, prose_as_text
from octavo.exercises.framework.registry import exercises_by_topic
from octavo.exercises.framework.submissions import grade

ALL = [exercise for exercises in exercises_by_topic().values() for exercise in exercises]
PARTS = [pytest.param(one, part, id=f"{one.id}.{part.id}") for one in ALL for part in one.parts]
VERDICTS: dict[Any, Any] = {"true": True, "false": False, "nearly": "nearly"}
NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


def changed_answers(part: Part) -> Iterator[Answer]:
    """The part's answer, and the condition of a nearly true statement, each changed so that it is wrong."""
    answer = part.answer
    if isinstance(answer, Truth) and answer.right == "nearly":
        yield from (replace(answer, condition=one) for one in changed_values(answer.condition))
        yield replace(answer, right="true")
    elif not isinstance(answer, Truth | Function):
        yield from changed_values(answer)


def changed_values(answer: Choice | Number | Formula) -> Iterator[Choice | Number | Formula]:
    """Every other option; a number off by more than is allowed; a formula with each of its numbers changed by one."""
    if isinstance(answer, Choice):
        yield from (replace(answer, right=name) for name in answer.options if name != answer.right)
    elif isinstance(answer, Number):
        right = read_number(answer.right)
        for sign in (1, -1):
            yield replace(answer, right=right + sign * (1.01 * answer.allowed(right) or 1))
    else:
        yield replace(answer, right=f"({answer.right}) * 1.001 + 0.001")
        for number in re.finditer(r"(?<![\w.])\d+(?![\w.])", answer.right):
            changed = answer.right[: number.start()] + str(int(number[0]) + 1) + answer.right[number.end() :]
            yield replace(answer, right=changed)


@pytest.fixture(scope="module", autouse=True)
def plays() -> None:
    """Tiny Shakespeare, which the evidence of some exercises counts, fetched where it can be."""
    why_no_dataset("shakespeare")


@pytest.mark.parametrize(("exercise", "part"), PARTS)
def test_the_evidence_agrees_with_the_answer_and_refutes_the_wrong_ones(exercise: Exercise, part: Part) -> None:
    try:
        value, note, tolerance = part.evidence()
    except MissingDataError as missing:
        pytest.skip(str(missing))
    assert note, "evidence describes the computation"
    if isinstance(part.answer, Truth | Choice) and part.kind in ("numeric", "monte carlo", "autograd", "trained"):
        assert tolerance, "a verdict that rests on numbers states their tolerance"
    assert part.problems(value, exercise.facts(part)) == []
    for changed in changed_answers(part):
        assert replace(part, answer=changed).problems(value), f"the evidence accepts: {changed}"
    for mistake, given in part.wrong_answers().items():
        assert part.answer.compare(given, value) is not None, f"the evidence accepts: {mistake}"
        assert part.answer.compare(given) is not None, f"the grader accepts: {mistake}"


@pytest.mark.parametrize(("exercise", "part"), PARTS)
def test_a_part_has_a_name_a_question_and_a_derivation(exercise: Exercise, part: Part) -> None:
    assert NAME.fullmatch(part.id)
    assert part.ask
    assert part.why
    assert part.wrong_answers()
    if not isinstance(part.answer, Choice):
        assert part.wrong, "all kinds but choices name at least one common mistake"
    if isinstance(part.answer, Truth):
        assert bool(part.answer.only_if) == (part.answer.right == "nearly")
    for text in (part.ask, part.why, getattr(part.answer, "only_if", ""), *part.only_if):
        assert prose_as_text(text) is not None
        assert prose_as_html(text) is not None


def answer_line(part: Part, given: Any) -> str:
    """A line of an answer file."""
    value = VERDICTS.get(given, given) if isinstance(part.answer, Truth) else given
    plain = value if isinstance(value, bool | int | float) else str(value)
    return f"{part.id} = {json.dumps(plain)}"


def test_the_grader_accepts_every_right_answer_and_names_every_common_mistake(tmp_path: Path) -> None:
    """Functions are left out: their results are compared above, and test_grading.py runs files."""
    mistakes = max(len(part.wrong) for one in ALL for part in one.parts)
    expected: dict[tuple[str, str, str], str] = {}
    for n in range(-1, mistakes):  # student -1 has everything right, student n makes the n-th mistake
        lines = []
        for one in ALL:
            lines.append(f"[{one.id}]")
            for part in one.parts:
                given = [("", part.answer.right)] if n < 0 else [*part.wrong.items()][n : n + 1]
                if given and not isinstance(part.answer, Function):
                    lines.append(answer_line(part, given[0][1]))
                    if isinstance(part.answer, Truth) and part.answer.right == "nearly" and n < 0:
                        lines.append(f"{part.id}-condition = {json.dumps(str(part.answer.condition.right))}")
                    expected[f"student{n}", one.id, part.id] = given[0][0]
        folder = tmp_path / f"student{n}"
        folder.mkdir()
        (folder / "answers.toml").write_text("\n".join(lines), encoding="utf-8")
    graded = {(student.name, row.exercise, row.part): row for student in grade(tmp_path, ALL) for row in student.rows}
    for key, mistake in expected.items():
        row = graded[key]
        assert (row.outcome == "right") == (not mistake), row
        assert row.outcome != "refused", row
        assert row.why.startswith(mistake), (mistake, row)


@pytest.mark.parametrize("exercise", ALL, ids=lambda one: one.id)
def test_an_exercise_can_be_displayed_and_its_figure_drawn(exercise: Exercise) -> None:
    assert NAME.fullmatch(exercise.id)
    assert exercise.parts
    assert len({part.id for part in exercise.parts}) == len(exercise.parts)
    for text in (exercise.question, exercise.answer):
        assert "`" not in prose_as_text(text)
        assert prose_as_html(text).startswith("<p>")
    if exercise.figure is not None:
        figure = exercise.figure()
        if not figure:  # a trained figure, where the data to train on are missing
            with pytest.raises(MissingDataError) as missing:
                [part.evidence() for part in exercise.parts]
            pytest.skip(str(missing.value))
        assert "<svg" in figure
