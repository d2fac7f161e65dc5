"""The exercises: the booklet, its evidence, the interactive ones, and the grader for a file of answers.

No request runs code: evidence and figures are octavo's own, computed in a process apart; a student's formulas are only
read, in a limited process; a student's Python file is not run at all.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Annotated, Any
from xml.etree import ElementTree

from fastapi import APIRouter, Path, Query
from pydantic import Field

from octavo.studio.server.app import RequestBody, Studio
from octavo.studio.server.computed_routes import ComputedRoutes
from octavo.studio.server.model_cache import NotFound
from octavo.studio.server.result_cache import acquired
from octavo.studio.server.scheduler import Ticket

if TYPE_CHECKING:  # heavy modules are imported when first needed, so that the studio starts quickly
    from octavo.exercises.framework.checking import CheckProcess
    from octavo.exercises.framework.exercise import Exercise

MAX_ANSWERS_CHARACTERS = 1 << 17  # the template with every exercise has half as many
MAX_ANSWER_SECONDS, MAX_ANSWER_BYTES = 5.0, 1 << 29
TOML_VALUES = {"True": "true", "False": "false"}
ExerciseName = Annotated[str, Path(max_length=100, pattern="^[A-Za-z0-9_-]+$")]
Values = dict[str, float | str | list[list[float]]]


class CheckRequest(RequestBody):
    """The claim that is to be checked."""

    part: str = Field(max_length=100)


class GradeRequest(RequestBody):
    """A file of answers, as its text."""

    answers: str = Field(max_length=MAX_ANSWERS_CHARACTERS)


class PlayRequest(RequestBody):
    """The inputs that were set; the others have their defaults."""

    values: Values = Field(default_factory=dict, max_length=20)


def router(studio: Studio) -> APIRouter:
    routes, book = ComputedRoutes(studio, "exercises"), Book()
    routes.compute("/exercises", book.exercises, method="GET")
    routes.compute("/exercises/{name}", book.exercise, method="GET")
    routes.compute("/exercises/{name}/figure", book.figure, method="GET", place="exercise")
    routes.compute("/exercises/{name}/check", book.check, place="exercise")
    routes.compute("/template", book.template, method="GET")
    routes.compute("/grade", book.grade, place="exercise")
    routes.compute("/playground", book.playground, method="GET")
    routes.compute("/playground/{name}", book.play)
    return routes


class Book:
    """The exercises, and the process that computes for them. Every public method is a route."""

    def __init__(self) -> None:
        self._topics: dict[str, tuple[str, Exercise]] = {}
        self._figures: dict[str, list[Any]] = {}  # as html_tree gives them
        self._process: CheckProcess | None = None
        self._grading = threading.Lock()

    def exercises(self, ticket: Ticket) -> list[dict[str, Any]]:
        """Every exercise, by topic; `play` is the name of its interactive version, where there is one."""
        return [self._row(name) for name in self._by_id()]

    def exercise(self, ticket: Ticket, name: ExerciseName) -> dict[str, Any]:
        """A question, its answer folded away; `figure` says whether it has one, which may take seconds."""
        from octavo.exercises.framework.booklet import article

        exercise = self._find(name)
        self._check_process().warm_up()  # whoever reads an exercise may want its evidence
        parts = [{"id": part.id, "evidence": part.kind} for part in exercise.parts]
        return {**self._row(name), "parts": parts, "body": html_tree(article(exercise, None, "")),
                "figure": exercise.figure is not None}  # fmt: skip

    def figure(self, ticket: Ticket, name: ExerciseName) -> dict[str, Any]:
        """An exercise's figure, computed now."""
        self._find(name)
        if name not in self._figures:
            self._figures[name] = html_tree(self._check_process().figure(name, ticket.check))
        return {"figure": self._figures[name]}

    def check(self, ticket: Ticket, name: ExerciseName, asked: CheckRequest) -> dict[str, Any]:
        """The evidence for one claim, computed now."""
        return self._check_process().check(name, self._find(name).part(asked.part).id, ticket.check)

    def template(self, ticket: Ticket, name: Annotated[str, Query(max_length=100)] = "") -> dict[str, str]:
        """An empty file of answers, to one exercise or to all."""
        from octavo.exercises.framework.grading import answer_template

        return {"text": answer_template([self._find(name)] if name else [one for _, one in self._by_id().values()])}

    def grade(self, ticket: Ticket, asked: GradeRequest) -> dict[str, Any]:
        """A file of answers, graded. Python files that it names are not run."""
        from octavo.exercises.framework.grading import grade_text
        from octavo.exercises.framework.limits import Limits
        from octavo.exercises.framework.mathml import prose_as_text

        exercises = [one for _, one in self._by_id().values()]
        with acquired(self._grading, ticket):  # one process for it, however many wait
            graded = grade_text(asked.answers, exercises, Limits(MAX_ANSWER_SECONDS, MAX_ANSWER_BYTES), ticket.check)
        rows = []
        for row in graded.rows:
            shown = TOML_VALUES.get(row.answer, row.answer)
            rows.append({**row._asdict(), "why": prose_as_text(row.explanation), "answer": shown})
        return {"points": graded.points, "of": graded.of, "problem": graded.problem, "rows": rows}

    def playground(self, ticket: Ticket) -> list[dict[str, Any]]:
        """The interactive exercises."""
        return [{"name": name, **play.describe()} for name, play in self._plays().items()]

    def play(self, ticket: Ticket, name: ExerciseName, asked: PlayRequest) -> dict[str, Any]:
        """The curves of an interactive exercise with these values."""
        plays = self._plays()
        if name not in plays:
            raise NotFound(f"there is nothing called {name[:60]!r} to turn; there are {', '.join(plays)}")
        with ticket.turn():
            return {"rows": [], **plays[name].function(**asked.values)}

    def _by_id(self) -> dict[str, tuple[str, Exercise]]:
        """Topic and exercise by id; read when first asked for."""
        if not self._topics:
            from octavo.exercises.framework.registry import exercises_by_topic

            self._topics = {one.id: (topic, one) for topic, some in exercises_by_topic().items() for one in some}
        return self._topics

    def _plays(self) -> dict[str, Any]:
        from octavo.exercises.framework.playground import PLAYGROUND

        return PLAYGROUND

    def _check_process(self) -> CheckProcess:
        if self._process is None:
            from octavo.exercises.framework.checking import CheckProcess

            self._process = CheckProcess()
        return self._process

    def _find(self, name: str) -> Exercise:
        if name not in self._by_id():
            raise NotFound(f"there is no exercise {name[:60]!r}; the list shows those that are")
        return self._by_id()[name][1]

    def _row(self, name: str) -> dict[str, Any]:
        topic, exercise = self._by_id()[name]
        play = next((play for play, about in self._plays().items() if about.exercise_id == name), "")
        return {"id": name, "title": exercise.title, "topic": topic, "claims": len(exercise.parts), "play": play}


def html_tree(html: str) -> list[Any]:
    """Octavo's own HTML, well-formed XML, as nested lists, from which the page makes elements: it never parses HTML.

    <p class="quiet">a <b>word</b></p>   ->   ["p", {"class": "quiet"}, "a ", ["b", {}, "word"]]
    """
    return _children(ElementTree.fromstring(f"<all>{html}</all>"))


def _children(node: ElementTree.Element) -> list[Any]:
    found: list[Any] = [node.text] if node.text and (node.text.strip() or len(node)) else []
    for child in node:
        found.append([child.tag, dict(child.attrib), *_children(child)])
        if child.tail:
            found.append(child.tail)
    return found
