"""Variants: other numbers for every student, the same question, answers that are computed."""

from __future__ import annotations

import random

import pytest

from octavo.exercises import Exercise, Finding, Formula, Number, Part
from octavo.exercises.framework.answers import read_number
from octavo.exercises.framework.registry import select_exercises
from octavo.exercises.framework.variants import MIN_DISTANCE, at_point, student_variant

FORMULAS = [(one, part) for one in select_exercises(()) for part in one.parts if isinstance(part.answer, Formula)]


def area(right: str = "a*b", **settings: object) -> Part:
    return Part("area", "What is the area?", Formula(right, {"a": "whole", "b": "positive"}), "exact",
                lambda: Finding("b*a", "counted squares"), why="`a*b` squares.", wrong={"added": "a + b"}, **settings)  # type: ignore[arg-type]  # fmt: skip


def test_the_value_is_that_of_the_formula_at_the_point_in_the_question() -> None:
    part = at_point(area(), random.Random(3))
    assert isinstance(part.answer, Number)
    a, b = (float(piece.split(" = ")[1]) for piece in part.ask.split("`")[1::2])
    assert read_number(part.answer.right) == a * b
    assert part.wrong == {"added": a + b}
    assert part.check().holds


def test_a_variant_of_a_wrong_formula_is_refuted_by_its_evidence() -> None:
    assert not at_point(area("2*a*b"), random.Random(3)).check().holds


def test_a_student_always_gets_the_same_numbers_and_another_student_others() -> None:
    one = Exercise("area", "Area", "A rectangle.", "`a*b`", [area()])
    asked = {name: student_variant(one, name, 7).parts[0].ask for name in map(str, range(30))}
    assert asked == {name: student_variant(one, name, 7).parts[0].ask for name in asked}
    assert len(set(asked.values())) > 15
    assert student_variant(one, "0", 8).parts[0].ask != asked["0"]


def test_symbols_in_descending_order_are_drawn_so() -> None:
    part = Part("seen", "How many?", Formula("T - n + 1", {"T": "whole", "n": "whole"}, ("T", "n")), "exact",
                lambda: Finding("T - n + 1"), why="", wrong={"forgot one": "T - n"})  # fmt: skip
    for seed in range(50):
        answer = at_point(part, random.Random(seed)).answer
        assert isinstance(answer, Number)
        assert read_number(answer.right) >= 1


@pytest.mark.parametrize(("exercise", "part"), FORMULAS, ids=[f"{one.id}.{part.id}" for one, part in FORMULAS])
def test_every_formula_has_variants_whose_answer_differs_from_its_mistakes(exercise: Exercise, part: Part) -> None:
    for student in ("ada", "grace"):
        asked = next(one for one in student_variant(exercise, student, 1).parts if one.id == part.id)
        assert isinstance(asked.answer, Number)
        right = read_number(asked.answer.right)
        for mistake in asked.wrong.values():
            assert abs(read_number(mistake) - right) > MIN_DISTANCE * abs(right)
