"""Views of attention: the maps of every head; and the masked words of a BERT."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from octavo.errors import UserError
from octavo.inspect.attention_bytes import AttentionBytes, attention_bytes
from octavo.inspect.attention_page import CONTEXT_LEFT
from octavo.inspect.views import require_view
from octavo.io.cooperative import in_turns
from octavo.studio.routes.inspect_tokens import ViewRequest
from octavo.studio.server.app import Studio
from octavo.studio.server.byte_tables import TABLES_RESPONSE, WEIGHT, ByteTables, pack_tables
from octavo.studio.server.result_cache import ResultCache
from octavo.studio.server.scheduler import Ticket
from octavo.tasks.encoder import Encoder
from octavo.tasks.run import Run
from octavo.tasks.translator import Translator

GUESSES = 10
NOTES = {
    "linear": "Linear attention compares no token with another: these are the weights that it has in effect.",
    "dense": "A dense synthesizer makes each token's weights from that token alone.",
    "random": "A random synthesizer's weights are learnt once: they are the same for every text.",
}


class MapsRequest(ViewRequest):
    """Which run's attention, while it reads or translates which text."""

    language: str = Field(default="", max_length=100)  # of the translation; the first where none is named


class MapRequest(MapsRequest):
    """Which head's map."""

    layer: int = Field(ge=1, le=10_000)
    head: int = Field(ge=1, le=10_000)


class HeadBody(BaseModel):
    """The statistics of one head; null where a number has no meaning."""

    layer: int
    head: int
    entropy: float
    spread: float
    distance: float | None
    itself: float | None
    previous: float | None
    first: float | None
    kind: str


class MapsBody(BaseModel):
    """The tokens along the sides of every map, and the statistics of the heads."""

    queries: list[str]  # the rows
    keys: list[str]  # the columns
    one: bool  # whether both are the same text
    causal: bool  # whether a token sees only what came before it
    truncated: bool
    layers: int
    heads: int
    statistics: list[HeadBody]
    notes: list[str]  # heads that stand out
    note: str  # what the weights are, where they are not those of a softmax over scores
    translation: str


class Guessed(BaseModel):
    """A token for a masked place."""

    token: str
    probability: float


class Filled(BaseModel):
    """For each [MASK] of the text, the likeliest tokens."""

    places: list[list[Guessed]]
    filled: str


def router(studio: Studio) -> APIRouter:
    routes = APIRouter(tags=["inspect"])
    cache: ResultCache[AttentionBytes] = ResultCache()

    @routes.post("/inspect/maps", response_model=MapsBody)
    async def maps(asked: MapsRequest, request: Request) -> Any:
        """What the heads of a model attend to over a text; their maps are asked for one by one."""
        return await studio.scheduler.run(request, _maps, studio, asked, cache)

    @routes.post("/inspect/map", response_model=None, responses=TABLES_RESPONSE)
    async def one_map(asked: MapRequest, request: Request) -> ByteTables:
        """The map of one head: rows are queries, columns keys."""
        return ByteTables(await studio.scheduler.run(request, _map, studio, asked, cache))

    @routes.post("/inspect/overview", response_model=None, responses=TABLES_RESPONSE)
    async def overview(asked: MapsRequest, request: Request) -> ByteTables:
        """The maps of all heads, layer by layer, made small."""
        return ByteTables(await studio.scheduler.run(request, _small, studio, asked, cache))

    @routes.post("/inspect/masked", response_model=Filled)
    async def masked(asked: ViewRequest, request: Request) -> Any:
        """What a BERT expects at each [MASK]."""
        return await studio.scheduler.run(request, _masked, studio, asked)

    return routes


def _compute(
    ticket: Ticket, studio: Studio, asked: MapsRequest, cache: ResultCache[AttentionBytes]
) -> tuple[Any, AttentionBytes]:
    loaded: Any = studio.models.get(asked.run, ticket)
    view = require_view(loaded.model, "token-maps", asked.view)
    return loaded, cache.get(
        loaded, (asked.text, asked.language, view.name), len(asked.text), ticket,
        lambda: attention_bytes(loaded, asked.text, asked.language, ticket.turn, view),
        lambda made: made.maps_LHTS.nbytes,
    )  # fmt: skip


def _maps(ticket: Ticket, studio: Studio, asked: MapsRequest, cache: ResultCache[AttentionBytes]) -> dict[str, Any]:
    loaded, found = _compute(ticket, studio, asked, cache)
    L, H, _, _ = found.maps_LHTS.shape
    return {
        "queries": list(found.queries), "keys": list(found.keys), "one": not isinstance(loaded, Translator),
        "causal": isinstance(loaded, Run), "truncated": found.truncated, "layers": L, "heads": H,
        "statistics": [asdict(head) for head in found.statistics], "notes": list(found.notes),
        "note": _note(loaded, found), "translation": found.translation,
    }  # fmt: skip


def _note(loaded: Any, found: AttentionBytes) -> str:
    config = loaded.model.config
    kind = NOTES.get(str(getattr(config, "attention", "")), "") if isinstance(loaded, Run) else ""
    left = isinstance(loaded, Run) and getattr(config, "absolute", False) and len(found.queries) > config.context
    return " ".join(note for note in (kind, CONTEXT_LEFT if left else "") if note)


def _map(ticket: Ticket, studio: Studio, asked: MapRequest, cache: ResultCache[AttentionBytes]) -> bytes:
    _, found = _compute(ticket, studio, asked, cache)
    L, H, _, _ = found.maps_LHTS.shape
    if asked.layer > L or asked.head > H:
        raise UserError(f"there are {L} layers of {H} heads: layer={asked.layer}, head={asked.head}; choose another")
    return pack_tables(WEIGHT, found.maps_LHTS[asked.layer - 1, asked.head - 1][None])


def _small(ticket: Ticket, studio: Studio, asked: MapsRequest, cache: ResultCache[AttentionBytes]) -> bytes:
    _, found = _compute(ticket, studio, asked, cache)
    return pack_tables(WEIGHT, np.stack(list(in_turns(found.small(), ticket.turn))))


def _masked(ticket: Ticket, studio: Studio, asked: ViewRequest) -> dict[str, Any]:
    found = studio.models.get(asked.run, ticket)
    if not isinstance(found, Encoder):
        raise UserError(f"{asked.run} fills in no masked words; choose a BERT")
    with ticket.turn():
        places = found.fill(asked.text, GUESSES)
    text = asked.text
    for guesses in places:
        text = text.replace("[MASK]", guesses[0].token, 1)
    return {
        "places": [[{"token": one.token, "probability": one.probability} for one in some] for some in places],
        "filled": text.replace(" ##", ""),
    }
