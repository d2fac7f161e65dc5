"""General compressors that are given the training text: the line that a model has to beat."""

from __future__ import annotations

import bz2
import importlib
import lzma
import math
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from octavo.errors import UserError
from octavo.experiments.cell import Cell, Json
from octavo.experiments.compare.rows import COMPRESSOR, Row
from octavo.experiments.excerpts import last_part, open_texts
from octavo.experiments.table import plain_json

ZLIB_WINDOW_BYTES = 1 << 15  # that deflate can look back over
BZ2_BLOCK_BYTES = 900_000  # that bzip2 sorts at once
MAX_KNOWN_BYTES = 1 << 23  # of the training text that xz and zstd are given: more would only take minutes


def measure_compressor(cell: Cell, folder: Path) -> Json:
    """What the compressor makes of the held-out text once it knows the training text."""
    train, held_out = open_texts(cell.data)
    data = held_out.read()
    window = {"zlib": ZLIB_WINDOW_BYTES, "bz2": max(0, BZ2_BLOCK_BYTES - len(data))}.get(cell.model, MAX_KNOWN_BYTES)
    known = last_part(train, window).read()
    bits = 8 * COMPRESSORS[cell.model](known, data) / len(data)
    given = "the training text" if len(known) == train.size else f"the last {_amount(len(known))} of the training text"
    row = Row(cell.key, f"{cell.model}, given {given}", COMPRESSOR, bits, policy=f"compressed after {given}")
    return {"row": plain_json(row), "summary": f"{bits:.4f} bits per byte"}


def _amount(count: int) -> str:
    """8388608 as 8.4 MB."""
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.0f} kB"


def zlib_size(known: bytes, held_out: bytes) -> int:
    """With the known text as the dictionary."""
    packer = zlib.compressobj(9, zdict=known) if known else zlib.compressobj(9)
    return len(packer.compress(held_out) + packer.flush())


def bz2_size(known: bytes, held_out: bytes) -> int:
    """Compressed size of known + held_out minus that of known."""
    return len(bz2.compress(known + held_out)) - (len(bz2.compress(known)) if known else 0)


def xz_size(known: bytes, held_out: bytes) -> int:
    """Compressed size of known + held_out minus that of known, with a dictionary that holds both."""
    memory = max(1 << 16, len(known) + len(held_out))
    how = [{"id": lzma.FILTER_LZMA2, "preset": 9, "dict_size": memory}]
    both, alone = (len(lzma.compress(data, filters=how)) for data in (known + held_out, known))
    return both - (alone if known else 0)


def zstd_size(known: bytes, held_out: bytes) -> int:
    """With the known text as the dictionary, and a window that holds all of it."""
    try:
        zstandard: Any = importlib.import_module("zstandard")
    except ImportError as error:
        raise UserError("zstd needs the package zstandard, which is not installed; pip install zstandard") from error
    window = max(10, math.ceil(math.log2(len(known) + len(held_out) + 1)))
    how = zstandard.ZstdCompressionParameters.from_level(22, window_log=min(27, window))
    dictionary = zstandard.ZstdCompressionDict(known, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    return len(zstandard.ZstdCompressor(dict_data=dictionary, compression_params=how).compress(held_out))


COMPRESSORS: dict[str, Callable[[bytes, bytes], int]] = {
    "zlib": zlib_size, "bz2": bz2_size, "xz": xz_size, "zstd": zstd_size,
}  # fmt: skip
