"""Tables of bytes for pages that draw: parsing a JSON list of a million numbers would take longer than drawing them."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from fastapi import Response
from numpy.typing import NDArray

MAGIC = b"OCT1"
HEADER = struct.Struct("<4s4I")
WEIGHT, SHARE, SIGNED = 0, 1, 2  # the value of a byte b: (b / 255)², b / 255, b / 127.5 - 1
FORMAT = (
    "Binary. A header of 20 bytes: the characters OCT1, then four little-endian unsigned 32-bit integers: kind, "
    "tables, rows, columns. Then the tables one after another in row-major order, one byte b a value, which is "
    "(b / 255)² where the kind is 0, b / 255 where it is 1, and b / 127.5 - 1 where it is 2."
)
TABLES_RESPONSE: dict[int | str, dict[str, Any]] = {
    200: {"description": FORMAT,
          "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}},
}  # fmt: skip


class ByteTables(Response):
    """A response of byte tables: the header and the tables, which have one size."""

    media_type = "application/octet-stream"

    def __init__(self, kind: int, tables_NRC: NDArray[np.uint8]) -> None:
        super().__init__(HEADER.pack(MAGIC, kind, *tables_NRC.shape) + tables_NRC.tobytes())
