"""A text read by a model: what each token cost, and what was expected in its place."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from octavo.errors import UserError
from octavo.lens.look import tokens_of
from octavo.lens.surprisal import BEGIN, read, shown
from octavo.run import Run
from octavo.studio.app import TEXT, Asked, Studio
from octavo.studio.work import Ticket

CANDIDATES = 8


class Read(Asked):
    """Which run reads what."""

    run: str = Field(max_length=400)
    text: str = Field(max_length=TEXT)
    candidates: int = Field(default=CANDIDATES, ge=1, le=50)


class Told(BaseModel):
    """Column by column, one entry a token."""

    tokens: list[str]
    bits: list[float | None]  # null: impossible
    bytes: list[int]
    ranks: list[int]
    candidates: list[list[tuple[str, float]]]
    contexts: list[int] | None  # n-gram: how many tokens before it the longest known n-gram has


def router(studio: Studio) -> APIRouter:
    routes = APIRouter(tags=["read"])

    @routes.post("/read", response_model=Told)
    async def read_text(asked: Read, request: Request) -> Any:
        """What each token of a text costs a model, and what it expected instead."""
        return await studio.work.run(request, _read, studio, asked)

    return routes


def language_model(studio: Studio, name: str, ticket: Ticket) -> Run:
    """The run, where it predicts next tokens; any other is refused."""
    found = studio.shelf.get(name, ticket)
    if not isinstance(found, Run):
        raise UserError(f"{name} does not predict next tokens; choose a language model")
    return found


def _read(ticket: Ticket, studio: Studio, asked: Read) -> dict[str, Any]:
    run = language_model(studio, asked.run, ticket)
    x_N = tokens_of(run, asked.text)
    told = read(run.model, x_N, asked.candidates, ticket.turn)
    spelt = {token: _spelt(run, token) for token in {*x_N, *told.top_NK.flatten().tolist()}}
    return {
        "tokens": [spelt[token] for token in x_N], "bits": told.bits_N.tolist(), "ranks": told.rank_N.tolist(),
        "bytes": [len(run.tokenizer.spelling(token)) for token in x_N],
        "candidates": [
            [(spelt[token], p) for token, p in zip(top, ps, strict=True) if p > 0]
            for top, ps in zip(told.top_NK.tolist(), told.p_NK.tolist(), strict=True)
        ],
        "contexts": None if told.context_N is None else told.context_N.tolist(),
    }  # fmt: skip


def _spelt(run: Run, token: int) -> str:
    return BEGIN if token == run.model.begin else shown(run.tokenizer, token)
