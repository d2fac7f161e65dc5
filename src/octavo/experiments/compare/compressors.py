"""General compressors that are given the training text: the line that a model has to beat.

Each is used in the way that suits it best, with the same settings and the same memory for every size:

    difference   C(training text + held-out text) - C(training text), of raw streams without headers; at least what
                 an empty text takes
    dictionary   the held-out text alone, after a dictionary that is the training text

zlib and zstd can do both, and the smaller size counts; the others have no dictionary. What zlib, xz, zstd and brotli
write for the second part could be sent to someone who has the first; ppmd, zpaq and paq8px code each bit with what they
have learnt from all before it, so the second part of their archive is what the held-out text costs. bz2 sorts both
parts together, so its difference is what the held-out text adds to a file, not a file by itself: if anything it
flatters bz2. All of them go on learning from the held-out text while they read it.
"""

from __future__ import annotations

import bz2
import importlib
import importlib.util
import lzma
import math
import time
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from octavo.config import plain_json
from octavo.errors import UserError
from octavo.experiments.cell import Cell, Json, last_part, open_texts
from octavo.experiments.compare.programs import PROGRAMS, archive_size, is_installed
from octavo.experiments.compare.rows import COMPRESSOR, CompareRow
from octavo.io.files import size
from octavo.text import Split

ZLIB_WINDOW_BYTES = 1 << 15  # that deflate can look back over
BZ2_BLOCK_BYTES = 899_981  # that bzip2 -9 sorts at once, after its run-length code
MAX_KNOWN_BYTES = 1 << 23  # of the training text that the others are given: more would only take minutes
MAX_PAQ8PX_BYTES = 1 << 21  # which paq8px reads in minutes
PPMD_ORDER = 6  # 7-Zip's usual one
PPMD_BYTES_PER_BYTE = 128  # of memory; where it is full, PPMd forgets all and begins anew
MIN_PPMD_BYTES, MAX_PPMD_BYTES = 1 << 24, (1 << 32) - 64
BROTLI_WINDOW_BITS = 24  # the largest window that every decoder has: 16 MiB, which hold both texts

SizeOf = Callable[[bytes], int]  # compressed bytes of a text, by a compressor that knows another


@dataclass(frozen=True)
class Compressor:
    """How a general compressor is given the training text."""

    ways: tuple[Callable[[bytes, int], SizeOf], ...]  # from what is known and the bytes of both texts
    how: str  # in words, after its name
    bytes_per_second: float  # rough: of a 2 GHz core
    package: str = ""  # that it needs, of the extra `compressors`
    max_known_bytes: int = MAX_KNOWN_BYTES


def why_missing(name: str) -> str:
    """Why a compressor cannot be used here, and what to do about it; empty where it can."""
    package = COMPRESSORS[name].package
    if package and importlib.util.find_spec(package) is None:
        return f"{name} needs the package {package}, which is not installed; pip install 'octavo[compressors]'"
    if name in PROGRAMS and not is_installed(name):
        return f"{name} needs the program {name}, which is not on the path; install it, or leave it out of --models"
    return ""


def describe_ways(names: Iterable[str]) -> str:
    """How each of these compressors is given the training text."""
    ways = "; ".join(f"{name}{COMPRESSORS[name].how}" for name in COMPRESSORS if name in set(names))
    return (
        "Each is given the training text in the way that suits it best, with the same memory for every size: by what "
        f"the held-out text adds to the compressed training text, unless said otherwise: {ways}."
    )


def measure_compressor(cell: Cell, folder: Path) -> Json:
    """What the compressor makes of the held-out text once it knows the training text."""
    if missing := why_missing(cell.model):
        raise UserError(missing)
    train, held_out = open_texts(cell.data)
    data = held_out.read()
    known = known_text(cell.model, train, data)
    size_of = best_way(cell.model, known, data)
    began = time.perf_counter()
    whole = size_of(data)
    seconds = max(1e-9, time.perf_counter() - began)  # for both texts: what is known is read again each time
    given = "the training text" if len(known) == train.size else f"the last {size(len(known))} of the training text"
    bits = 8 * whole / len(data)
    row = CompareRow(
        cell.key, f"{cell.model}, given {given}", COMPRESSOR, bits, adaptive=True,
        score_rate=(len(known) + len(data)) / seconds, policy=f"compressed after {given}",
    )  # fmt: skip
    return {"row": plain_json(row), "block_bits": [8 * whole], "summary": f"{bits:.4f} bits per byte"}


def known_text(name: str, train: Split, data: bytes) -> bytes:
    """The end of the training text: as much of it as the compressor can use."""
    known = last_part(train, COMPRESSORS[name].max_known_bytes).read()
    if name == "bz2":
        return known[bytes_before_block(known, BZ2_BLOCK_BYTES - run_length_size(data)) :]
    return known


def best_way(name: str, known: bytes, data: bytes) -> SizeOf:
    """The way of a compressor that makes the data smallest, after what it knows."""
    ways = [prepare(known, len(known) + len(data)) for prepare in COMPRESSORS[name].ways]
    return min(ways, key=lambda size_of: size_of(data)) if len(ways) > 1 else ways[0]


# ---------------------------------------------------------------------- ways: (what is known, bytes of both) to sizes


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


def brotli_difference(known: bytes, memory: int) -> SizeOf:
    brotli: Any = importlib.import_module("brotli")
    how = {"mode": brotli.MODE_TEXT, "quality": 11, "lgwin": BROTLI_WINDOW_BITS}
    return _added(lambda data: len(brotli.compress(data, **how)), known)


def ppmd_difference(known: bytes, memory: int) -> SizeOf:
    """PPMd's variant H, as 7-Zip has it, with so much memory that it never begins anew in texts of up to 32 MiB."""
    pyppmd: Any = importlib.import_module("pyppmd")
    size = min(MAX_PPMD_BYTES, max(MIN_PPMD_BYTES, PPMD_BYTES_PER_BYTE * memory))

    def compressed(data: bytes) -> int:
        encoder = pyppmd.Ppmd7Encoder(PPMD_ORDER, size)
        return len(encoder.encode(data)) + len(encoder.flush(endmark=False))

    return _added(compressed, known)


def zpaq_difference(known: bytes, memory: int) -> SizeOf:
    return _added(lambda data: archive_size("zpaq", data, memory), known, least=1)


def paq8px_difference(known: bytes, memory: int) -> SizeOf:
    return _added(lambda data: archive_size("paq8px", data, memory), known, least=1)


def _added(compressed: SizeOf, known: bytes, least: int | None = None) -> SizeOf:
    """C(known + data) - C(known), but no less than so many bytes, or than an empty text; of nothing known, C(data)."""
    before = compressed(known) if known else 0
    lowest = compressed(b"") if least is None else least
    return lambda data: max(lowest, compressed(known + data) - before)


COMPRESSORS: dict[str, Compressor] = {
    "zlib": Compressor(
        (zlib_difference, zlib_dictionary), " (a window of 32 KiB) by that or by a dictionary, the smaller counts",
        1e7, max_known_bytes=ZLIB_WINDOW_BYTES,
    ),
    "bz2": Compressor((bz2_difference,), " (a block of 900 kB)", 1e7, max_known_bytes=BZ2_BLOCK_BYTES),
    "xz": Compressor((xz_difference,), "", 1e6),
    "zstd": Compressor((zstd_difference, zstd_dictionary), " by that or by a dictionary, the smaller counts", 1e6),
    "brotli": Compressor((brotli_difference,), " (quality 11, a window of 16 MiB)", 5e5, "brotli"),
    "ppmd": Compressor((ppmd_difference,), f" (7-Zip's PPMd, order {PPMD_ORDER})", 2e6, "pyppmd"),
    "zpaq": Compressor((zpaq_difference,), " (the method of its level 5, one block)", 1.5e5),
    "paq8px": Compressor((paq8px_difference,), " (its level 8)", 5e3, max_known_bytes=MAX_PAQ8PX_BYTES),
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
