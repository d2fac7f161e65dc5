"""The questions that courses set, by source and number, with the exercises and parts that answer them.

To add a set, write one module here that ends with `SET = QuestionSet(...)` and add it to `QUESTION_SETS`. Questions are
put in our own words; `usual` names an answer that is often given and wrong, and the part whose evidence refutes it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator

from octavo.errors import UserError
from octavo.exercises.question_sets import bishop, cs224n, laboratory, language_models, prince
from octavo.exercises.question_sets.question import QuestionSet, SourceQuestion, UsualAnswer

__all__ = [
    "QUESTION_SETS",
    "QuestionSet",
    "SourceQuestion",
    "UsualAnswer",
    "exercises_by_source",
    "find_question_set",
    "tags_of",
    "usual_answers",
]  # fmt: skip

QUESTION_SETS: dict[str, QuestionSet] = {
    one.SET.id: one.SET for one in (bishop, prince, cs224n, language_models, laboratory)
}


def find_question_set(name: str) -> QuestionSet:
    """The set with this id."""
    if name.lower() in QUESTION_SETS:
        return QUESTION_SETS[name.lower()]
    similar = difflib.get_close_matches(name.lower(), QUESTION_SETS, 1)
    remedy = f"did you mean {similar[0]}?" if similar else f"the sources are {', '.join(QUESTION_SETS)}"
    raise UserError(f"there is no source {name!r}; {remedy}")


def exercises_by_source() -> dict[str, list[str]]:
    """The exercises for each source, "bishop", and for each of its questions, "bishop 12.6" or "bishop 12.6a"."""
    groups: dict[str, dict[str, None]] = {}
    for one in QUESTION_SETS.values():
        for question in one.questions:
            whole = re.match(r"[\d.]*\d|\w+", question.number)  # 12.6 of 12.6a
            assert whole is not None
            for name in (one.id, f"{one.id} {question.number}", f"{one.id} {whole[0]}"):
                groups.setdefault(name, {}).update(dict.fromkeys(part.split(".")[0] for part in question.all_parts))
    return {name: list(exercises) for name, exercises in groups.items()}


def _questions_of(exercise: str, part: str | None = None) -> Iterator[tuple[QuestionSet, SourceQuestion]]:
    """The questions that an exercise, or one part of it, answers."""
    for one in QUESTION_SETS.values():
        for question in one.questions:
            if any(
                name.split(".")[0] == exercise and part in (None, name.split(".")[1]) for name in question.all_parts
            ):
                yield one, question


def tags_of(exercise: str, part: str | None = None) -> list[str]:
    """The source and number of each of these questions, such as "bishop 12.6a"."""
    return [f"{one.id} {question.number}" for one, question in _questions_of(exercise, part)]


def usual_answers(exercise: str) -> list[str]:
    """What is often answered instead, with source and number, where a part of this exercise refutes it."""
    return [
        f"Usual answer to {one.id} {question.number}: {question.usual.text}. Why it fails: {question.usual.why_wrong} "
        f"(see {question.usual.part.split('.')[1]})."
        for one in QUESTION_SETS.values() for question in one.questions
        if question.usual is not None and question.usual.part.split(".")[0] == exercise
    ]  # fmt: skip
