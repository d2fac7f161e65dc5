"""A table's columns, defined once beside the fields of its rows: terminal, page, notebook, CSV and JSON read them.

A row is a frozen dataclass. Every field is in its CSV and JSON; one that is annotated with a `Column` is also shown:

    bits_per_byte: Annotated[float | None, Column("bits/byte", show_bits)] = None
"""

from __future__ import annotations

import csv
import dataclasses
import io
import math
import typing
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TextIO

from markupsafe import Markup
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from octavo.io.terminal import GAP, MIN_CELL, UNLIMITED, shorten, width_of
from octavo.pages import sections

Output = Literal["terminal", "page"]
ADAPTIVE_MARK = "†"  # beside the name or the number of an adaptive row, where there is no room for the word
ADAPTIVE = (
    "a model that goes on learning from the held-out text while it scores it, and pays for every byte before it learns "
    "from it"
)
NAME_SHARE = 3  # a name or a title takes at most one part in so many of a terminal's width


@dataclass(frozen=True)
class Column:
    """How one field of the rows is shown."""

    title: str
    format: Callable[[Any], str] = str  # from a value, or, with `of_row`, from the whole row, to a text
    help: str = ""
    align: Literal["left", "right"] = "right"
    rank: int = 0  # where there is no room for all, those of the lowest ranks are shown
    outputs: tuple[Output, ...] = ("terminal", "page")
    of_row: bool = False
    if_varies: bool = False  # shown only where rows that have a value have different ones
    key: str = ""  # the name of the field

    def text(self, row: Any) -> str:
        """What stands in the cell of a row; nothing where the value is None."""
        value = row if self.of_row else getattr(row, self.key)
        return "" if value is None else self.format(value)

    def is_needed(self, rows: Sequence[Any]) -> bool:
        """Whether it tells something about these rows."""
        texts = {self.text(row) for row in rows}
        return len(texts - {""}) > 1 if self.if_varies else texts != {""}


def marked_name(name: str, adaptive: bool) -> str:
    """A model's name, with the mark of one that goes on learning while it is scored."""
    return f"{name} {ADAPTIVE_MARK}" if adaptive else name


def adaptive_note(rows: Iterable[Any]) -> str:
    """What the mark means, where a row has it."""
    return f"{ADAPTIVE_MARK}: adaptive, {ADAPTIVE}." if any(row.adaptive for row in rows) else ""


def columns_of(row: type, output: Output, rows: Sequence[Any] = ()) -> tuple[Column, ...]:
    """The columns of a kind of row that an output shows; given `rows`, only those that are needed for them."""
    found = [
        dataclasses.replace(one, key=name)
        for name, hint in typing.get_type_hints(row, include_extras=True).items()
        for one in getattr(hint, "__metadata__", ()) if isinstance(one, Column) and output in one.outputs
    ]  # fmt: skip
    return tuple(one for one in found if not rows or one.is_needed(rows))


def keys_of(row: type) -> tuple[str, ...]:
    """The names of all fields, as in CSV and JSON."""
    return tuple(field.name for field in dataclasses.fields(row))


def to_csv(row: type, rows: Sequence[Any]) -> str:
    """A line for each row, below a line of names."""
    return csv_text(keys_of(row), [list(dataclasses.asdict(one).values()) for one in rows])


def csv_text(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Rows as the text of a CSV file, below a line of names."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([names, *rows])
    return text.getvalue()


def fitting_columns(rows: Sequence[Any], width: int) -> list[Column]:
    """The columns that there is room for on a terminal, the most important first, in the table's order."""
    columns = columns_of(type(rows[0]), "terminal", rows)
    widths = {
        one.key: max(map(len, (one.title, *(cell_text(one, row, width) for row in rows)))) + GAP for one in columns
    }
    chosen: list[Column] = []
    for one in sorted(columns, key=lambda one: one.rank):
        if sum(widths[other.key] for other in (*chosen, one)) - GAP <= width:
            chosen.append(one)
    return [one for one in columns if one in chosen]


def cell_text(column: Column, row: Any, width: int) -> str:
    """The text of a cell on a terminal of that width."""
    text = column.text(row)
    return shorten(text, max(MIN_CELL, width // NAME_SHARE)) if column.align == "left" else text


def terminal_table(rows: Sequence[Any], width: int) -> Table:
    """The table for a terminal; a row's `style`, where it has one, is rich's."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    columns = fitting_columns(rows, width) if rows else []
    for one in columns:
        table.add_column(one.title, justify=one.align, no_wrap=True)
    for row in rows:
        table.add_row(*(Text(cell_text(one, row, width), getattr(row, "style", "")) for one in columns))
    return table


def table_text(rows: Sequence[Any], file: TextIO) -> str:
    """The table for a file: as wide as the terminal, if it is one."""
    console = Console(file=file, highlight=False, width=UNLIMITED)
    with console.capture() as drawn:
        console.print(terminal_table(rows, width_of(file)))
    return "\n".join(line.rstrip() for line in drawn.get().splitlines()) + "\n"


def page_columns(row: type, rows: Sequence[Any] = ()) -> list[sections.TableColumn]:
    """The columns of a kind of row on a page."""
    return [sections.TableColumn(one.title, one.align == "right", one.help) for one in columns_of(row, "page", rows)]


def cells_of(row: Any, rows: Sequence[Any] = ()) -> list[str]:
    """The texts of a row on a page."""
    return [one.text(row) for one in columns_of(type(row), "page", rows)]


def page_table(rows: Sequence[Any]) -> Markup:
    """The table on a page, with the columns that these rows need."""
    return (
        sections.table(page_columns(type(rows[0]), rows), [cells_of(row, rows) for row in rows]) if rows else Markup()
    )


def show_bits(value: float) -> str:
    """Bits per byte: four places, infinity as a word."""
    return f"{value:.4f}" if math.isfinite(value) else "infinite"


def show_seconds(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:,.1f}"


def show_amount(value: float) -> str:
    """855553 as 856 k, and so on."""
    for unit in ("", "k", "M", "G", "T", "P", "E", "Z"):
        if abs(value) < 999.5:
            return f"{value:.3g} {unit}".rstrip()
        value /= 1000
    return f"{value:.3g} Y"
