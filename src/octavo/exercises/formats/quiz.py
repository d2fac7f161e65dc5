"""Questions that a learning platform can grade by itself: a number within a tolerance, or one of several options."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from octavo.exercises.framework.answers import Choice, Function, Number, Truth, read_number
from octavo.exercises.framework.exercise import Exercise, Part
from octavo.exercises.framework.mathml import prose_as_text
from octavo.exercises.framework.variants import at_point

AS_STATED, UNDER_A_CONDITION, NEVER = "True, as it is stated", "Not as stated, but under a condition", "False"


@dataclass(frozen=True)
class Option:
    """One option of a choice."""

    text: str
    is_right: bool


@dataclass(frozen=True)
class Question:
    """One question of a quiz, in plain text: a number if there are no options."""

    id: str  # exercise/part, and #1, #2 for variants
    title: str
    text: str
    points: float
    feedback: str  # the derivation, shown after the quiz
    options: tuple[Option, ...] = ()
    number: float = 0.0
    tolerance: float = 0.0  # absolute
    mistakes: tuple[tuple[float, str], ...] = ()  # wrong numbers, and the mistake that leads to each


def quiz_questions(exercises: Sequence[Exercise], variants: int = 1, seed: int = 0) -> list[Question]:
    """The questions of these exercises. A formula is asked for at `variants` points; functions cannot be asked for."""
    return [question for one in exercises for part in one.parts for question in _questions(one, part, variants, seed)]


def left_out(exercises: Sequence[Exercise]) -> list[str]:
    """The parts that no quiz can ask for: Python functions, and formulas without a value that can be typed."""
    asked = {question.id.split("#")[0] for question in quiz_questions(exercises)}
    names = [f"{one.id}/{part.id}" for one in exercises for part in one.parts]
    return [name for name in names if name not in asked]


def _questions(exercise: Exercise, part: Part, variants: int, seed: int) -> Iterator[Question]:
    name = f"{exercise.id}/{part.id}"
    if isinstance(part.answer, Truth | Choice):
        yield _choice(exercise, part, name)
    elif isinstance(part.answer, Number):
        yield _number(exercise, part, name)
    elif not isinstance(part.answer, Function):
        for place in range(variants):
            asked = at_point(part, random.Random(f"{seed}/{name}/{place}"))
            if isinstance(asked.answer, Number):
                yield _number(exercise, asked, f"{name}#{place + 1}" if variants > 1 else name)


def _choice(exercise: Exercise, part: Part, name: str) -> Question:
    answer = part.answer
    assert isinstance(answer, Truth | Choice)
    if isinstance(answer, Choice):
        options = [Option(prose_as_text(text), name == answer.right) for name, text in answer.options.items()]
    else:
        options = _verdicts(answer)
    ask = f"True or false? {part.ask}" if isinstance(answer, Truth) else part.ask
    return Question(name, *_texts(exercise, part, ask), options=tuple(options))


def _verdicts(answer: Truth) -> list[Option]:
    """True, false, and each condition that is offered."""
    right, conditions = "", {"": UNDER_A_CONDITION}
    if isinstance(answer.condition, Choice):
        right = answer.condition.right
        conditions = {name: f"Not as stated, but if {text}" for name, text in answer.condition.options.items()}
    under = [Option(prose_as_text(text), answer.right == "nearly" and name == right)
             for name, text in conditions.items()]  # fmt: skip
    return [Option(AS_STATED, answer.right == "true"), *under, Option(NEVER, answer.right == "false")]


def _number(exercise: Exercise, part: Part, name: str) -> Question:
    answer = part.answer
    assert isinstance(answer, Number)
    right = read_number(answer.right)
    mistakes = [(read_number(given), mistake) for mistake, given in part.wrong.items()]
    return Question(
        name, *_texts(exercise, part, part.ask), number=right, tolerance=answer.allowed(right),
        mistakes=tuple((x, prose_as_text(mistake)) for x, mistake in mistakes),
    )  # fmt: skip


def _texts(exercise: Exercise, part: Part, ask: str) -> tuple[str, str, float, str]:
    text = f"{prose_as_text(exercise.question)}\n\n{prose_as_text(ask)}"
    return f"{exercise.title} ({part.id})", text, part.points, prose_as_text(part.why)
