"""Questions answered with a confidence, and when to abstain; a user's own answers can be stored in a file.

That file is `known-facts/RUN.db` in the runs' folder; no other is read or written.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field, ValidationError

from octavo.errors import UserError
from octavo.io.run_folder import CONFIG
from octavo.studio.routes.classify import Point, Share
from octavo.studio.server.app import RunRequest, Studio
from octavo.studio.server.computed_routes import ComputedRoutes
from octavo.studio.server.scheduler import Ticket
from octavo.studio.server.text_store import FACTS_FOLDER
from octavo.tasks.answering import Rules, other_answers, replies_to, what_words_did
from octavo.tasks.facts_file import Facts, open_file_of_facts
from octavo.tasks.facts_run import answering_run
from octavo.tasks.run import Run
from octavo.tasks.run_rows import is_unfinished, value_at

MAX_FACTS = 10_000  # in a file
OTHER_ANSWERS = 5  # shown beside the first


class Question(RunRequest):
    """A question, the run that answers it, and the least confidence of an answer."""

    question: str = Field(max_length=400)
    threshold: float = Field(default=0.5, ge=0, le=1)
    user_answer: str = Field(default="", max_length=200)  # stored where neither model nor facts have an answer


class QuestionScores(BaseModel):
    """The scores on some questions."""

    questions: int
    exact_match: float
    standard_error: float
    confidence: float
    ece: float
    curve: list[Point]


class AccuracyLevel(BaseModel):
    """The threshold above which answers have an accuracy."""

    wanted: float
    threshold: float
    coverage: float
    accuracy: float


class CommonestAnswer(BaseModel):
    """The most frequent answer of the training questions, and how often it is correct."""

    answer: str
    exact_match: float


class Measured(QuestionScores):
    """The scores on held-out questions."""

    at_accuracy: list[AccuracyLevel]
    commonest: CommonestAnswer
    groups: dict[str, QuestionScores]
    surest_mistakes: list[tuple[str, str, str, Share]]  # question, correct answer, given answer, confidence


def router(studio: Studio) -> APIRouter:
    routes = ComputedRoutes(studio, "answer")

    routes.compute("/oracle", about, studio, method="GET")
    routes.compute("/answer", answer, studio, place="process")
    return routes


def about(_: Ticket, studio: Studio, run: Annotated[str, Query(max_length=400)]) -> dict[str, str | Measured | None]:
    """A run that answers questions, what stands before and after a name in them, and how well it does."""
    record = studio.models.record(run)
    frame = value_at(record, "facts.frame")
    if not isinstance(frame, list) or len(frame) != 2 or is_unfinished(record):
        raise UserError(f"{run} was not trained to answer questions; choose one that was")
    studio.warm_up()  # whoever opens the page will ask
    try:
        measured = Measured.model_validate(record.get("result"))
    except ValidationError:  # the record is foreign
        measured = None
    return {"run": run, "before": str(frame[0]), "after": str(frame[1]), "measured": measured}


def answer(ticket: Ticket, studio: Studio, asked: Question) -> dict[str, Any]:
    """The answer to a question, or to a name alone: the model's where it is confident, else a stored one.

    asked: the question as the model gets it. source: model, facts, user or nobody. words: of the question, and how much
    the log-odds of the guess fall when one is left out.
    """
    oracle = answering_run(studio.models.get(asked.run, ticket, Run))
    facts = _facts(studio, asked.run)
    if asked.user_answer and facts is None:
        raise UserError(
            f"the studio shows one run alone, so there is no place for {FACTS_FOLDER}; start it on a folder of runs"
        )
    rules = Rules(asked.threshold, facts, lambda _: asked.user_answer)
    question = oracle.frame.question(oracle.frame.name_in(asked.question))
    with ticket.turn():
        if asked.user_answer and facts is not None and len(facts.pairs()) >= MAX_FACTS:
            raise UserError(f"{FACTS_FOLDER} may hold {MAX_FACTS:,} facts of a run, and does; teach it those first")
        try:
            [reply] = replies_to(oracle, [asked.question], rules)
        except OSError as error:
            raise UserError(f"the answer cannot be stored in {FACTS_FOLDER}: {error.strerror or error}") from error
    with ticket.turn():
        others = other_answers(oracle, reply, OTHER_ANSWERS)
    with ticket.turn():
        words = what_words_did(oracle, reply)
    return {**asdict(reply), "question": asked.question, "asked": question, "others": others, "words": words,
            "can_store": facts is not None}  # fmt: skip


def _facts(studio: Studio, run: str) -> Facts | None:
    """The file of users' own answers; None where the studio's folder is itself a run, which holds nothing else."""
    folder = studio.root / FACTS_FOLDER
    path = folder / f"{run}.db"
    if (studio.root / CONFIG).exists() or (folder / CONFIG).exists():
        return None
    if not path.resolve().is_relative_to(studio.root):
        raise UserError(f"{FACTS_FOLDER} leads out of the studio's folder; put a folder in place of the link")
    return open_file_of_facts(path)
