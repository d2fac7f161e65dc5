"""A table's columns, defined once beside the fields of its rows: terminal, page, notebook, CSV and JSON read them.

A row is a frozen dataclass. Every field is in its CSV and JSON; one made by `column` is also shown, with its title.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass
from typing import Any, Literal, TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from octavo.io.files import size
from octavo.scoring.bits_per_byte import finite

Output = Literal["terminal", "page"]
PLAIN_WIDTH = 160  # characters of a line where there is no terminal
GAP_CHARACTERS = 3  # between two columns


@dataclass(frozen=True)
class Column:
    """How one field of the rows is shown."""

    key: str
    title: str
    format: Callable[[Any], str]
    """From a value, or, with `of_row`, from the whole row, to a text."""
    help: str = ""
    align: Literal["left", "right"] = "right"
    rank: int = 0
    """Where there is no room for all, those of the lowest ranks are shown."""
    outputs: tuple[Output, ...] = ("terminal", "page")
    of_row: bool = False
    if_varies: bool = False
    """Shown only where the rows have different values."""

    def text(self, row: Any) -> str:
        """What stands in the cell of a row; nothing where the value is None."""
        value = row if self.of_row else getattr(row, self.key)
        return "" if value is None else self.format(value)


def column(title: str, format: Callable[[Any], str] = str, *, default: Any = MISSING, **how: Any) -> Any:
    """A field of a row that is shown; `how` are the other fields of `Column`."""
    return dataclasses.field(default=default, metadata={"column": Column("", title, format, **how)})


def columns_of(row: type, output: Output | None = None, rows: Sequence[Any] = ()) -> tuple[Column, ...]:
    """The shown columns of a kind of row; given `rows`, without those that are empty or, if_varies, all the same."""
    found = [
        dataclasses.replace(field.metadata["column"], key=field.name)
        for field in dataclasses.fields(row) if "column" in field.metadata
    ]  # fmt: skip
    if output is not None:
        found = [one for one in found if output in one.outputs]
    if rows:
        found = [one for one in found if len({one.text(r) for r in rows} - ({""} if not one.if_varies else set()))
                 > int(one.if_varies)]  # fmt: skip
    return tuple(found)


def keys_of(row: type) -> tuple[str, ...]:
    """The names of all fields, as in CSV and JSON."""
    return tuple(field.name for field in dataclasses.fields(row))


def row_to_json(row: Any) -> dict[str, Any]:
    """Plain JSON values; what is not finite becomes null."""
    values = dataclasses.asdict(row)
    return {key: finite(value) if isinstance(value, float) else value for key, value in values.items()}


def to_csv(row: type, rows: Sequence[Any]) -> str:
    """A line for each row, below a line of names."""
    text = io.StringIO()
    writer = csv.DictWriter(text, keys_of(row), lineterminator="\n")
    writer.writeheader()
    writer.writerows(dataclasses.asdict(one) for one in rows)
    return text.getvalue()


def fitting_columns(rows: Sequence[Any], width: int) -> list[Column]:
    """The columns that there is room for on a terminal, the most important first, in the table's order."""
    columns = columns_of(type(rows[0]), "terminal", rows)
    widths = {one.key: max(map(len, (one.title, *(one.text(row) for row in rows)))) + GAP_CHARACTERS for one in columns}
    chosen: list[Column] = []
    for one in sorted(columns, key=lambda one: one.rank):
        if sum(widths[other.key] for other in (*chosen, one)) - GAP_CHARACTERS <= width:
            chosen.append(one)
    return [one for one in columns if one in chosen]


def terminal_table(rows: Sequence[Any], width: int) -> Table:
    """The table for a terminal; a row's `style`, where it has one, is rich's."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    columns = fitting_columns(rows, width) if rows else []
    for one in columns:
        table.add_column(one.title, justify=one.align, no_wrap=True)
    for row in rows:
        table.add_row(*(Text(one.text(row), getattr(row, "style", "")) for one in columns))
    return table


def table_text(rows: Sequence[Any], file: TextIO) -> str:
    """The table for a file: as wide as the terminal, if it is one."""
    console = Console(file=file, highlight=False, width=None if file.isatty() else PLAIN_WIDTH)
    with console.capture() as drawn:
        console.print(terminal_table(rows, console.width))
    return "\n".join(line.rstrip() for line in drawn.get().splitlines()) + "\n"


def bits(value: float) -> str:
    """Bits per byte: four places, infinity as a word."""
    return f"{value:.4f}" if math.isfinite(value) else "infinite"


def seconds(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:,.1f}"


def amount(value: float) -> str:
    """855553 as 856 k, and so on."""
    for unit in ("", "k", "M", "G", "T", "P"):
        if abs(value) < 999.5:
            return f"{value:.3g} {unit}".rstrip()
        value /= 1000
    return f"{value:.3g} E"


byte_size = size
