"""Parts of a text that any process, or any machine of a cluster, reads by itself: ranges of a plain file, or a file.

A range is cut where the tokenizer allows it, as the bytes before the place say, and not what lies in other parts; so
those who read two neighbouring parts agree without a word, and together they read the text: its bytes, its documents.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import IO, Any

import numpy as np

from octavo.errors import UserError
from octavo.io.compressed import CHUNK_BYTES
from octavo.io.encoding import UTF8, check_encoding
from octavo.io.limits import check_memory
from octavo.io.progress import progress
from octavo.text.chunks import CHUNK_COPIES, LARGE_CHUNK_BYTES, Chunk, Starts, equal_chunks, no_starts
from octavo.text.loading import Split, documents_of, source_files
from octavo.text.preprocess import check_steps
from octavo.text.reading import Errors, checked, is_plain
from octavo.text.tokenizers.char import character_boundary

PART_BYTES = 1 << 25  # of a plain file that one process reads at a time
MOST_PARTS = 1 << 14  # of one text: from 512 GB on, parts are larger
WINDOW_BYTES = 1 << 16  # read before a place in search of a cut; more where there is none
MARGIN_BYTES = 4  # a window may begin inside a character, whose bytes are not judged
TEXT, STARTS = "text.bin", "starts.npy"

SplitPoint = Callable[[bytes], int]


@dataclass(frozen=True)
class Cut:
    """Where a text may be cut: a tokenizer's rule, and whether the bytes just before a place are enough for it."""

    split_point: SplitPoint
    is_local: bool


BETWEEN_CHARACTERS = Cut(len, True)


@dataclass(frozen=True)
class TextPart:
    """A range of a plain file, or a file of any format that is read whole."""

    number: int
    path: str
    first: int = 0
    """A plain file: where the text begins in it, ..."""
    last: int = 0
    """... and ends; 0: the file is read whole."""
    start: int = 0
    """The range, before it is moved to where the text may be cut."""
    stop: int = 0
    starts: str = ""
    """The file of the places where its documents begin; without it, one begins at `first`."""
    field: str = "text"
    errors: Errors = "strict"
    encoding: str = UTF8
    steps: tuple[str, ...] = ()

    def describe(self) -> str:
        return json.dumps(asdict(self))

    def chunks(self, cut: Cut) -> Iterator[Chunk]:
        """The part's documents, in chunks; a document of an earlier part may go on in the first."""
        if not self.last:
            steps = tuple(self.steps)
            yield from _without_empty(documents_of(Path(self.path), self.field, self.errors, steps, self.encoding))
            return
        with _opened(self.path) as file:
            start, stop = (_find_cut(file, self, place, cut) for place in (self.start, self.stop))
            blocks = _blocks(file, start, stop, self.path)
            if self.starts:
                yield from _with_starts(blocks, _starts_of(self.starts), start)
                return
            starts = np.zeros(1, np.int64) if start == self.first else no_starts()
            for data in checked(blocks, self.path, self.errors, sniff=start == 0, offset=start):
                yield Chunk(data, starts)
                starts = no_starts()


def read_part(described: str) -> TextPart:
    """The part that `describe` described."""
    return TextPart(**json.loads(described))


@dataclass(frozen=True)
class TextParts:
    """All parts of a text, in order."""

    parts: tuple[TextPart, ...]
    files: tuple[str, ...]

    @cached_property
    def identity(self) -> str:
        """A hash of which files are read and how: their names, sizes and times, not what stands in them."""
        stats = [Path(path).stat() for path in self.files]
        read = [[path, stat.st_size, stat.st_mtime_ns] for path, stat in zip(self.files, stats, strict=True)]
        about = json.dumps([read, [part.describe() for part in self.parts]])
        return hashlib.sha256(about.encode()).hexdigest()

    def describe(self) -> list[str]:
        return [part.describe() for part in self.parts]

    def chunks(self) -> Iterator[Chunk]:
        """The whole text, read here: the chunks that it would have if it had been opened whole."""

        def pieces() -> Iterator[Chunk]:
            for part in self.parts:
                yield from part.chunks(BETWEEN_CHARACTERS)
                advance(1)

        with progress("reading", len(self.parts), "parts") as advance:
            yield from equal_chunks(pieces(), CHUNK_BYTES)

    def hash_text(self) -> str:
        """The hash of the text, as that of a text that was opened whole."""
        digest = hashlib.sha256()
        for chunk in self.chunks():
            digest.update(chunk.data)
        return digest.hexdigest()


def parts_of_sources(
    sources: Sequence[str], field: str = "text", errors: Errors = "strict", encoding: str = UTF8,
    preprocess: Iterable[str] = (),
) -> TextParts | None:  # fmt: skip
    """The parts of the user's files, none of which is read; None where only this process can read the source."""
    encoding = check_encoding(encoding)
    files = source_files(sources, errors, encoding)
    if files is None:
        return None
    steps = check_steps(preprocess)
    reading: dict[str, Any] = {"field": field, "errors": errors, "encoding": encoding, "steps": steps}
    plain = errors != "replace" and not steps and encoding == UTF8
    sizes = [path.stat().st_size for path in files]
    size, parts = _part_bytes(sum(sizes)), list[TextPart]()
    for path, length in zip(files, sizes, strict=True):
        place = str(path.absolute())
        if plain and is_plain(path):
            parts += _ranges(len(parts), place, 0, length, size, **reading)
        else:
            parts.append(TextPart(len(parts), place, **reading))
    if not parts:
        raise UserError(f"there is no text in {', '.join(map(str, files[:3]))}: a corpus needs at least 2 bytes")
    return TextParts(tuple(parts), tuple(str(path.absolute()) for path in files))


def parts_of_split(split: Split, folder: Path) -> TextParts:
    """The parts of a text that was opened here: its user's own file, or the copy that `copy_split` made of it."""
    path, first, starts = split.text.path, split.start, ""
    if path is None:
        path, first, starts = folder / TEXT, 0, str((folder / STARTS).absolute())
    size = _part_bytes(split.size)
    ranges = _ranges(0, str(path.absolute()), first, first + split.size, size, starts=starts, errors="raw")
    return TextParts(tuple(ranges), (str(path.absolute()),))


def copy_split(split: Split, folder: Path) -> None:
    """Copy what was unpacked here to where others can read it."""
    folder.mkdir()
    with open(folder / TEXT, "wb") as file:
        for chunk in split.chunks():
            file.write(chunk.data)
    np.save(folder / STARTS, split.starts)


def _part_bytes(size: int) -> int:
    return max(PART_BYTES, -(-size // MOST_PARTS))


def _ranges(number: int, path: str, first: int, last: int, size: int, **reading: Any) -> list[TextPart]:
    return [
        TextPart(number + i, path, first, last, start, min(start + size, last), **reading)
        for i, start in enumerate(range(first, last, size))
    ]


def _opened(path: str) -> IO[bytes]:
    try:
        return open(path, "rb")
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; every machine that reads must see it") from error


def _find_cut(file: IO[bytes], part: TextPart, place: int, cut: Cut) -> int:
    """The last place up to `place` where the text may be cut, found from the bytes before it."""
    if place in (part.first, part.last):
        return place
    begin = part.first
    if part.starts:
        starts = _starts_of(part.starts)
        begin = int(starts[np.searchsorted(starts, place, "right") - 1])
    if place == begin or not cut.is_local:
        return begin
    size = WINDOW_BYTES
    while True:
        low = max(begin, place - size)
        if place - low > LARGE_CHUNK_BYTES:
            check_memory(CHUNK_COPIES * (place - low), "a text of one word", "give one with spaces in it")
        file.seek(low)
        data = file.read(place - low)
        found = cut.split_point(data[: character_boundary(data)])
        if low == begin or found > MARGIN_BYTES:
            return low + found
        size *= 16


def _blocks(file: IO[bytes], start: int, stop: int, path: str) -> Iterator[bytes]:
    file.seek(start)
    while start < stop:
        data = file.read(min(CHUNK_BYTES, stop - start))
        if not data:
            raise UserError(f"{path} became shorter while it was read; leave it alone and run it again")
        start += len(data)
        yield data


@lru_cache(1)
def _starts_of(path: str) -> Starts:
    return np.load(path, mmap_mode="r")  # type: ignore[no-any-return]


def _with_starts(blocks: Iterator[bytes], starts: Starts, offset: int) -> Iterator[Chunk]:
    """The blocks with the documents that begin in each."""
    for data in blocks:
        low, high = np.searchsorted(starts, [offset, offset + len(data)])
        yield Chunk(data, np.asarray(starts[low:high]) - offset)
        offset += len(data)


def _without_empty(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    """The chunks; a document without bytes is none, as in a text that was unpacked."""
    waits = False  # a document began where the last chunk ended
    for chunk in chunks:
        starts = np.unique(np.concatenate([np.zeros(int(waits), np.int64), chunk.starts]))
        waits = bool(len(starts)) and int(starts[-1]) == len(chunk.data)
        if chunk.data:
            yield Chunk(chunk.data, starts[: len(starts) - waits])
