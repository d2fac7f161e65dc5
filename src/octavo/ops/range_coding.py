"""A range coder as loops over numbers: tokens become bytes at the cost of their probabilities, and come back.

The interval of what was written so far is [low, low + range). Writing a token of frequency f, below which the others
have c of all 2**24, makes it [low + range c / 2**24, + range f / 2**24); bytes that can no longer change are written.
Range stays at or above 2**40, so rounding costs less than 2**-15 bits a token.

V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.ops.compiled import compiled

Array = NDArray[Any]

TOTAL_BITS = 24  # of the frequencies of all tokens together
LOWEST = 1 << 40  # that the range may be; at the most it is 256 times as much
FLUSHED_BYTES = 7  # written at the end
LOW, RANGE, HELD, PENDING, AT = range(
    5
)  # of a coder: HELD is the last byte that a carry can reach, PENDING 255s follow


@compiled
def frequencies(p_V: Array, frequency_V: Array) -> None:
    """Whole numbers in proportion to the probabilities, none of them 0, that sum to 2**24 at most."""
    scale = (1 << TOTAL_BITS) - len(p_V)
    for v in range(len(p_V)):
        frequency_V[v] = 1 + int(p_V[v] * scale)


def new_coder() -> Array:
    """A coder that has written nothing."""
    return np.array([0, LOWEST << 8, 0, 0, 0], np.int64)


@compiled
def encode_token(coder: Array, frequency_V: Array, token: int, data: Array) -> None:
    """Write a token into `data`, which must have room for 16 bytes more than have been written."""
    below = 0
    for v in range(token):
        below += frequency_V[v]
    unit = coder[RANGE] >> TOTAL_BITS
    coder[LOW] += unit * below
    coder[RANGE] = unit * frequency_V[token]
    while coder[RANGE] < LOWEST:
        coder[RANGE] <<= 8
        shift_byte(coder, data)


@compiled
def shift_byte(coder: Array, data: Array) -> None:
    """Move the top byte out of low: it is held until it is known whether a carry will reach it."""
    carry, byte = coder[LOW] >> 48, (coder[LOW] >> 40) & 255
    if carry == 1 or byte != 255:
        data[coder[AT]] = (coder[HELD] + carry) & 255
        coder[AT] += 1
        for _ in range(coder[PENDING]):
            data[coder[AT]] = (255 + carry) & 255
            coder[AT] += 1
        coder[PENDING], coder[HELD] = 0, byte
    else:
        coder[PENDING] += 1
    coder[LOW] = (coder[LOW] & (LOWEST - 1)) << 8


@compiled
def finish(coder: Array, data: Array) -> None:
    """Write what is left."""
    for _ in range(FLUSHED_BYTES):
        shift_byte(coder, data)


@compiled
def start_decoder(coder: Array, data: Array) -> None:
    """Read the first bytes: LOW becomes what was written, less the lower end of the interval."""
    coder[LOW], coder[RANGE], coder[AT] = 0, LOWEST << 8, 0
    for _ in range(FLUSHED_BYTES):
        read_byte(coder, data)


@compiled
def read_byte(coder: Array, data: Array) -> None:
    """Take one byte in; behind the end there are zeros."""
    byte = data[coder[AT]] if coder[AT] < len(data) else 0
    coder[LOW] = (coder[LOW] << 8) | byte
    coder[AT] += 1


@compiled
def decode_token(coder: Array, frequency_V: Array, data: Array) -> int:
    """The next token, or -1 where the bytes are none that the encoder writes."""
    unit = coder[RANGE] >> TOTAL_BITS
    wanted, below = coder[LOW] // unit, 0
    for v in range(len(frequency_V)):
        if wanted < below + frequency_V[v]:
            coder[LOW] -= unit * below
            coder[RANGE] = unit * frequency_V[v]
            while coder[RANGE] < LOWEST:
                coder[RANGE] <<= 8
                read_byte(coder, data)
            return v
        below += frequency_V[v]
    return -1


class TextCoder:
    """Turns the tokens of one text into bytes and back with a model's probabilities."""

    def encode(self, x_T: NDArray[np.int64], advance: Callable[[float], None]) -> bytes:
        """The bytes; `advance` is given the share of the text that was done since it was last called."""
        raise NotImplementedError

    def decode(
        self, data: bytes, count: int, advance: Callable[[float], None], most_bits: float
    ) -> NDArray[np.int64] | None:
        """The `count` tokens that the bytes stand for; None where they stand for none, or those take more bits."""
        raise NotImplementedError
