"""General compressors that are given the training text: the line that a model has to beat.

Each is used in the way that suits it best, with the same settings and the same memory for every size:

    difference   C(training text + held-out text) - C(training text), of raw streams without headers; at least what
                 an empty text takes
    dictionary   the held-out text alone, after a dictionary that is the training text

zlib and zstd can do both, and the smaller size counts; bz2 and xz have no dictionary. What zlib, xz and zstd write for
the second part could be sent to someone who has the first. bz2 sorts both parts together, so its difference is what the
held-out text adds to a file, not a file by itself: if anything it flatters bz2.
"""

from __future__ import annotations

import bz2
import importlib
import lzma
import math
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from octavo.config import plain_json
from octavo.errors import UserError
from octavo.experiments.cell import Cell, Json, last_part, open_texts
from octavo.experiments.compare.rows import COMPRESSOR, CompareRow
from octavo.io.files import size
from octavo.text import Split

ZLIB_WINDOW_BYTES = 1 << 15  # that deflate can look back over
BZ2_BLOCK_BYTES = 899_981  # that bzip2 -9 sorts at once, after its run-length code
MAX_KNOWN_BYTES = 1 << 23  # of the training text that xz and zstd are given: more would only take minutes

COMPRESSED = (
    "Each is given the training text in the way that suits it best, with the same memory for every size: zlib (a "
    "window of 32 KiB) and zstd by a dictionary, or by what the held-out text adds to the compressed training text, "
    "whichever is smaller; bz2 (a block of 900 kB) and xz by what it adds."
)

SizeOf = Callable[[bytes], int]  # compressed bytes of a text, by a compressor that knows another


def measure_compressor(cell: Cell, folder: Path) -> Json:
    """What the compressor makes of the held-out text once it knows the training text."""
    train, held_out = open_texts(cell.data)
    data = held_out.read()
    known = known_text(cell.model, train, data)
    size_of = best_way(cell.model, known, data)
    whole = size_of(data)
    given = "the training text" if len(known) == train.size else f"the last {size(len(known))} of the training text"
    bits = 8 * whole / len(data)
    row = CompareRow(cell.key, f"{cell.model}, given {given}", COMPRESSOR, bits, policy=f"compressed after {given}")
    return {"row": plain_json(row), "block_bits": [8 * whole], "summary": f"{bits:.4f} bits per byte"}


def known_text(name: str, train: Split, data: bytes) -> bytes:
    """The end of the training text: as much of it as the compressor can use."""
    if name == "zlib":
        return last_part(train, ZLIB_WINDOW_BYTES).read()
    if name == "bz2":
        known = last_part(train, BZ2_BLOCK_BYTES).read()
        return known[bytes_before_block(known, BZ2_BLOCK_BYTES - run_length_size(data)) :]
    return last_part(train, MAX_KNOWN_BYTES).read()


def best_way(name: str, known: bytes, data: bytes) -> SizeOf:
    """The way of a compressor that makes the data smallest, after what it knows."""
    ways = [prepare(known, len(known) + len(data)) for prepare in COMPRESSORS[name]]
    return min(ways, key=lambda size_of: size_of(data)) if len(ways) > 1 else ways[0]


# ---------------------------------------------------------------------- ways: (what is known, memory) to sizes


def zlib_difference(known: bytes, memory: int) -> SizeOf:
    return _added(lambda data: len(_deflate(data)), known)


def zlib_dictionary(known: bytes, memory: int) -> SizeOf:
    return lambda data: len(_deflate(data, known))


def _deflate(data: bytes, dictionary: bytes = b"") -> bytes:
    packer = zlib.compressobj(9, wbits=-15, memLevel=9, zdict=dictionary)  # -15: no header, a window of 32 KiB
    return packer.compress(data) + packer.flush()


def bz2_difference(known: bytes, memory: int) -> SizeOf:
    return _added(lambda data: len(bz2.compress(data, 9)), known)


def xz_difference(known: bytes, memory: int) -> SizeOf:
    how = [{"id": lzma.FILTER_LZMA2, "preset": 9, "dict_size": max(1 << 16, memory)}]
    return _added(lambda data: len(lzma.compress(data, lzma.FORMAT_RAW, filters=how)), known)


def zstd_difference(known: bytes, memory: int) -> SizeOf:
    zstandard, how = _zstd(memory)
    packer = zstandard.ZstdCompressor(compression_params=how)
    return _added(lambda data: len(packer.compress(data)), known)


def zstd_dictionary(known: bytes, memory: int) -> SizeOf:
    zstandard, how = _zstd(memory)
    dictionary = zstandard.ZstdCompressionDict(known, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    packer = zstandard.ZstdCompressor(dict_data=dictionary, compression_params=how)
    return lambda data: len(packer.compress(data))


def _zstd(memory: int) -> tuple[Any, Any]:
    """The package, and its strongest level with a window that holds the whole text."""
    try:
        zstandard: Any = importlib.import_module("zstandard")
    except ImportError as error:
        raise UserError("zstd needs the package zstandard, which is not installed; pip install zstandard") from error
    window = min(27, max(10, math.ceil(math.log2(memory + 1))))
    how = zstandard.ZstdCompressionParameters.from_level(22, window_log=window, write_content_size=False)
    return zstandard, how


def _added(compressed: SizeOf, known: bytes) -> SizeOf:
    """C(known + data) - C(known), but no less than the stream of an empty text; of nothing known, the size itself."""
    before, least = compressed(known) if known else 0, compressed(b"")
    return lambda data: max(least, compressed(known + data) - before)


COMPRESSORS: dict[str, tuple[Callable[[bytes, int], SizeOf], ...]] = {
    "zlib": (zlib_difference, zlib_dictionary), "bz2": (bz2_difference,), "xz": (xz_difference,),
    "zstd": (zstd_difference, zstd_dictionary),
}  # fmt: skip


# ---------------------------------------------------------------------- bzip2's block


def run_length_size(data: bytes) -> int:
    """Bytes of a text after bzip2's run-length code, which its block is filled with."""
    return int(_run_length_costs(data)[1].sum())


def bytes_before_block(data: bytes, room: int) -> int:
    """How much of the beginning must go, so that the rest is at most so many bytes after the run-length code."""
    starts, costs = _run_length_costs(data)
    left = np.cumsum(costs[::-1])[::-1]  # of each run and all after it
    fits = np.flatnonzero(left <= room)
    return int(starts[fits[0]]) if len(fits) else len(data)


def _run_length_costs(data: bytes) -> tuple[Any, Any]:
    """Where each run of equal bytes begins, and what it costs: four of them and a count stand for 4 to 255."""
    values = np.frombuffer(data, np.uint8)
    starts = np.flatnonzero(np.concatenate([np.ones(min(1, len(values)), bool), values[1:] != values[:-1]]))
    lengths = np.diff(np.append(starts, len(values)))
    whole, rest = np.divmod(lengths, 255)
    return starts, 5 * whole + np.where(rest < 4, rest, 5)
