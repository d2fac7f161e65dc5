"""Exercises in a notebook: check an answer, look at a figure, play with one.

    from octavo.exercises.notebook import check, figure, play
    check("score-scale", "variance", "d*s^4 + 2*s^2*m")

Here the student's own code runs in the student's own process: for marks, use `octavo exercises grade`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from octavo.errors import UserError
from octavo.exercises.framework.answers import Function, Truth
from octavo.exercises.framework.exercise import Part
from octavo.exercises.framework.mathml import prose_as_text
from octavo.exercises.framework.playground import PLAYGROUND
from octavo.exercises.framework.registry import select_exercises
from octavo.pages.figures.charts import Series, lines
from octavo.pages.markup import join
from octavo.pages.sections import notebook_view, paragraph


@dataclass(frozen=True)
class Shown:
    """What a notebook shows: HTML where it can, else a line of text."""

    text: str
    body: Markup | None = None

    def _repr_html_(self) -> str | None:
        return notebook_view(self.body) if self.body is not None else None

    def __repr__(self) -> str:
        return self.text


def is_right(exercise: str, part: str, answer: Any) -> bool:
    """Whether an answer is right; for a function answer, the function itself."""
    asked = _find(exercise, part).answer
    return _names_condition(asked, answer) if _is_nearly(asked) else asked.compare(answer) is None


def _is_nearly(answer: Any) -> bool:
    return isinstance(answer, Truth) and answer.right == "nearly"


def _names_condition(answer: Any, given: Any) -> bool:
    """Whether an answer to a nearly true statement names the condition: "only if ..."."""
    verdict, condition = answer.read(given)
    return verdict == "nearly" and bool(condition) and answer.condition.compare(condition) is None


def check(exercise: str, part: str, answer: Any) -> Shown:
    """Whether an answer is right and, if it is a common mistake, which; the right answer is not shown."""
    asked = _find(exercise, part)
    if isinstance(answer, str) and not answer.strip():
        return Shown("no answer yet")
    if callable(answer):
        try:
            answer = [answer(*case) for case in asked.answer.cases]  # type: ignore[union-attr]
        except NotImplementedError:
            return Shown("no answer yet")
        except Exception as error:  # whatever the student's function raises is its answer
            return Shown(f"not right: it raises {type(error).__name__}: {error}")
    try:
        if is_right(exercise, part, answer):
            return Shown("right")
        if _is_nearly(asked.answer) and asked.answer.verdict(answer) != "true":  # type: ignore[union-attr]
            return Shown('it does not always hold; name the condition under which it does: "only if ..."')
        wrong = {name: _comparable(asked.answer, other) for name, other in asked.wrong.items()}
        mistake = next((name for name, other in wrong.items() if asked.answer.compare(answer, other) is None), "")
    except UserError as error:
        return Shown(f"cannot be read: {error}")
    return Shown(f"not right: {prose_as_text(mistake)}" if mistake else "not right")


def _comparable(answer: Any, wrong: Any) -> Any:
    """A wrong answer in the form that `compare` takes: a verdict, a function's results, or itself."""
    if isinstance(answer, Truth):
        return answer.verdict(wrong)
    return [wrong(*case) for case in answer.cases] if isinstance(answer, Function) else wrong


def figure(exercise: str) -> Shown:
    """The figure of an exercise."""
    (one,) = select_exercises([exercise])
    if one.figure is None:
        raise UserError(f"the exercise {exercise} has no figure")
    return Shown(f"the figure of {one.title}", Markup(one.figure()))


def play(name: str, **settings: Any) -> Shown:
    """An interactive exercise with these settings: its curves and what they show. Change a setting and run it again."""
    if name not in PLAYGROUND:
        raise UserError(f"there is no interactive exercise {name!r}; there are {', '.join(PLAYGROUND)}")
    found = PLAYGROUND[name].function(**settings)
    curves = [Series(one["name"], [tuple(point) for point in one["points"]]) for one in found["series"]]
    log_x, log_y = found["log"]
    drawn = lines(curves, PLAYGROUND[name].title, tuple(found["axes"]), log_y, log_x)
    return Shown(found["summary"], join(paragraph(found["summary"]), drawn))


def solution(exercise: str, part: str) -> Any:
    """The right answer: a function for a part that asks for one. The notebooks with solutions use it."""
    return _find(exercise, part).answer.right


def _find(exercise: str, part: str) -> Part:
    (one,) = select_exercises([exercise])
    return one.part(part)
