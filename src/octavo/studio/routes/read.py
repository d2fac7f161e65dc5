"""A text read by a model: what each token cost, what was expected in its place, and what the model looked at."""

from __future__ import annotations

import json
import math
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from octavo.errors import UserError
from octavo.inspect.inspection import tokens_of
from octavo.inspect.surprisal import Reading, read
from octavo.inspect.token_alignment import align
from octavo.inspect.top_attention import MOST, Layers, has_attention, top_attention
from octavo.studio.server.app import MAX_TEXT_CHARACTERS, RequestBody, Studio, finite
from octavo.studio.server.scheduler import Ticket
from octavo.tasks.run import Run
from octavo.text.token_display import BEGIN, display_token

CANDIDATES = 8
PAIRS = 400_000  # candidates of a whole text that are told: of a long one fewer for each token
LOOKED = 4096  # tokens of a text that it is told of what was looked at


class Read(RequestBody):
    """Which run reads what."""

    run: str = Field(max_length=400)
    text: str = Field(max_length=MAX_TEXT_CHARACTERS)
    candidates: int = Field(default=CANDIDATES, ge=1, le=50)  # at most; a very long text gets fewer


class Told(BaseModel):
    """Column by column, one entry a token."""

    tokens: list[str]
    bits: list[float | None]  # null: impossible
    bytes: list[int]
    ranks: list[int]
    candidates: list[list[tuple[str, float]]]
    contexts: list[int] | None  # n-gram: how many tokens before it the longest known n-gram has
    looks: bool  # whether /looked has something to tell
    comparable: bool  # whether the bytes are those of the text: nothing was changed on the way to tokens


class Compare(Read):
    """Which two runs read what."""

    other: str = Field(max_length=400)


class Compared(BaseModel):
    """Both readings, and the shortest stretches of bytes at whose ends both have a token's end."""

    first: Told
    second: Told
    spans: list[str]  # as text
    first_ends: list[int]  # tokens up to the end of each span
    second_ends: list[int]
    bytes: list[int]
    first_bits: list[float | None]
    second_bits: list[float | None]


class Look(RequestBody):
    """Which run reads what, and of which layers it is asked."""

    run: str = Field(max_length=400)
    text: str = Field(max_length=MAX_TEXT_CHARACTERS)
    layers: Layers = "last"


class Looks(BaseModel):
    """For each token, the places that its prediction looked at most: 0 is begin, n the n-th token of the text."""

    places: list[list[int]]
    shares: list[list[float]]


def router(studio: Studio) -> APIRouter:
    routes = APIRouter(tags=["read"])

    @routes.post("/read", response_model=Told)
    async def read_text(asked: Read, request: Request) -> Any:
        """What each token of a text costs a model, and what it expected instead."""
        return await studio.scheduler.run(request, _read, studio, asked)

    @routes.post("/compare", response_model=Compared)
    async def compare_text(asked: Compare, request: Request) -> Any:
        """Two readings of one text, laid side by side byte for byte."""
        return await studio.scheduler.run(request, _compare, studio, asked)

    @routes.post("/looked", response_model=Looks)
    async def looked_text(asked: Look, request: Request) -> Any:
        """What a model with attention looked at when it foresaw each token of a text."""
        return await studio.scheduler.run(request, _looked, studio, asked)

    return routes


def language_model(studio: Studio, name: str, ticket: Ticket) -> Run:
    """The run, where it predicts next tokens; any other is refused."""
    found = studio.models.get(name, ticket)
    if not isinstance(found, Run):
        raise UserError(f"{name} does not predict next tokens; choose a language model")
    return found


def packed(value: Any) -> Response:
    """An answer made in the thread that computed it: a long one would keep the others waiting. Finite numbers only."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Response(text.encode("utf-8", "backslashreplace"), media_type="application/json")


def spelt(run: Run, token: int) -> str:
    """A token as it is shown."""
    return BEGIN if token == run.model.begin else display_token(run.tokenizer, token)


def _read(ticket: Ticket, studio: Studio, asked: Read) -> Response:
    run = language_model(studio, asked.run, ticket)
    told = _reading(run, tokens_of(run, asked.text), asked, ticket)
    return packed(_columns(run, told))


def _reading(run: Run, x_N: list[int], asked: Read, ticket: Ticket) -> Reading:
    return read(run.model, x_N, max(1, min(asked.candidates, PAIRS // max(1, len(x_N)))), ticket.turn)


def _columns(run: Run, told: Reading) -> dict[str, Any]:
    x_N, top_NK = told.x_N.tolist(), told.top_NK.tolist()
    names = {token: spelt(run, token) for token in {*x_N, *told.top_NK.unique().tolist()}}
    sizes = {token: len(run.tokenizer.token_bytes(token)) for token in set(x_N)}
    return {
        "tokens": [names[token] for token in x_N], "bits": finite(told.bits_N.tolist()), "ranks": told.rank_N.tolist(),
        "bytes": [sizes[token] for token in x_N],
        "candidates": [
            [(names[token], p) for token, p in zip(top, ps, strict=True) if p > 0]
            for top, ps in zip(top_NK, told.p_NK.tolist(), strict=True)
        ],
        "contexts": None if told.context_N is None else told.context_N.tolist(),
        "looks": has_attention(run.model), "comparable": run.comparable,
    }  # fmt: skip


def _compare(ticket: Ticket, studio: Studio, asked: Compare) -> Response:
    names = (asked.run, asked.other)
    runs = [language_model(studio, name, ticket) for name in names]
    texts = [tokens_of(run, asked.text) for run in runs]
    first, second = (run.tokenizer.decode(x_N) for run, x_N in zip(runs, texts, strict=True))
    if first != second:
        changed = " and ".join(name for name, run in zip(names, runs, strict=True) if not run.comparable)
        raise UserError(f"{changed} does not read the text as it stands, so the two do not read the same bytes; "
                        "compare runs that do")  # fmt: skip
    told = [_reading(run, x_N, asked, ticket) for run, x_N in zip(runs, texts, strict=True)]
    columns = [_columns(run, one) for run, one in zip(runs, told, strict=True)]
    spans = align(columns[0]["bytes"], columns[1]["bytes"])
    bits = [one.bits_N.tolist() for one in told]
    return packed({
        "first": columns[0], "second": columns[1],
        "spans": ["".join(columns[0]["tokens"][slice(*span.first)]) for span in spans],
        "first_ends": [span.first[1] for span in spans], "second_ends": [span.second[1] for span in spans],
        "bytes": [span.bytes for span in spans],
        "first_bits": finite([math.fsum(bits[0][slice(*span.first)]) for span in spans]),
        "second_bits": finite([math.fsum(bits[1][slice(*span.second)]) for span in spans]),
    })  # fmt: skip


def _looked(ticket: Ticket, studio: Studio, asked: Look) -> Response:
    run = language_model(studio, asked.run, ticket)
    if not has_attention(run.model):
        raise UserError(f"{asked.run} has no attention, so there is nothing that it looked at; ask a transformer")
    told = top_attention(run.model, tokens_of(run, asked.text)[:LOOKED], MOST, asked.layers, ticket.turn)
    kept = [[place for place in places if place >= 0] for places in told.place_NK.tolist()]
    shares = [share[: len(places)] for places, share in zip(kept, told.share_NK.tolist(), strict=True)]
    return packed({"places": kept, "shares": shares})
