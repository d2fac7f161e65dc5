"""Questions answered with a confidence, and when to abstain; what the user knows instead can be kept in a file.

That file lies in the runs' folder, `known-facts/RUN.db`; no other is read or written.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field, ValidationError

from octavo.errors import UserError
from octavo.io.run_folder import CONFIG
from octavo.studio.routes.classify import Point, Share
from octavo.studio.routes.read import language_model
from octavo.studio.server.app import RequestBody, Studio
from octavo.studio.server.scheduler import Ticket
from octavo.studio.server.text_store import FACTS_FOLDER
from octavo.tasks.answering import Rules, other_answers, replies_to, what_words_did
from octavo.tasks.facts_file import Facts, open_file_of_facts
from octavo.tasks.facts_run import DONE, oracle_of

MAX_FACTS = 10_000  # in a file
OTHERS = 5  # answers that are shown beside the first


class Question(RequestBody):
    """Which run is asked what, and how sure it must be."""

    run: str = Field(max_length=400)
    question: str = Field(max_length=400)
    threshold: float = Field(default=0.5, ge=0, le=1)
    told: str = Field(default="", max_length=200)  # what the user knows; it is kept where nobody else knows


class Reply(BaseModel):
    """An answer, who gave it, and what the model would have said."""

    question: str
    asked: str  # as the model was asked
    answer: str | None
    source: str  # model, facts, user, nobody
    guess: str
    confidence: float
    others: list[tuple[str, float]]
    words: list[tuple[str, float]]  # of the question; how much the log-odds of the guess fall when one is left out
    stored: bool
    can_keep: bool


class Oracle(BaseModel):
    """A run that answers questions."""

    run: str
    corpus: str
    before: str  # what stands around a name in its questions
    after: str


class Judged(BaseModel):
    """What was measured on some questions."""

    questions: int
    exact_match: float
    standard_error: float
    confidence: float
    ece: float
    curve: list[Point]


class Level(BaseModel):
    """The threshold above which answers are right so often."""

    wanted: float
    threshold: float
    coverage: float
    accuracy: float


class Commonest(BaseModel):
    """The answer that was learnt most often, and how often it is right."""

    answer: str
    exact_match: float


class Measured(Judged):
    """All that was measured on questions that were not learnt."""

    at_accuracy: list[Level]
    commonest: Commonest
    groups: dict[str, Judged]
    surest_mistakes: list[tuple[str, str, str, Share]]  # question, right, said, confidence


class About(Oracle):
    """A run that answers questions, and how well."""

    measured: Measured | None


def router(studio: Studio) -> APIRouter:
    routes = APIRouter(tags=["answer"])

    @routes.get("/oracles", response_model=list[Oracle])
    def oracles() -> Any:
        """The runs that answer questions."""
        return [found for name in studio.models.names() if (found := _oracle(studio, name))]

    @routes.get("/oracle", response_model=About)
    def about(run: Annotated[str, Query(max_length=400)]) -> Any:
        """A run that answers questions, and how well."""
        studio.models.path(run)  # one that is not there is told as such
        found = _oracle(studio, run)
        if found is None:
            raise UserError(f"{run} was not trained to answer questions; choose one that was")
        try:
            measured = Measured.model_validate(studio.models.record(run).get("result"))
        except ValidationError:  # the record is foreign
            measured = None
        return {**found, "measured": measured}

    @routes.post("/answer", response_model=Reply)
    async def answer(asked: Question, request: Request) -> Any:
        """The answer to a question, or to a name alone: the model's where it is sure, else what was kept."""
        return await studio.scheduler.run(request, _answer, studio, asked)

    return routes


def _oracle(studio: Studio, name: str) -> dict[str, Any] | None:
    """What the list says of a run, where it answers questions."""
    try:
        told = studio.models.record(name)
    except UserError:
        return None
    facts, corpus = told.get("facts"), told.get("corpus")
    if not isinstance(facts, dict) or facts.get("stage") != DONE:
        return None
    frame = facts.get("frame")
    if not isinstance(frame, list) or len(frame) != 2:
        return None
    return {"run": name, "corpus": str(corpus.get("name", "")) if isinstance(corpus, dict) else "",
            "before": str(frame[0]), "after": str(frame[1])}  # fmt: skip


def _answer(ticket: Ticket, studio: Studio, asked: Question) -> dict[str, Any]:
    oracle = oracle_of(language_model(studio, asked.run, ticket))
    facts = _kept(studio, asked.run)
    if asked.told and facts is None:
        raise UserError(
            f"the studio shows one run alone, so there is no place for {FACTS_FOLDER}; start it on a folder of runs"
        )
    rules = Rules(asked.threshold, facts, lambda _: asked.told)
    question = oracle.frame.question(oracle.frame.name_in(asked.question))
    with ticket.turn():
        if asked.told and facts is not None and len(facts.pairs()) >= MAX_FACTS:
            raise UserError(f"{FACTS_FOLDER} may hold {MAX_FACTS:,} facts of a run, and does; teach it those first")
        try:
            [reply] = replies_to(oracle, [asked.question], rules)
        except OSError as error:
            raise UserError(f"the answer cannot be kept in {FACTS_FOLDER}: {error.strerror or error}") from error
    with ticket.turn():
        others = other_answers(oracle, reply, OTHERS)
    with ticket.turn():
        words = what_words_did(oracle, reply)
    return {
        "question": asked.question, "asked": question, "answer": reply.answer, "source": reply.source,
        "guess": reply.guess, "confidence": reply.confidence, "others": others, "words": words,
        "stored": reply.stored, "can_keep": facts is not None,
    }  # fmt: skip


def _kept(studio: Studio, run: str) -> Facts | None:
    """The file of what users have said; None where the studio's folder is a run, which holds nothing else."""
    folder = studio.root / FACTS_FOLDER
    path = folder / f"{run}.db"
    if (studio.root / CONFIG).exists() or (folder / CONFIG).exists():
        return None
    if not path.resolve().is_relative_to(studio.root):
        raise UserError(f"{FACTS_FOLDER} leads out of the studio's folder; put a folder in place of the link")
    return open_file_of_facts(path)
