"""A text read by a model: the cost of each token in bits, the most probable tokens in its place, and attention; by a
model that learns while it reads, twice."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from fastapi import APIRouter, Response
from numpy.typing import NDArray
from pydantic import BaseModel, Field

from octavo.config import rounded
from octavo.core import LanguageModel
from octavo.errors import UserError
from octavo.inspection.adaptation import adaptation_json, read_adaptation
from octavo.inspection.attention_maps import TOP_TOKENS, Layers, top_attention
from octavo.inspection.inspection import tokens_of
from octavo.inspection.surprisal import Reading, align
from octavo.inspection.views import find_view
from octavo.models.dynamic_evaluation import can_adapt
from octavo.scoring.bits_per_byte import Score
from octavo.scoring.token_costs import checked_bits, stream_shape, token_bits, token_costs
from octavo.studio.server.app import Studio, TextRequest, encode_json
from octavo.studio.server.computed_routes import ComputedRoutes
from octavo.studio.server.read_batches import ReadBatches
from octavo.studio.server.result_cache import ResultCache
from octavo.studio.server.scheduler import Ticket
from octavo.tasks.adaptive import adaptive_run
from octavo.tasks.run import Run
from octavo.text.token_display import BEGIN, display_token

CANDIDATES = 8
MAX_CANDIDATES = 400_000  # of a whole text: a long one has fewer for each token
MAX_ATTENTION_TOKENS = 4096
READINGS_CACHE_BYTES = 16 << 20  # of responses: a class opens the same page
BITS_DECIMALS = 6  # of a second reading's costs
P_DIGITS = 7  # of a candidate's probability, as many as single precision has


class LearningRequest(TextRequest):
    """Whether the run's network learns while it reads; a model that is adaptive itself always does."""

    adaptive: bool = False


class ReadRequest(LearningRequest):
    """What is shown of each token."""

    candidates: int = Field(default=CANDIDATES, ge=1, le=50)  # at most; a very long text has fewer


class TextScore(BaseModel):
    """The cost of the whole text, by the same function as `octavo eval`; null where it is infinite or undefined."""

    tokens: int
    bytes: int
    bits: float | None
    bits_per_byte: float | None
    perplexity: float | None  # per token


class TextReading(BaseModel):
    """Column by column, one entry a token."""

    score: TextScore
    tokens: list[str]
    bits: list[float | None]  # null: impossible
    bytes: list[int]
    ranks: list[int]
    candidates: list[list[tuple[str, float]]]
    contexts: list[int] | None  # n-gram: how many tokens before it the longest known n-gram has
    has_attention: bool  # whether /read/attention has an answer
    comparable: bool  # whether the bytes are those of the text: preprocessing changed nothing
    adaptive: bool  # whether it learnt while it read, so that /read/adaptation has an answer
    can_adapt: bool  # whether it is a network that could, or does because it was asked to


class OneModelTwice(BaseModel):
    """A model that reads the text twice; columns have an entry a token."""

    name: str
    learns: bool  # while it reads
    first: list[float | None]  # bits; null: impossible
    second: list[float | None]
    bits_per_byte: list[float | None]  # of the first reading and the second
    curve: list[float | None]  # of the first reading: bits per byte of the text so far
    second_curve: list[float | None]


class Adaptation(BaseModel):
    """What a text costs a model that learns while it reads, at the first reading and the second, and fixed models."""

    readings: list[OneModelTwice]  # the model that learns is the first
    bytes: list[int]
    curve_bytes: list[int]  # read at each point of the curves
    policy: str  # how the model learns
    truncated: bool


class CompareRequest(ReadRequest):
    """A text, and the two runs that read it; `adaptive` is of the first."""

    other: str = Field(max_length=400)


class ReadingComparison(BaseModel):
    """Both readings, and the shortest spans of bytes at whose ends both have a token boundary."""

    first: TextReading
    second: TextReading
    spans: list[str]  # as text
    first_ends: list[int]  # tokens up to the end of each span
    second_ends: list[int]
    bytes: list[int]
    first_bits: list[float | None]
    second_bits: list[float | None]


class AttentionRequest(TextRequest):
    """Which layers' attention is averaged."""

    layers: Layers = "last"


def router(studio: Studio) -> APIRouter:
    routes, batches = ComputedRoutes(studio, "read"), ReadBatches()
    routes.compute("/read", read_text, studio, batches, ResultCache[bytes](READINGS_CACHE_BYTES), place="by run",
                   response_model=TextReading)  # fmt: skip
    routes.compute("/read/compare", compare_readings, studio, batches, place="by run", response_model=ReadingComparison)
    adaptations = ResultCache[bytes](READINGS_CACHE_BYTES)
    routes.compute("/read/adaptation", adaptation, studio, adaptations, place="by run", response_model=Adaptation)
    routes.compute("/read/attention", attention, studio, place="by run")
    return routes


def token_text(run: Run, token: int) -> str:
    """A token as it is displayed."""
    return BEGIN if token == run.model.begin else display_token(run.tokenizer, token)


def read_text(
    ticket: Ticket, studio: Studio, batches: ReadBatches, cache: ResultCache[bytes], asked: ReadRequest
) -> Response:
    """The cost of each token of a text, and the most probable tokens in its place."""
    stored = studio.models.get(asked.run, ticket, Run)
    run = adaptive_run(stored, asked.adaptive)

    def respond() -> bytes:
        return encode_json(_columns(run, *_reading(run, tokens_of(run, asked.text), asked, batches, ticket)))

    request = (asked.text, asked.candidates, asked.adaptive)
    body = cache.get(stored, request, 0, ticket, respond, lambda made: len(made) + len(asked.text))
    return Response(body, media_type="application/json")


def adaptation(ticket: Ticket, studio: Studio, cache: ResultCache[bytes], asked: LearningRequest) -> Response:
    """The text read twice in a row by a model that learns while it reads, and by fixed models beside it."""
    stored = studio.models.get(asked.run, ticket, Run)
    run = adaptive_run(stored, asked.adaptive)
    if not run.model.adaptive:
        raise UserError(f"{asked.run} learns nothing while it reads; ask for adaptive, or choose an adaptive model")

    def respond() -> bytes:
        sizes = run.tokenizer.token_bytes
        found = read_adaptation(run.model, tokens_of(run, asked.text), lambda token: len(sizes(token)), ticket.turn)
        return encode_json(rounded(adaptation_json(found), BITS_DECIMALS))

    request = (asked.text, asked.adaptive)
    body = cache.get(stored, request, 0, ticket, respond, lambda made: len(made) + len(asked.text))
    return Response(body, media_type="application/json")


def _reading(
    run: Run, x_N: list[int], asked: ReadRequest, batches: ReadBatches, ticket: Ticket
) -> tuple[Reading, float]:
    """Every token with its candidates, and the bits of the whole text as `octavo eval` counts them."""
    candidates = max(1, min(asked.candidates, MAX_CANDIDATES // max(1, len(x_N))))
    reading = batches.read(run.model, x_N, candidates, ticket)
    shape = stream_shape(run.model)
    reads_as_scored = type(run.model).token_log_probs is LanguageModel.token_log_probs
    if shape is None or len(x_N) < shape.first:
        if reads_as_scored:
            return reading, float(reading.bits_N.numpy().sum())
        if reading.scored_N is not None and run.model.begin not in x_N:  # which opens a document, and costs nothing
            return reading, float(checked_bits(token_bits(reading.scored_N)).sum())
    # Scores that are summed over parallel streams differ from these in the last digits.
    costs = token_costs(run.model, [np.array(x_N, np.int32)] if x_N else [], shape, ticket.turn)
    return reading, sum(float(bits_W.sum()) for _, bits_W in costs)


def _columns(run: Run, reading: Reading, bits: float) -> dict[str, Any]:
    x_N, top_NK = reading.x_N.tolist(), reading.top_NK.tolist()
    names = {token: token_text(run, token) for token in {*x_N, *reading.top_NK.unique().tolist()}}
    sizes = {token: len(run.tokenizer.token_bytes(token)) for token in set(x_N)}
    bytes_N = [sizes[token] for token in x_N]
    score = Score("", bits, sum(bytes_N), len(x_N), 0)
    return {
        "score": {key: score.to_json()[key] for key in TextScore.model_fields},
        "tokens": [names[token] for token in x_N], "bits": reading.bits_N.tolist(),
        "ranks": reading.rank_N.tolist(), "bytes": bytes_N,
        "candidates": [
            [(names[token], p) for token, p in zip(top, ps, strict=True) if p > 0]
            for top, ps in zip(top_NK, round_digits(reading.p_NK.numpy(), P_DIGITS).tolist(), strict=True)
        ],
        "contexts": None if reading.context_N is None else reading.context_N.tolist(),
        "has_attention": find_view(run.model, "token-maps") is not None, "comparable": run.comparable,
        "adaptive": run.model.adaptive, "can_adapt": can_adapt(run.model),
    }  # fmt: skip


def round_digits(p: NDArray[np.float64], digits: int) -> NDArray[np.float64]:
    """Each number with so many digits, wherever its point is."""
    large = p > 1e-280  # below, the scale would overflow
    scale = 10.0 ** (digits - 1 - np.floor(np.log10(p, where=large, out=np.zeros_like(p))))
    rounded: NDArray[np.float64] = np.where(large, np.rint(p * scale) / scale, p)
    return rounded


def compare_readings(ticket: Ticket, studio: Studio, batches: ReadBatches, asked: CompareRequest) -> dict[str, Any]:
    """Two readings of one text, aligned by their bytes."""
    names = (asked.run, asked.other)
    runs = [studio.models.get(name, ticket, Run) for name in names]
    runs[0] = adaptive_run(runs[0], asked.adaptive)
    texts = [tokens_of(run, asked.text) for run in runs]
    first, second = (run.tokenizer.decode(x_N) for run, x_N in zip(runs, texts, strict=True))
    if first != second:
        changed = " and ".join(name for name, run in zip(names, runs, strict=True) if not run.comparable)
        raise UserError(f"{changed} does not read the text unchanged, so the two do not read the same bytes; "
                        "compare runs that do")  # fmt: skip
    readings = [_reading(run, x_N, asked, batches, ticket) for run, x_N in zip(runs, texts, strict=True)]
    columns = [_columns(run, *reading) for run, reading in zip(runs, readings, strict=True)]
    spans = align(columns[0]["bytes"], columns[1]["bytes"])
    bits = [reading.bits_N.tolist() for reading, _ in readings]
    return {
        "first": columns[0], "second": columns[1],
        "spans": ["".join(columns[0]["tokens"][slice(*span.first)]) for span in spans],
        "first_ends": [span.first[1] for span in spans], "second_ends": [span.second[1] for span in spans],
        "bytes": [span.bytes for span in spans],
        "first_bits": [math.fsum(bits[0][slice(*span.first)]) for span in spans],
        "second_bits": [math.fsum(bits[1][slice(*span.second)]) for span in spans],
    }  # fmt: skip


def attention(ticket: Ticket, studio: Studio, asked: AttentionRequest) -> dict[str, Any]:
    """For each token, the positions that its prediction attended to most: 0 is begin, n the n-th token of the text."""
    run = studio.models.get(asked.run, ticket, Run)
    if find_view(run.model, "token-maps") is None:
        raise UserError(f"{asked.run} has no attention; choose a transformer")
    top = top_attention(
        run.model, tokens_of(run, asked.text)[:MAX_ATTENTION_TOKENS], TOP_TOKENS, asked.layers, ticket.turn
    )
    positions = [[position for position in row if position >= 0] for row in top.place_NK.tolist()]
    weights = [row[: len(used)] for used, row in zip(positions, top.share_NK.tolist(), strict=True)]
    return {"positions": positions, "weights": weights}
