"""Weights in a few bits back to single precision: blocks of whole numbers, each block with a scale of its own.

N blocks, S sub-blocks of a block, L numbers of a sub-block. The low halves of a run of bytes come before the high
halves. In every kind x = scale * q - shift; the kinds differ in how scale, shift and q are packed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Blocks = NDArray[np.uint8]  # N rows, one a block
Floats = NDArray[np.float32]

# The numbers that the format gives to kinds; those without a layout below are known so that they are refused by name.
KINDS = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 9: "Q8_1", 10: "Q2_K", 11: "Q3_K",
    12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S",
    20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64",
    29: "IQ1_M", 30: "BF16", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4",
}  # fmt: skip


def dequantise(data: NDArray[np.uint8], kind: str) -> Floats:
    """The numbers that whole blocks of the kind hold, one after another."""
    layout = LAYOUTS[kind]
    return layout.read(np.ascontiguousarray(data).reshape(-1, layout.bytes)).reshape(-1)


def _halves(packed: Blocks) -> Blocks:
    """The low four bits of all bytes of the last dimension, then the high four."""
    return np.concatenate([packed & 15, packed >> 4], -1)


def _f16(blocks: Blocks, at: int) -> Floats:
    """The half-precision number at a byte of every block, as a column."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2").astype(np.float32)


def _signed(blocks: Blocks, at: slice) -> NDArray[np.int8]:
    """Some bytes of every block as whole numbers with a sign."""
    return np.ascontiguousarray(blocks[:, at]).view(np.int8)


def _fifth_bits(blocks: Blocks, at: int) -> Blocks:
    """Bit i of the four bytes at `at` is number i's highest."""
    return np.unpackbits(blocks[:, at : at + 4], axis=1, bitorder="little") << np.uint8(4)


def _scales_and_shifts(packed: Blocks) -> tuple[Blocks, Blocks]:
    """Eight scales and eight shifts of six bits each, in twelve bytes.

    The first four of each have a byte of their own, whose two upper bits the last four borrow; the lower four bits of
    those share bytes.
    """
    scale_NS, shift_NS, low_NS = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.concatenate([scale_NS & 63, (low_NS & 15) | (scale_NS >> 6 << 4)], 1)
    shifts = np.concatenate([shift_NS & 63, (low_NS >> 4) | (shift_NS >> 6 << 4)], 1)
    return scales, shifts


def _scaled(blocks: Blocks, q_NSL: Blocks) -> Floats:
    """The eight sub-blocks' numbers, by scales and shifts that have a scale each themselves."""
    scale_NS, shift_NS = _scales_and_shifts(blocks[:, 4:16])
    return (_f16(blocks, 0) * scale_NS)[..., None] * q_NSL - (_f16(blocks, 2) * shift_NS)[..., None]


def _sub_blocks(packed: Blocks) -> Blocks:
    """q_NSL of eight sub-blocks of 32 numbers, two in each run of 32 bytes."""
    return _halves(packed.reshape(-1, 4, 32)).reshape(-1, 8, 32)


def _q5_k(blocks: Blocks) -> Floats:
    fifth_NSL: Blocks = (blocks[:, None, 16:48] >> np.arange(8, dtype=np.uint8)[:, None]) & np.uint8(1)
    return _scaled(
        blocks, _sub_blocks(blocks[:, 48:]) | (fifth_NSL << np.uint8(4))
    )  # bit s of byte l is number l's of sub-block s


def _q6_k(blocks: Blocks) -> Floats:
    low = _halves(blocks[:, :128].reshape(-1, 2, 64)).reshape(-1, 2, 4, 32)
    high = blocks[:, 128:192].reshape(-1, 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8)[:, None] & 3
    q_NSL = (low | (high << 4)).reshape(-1, 16, 16).astype(np.int8) - 32
    scale_NS = _f16(blocks, 208) * _signed(blocks, slice(192, 208))
    return scale_NS[..., None] * q_NSL


class Layout(NamedTuple):
    """How many numbers a block has, in how many bytes, and how they are read."""

    values: int
    bytes: int
    read: Callable[[Blocks], Floats]


LAYOUTS = {
    "F32": Layout(1, 4, lambda b: b.view("<f4").astype(np.float32)),
    "F16": Layout(1, 2, lambda b: b.view("<f2").astype(np.float32)),
    "BF16": Layout(1, 2, lambda b: (b.view("<u2").astype(np.uint32) << 16).view(np.float32)),  # the upper half of F32
    "Q8_0": Layout(32, 34, lambda b: _f16(b, 0) * _signed(b, slice(2, None))),
    "Q4_0": Layout(32, 18, lambda b: _f16(b, 0) * (_halves(b[:, 2:]).astype(np.int8) - 8)),
    "Q4_1": Layout(32, 20, lambda b: _f16(b, 0) * _halves(b[:, 4:]) + _f16(b, 2)),
    "Q5_0": Layout(32, 22, lambda b: _f16(b, 0) * ((_halves(b[:, 6:]) | _fifth_bits(b, 2)).astype(np.int8) - 16)),
    "Q5_1": Layout(32, 24, lambda b: _f16(b, 0) * (_halves(b[:, 8:]) | _fifth_bits(b, 4)) + _f16(b, 2)),
    "Q4_K": Layout(256, 144, lambda b: _scaled(b, _sub_blocks(b[:, 16:]))),
    "Q5_K": Layout(256, 176, _q5_k),
    "Q6_K": Layout(256, 210, _q6_k),
}
