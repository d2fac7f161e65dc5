"""Inspect a model: which views a run has, and what they show, which is computed by kind of view, whatever the model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from fastapi import APIRouter
from numpy.typing import NDArray
from pydantic import Field

from octavo.errors import UserError
from octavo.inspection.attention_maps import most_tokens
from octavo.inspection.attention_page import CONTEXT_LEFT
from octavo.inspection.gradient_flow import SCALES, SHORTEST, default_back, gradient_flow, in_words, rate, relative
from octavo.inspection.inspection import MAX_TOKENS, AttentionBytes, attention_bytes, tokens_of
from octavo.inspection.token_tables import summary_table, token_table
from octavo.inspection.views import layer_predictions, require_view, token_rows
from octavo.io.cooperative import in_turns
from octavo.models import spec_of
from octavo.models.views import Kind, TokenRow, View
from octavo.studio.routes import inspect_images
from octavo.studio.routes.read import token_text
from octavo.studio.server.app import MAX_TEXT_CHARACTERS, RunRequest, Studio, TextRequest
from octavo.studio.server.byte_tables import SHARE, SIGNED, TABLES_RESPONSE, WEIGHT, ByteTables
from octavo.studio.server.computed_routes import ComputedRoutes
from octavo.studio.server.result_cache import ResultCache
from octavo.studio.server.scheduler import Ticket
from octavo.tasks.classifier import Classifier
from octavo.tasks.encoder import Encoder
from octavo.tasks.images import ImageRun
from octavo.tasks.run import Run
from octavo.tasks.trained_run import TrainedRun
from octavo.tasks.translator import Translator
from octavo.text.token_display import BEGIN, display_token

TokenRows = tuple[TokenRow, ...]
GUESSES = 10
NOTES = {
    "linear": "Linear attention compares no token with another: these are the weights that it has in effect.",
    "dense": "A dense synthesizer makes each token's weights from that token alone.",
    "random": "A random synthesizer's weights are learnt once: they are the same for every text.",
}


class ViewRequest(TextRequest):
    """Which view of which run, on which text; the run's first view of the kind, if none is named."""

    view: str = Field(default="", max_length=100)


class UnitsRequest(ViewRequest):
    """Which row of which layer."""

    row: str = Field(max_length=40)
    layer: int = Field(ge=1, le=10_000)


class CurveRequest(ViewRequest):
    """How far back the gradient is followed; 0: half of the text, 40 tokens at most."""

    back: int = Field(default=0, ge=0, le=400)


class MapsRequest(ViewRequest):
    """Which run's attention, while it reads or translates which text."""

    language: str = Field(default="", max_length=100)  # of the translation; the first where none is named


class MapRequest(MapsRequest):
    """Which head's map."""

    layer: int = Field(ge=1, le=10_000)
    head: int = Field(ge=1, le=10_000)


def router(studio: Studio) -> APIRouter:
    routes = ComputedRoutes(studio, "inspect")
    pictures, attention_maps, token_values = inspect_images.Pictures(), ResultCache[Any](), ResultCache[Any]()
    routes.compute("/inspect/about", about, studio, pictures, place="by run")
    routes.compute("/inspect/maps", maps, studio, attention_maps, place="by run")
    routes.compute("/inspect/map", one_map, studio, attention_maps, responses=TABLES_RESPONSE, place="by run")
    routes.compute("/inspect/overview", overview, studio, attention_maps, responses=TABLES_RESPONSE, place="by run")
    routes.compute("/inspect/masked", masked, studio, place="process")
    routes.compute("/inspect/rows", rows, studio, token_values, place="by run")
    routes.compute("/inspect/units", units, studio, token_values, responses=TABLES_RESPONSE, place="by run")
    routes.compute("/inspect/table", table, studio, place="by run")
    routes.compute("/inspect/layers", layers, studio, place="by run")
    routes.compute("/inspect/curve", curve, studio, place="by run")
    routes.compute("/inspect/image", inspect_images.image, studio, pictures, place="process")
    return routes


def about(ticket: Ticket, studio: Studio, pictures: inspect_images.Pictures, asked: RunRequest) -> dict[str, Any]:
    """Which views a run has; a view's kind says how it is drawn, and by which route its data come.

    languages: that it translates into. held_out: images that can be chosen by number. text: characters a text may have.
    """
    loaded: TrainedRun = studio.models.get(asked.run, ticket)
    if isinstance(loaded, Classifier):
        raise UserError(f"{asked.run} classifies texts: the page Classify takes its answers apart")
    try:
        summary = loaded.summary()
    except (TypeError, ValueError, AttributeError, KeyError, ArithmeticError):  # the record is foreign
        summary = loaded.name
    return {
        "family": spec_of(loaded.model).family, "summary": summary, "views": tabs_of(loaded),
        "languages": list(loaded.languages[1:]) if isinstance(loaded, Translator) else [],
        "held_out": pictures.count(loaded, ticket) if isinstance(loaded, ImageRun) else 0, "text": MAX_TEXT_CHARACTERS,
    }  # fmt: skip


def tabs_of(loaded: TrainedRun) -> list[dict[str, str]]:
    """The views of the model's spec; maps of several heads have a table of the heads beside them."""
    tabs = []
    for view in spec_of(loaded.model).views_of(loaded.model):
        tabs.append({"view": view.name, "title": view.title, "kind": view.kind})
        if view.kind == "token-maps":
            tabs.append({"view": f"{view.name}-heads", "title": "Heads", "kind": "heads"})
    return tabs


# ---------------------------------------------------------------------- attention


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


def maps(ticket: Ticket, studio: Studio, cache: ResultCache[AttentionBytes], asked: MapsRequest) -> dict[str, Any]:
    """What the heads of a model attend to over a text; their maps are asked for one by one.

    queries: the rows of every map. keys: the columns. one: whether both are the same text. causal: whether a token sees
    only what came before it. note: what the weights are, where they are not those of a softmax over scores.
    """
    loaded, found = _compute(ticket, studio, asked, cache)
    L, H, _, _ = found.maps_LHTS.shape
    return {
        "queries": list(found.queries), "keys": list(found.keys), "one": not isinstance(loaded, Translator),
        "causal": isinstance(loaded, Run), "truncated": found.truncated, "layers": L, "heads": H,
        "statistics": list(found.statistics), "notes": list(found.notes),
        "note": _note(loaded, found), "translation": found.translation,
    }  # fmt: skip


def _note(loaded: Any, found: AttentionBytes) -> str:
    config = loaded.model.config
    kind = NOTES.get(str(getattr(config, "attention", "")), "") if isinstance(loaded, Run) else ""
    left = isinstance(loaded, Run) and getattr(config, "absolute", False) and len(found.queries) > config.context
    return " ".join(note for note in (kind, CONTEXT_LEFT if left else "") if note)


def one_map(ticket: Ticket, studio: Studio, cache: ResultCache[AttentionBytes], asked: MapRequest) -> ByteTables:
    """The map of one head: rows are queries, columns keys."""
    _, found = _compute(ticket, studio, asked, cache)
    L, H, _, _ = found.maps_LHTS.shape
    if asked.layer > L or asked.head > H:
        raise UserError(f"there are {L} layers of {H} heads: layer={asked.layer}, head={asked.head}; choose another")
    return ByteTables(WEIGHT, found.maps_LHTS[asked.layer - 1, asked.head - 1][None])


def overview(ticket: Ticket, studio: Studio, cache: ResultCache[AttentionBytes], asked: MapsRequest) -> ByteTables:
    """The maps of all heads, layer by layer, made small."""
    _, found = _compute(ticket, studio, asked, cache)
    return ByteTables(WEIGHT, np.stack(list(in_turns(found.small(), ticket.turn))))


def masked(ticket: Ticket, studio: Studio, asked: ViewRequest) -> dict[str, Any]:
    """The most probable tokens for each [MASK] of a text, and the text with the first of them."""
    encoder = studio.models.get(asked.run, ticket, Encoder)
    with ticket.turn():
        places, filled = encoder.fill(asked.text, GUESSES), encoder.filled(asked.text)
    return {"places": [[guess._asdict() for guess in guesses] for guesses in places], "filled": filled}


# ---------------------------------------------------------------------- views over the tokens of a text


def _open(
    ticket: Ticket, studio: Studio, asked: ViewRequest, kind: Kind
) -> tuple[Run, View, list[int], dict[str, Any]]:
    """The run, its view, the tokens that are read, and how they are shown."""
    run = studio.models.get(asked.run, ticket, Run)
    view = require_view(run.model, kind, asked.view)
    tokens = tokens_of(run, asked.text)
    if not tokens:
        raise UserError("there is nothing to read: the text is empty; write a sentence or two")
    x_N = tokens[: min(MAX_TOKENS, most_tokens(run.model)) if kind == "curve" else MAX_TOKENS]
    shown = {"tokens": [display_token(run.tokenizer, token) for token in x_N], "truncated": len(tokens) > len(x_N)}
    return run, view, x_N, shown


def _compute_rows(
    ticket: Ticket, studio: Studio, cache: ResultCache[TokenRows], asked: ViewRequest
) -> tuple[dict[str, Any], TokenRows]:
    run, view, x_N, shown = _open(ticket, studio, asked, "token-rows")
    rows = cache.get(
        run, (asked.text, view.name), len(asked.text), ticket,
        lambda: token_rows(run.model, x_N, ticket.turn, view), lambda made: sum(row.value_TD.nbytes for row in made),
    )  # fmt: skip
    return {**shown, "tokens": [BEGIN, *shown["tokens"]]}, rows


def rows(ticket: Ticket, studio: Studio, cache: ResultCache[TokenRows], asked: ViewRequest) -> dict[str, Any]:
    """Gates and states, token by token; single units are asked for row by row.

    signed: values are between -1 and 1, else between 0, shut, and 1, open. squashed: the tanh of the values is drawn.
    mean: over the units. strength: from 0 to 1, without the sign. low: the share of units that are shut, or near -1,
    over the whole text; high: that are open, or near 1. busiest: every unit, those that vary most first.
    """
    shown, rows = _compute_rows(ticket, studio, cache, asked)
    return {**shown, "rows": [
        {"row": row.name, "layer": row.layer, "units": row.value_TD.shape[1], "signed": row.signed,
         "squashed": row.squashed, "meaning": row.meaning, "mean": row.mean.tolist(), "strength": row.strength.tolist(),
         "low": float(row.low.mean()), "high": float(row.high.mean()), "busiest": row.busiest(row.value_TD.shape[1])}
        for row in rows
    ]}  # fmt: skip


def units(ticket: Ticket, studio: Studio, cache: ResultCache[TokenRows], asked: UnitsRequest) -> ByteTables:
    """Every unit of one row over the text: a line a unit, a column a token."""
    _, rows = _compute_rows(ticket, studio, cache, asked)
    row = next((row for row in rows if (row.name, row.layer) == (asked.row, asked.layer)), None)
    if row is None:
        known = ", ".join(f"{row.name} of layer {row.layer}" for row in rows)
        raise UserError(f"there is no {asked.row!r} of layer {asked.layer}; there are {known}")
    with ticket.turn():
        value_DT: NDArray[np.float64] = row.bounded().T.numpy()
        scaled = np.rint(((value_DT + 1) * 127.5 if row.signed else value_DT * 255).clip(0, 255)).astype(np.uint8)
        return ByteTables(SIGNED if row.signed else SHARE, scaled[None])


def table(ticket: Ticket, studio: Studio, asked: ViewRequest) -> dict[str, Any]:
    """A table for each token: a back-off path, the votes of a mixture.

    summary: of a mixture, how its parts did over the whole text; else null.
    """
    run, view, x_N, shown = _open(ticket, studio, asked, "token-table")
    found = token_table(run.model, x_N, lambda token: token_text(run, token), ticket.turn, view)
    return {**shown, **asdict(found), "summary": summary_table(found)}


def layers(ticket: Ticket, studio: Studio, asked: ViewRequest) -> dict[str, Any]:
    """What would be predicted if the model were read out after each layer: the logit lens.

    tops: for each token of the text, the most probable in its place. ps: its probability. costs: bits of the token that
    came; null: impossible.
    """
    run, view, x_N, shown = _open(ticket, studio, asked, "layers")
    layers = layer_predictions(run.model, x_N, ticket.turn, view)
    names = {token: token_text(run, token) for layer in layers for token in set(layer.top_N.tolist())}
    return {**shown, "layers": [
        {"name": layer.name, "bits": layer.bits, "right": layer.right,
         "tops": [names[token] for token in layer.top_N.tolist()], "ps": layer.p_N.tolist(),
         "costs": layer.bits_N.tolist(), "rights": layer.right_N.tolist()}
        for layer in layers
    ]}  # fmt: skip


def curve(ticket: Ticket, studio: Studio, asked: CurveRequest) -> dict[str, Any]:
    """Gradient flow: the gradient of the loss with respect to what the model held some tokens before.

    losses: how many were averaged. shares: the norms by steps back, relative to the first. theory: of a linear network
    whose recurrent matrix is orthogonal times a: a to the power of t. layers: a transformer's norms with respect to
    each layer's output.
    """
    run, view, x_N, shown = _open(ticket, studio, asked, "curve")
    if len(x_N) < SHORTEST:
        raise UserError(f"a gradient flows from one token to another: the text has {len(x_N)}; write more")
    back = min(asked.back or default_back(len(x_N)), len(x_N) - 1)
    flow = gradient_flow(run.model, x_N, back, turn=ticket.turn, view=view)
    first = 1 if flow.depths and back > 1 else 0  # the token itself goes straight up, which says nothing of the way
    return {
        "tokens": len(x_N), "truncated": shown["truncated"], "back": flow.back, "losses": flow.ends,
        "whole": _shares("embedding" if flow.depths else "state", flow.norms, first),
        "parts": [_shares(name, norms, first) for name, norms in flow.parts.items()],
        "theory": [_shares(f"× {scale:g}", tuple(scale**t for t in range(back + 1))) for scale in SCALES],
        "layers": list(flow.depths),
    }  # fmt: skip


def _shares(name: str, norms: Sequence[float], first: int = 0) -> dict[str, Any]:
    shares = [None if math.isnan(share) else share for share in relative(tuple(norms))]
    summary = in_words(rate(tuple(norms[first:]))) + (" from t = 1" if first else "")
    return {"name": name, "shares": shares, "summary": summary}
