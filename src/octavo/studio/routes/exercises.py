"""The exercises: the booklet, its evidence, the interactive ones, and the grader for a file of answers.

No request runs code: evidence and figures are octavo's own, computed in a process apart; a student's formulas are only
read, in a limited process; a student's Python file is not run at all.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, Field

from octavo.studio.server.app import RequestBody, Studio
from octavo.studio.server.html_tree import html_tree
from octavo.studio.server.model_cache import NotFound
from octavo.studio.server.scheduler import POLL_SECONDS, Ticket

if TYPE_CHECKING:  # heavy modules are imported when first needed, so that the studio starts quickly
    from octavo.exercises.framework.checking import CheckProcess
    from octavo.exercises.framework.exercise import Exercise

MAX_ANSWERS_CHARACTERS = 1 << 17  # the template with every exercise has half as many
MAX_ANSWER_SECONDS, MAX_ANSWER_BYTES = 5.0, 1 << 29
TOML_VALUES = {"True": "true", "False": "false"}
Name = Annotated[str, Path(max_length=100, pattern="^[A-Za-z0-9_-]+$")]
Tree = list[Any]  # see server/html_tree.py


class Listed(BaseModel):
    """An exercise in the list."""

    id: str
    title: str
    topic: str
    claims: int
    play: str  # the name of its interactive version, where there is one


class Claim(BaseModel):
    """A claim of an exercise."""

    id: str
    evidence: str  # its kind


class Opened(Listed):
    """An exercise."""

    parts: list[Claim]
    body: Tree
    figure: bool  # whether it has one, which is asked for apart: some take seconds


class Figure(BaseModel):
    """An exercise's figure."""

    figure: Tree


class Part(RequestBody):
    """The claim that is to be checked."""

    part: str = Field(max_length=100)


class Evidence(BaseModel):
    """What was found of a claim."""

    id: str
    evidence: str
    holds: bool
    found: str = ""
    expected: str = ""
    tolerance: str = ""
    note: str = ""
    seconds: float = 0.0
    problem: str = ""


class Answers(RequestBody):
    """A file of answers, as its text."""

    answers: str = Field(max_length=MAX_ANSWERS_CHARACTERS)


class Template(BaseModel):
    """An empty file of answers."""

    text: str


class Row(BaseModel):
    """One part, graded."""

    exercise: str
    part: str
    outcome: Literal["right", "only if", "wrong", "refused", "missing", "not run"]
    why: str
    points: float
    of: float
    answer: str
    reason: str


class Grades(BaseModel):
    """A file of answers, graded."""

    points: float
    of: float
    problem: str
    rows: list[Row]


class Playing(BaseModel):
    """Something that can be turned by hand."""

    name: str
    title: str
    exercise_id: str
    parameters: list[dict[str, Any]]


class Values(RequestBody):
    """What was set; the rest stands as it stood at first."""

    values: dict[str, float | str | list[list[float]]] = Field(default_factory=dict, max_length=20)


class Series(BaseModel):
    """One curve."""

    name: str
    points: list[tuple[float, float]]


class Seen(BaseModel):
    """What is seen with these values."""

    series: list[Series]
    axes: tuple[str, str]
    log: tuple[bool, bool]
    summary: str
    rows: list[list[str]] = []


def router(studio: Studio) -> APIRouter:
    routes = APIRouter(tags=["exercises"])
    book = Book()

    @routes.get("/exercises", response_model=list[Listed])
    async def exercises(request: Request) -> Any:
        """Every exercise, by topic."""
        return await studio.scheduler.run(request, lambda _: [book.row(name) for name in book.every()])

    @routes.get("/exercises/{name}", response_model=Opened)
    async def exercise(name: Name, request: Request) -> Any:
        """A question; its answer and the derivation of it are folded away."""
        return await studio.scheduler.run(request, lambda _: book.opened(name))

    @routes.get("/exercises/{name}/figure", response_model=Figure)
    async def figure(name: Name, request: Request) -> Any:
        """An exercise's figure, computed now."""
        return await studio.scheduler.run(request, book.figure, name)

    @routes.post("/exercises/{name}/check", response_model=Evidence)
    async def check(name: Name, asked: Part, request: Request) -> Any:
        """The evidence for one claim, computed now."""
        return await studio.scheduler.run(request, book.check, name, asked.part)

    @routes.get("/template", response_model=Template)
    async def template(request: Request, name: Annotated[str, Query(max_length=100)] = "") -> Any:
        """An empty file of answers, to one exercise or to all."""
        return await studio.scheduler.run(request, lambda _: {"text": book.template(name)})

    @routes.post("/grade", response_model=Grades)
    async def grade(asked: Answers, request: Request) -> Any:
        """A file of answers, graded. Python files that it names are not run."""
        return await studio.scheduler.run(request, book.grade, asked.answers)

    @routes.get("/playground", response_model=list[Playing])
    async def playground(request: Request) -> Any:
        """What can be turned by hand."""
        return await studio.scheduler.run(request, lambda _: [{"name": name, **play.describe()}
                                                         for name, play in book.plays().items()])  # fmt: skip

    @routes.post("/playground/{name}", response_model=Seen)
    async def play(name: Name, asked: Values, request: Request) -> Any:
        """What is seen with these values."""
        return await studio.scheduler.run(request, partial(_play, book), name, asked)

    return routes


def _play(book: Book, ticket: Ticket, name: str, asked: Values) -> dict[str, Any]:
    plays = book.plays()
    if name not in plays:
        raise NotFound(f"there is nothing called {name[:60]!r} to turn; there are {', '.join(plays)}")
    with ticket.turn():
        return plays[name].function(**asked.values)  # type: ignore[no-any-return]


class Book:
    """The exercises, and the process that computes for them."""

    def __init__(self) -> None:
        self._every: dict[str, tuple[str, Exercise]] = {}
        self._figures: dict[str, Tree] = {}
        self._apart: CheckProcess | None = None
        self._grading = threading.Lock()

    def every(self) -> dict[str, tuple[str, Exercise]]:
        """Topic and exercise by id; read when first asked for."""
        if not self._every:
            from octavo.exercises.framework.registry import exercises_by_topic

            self._every = {one.id: (topic, one) for topic, some in exercises_by_topic().items() for one in some}
        return self._every

    def plays(self) -> dict[str, Any]:
        """What can be turned by hand."""
        from octavo.exercises.framework.playground import PLAYGROUND

        return PLAYGROUND

    def _apart_now(self) -> CheckProcess:
        if self._apart is None:
            from octavo.exercises.framework.checking import CheckProcess

            self._apart = CheckProcess()
        return self._apart

    def _one(self, name: str) -> tuple[str, Exercise]:
        if name not in self.every():
            raise NotFound(f"there is no exercise {name[:60]!r}; the list shows those that are")
        return self.every()[name]

    def row(self, name: str) -> dict[str, Any]:
        topic, one = self._one(name)
        play = next((play for play, told in self.plays().items() if told.exercise_id == name), "")
        return {"id": name, "title": one.title, "topic": topic, "claims": len(one.parts), "play": play}

    def opened(self, name: str) -> dict[str, Any]:
        from octavo.exercises.framework.booklet import article

        _, one = self._one(name)
        self._apart_now().warm_up()  # whoever reads an exercise may want its evidence
        parts = [{"id": part.id, "evidence": part.kind} for part in one.parts]
        return {**self.row(name), "parts": parts, "body": html_tree(article(one, None, "")),
                "figure": one.figure is not None}  # fmt: skip

    def figure(self, ticket: Ticket, name: str) -> dict[str, Any]:
        self._one(name)
        if name not in self._figures:
            self._figures[name] = html_tree(self._apart_now().figure(name, ticket.check))
        return {"figure": self._figures[name]}

    def check(self, ticket: Ticket, name: str, part: str) -> dict[str, Any]:
        _, one = self._one(name)
        return self._apart_now().check(name, one.part(part).id, ticket.check)

    def template(self, name: str) -> str:
        from octavo.exercises.framework.grading import answer_template

        return answer_template([self._one(name)[1]] if name else [one for _, one in self.every().values()])

    def grade(self, ticket: Ticket, answers: str) -> dict[str, Any]:
        from octavo.exercises.framework.grading import grade_text
        from octavo.exercises.framework.limits import Limits
        from octavo.exercises.framework.mathml import prose_as_text

        every = [one for _, one in self.every().values()]
        while not self._grading.acquire(timeout=POLL_SECONDS):  # one process for it, however many wait
            ticket.check()
        try:
            found = grade_text(answers, every, Limits(MAX_ANSWER_SECONDS, MAX_ANSWER_BYTES), ticket.check)
        finally:
            self._grading.release()
        rows = [{**row._asdict(), "why": prose_as_text(row.why), "answer": TOML_VALUES.get(row.answer, row.answer)}
                for row in found.rows]  # fmt: skip
        return {"points": found.points, "of": found.of, "problem": found.problem, "rows": rows}
