"""Files as streams of bytes: plain or compressed by gzip, bzip2, xz or zstandard, as the ending of their names says."""

from __future__ import annotations

import bz2
import gzip
import lzma
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from octavo.errors import UserError
from octavo.io.limits import check_memory, read_limits

CHUNK_BYTES = 2 << 20  # read at a time: large enough for numpy's loops, small enough for a dozen copies in the cache
ZSTD_INPUT_BYTES = 1 << 12  # compressed bytes at a time; small, because four of them can hold 128 kB
STDIN = "-"
COPIES = 4  # of a file that is read whole, which memory must have room for: its bytes, its text, what is made of it


def _open_xz(path: Path, mode: str) -> Any:
    return lzma.open(path, mode, format=lzma.FORMAT_XZ)  # the older format has no beginning that could be checked


COMPRESSED: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": _open_xz, ".zst": open}


def stream(path: Path, unpack: bool = True) -> Iterator[bytes]:
    """The file's bytes, decompressed, in chunks; one that unpacks to far more than texts do is refused."""
    try:
        yield from _bounded(path) if unpack and is_compressed(path) else _open(path, unpack)
    except (EOFError, lzma.LZMAError, zlib.error) as error:
        raise UserError(f"{path} is a damaged or truncated archive: {error}; get a whole copy of it") from error
    except OSError as error:
        if error.errno is None:  # gzip and bz2 report bad data this way
            raise UserError(f"{path} is a damaged or foreign archive: {error}; get a whole copy of it") from error
        raise UserError(f"cannot read {path}: {error.strerror}") from error


def read_whole(path: str | Path, unpack: bool = True) -> bytes:
    """All bytes of a file, or of standard input (-), where memory has room for some copies of them."""
    if str(path) == STDIN:
        return _joined_whole(iter(lambda: sys.stdin.buffer.read(CHUNK_BYTES), b""), "standard input")
    path = Path(path)
    try:
        check_memory(COPIES * path.stat().st_size, f"reading {path} whole")
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; check the name") from error
    return _joined_whole(stream(path, unpack), str(path))


def _joined_whole(blocks: Iterator[bytes], name: str) -> bytes:
    data, limits = bytearray(), read_limits()
    for block in blocks:
        data += block
        limits.check_whole(len(data), name)
        check_memory(COPIES * len(data), f"reading {name} whole")
    return bytes(data)


def plain_name(path: Path) -> Path:
    """The path without the ending that says how it is compressed."""
    return path.with_suffix("") if path.suffix.lower() in COMPRESSED else path


def is_compressed(path: Path) -> bool:
    """Whether the name says that the file is compressed."""
    return path.suffix.lower() in COMPRESSED


def _bounded(path: Path) -> Iterator[bytes]:
    limits, file_size, size = read_limits(), path.stat().st_size, 0
    for chunk in _open(path):
        size += len(chunk)
        limits.check_unpacked(size, file_size, path)
        yield chunk


def _open(path: Path, unpack: bool = True) -> Iterator[bytes]:
    kind = path.suffix.lower() if unpack else ""
    if kind == ".zst":
        yield from _joined(_zstandard(path))
        return
    with COMPRESSED.get(kind, open)(path, "rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk


def _joined(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Small chunks put together."""
    parts, size = list[bytes](), 0
    for chunk in chunks:
        parts.append(chunk)
        size += len(chunk)
        if size >= CHUNK_BYTES:
            yield b"".join(parts)
            parts, size = [], 0
    if parts:
        yield b"".join(parts)


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
