"""The user's files as documents: plain text is one, a folder one a file, JSON lines and parquet one a record.

A file of tokens (.bin) is the text that they stand for.
"""

from __future__ import annotations

import codecs
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np

from octavo.errors import EncodingError, UserError
from octavo.io.compressed import CHUNK_BYTES, is_compressed, plain_name, stream
from octavo.io.compressed import STDIN as STDIN
from octavo.io.encoding import SNIFFED_BYTES, UTF8, converted, guess_encoding, is_utf8, wrong_encoding
from octavo.io.files import json_records
from octavo.io.limits import lines_in, read_limits
from octavo.text.chunks import Chunk, no_starts
from octavo.text.token_store import SUFFIX, tokens_as_text

Errors = Literal["strict", "replace", "raw"]


def is_plain(path: Path) -> bool:
    """Whether the file's bytes are its text, so that it can be read in place."""
    return not is_compressed(path) and path.suffix.lower() not in (*JSON_LINES, *PARQUET, SUFFIX) and path.is_file()


def list_files(
    paths: Iterable[str | Path], errors: Errors = "strict", encoding: str = UTF8
) -> tuple[list[Path], list[str]]:
    """The files to read, folders opened in sorted order, and what was passed over in them, each with the reason."""
    files: list[Path] = []
    skipped: list[str] = []
    for path in map(Path, paths):
        if path.is_dir():
            guesses: set[str] = set()
            found = _in_folder(path, errors, encoding, skipped, guesses)
            if not found:
                shown = "; ".join(skipped[:3]) + ("; ..." if len(skipped) > 3 else "")
                why = f"{len(skipped)} files were passed over ({shown})" if skipped else "no files"
                if len(guesses) == 1:
                    raise EncodingError(f"the folder {path} has no text in it that is UTF-8: {why}", *guesses)
                raise UserError(f"the folder {path} has no text in it: {why}; name a file or another folder")
            files += found
        elif path.is_char_device() or path.is_block_device():
            raise UserError(
                f"a text is a file, a folder or a pipe: {path} is a device, and may have no end; name a file"
            )
        elif path.exists() or str(path) == STDIN:
            files.append(path)
        else:
            raise UserError(f"there is no file {path}; check the name, it is relative to {Path.cwd()}")
    return files, skipped


def read_documents(
    path: Path, field: str = "text", errors: Errors = "strict", encoding: str = UTF8
) -> Iterator[Chunk]:  # fmt: skip
    """The documents of one file, in chunks."""
    kind = plain_name(path).suffix.lower()
    if str(path) == STDIN:
        blocks = iter(lambda: sys.stdin.buffer.read(CHUNK_BYTES), b"")
        yield from _one_document(_as_utf8(blocks, "standard input", errors, encoding), "standard input", errors)
    elif kind in (*JSON_LINES, *PARQUET):
        lines = lines_in(_as_utf8(stream(path), str(path), errors, encoding), path)
        records = json_records(lines, path) if kind in JSON_LINES else _parquet(path, field)
        documents = (_text_of(record, field, place, errors) for place, record in records)
        first = np.zeros(1, np.int64)
        yield from _joined(Chunk(document, first) for document in documents if document)
    elif path.suffix.lower() == SUFFIX:
        encoded = tokens_as_text(path)
        yield from _joined(chunk for one in encoded for chunk in _one_document(one, str(path), errors, sniff=False))
    else:
        yield from _one_document(_as_utf8(stream(path), str(path), errors, encoding), str(path), errors)


def _as_utf8(blocks: Iterator[bytes], name: str, errors: Errors, encoding: str) -> Iterator[bytes]:
    return blocks if encoding == UTF8 else converted(blocks, encoding, name, errors == "replace")


def checked(
    chunks: Iterable[bytes], name: str, errors: Errors = "strict", sniff: bool = True, offset: int = 0
) -> Iterator[bytes]:
    """The chunks as UTF-8: what is not is refused with its place, replaced by U+FFFD, or let through.

    With `sniff`, what looks like UTF-16 is refused; a tokenizer's own bytes never are that, whatever they look like.
    """
    if errors == "raw":
        yield from chunks
        return
    carry, begin = b"", offset
    for chunk in chunks:
        data = carry + chunk
        head = data[:SNIFFED_BYTES]
        if (
            sniff and offset == begin and 0 in head and guess_encoding(head)
        ):  # UTF-16 of ASCII is UTF-8 too, with many zeros
            raise wrong_encoding(name, head)
        if data.isascii():
            yield data
            carry, used = b"", len(data)
        else:
            text, used = _decode(data, errors, False, name, offset)
            carry = data[used:]
            yield data[:used] if errors == "strict" else text.encode()
        offset += used
    if carry:
        yield _decode(carry, errors, True, name, offset)[0].encode()


def _decode(data: bytes, errors: Errors, final: bool, name: str, offset: int) -> tuple[str, int]:
    try:
        return codecs.utf_8_decode(data, errors, final)
    except UnicodeDecodeError as error:
        place = f"byte {offset + error.start:,} of {name} (0x{data[error.start]:02x})"
        near = data[:SNIFFED_BYTES] if error.start < SNIFFED_BYTES else data[error.start :][:SNIFFED_BYTES]
        raise wrong_encoding(place, near) from error


def _one_document(chunks: Iterator[bytes], name: str, errors: Errors, sniff: bool = True) -> Iterator[Chunk]:
    starts = np.zeros(1, np.int64)
    for data in checked(chunks, name, errors, sniff):
        yield Chunk(data, starts)
        starts = no_starts()


def _joined(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    """Small chunks put together."""
    held: list[bytes] = []
    starts: list[int] = []
    size = 0
    for chunk in chunks:
        held.append(chunk.data)
        starts += [start + size for start in chunk.starts.tolist()]
        size += len(chunk.data)
        if size >= CHUNK_BYTES:
            yield Chunk(b"".join(held), np.array(starts, np.int64))
            held, starts, size = [], [], 0
    if held:
        yield Chunk(b"".join(held), np.array(starts, np.int64))


def _parquet(path: Path, field: str) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise UserError(f"reading {path} needs pyarrow: pip install pyarrow") from error
    limits, file_size, size, number = read_limits(), path.stat().st_size, 0, 0
    try:
        names = pyarrow.parquet.read_schema(path)
        if field not in names.names:
            raise UserError(f"{path} has no column {field!r}: it has {', '.join(names.names)}; name one")
        # As a dictionary: one long value that a million rows share shall not stand in memory a million times.
        shared = [field] if _is_text_type(names.field(field).type) else None
        with pyarrow.parquet.ParquetFile(path, read_dictionary=shared) as file:
            for batch in file.iter_batches(batch_size=PARQUET_ROWS, columns=[field]):
                for value in _parquet_values(batch.column(0)):
                    number += 1
                    size += ROW_BYTES + (len(value) if isinstance(value, bytes) else 0)
                    limits.check_unpacked(size, file_size, path)
                    yield f"record {number:,} of {path}", {field: value}
    except (pyarrow.ArrowException, OSError, ValueError, LookupError) as error:
        raise UserError(f"{path} is not a whole parquet file: {' '.join(str(error).split())[:300]}") from error


def _is_text_type(kind: Any) -> bool:
    import pyarrow

    kinds = (pyarrow.string(), pyarrow.large_string(), pyarrow.binary(), pyarrow.large_binary())
    return kind in kinds or (pyarrow.types.is_dictionary(kind) and kind.value_type in kinds)


def _parquet_values(column: Any) -> Iterator[Any]:
    """The values of a column; strings as their bytes, which a damaged file may have that are not UTF-8."""
    import pyarrow

    if not pyarrow.types.is_dictionary(column.type):
        yield from column.to_pylist()
        return
    words, used = column.dictionary, column.indices.unique()  # the dictionary is that of many batches
    raw = {pyarrow.string(): pyarrow.binary(), pyarrow.large_string(): pyarrow.large_binary()}.get(words.type)
    values = (words if raw is None else words.view(raw)).take(used)
    known = dict(zip(used.to_pylist(), values.to_pylist(), strict=True))
    yield from (known[index] for index in column.indices.to_pylist())


def _text_of(record: dict[str, Any], field: str, place: str, errors: Errors) -> bytes:
    if field not in record:
        raise UserError(f"{place} has no field {field!r}: it has {', '.join(record) or 'none'}; name the text's field")
    value = record[field]
    if value is None:
        return b""
    if isinstance(value, bytes):
        return b"".join(checked([value], f"field {field!r} in {place}", errors))
    if not isinstance(value, str):
        raise UserError(f"field {field!r} in {place} must be a string: it is {type(value).__name__}")
    try:
        return value.encode()
    except UnicodeEncodeError as error:  # JSON can spell half a surrogate pair, UTF-8 cannot
        if errors == "strict":
            raise UserError(
                f"field {field!r} in {place} holds half a surrogate pair (character {error.start:,}), which UTF-8 "
                "cannot hold; repair it, or pass errors='replace'"
            ) from error
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()


def _in_folder(folder: Path, errors: Errors, encoding: str, skipped: list[str], guesses: set[str]) -> list[Path]:
    """The texts in a folder; adds why others are passed over, and the encodings that those seem to have."""
    files = []
    for root, folders, names in os.walk(folder):
        skipped += [f"{Path(root, name)}: hidden folder" for name in folders if name.startswith(".")]
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for path in (Path(root, name) for name in names):
            why = "hidden file" if path.name.startswith(".") else _why_not_text(path, errors, encoding, guesses)
            if why:
                skipped.append(f"{path}: {why}")
            else:
                files.append(path)
    return sorted(files)


def _why_not_text(path: Path, errors: Errors, encoding: str, guesses: set[str]) -> str:
    """Why a file in a folder is passed over; empty if it is text."""
    if not path.is_file():
        return "not a regular file"
    if path.stat().st_size == 0:
        return "empty"
    if plain_name(path).suffix.lower() in PARQUET:
        return ""
    head = next(stream(path), b"")[:SNIFFED_BYTES]
    if encoding != UTF8:
        try:
            codecs.getincrementaldecoder(encoding)("replace" if errors == "replace" else "strict").decode(head)
        except UnicodeError:
            return f"not in the encoding {encoding}"
        return ""
    guess = guess_encoding(head)
    if guess and (b"\0" in head or errors == "strict"):
        guesses.add(guess)
        return f"not UTF-8, it looks like {guess}"
    if b"\0" in head:
        return "not text: it has NUL bytes"
    if errors == "strict" and not is_utf8(head):
        return "not UTF-8"
    return "not text: a file of tokens; name it to read it" if path.suffix.lower() == SUFFIX else ""


PARQUET_ROWS = 1024  # read at a time
ROW_BYTES = 16  # that a row of parquet counts for at least: a few bytes can claim a billion rows without a value
JSON_LINES = (".jsonl", ".ndjson")
PARQUET = (".parquet",)
