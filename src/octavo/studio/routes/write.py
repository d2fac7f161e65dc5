"""Generation by greedy decoding, sampling and beam search, with the cost of each token and its alternatives."""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Response
from pydantic import Field
from starlette.responses import StreamingResponse
from torch import Tensor

from octavo.core import seeded_generator
from octavo.decode import Beam, Greedy, Sample
from octavo.decode.annotated import ALTERNATIVES, AnnotatedToken, choices, grow, prepare, search, write
from octavo.errors import UserError
from octavo.inspection.inspection import tokens_of
from octavo.inspection.surprisal import read
from octavo.studio.routes.read import token_text
from octavo.studio.server.app import RunRequest, Studio, encode_json
from octavo.studio.server.computed_routes import ComputedRoutes
from octavo.studio.server.error_text import error_answer
from octavo.studio.server.result_cache import ResultCache
from octavo.studio.server.scheduler import ClientDisconnected, Ticket
from octavo.tasks.run import Run

MAX_PROMPT_CHARACTERS = 8000
MAX_TOKENS = 1000  # of one request
BEAM_SECONDS = 0.1  # between two states of a beam that are sent
NEXT_TOKENS = 40  # that are listed
LOGITS_CACHE_BYTES = 8 << 20  # so that moving a slider does not read the prompt again

NDJSON = "application/x-ndjson"
STREAM = (
    "Objects, one a line, streamed. add: tokens that were added, each with id, token, bytes, bits, rank and "
    "alternatives (id, text, probability). all: from a beam, the best hypothesis so far in place of those before; "
    "others: its further hypotheses and their bits. error: ends the stream early."
)
TokenId = Annotated[int, Field(ge=0, lt=1 << 31)]


class Position(RunRequest):
    """A run, a prompt, and the ids of tokens that follow it."""

    prompt: str = Field(default="", max_length=MAX_PROMPT_CHARACTERS)
    path: list[TokenId] = Field(default=[], max_length=MAX_TOKENS)


class SampledPosition(Position):
    """How the next token is sampled."""

    temperature: float = Field(default=1.0, ge=0.01, le=100)
    top_k: int | None = Field(default=None, ge=1, le=1_000_000)
    top_p: float = Field(default=1.0, gt=0, le=1)
    min_p: float = Field(default=0.0, ge=0, le=1)

    def sample(self) -> Sample:
        return Sample(self.temperature, self.top_k, self.top_p, self.min_p)


class WriteRequest(SampledPosition):
    """How to continue, and how far."""

    method: Literal["greedy", "sample", "beam"] = "sample"
    max_tokens: int = Field(default=100, ge=1, le=MAX_TOKENS)
    width: int = Field(default=4, ge=1, le=16)
    length_penalty: float = Field(default=0.0, ge=0, le=10)
    seed: int = Field(default=0, ge=0, lt=1 << 53)


class TreeRequest(Position):
    """A tree of continuations."""

    branches: int = Field(default=5, ge=1, le=20)
    expanded: int = Field(default=12, ge=1, le=60)


def router(studio: Studio) -> APIRouter:
    routes = ComputedRoutes(studio, "write")

    async def respond(lines: AsyncIterator[bytes]) -> Response:
        first = await anext(lines)  # an error before it becomes the status of the response
        return StreamingResponse(_lines(studio, first, lines), media_type=NDJSON)

    routes.stream("/write", write_text, studio, respond=respond,
                  responses={200: {"content": {NDJSON: {}}, "description": STREAM}})  # fmt: skip
    routes.compute("/next", next_tokens, studio, ResultCache[Tensor](LOGITS_CACHE_BYTES), place="by run")
    routes.compute("/tree", tree, studio, place="by run")
    routes.compute("/branch", branch, studio, place="by run")
    return routes


async def _lines(studio: Studio, first: bytes, lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    async with aclosing(lines):  # type: ignore[type-var]
        yield first + b"\n"
        try:
            async for line in lines:
                yield line + b"\n"
        except ClientDisconnected:
            return
        except Exception as error:
            yield encode_json({"error": error_answer(error, studio.root).message}) + b"\n"


def _position(studio: Studio, asked: Position, ticket: Ticket) -> tuple[Run, list[int]]:
    run = studio.models.get(asked.run, ticket, Run)
    if any(not 0 <= token < run.model.vocab or token == run.model.begin for token in asked.path):
        raise UserError(f"path must be ids of tokens that {asked.run} generates, from 0 to {run.model.vocab - 1}")
    return run, [*tokens_of(run, asked.prompt), *asked.path]


def _annotated(run: Run, one: AnnotatedToken) -> dict[str, Any]:
    others = [(token, token_text(run, token), p) for token, p in one.alternatives]
    return {
        "id": one.token, "token": token_text(run, one.token), "bytes": len(run.tokenizer.token_bytes(one.token)),
        "bits": one.bits, "rank": one.rank, "alternatives": others,
    }  # fmt: skip


def write_text(ticket: Ticket, studio: Studio, asked: WriteRequest) -> Iterator[dict[str, Any]]:
    """Continue a text, token by token."""
    run, x_T = _position(studio, asked, ticket)
    yield {"add": []}
    if asked.method == "beam":
        yield from _beam(ticket, run, x_T, asked)
        return
    method = Greedy() if asked.method == "greedy" else asked.sample()
    generator = seeded_generator(asked.seed)
    for one in write(run.model, x_T, asked.max_tokens, method, generator, turn=ticket.turn):
        yield {"add": [_annotated(run, one)]}


def _beam(ticket: Ticket, run: Run, x_T: list[int], asked: WriteRequest) -> Iterator[dict[str, Any]]:
    """The best hypothesis so far, now and then, and the last; the costs of its tokens are computed by reading it."""
    method, sent_at, sent_length = Beam(asked.width, asked.length_penalty), 0.0, 0
    for found in search(run.model, x_T, asked.max_tokens, method, ticket.turn):
        length = len(found[0].tokens)
        if length < asked.max_tokens and (length < 2 * sent_length or time.monotonic() < sent_at + BEAM_SECONDS):
            continue
        yield {"all": _read_annotated(ticket, run, x_T, found[0].tokens.tolist()), "others": [
            (run.tokenizer.decode(one.tokens.tolist()).decode("utf-8", "replace"), -one.logp / math.log(2))
            for one in found[1:]
        ]}  # fmt: skip
        sent_at, sent_length = time.monotonic(), length


def _read_annotated(ticket: Ticket, run: Run, x_T: list[int], written: list[int]) -> list[dict[str, Any]]:
    reading = read(run.model, [*x_T, *written], ALTERNATIVES + 1, ticket.turn)  # one more: begin may be among them
    tensors = (reading.bits_N, reading.rank_N, reading.top_NK, reading.p_NK)
    columns = (tensor[len(x_T) :].tolist() for tensor in tensors)
    return [
        _annotated(run, AnnotatedToken(token, bits, rank, tuple(
            (i, p) for i, p in zip(top, ps, strict=True) if p > 0 and i != run.model.begin)[:ALTERNATIVES]))
        for token, bits, rank, top, ps in zip(written, *columns, strict=True)
    ]  # fmt: skip


def next_tokens(ticket: Ticket, studio: Studio, cache: ResultCache[Tensor], asked: SampledPosition) -> dict[str, Any]:
    """The most probable next tokens, before and after temperature and truncation.

    p: the model's own probabilities; sampled: those after. rest: of all other tokens, before and after. allowed: how
    many tokens truncation leaves. entropy: in bits, before and after.
    """
    run, x_T = _position(studio, asked, ticket)
    logits_1V = cache.get(
        run.model, hash(tuple(x_T)), 0, ticket, lambda: prepare(run.model, x_T, ticket.turn).logits_BV,
        lambda logits_1V: logits_1V.nbytes,
    )  # fmt: skip
    with ticket.turn():
        next_tokens = choices(run.model, logits_1V, asked.sample(), NEXT_TOKENS)
    ids = next_tokens.token_K.tolist()
    return {
        "ids": ids, "tokens": [token_text(run, token) for token in ids], "p": next_tokens.p_K.tolist(),
        "sampled": next_tokens.drawn_K.tolist(), "rest": next_tokens.rest, "allowed": next_tokens.kept,
        "possible": run.model.vocab - 1, "entropy": next_tokens.entropy,
    }  # fmt: skip


def tree(ticket: Ticket, studio: Studio, asked: TreeRequest) -> dict[str, Any]:
    """The most probable continuations as a tree: its nodes, parents before their children; the first is the root.

    bits: of the path from the root.
    """
    run, x_T = _position(studio, asked, ticket)
    nodes, parents = [grow(run.model, x_T, asked.branches, asked.expanded, ticket.turn)], [-1]
    for at, node in enumerate(nodes):  # the list grows while it is iterated
        nodes.extend(node.children)
        parents.extend([at] * len(node.children))
    return {
        "ids": [node.token for node in nodes], "parents": parents,
        "tokens": ["" if node.token < 0 else token_text(run, node.token) for node in nodes],
        "p": [node.p for node in nodes], "bits": [-node.logp / math.log(2) for node in nodes],
    }  # fmt: skip


def branch(ticket: Ticket, studio: Studio, asked: Position) -> dict[str, Any]:
    """The prompt and the tokens after it as one text, to continue from."""
    run, x_T = _position(studio, asked, ticket)
    path = x_T[len(x_T) - len(asked.path) :]
    data = run.tokenizer.decode(path) if run.comparable else run.tokenizer.decode(x_T)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise UserError(
            "a text cannot end within a character: this token is only a part of one; take another"
        ) from None
    return {"text": asked.prompt + text if run.comparable else text}
