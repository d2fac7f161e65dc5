"""Turns whole texts into bytes and back with an adaptive mixture: a token is written bit by bit along its path, so no
distribution over the vocabulary is made. Encoder and decoder hear the parts in the same way, a token at a time.

T time, V vocabulary, I experts.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from octavo.core import eval_mode, single_thread
from octavo.io.progress import Advance
from octavo.models import mixing_loops as loops
from octavo.models.adaptive_mix_session import MixReader, next_distributions
from octavo.models.context_tables import ContextTables
from octavo.models.mixing_loops import Known, Shape
from octavo.ops.compiled import compiled
from octavo.ops.range_coding import (
    AT,
    FLUSHED_BYTES,
    TOTAL_BITS,
    Array,
    TextCoder,
    decode_token,
    encode_token,
    finish,
    frequencies,
    new_coder,
    start_decoder,
)

if TYPE_CHECKING:
    from octavo.models.adaptive_mix import AdaptiveMix

REPORTED_TOKENS = 256  # between two reports of progress
NEXT = -1  # in place of a token: the one that comes next in the bytes
MAX_TOKEN_BYTES = 4  # that a bit of a token can take


@compiled
def code_token(
    theta_P: Array, shape: Shape, tables: ContextTables, mass_IN: Array, known: Known, word: int, coder: Array,
    data: Array, none_J: Array, old_J: Array, size: Array,
) -> tuple[int, float]:  # fmt: skip
    """Write a token bit by bit, or, where `word` is below zero, read the next one; then learn from it.

    The token, NEXT where the bytes are none of ours, and the bits that it took.
    """
    path, at, cost = loops.new_path(shape), 1, 0.0
    p_2, frequency_2 = np.empty(2), np.empty(2, np.int64)
    for depth in range(shape.bits):
        bit = (word >> (shape.bits - 1 - depth)) & 1 if word >= 0 else 0
        if loops.is_open(shape, at, depth):
            p_2[1] = loops.predict_node(theta_P, shape, tables, mass_IN, known, at, depth, path)
            p_2[0] = 1.0 - p_2[1]
            frequencies(p_2, frequency_2)
            if word >= 0:
                encode_token(coder, frequency_2, bit, data)
            else:
                bit = decode_token(coder, frequency_2, data)
                if bit < 0:
                    return NEXT, math.inf
            cost += TOTAL_BITS - math.log2(frequency_2[bit])
        at = 2 * at + bit
    word = at - (1 << shape.bits)
    loops.learn_token(theta_P, shape, tables, known, word, path, none_J, old_J, size)
    return word, cost


class AdaptiveMixCoder(TextCoder):
    """Sessions of the parts, and the mixture's loops."""

    def __init__(self, model: AdaptiveMix) -> None:
        self.model = model

    def encode(self, x_T: NDArray[np.int64], advance: Advance) -> bytes:
        coder = new_coder()
        data = np.zeros(MAX_TOKEN_BYTES * self.model.shape.bits * len(x_T) + FLUSHED_BYTES + 16, np.uint8)
        self._code(x_T, coder, data, advance, np.inf)
        finish(coder, data)
        return data[: coder[AT]].tobytes()

    def decode(self, data: bytes, count: int, advance: Advance, most_bits: float) -> NDArray[np.int64] | None:
        coder, read = new_coder(), np.frombuffer(data, np.uint8).copy()  # one type of array for both ways
        start_decoder(coder, read)
        x_T = np.full(count, NEXT, np.int64)
        return x_T if self._code(x_T, coder, read, advance, most_bits) else None

    @torch.no_grad()
    def _code(self, x_T: NDArray[np.int64], coder: Array, data: Array, advance: Advance, most_bits: float) -> bool:
        """Write tokens, or fill in those that are NEXT; whether they took no more than so many bits."""
        mix = self.model
        states, *own = mix.start(1)
        [reader] = mix.readers(*own)
        with eval_mode(mix), single_thread():
            sessions = [part.session(state, len(x_T)) for part, state in zip(mix.experts, states, strict=True)]
            last = mix.begin
            for t in range(len(x_T)):
                p_1IV, kind_1 = next_distributions(mix, sessions, torch.tensor([last]))
                self._move(reader, last, p_1IV[0], int(kind_1[0]))
                last, bits = code_token(
                    reader.theta_P, reader.shape, reader.context.tables, reader.mass_IN, reader.known, int(x_T[t]),
                    coder, data, reader.journal_J, reader.old_J, reader.size,
                )  # fmt: skip
                most_bits -= bits
                if last < 0 or not most_bits >= 0:
                    return False
                x_T[t] = last
                if t % REPORTED_TOKENS == REPORTED_TOKENS - 1:
                    advance(REPORTED_TOKENS / len(x_T))
        advance(len(x_T) % REPORTED_TOKENS / max(1, len(x_T)))
        return True

    def _move(self, reader: MixReader, last: int, p_IV: Array, kind: int) -> None:
        """Stand behind a token that was learnt from, or behind begin."""
        if last == reader.begin:
            reader.learn(last)
        reader.hear(last, p_IV, kind)
        if reader.shape.contexts:
            reader.context.make_room(1)
