"""Tables of bytes for pages that draw: a JSON list of a million numbers would take a page longer than drawing them."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from fastapi import Response
from numpy.typing import NDArray

MAGIC = b"OCT1"
HEADER = struct.Struct("<4s4I")
WEIGHT, SHARE, SIGNED = 0, 1, 2  # what a byte b stands for: (b / 255)², b / 255, b / 127.5 - 1
FORMAT = (
    "Bytes. A header of 20: the letters OCT1, then four unsigned 32-bit numbers, the smallest byte first: kind, "
    "tables, rows, columns. Behind it the tables one after another, row by row, a byte b a value, which stands for "
    "(b / 255)² where the kind is 0, b / 255 where it is 1, and b / 127.5 - 1 where it is 2."
)
DOCUMENTED: dict[int | str, dict[str, Any]] = {
    200: {"description": FORMAT,
          "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}},
}  # fmt: skip


class Tables(Response):
    """An answer of such bytes."""

    media_type = "application/octet-stream"


def packed(kind: int, tables_NRC: NDArray[np.uint8]) -> bytes:
    """Tables of one size, with their header."""
    return HEADER.pack(MAGIC, kind, *tables_NRC.shape) + tables_NRC.tobytes()


def unpacked(data: bytes) -> tuple[int, NDArray[np.uint8]]:
    """The kind and the tables."""
    magic, kind, *shape = HEADER.unpack_from(data)
    assert magic == MAGIC
    return kind, np.frombuffer(data, np.uint8, offset=HEADER.size).reshape(shape)
