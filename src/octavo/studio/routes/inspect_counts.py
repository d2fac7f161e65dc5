"""Inside models that count: the back-off path of an n-gram, the votes of a mixture's parts."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from octavo.errors import UserError
from octavo.inspect.backoff import backoff, votes
from octavo.inspect.summary import LONGEST, tokens_of
from octavo.models import Mix, NGram, name_of
from octavo.studio.routes.read import language_model
from octavo.studio.server.app import MAX_TEXT_CHARACTERS, RequestBody, Studio
from octavo.studio.server.scheduler import Ticket
from octavo.tasks.run import Run
from octavo.text.token_display import BEGIN, display_token


class Look(RequestBody):
    """Which run is looked into while it reads what."""

    run: str = Field(max_length=400)
    text: str = Field(max_length=MAX_TEXT_CHARACTERS)


class Path(BaseModel):
    """The path of every token. Row by row a token; within a row, column k is the context of k tokens before it."""

    tokens: list[str]
    cut: bool  # whether the text was longer than what is told
    begin: str  # how the begin of the text, which counts as a token of a context, is shown
    order: int
    estimator: str
    vocab: int
    p: list[float]
    answered: list[int]  # tokens of the longest context that the token was seen after
    seen: list[list[bool]]  # whether training kept the context
    followed: list[list[int]]  # by how many different tokens
    found: list[list[bool]]  # whether this token is one of them
    alpha: list[list[float]]
    gamma: list[list[float]]
    share: list[list[float]]  # what each gives to p
    uniform: list[float]  # what the uniform distribution below gives: with the shares, this sums to p
    counts: list[tuple[int, int]] | None  # add-k: how often the longest context came before it, and at all


class Voted(BaseModel):
    """The votes on every token; within a row, one column a part."""

    tokens: list[str]
    cut: bool
    parts: list[str]
    chooser: str  # the part by whose context class the weights are chosen; empty where there is one set for all
    classes: list[int]
    p: list[float]
    votes: list[list[float]]
    weights: list[list[float]]


def router(studio: Studio) -> APIRouter:
    routes = APIRouter(tags=["inspect"])

    @routes.post("/inspect/backoff", response_model=Path)
    async def path(asked: Look, request: Request) -> Any:
        """How an n-gram model came to each token's probability."""
        return await studio.scheduler.run(request, _path, studio, asked)

    @routes.post("/inspect/votes", response_model=Voted)
    async def voted(asked: Look, request: Request) -> Any:
        """What each part of a mixture says, and how much it counts."""
        return await studio.scheduler.run(request, _voted, studio, asked)

    return routes


def text_of(run: Run, text: str, most: int = LONGEST) -> tuple[list[int], dict[str, Any]]:
    """The tokens that are looked at, and how they are shown."""
    whole = tokens_of(run, text)
    if not whole:
        raise UserError("there is nothing to look at: the text is empty; write a sentence or two")
    x_N = whole[:most]
    return x_N, {"tokens": [display_token(run.tokenizer, token) for token in x_N], "cut": len(whole) > len(x_N)}


def _path(ticket: Ticket, studio: Studio, asked: Look) -> dict[str, Any]:
    run = language_model(studio, asked.run, ticket)
    model = run.model
    if not isinstance(model, NGram):
        raise UserError(f"{asked.run} is no n-gram model: it does not back off; look at its other views")
    with ticket.turn():
        x_N, told = text_of(run, asked.text)
        found = backoff(model, x_N)
    return {
        **told, "begin": BEGIN, "order": model.config.order, "estimator": model.config.estimator, "vocab": model.vocab,
        "p": found.p_N.tolist(), "answered": found.answered_N.tolist(), "seen": found.seen_NK.tolist(),
        "followed": found.followed_NK.tolist(), "found": found.found_NK.tolist(), "alpha": found.alpha_NK.tolist(),
        "gamma": found.gamma_NK.tolist(), "share": found.share_NK.tolist(), "uniform": found.uniform_N.tolist(),
        "counts": None if found.counts_N2 is None else found.counts_N2.tolist(),
    }  # fmt: skip


def _voted(ticket: Ticket, studio: Studio, asked: Look) -> dict[str, Any]:
    run = language_model(studio, asked.run, ticket)
    model = run.model
    if not isinstance(model, Mix):
        raise UserError(f"{asked.run} is no mixture: nobody votes in it; look at its other views")
    x_N, told = text_of(run, asked.text)
    found = votes(model, x_N, ticket.turn)
    parts = [_called(part) for part in model.parts]
    return {
        **told, "parts": parts, "chooser": parts[model.gate] if len(model.logw_GI) > 1 else "",
        "classes": found.class_N.tolist(), "p": found.p_N.tolist(), "votes": found.p_NI.tolist(),
        "weights": found.weight_NI.tolist(),
    }  # fmt: skip


def _called(part: Any) -> str:
    name = name_of(part)
    return f"{name} of order {part.config.order}" if name == "ngram" else name
