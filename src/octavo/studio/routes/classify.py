"""Text classification: the probability of each class, the contribution of every word, and when to abstain."""

from __future__ import annotations

from typing import Annotated, Any

import torch
from fastapi import APIRouter, Query
from pydantic import BaseModel, Field, ValidationError

from octavo.datasets.labels import labelled_in
from octavo.errors import UserError
from octavo.scoring.metrics import classified
from octavo.studio.server.app import RunRequest, Studio
from octavo.studio.server.computed_routes import ComputedRoutes
from octavo.studio.server.scheduler import Ticket
from octavo.tasks.classifier import Classifier
from octavo.tasks.run_rows import value_at
from octavo.tasks.word_contributions import explain, logits_in_turns

MAX_TEXT_CHARACTERS = 10_000  # leaving out each word in turn takes time with the square of it
MAX_EXAMPLES_CHARACTERS, MAX_EXAMPLES = 1 << 20, 20_000
Share = Annotated[float, Field(ge=0, le=1)]
Point = tuple[Share, Share, Share]  # threshold, coverage, accuracy


class Text(RunRequest):
    """A text, and the run that classifies it."""

    text: str = Field(max_length=MAX_TEXT_CHARACTERS)


class Examples(RunRequest):
    """Labelled examples, a line each: label, tab, text."""

    examples: str = Field(max_length=MAX_EXAMPLES_CHARACTERS)


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


def router(studio: Studio) -> APIRouter:
    routes = ComputedRoutes(studio, "classify")

    routes.compute("/classifier", about, studio, method="GET")
    routes.compute("/classify", classify, studio, place="process")
    routes.compute("/classify/words", words, studio, place="process")
    routes.compute("/classify/measure", measure, studio, place="process", response_model=Measured)
    return routes


def about(_: Ticket, studio: Studio, run: Annotated[str, Query(max_length=400)]) -> dict[str, Any]:
    """A classifier, the temperature that its logits are divided by, and its scores on held-out examples."""
    record = studio.models.record(run)
    if record.get("task") != Classifier.task:
        raise UserError(f"{run} does not classify texts; choose a classifier")
    studio.warm_up()  # whoever opens the page will classify
    classes, temperature = record.get("classes"), record.get("temperature")
    try:
        measured = Measured.model_validate(record.get("result")).model_dump(by_alias=True)
    except ValidationError:  # not measured, or the record is foreign
        measured = None
    return {
        "run": run, "model": str(record.get("model", "")),
        "classes": [str(one) for one in classes] if isinstance(classes, list) else [],
        "temperature": temperature if isinstance(temperature, float) else None,
        "calibrated": value_at(record, "training.settings.calibrate") is True, "measured": measured,
    }  # fmt: skip


def classify(ticket: Ticket, studio: Studio, asked: Text) -> dict[str, Any]:
    """How probable each class is for a text, the most probable first."""
    classifier = studio.models.get(asked.run, ticket, Classifier)
    with ticket.turn():
        p_C = classifier.probabilities([asked.text])[0].tolist()
    return {"classes": sorted(zip(classifier.classes, p_C, strict=True), key=lambda pair: -pair[1])}


def words(ticket: Ticket, studio: Studio, asked: Text) -> dict[str, Any]:
    """The contribution of each word to the predicted class, exactly: by leaving it out.

    contributions: how much the answer's log-odds fall then. shuffled: p(answer) with the words in other orders.
    """
    [explanation] = explain(studio.models.get(asked.run, ticket, Classifier), [asked.text], [None], turn=ticket.turn)
    return {**explanation.to_json(), "verdict": explanation.verdict()}


def measure(ticket: Ticket, studio: Studio, asked: Examples) -> dict[str, Any]:
    """The scores of a classifier on one's own examples, and its accuracy over coverage."""
    classifier = studio.models.get(asked.run, ticket, Classifier)
    data = labelled_in(asked.examples, classifier.classes, MAX_EXAMPLES)
    p_NC = logits_in_turns(classifier, data.texts, ticket.turn).softmax(1)
    return classified(p_NC, torch.from_numpy(data.y_N), classifier.classes).to_json()
