"""How much room a terminal has, and texts and tables cut to it; what is piped or redirected is never cut."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import NamedTuple, TextIO

from rich.cells import cell_len, set_cell_size

GAP = 3  # characters between two columns
MIN_CELL = 12  # characters that a text keeps at least
UNLIMITED = 10_000  # characters of a line where there is no terminal
CUT = "…"


class FittedTable(NamedTuple):
    """A table that fits, and the titles of columns for which there was no room."""

    titles: list[str]
    rows: list[list[str]]
    left: list[int]
    dropped: list[str]


def width_of(file: TextIO) -> int:
    """Characters of a line."""
    return shutil.get_terminal_size().columns if file.isatty() else UNLIMITED


def shorten(text: str, width: int) -> str:
    """Each line of a text within a width: a name is cut in the middle, a sentence at its end."""
    return "\n".join(_shorten_line(line, width) for line in text.split("\n"))


def _shorten_line(line: str, width: int) -> str:
    if cell_len(line) <= width:
        return line
    if " " in line.strip():
        return set_cell_size(line, width - 1).rstrip() + CUT
    head = max(2, (width - 1) // 3)  # the end of a path says more than its beginning
    tail = line
    while cell_len(tail) > width - 1 - head:
        tail = tail[1:]
    return set_cell_size(line, head).rstrip() + CUT + tail


def fit_table(titles: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int], width: int) -> FittedTable:
    """A table within a width: columns of text, which align left, are narrowed, the widest first; then columns are left
    out, the last first.
    """
    shown, dropped = list(range(len(titles))), list[str]()
    natural = [max([cell_len(line) for text in (title, *(row[i] for row in rows)) for line in text.split("\n")])
               for i, title in enumerate(titles)]  # fmt: skip
    while True:
        widths = {i: natural[i] for i in shown}
        excess = sum(widths.values()) + GAP * (len(shown) - 1) - width
        while excess > 0:
            text_columns = [i for i in shown if i in left and widths[i] > max(MIN_CELL, cell_len(titles[i]))]
            if not text_columns:
                break
            widths[max(text_columns, key=lambda i: widths[i])] -= 1
            excess -= 1
        if excess <= 0 or len(shown) == 1:
            break
        dropped.insert(0, titles[shown.pop()])
    cut = [[shorten(row[i], widths[i]) for i in shown] for row in rows]
    places = [place for place, i in enumerate(shown) if i in left]
    return FittedTable([titles[i] for i in shown], cut, places, [title for title in dropped if title])
