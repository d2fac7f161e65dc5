"""Views over the tokens of a text, by kind: rows of values, tables, the prediction after each layer, gradient flow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from fastapi import APIRouter, Request
from numpy.typing import NDArray
from pydantic import BaseModel, Field

from octavo.errors import UserError
from octavo.inspect.activations import layer_predictions
from octavo.inspect.attention_maps import most_tokens
from octavo.inspect.gradient_flow import SCALES, SHORTEST, default_back, gradient_flow, in_words, rate, relative
from octavo.inspect.inspection import MAX_TOKENS, tokens_of
from octavo.inspect.token_tables import token_table
from octavo.inspect.views import require_view, token_rows
from octavo.models.views import TokenRow
from octavo.studio.routes.read import language_model
from octavo.studio.server.app import MAX_TEXT_CHARACTERS, RequestBody, Studio
from octavo.studio.server.byte_tables import SHARE, SIGNED, TABLES_RESPONSE, ByteTables, pack_tables
from octavo.studio.server.result_cache import ResultCache
from octavo.studio.server.scheduler import Ticket
from octavo.tasks.run import Run
from octavo.text.token_display import BEGIN, display_token

Rows = tuple[TokenRow, ...]


class ViewRequest(RequestBody):
    """Which view of which run, on which text; the run's first view of the kind, if none is named."""

    run: str = Field(max_length=400)
    text: str = Field(max_length=MAX_TEXT_CHARACTERS)
    view: str = Field(default="", max_length=100)


class UnitsRequest(ViewRequest):
    """Which row of which layer."""

    row: str = Field(max_length=40)
    layer: int = Field(ge=1, le=10_000)


class CurveRequest(ViewRequest):
    """How far back the gradient is followed; 0: half of the text, 40 tokens at most."""

    back: int = Field(default=0, ge=0, le=400)


class RowBody(BaseModel):
    """One gate, or a part of the state, over the text."""

    row: str
    layer: int
    units: int
    signed: bool  # between -1 and 1, else between 0, shut, and 1, open
    squashed: bool  # whether what is drawn is the tanh of the values
    meaning: str
    mean: list[float]  # over the units, token by token
    strength: list[float]  # from 0 to 1, without the sign
    low: float  # the share of units that are shut, or near -1, over the whole text
    high: float  # that are open, or near 1
    busiest: list[int]  # every unit, those that vary most first


class RowsBody(BaseModel):
    """The tokens as they are read, begin first, and the rows over them."""

    tokens: list[str]
    truncated: bool
    rows: list[RowBody]


class DetailBody(BaseModel):
    """What is shown of one token that is chosen."""

    shade: float  # from 0 to 1, or the number of the part that the token is tinted by
    title: str
    rows: list[list[str]]
    shares: list[float]  # the bar behind each row
    notes: list[str]


class TableBody(BaseModel):
    """A table for each token of the text."""

    tokens: list[str]
    truncated: bool
    intro: str
    columns: list[str]
    details: list[DetailBody]
    legend: list[str]  # names of the shades
    parts: list[str]  # names of the tints
    outro: str


class LayerBody(BaseModel):
    """What would be predicted if the model were read out after a layer."""

    name: str
    bits: float | None
    right: float
    tops: list[str]  # for each token of the text, the likeliest in its place
    ps: list[float]  # and its probability
    costs: list[float | None]  # bits of the token that came; null: impossible
    rights: list[bool]


class LayersBody(BaseModel):
    """The tokens of the text, and each layer."""

    tokens: list[str]
    truncated: bool
    layers: list[LayerBody]


class Curve(BaseModel):
    """The gradient's norms by how many steps back, as shares of the first."""

    name: str
    shares: list[float | None]
    summary: str  # what happens to it in a step, in words


class CurveBody(BaseModel):
    """How far back the loss reaches."""

    tokens: int
    truncated: bool
    back: int
    losses: int  # that were averaged
    whole: Curve
    parts: list[Curve]
    theory: list[Curve]  # of a linear network whose recurrent matrix is orthogonal times a: a to the power of t
    layers: list[float]  # a transformer's norms with respect to each layer's output


def router(studio: Studio) -> APIRouter:
    routes = APIRouter(tags=["inspect"])
    cache: ResultCache[Rows] = ResultCache()

    @routes.post("/inspect/rows", response_model=RowsBody)
    async def rows(asked: ViewRequest, request: Request) -> Any:
        """Gates and states, token by token; single units are asked for row by row."""
        return await studio.scheduler.run(request, _rows, studio, asked, cache)

    @routes.post("/inspect/units", response_model=None, responses=TABLES_RESPONSE)
    async def units(asked: UnitsRequest, request: Request) -> ByteTables:
        """Every unit of one row over the text: a line a unit, a column a token."""
        return ByteTables(await studio.scheduler.run(request, _units, studio, asked, cache))

    @routes.post("/inspect/table", response_model=TableBody)
    async def table(asked: ViewRequest, request: Request) -> Any:
        """A table for each token: a back-off path, the votes of a mixture."""
        return await studio.scheduler.run(request, _table, studio, asked)

    @routes.post("/inspect/layers", response_model=LayersBody)
    async def layers(asked: ViewRequest, request: Request) -> Any:
        """What would be predicted if the model were read out after each layer: the logit lens."""
        return await studio.scheduler.run(request, _layers, studio, asked)

    @routes.post("/inspect/curve", response_model=CurveBody)
    async def curve(asked: CurveRequest, request: Request) -> Any:
        """Gradient flow: the gradient of the loss with respect to what the model held some tokens before."""
        return await studio.scheduler.run(request, _curve, studio, asked)

    return routes


def read_text(run: Run, text: str, most: int = MAX_TOKENS) -> tuple[list[int], dict[str, Any]]:
    """The tokens that are read, and how they are shown."""
    whole = tokens_of(run, text)
    if not whole:
        raise UserError("there is nothing to read: the text is empty; write a sentence or two")
    x_N = whole[:most]
    return x_N, {"tokens": [display_token(run.tokenizer, token) for token in x_N], "truncated": len(whole) > len(x_N)}


def _compute_rows(
    ticket: Ticket, studio: Studio, asked: ViewRequest, cache: ResultCache[Rows]
) -> tuple[dict[str, Any], Rows]:
    run = language_model(studio, asked.run, ticket)
    view = require_view(run.model, "token-rows", asked.view)
    x_N, text = read_text(run, asked.text)
    rows = cache.get(
        run, (asked.text, view.name), len(asked.text), ticket,
        lambda: token_rows(run.model, x_N, ticket.turn, view), lambda made: sum(row.value_TD.nbytes for row in made),
    )  # fmt: skip
    return {**text, "tokens": [BEGIN, *text["tokens"]]}, rows


def _rows(ticket: Ticket, studio: Studio, asked: ViewRequest, cache: ResultCache[Rows]) -> dict[str, Any]:
    text, rows = _compute_rows(ticket, studio, asked, cache)
    return {**text, "rows": [_row(row) for row in rows]}


def _row(row: TokenRow) -> dict[str, Any]:
    units = row.value_TD.shape[1]
    return {
        "row": row.name, "layer": row.layer, "units": units, "signed": row.signed, "squashed": row.squashed,
        "meaning": row.meaning, "mean": row.mean.tolist(), "strength": row.strength.tolist(),
        "low": float(row.low.mean()), "high": float(row.high.mean()), "busiest": row.busiest(units),
    }  # fmt: skip


def _units(ticket: Ticket, studio: Studio, asked: UnitsRequest, cache: ResultCache[Rows]) -> bytes:
    _, rows = _compute_rows(ticket, studio, asked, cache)
    row = next((row for row in rows if (row.name, row.layer) == (asked.row, asked.layer)), None)
    if row is None:
        known = ", ".join(f"{row.name} of layer {row.layer}" for row in rows)
        raise UserError(f"there is no {asked.row!r} of layer {asked.layer}; there are {known}")
    with ticket.turn():
        value_DT: NDArray[np.float64] = row.bounded().T.numpy()
        scaled = (value_DT + 1) * 127.5 if row.signed else value_DT * 255
        return pack_tables(SIGNED if row.signed else SHARE, np.rint(scaled.clip(0, 255)).astype(np.uint8)[None])


def _table(ticket: Ticket, studio: Studio, asked: ViewRequest) -> dict[str, Any]:
    run = language_model(studio, asked.run, ticket)
    view = require_view(run.model, "token-table", asked.view)
    x_N, text = read_text(run, asked.text)
    return {**text, **asdict(token_table(run.model, x_N, lambda token: _spell(run, token), ticket.turn, view))}


def _layers(ticket: Ticket, studio: Studio, asked: ViewRequest) -> dict[str, Any]:
    run = language_model(studio, asked.run, ticket)
    view = require_view(run.model, "layers", asked.view)
    x_N, text = read_text(run, asked.text)
    found = layer_predictions(run.model, x_N, ticket.turn, view)
    spelt = {token: _spell(run, token) for layer in found for token in set(layer.top_N.tolist())}
    return {**text, "layers": [
        {"name": layer.name, "bits": layer.bits, "right": layer.right,
         "tops": [spelt[token] for token in layer.top_N.tolist()], "ps": layer.p_N.tolist(),
         "costs": layer.bits_N.tolist(), "rights": layer.right_N.tolist()}
        for layer in found
    ]}  # fmt: skip


def _spell(run: Run, token: int) -> str:
    return BEGIN if token == run.model.begin else display_token(run.tokenizer, token)


def _curve(ticket: Ticket, studio: Studio, asked: CurveRequest) -> dict[str, Any]:
    run = language_model(studio, asked.run, ticket)
    view = require_view(run.model, "curve", asked.view)
    x_N, text = read_text(run, asked.text, min(MAX_TOKENS, most_tokens(run.model)))
    if len(x_N) < SHORTEST:
        raise UserError(f"a gradient flows from one token to another: the text has {len(x_N)}; write more")
    back = min(asked.back or default_back(len(x_N)), len(x_N) - 1)
    flow = gradient_flow(run.model, x_N, back, turn=ticket.turn, view=view)
    first = 1 if flow.depths and back > 1 else 0  # the token itself goes straight up, which tells nothing of the way
    return {
        "tokens": len(x_N), "truncated": text["truncated"], "back": flow.back, "losses": flow.ends,
        "whole": _shares("embedding" if flow.depths else "state", flow.norms, first),
        "parts": [_shares(name, norms, first) for name, norms in flow.parts.items()],
        "theory": [_shares(f"× {scale:g}", tuple(scale**t for t in range(back + 1))) for scale in SCALES],
        "layers": list(flow.depths),
    }  # fmt: skip


def _shares(name: str, norms: Sequence[float], first: int = 0) -> dict[str, Any]:
    shares = [None if math.isnan(share) else share for share in relative(tuple(norms))]
    summary = in_words(rate(tuple(norms[first:]))) + (" from t = 1" if first else "")
    return {"name": name, "shares": shares, "summary": summary}
