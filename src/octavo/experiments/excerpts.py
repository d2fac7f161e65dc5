"""The texts of cells: parts that begin and end with whole characters, described in JSON, opened again, and as files."""

from __future__ import annotations

import json
import os
from functools import lru_cache
from pathlib import Path
from typing import Any

from octavo.errors import UserError
from octavo.io.files import whole_file
from octavo.text import Corpus, Split, open_corpus
from octavo.text.tokenizers.char import character_boundary


def first_bytes(data: bytes, limit: int) -> bytes:
    """At most so many bytes, and no character cut in two."""
    return data if len(data) <= limit else data[: character_boundary(data[:limit])]


def first_part(split: Split, limit: int) -> Split:
    """At most so many bytes from the beginning."""
    if split.size <= limit:
        return split
    ends = (at for at in range(limit, max(0, limit - 4), -1) if _starts_character(split, at))
    return Split(split.text, split.start, split.start + next(ends, limit))


def last_part(split: Split, limit: int) -> Split:
    """At most so many bytes from the end."""
    at = max(0, split.size - limit)
    starts = (place for place in range(at, min(at + 4, split.size)) if _starts_character(split, place))
    return Split(split.text, split.start + next(starts, at), split.end)


def _starts_character(split: Split, at: int) -> bool:
    """Whether a character of UTF-8 can begin at this place."""
    byte = os.pread(split.text.file.fileno(), 1, split.start + at)
    return not byte or byte[0] & 0xC0 != 0x80


def write_part(split: Split, stem: Path) -> Path:
    """The part as a file beside `stem`, unless it is there: one document as plain text, several as JSON lines."""
    path = stem.with_name(stem.name + (".txt" if split.documents == 1 else ".jsonl"))
    if not path.is_file():
        with whole_file(path) as file:
            if split.documents == 1:
                file.writelines(block.data for block in split.chunks())
            else:
                file.writelines(_json_lines(split))
    return path


def _json_lines(split: Split) -> list[bytes]:
    data, starts, offset = split.read(), [], 0
    for block in split.chunks():
        starts += (block.starts + offset).tolist()
        offset += len(block.data)
    try:
        documents = [data[start:end].decode() for start, end in zip(starts, [*starts[1:], len(data)], strict=True)]
    except UnicodeDecodeError as error:
        raise UserError(f"several documents must be UTF-8 to be taken in parts: {error.reason}; join them") from error
    return [json.dumps({"text": document}).encode() + b"\n" for document in documents]


def describe_texts(corpus: Corpus, train: Split, scored: Split, valid: tuple[str, ...], field: str) -> dict[str, Any]:
    """What a cell says of its texts: the last part of a corpus's training text, and the first of its held-out text."""
    return {
        "sources": list(corpus.source), "valid": list(valid), "field": field, "errors": corpus.errors,
        "train_bytes": train.size, "train_sha256": train.sha256,
        "scored_bytes": scored.size, "scored_sha256": scored.sha256,
    }  # fmt: skip


def open_texts(data: dict[str, Any]) -> tuple[Split, Split]:
    """The two texts that `describe_texts` described."""
    # The hash is among the arguments because a file may have changed since it was last opened by this process.
    names = tuple(data["sources"]), tuple(data["valid"])
    corpus = _open(*names, data["field"], data["errors"], data["scored_sha256"])
    return last_part(corpus.train, data["train_bytes"]), first_part(corpus.valid, data["scored_bytes"])


@lru_cache(maxsize=1)  # the cells of a process are mostly of one text
def _open(sources: tuple[str, ...], valid: tuple[str, ...], field: str, errors: Any, _: str) -> Corpus:
    return open_corpus(sources, field=field, errors=errors, valid=valid or None)
