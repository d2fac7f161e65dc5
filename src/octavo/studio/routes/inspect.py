"""Inspect a model: which views a run has. What they show is computed by kind of view, whatever the model."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import Field

from octavo.errors import UserError
from octavo.models import spec_of
from octavo.studio.routes import inspect_attention, inspect_images, inspect_tokens
from octavo.studio.server.app import MAX_TEXT_CHARACTERS, ComputedRoutes, RequestBody, Studio
from octavo.studio.server.byte_tables import TABLES_RESPONSE
from octavo.studio.server.model_cache import Loaded
from octavo.studio.server.result_cache import ResultCache
from octavo.studio.server.scheduler import Ticket
from octavo.tasks.classifier import Classifier
from octavo.tasks.images import ImageRun
from octavo.tasks.translator import Translator


class RunRequest(RequestBody):
    """Which run."""

    run: str = Field(max_length=400)


def router(studio: Studio) -> APIRouter:
    routes = ComputedRoutes(studio, "inspect")
    pictures, maps, rows = inspect_images.Pictures(), ResultCache[Any](), ResultCache[Any]()
    routes.compute("/inspect/about", about, studio, pictures)
    routes.compute("/inspect/maps", inspect_attention.maps, studio, maps)
    routes.compute("/inspect/map", inspect_attention.one_map, studio, maps, responses=TABLES_RESPONSE)
    routes.compute("/inspect/overview", inspect_attention.overview, studio, maps, responses=TABLES_RESPONSE)
    routes.compute("/inspect/masked", inspect_attention.masked, studio)
    routes.compute("/inspect/rows", inspect_tokens.rows, studio, rows)
    routes.compute("/inspect/units", inspect_tokens.units, studio, rows, responses=TABLES_RESPONSE)
    routes.compute("/inspect/table", inspect_tokens.table, studio)
    routes.compute("/inspect/layers", inspect_tokens.layers, studio)
    routes.compute("/inspect/curve", inspect_tokens.curve, studio)
    routes.compute("/inspect/image", inspect_images.image, studio, pictures)
    return routes


def about(ticket: Ticket, studio: Studio, pictures: inspect_images.Pictures, asked: RunRequest) -> dict[str, Any]:
    """Which views a run has; a view's kind says how it is drawn, and by which route its data come.

    languages: that it translates into. held_out: images that can be chosen by number. text: characters a text may have.
    """
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
