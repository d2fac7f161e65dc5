"""The lines of an ARPA file, split and converted many at a time; what is wrong is refused with the line it stands in.

M k-grams of k words; n of them in one block.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.errors import UserError
from octavo.exchange.formats import NOT_ARPA
from octavo.io.compressed import is_compressed, stream
from octavo.io.progress import Advance
from octavo.models.ngram.config import MAX_ORDER

LONGEST_LINE = 1 << 20  # bytes; whatever is longer, without a line's end, is no ARPA file
PREAMBLE, PREAMBLE_BYTES = 10_000, 1 << 24  # lines, and bytes in them, that may stand before \data\
MAX_EMPTY_LINES = 10_000  # between two sections
SHOWN = 60  # characters of a wrong line that a message shows
ROUNDING = 1e-6  # a log-probability may lie so far above 0: other tools round too
LARGEST = 99.0  # a back-off weight of more digits is a mistake
COUNT = re.compile(rb"\s*[0-9]{1,18}\s*")
BLANK = np.isin(np.arange(256), list(b" \t\n\r\v\f"))  # where bytes.split splits


class Lines:
    """A file's lines, one by one or many at once; `number` is that of the last one given."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.number = 0
        self._blocks = stream(path)
        self._data, self._at = b"", 0

    def one(self) -> bytes | None:
        """The next line without the white space at its ends; None after the last."""
        if not self._has_line():
            return None
        end = self._data.index(b"\n", self._at) + 1
        line, self._at = self._data[self._at : end].strip(), end
        self.number += 1
        return line

    def many(self, most: int) -> tuple[bytes, NDArray[np.int64]]:
        """Some of the next `most` lines, whole, and where each begins in them; nothing after the last."""
        if not self._has_line():
            return b"", np.zeros(0, np.int64)
        text = np.frombuffer(self._data, np.uint8, offset=self._at)
        ends = np.flatnonzero(text == ord("\n"))[:most] + 1
        block = self._data[self._at : self._at + int(ends[-1])]
        self._at += len(block)
        self.number += len(ends)
        return block, np.concatenate([[0], ends[:-1]])

    def refusal(self, why: str, number: int | None = None) -> UserError:
        """What to raise when a line, the last one given or another, is wrong."""
        return UserError(f"{self.path}, line {self.number if number is None else number:,}: {why}")

    def _has_line(self) -> bool:
        """Read on until there is a whole line to give."""
        while self._data.find(b"\n", self._at) < 0:
            rest = self._data[self._at :]
            if len(rest) > LONGEST_LINE:
                raise self.refusal(f"it is longer than {LONGEST_LINE:,} bytes; this is not an ARPA file",
                                   self.number + 1)  # fmt: skip
            block = next(self._blocks, None)
            if block is None and not rest:
                return False
            self._data, self._at = rest + (b"\n" if block is None else block), 0
        return True


@dataclass(frozen=True)
class Section:
    """Consecutive k-grams of one order: a block of them, or all; row i stands in line `line` + i."""

    word_Mk: NDArray[Any]  # their bytes, or ids
    logp_M: NDArray[np.float64]
    backoff_M: NDArray[np.float64]
    line: int


def read_sizes(lines: Lines) -> list[int]:
    """The number of n-grams of each order, from the header."""
    _find_header(lines)
    sizes: list[int] = []
    while line := lines.one():
        name, _, size = line.partition(b"=")
        if name.split() != [b"ngram", b"%d" % (len(sizes) + 1)] or not COUNT.fullmatch(size):
            raise lines.refusal(f"{_shown(line)} stands where 'ngram {len(sizes) + 1}=...' must; the header is damaged")
        sizes.append(int(size))
        if len(sizes) > MAX_ORDER:
            raise lines.refusal(f"the order of n-grams is at most {MAX_ORDER}; this is not an ARPA file")
    _check_sizes(lines.path, sizes)
    if not sizes or not sizes[0]:
        raise lines.refusal("the header names no n-grams; write the file again")
    return sizes


def _check_sizes(path: Path, sizes: list[int]) -> None:
    """Refuse a header that promises more than the file can hold: a k-gram takes a digit, k words and k + 1 spaces."""
    size, least = path.stat().st_size, sum(2 * (k + 1) * count for k, count in enumerate(sizes, 1))
    if size and not is_compressed(path) and least > size:
        raise UserError(f"{path} is not whole: its n-grams take {least:,} bytes or more, it has {size:,}; get it again")


def _find_header(lines: Lines) -> None:
    hint = "give a file that lmplz or octavo wrote"
    size = 0
    for number in range(PREAMBLE):
        line = lines.one()
        size += len(line or b"")
        if size > PREAMBLE_BYTES:
            break
        if line == b"\\data\\":
            return
        if line is None:
            break
        if number == 0:
            hint = next((f"it is {what}" for start, what in NOT_ARPA.items() if line.startswith(start)), hint)
    raise UserError(f"{lines.path} is not an ARPA file: no line says \\data\\; {hint}")


def read_end(lines: Lines) -> None:
    """The mark without which the file may have been cut inside its last number."""
    _expect(lines, b"\\end\\")


def read_words(lines: Lines, size: int, advance: Advance) -> tuple[list[str], NDArray[Any], NDArray[Any]]:
    """The 1-grams: their names, log10 p and log10 back-off."""
    blocks = list(_blocks(lines, 1, size, advance))
    line_of: dict[str, int] = {}
    for block in blocks:
        for line, word in enumerate(block.word_Mk[:, 0].tolist(), block.line):
            try:
                name = word.decode()
            except UnicodeDecodeError as error:
                raise lines.refusal(f"{_shown(word)} is not UTF-8; convert the file (iconv -t utf-8)", line) from error
            if name in line_of:
                raise lines.refusal(
                    f"the word {name!r} stands in line {line_of[name]:,} too; write the file again", line
                )
            line_of[name] = line
    logp_V, backoff_V = (np.concatenate(part) for part in zip(*((b.logp_M, b.backoff_M) for b in blocks), strict=True))
    return list(line_of), logp_V, backoff_V


def read_ngrams(lines: Lines, k: int, size: int, ids: Mapping[bytes, int], advance: Advance) -> Section:
    """The k-grams, with ids for words."""
    words, logps, backoffs = [np.zeros((0, k), np.int32)], [np.zeros(0)], [np.zeros(0)]
    line = None
    for block in _blocks(lines, k, size, advance):
        flat = block.word_Mk.ravel().tolist()
        word_nk = np.fromiter(map(ids.get, flat, repeat(-1)), np.int32, len(flat)).reshape(-1, k)
        if (row := _first(word_nk.min(1) < 0)) is not None:
            missing = next(word for word in block.word_Mk[row].tolist() if word not in ids)
            raise lines.refusal(f"{_shown(missing)} is not among the 1-grams; write the file again", block.line + row)
        line = block.line if line is None else line
        words.append(word_nk)
        logps.append(block.logp_M)
        backoffs.append(block.backoff_M)
    return Section(np.concatenate(words), np.concatenate(logps), np.concatenate(backoffs), line or lines.number)


def _blocks(lines: Lines, k: int, size: int, advance: Advance) -> Iterator[Section]:
    """The `size` k-grams below the next section's title."""
    _expect(lines, b"\\%d-grams:" % k)
    done = 0
    while done < size:
        line = lines.number + 1
        data, begin_n = lines.many(size - done)
        fields_n = _fields(data, begin_n)
        wrong = _first((fields_n != k + 1) & (fields_n != k + 2))
        text = b"" if wrong is None else data[int(begin_n[wrong]) :].split(b"\n", 1)[0].strip()
        if not len(begin_n) or (wrong is not None and (not text or text.startswith(b"\\"))):
            row = wrong or 0
            why = f"the file ends early, with {done + row:,} of {size:,} {k}-grams; copy it again"
            raise lines.refusal(why, line + row)
        if wrong is not None:
            rule = f"a number, {k} words, and a number or none"
            raise lines.refusal(f"{_shown(text)} is not a {k}-gram ({rule}); the file is damaged", line + wrong)
        yield _parsed(lines, data, fields_n, k, line)
        done += len(begin_n)
        advance(len(begin_n))


def _fields(data: bytes, begin_n: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many fields each line has."""
    if not len(begin_n):
        return np.zeros(0, np.int64)
    blank = BLANK[np.frombuffer(data, np.uint8)]
    opens = ~blank
    opens[1:] &= blank[:-1]
    return np.add.reduceat(opens, begin_n, dtype=np.int64)


def _parsed(lines: Lines, data: bytes, fields_n: NDArray[np.int64], k: int, line: int) -> Section:
    """Lines with log10 p, k words, and a back-off or none."""
    field_F = np.array(data.split(), dtype=object)
    first_n = np.cumsum(fields_n) - fields_n
    logp_n = _numbers(lines, field_F[first_n], np.arange(len(first_n)) + line)
    backed = np.flatnonzero(fields_n == k + 2)
    backoff_n = np.zeros(len(first_n))
    backoff_n[backed] = _numbers(lines, field_F[first_n[backed] + k + 1], backed + line)
    for what, number_n, most in (("probability", logp_n, ROUNDING), ("back-off", backoff_n, LARGEST)):
        if (row := _first(number_n > most)) is not None:
            rule = f"log10 of a {what} must not be above {math.floor(most)}"
            raise lines.refusal(f"{rule}: {number_n[row]:g}; write the file again", line + row)
    return Section(field_F[first_n[:, None] + np.arange(1, k + 1)], logp_n.clip(max=0), backoff_n, line)


def _numbers(lines: Lines, field_n: NDArray[Any], line_n: NDArray[np.int64]) -> NDArray[np.float64]:
    try:
        number_n = np.fromiter(map(float, field_n), np.float64, len(field_n))
    except ValueError:
        number_n = np.array([_float(field) for field in field_n])
    if (row := _first(~np.isfinite(number_n))) is not None:
        raise lines.refusal(f"{_shown(field_n[row])} is not a number; log10 of zero is written -99", int(line_n[row]))
    return number_n


def _float(field: bytes) -> float:
    try:
        return float(field)
    except ValueError:
        return math.nan


def _expect(lines: Lines, mark: bytes) -> None:
    """Skip empty lines up to the mark."""
    line, empty = lines.one(), 0
    while line == b"":
        line, empty = lines.one(), empty + 1
        if empty > MAX_EMPTY_LINES:
            raise lines.refusal(f"{MAX_EMPTY_LINES:,} empty lines stand before {mark.decode()!r}; the file is damaged")
    if line is None:
        raise UserError(f"{lines.path} ends early, before {mark.decode()}; copy the file again")
    if line != mark:
        raise lines.refusal(f"{_shown(line)} stands where {mark.decode()!r} must; the file is damaged")


def _first(wrong_n: NDArray[np.bool_]) -> int | None:
    """The first row that is wrong, if any."""
    return int(np.argmax(wrong_n)) if wrong_n.any() else None


def _shown(line: bytes) -> str:
    text = line.decode("utf-8", "backslashreplace")
    return repr(text if len(text) <= SHOWN else text[:SHOWN] + "...")
