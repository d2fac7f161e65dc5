"""Inside a model: which views a run has, and those of its counts and its layers over a text."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from octavo.errors import UserError
from octavo.models import GPT, Bag, Bigram, Mix, NGram, RNNAttention
from octavo.studio.routes import inspect_attention, inspect_counts, inspect_images, inspect_layers
from octavo.studio.server.app import MAX_TEXT_CHARACTERS, RequestBody, Studio
from octavo.studio.server.model_cache import Loaded
from octavo.studio.server.scheduler import Ticket
from octavo.tasks.classifier import Classifier
from octavo.tasks.encoder import Encoder
from octavo.tasks.image_run import ImageRun
from octavo.tasks.translator import Translator

VIEWS = {  # in the order of the tabs
    "backoff": "Back-off", "votes": "Votes", "bag": "Bag", "attention": "Attention", "heads": "Heads",
    "gates": "Gates and state", "depths": "Depth by depth", "flow": "Gradient", "fill": "Fill in", "image": "Image",
}  # fmt: skip


class About(RequestBody):
    """Which run."""

    run: str = Field(max_length=400)


class View(BaseModel):
    """One tab."""

    view: str
    title: str


class Inside(BaseModel):
    """What can be looked at in a run."""

    family: str
    told: str  # the run in a line
    views: list[View]
    languages: list[str]  # that it translates into
    held_out: int  # images that can be looked at by number
    text: int  # letters that a text may have


def router(studio: Studio) -> APIRouter:
    routes = APIRouter(tags=["inspect"])
    pictures = inspect_images.Pictures()

    @routes.post("/inspect/about", response_model=Inside)
    async def about(asked: About, request: Request) -> Any:
        """Which views a run has."""
        return await studio.scheduler.run(request, _about, studio, asked, pictures)

    routes.include_router(inspect_counts.router(studio))
    routes.include_router(inspect_attention.router(studio))
    routes.include_router(inspect_layers.router(studio))
    routes.include_router(inspect_images.router(studio, pictures))
    return routes


def _about(ticket: Ticket, studio: Studio, asked: About, pictures: inspect_images.Pictures) -> dict[str, Any]:
    found = studio.models.get(asked.run, ticket)
    if isinstance(found, Classifier):
        raise UserError(f"{asked.run} classifies texts: the page Classify takes its answers apart")
    family, views = views_of(found)
    titles = VIEWS | ({"attention": "Alignment"} if isinstance(found, Translator) else {})
    return {
        "family": family, "told": _summary(found),
        "views": [{"view": one, "title": titles[one]} for one in VIEWS if one in views],
        "languages": list(found.languages[1:]) if isinstance(found, Translator) else [],
        "held_out": pictures.count(found, ticket) if isinstance(found, ImageRun) else 0, "text": MAX_TEXT_CHARACTERS,
    }  # fmt: skip


def _summary(found: Loaded) -> str:
    try:
        return found.summary() if hasattr(found, "summary") else found.name
    except (TypeError, ValueError, AttributeError, KeyError, ArithmeticError):  # the record is foreign
        return found.name


def views_of(found: Loaded) -> tuple[str, tuple[str, ...]]:
    """The family of a model, and its views."""
    if isinstance(found, ImageRun):
        return "image", ("image",)
    if isinstance(found, Translator):
        return "translator", ("attention", "heads")
    if isinstance(found, Encoder):
        return "encoder", ("attention", "heads", "fill") if found.model.words is not None else ("attention", "heads")
    model = found.model
    if isinstance(model, NGram):
        return "ngram", ("backoff",)
    if isinstance(model, Mix):
        return "mix", ("votes",)
    if isinstance(model, Bag):
        return "bag", ("bag",)
    if isinstance(model, Bigram):
        return "bigram", ("gates",)
    if isinstance(model, GPT):
        return "transformer", ("attention", "heads", "depths", "flow")
    if isinstance(model, RNNAttention):
        return "attentive", ("attention", "heads", "gates", "flow")
    return "recurrent", ("gates", "flow")
