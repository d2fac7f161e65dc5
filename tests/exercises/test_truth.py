"""Every assertion of an exercise is bound to evidence: numbers in texts, conditions, named mistakes, tolerances."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from octavo.exercises import (
    Choice,
    Exercise,
    Finding,
    Formula,
    Function,
    Interval,
    IntervalAt,
    Number,
    Part,
    Truth,
)  # fmt: skip
from octavo.exercises.framework.bound_text import Text
from octavo.exercises.framework.facts import ITEM, Facts
from octavo.exercises.framework.registry import exercises_by_topic

ALL = [exercise for exercises in exercises_by_topic().values() for exercise in exercises]
PARTS = [pytest.param(one, part, id=f"{one.id}.{part.id}") for one in ALL for part in one.parts]
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


@pytest.mark.parametrize("exercise", ALL, ids=lambda one: one.id)
def test_a_changed_number_in_a_question_or_a_summary_fails_the_check(exercise: Exercise) -> None:
    assert exercise.where is not None, "the texts of our own exercises are checked"
    assert exercise.text_problems() == []
    facts = exercise.facts()
    assert facts is not None
    for attribute in ("question", "answer"):
        changed = [*changed_numbers(getattr(exercise, attribute))]
        for text in changed:
            assert next(facts.problems(text), None), text.raw
        for text in changed[-1:]:
            assert replace(exercise, **{attribute: text}).text_problems(), text.raw  # type: ignore[arg-type]


@pytest.mark.parametrize(("exercise", "part"), PARTS)
def test_a_changed_number_in_a_part_fails_the_check(exercise: Exercise, part: Part) -> None:
    facts = exercise.facts(part)
    assert facts is not None
    for text in part.texts():
        assert list(facts.problems(text)) == []
        for changed in changed_numbers(text):
            assert next(facts.problems(changed), None), changed.raw


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


def part_of(name: str) -> Part:
    exercise, part = name.split(".")
    return next(one for one in ALL if one.id == exercise).part(part)


def test_the_large_matrix_of_values_is_the_product_with_the_transposed_matrix() -> None:
    part = part_of("one-matrix.value-matrix")
    assert part.check().holds
    assert not replace(part, answer=replace(part.answer, right="plain")).check().holds  # kron(A, W_v)


def test_a_mistake_that_does_not_give_its_value_fails_the_check() -> None:
    """The spacing of floats above 1, not half of it, gives 37 as well: it is no mistake that leads to 36."""
    part = part_of("softmax-range.first-one")
    spacing = {"used the spacing of floats": (36, lambda: next(g for g in range(99) if math.exp(-g) <= 2**-52))}
    assert "does not give 36" in replace(part, wrong=spacing, makers={}).check().note
    assert part.check().holds


@pytest.mark.parametrize(
    ("name", "given", "mistake"),
    [("pretraining-or-not.constant", 0.207, "sampled the answer"),
     ("preprocessing-same-bytes.gain", 117, "forgot the cost"),
     ("softmax-range.first-one", 36, "rounded the gap down")],
)  # fmt: skip
def test_a_mistake_is_recognized_by_three_digits(name: str, given: float, mistake: str) -> None:
    part = part_of(name)
    assert isinstance(part.answer, Number)
    named = [text for text, value in part.wrong.items() if part.answer.compare(given, value) is None]
    assert [text.startswith(mistake) for text in named] == [True]


def test_evidence_that_is_less_precise_than_what_is_asked_fails_the_check() -> None:
    exercise = Exercise("e", "E", "Q.", "A.", [
        Part("number", "What?", Number("280/761"), "monte carlo",
             lambda: Finding(Interval(0.347, 0.417), "drawn"), why="."),
        Part("formula", "What?", Formula("d", {"d": "whole"}), "monte carlo",
             lambda: Finding([IntervalAt({"d": 3}, 2.9, 3.1)], "drawn"), why="."),
    ], where={})  # fmt: skip
    assert [("known to" in evidence.note, evidence.holds) for _, evidence in exercise.check()] == [(True, False)] * 2


def logits_gradient(z: list[float], y: list[float], total: Callable[[list[float]], float], top: float) -> list[float]:
    e = [math.exp(min(one - top, 700)) for one in z]
    return [total(y) * one / sum(e) - label for one, label in zip(e, y, strict=True)]


@pytest.mark.parametrize(
    "wrong",
    [lambda z, y: logits_gradient(z, y, lambda y: sum(map(abs, y)), max(z)),  # absolute labels
     lambda z, y: logits_gradient(z, y, lambda y: float(round(sum(y), 1)), max(z)),  # a rounded sum
     lambda z, y: logits_gradient(z, y, max, max(z)), lambda z, y: logits_gradient(z, y, sum, 0.0)],  # overflow
    ids=["absolute", "rounded", "largest", "overflows"],
)  # fmt: skip
def test_the_cases_tell_wrong_gradients_apart(wrong: Callable[..., Any]) -> None:
    part = part_of("cross-entropy-gradient.function")
    assert isinstance(part.answer, Function)
    assert part.answer.compare(wrong) is not None
    assert part.answer.compare(lambda z, y: logits_gradient(z, y, sum, max(z))) is None


def test_the_cases_tell_attention_from_its_limit() -> None:
    part = part_of("raw-dot-products.projections")
    assert isinstance(part.answer, Function)
    limit = [[[b - c for b, c in zip(u[1], u[2], strict=True)], u[1]] for u in part.answer.cases]
    assert part.answer.compare(limit) is not None
    expected = [part.answer.right(*case) for case in part.answer.cases]
    differing = map(part.answer.first_difference, limit, expected)
    assert [one is None for one in differing] == [
        True,
        True,
        False,
        False,
    ]  # short vectors are not at the limit


def test_an_unbound_number_fails_the_check_and_a_bound_one_is_not_displayed_with_its_name() -> None:
    text = Text("It is at most 1/4{slope}, and `4*D^2`{weights} is 2.66*10 or 3.")
    assert text == "It is at most 1/4, and `4*D^2` is 2.66*10 or 3."
    facts = Facts({"slope": 0.25}, {"weights": Formula("4*D^2", {"D": "whole"})})
    assert [problem.split()[0] for problem in facts.problems(text)] == ["2.66", "10", "3"]
    assert list(facts.problems(Text("1/5{slope}"))) == ["1/5 is bound to 0.25"]
    assert list(facts.problems(Text("`4*D^3`{weights}")))
    assert list(facts.problems(Text("`2^(-1075) = exp(-745.14)`")))
    assert not list(facts.problems(Text("`2^(-1075) = exp(-745.13)`")))
