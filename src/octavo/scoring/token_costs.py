"""The cost in bits (surprisal, -log2 p) of every token of a text: the only way in which a model is scored.

B rows that are scored together, T tokens of the longest of them, W tokens of a window.

A text is cut into rows that are scored in parallel where that changes nothing. Documents are rows, because each of them
begins with a fresh state. A model with a finite receptive field also reads one document in parallel streams, each of
which is given the tokens before it that its first prediction depends on. Any other model reads a document from its
first token to its last.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from octavo.core import LanguageModel, device_of, eval_mode, map_state, single_thread
from octavo.errors import UserError
from octavo.io.cooperative import Turn
from octavo.text import Tokens

Costs = tuple[Tokens, NDArray[np.float64]]  # tokens, and the bits of each; begin tokens cost nothing

MIN_STREAM_TOKENS = 2048  # scored by each stream, at least
STREAM_RECEPTIVE_FIELDS = 16  # scored by each stream, at least: so at most 1/16 of the work is repeated context
MAX_ROWS = 1024  # scored together
MAX_DOCUMENT_ROWS = 64  # documents scored together; an adaptive model has weights of its own for each, so one
MAX_DOCUMENT_TOKENS = 1 << 16  # of a document that is scored with others; longer ones are scored one by one
MAX_ROUNDING_BITS = 0.01  # below zero; an ARPA file of four digits, the roughest of all, can leave 0.001
MIN_WINDOW_TOKENS = 16  # of each row that are scored by one call


class StreamRow(NamedTuple):
    """Tokens that one row of a batch reads, the first `context` of which are not scored."""

    tokens: Tokens
    context: int


class StreamShape(NamedTuple):
    """How a document is cut: `first` tokens, then `step` at a time, each given the `context` tokens before them."""

    first: int
    step: int
    context: int


@torch.no_grad()
def token_costs(
    model: LanguageModel[Any], blocks: Iterable[Tokens], shape: StreamShape | None = None, turn: Turn = nullcontext
) -> Iterator[Costs]:
    """The tokens of a text in order, many at a time, and the bits each costs; a begin token opens every document.

    `shape` says how documents are cut where the model allows it, and need not be given.
    """
    shape = shape or stream_shape(model)
    pieces = _pieces(blocks, model)
    with eval_mode(model):
        if shape is None:
            yield from _score_documents(model, pieces, turn)
            return
        rows, size = [], 0
        for row in _streams(pieces, shape, model.begin):
            rows.append(row)
            size += len(row.tokens)
            if size >= model.max_scored_tokens or len(rows) == MAX_ROWS:
                yield _score_rows(model, rows, turn)
                rows, size = [], 0
        if rows:
            yield _score_rows(model, rows, turn)


def stream_shape(model: LanguageModel[Any]) -> StreamShape | None:
    """How documents are cut into parallel streams; None where they cannot be, or one row keeps the device busy."""
    field = model.receptive_field
    if field is None:
        return None
    if model.window_stride:  # each window is read from its beginning, so any number of them in parallel
        return StreamShape(field, model.window_stride, field - model.window_stride + 1)
    length = max(MIN_STREAM_TOKENS, STREAM_RECEPTIVE_FIELDS * field)
    return StreamShape(length, length, max(1, field)) if 2 * length <= model.max_scored_tokens else None


def _pieces(blocks: Iterable[Tokens], model: LanguageModel[Any]) -> Iterator[tuple[Tokens, bool]]:
    """Pieces of documents, without their begin tokens, and whether a document opens there.

    Where begin resets the state by itself, it stays among the other tokens, and all documents are one.
    """
    opens = True
    for block in blocks:
        begins = set() if model.begin_resets else set(np.flatnonzero(block == model.begin).tolist())
        if opens and len(block) and block[0] == model.begin:
            begins.add(0)
        for low, high in pairwise(sorted({0, *begins, len(block)})):
            yield block[low + (low in begins) : high], opens or low in begins
            opens = False


def _streams(pieces: Iterable[tuple[Tokens, bool]], shape: StreamShape, begin: int) -> Iterator[StreamRow]:
    """The documents, cut."""
    held, context, scored = np.zeros(0, np.int32), 0, 0
    for piece, opens in pieces:
        if opens:
            if len(held) > context:
                yield StreamRow(held, context)
            held, context, scored = np.array([begin], np.int32), 1, shape.first
        held = np.concatenate([held, piece])
        while len(held) >= context + scored:
            end = context + scored
            yield StreamRow(held[:end], context)
            held, context, scored = held[end - shape.context :], shape.context, shape.step
    if len(held) > context:
        yield StreamRow(held, context)


def _score_documents(model: LanguageModel[Any], pieces: Iterable[tuple[Tokens, bool]], turn: Turn) -> Iterator[Costs]:
    """Whole documents: short ones together, long ones by themselves, piece by piece."""
    waiting: list[StreamRow] = []
    held = StreamRow(np.zeros(0, np.int32), 0)
    state: Any = None  # of a document that is too long to wait
    for piece, opens in pieces:
        if opens and state is not None:
            yield _score_on(model, held, state, turn)[0]
        elif opens and len(held.tokens) > held.context:
            waiting.append(held)
        if opens:
            held, state = StreamRow(np.array([model.begin], np.int32), 1), None
        held = StreamRow(np.concatenate([held.tokens, piece]), held.context)
        long = len(held.tokens) > MAX_DOCUMENT_TOKENS
        full = (
            len(waiting) >= (1 if model.adaptive else MAX_DOCUMENT_ROWS)
            or sum(len(row.tokens) for row in waiting) > MAX_DOCUMENT_TOKENS
        )
        if waiting and (long or full):
            yield _score_rows(model, waiting, turn)
            waiting = []
        if long:
            costs, state = _score_on(model, held, model.start(1) if state is None else state, turn)
            yield costs
            held = StreamRow(held.tokens[-1:], 1)
    if state is not None:
        yield _score_on(model, held, state, turn)[0]
    elif len(held.tokens) > held.context:
        waiting.append(held)
    if waiting:
        yield _score_rows(model, waiting, turn)


def _score_on(model: LanguageModel[Any], row: StreamRow, state: Any, turn: Turn) -> tuple[Costs, Any]:
    """The costs of the next tokens of one document, and the state after all of them but the last."""
    x_1T = torch.from_numpy(row.tokens.astype(np.int64))[None].to(device_of(model))
    parts = [np.zeros(0)]
    for at in range(0, x_1T.shape[1] - 1, model.max_scored_tokens):
        with turn(), _threads(model):
            logp_1W, state = model.token_log_probs(state, x_1T[:, at : at + model.max_scored_tokens + 1])
        parts.append(token_bits(logp_1W)[0])
    tokens, bits = row.tokens[1:], np.concatenate(parts)
    bits[tokens == model.begin] = 0
    return (tokens, checked_bits(bits)), state


def _score_rows(model: LanguageModel[Any], rows: list[StreamRow], turn: Turn) -> Costs:
    """The costs of the rows' tokens, one row after the other. Rows are padded with tokens whose bits nobody reads."""
    order = sorted(range(len(rows)), key=lambda i: -len(rows[i].tokens))
    lengths = [len(rows[i].tokens) for i in order]
    x_BT = np.zeros((len(rows), max(lengths, default=0)), np.int64)
    for row_T, i in zip(x_BT, order, strict=True):
        row_T[: len(rows[i].tokens)] = rows[i].tokens
    x = torch.from_numpy(x_BT).to(device_of(model))
    bits_BT = np.zeros(x_BT.shape)
    width = window_tokens(model, x.shape[1], len(rows))
    state = model.start(len(rows))
    active = len(rows)
    for at in range(0, x.shape[1] - 1, width):
        ended = sum(length <= at + 1 for length in lengths[:active])
        if ended:
            active -= ended
            state = map_state(state, lambda tensor, left=active: tensor[:left])  # type: ignore[misc]
        with turn(), _threads(model):
            logp_BW, state = model.token_log_probs(state, x[:active, at : at + width + 1])
        bits_BT[:active, at + 1 : at + 1 + width] = token_bits(logp_BW)
    bits_BT[x_BT == model.begin] = 0
    place = {i: b for b, i in enumerate(order)}
    tokens = np.concatenate([np.zeros(0, np.int32), *(row.tokens[row.context :] for row in rows)])
    bits = [bits_BT[place[i], row.context : len(row.tokens)] for i, row in enumerate(rows)]
    return tokens, checked_bits(np.concatenate([np.zeros(0), *bits]))


def _threads(model: LanguageModel[Any]) -> AbstractContextManager[None]:
    """An adaptive model reads a segment at a time, too little for a second thread to be worth waiting for."""
    return single_thread() if model.adaptive else nullcontext()


def window_tokens(model: LanguageModel[Any], tokens: int, rows: int = 1) -> int:
    """How many tokens of each row are scored by one call, of rows of so many."""
    width = max(MIN_WINDOW_TOKENS, -(-model.max_scored_tokens // max(1, rows)))
    return width if tokens > 1.25 * width else tokens


def token_bits(logp: Tensor) -> NDArray[np.float64]:
    """Log-probabilities as costs in bits."""
    bits: NDArray[np.float64] = (-logp.double() / math.log(2)).cpu().numpy()
    return bits


def checked_bits(bits: NDArray[np.float64]) -> NDArray[np.float64]:
    """The costs of tokens, none of which may be NaN or negative; one that is infinite is of an impossible token.

    Rounding may make a token that is certain cost a hair less than nothing: that counts as nothing.
    """
    if bits.size and not float(bits.min()) >= -MAX_ROUNDING_BITS:  # which NaN is not either
        worst = float(bits[np.isnan(bits)][0] if np.isnan(bits).any() else bits.min())
        raise UserError(
            f"a token must cost at least 0 bits: the model gives one {worst:.4g}, so what it computes are no "
            "probabilities; its weights are damaged, or its code is wrong"
        )
    return np.maximum(bits, 0.0)
