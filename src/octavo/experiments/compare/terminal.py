"""A comparison on the terminal: one table, live while it is made, and plain lines where there is no terminal."""

from __future__ import annotations

import io
import math
import re
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from octavo.experiments.compare.rows import Row
from octavo.experiments.compare.verdict import DOMINATED
from octavo.io.files import size
from octavo.training.metrics_log import clock

WIDE = 160  # letters of a line where there is no terminal: room for everything
BAR = 24
CHECK = re.compile(r"\s*\d+%  step ")  # what a training loop says at each check: the table shows it instead
ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
NOTES = f"*: the best. -: dominated, that is, {DOMINATED}."


class Column(NamedTuple):
    """A column of the table."""

    title: str
    cell: Callable[[Row], str]
    rank: int
    """Where there is not room for all, those of the lowest ranks are shown."""


def _bits(row: Row) -> str:
    if row.bits_per_byte is None:
        return "failed"
    return f"{row.bits_per_byte:.4f}" if math.isfinite(row.bits_per_byte) else "infinite"


def _spread(row: Row) -> str:
    return f"±{(row.high - row.low) / 2:.3f}" if row.low is not None and row.high is not None else ""


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.2f}" if seconds < 10 else f"{seconds:,.1f}"


def _short(value: float | None) -> str:
    """855553 as 856 k, and so on."""
    if value is None:
        return ""
    for unit in ("", "k", "M", "G", "T", "P"):
        if abs(value) < 999.5:
            return f"{value:.3g} {unit}".rstrip()
        value /= 1000
    return f"{value:.3g} E"


COLUMNS = (
    Column("model", lambda row: row.model, 0),
    Column("", lambda row: row.title, 9),
    Column("bits/byte", _bits, 0),
    Column("", lambda row: "*" if row.best else "-" if row.dominated else "", 0),
    Column("95 %", _spread, 4),
    Column("train s", lambda row: _seconds(row.seconds), 1),
    Column("params", lambda row: _short(row.parameters), 5),
    Column("FLOPs", lambda row: _short(row.flops), 7),
    Column("read/s", lambda row: _short(row.score_rate), 3),
    Column("write/s", lambda row: _short(row.write_rate), 6),
    Column("memory", lambda row: "" if row.memory is None else size(row.memory), 8),
    Column("size", lambda row: "" if row.bytes is None else size(row.bytes), 2),
)
BETWEEN = 3  # columns of letters between two columns of figures


def fitting(rows: Sequence[Row], width: int) -> list[Column]:
    """The columns that there is room for, the most important first, in the table's order."""
    widths = {one: max(map(len, (one.title, *(one.cell(row) for row in rows)))) + BETWEEN for one in COLUMNS}
    chosen: list[Column] = []
    for one in sorted(COLUMNS, key=lambda one: one.rank):
        if sum(widths[other] for other in (*chosen, one)) - BETWEEN <= width:
            chosen.append(one)
    return [one for one in COLUMNS if one in chosen]


def table(rows: Sequence[Row], width: int) -> Table:
    """The table, with as many columns as there is room for; dominated rows are grey."""
    columns = fitting(rows, width)
    drawn = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for i, column in enumerate(columns):
        drawn.add_column(column.title, justify="left" if i == 0 or not column.title else "right", no_wrap=True)
    for row in rows:
        style = "bold" if row.best else "dim" if row.dominated or row.error else ""
        drawn.add_row(*(Text(column.cell(row), style) for column in columns))
    return drawn


def table_text(rows: Sequence[Row], file: TextIO) -> str:
    """The table for a file: as wide as the terminal, if it is one."""
    console = Console(file=file, highlight=False, width=None if file.isatty() else WIDE)
    with console.capture() as drawn:
        console.print(table(rows, console.width))
    return "\n".join(line.rstrip() for line in drawn.get().splitlines()) + "\n"


class Stream(io.TextIOBase):
    """Takes what is written to standard error meanwhile: a loop's checks are a sign of life, other lines stay."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say, self.line, self.last = say, "", ""

    def write(self, text: str) -> int:
        *whole, self.line = re.split(r"[\r\n]", self.line + text)
        for plain in map(self.plain, whole):
            if CHECK.match(plain):
                self.last = plain
            elif plain:
                self.say(plain)
        return len(text)

    @staticmethod
    def plain(line: str) -> str:
        """Without what moves and colours."""
        return ESCAPE.sub("", line).rstrip()


class Watch:
    """Says on standard error what is done; this one in plain lines."""

    def __init__(self, file: TextIO | None = None) -> None:
        self.file: TextIO = file or sys.stderr
        self.stream: Any = Stream(self.note)

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is left open."""

    def began(self, name: str, place: int, count: int, seconds: float | None) -> None:
        """A rung is taken up, which trains for so many seconds."""
        self.now = name
        told = f", {seconds:.0f} s of training" if seconds else ""
        self.note(f"{place} of {count}: {name}{told}")

    def rows(self, rows: Sequence[Row]) -> None:
        """The rows that there are by now."""
        row = next((row for row in rows if row.model == self.now), None)
        if row is not None and row.error is None:
            self.note(f"  {_bits(row)} bits per byte")

    def note(self, text: str) -> None:
        """Something that stays."""
        print(text, file=self.file, flush=True)


class LiveWatch(Watch):
    """One table that grows, and below it what is done now and how long it will take."""

    def __init__(self, file: TextIO | None = None) -> None:
        super().__init__(file)
        self.console = Console(file=self.file, highlight=False)
        self.shown: Sequence[Row] = ()
        self.doing, self.place, self.count, self.since = "", 0, 1, time.monotonic()
        self.seconds: float | None = None
        self.live = Live(get_renderable=self._drawn, console=self.console, refresh_per_second=2, transient=True,
                         redirect_stdout=False, redirect_stderr=False)  # fmt: skip

    def __enter__(self) -> Watch:
        self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.live.stop()

    def began(self, name: str, place: int, count: int, seconds: float | None) -> None:
        self.doing, self.place, self.count = name, place, count
        self.seconds, self.since = seconds, time.monotonic()
        self.stream.last = ""

    def rows(self, rows: Sequence[Row]) -> None:
        self.shown = rows

    def note(self, text: str) -> None:
        if text.startswith(("proving", "writing")):
            self.doing, self.seconds, self.since = text, None, time.monotonic()
            return
        with suppress(ValueError):
            self.console.print(Text(text))

    def _drawn(self) -> RenderableType:
        spent = time.monotonic() - self.since
        if self.seconds:
            done = min(BAR, int(BAR * spent / self.seconds))
            bar = f" {'━' * done}{'─' * (BAR - done)} {clock(max(0.0, self.seconds - spent))} left"
        else:
            bar = f" {clock(spent)}"
        line = Text(f"{self.place} of {self.count}: {self.doing}{bar}", no_wrap=True, overflow="ellipsis")
        last = Text(self.stream.last, "dim", no_wrap=True, overflow="ellipsis")
        return Group(table(self.shown, self.console.width), Text(), line, last)


def watching() -> Watch:
    """A live table on a terminal, plain lines elsewhere."""
    return LiveWatch() if sys.stderr.isatty() else Watch()
