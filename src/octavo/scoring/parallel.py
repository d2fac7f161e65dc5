"""Scoring many pieces of a text side by side: what `charges` does token after token, in a fraction of the time.

N tokens, B pieces of a batch, T tokens of the longest of them.

A network that reads one text waits for its weights at every token; reading many pieces at once, it waits once for all
of them. Every piece is read after tokens that come before it and are not charged again, so that it does not begin
knowing nothing. Documents that fit into one piece, and models that look back less far than that, lose nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from octavo.core import STATE_CARRIED, LanguageModel, device_of, eval_mode
from octavo.text import Tokens

PIECE, BEFORE = 4096, 256  # tokens that are charged, and that are read before them
ROWS = 64
WIDTH = 512  # tokens of each row that are charged at once
LOGITS = 1 << 25  # numbers, at most, that this makes


class Piece(NamedTuple):
    """Tokens from `start` to `end` are charged, those from `before` on are read."""

    before: int
    start: int
    end: int


def policy_in_pieces(model: LanguageModel[Any]) -> str:
    """What of the past a token is charged with."""
    within = "the state carried within it" if model.context_policy == STATE_CARRIED else model.context_policy
    return f"pieces of {PIECE:,} tokens, each read after the {BEFORE} before it; {within}"


@torch.no_grad()
def charges_in_pieces(model: LanguageModel[Any], tokens: Iterable[Tokens]) -> Iterator[tuple[Tokens, NDArray[Any]]]:
    """All tokens, and the bits each costs; begin tokens start over, free. Takes memory for all of them."""
    x_N = np.concatenate([np.zeros(0, np.int32), *tokens])
    bits_N = np.zeros(len(x_N))
    pieces = sorted(cut_pieces(x_N, model.begin), key=lambda piece: piece.before - piece.end)
    with eval_mode(model):
        for first in range(0, len(pieces), ROWS):
            _charge(model, x_N, bits_N, pieces[first : first + ROWS])
    yield x_N, bits_N


def cut_pieces(x_N: NDArray[Any], begin: int) -> list[Piece]:
    """The pieces of every document; its begin token belongs to none, because each piece is opened by one."""
    opened = np.flatnonzero(x_N == begin).tolist()
    opened = opened if opened[:1] == [0] else [-1, *opened]
    pieces = []
    for low, high in pairwise([*opened, len(x_N)]):
        for start in range(low + 1, high, PIECE):
            pieces.append(Piece(max(low + 1, start - BEFORE), start, min(high, start + PIECE)))
    return pieces


def _charge(model: LanguageModel[Any], x_N: NDArray[Any], bits_N: NDArray[Any], pieces: list[Piece]) -> None:
    """Write the bits of the pieces; shorter ones are filled up with tokens whose bits nobody asks for."""
    longest = max(piece.end - piece.before for piece in pieces)
    rows_BT = np.zeros((len(pieces), longest), np.int64)
    for row_T, piece in zip(rows_BT, pieces, strict=True):
        row_T[: piece.end - piece.before] = x_N[piece.before : piece.end]
    x_BT = model.prepend_begin(torch.from_numpy(rows_BT)).to(device_of(model))
    state, charged = model.start(len(pieces)), []
    width = max(16, min(WIDTH, LOGITS // (model.vocab * len(pieces))))
    for at in range(0, longest, width):
        logp_BW, state = model.token_log_probs(state, x_BT[:, at : at + width + 1])
        charged.append((-logp_BW.double() / math.log(2)).cpu().numpy())
    bits_BT = np.concatenate(charged, 1)
    for bits_T, piece in zip(bits_BT, pieces, strict=True):
        bits_N[piece.start : piece.end] = bits_T[piece.start - piece.before : piece.end - piece.before]
