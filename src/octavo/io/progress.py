"""Progress and time left on standard error, so that standard output holds results alone."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Advance = Callable[[float], None]
Listener = Callable[[float, float], None]  # gets how much is done, and of how much
VERBOSE: ContextVar[bool] = ContextVar("VERBOSE", default=False)  # progress also where there is no terminal
LINE_SECONDS = 5.0  # between two lines of progress where there is no terminal
LISTENER: ContextVar[Listener | None] = ContextVar("LISTENER", default=None)

MIN_LABEL, BESIDE_LABEL = 10, 42  # characters of a bar's label, and of what stands beside it on a narrow terminal
FEW_SECONDS = 3.0  # below, no number is given: the last of them pass while something is still being done


def clock(seconds: float) -> str:
    """75.2 as 1:15."""
    minutes, left = divmod(round(max(0.0, seconds)), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{left:02}" if minutes >= 60 else f"{minutes}:{left:02}"


def show_left(seconds: float) -> str:
    """How long work that is not done yet will take: never nothing."""
    return "a few seconds left" if seconds < FEW_SECONDS else f"{clock(seconds)} left"


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Report progress to a listener instead of the terminal."""
    before = LISTENER.set(listener)
    try:
        yield
    finally:
        LISTENER.reset(before)


@contextmanager
def progress(label: str, total: float, unit: str = "") -> Iterator[Advance]:
    """Show a bar for `total` units of work; call what it yields with the amount done since the last call."""
    if listener := LISTENER.get():
        yield _notify(listener, total)
        return
    if not sys.stderr.isatty():
        yield _notify(_lines_of(label), total) if VERBOSE.get() else lambda amount: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
    from rich.table import Column
    from rich.text import Text

    class Left(ProgressColumn):
        """The time left, once it is known."""

        def render(self, task: Task) -> Text:
            return Text("" if task.time_remaining is None else show_left(task.time_remaining))

    def whole() -> Column:
        """Of what would be unreadable on two lines: the bar gives way."""
        return Column(no_wrap=True)

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:3.0f} %"))
    bar = Progress(*columns, TimeElapsedColumn(whole()), Left(whole()), console=console, transient=True)
    description = f"{label} ({total:,.0f} {unit})" if unit else label
    width = max(MIN_LABEL, console.width - BESIDE_LABEL)
    with bar:
        task = bar.add_task(description if len(description) <= width else f"{description[: width - 1]}…", total=total)
        yield lambda amount: bar.advance(task, amount)


def _lines_of(label: str) -> Listener:
    """A listener that prints a line now and then, and at the end."""
    last = time.monotonic()

    def show(done: float, total: float) -> None:
        nonlocal last
        if done >= total or time.monotonic() - last > LINE_SECONDS:
            last = time.monotonic()
            print(f"{label}: {done / max(total, 1e-9):.0%}", file=sys.stderr)

    return show


def _notify(listener: Listener, total: float) -> Advance:
    done = 0.0

    def advance(amount: float) -> None:
        nonlocal done
        done += amount
        listener(done, total)

    return advance
