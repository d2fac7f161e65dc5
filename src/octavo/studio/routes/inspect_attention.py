"""Views of attention: the maps of every head; and the masked words of a BERT."""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import Field

from octavo.errors import UserError
from octavo.inspect.attention_page import CONTEXT_LEFT
from octavo.inspect.inspection import AttentionBytes, attention_bytes
from octavo.inspect.views import require_view
from octavo.io.cooperative import in_turns
from octavo.studio.routes.inspect_tokens import ViewRequest
from octavo.studio.server.app import Studio
from octavo.studio.server.byte_tables import WEIGHT, ByteTables, pack_tables
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
    return ByteTables(pack_tables(WEIGHT, found.maps_LHTS[asked.layer - 1, asked.head - 1][None]))


def overview(ticket: Ticket, studio: Studio, cache: ResultCache[AttentionBytes], asked: MapsRequest) -> ByteTables:
    """The maps of all heads, layer by layer, made small."""
    _, found = _compute(ticket, studio, asked, cache)
    return ByteTables(pack_tables(WEIGHT, np.stack(list(in_turns(found.small(), ticket.turn)))))


def masked(ticket: Ticket, studio: Studio, asked: ViewRequest) -> dict[str, Any]:
    """The most probable tokens for each [MASK] of a text, and the text with the first of them."""
    encoder = studio.models.get(asked.run, ticket)
    if not isinstance(encoder, Encoder):
        raise UserError(f"{asked.run} fills in no masked words; choose a BERT")
    with ticket.turn():
        places = encoder.fill(asked.text, GUESSES)
    text = asked.text
    for guesses in places:
        text = text.replace("[MASK]", guesses[0].token, 1)
    return {"places": [[guess._asdict() for guess in guesses] for guesses in places], "filled": text.replace(" ##", "")}
