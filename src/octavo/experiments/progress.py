"""An experiment while it runs: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import io
import re
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from octavo.experiments.cell import Cell
from octavo.experiments.table import terminal_table
from octavo.io.progress import FEW_SECONDS, clock

BAR_CHARACTERS = 24
SIGN_OF_LIFE = re.compile(r"\s*\d+%  ")  # what a training loop prints at each evaluation, and long work now and then
ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class Stream(io.TextIOBase):
    """Standard error of cells: how far a cell has come is a sign of life, other lines are shown."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self.note, self.line, self.last = note, "", ""

    def write(self, text: str) -> int:
        *whole, self.line = re.split(r"[\r\n]", self.line + text)
        for plain in map(without_escapes, whole):
            if SIGN_OF_LIFE.match(plain):
                self.last = plain
            elif plain:
                self.note(plain)
        return len(text)


def without_escapes(line: str) -> str:
    """A line without what moves the cursor and colours."""
    return ESCAPE.sub("", line).rstrip()


class Progress:
    """Reports on standard error, in plain lines."""

    def __init__(self, file: TextIO | None = None) -> None:
        self.file: TextIO = file or sys.stderr
        self.stream: Any = Stream(self.note)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is left open."""

    def start_cell(self, cell: Cell, number: int, count: int, left: float | None, rest: float = 0.0) -> None:
        """A cell is begun, the so-and-so-many-th; `left` is the time that everything takes from now on, of which `rest`
        comes after this cell.
        """
        self.note(f"{number} of {count}: {cell.title or cell.key}{time_left(left)}")

    def show_rows(self, rows: Sequence[Any], newest: str = "") -> None:
        """The rows so far, and the result that has been added."""
        if newest:
            self.note(f"  {newest}")

    def note(self, text: str) -> None:
        """Something that stays."""
        print(text, file=self.file, flush=True)

    def stage(self, text: str) -> None:
        """What is done after the cells."""
        self.note(text)


class LiveProgress(Progress):
    """One table that grows, and below it what is being done and how long it will take."""

    def __init__(self, file: TextIO | None = None) -> None:
        super().__init__(file)
        self.console = Console(file=self.file, highlight=False)
        self.rows: Sequence[Any] = ()
        self.line, self.since = "", time.monotonic()
        self.cell_seconds: float | None = None
        self.left: float | None = None
        self.rest = 0.0
        self.live = Live(get_renderable=self._drawn, console=self.console, refresh_per_second=2, transient=True,
                         redirect_stdout=False, redirect_stderr=False)  # fmt: skip

    def __enter__(self) -> Progress:
        self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.live.stop()

    def start_cell(self, cell: Cell, number: int, count: int, left: float | None, rest: float = 0.0) -> None:
        self.line, self.cell_seconds = f"{number} of {count}: {cell.key}", cell.budget_seconds
        self.left, self.rest = left, rest
        self.since, self.stream.last = time.monotonic(), ""
        self.live.refresh()  # a short cell might be over before the next regular one

    def show_rows(self, rows: Sequence[Any], newest: str = "") -> None:
        self.rows = rows

    def note(self, text: str) -> None:
        with suppress(ValueError):
            self.console.print(Text(text))

    def stage(self, text: str) -> None:
        self.line, self.cell_seconds, self.left, self.since = text, None, None, time.monotonic()

    def _drawn(self) -> RenderableType:
        spent = time.monotonic() - self.since
        if self.cell_seconds:
            done = min(BAR_CHARACTERS, int(BAR_CHARACTERS * spent / self.cell_seconds))
            training = self.cell_seconds - spent
            bar = f" {'━' * done}{'─' * (BAR_CHARACTERS - done)} {clock(training) if training > 0 else 'measuring'}"
        else:
            bar = f" {clock(spent)}"
        left = time_left(max(self.rest, self.left - spent) if self.left is not None else None)
        line = Text(f"{self.line}{bar}{left}", no_wrap=True, overflow="ellipsis")
        last = Text(self.stream.last, "dim", no_wrap=True, overflow="ellipsis")
        table = terminal_table(self.rows, self.console.width)
        return Group(table, Text(), line, last) if self.rows else Group(line, last)


def time_left(seconds: float | None) -> str:
    """The rest of a progress line."""
    if seconds is None:
        return ""
    if seconds < FEW_SECONDS:
        return "; a few seconds left"
    return f"; about {seconds / 60:.0f} min left" if seconds >= 90 else f"; about {seconds:.0f} s left"


def default_progress() -> Progress:
    """A live table on a terminal, plain lines elsewhere."""
    return LiveProgress() if sys.stderr.isatty() else Progress()
