"""What a verb prints: tables, or JSON, on standard output; notes on standard error."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from octavo.config import plain_json
from octavo.io.files import size as size
from octavo.io.files import whole_file


class Table(NamedTuple):
    """A table to print; `left` columns align left."""

    titles: Sequence[str]
    rows: Iterable[Sequence[str]]
    left: Sequence[int] = (0,)


class Output:
    """What a verb found: a value for --json, or a function that gives it; texts, tables and what prints more.

    Where a part of an experiment, or a proof, has failed, the command does not end as if all were well; a function
    says so after everything is printed.
    """

    def __init__(
        self, data: Any, *parts: str | Table | Callable[[], object], failed: bool | Callable[[], bool] = False
    ) -> None:
        self.data, self.parts, self._failed = data, parts, failed

    @property
    def failed(self) -> bool:
        """Whether the command exits with 1."""
        return self._failed() if callable(self._failed) else self._failed

    def show(self, as_json: bool) -> None:
        """Print it."""
        if as_json:
            print_json(self.data() if callable(self.data) else self.data)
            return
        for part in self.parts:
            if isinstance(part, Table):
                print_table(*part)
            else:
                print(part) if isinstance(part, str) else part()


def print_wrapped(text: str, width: int = 80, indent: str = "") -> None:
    """A paragraph of at most so many characters a line, and no wider than the terminal."""
    width = min(width, shutil.get_terminal_size((width, 24)).columns)
    print(textwrap.fill(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False))


def print_json(value: Any) -> None:
    """One JSON value; dataclasses are objects, and numbers that are not finite are null."""
    unicode = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    print(json.dumps(plain_json(value), ensure_ascii=not unicode, allow_nan=False))


def print_table(titles: Sequence[str], rows: Iterable[Sequence[str]], left: Sequence[int] = (0,)) -> None:
    """A table that fits the terminal, and is whole where output is redirected; `left` columns align left."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from octavo.io.terminal import UNLIMITED, fit_table, width_of

    fitted = fit_table(titles, [list(row) for row in rows], left, width_of(sys.stdout))
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for i, title in enumerate(fitted.titles):
        table.add_column(title, justify="left" if i in fitted.left else "right", no_wrap=True)
    for row in fitted.rows:
        table.add_row(*(Text(cell) for cell in row))
    console = Console(width=UNLIMITED, highlight=False, soft_wrap=False)
    with console.capture() as drawn:  # rich has its own ideas of what to do when a pipe breaks
        console.print(table)
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in drawn.get().splitlines()))
    if fitted.dropped:
        note(f"no room for {', '.join(fitted.dropped)}; a wider terminal, a pipe or --json shows all")


def note(*lines: str) -> None:
    """Say something that is not a result."""
    print(*lines, sep="\n", end="\n" if lines else "", file=sys.stderr)


def write_page(path: str, page: str) -> None:
    """Write a page, and say where it is."""
    with whole_file(path) as file:
        file.write(page.encode("utf-8", "backslashreplace"))
    note(f"the page is {path}")
