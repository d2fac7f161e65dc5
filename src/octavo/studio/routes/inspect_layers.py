"""Inside networks, over a text: gates and states, what is known at each depth, how far back the loss reaches."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from fastapi import APIRouter, Request
from numpy.typing import NDArray
from pydantic import BaseModel, Field

from octavo.errors import UserError
from octavo.inspect.attention_maps import most_tokens
from octavo.inspect.gates import Gate, Gates, gates_over
from octavo.inspect.gradient_flow import SHORTEST, default_back, gradient_flow, has_gradient, in_words, rate, relative
from octavo.inspect.gradient_theory import SCALES
from octavo.inspect.logit_lens import depths_over
from octavo.inspect.page import MEANINGS
from octavo.inspect.summary import LONGEST
from octavo.models import GPT
from octavo.studio.routes.inspect_counts import Look, text_of
from octavo.studio.routes.read import language_model
from octavo.studio.server.app import Studio
from octavo.studio.server.byte_tables import SHARE, SIGNED, TABLES_RESPONSE, ByteTables, pack_tables
from octavo.studio.server.result_cache import ResultCache
from octavo.studio.server.scheduler import Ticket
from octavo.tasks.run import Run
from octavo.text.token_display import BEGIN, display_token


class SeekGate(Look):
    """Which gate of which layer."""

    gate: str = Field(max_length=40)
    layer: int = Field(ge=1, le=10_000)


class SeekFlow(Look):
    """How far back the gradient is followed; 0: half of the text, 40 tokens at most."""

    back: int = Field(default=0, ge=0, le=400)


class ShownGate(BaseModel):
    """One gate, or a part of the state, over the text."""

    gate: str
    layer: int
    units: int
    signed: bool  # between -1 and 1, else between 0, shut, and 1, open
    meaning: str
    mean: list[float]  # over the units, token by token
    strength: list[float]  # from 0 to 1, without the sign; of a cell after its tanh
    low: float  # the share of units that are shut, or near -1, over the whole text
    high: float  # that are open, or near 1
    busiest: list[int]  # every unit, those that vary most first


class Gated(BaseModel):
    """The tokens as they are read, begin first, and what the layers show."""

    tokens: list[str]
    cut: bool
    gates: list[ShownGate]


class ShownDepth(BaseModel):
    """What would be predicted if the model were read out there."""

    name: str
    bits: float | None
    right: float
    tops: list[str]  # for each token of the text, the likeliest in its place
    ps: list[float]  # and its probability
    costs: list[float | None]  # bits of the token that came; null: impossible
    rights: list[bool]


class Deep(BaseModel):
    """The tokens of the text, and each depth."""

    tokens: list[str]
    cut: bool
    depths: list[ShownDepth]


class Curve(BaseModel):
    """The gradient's norms by how many steps back, as shares of the first."""

    name: str
    shares: list[float | None]
    told: str  # what happens with it in a step, in words


class Flowed(BaseModel):
    """How far back the loss reaches."""

    read: int  # tokens
    cut: bool
    back: int
    ends: int  # losses that were averaged
    whole: Curve
    parts: list[Curve]
    theory: list[Curve]  # of a linear network whose recurrent matrix is orthogonal times a: a to the power of t
    depths: list[float]  # a transformer's norms with respect to each depth's stream


def router(studio: Studio) -> APIRouter:
    routes = APIRouter(tags=["inspect"])
    kept: ResultCache[Gates] = ResultCache()

    @routes.post("/inspect/gates", response_model=Gated)
    async def gates(asked: Look, request: Request) -> Any:
        """Gates and states of a recurrent network, token by token; single units are asked for gate by gate."""
        return await studio.scheduler.run(request, _gates, studio, asked, kept)

    @routes.post("/inspect/units", response_model=None, responses=TABLES_RESPONSE)
    async def units(asked: SeekGate, request: Request) -> ByteTables:
        """Every unit of one gate over the text: a row a unit, a column a token. Of a cell, its tanh."""
        return ByteTables(await studio.scheduler.run(request, _units, studio, asked, kept))

    @routes.post("/inspect/depths", response_model=Deep)
    async def depths(asked: Look, request: Request) -> Any:
        """What a transformer would predict if it were read out after each layer."""
        return await studio.scheduler.run(request, _depths, studio, asked)

    @routes.post("/inspect/flow", response_model=Flowed)
    async def flow(asked: SeekFlow, request: Request) -> Any:
        """The gradient of the loss with respect to what the model held some tokens before."""
        return await studio.scheduler.run(request, _flow, studio, asked)

    return routes


def _shown_by(ticket: Ticket, studio: Studio, asked: Look, kept: ResultCache[Gates]) -> tuple[dict[str, Any], Gates]:
    run = language_model(studio, asked.run, ticket)
    x_N, told = text_of(run, asked.text)
    found = kept.get(
        run, asked.text, len(asked.text), ticket, lambda: gates_over(run.model, x_N, ticket.turn),
        lambda made: sum(gate.value_TD.nbytes for gate in made.gates),
    )  # fmt: skip
    if not found.gates:
        raise UserError(f"{asked.run} shows no gates and no state; look at its other views")
    return {**told, "tokens": [BEGIN, *told["tokens"]]}, found


def _gates(ticket: Ticket, studio: Studio, asked: Look, kept: ResultCache[Gates]) -> dict[str, Any]:
    told, found = _shown_by(ticket, studio, asked, kept)
    return {**told, "gates": [_shown_gate(gate) for gate in found.gates]}


def _shown_gate(gate: Gate) -> dict[str, Any]:
    units = gate.value_TD.shape[1]
    return {
        "gate": gate.name, "layer": gate.layer, "units": units, "signed": gate.signed,
        "meaning": MEANINGS.get(gate.name, ""), "mean": gate.mean.tolist(), "strength": gate.strength.tolist(),
        "low": float(gate.low.mean()), "high": float(gate.high.mean()), "busiest": gate.busiest(units),
    }  # fmt: skip


def _units(ticket: Ticket, studio: Studio, asked: SeekGate, kept: ResultCache[Gates]) -> bytes:
    _, found = _shown_by(ticket, studio, asked, kept)
    gate = next((one for one in found.gates if (one.name, one.layer) == (asked.gate, asked.layer)), None)
    if gate is None:
        known = ", ".join(f"{one.name} of layer {one.layer}" for one in found.gates)
        raise UserError(f"there is no {asked.gate!r} of layer {asked.layer}; there are {known}")
    with ticket.turn():
        value_DT: NDArray[np.float64] = gate.bounded().T.numpy()
        scaled = (value_DT + 1) * 127.5 if gate.signed else value_DT * 255
        return pack_tables(SIGNED if gate.signed else SHARE, np.rint(scaled.clip(0, 255)).astype(np.uint8)[None])


def _depths(ticket: Ticket, studio: Studio, asked: Look) -> dict[str, Any]:
    run = language_model(studio, asked.run, ticket)
    model = run.model
    if not isinstance(model, GPT):
        raise UserError(f"{asked.run} is no transformer: it has no depths to read out; look at its other views")
    x_N, told = text_of(run, asked.text)
    found = depths_over(model, x_N, ticket.turn)
    spelt = {token: _spelt(run, token) for depth in found for token in set(depth.top_N.tolist())}
    return {**told, "depths": [
        {"name": one.name, "bits": one.bits, "right": one.right, "tops": [spelt[token] for token in one.top_N.tolist()],
         "ps": one.p_N.tolist(), "costs": one.bits_N.tolist(), "rights": one.right_N.tolist()}
        for one in found
    ]}  # fmt: skip


def _spelt(run: Run, token: int) -> str:
    return BEGIN if token == run.model.begin else display_token(run.tokenizer, token)


def _flow(ticket: Ticket, studio: Studio, asked: SeekFlow) -> dict[str, Any]:
    run = language_model(studio, asked.run, ticket)
    if not has_gradient(run.model):
        raise UserError(f"{asked.run} has no state that a gradient could flow through; choose a network with one")
    x_N, told = text_of(run, asked.text, min(LONGEST, most_tokens(run.model)))
    if len(x_N) < SHORTEST:
        raise UserError(f"a gradient flows from one token to another: the text has {len(x_N)}; write more")
    back = min(asked.back or default_back(len(x_N)), len(x_N) - 1)
    flow = gradient_flow(run.model, x_N, back, turn=ticket.turn)
    first = 1 if flow.depths and back > 1 else 0  # the token itself goes straight up, which tells nothing of the way
    return {
        "read": len(x_N), "cut": told["cut"], "back": flow.back, "ends": flow.ends,
        "whole": _curve("embedding" if flow.depths else "state", flow.norms, first),
        "parts": [_curve(name, norms, first) for name, norms in flow.parts.items()],
        "theory": [_curve(f"× {scale:g}", tuple(scale**t for t in range(back + 1))) for scale in SCALES],
        "depths": list(flow.depths),
    }  # fmt: skip


def _curve(name: str, norms: tuple[float, ...], first: int = 0) -> dict[str, Any]:
    shares = [None if math.isnan(share) else share for share in relative(norms)]
    return {"name": name, "shares": shares, "told": in_words(rate(norms[first:])) + (" from t = 1" if first else "")}
