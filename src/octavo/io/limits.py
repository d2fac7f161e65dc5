"""How much is read of what was not made here: what a file may unpack to, how long a line may be, and what memory holds.

The limits are far above what texts have: they are there for files that were made to fill a disk or a memory, and for
those that are damaged. Who trusts a file that meets one raises it: `--max-bytes 40GB` (or OCTAVO_MAX_BYTES, which
processes that are started inherit) takes the place of all of them, and may lower them too.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from octavo.errors import UserError
from octavo.io import memory

VARIABLE, FLAG = "OCTAVO_MAX_BYTES", "--max-bytes"
SIZE = re.compile(r"(\d{1,18})(?:\.(\d{1,6}))? ?([kMGT]?)(i?)B?", re.IGNORECASE)
POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
MIN_FREE_SHARE, MIN_FREE_BYTES = 0.1, 1 << 30  # of the temporary folder's disk, which unpacking leaves: the smaller one


@dataclass(frozen=True)
class ReadLimits:
    """What one reading may take, in bytes."""

    unpacked: int = 1 << 36
    """Of all files of a text together, where they are unpacked or come through a pipe."""
    ratio: int | None = 250
    """What a compressed file unpacks to, as a multiple of its size; texts have 3 to 10, tables and logs up to 100."""
    unpacked_anyway: int = 1 << 28
    """What a compressed file may unpack to however small it is."""
    line: int = 1 << 28
    """Of one line of a format that is read line by line: JSON lines, tables, pairs."""

    def check_unpacked(self, size: int, file_size: int, path: Path) -> None:
        """Refuse a compressed file of `file_size` bytes (0: not known) that has unpacked to `size` so far."""
        if size > self.unpacked:
            raise self._refusal(f"{path} unpacks to more than {self.unpacked:,} bytes", self.unpacked)
        if self.ratio is not None and file_size and size > max(self.unpacked_anyway, self.ratio * file_size):
            raise self._refusal(
                f"{path} has {file_size:,} bytes and unpacks to more than {size:,}, over {self.ratio} times as many, "
                "as a file does that was made to fill a disk",
                size,
            )

    def check_total(self, size: int) -> None:
        """Refuse a text that has unpacked to so many bytes, or has left too little of the temporary folder's disk."""
        if size > self.unpacked:
            raise self._refusal(f"the text unpacks to more than {self.unpacked:,} bytes", self.unpacked)
        disk = shutil.disk_usage(place := tempfile.gettempdir())
        if disk.free < min(MIN_FREE_BYTES, int(disk.total * MIN_FREE_SHARE), size):  # of a full disk, half of the rest
            raise UserError(
                f"unpacking the text, {size:,} bytes so far, leaves only {disk.free:,} bytes of {place} free; "
                "set TMPDIR to a place with more room"
            )

    def check_whole(self, size: int, name: str) -> None:
        """Refuse a file or a pipe that is read whole and has so many bytes."""
        if size > self.unpacked:
            raise self._refusal(f"{name} has more than {self.unpacked:,} bytes", self.unpacked)

    def check_line(self, size: int, number: int, name: str | Path) -> None:
        """Refuse a line of so many bytes, if not more."""
        if size > self.line:
            raise self._refusal(f"line {number:,} of {name} has more than {self.line:,} bytes", self.line)

    def _refusal(self, problem: str, exceeded: int) -> UserError:
        larger = f"{max(1, round(10 * exceeded / 1e9))}GB"
        return UserError(f"{problem}; if you trust it, add {FLAG} with a larger size, such as {FLAG} {larger}")


def read_limits() -> ReadLimits:
    """The limits in force."""
    given = os.environ.get(VARIABLE, "")
    if not given:
        return ReadLimits()
    most = parse_size(given)
    return ReadLimits(unpacked=most, ratio=None, unpacked_anyway=most, line=most)


@contextmanager
def with_max_bytes(size: str | None) -> Iterator[None]:
    """Within it, also in processes that it starts, this size takes the place of the limits; None: as they are."""
    if size is None:
        yield
        return
    parse_size(size)
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = size
    try:
        yield
    finally:
        os.environ.pop(VARIABLE)
        if before is not None:
            os.environ[VARIABLE] = before


def parse_size(words: str) -> int:
    """A number of bytes as people write it: 40GB, 1.5 MiB, 1000000."""
    match = SIZE.fullmatch(words.strip())
    if match is None or not (size := _size(match)):
        raise UserError(f"a size is a number of bytes such as 500MB, 40GB or 1000000: got {words[:40]!r}")
    return size


def _size(match: re.Match[str]) -> int:
    whole, fraction, unit, binary = match.groups()
    factor: int = (1024 if binary else 1000) ** POWERS[unit.lower()]
    return int(whole) * factor + (int(fraction) * factor // 10 ** len(fraction) if fraction else 0)


def check_memory(needed: int, what: str, remedy: str = "give a smaller file") -> None:
    """Refuse what would take more memory than there is, before it is taken."""
    if needed > (free := memory.available()):
        raise UserError(f"{what} takes about {needed:,} bytes of memory, and {free:,} are free; {remedy}")


def lines_in(blocks: Iterable[bytes], name: str | Path) -> Iterator[bytes]:
    """The lines of a text that comes in blocks, without their line feeds, as `wc -l` counts them; one that is too long
    is refused before all of it is in memory.
    """
    limits, number = read_limits(), 1
    rest: list[bytes] = []
    size = 0
    for block in blocks:
        first, *more = block.split(b"\n")
        rest.append(first)
        size += len(first)
        limits.check_line(size, number, name)
        if more:
            yield b"".join(rest)
            yield from more[:-1]
            number += len(more)
            rest, size = [more[-1]], len(more[-1])
    if size:
        yield b"".join(rest)
