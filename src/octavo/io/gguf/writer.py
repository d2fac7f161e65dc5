"""A GGUF file written: metadata, what tensors there are, and their data, in 32, 16 or 8 bits a number.

N blocks of 32 numbers, each with a scale of its own.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from octavo.errors import UserError
from octavo.io.files import whole_file
from octavo.io.gguf.dequantize import KINDS, LAYOUTS
from octavo.io.gguf.reader import ALIGNMENT, ARRAY, BOOL, MAGIC, STRING, U32, VERSIONS

Kind = Literal["F32", "F16", "Q8_0"]
I32, F32 = 5, 6
NUMBERS = {name: number for number, name in KINDS.items()}


def write_gguf(path: str | Path, metadata: Mapping[str, Any], tensors: Mapping[str, tuple[Any, Kind]]) -> None:
    """Write metadata (text, whole numbers, floats, bools, and lists of these) and tensors, each as its kind."""
    described, data, offset = [], [], 0
    for name, (values, kind) in tensors.items():
        shape, written = values.shape, quantise(np.asarray(values, np.float32), kind, name)
        described.append(
            _string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape[::-1], NUMBERS[kind], offset)
        )
        data.append(written + b"\0" * (-len(written) % ALIGNMENT))
        offset += len(data[-1])
    pairs = [_string(key) + _typed(value) for key, value in metadata.items()]
    head = MAGIC + struct.pack("<IQQ", VERSIONS[-1], len(described), len(pairs)) + b"".join((*pairs, *described))
    with whole_file(path) as file:
        file.write(head + b"\0" * (-len(head) % ALIGNMENT))
        for part in data:
            file.write(part)


def quantise(values: NDArray[np.float32], kind: Kind, name: str = "the tensor") -> bytes:
    """The numbers in the bytes of the kind; one that 16 bits cannot hold is refused."""
    if kind == "F32":
        return values.astype("<f4").tobytes()
    largest = float(np.abs(values).max(initial=0)) / (127 if kind == "Q8_0" else 1)
    if not largest <= float(np.finfo(np.float16).max):
        raise UserError(f"{name} has numbers beyond what {kind} can hold: {largest:.3g}; try --precision float32")
    if kind == "F16":
        return values.astype("<f2").tobytes()
    x_NK = values.reshape(-1, LAYOUTS[kind].values)
    scale_N1 = np.abs(x_NK).max(1, keepdims=True) / 127
    inverse_N1 = np.divide(1, scale_N1, out=np.zeros_like(scale_N1), where=scale_N1 > 0)
    scaled_NK = x_NK * inverse_N1
    # Halves are rounded away from zero, as llama.cpp rounds them; numpy's own rounding is to even.
    whole_NK = np.floor(np.abs(scaled_NK))
    q_NK = np.sign(scaled_NK) * (whole_NK + (np.abs(scaled_NK) - whole_NK >= 0.5))
    return np.concatenate([scale_N1.astype("<f2").view(np.uint8), q_NK.astype(np.int8).view(np.uint8)], 1).tobytes()


def block_size(kind: Kind) -> int:
    """A row of a tensor must be of whole blocks of so many numbers."""
    return LAYOUTS[kind].values


def _string(text: str) -> bytes:
    data = text.encode("utf-8", "surrogateescape")
    return struct.pack("<Q", len(data)) + data


def _typed(value: Any) -> bytes:
    """A value with its type before it."""
    if isinstance(value, list):
        kind = _kind(value[0] if value else "", I32)  # an empty list is of strings
        items = b"".join(_plain(kind, item) for item in value)
        return struct.pack("<IIQ", ARRAY, kind, len(value)) + items
    kind = _kind(value, U32)
    return struct.pack("<I", kind) + _plain(kind, value)


def _kind(value: Any, whole: int) -> int:
    """The number of the value's type; whole numbers are unsigned alone and signed in lists, as llama.cpp has them."""
    if isinstance(value, str):
        return STRING
    if isinstance(value, bool):
        return BOOL
    return F32 if isinstance(value, float) else whole


def _plain(kind: int, value: Any) -> bytes:
    return _string(value) if kind == STRING else struct.pack({BOOL: "<?", F32: "<f", U32: "<I", I32: "<i"}[kind], value)
