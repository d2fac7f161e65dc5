"""Files as streams of bytes: plain or compressed by gzip, bzip2, xz or zstandard, as the ending of their names says."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from octavo.errors import UserError

CHUNK_BYTES = 2 << 20  # read at a time: large enough for numpy's loops, small enough for a dozen copies in the cache
ZSTD_INPUT_BYTES = 1 << 16  # compressed bytes at a time; small, because a few of them can hold much
COMPRESSED: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open, ".zst": open}


def stream(path: Path) -> Iterator[bytes]:
    """The file's bytes, decompressed, in chunks."""
    try:
        yield from _open(path)
    except (EOFError, lzma.LZMAError, zlib.error) as error:
        raise UserError(f"{path} is a damaged or truncated archive: {error}; get a whole copy of it") from error
    except OSError as error:
        if error.errno is None:  # gzip and bz2 report bad data this way
            raise UserError(f"{path} is a damaged or foreign archive: {error}; get a whole copy of it") from error
        raise UserError(f"cannot read {path}: {error.strerror}") from error


def plain_name(path: Path) -> Path:
    """The path without the ending that says how it is compressed."""
    return path.with_suffix("") if path.suffix.lower() in COMPRESSED else path


def is_compressed(path: Path) -> bool:
    """Whether the name says that the file is compressed."""
    return path.suffix.lower() in COMPRESSED


def _open(path: Path) -> Iterator[bytes]:
    kind = path.suffix.lower()
    if kind == ".zst":
        yield from _zstandard(path)
        return
    with COMPRESSED.get(kind, open)(path, "rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk


def _zstandard(path: Path) -> Iterator[bytes]:
    """Frame after frame; the library's own reader takes a truncated file for a whole one."""
    try:
        import zstandard
    except ImportError as error:
        raise UserError(f"reading {path} needs zstandard: pip install zstandard") from error
    with open(path, "rb") as file:
        frame = zstandard.ZstdDecompressor().decompressobj()
        begun = False
        data = file.read(ZSTD_INPUT_BYTES)
        while data:
            try:
                if chunk := frame.decompress(data):
                    yield chunk
            except zstandard.ZstdError as error:
                raise UserError(f"{path} is a damaged or foreign archive: {error}; get a whole copy of it") from error
            data, begun = frame.unused_data, True
            if frame.eof:
                frame, begun = zstandard.ZstdDecompressor().decompressobj(), False
            data = data or file.read(ZSTD_INPUT_BYTES)
    if begun:
        raise EOFError("it ends inside a frame")
