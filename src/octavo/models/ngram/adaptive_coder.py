"""Turns whole texts into bytes and back with an adaptive n-gram model, by loops alone.

T time, V vocabulary.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from octavo.io.progress import Advance
from octavo.models.ngram.adaptive_nodes import Array, Tables
from octavo.models.ngram.adaptive_reader import Reader
from octavo.models.ngram.adaptive_tables import distribution, read_token
from octavo.ops.compiled import compiled
from octavo.ops.range_coding import (
    AT,
    FLUSHED_BYTES,
    TOTAL_BITS,
    TextCoder,
    decode_token,
    encode_token,
    finish,
    frequencies,
    new_coder,
    start_decoder,
)

if TYPE_CHECKING:
    from octavo.models.ngram.adaptive import AdaptiveNGram

CODED_TOKENS = 1 << 13  # between two reports of progress


@compiled
def encode_tokens(
    tables: Tables, x_T: Array, begin: int, newline: int, vocab: int, rate: float, coder: Array, data: Array
) -> None:
    """Write each token with the distribution in front of it, and read it."""
    p_V, frequency_V = np.empty(vocab), np.empty(vocab, np.int64)
    for t in range(len(x_T)):
        distribution(tables, begin, p_V)
        frequencies(p_V, frequency_V)
        encode_token(coder, frequency_V, x_T[t], data)
        read_token(tables, x_T[t], begin, newline, vocab, rate, True)


@compiled
def decode_tokens(
    tables: Tables, x_T: Array, begin: int, newline: int, vocab: int, rate: float, coder: Array, data: Array
) -> float:
    """Fill x_T with the tokens that were written; the bits they took, infinite where the bytes are none of ours."""
    p_V, frequency_V, bits = np.empty(vocab), np.empty(vocab, np.int64), 0.0
    for t in range(len(x_T)):
        distribution(tables, begin, p_V)
        frequencies(p_V, frequency_V)
        word = decode_token(coder, frequency_V, data)
        if word < 0 or word == begin:
            return math.inf
        bits += TOTAL_BITS - math.log2(frequency_V[word])
        x_T[t] = word
        read_token(tables, word, begin, newline, vocab, rate, True)
    return bits


class AdaptiveNGramCoder(TextCoder):
    """Codes a text with the loops alone: a token takes microseconds."""

    def __init__(self, model: AdaptiveNGram) -> None:
        self.model = model

    def _opened(self) -> Reader:
        reader = self.model.fresh_reader()
        reader.probabilities(np.array([self.model.begin]))
        return reader

    def encode(self, x_T: NDArray[np.int64], advance: Advance) -> bytes:
        reader, coder = self._opened(), new_coder()
        data = np.zeros(4 * len(x_T) + FLUSHED_BYTES + 16, np.uint8)
        for part_T in np.array_split(x_T, -(-len(x_T) // CODED_TOKENS)) if len(x_T) else ():
            reader.take(part_T)
            encode_tokens(reader.tables, part_T, *reader.codes, self.model.config.discount_rate, coder, data)
            advance(len(part_T) / len(x_T))
        finish(coder, data)
        return data[: coder[AT]].tobytes()

    def decode(self, data: bytes, count: int, advance: Advance, most_bits: float) -> NDArray[np.int64] | None:
        reader, coder, read = self._opened(), new_coder(), np.frombuffer(data, np.uint8)
        start_decoder(coder, read)
        parts = [np.zeros(0, np.int64)]
        for start in range(0, count, CODED_TOKENS):
            part_T = np.zeros(min(CODED_TOKENS, count - start), np.int64)
            reader.take(part_T)
            most_bits -= decode_tokens(
                reader.tables, part_T, *reader.codes, self.model.config.discount_rate, coder, read
            )
            if not most_bits >= 0:
                return None
            parts.append(part_T)
            advance(len(part_T) / count)
        return np.concatenate(parts)
