"""A model writes: greedily, by drawing or by a beam, with what each token cost; and what else might have come."""

from __future__ import annotations

import json
import math
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Annotated, Any, Literal
from weakref import ReferenceType, ref

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field
from starlette.responses import StreamingResponse
from torch import Tensor

from octavo.core import LanguageModel, seeded_generator
from octavo.decode import Beam, Greedy, Sample
from octavo.decode.annotated import ALTERNATIVES, Noted, choices, prepare, search, write
from octavo.decode.tree import Node, grow
from octavo.errors import UserError
from octavo.inspect.inspection import tokens_of
from octavo.inspect.surprisal import read
from octavo.studio.routes.read import language_model, packed, spelt
from octavo.studio.server.app import RequestBody, Studio
from octavo.studio.server.scheduler import Ticket
from octavo.tasks.run import Run

PROMPT = 8000  # characters
TOKENS = 1000  # that may be written at once
OFTEN = 0.1  # seconds between the beams that are sent while it goes on
SHOWN = 40  # next tokens that are told
KEPT = 8  # places whose logits are kept, so that moving a slider does not read the text again

NDJSON = "application/x-ndjson"
Token = Annotated[int, Field(ge=0, lt=1 << 31)]


class Begun(RequestBody):
    """A run, what it has read, and tokens that follow that by their numbers."""

    run: str = Field(max_length=400)
    prompt: str = Field(default="", max_length=PROMPT)
    path: list[Token] = Field(default=[], max_length=TOKENS)


class Drawn(Begun):
    """How the next token is drawn."""

    temperature: float = Field(default=1.0, ge=0.01, le=100)
    top_k: int | None = Field(default=None, ge=1, le=1_000_000)
    top_p: float = Field(default=1.0, gt=0, le=1)
    min_p: float = Field(default=0.0, ge=0, le=1)

    def sample(self) -> Sample:
        return Sample(self.temperature, self.top_k, self.top_p, self.min_p)


class Write(Drawn):
    """How to go on, and how far."""

    method: Literal["greedy", "sample", "beam"] = "sample"
    max_tokens: int = Field(default=100, ge=1, le=TOKENS)
    width: int = Field(default=4, ge=1, le=16)
    length_penalty: float = Field(default=0.0, ge=0, le=10)
    seed: int = Field(default=0, ge=0, lt=1 << 53)


class Written(BaseModel):
    """One token of an answer."""

    id: int
    token: str
    bytes: int
    bits: float
    rank: int
    alternatives: list[tuple[int, str, float]]  # their numbers, their text, their probabilities


class Line(BaseModel):
    """One line of an answer: the tokens that were added, or, from a beam, all of the best so far in place of those
    before; `error` ends it early."""

    add: list[Written] | None = None
    all: list[Written] | None = None
    others: list[tuple[str, float]] | None = None  # a beam's further hypotheses and their bits
    error: str | None = None


class Next(BaseModel):
    """What may come next, the likeliest first."""

    ids: list[int]
    tokens: list[str]
    p: list[float]  # the model's own
    drawn: list[float]  # after temperature and cut-offs
    rest: tuple[float, float]
    kept: int
    possible: int
    entropy: tuple[float, float]  # in bits


class Grow(Begun):
    """A tree of what may follow."""

    branches: int = Field(default=5, ge=1, le=20)
    opened: int = Field(default=12, ge=1, le=60)


class Tree(BaseModel):
    """The nodes, parents before their children; the first is the root."""

    ids: list[int]
    parents: list[int]
    tokens: list[str]
    p: list[float]
    bits: list[float]  # of all from the root to here


class Spelt(BaseModel):
    """A text."""

    text: str


class Places:
    """The logits of the last few places that were asked for. TextStore are not kept, only what tells them apart."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[int, int], tuple[ReferenceType[LanguageModel[Any]], Tensor]] = OrderedDict()

    def after(self, run: Run, x_T: list[int], ticket: Ticket) -> Tensor:
        """logits_1V after the tokens; asked for again, they are not computed again."""
        key = (id(run.model), hash(tuple(x_T)))
        with self._lock:
            of, logits_1V = self._kept.get(key, (None, None))
        if of is None or logits_1V is None or of() is not run.model:  # its number may be another's by now
            logits_1V = prepare(run.model, x_T, ticket.turn).logits_1V
        with self._lock:
            self._kept[key] = (ref(run.model), logits_1V)
            self._kept.move_to_end(key)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return logits_1V


def router(studio: Studio) -> APIRouter:
    routes, places = APIRouter(tags=["write"]), Places()

    told = {"model": Line, "content": {NDJSON: {}}, "description": "such values as they come, one a line"}

    @routes.post("/write", response_model=None, responses={200: told})
    async def write_text(asked: Write) -> Response:
        """Go on with a text, token by token."""
        lines = studio.scheduler.stream(_write, studio, asked)
        first = await anext(lines)  # what cannot be done at all is told by the status
        return StreamingResponse(_lines(first, lines), media_type=NDJSON)

    @routes.post("/next", response_model=Next)
    async def next_tokens(asked: Drawn, request: Request) -> Any:
        """The likeliest next tokens, and what temperature and cut-offs make of them."""
        return await studio.scheduler.run(request, _next, studio, asked, places)

    @routes.post("/tree", response_model=Tree)
    async def tree(asked: Grow, request: Request) -> Any:
        """The likeliest continuations, as a tree."""
        return await studio.scheduler.run(request, _tree, studio, asked)

    @routes.post("/branch", response_model=Spelt)
    async def branch(asked: Begun, request: Request) -> Any:
        """The prompt and the tokens after it as one text, to go on from."""
        return await studio.scheduler.run(request, _branch, studio, asked)

    return routes


async def _lines(first: dict[str, Any], lines: AsyncIterator[dict[str, Any]]) -> AsyncIterator[bytes]:
    async with aclosing(lines):  # type: ignore[type-var]
        yield _line(first)
        try:
            async for one in lines:
                yield _line(one)
        except UserError as error:
            yield _line({"error": str(error)})


def _line(value: dict[str, Any]) -> bytes:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace") + b"\n"


def _begun(studio: Studio, asked: Begun, ticket: Ticket) -> tuple[Run, list[int]]:
    run = language_model(studio, asked.run, ticket)
    if any(not 0 <= token < run.model.vocab or token == run.model.begin for token in asked.path):
        raise UserError(f"path must be of tokens that {asked.run} writes: numbers from 0 to {run.model.vocab - 1}")
    return run, [*tokens_of(run, asked.prompt), *asked.path]


def _written(run: Run, one: Noted) -> dict[str, Any]:
    others = [(token, spelt(run, token), p) for token, p in one.alternatives]
    return {
        "id": one.token, "token": spelt(run, one.token), "bytes": len(run.tokenizer.token_bytes(one.token)),
        "bits": one.bits, "rank": one.rank, "alternatives": others,
    }  # fmt: skip


def _write(ticket: Ticket, studio: Studio, asked: Write) -> Iterator[dict[str, Any]]:
    run, x_T = _begun(studio, asked, ticket)
    yield {"add": []}
    if asked.method == "beam":
        yield from _beam(ticket, run, x_T, asked)
        return
    method = Greedy() if asked.method == "greedy" else asked.sample()
    generator = seeded_generator(asked.seed)
    for one in write(run.model, x_T, asked.max_tokens, method, generator, turn=ticket.turn):
        yield {"add": [_written(run, one)]}


def _beam(ticket: Ticket, run: Run, x_T: list[int], asked: Write) -> Iterator[dict[str, Any]]:
    """The best hypothesis so far, now and then, and at last; what its tokens cost is read from it anew."""
    method, told, sent = Beam(asked.width, asked.length_penalty), 0.0, 0
    for found in search(run.model, x_T, asked.max_tokens, method, ticket.turn):
        length = len(found[0].tokens)
        if length < asked.max_tokens and (length < 2 * sent or time.monotonic() < told + OFTEN):
            continue
        yield {"all": _read_again(ticket, run, x_T, found[0].tokens.tolist()), "others": [
            (run.tokenizer.decode(one.tokens.tolist()).decode("utf-8", "replace"), -one.logp / math.log(2))
            for one in found[1:]
        ]}  # fmt: skip
        told, sent = time.monotonic(), length


def _read_again(ticket: Ticket, run: Run, x_T: list[int], written: list[int]) -> list[dict[str, Any]]:
    told = read(run.model, [*x_T, *written], ALTERNATIVES + 1, ticket.turn)  # one more, for begin may be among them
    columns = (one[len(x_T) :].tolist() for one in (told.bits_N, told.rank_N, told.top_NK, told.p_NK))
    return [
        _written(run, Noted(token, bits, rank, tuple(
            (i, p) for i, p in zip(top, ps, strict=True) if p > 0 and i != run.model.begin)[:ALTERNATIVES]))
        for token, bits, rank, top, ps in zip(written, *columns, strict=True)
    ]  # fmt: skip


def _next(ticket: Ticket, studio: Studio, asked: Drawn, places: Places) -> Response:
    run, x_T = _begun(studio, asked, ticket)
    logits_1V = places.after(run, x_T, ticket)
    with ticket.turn():
        found = choices(run.model, logits_1V, asked.sample(), SHOWN)
    ids = found.token_K.tolist()
    return packed({
        "ids": ids, "tokens": [spelt(run, token) for token in ids], "p": found.p_K.tolist(),
        "drawn": found.drawn_K.tolist(), "rest": found.rest, "kept": found.kept, "possible": run.model.vocab - 1,
        "entropy": found.entropy,
    })  # fmt: skip


def _tree(ticket: Ticket, studio: Studio, asked: Grow) -> Response:
    run, x_T = _begun(studio, asked, ticket)
    nodes, parents = [grow(run.model, x_T, asked.branches, asked.opened, ticket.turn)], [-1]
    for at, node in enumerate(nodes):  # it grows while it is gone through
        nodes.extend(node.children)
        parents.extend([at] * len(node.children))
    return packed({
        "ids": [one.token for one in nodes], "parents": parents, "tokens": [_named(run, one) for one in nodes],
        "p": [one.p for one in nodes], "bits": [-one.logp / math.log(2) for one in nodes],
    })  # fmt: skip


def _named(run: Run, node: Node) -> str:
    return "" if node.token < 0 else spelt(run, node.token)


def _branch(ticket: Ticket, studio: Studio, asked: Begun) -> Response:
    run, x_T = _begun(studio, asked, ticket)
    path = x_T[len(x_T) - len(asked.path) :]
    data = run.tokenizer.decode(path) if run.comparable else run.tokenizer.decode(x_T)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise UserError(
            "a text cannot end within a character: this token is only a part of one; take another"
        ) from None
    return packed({"text": asked.prompt + text if run.comparable else text})
