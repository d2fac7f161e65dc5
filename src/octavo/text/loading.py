"""The user's files as one text: read in place, or unpacked once into a temporary file; and parts of it in chunks."""

from __future__ import annotations

import codecs
import glob
import hashlib
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any, get_args

import numpy as np

from octavo.errors import UserError, did_you_mean
from octavo.io.compressed import CHUNK_BYTES, stream
from octavo.io.encoding import SNIFFED_BYTES, UTF8, check_encoding, guess_encoding
from octavo.io.limits import read_limits
from octavo.io.system import read_at
from octavo.text.chunks import Chunk, Starts, rechunk
from octavo.text.preprocess import apply
from octavo.text.reading import STDIN, Errors, checked, is_plain, list_files, read_documents
from octavo.text.remote import fetch, is_address

Source = str | Path | Sequence[str | Path]


@dataclass(frozen=True)
class Text:
    """Documents end to end in one file: the user's own, or a temporary one that they were unpacked into."""

    file: IO[bytes]
    name: str
    size: int  # bytes
    starts: Starts
    notes: tuple[str, ...] = ()  # what the user may want to know of how it was read
    path: Path | None = None  # of the user's own file

    def __post_init__(self) -> None:
        weakref.finalize(self, self.file.close)  # it stays open until the text is gone


@dataclass(frozen=True)
class Split:
    """The bytes of a text from `start` to `end`; a document that is cut at `start` counts as one that begins there."""

    text: Text
    start: int
    end: int

    @property
    def size(self) -> int:
        """Its number of bytes."""
        return self.end - self.start

    @property
    def documents(self) -> int:
        """Its number of documents."""
        return len(self.starts)

    @cached_property
    def starts(self) -> Starts:
        """Where its documents begin."""
        starts = self.text.starts
        inside = starts[(starts > self.start) & (starts < self.end)]
        return np.concatenate([[0], inside - self.start])

    @cached_property
    def sha256(self) -> str:
        """The hash of the split's bytes."""
        digest = hashlib.sha256()
        for chunk in self.chunks():
            digest.update(chunk.data)
        return digest.hexdigest()

    def chunks(self) -> Iterator[Chunk]:
        """The documents, in chunks."""
        for offset in range(0, self.size, CHUNK_BYTES):
            size = min(CHUNK_BYTES, self.size - offset)
            data = read_at(self.text.file.fileno(), size, self.start + offset)
            if len(data) != size:
                raise UserError(f"{self.text.name} became shorter while it was read; leave it alone and run it again")
            first, last = np.searchsorted(self.starts, [offset, offset + size])
            yield Chunk(data, self.starts[first:last] - offset)

    def read(self) -> bytes:
        """All of its bytes at once."""
        return b"".join(chunk.data for chunk in self.chunks())

    def first(self, size: int) -> Split:
        """At most so many bytes from its beginning, though a character may be cut."""
        return Split(self.text, self.start, min(self.end, self.start + size))

    def bytes_per_character(self) -> float:
        """Of its first chunk in UTF-8: 1 for plain English, nearly 3 for Chinese; 1 where it is not UTF-8."""
        data = next(self.chunks(), Chunk(b"")).data
        try:
            text = codecs.getincrementaldecoder("utf-8")().decode(data)  # which waits for the rest of a character
        except UnicodeDecodeError:
            return 1.0
        return len(data) / len(text) if text else 1.0

    def describe(self) -> dict[str, Any]:
        """What identifies the split in a run's record."""
        return {"bytes": self.size, "documents": self.documents, "sha256": self.sha256}


def load_text(
    source: Source, field: str = "text", errors: Errors = "strict", steps: tuple[str, ...] = (), encoding: str = UTF8
) -> Text:
    """All documents of the source after the preprocessing steps."""
    encoding, notes = check_encoding(encoding), list[str]()
    if errors not in get_args(Errors):
        raise UserError(f"errors must be one of {', '.join(get_args(Errors))}: got {errors!r}")
    with tempfile.TemporaryDirectory(prefix="octavo-remote-") as copies:
        return _load(source, field, errors, steps, encoding, notes, Path(copies))


def _load(
    source: Source, field: str, errors: Errors, steps: tuple[str, ...], encoding: str, notes: list[str], copies: Path
) -> Text:  # fmt: skip
    """The text; what lies elsewhere is first copied into the folder, which is gone afterwards."""
    files, skipped = list_files(_resolve(source, notes, copies), errors, encoding)
    notes += [f"passed over {file}" for file in skipped]
    if errors == "raw" and encoding == UTF8:
        notes += [note for file in files if (note := _note_encoding(file))]
    own = len(files) == 1 and is_plain(files[0]) and copies not in files[0].parents
    if own and errors != "replace" and not steps and encoding == UTF8:
        path = files[0]  # the user's own file, checked once from end to end
        size = sum(len(chunk) for chunk in checked(stream(path), str(path), errors))
        text = Text(open(path, "rb"), str(path), size, np.zeros(1, np.int64), tuple(notes), path)  # noqa: SIM115  it closes it
    else:
        text = _unpacked(files, field, errors, steps, encoding, notes)
    if not text.size:
        raise UserError(f"there is no text in {', '.join(map(str, files[:3]))}: a corpus needs at least 2 bytes")
    return text


def source_files(sources: Sequence[str], errors: Errors = "strict", encoding: str = UTF8) -> list[Path] | None:
    """The files of a source; None where some are no files of this machine, or a pipe, which can be read once."""
    if any(name == STDIN or (is_address(name) and not Path(name).exists()) for name in sources):
        return None
    files, _ = list_files(_resolve(list(sources), [], Path()), errors, encoding)
    return files if all(path.is_file() for path in files) else None


def documents_of(path: Path, field: str, errors: Errors, steps: tuple[str, ...], encoding: str) -> Iterator[Chunk]:
    """The documents of one file after the preprocessing steps, in chunks."""
    return _stepped(read_documents(path, field, errors, encoding), steps)


def _note_encoding(path: Path) -> str:
    """A word on a file whose bytes are read as they are, though they seem to be a text in another encoding."""
    if not is_plain(path):
        return ""
    with open(path, "rb") as file:
        guess = guess_encoding(file.read(SNIFFED_BYTES))
    if not guess:
        return ""
    return f"{path} looks like {guess}; its bytes are read as they are; --encoding {guess} reads them as text"


def text_of(data: bytes) -> Text:
    """Bytes that come from no file, as a text of one document."""
    file = tempfile.TemporaryFile()  # noqa: SIM115  the text closes it
    text = Text(file, "the text", len(data), np.zeros(1, np.int64))
    _write(text.file, data)
    text.file.flush()
    return text


def _resolve(source: Source, notes: list[str], copies: Path) -> list[str | Path]:
    """Paths for what the user named; a path that exists comes before a source of the same name."""
    if not isinstance(source, str | Path):
        if not source:
            raise UserError("a corpus needs at least one file, folder or named source")
        return [path for one in source for path in _resolve(one, notes, copies)]
    from octavo.datasets import sources  # imported late: most corpora are plain files

    name = str(source)
    if name == STDIN or Path(source).exists():
        if name in sources.SOURCES:
            notes.append(f"{name} is both a path here and a named source; the path was read")
        return [source]
    if is_address(name):
        return list(fetch(name, copies / str(len(list(copies.iterdir())))))
    if matches := sorted(glob.glob(name, recursive=True)):  # a pattern in quotes, which the shell left alone
        return list(matches)
    if name not in sources.SOURCES:
        known = [one.name for one in sources.SOURCES.values() if one.kind == "text"]
        advice = did_you_mean(name, [*known, *_files_beside(Path(name))], f"text sources are {', '.join(known)}")
        raise UserError(
            f"there is no file or folder {name} (seen from {Path.cwd()}), and no source of that name; {advice}"
        )
    if sources.SOURCES[name].kind in ("checkpoint", "vectors", "images"):
        raise UserError(f"the source {name} is not text but {sources.SOURCES[name].kind}; name another")
    return list(sources.get_files(name).values())


def _files_beside(path: Path) -> list[str]:
    """What stands where a file of that name would."""
    folder = path.parent
    return [str(folder / one.name) for one in folder.iterdir()] if folder.is_dir() else []


def _unpacked(
    files: list[Path], field: str, errors: Errors, steps: tuple[str, ...], encoding: str, notes: list[str]
) -> Text:
    """All documents in one temporary file without a name, so that they are decompressed and parsed once."""
    size, starts, limits = 0, [np.zeros(0, np.int64)], read_limits()
    with ExitStack() as stack:
        file = stack.enter_context(tempfile.TemporaryFile())
        for path in files:
            for chunk in documents_of(path, field, errors, steps, encoding):
                _write(file, chunk.data)
                starts.append(chunk.starts + size)
                size += len(chunk.data)
                limits.check_total(size)
        file.flush()
        every = np.unique(np.concatenate(starts))  # a document without bytes shares its start with the next
        stack.pop_all()  # from here on the file is the text's to close
        return Text(file, "the unpacked text", size, every[every < size], tuple(notes))


def _write(file: IO[bytes], data: bytes) -> None:
    try:
        file.write(data)
    except OSError as error:
        raise UserError(
            f"cannot unpack the text into {tempfile.gettempdir()}: {error.strerror}; "
            "set TMPDIR to a place with more room"
        ) from error


def _stepped(chunks: Iterator[Chunk], steps: tuple[str, ...]) -> Iterator[Chunk]:
    """The chunks after the preprocessing steps, which want whole lines."""
    if not steps:
        yield from chunks
        return
    for chunk in rechunk(chunks, lambda data: data.rfind(b"\n") + 1):
        parts = [apply(steps, document) for document in chunk.documents()]
        yield Chunk(b"".join(parts), np.cumsum([len(part) for part in parts], dtype=np.int64)[:-1])
