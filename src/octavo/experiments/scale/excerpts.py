"""Nested pieces of a text as files: each is the end of the training part, so that all of them are as near to the
held-out text, and that is the same for all.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from octavo.errors import UserError
from octavo.text import Corpus, Split


class Excerpts:
    """The last shares of a corpus's training part, and the first bytes of its held-out part."""

    def __init__(self, corpus: Corpus, held_out: int) -> None:
        self.corpus, self.held_out = corpus, held_out
        self._pieces: dict[float, Split] = {}

    def train(self, share: float) -> Split:
        """The last share of the training part; it starts with a whole character."""
        if share not in self._pieces:
            whole = self.corpus.train
            start = _character(whole, whole.size - max(1, round(whole.size * share)))
            self._pieces[share] = Split(whole.text, whole.start + start, whole.end)
        return self._pieces[share]

    @cached_property
    def valid(self) -> Split:
        """What everything is measured on."""
        whole = self.corpus.valid
        if whole.size <= self.held_out:
            return whole
        return Split(whole.text, whole.start, whole.start + _character(whole, self.held_out))

    def bytes(self, share: float) -> int:
        return self.train(share).size

    def identity(self, share: float) -> tuple[str, str]:
        return self.train(share).sha256, self.valid.sha256

    @contextmanager
    def files(self, share: float) -> Iterator[tuple[Path, Path]]:
        """The two as files, gone afterwards."""
        with tempfile.TemporaryDirectory(prefix="octavo.") as folder:
            yield _written(self.train(share), Path(folder) / "train"), _written(self.valid, Path(folder) / "valid")


def _character(split: Split, at: int) -> int:
    """The place itself, or up to three bytes on, where a character begins."""
    data = os.pread(split.text.file.fileno(), 4, split.start + at)
    inside = len(data) - len(data.lstrip(bytes(range(0x80, 0xC0))))
    return at + min(3, inside)


def _written(split: Split, path: Path) -> Path:
    """One document as plain text, several as JSON lines."""
    if split.documents == 1:
        path = path.with_suffix(".txt")
        with open(path, "wb") as file:
            file.writelines(block.data for block in split.chunks())
        return path
    data, starts = split.read(), []
    offset = 0
    for block in split.chunks():
        starts += (block.starts + offset).tolist()
        offset += len(block.data)
    path = path.with_suffix(".jsonl")
    try:
        with open(path, "w", encoding="utf-8") as lines:
            for start, end in zip(starts, [*starts[1:], len(data)], strict=True):
                lines.write(json.dumps({"text": data[start:end].decode()}) + "\n")
    except UnicodeDecodeError as error:
        raise UserError(f"several documents must be UTF-8 to be taken in pieces: {error.reason}; join them") from error
    return path
