"""Inspect a model: which views a run has. What they show is computed by kind of view, whatever the model."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from octavo.errors import UserError
from octavo.models import spec_of
from octavo.studio.routes import inspect_attention, inspect_images, inspect_tokens
from octavo.studio.server.app import MAX_TEXT_CHARACTERS, RequestBody, Studio
from octavo.studio.server.model_cache import Loaded
from octavo.studio.server.scheduler import Ticket
from octavo.tasks.classifier import Classifier
from octavo.tasks.image_run import ImageRun
from octavo.tasks.translator import Translator


class About(RequestBody):
    """Which run."""

    run: str = Field(max_length=400)


class Tab(BaseModel):
    """One view."""

    view: str
    title: str
    kind: str  # how it is drawn, and by which route its data come


class Inspectable(BaseModel):
    """What a run can show of itself."""

    family: str
    summary: str  # the run in a line
    views: list[Tab]
    languages: list[str]  # that it translates into
    held_out: int  # images that can be chosen by number
    text: int  # characters that a text may have


def router(studio: Studio) -> APIRouter:
    routes = APIRouter(tags=["inspect"])
    pictures = inspect_images.Pictures()

    @routes.post("/inspect/about", response_model=Inspectable)
    async def about(asked: About, request: Request) -> Any:
        """Which views a run has."""
        return await studio.scheduler.run(request, _about, studio, asked, pictures)

    routes.include_router(inspect_attention.router(studio))
    routes.include_router(inspect_tokens.router(studio))
    routes.include_router(inspect_images.router(studio, pictures))
    return routes


def _about(ticket: Ticket, studio: Studio, asked: About, pictures: inspect_images.Pictures) -> dict[str, Any]:
    loaded = studio.models.get(asked.run, ticket)
    if isinstance(loaded, Classifier):
        raise UserError(f"{asked.run} classifies texts: the page Classify takes its answers apart")
    return {
        "family": spec_of(loaded.model).family, "summary": _summary(loaded), "views": tabs_of(loaded),
        "languages": list(loaded.languages[1:]) if isinstance(loaded, Translator) else [],
        "held_out": pictures.count(loaded, ticket) if isinstance(loaded, ImageRun) else 0, "text": MAX_TEXT_CHARACTERS,
    }  # fmt: skip


def tabs_of(loaded: Loaded) -> list[dict[str, str]]:
    """The views of the model's spec; maps of several heads have a table of the heads beside them."""
    tabs = []
    for view in spec_of(loaded.model).views:
        if view.kind == "masked" and getattr(loaded.model, "words", None) is None:  # trained without that head
            continue
        tabs.append({"view": view.name, "title": view.title, "kind": view.kind})
        if view.kind == "token-maps":
            tabs.append({"view": f"{view.name}-heads", "title": "Heads", "kind": "heads"})
    return tabs


def _summary(loaded: Loaded) -> str:
    try:
        return loaded.summary() if hasattr(loaded, "summary") else loaded.name
    except (TypeError, ValueError, AttributeError, KeyError, ArithmeticError):  # the record is foreign
        return loaded.name
