"""Text classification: the probability of each class, the contribution of every word, and when to abstain."""

from __future__ import annotations

from typing import Annotated, Any

import torch
from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field, ValidationError

from octavo.datasets.labels import labelled_in
from octavo.errors import UserError
from octavo.scoring.classification import classified
from octavo.studio.server.app import RequestBody, Studio
from octavo.studio.server.scheduler import Ticket
from octavo.tasks.classifier import Classifier
from octavo.tasks.run_rows import value_at
from octavo.tasks.word_contributions import explain, logits_in_turns

MAX_TEXT_CHARACTERS = 10_000  # leaving out each word in turn takes time with the square of it
MAX_EXAMPLES_CHARACTERS, MAX_EXAMPLES = 1 << 20, 20_000
Share = Annotated[float, Field(ge=0, le=1)]
Point = tuple[Share, Share, Share]  # threshold, coverage, accuracy


class Text(RequestBody):
    """A text, and the run that classifies it."""

    run: str = Field(max_length=400)
    text: str = Field(max_length=MAX_TEXT_CHARACTERS)


class Examples(RequestBody):
    """Labelled examples, a line each: label, tab, text."""

    run: str = Field(max_length=400)
    examples: str = Field(max_length=MAX_EXAMPLES_CHARACTERS)


class Probabilities(BaseModel):
    """Every class, the most probable first."""

    classes: list[tuple[str, float]]


class WordContributions(BaseModel):
    """The contribution of each word to the predicted class."""

    answer: str
    confidence: float
    words: list[str]
    contributions: list[float]  # how much the answer's log-odds fall when the word is left out
    shuffled: list[float]  # p(answer) with the words in other orders
    order_blind: bool
    verdict: str


class ClassScores(BaseModel):
    """The scores of one class."""

    name: str = Field(alias="class")
    examples: int
    precision: float
    recall: float
    f1: float


class Measured(BaseModel):
    """The scores on held-out examples."""

    examples: int
    accuracy: float
    standard_error: float
    macro_f1: float
    log_loss: float | None
    brier: float
    ece: float
    classes: list[str]
    confusion: list[list[int]]  # row: the true class; column: the predicted class
    per_class: list[ClassScores]
    curve: list[Point] = []  # empty where the run does not have it


class About(BaseModel):
    """A classifier."""

    run: str
    model: str
    classes: list[str]
    temperature: float | None  # that logits are divided by
    calibrated: bool
    measured: Measured | None


def router(studio: Studio) -> APIRouter:
    routes = APIRouter(tags=["classify"])

    @routes.get("/classifier", response_model=About)
    def about(run: Annotated[str, Query(max_length=400)]) -> Any:
        """A classifier and its scores."""
        return _about(studio, run)

    @routes.post("/classify", response_model=Probabilities)
    async def classify(asked: Text, request: Request) -> Any:
        """How probable each class is for a text."""
        return await studio.scheduler.run(request, _classify, studio, asked)

    @routes.post("/classify/words", response_model=WordContributions)
    async def words(asked: Text, request: Request) -> Any:
        """The contribution of each word to the predicted class, exactly: by leaving it out."""
        return await studio.scheduler.run(request, _words, studio, asked)

    @routes.post("/classify/measure", response_model=Measured)
    async def measure(asked: Examples, request: Request) -> Any:
        """The scores of a classifier on one's own examples, and its accuracy over coverage."""
        return await studio.scheduler.run(request, _measure, studio, asked)

    return routes


def _about(studio: Studio, name: str) -> dict[str, Any]:
    record = studio.models.record(name)
    if record.get("task") != Classifier.task:
        raise _not_a_classifier(name)
    classes = record.get("classes")
    try:
        measured = Measured.model_validate(record.get("result"))
    except ValidationError:  # not measured, or the record is foreign
        measured = None
    temperature = record.get("temperature")
    return {
        "run": name, "model": str(record.get("model", "")),
        "classes": [str(one) for one in classes] if isinstance(classes, list) else [],
        "temperature": temperature if isinstance(temperature, float) else None,
        "calibrated": value_at(record, "training.settings.calibrate") is True,
        "measured": measured.model_dump(by_alias=True) if measured else None,
    }  # fmt: skip


def _not_a_classifier(name: str) -> UserError:
    return UserError(f"{name} does not classify texts; choose a classifier")


def _get(studio: Studio, name: str, ticket: Ticket) -> Classifier:
    found = studio.models.get(name, ticket)
    if not isinstance(found, Classifier):
        raise _not_a_classifier(name)
    return found


def _classify(ticket: Ticket, studio: Studio, asked: Text) -> dict[str, Any]:
    made = _get(studio, asked.run, ticket)
    with ticket.turn():
        p_C = made.probabilities([asked.text])[0]
    ranked = p_C.sort(descending=True, stable=True)
    return {"classes": [(made.classes[c], p) for c, p in zip(ranked.indices.tolist(), ranked.values.tolist(),
                                                             strict=True)]}  # fmt: skip


def _words(ticket: Ticket, studio: Studio, asked: Text) -> dict[str, Any]:
    made = _get(studio, asked.run, ticket)
    [explanation] = explain(made, [asked.text], [None], turn=ticket.turn)
    return {**explanation.to_json(), "verdict": explanation.verdict()}


def _measure(ticket: Ticket, studio: Studio, asked: Examples) -> dict[str, Any]:
    made = _get(studio, asked.run, ticket)
    data = labelled_in(asked.examples, made.classes, MAX_EXAMPLES)
    p_NC = logits_in_turns(made, data.texts, ticket.turn).softmax(1)
    return classified(p_NC, torch.from_numpy(data.y_N), made.classes).to_json()
