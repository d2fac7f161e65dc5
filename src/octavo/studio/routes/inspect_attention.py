"""Inside models that look: the maps of every head, and the masked words of a BERT."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from octavo.errors import UserError
from octavo.inspect.attention_bytes import Looks, looks_of
from octavo.inspect.attention_page import SHOWN_ANEW
from octavo.io.cooperative import in_turns
from octavo.models import GPT, RNNAttention
from octavo.studio.routes.inspect_counts import Look
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
    "dense": "A dense synthesizer makes each token's weights from that token alone, without a look at the others.",
    "random": "A random synthesizer's weights are learnt once: they are the same for every text.",
}


class Seek(Look):
    """Which run is looked into while it reads, or translates, what."""

    language: str = Field(default="", max_length=100)  # of the translation; the first where none is named


class SeekHead(Seek):
    """Which head's map."""

    layer: int = Field(ge=1, le=10_000)
    head: int = Field(ge=1, le=10_000)


class HeadHabits(BaseModel):
    """One head; null where a number has no meaning."""

    layer: int
    head: int
    entropy: float
    spread: float
    distance: float | None
    itself: float | None
    previous: float | None
    first: float | None
    kind: str


class Looked(BaseModel):
    """The tokens along the sides of every map, and what can be said of the heads."""

    looking: list[str]  # the rows
    seen: list[str]  # the columns
    one: bool  # whether both are the same text
    causal: bool  # whether a token sees only what came before it
    cut: bool
    layers: int
    heads: int
    habits: list[HeadHabits]
    told: list[str]
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
    kept: ResultCache[Looks] = ResultCache()

    @routes.post("/inspect/attention", response_model=Looked)
    async def attention(asked: Seek, request: Request) -> Any:
        """What the heads of a model do over a text; their maps are asked for one by one."""
        return await studio.scheduler.run(request, _looked, studio, asked, kept)

    @routes.post("/inspect/map", response_model=None, responses=TABLES_RESPONSE)
    async def one_map(asked: SeekHead, request: Request) -> ByteTables:
        """The map of one head: rows look, columns are looked at."""
        return ByteTables(await studio.scheduler.run(request, _map, studio, asked, kept))

    @routes.post("/inspect/overview", response_model=None, responses=TABLES_RESPONSE)
    async def overview(asked: Seek, request: Request) -> ByteTables:
        """The maps of all heads, layer by layer, made small."""
        return ByteTables(await studio.scheduler.run(request, _small, studio, asked, kept))

    @routes.post("/inspect/fill", response_model=Filled)
    async def fill(asked: Look, request: Request) -> Any:
        """What a BERT expects at each [MASK]."""
        return await studio.scheduler.run(request, _fill, studio, asked)

    return routes


def _looks(ticket: Ticket, studio: Studio, asked: Seek, kept: ResultCache[Looks]) -> tuple[Any, Looks]:
    found = studio.models.get(asked.run, ticket)
    if isinstance(found, Translator | Encoder) or (
        isinstance(found, Run) and isinstance(found.model, GPT | RNNAttention)
    ):
        return found, kept.get(
            found, (asked.text, asked.language), len(asked.text), ticket,
            lambda: looks_of(found, asked.text, asked.language, ticket.turn), lambda made: made.maps_LHTS.nbytes,
        )  # fmt: skip
    raise UserError(f"{asked.run} has no attention to look at; look at its other views")


def _looked(ticket: Ticket, studio: Studio, asked: Seek, kept: ResultCache[Looks]) -> dict[str, Any]:
    found, looks = _looks(ticket, studio, asked, kept)
    L, H, _, _ = looks.maps_LHTS.shape
    return {
        "looking": list(looks.looking), "seen": list(looks.seen), "one": not isinstance(found, Translator),
        "causal": isinstance(found, Run), "cut": looks.cut, "layers": L, "heads": H,
        "habits": [asdict(one) for one in looks.habits], "told": list(looks.told), "note": _note(found, looks),
        "translation": looks.translation,
    }  # fmt: skip


def _note(found: Any, looks: Looks) -> str:
    if not isinstance(found, Run) or not isinstance(found.model, GPT):
        return ""
    config = found.model.config
    left = SHOWN_ANEW if config.absolute and len(looks.looking) > config.context else ""
    return " ".join(one for one in (NOTES.get(config.attention, ""), left) if one)


def _map(ticket: Ticket, studio: Studio, asked: SeekHead, kept: ResultCache[Looks]) -> bytes:
    _, looks = _looks(ticket, studio, asked, kept)
    L, H, _, _ = looks.maps_LHTS.shape
    if asked.layer > L or asked.head > H:
        raise UserError(f"there are {L} layers of {H} heads: layer={asked.layer}, head={asked.head}; choose another")
    return pack_tables(WEIGHT, looks.maps_LHTS[asked.layer - 1, asked.head - 1][None])


def _small(ticket: Ticket, studio: Studio, asked: Seek, kept: ResultCache[Looks]) -> bytes:
    _, looks = _looks(ticket, studio, asked, kept)
    return pack_tables(WEIGHT, np.stack(list(in_turns(looks.small(), ticket.turn))))


def _fill(ticket: Ticket, studio: Studio, asked: Look) -> dict[str, Any]:
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
