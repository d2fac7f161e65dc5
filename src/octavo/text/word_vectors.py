"""Word vectors: read and written as text, GloVe's way or word2vec's, and matched to the tokens of a tokenizer.

GloVe writes a word and its numbers on each line; word2vec and fastText put a line "count dim" before them. Files may
be larger than memory: they are read as a stream, and only the rows asked for stay in memory. Neither format says which
text the vectors were learnt from: a file beside them does (`plays.txt.json`), by its hash.

W words, D dimensions, V vocabulary of the tokenizer.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.datasets.sources import SOURCES, get_files
from octavo.errors import UserError
from octavo.io.compressed import is_compressed, stream
from octavo.io.files import whole_file, write_text
from octavo.io.json_text import read_json_file
from octavo.io.limits import check_memory
from octavo.text.tokenizers.base import Tokenizer

Rows = NDArray[np.float32]

MAX_LINE_BYTES = 1 << 20  # bytes; a row of 10,000 dimensions takes about a tenth of it
MAX_COUNT_DIGITS = 18  # digits of a number in word2vec's first line; more is a word, not a number
LARGEST = float(np.finfo(np.float32).max)  # beyond, a number would be infinite in a row
MANY_ROWS = 1 << 16  # after so many, memory is asked for and repeated words are counted
WORD_BYTES = 200  # of memory that a word takes beside its numbers
MAX_ORIGIN_BYTES = 1 << 20
ORIGIN_SUFFIX = ".json"  # of the file beside the vectors
TEXT_FORMAT = "a line is a word and its numbers, with spaces between (GloVe's or word2vec's text format)"


@dataclass
class Vectors:
    """Words and their vectors, a row each."""

    words: list[str]
    rows_WD: Rows
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Origin:
    """The text that something was learnt from, as far as it is known."""

    name: str
    """What was learnt, as messages and records name it."""
    text_sha256: str = ""
    """The hash of the text's bytes; empty where it is not known."""


@dataclass
class Match:
    """The vectors of a tokenizer's tokens, with zeros where there is none."""

    vectors_VD: Rows
    known_V: NDArray[np.bool_]
    notes: list[str]


def read_vectors(source: str | Path, wanted: Collection[str] | None = None) -> Vectors:
    """The vectors of the words wanted, or of all, from a text file (also compressed) or a named source."""
    named = SOURCES.get(str(source))
    if named is not None and named.kind == "vectors":
        return _packaged(str(source), wanted)
    if not Path(source).is_file():
        names = ", ".join(name for name, known in SOURCES.items() if known.kind == "vectors")
        raise UserError(f"there is no file of vectors {source}; name a text file, or one of {names}")
    return _parse(Path(source), None if wanted is None else {word.encode() for word in wanted})


def write_vectors(
    path: str | Path, vectors: Vectors, header: bool = False, origin: Mapping[str, Any] | None = None
) -> None:
    """One line a word, with digits enough to read the same numbers back; `header` adds word2vec's first line.

    `origin` says, in a file beside them, which text they were learnt from. It is written first, since it counts only
    for vectors of its hash: killed between the two, nothing stands there that another try would refuse to replace.
    """
    bad = next((word for word in vectors.words if not word or word.split() != [word]), None)
    if bad is not None:
        raise UserError(f"a word in a file of vectors has no spaces and is not empty: got {bad!r}; leave it out")
    with whole_file(path) as file:
        digest = hashlib.sha256()
        for line in _vector_lines(vectors, header):
            file.write(line)
            digest.update(line)
        if origin is not None:
            about = {**origin, "vectors_sha256": digest.hexdigest()}
            write_text(f"{path}{ORIGIN_SUFFIX}", json.dumps(about, indent=1, ensure_ascii=False) + "\n")


def _vector_lines(vectors: Vectors, header: bool) -> Iterator[bytes]:
    if header:
        yield f"{len(vectors.words)} {vectors.rows_WD.shape[1]}\n".encode()
    numbers = " %.9g" * vectors.rows_WD.shape[1] + "\n"  # nine digits distinguish any two 32-bit numbers
    for word, row_D in zip(vectors.words, vectors.rows_WD, strict=True):
        yield (word + numbers % tuple(row_D.tolist())).encode("utf-8", "surrogateescape")


def read_origin(source: str | Path) -> Origin:
    """Which text vectors were learnt from: not known, unless the file beside them is there and is about them."""
    beside = Path(f"{source}{ORIGIN_SUFFIX}")
    name = f"vectors {source}"
    try:
        origin = read_json_file(beside, "leave it out", MAX_ORIGIN_BYTES) if beside.is_file() else {}
        if origin.get("vectors_sha256") == _file_hash(source) and isinstance(origin.get("text_sha256"), str):
            return Origin(name, origin["text_sha256"])
    except (OSError, UserError, AttributeError):  # somebody else's file
        pass
    return Origin(name)


def _file_hash(path: str | Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def word_of(spelling: bytes) -> str | None:
    """The word that a token stands for: its spelling without the space that a piece may carry in front."""
    try:
        return spelling.decode().strip() or None
    except UnicodeDecodeError:  # a byte of a word that is spelt out
        return None


def match_vectors(source: str | Path, tokenizer: Tokenizer, counts_V: NDArray[Any] | None = None) -> Match:
    """Vectors for the tokens: each gets that of its word as it stands, or else in lower case."""
    words = [word_of(tokenizer.token_bytes(token)) for token in range(tokenizer.vocab)]
    found = read_vectors(source, {form for word in words if word for form in (word, word.lower())})
    place = {word: row for row, word in enumerate(found.words)}
    exact = np.array([place.get(word or "", -1) for word in words])
    lower = np.array([place.get((word or "").lower(), -1) for word in words])
    row_V = np.where(exact >= 0, exact, lower)
    known_V = row_V >= 0
    vectors_VD = np.zeros((len(words), found.rows_WD.shape[1]), np.float32)
    vectors_VD[known_V] = found.rows_WD[row_V[known_V]]
    is_word_V = np.array([word is not None for word in words])
    note = f"{known_V.sum():,} of {is_word_V.sum():,} tokens that are words have a vector"
    if counts_V is not None and counts_V[is_word_V].sum():
        note += f", which are {counts_V[known_V].sum() / counts_V[is_word_V].sum():.1%} of the text's"
    return Match(vectors_VD, known_V, [*found.notes, note])


def _packaged(name: str, wanted: Collection[str] | None) -> Vectors:
    """A source that is an array and a Parquet file of its words."""
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise UserError(f"{name} needs Parquet; pip install 'octavo[parquet]'") from error
    files = get_files(name)
    array_file, index_file = (next(p for n, p in files.items() if n.endswith(end)) for end in (".npy", ".parquet"))
    rows_WD = np.load(array_file, mmap_mode="r", allow_pickle=False)
    words: list[str] = parquet.read_table(index_file).column(0).to_pylist()
    if wanted is None:
        return Vectors(words, np.array(rows_WD, np.float32))
    rows = [row for row, word in enumerate(words) if word in wanted]
    return Vectors([words[row] for row in rows], np.array(rows_WD[rows], np.float32))


def _parse(path: Path, wanted: set[bytes] | None) -> Vectors:
    """Read the text format; a row that is not wanted is only counted through, so that uneven files are refused."""
    place: dict[bytes, int] = {}
    numbers, dim, promised, rows, repeated = array("f"), 0, -1, 0, 0
    for at, line in enumerate(_lines(path), 1):
        if at == 1 and (promised := _header(line)) >= 0:
            dim = int(line.split()[1])
            _check_header(path, promised, dim)
            continue
        dim = dim or len(line.split()) - 1
        word, values = _row(line, dim, path, at)
        rows += 1
        if rows % MANY_ROWS == 0:
            copied = numbers.itemsize * len(numbers)  # at most, while the array grows
            check_memory(copied + WORD_BYTES * len(place), f"reading {path}")
            if 2 * repeated > rows:
                raise UserError(f"{path} repeats words in {repeated:,} of its first {rows:,} rows; {TEXT_FORMAT}")
        if word in place:
            repeated += 1
        elif wanted is None or word in wanted:
            place[word] = len(place)
            numbers.extend(_floats(values, path, at))
    if not rows:
        raise UserError(f"{path} holds no vectors; {TEXT_FORMAT}")
    if 0 <= promised != rows:
        raise UserError(f"{path} is not whole: {promised:,} vectors are promised, {rows:,} are there; get it again")
    notes = [f"{path}: {repeated:,} rows repeat a word; the first of each counts"] if repeated else []
    rows_WD = np.frombuffer(numbers, np.float32).reshape(len(place), dim) if place else np.zeros((0, dim), np.float32)
    return Vectors([word.decode("utf-8", "surrogateescape") for word in place], rows_WD, notes)


def _lines(path: Path) -> Iterator[bytes]:
    """The lines that are not empty, without their ends; what cannot be a text of vectors is refused early."""
    rest = b""
    for chunk in stream(path):
        if b"\0" in chunk or len(rest) > MAX_LINE_BYTES:
            raise UserError(f"{path} is not text, as word2vec's .bin files are not; convert it: {TEXT_FORMAT}")
        *lines, rest = (rest + chunk).split(b"\n")
        yield from filter(None, map(bytes.rstrip, lines))
    if rest.rstrip():
        yield rest.rstrip()


def _header(line: bytes) -> int:
    """How many rows word2vec's first line promises; -1 where it is a row already."""
    fields = line.split()
    counts = len(fields) == 2 and all(part.isdigit() and len(part) <= MAX_COUNT_DIGITS for part in fields)
    return int(fields[0]) if counts and int(fields[1]) else -1


def _check_header(path: Path, rows: int, dim: int) -> None:
    """Refuse a first line that promises more than the file can hold: a number takes two bytes, with its space."""
    size = path.stat().st_size
    if rows > MANY_ROWS and size and not is_compressed(path) and rows * 2 * (dim + 1) > size:
        raise UserError(
            f"{path} is not whole: {rows:,} vectors of {dim:,} numbers are promised, in {size:,} bytes; get it again"
        )


def _row(line: bytes, dim: int, path: Path, at: int) -> tuple[bytes, list[bytes]]:
    """The word and its numbers, still as text. Some files have words with spaces inside (". . .")."""
    fields = line.split(b" ") if b"\t" not in line else line.split()
    extra = len(fields) - 1 - dim
    if dim < 1 or extra < 0 or any(_is_number(part) for part in fields[1 : 1 + extra]):
        raise UserError(f"{path}, line {at}: a row must have as many numbers as the others, {max(dim, 1)}: "
                        f"it has {len(fields) - 1}; {TEXT_FORMAT}")  # fmt: skip
    return b" ".join(fields[: 1 + extra]), fields[1 + extra :]


def _floats(values: list[bytes], path: Path, at: int) -> list[float]:
    try:
        found = [float(value) for value in values]
        if all(abs(value) <= LARGEST for value in found):  # which nan is not either
            return found
    except ValueError:
        pass
    shown = b" ".join(values)[:40].decode("utf-8", "replace")
    raise UserError(f"{path}, line {at}: after the word come numbers: got {shown!r}; {TEXT_FORMAT}")


def _is_number(part: bytes) -> bool:
    try:
        float(part)
        return True
    except ValueError:
        return False
