"""The frame of a page and the parts of its sections, over plain data: what is no markup is escaped.

A page works offline: it has no script, nothing from outside, and a content security policy that forbids both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from markupsafe import Markup

from octavo import __version__
from octavo.pages.markup import NOTHING, element, join, render, stylesheet

SHADES = 7  # of a table's cell, besides none
SAMPLE_LINES = 14  # shown of a sample on a card
MAX_CONFUSION_CLASSES = 30  # more do not fit beside each other; the most common confusions are listed instead
MOST_CONFUSED = 24  # pairs that are listed then


def render_page(title: str, lead: Any, sections: Iterable[Any]) -> str:
    """A whole page: its title, what stands below it, and its sections."""
    values = {"title": title, "lead": paragraph(lead) if type(lead) is str else lead, "body": join(*sections)}
    return str(render("page.html", **values, style=stylesheet(), version=__version__))


def section(title: str, *parts: Any) -> Markup:
    """A section with a heading; nothing where all its parts are empty."""
    inside = join(*parts)
    return element("section", "\n", element("h2", title), "\n", inside, "\n") if inside else NOTHING


def subsection(title: str, *parts: Any) -> Markup:
    """A part of a section with a heading of its own; nothing where all its parts are empty."""
    inside = join(*parts)
    return element("article", element("h3", title), "\n", inside) if inside else NOTHING


def paragraph(*words: Any, quiet: bool = False, kind: str = "") -> Markup:
    """A paragraph; a quiet one is for notes."""
    return element("p", *words, class_=kind or ("quiet" if quiet else None))


def paragraphs(texts: Iterable[str]) -> Markup:
    """A paragraph for each text."""
    return join(*map(paragraph, texts))


def bullets(items: Iterable[Any], kind: str = "") -> Markup:
    """A list; nothing without items."""
    drawn = [element("li", item) for item in items]
    return element("ul", *drawn, class_=kind or None) if drawn else NOTHING


def code(text: str) -> Markup:
    """Text in a fixed-width font."""
    return element("code", text)


def verbatim(text: str) -> Markup:
    """Text as it is; the first line feed after the tag is the parser's, not ours."""
    return element("pre", "\n", text)


def link(address: str, words: str) -> Markup:
    """A link to a file beside the page."""
    return element("a", words, href=address)


def details(summary: str, *parts: Any, is_open: bool = False) -> Markup:
    """Parts that unfold below their summary."""
    return element("details", element("summary", summary), "\n", join(*parts), open=is_open)


def side_by_side(*parts: Any, kind: str = "side") -> Markup:
    """Parts in columns, in one where the page is narrow."""
    return element("div", join(*(element("div", part) for part in parts if part)), class_=kind)


def score(value: str, unit: str) -> Markup:
    """The result in large digits, and what it counts."""
    return element("p", value, " ", element("small", unit) if unit else "", class_="number")


def facts(pairs: Iterable[tuple[str, Any]]) -> Markup:
    """Names and their values."""
    inside = [part for name, value in pairs for part in (element("dt", name), element("dd", value))]
    return element("dl", *inside) if inside else NOTHING


def reproduce(commands: Sequence[str], *more: Any) -> Markup:
    """The section with the commands that make the page's results again."""
    return section("Reproduce", verbatim("\n".join(commands)), *more)


def versions(made_with: Mapping[str, Any]) -> Markup:
    """What the result was made with: octavo, PyTorch, the machine."""
    return facts((name, str(value)) for name, value in made_with.items())


def sample_cards(samples: Iterable[tuple[str, str]], label: str, max_characters: int) -> Markup:
    """What several models wrote, on cards that scroll sideways."""
    cards = [
        subsection(name, verbatim("\n".join(sample[:max_characters].split("\n")[:SAMPLE_LINES])))
        for name, sample in samples
    ]
    return element("div", join(*cards), class_="cards", tabindex="0", role="region", aria_label=label)


def tabs(name: str, label: str, views: Sequence[tuple[str, Any]]) -> Markup:
    """Views of which one is seen, chosen by buttons that need no script."""
    parts = [
        part
        for place, (title, view) in enumerate(views)
        for part in (
            Markup('<input type="radio" name="{}" id="{}{}"{} />').format(
                name, name, place, Markup(" checked") if place == 0 else ""
            ),
            element("label", title, for_=f"{name}{place}"), element("article", view),
        )
    ]  # fmt: skip
    return element("div", join(*parts), class_="tab-views", role="radiogroup", aria_label=label)


# ---------------------------------------------------------------------- tables


class TableColumn(NamedTuple):
    """A column of a table."""

    title: str
    numeric: bool = False
    meaning: str = ""


class TableRow(NamedTuple):
    """A row of a table; with fewer cells than columns, its last cell takes the rest."""

    cells: Sequence[Any]
    kind: str = ""


@dataclass(frozen=True)
class Shaded:
    """A cell with a shade from 0 to 1; `meaning` is said when somebody points at it."""

    content: Any
    shade: float
    meaning: str

    @property
    def level(self) -> int:
        return min(SHADES, max(0, round(self.shade * SHADES)))


def table(
    columns: Sequence[str | TableColumn], rows: Iterable[Sequence[Any] | TableRow], numeric: Sequence[int] = (),
    best: int = -1, kind: str = "", label: str = "", row_headers: bool = False,
) -> Markup:  # fmt: skip
    """A table in a box that scrolls by itself; the columns `numeric` hold numbers, the row `best` is marked.

    With `row_headers`, the first cell of a row names it.
    """
    heads = [
        column if isinstance(column, TableColumn) else TableColumn(column, place in numeric)
        for place, column in enumerate(columns)
    ]
    every = [
        row if isinstance(row, TableRow) else TableRow(row, "best" if place == best else "")
        for place, row in enumerate(rows)
    ]
    values = {"columns": heads, "rows": every, "kind": kind, "label": label, "row_headers": row_headers}
    return render("table.html", **values)


def heat_table(columns: Sequence[str], rows: Iterable[tuple[str, Sequence[Shaded]]], caption: str) -> Markup:
    """Rows with a label each and cells shaded by a number."""
    every = [(label, *cells) for label, cells in rows]
    return captioned(table(columns, every, kind="heat", row_headers=True), caption, "wide")


def captioned(drawing: Any, caption: str, kind: str = "") -> Markup:
    """A figure and what it shows."""
    return element(
        "figure", "\n", drawing, "\n", element("figcaption", caption) if caption else "", class_=kind or None
    )


def confusion_matrix(classes: Sequence[str], counts: Sequence[Sequence[int]]) -> Markup:
    """How many examples of each true class (rows) were given each answer (columns); mistakes are shaded.

    Of many classes, only the most common confusions are listed.
    """
    C = range(len(classes))
    confused = sorted(((counts[i][j], i, j) for i in C for j in C if i != j), reverse=True)
    if len(classes) > MAX_CONFUSION_CLASSES:
        rows = [(classes[i], classes[j], f"{n:,}") for n, i, j in confused[:MOST_CONFUSED] if n]
        return table(("true class", "predicted class", "examples"), rows, numeric=(2,))
    most = max((n for n, _, _ in confused), default=0) or 1
    shaded = [
        (name, [
            Shaded(element("b", f"{n:,}") if i == j else f"{n:,}" if n else "", 0.0 if i == j else n / most,
                   f"{name} predicted as {classes[j]}: {n:,}")
            for j, n in enumerate(counts[i])
        ])
        for i, name in enumerate(classes)
    ]  # fmt: skip
    return heat_table(("true \\ predicted", *classes), shaded, "Rows: the true class. Columns: the predicted class.")


def notebook_view(*parts: Any) -> str:
    """The parts as what `_repr_html_` gives."""
    return str(render("notebook.html", body=join(*parts), style=stylesheet()))
