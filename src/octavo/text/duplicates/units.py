"""The lines or the documents of a text in a file, with the place where each begins: read in parts, anywhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.io.limits import check_memory
from octavo.text.duplicates.config import Unit
from octavo.text.loading import Split

TEXT, STARTS = "text.bin", "starts.bin"
PART_BYTES = 1 << 23  # of text that one core of a cluster reads at a time
BATCH_BYTES = 1 << 18  # whose shingles stay in the processor's cache
LARGE_BYTES = 1 << 26  # of a line or document; from there on memory is asked for
SHINGLE_COPIES = 64  # bytes of memory for each byte of what is compared at once


def write_units(split: Split, unit: Unit, folder: Path) -> None:
    """Copy a text into the folder, with the starts of its lines or documents and its end."""
    folder.mkdir()
    before, offset = -1, 0
    with open(folder / TEXT, "wb") as text, open(folder / STARTS, "wb") as starts:
        for chunk in split.chunks():
            text.write(chunk.data)
            start_N = chunk.starts
            if unit == "line":
                newline_N = np.flatnonzero(np.frombuffer(chunk.data, np.uint8) == ord("\n"))
                start_N = np.union1d(start_N, newline_N + 1)
            start_N = start_N + offset
            offset += len(chunk.data)
            start_N = start_N[(start_N > before) & (start_N < split.size)]
            before = int(start_N[-1]) if len(start_N) else before
            start_N.astype("<i8").tofile(starts)
        np.array([offset], "<i8").tofile(starts)


@dataclass(frozen=True)
class UnitFile:
    """The folder that `write_units` has filled."""

    folder: str
    unit: Unit

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Where each unit begins, and the end of the text."""
        return np.asarray(np.memmap(Path(self.folder, STARTS), "<i8", "r"))

    @cached_property
    def text(self) -> NDArray[np.uint8]:
        """The bytes of the text."""
        return np.asarray(np.memmap(Path(self.folder, TEXT), np.uint8, "r"))

    @property
    def count(self) -> int:
        return len(self.starts) - 1

    def parts(self) -> list[str]:
        """Descriptions of parts that can be read by themselves."""
        return [json.dumps({**asdict(self), "start": a, "stop": b}) for a, b in self.cut(0, self.count, PART_BYTES)]

    def cut(self, start: int, stop: int, size: int) -> Iterator[tuple[int, int]]:
        """Ranges of units of about so many bytes, or of one that is larger."""
        start_N = self.starts
        while start < stop:
            end = int(np.searchsorted(start_N, start_N[start] + size, "right")) - 1
            end = min(max(end, start + 1), stop)
            yield start, end
            start = end

    def read(self, start: int, stop: int) -> list[bytes]:
        """Those units, lines without the bytes that end them."""
        start_N = self.starts[start : stop + 1].tolist()
        data = self.text[start_N[0] : start_N[-1]].tobytes()
        units = [data[a - start_N[0] : b - start_N[0]] for a, b in pairwise(start_N)]
        if self.unit == "line":
            return [unit.removesuffix(b"\n").removesuffix(b"\r") for unit in units]
        return units

    def sizes(self, unit_M: NDArray[Any]) -> NDArray[np.int64]:
        """The bytes of those units."""
        start_N = self.starts
        return np.asarray(start_N[unit_M + 1] - start_N[unit_M])


def open_part(part: str) -> tuple[UnitFile, int, int]:
    """The file and the range of units that a part's description names."""
    about = json.loads(part)
    start, stop = about.pop("start"), about.pop("stop")
    return UnitFile(**about), start, stop


def check_room(size: int, unit: Unit) -> None:
    """Refuse to compare what memory has no room for."""
    if size > LARGE_BYTES:
        check_memory(SHINGLE_COPIES * size, f"comparing a {unit} of {size:,} bytes", "leave out --near")
