"""A GGUF file: a header, metadata by key, what tensors there are, and their data, which is mapped, not read.

Nothing in the file is believed before it is compared with the file's size: a count, a length or an offset that cannot
be true is refused before any memory is taken for it.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from octavo.errors import UserError
from octavo.io.gguf.dequantize import KINDS, LAYOUTS, dequantise

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MAX_DIMENSIONS = 4  # of a tensor, in every version so far
MAX_ARRAY_DEPTH = 4  # arrays within arrays; files in use have one level
ALIGNMENT = 32  # where the file does not say
MIN_PAIR_BYTES, MIN_TENSOR_BYTES = 13, 32  # of the shortest key with a value, the shortest description of a tensor

NUMBERS = {  # by the number of the type
    number: struct.Struct(f"<{code}")
    for number, code in {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 10: "Q", 11: "q", 12: "d"}.items()
}
U32, BOOL, STRING, ARRAY, U64 = 4, 7, 8, 9, 10


@dataclass(frozen=True)
class Tensor:
    """Where a tensor lies and how its numbers are stored. The shape is numpy's and torch's: a matrix is (out, in)."""

    name: str
    kind: str  # F32, Q4_1, ...
    shape: tuple[int, ...]
    start: int  # byte of the file
    bytes: int


@dataclass(frozen=True)
class Gguf:
    """An open file. Metadata are numbers, bools, strings, arrays of numpy, and lists of strings or of lists."""

    path: Path
    version: int
    metadata: dict[str, Any]
    tensors: dict[str, Tensor]
    data: NDArray[np.uint8]  # the whole file, mapped

    def tensor(self, name: str) -> NDArray[np.float32]:
        """The tensor's numbers in single precision."""
        if name not in self.tensors:
            some = ", ".join(list(self.tensors)[:5])
            raise UserError(f"{self.path} has no tensor {name}: its {len(self.tensors)} tensors are {some}, ...")
        tensor = self.tensors[name]
        values = dequantise(self.data[tensor.start : tensor.start + tensor.bytes], tensor.kind)
        if not np.isfinite(values).all():
            raise UserError(f"{self.path} is damaged: tensor {name} holds numbers that are not finite; get it again")
        return values.reshape(tensor.shape)

    def get(self, key: str, kind: type, default: Any = None) -> Any:
        """A metadata value of that type; refused where it is of another, or is missing and has no default."""
        value = self.metadata.get(key, default)
        if value is None:
            raise UserError(f"{self.path} does not say {key}; it is not a file of a whole model, get another")
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            found = type(value).__name__
            raise UserError(f"{key} in {self.path} must be {kind.__name__}: it is {found}; the file is damaged")
        return value


def read_gguf(path: str | Path) -> Gguf:
    """Open a GGUF file: everything but the tensors' data is read and checked."""
    path = Path(path)
    try:
        empty = path.stat().st_size == 0  # and cannot be mapped
        data = np.zeros(0, np.uint8) if empty else np.asarray(np.memmap(path, np.uint8, "r"))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    cursor = _Cursor(path, data)
    version = _version(cursor)
    tensors, pairs = cursor.number(U64), cursor.number(U64)
    cursor.check_count(tensors * MIN_TENSOR_BYTES + pairs * MIN_PAIR_BYTES, f"{tensors:,} tensors and {pairs:,} keys")
    metadata: dict[str, Any] = {}
    for _ in range(pairs):
        key = cursor.name("key")
        if key in metadata:
            cursor.refuse(f"a key must stand there once: {key!r} stands there twice")
        metadata[key] = cursor.value(cursor.number(U32))
    described = [_described(cursor) for _ in range(tensors)]
    return Gguf(path, version, metadata, _placed(cursor, described, _alignment(cursor, metadata)), data)


class _Cursor:
    """A place in the file that only moves over what is there."""

    def __init__(self, path: Path, data: NDArray[np.uint8]) -> None:
        self.path, self.data, self.at = path, data, 0
        self._view = memoryview(data)  # type: ignore[arg-type]  # numpy's stubs do not say so for Python 3.11

    def refuse(self, why: str) -> NoReturn:
        raise UserError(f"{self.path} is not a whole GGUF file: {why} (byte {self.at:,}); get it again")

    def check_count(self, size: int, what: str) -> None:
        left = len(self.data) - self.at
        if size > left:
            self.refuse(f"{what} need {size:,} bytes or more, {left:,} are left")

    def take(self, size: int, what: str) -> NDArray[np.uint8]:
        self.check_count(size, what)
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, kind: int) -> Any:
        form = NUMBERS[kind]
        self.check_count(form.size, "a number")
        self.at += form.size
        return form.unpack_from(self._view, self.at - form.size)[0]

    def string(self) -> bytes:
        size = self.number(U64)
        self.check_count(size, "a string")
        self.at += size
        return bytes(self._view[self.at - size : self.at])

    def name(self, what: str) -> str:
        try:
            name = self.string().decode()
        except UnicodeDecodeError:
            self.refuse(f"a {what} must be UTF-8")
        return name or self.refuse(f"a {what} must not be empty")

    def value(self, kind: int, depth: int = 0) -> Any:
        if kind in NUMBERS:
            return self.number(kind)
        if kind == BOOL:
            return bool(self.bools(1)[0])
        if kind == STRING:
            return self.string().decode("utf-8", "surrogateescape")  # tokens need not be UTF-8
        if kind == ARRAY:
            return self.array(depth)
        self.refuse(f"values are of the types 0 to 12: this one has type {kind}")

    def array(self, depth: int) -> Any:
        kind, count = self.number(U32), self.number(U64)
        if depth == MAX_ARRAY_DEPTH:
            self.refuse(f"arrays lie at most {MAX_ARRAY_DEPTH} deep in each other: these are deeper")
        if kind in NUMBERS:
            dtype = np.dtype(NUMBERS[kind].format)
            return self.take(count * dtype.itemsize, f"{count:,} numbers").view(dtype).copy()
        if kind == BOOL:
            return self.bools(count)
        self.check_count(count * (12 if kind == ARRAY else 8), f"{count:,} values of type {kind}")
        return [self.value(kind, depth + 1) for _ in range(count)]

    def bools(self, count: int) -> NDArray[np.bool_]:
        taken = self.take(count, f"{count:,} bools")
        if (taken > 1).any():
            self.refuse("a bool must be 0 or 1")
        return taken.astype(np.bool_)


def _version(cursor: _Cursor) -> int:
    start = cursor.data[:4].tobytes()
    if start != MAGIC:
        raise UserError(f"{cursor.path} is not a GGUF file: it starts with {start!r}, not with {MAGIC!r}")
    cursor.at = 4
    raw = cursor.take(4, "the version").tobytes()
    version = int.from_bytes(raw, "little")
    if int.from_bytes(raw, "big") in VERSIONS:
        raise UserError(f"{cursor.path} has its highest bytes first; only lowest-first GGUF files are read, get one")
    if version not in VERSIONS:
        raise UserError(f"{cursor.path} is GGUF of version {version}; versions 2 and 3 are read, convert it")
    return version


def _alignment(cursor: _Cursor, metadata: dict[str, Any]) -> int:
    alignment = metadata.get("general.alignment", ALIGNMENT)
    if type(alignment) is not int or not 8 <= alignment <= 1 << 20 or alignment & (alignment - 1):
        cursor.refuse(f"general.alignment must be a power of 2 from 8 to 2**20: {alignment!r}")
    return alignment


def _described(cursor: _Cursor) -> tuple[str, str, tuple[int, ...], int]:
    """Name, kind, shape and offset of the next tensor."""
    name = cursor.name("tensor's name")
    dimensions = cursor.number(U32)
    if not 1 <= dimensions <= MAX_DIMENSIONS:
        cursor.refuse(f"a tensor has 1 to {MAX_DIMENSIONS} dimensions: {name} has {dimensions:,}")
    shape = tuple(int(size) for size in cursor.take(8 * dimensions, "a shape").view("<u8")[::-1])
    if min(shape) < 1:
        cursor.refuse(f"every dimension of a tensor must be at least 1: {name} has {shape}")
    number = cursor.number(U32)
    kind = KINDS.get(number, f"type {number}")
    if kind not in LAYOUTS:
        raise UserError(
            f"{cursor.path} stores tensor {name} as {kind}, which is not read; read are {', '.join(LAYOUTS)}: "
            "get the model in one of those, such as Q8_0"
        )
    if shape[-1] % LAYOUTS[kind].values:
        cursor.refuse(f"rows of {kind} are in blocks of {LAYOUTS[kind].values} numbers: {name} has shape {shape}")
    return name, kind, shape, cursor.number(U64)


def _placed(
    cursor: _Cursor, described: list[tuple[str, str, tuple[int, ...], int]], alignment: int
) -> dict[str, Tensor]:
    """The tensors, each within the file and none over another."""
    first = -(-cursor.at // alignment) * alignment
    tensors: dict[str, Tensor] = {}
    for name, kind, shape, offset in described:
        layout = LAYOUTS[kind]
        size = math.prod(shape) // layout.values * layout.bytes
        if name in tensors:
            cursor.refuse(f"a tensor must stand there once: {name!r} stands there twice")
        if offset % alignment:
            cursor.refuse(f"tensors lie at multiples of {alignment}: {name} lies at {offset:,}")
        if first + offset + size > len(cursor.data):
            cursor.refuse(f"{name} ends at byte {first + offset + size:,} of {len(cursor.data):,}")
        tensors[name] = Tensor(name, kind, shape, first + offset, size)
    in_order = sorted(tensors.values(), key=lambda tensor: tensor.start)
    for one, other in pairwise(in_order):
        if one.start + one.bytes > other.start:
            cursor.refuse(f"tensors must not overlap: {one.name} and {other.name} do")
    return tensors
