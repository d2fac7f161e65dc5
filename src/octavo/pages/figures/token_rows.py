"""Numbers over the tokens of a text: from 0 to 1 as rows of cells, the larger the darker; with a sign as bars."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from markupsafe import Markup

from octavo.pages.figures.svg import WIDTH, Drawing, figure, line, rect, shape, shorten, words
from octavo.pages.markup import element

LABEL = 92  # units for the rows' labels
TOKENS_PER_LINE = 24
ROW, BAR_ROW, LINE_GAP = 13, 20, 12  # units: a row of cells, a row of bars, between lines of the figure
LABEL_SIZE, TOKEN_SIZE = 9, 9  # units: the fonts
TOKEN_CHARACTER = 5.8  # units, of the fixed-width font
MAX_CHARACTERS = 9  # of a token
MIN_WEIGHT = 0.005  # what is below is not drawn
MAX_CELL = 16.0  # units

DrawCell = Callable[[float, float, float, float, float, str], Markup]  # x, y, width, height, value, its meaning


class Strip(NamedTuple):
    """One row: a number for each token, and what is said of it when somebody points at it."""

    label: str
    values: Sequence[float]
    meanings: Sequence[str]


def strips(tokens: Sequence[str], rows: Sequence[Strip], caption: str) -> Markup:
    """Rows of cells, from 0 to 1, under the tokens; a long text goes on below."""
    return _rows(tokens, rows, caption, ROW, _cell, _scale())


def bar_strips(tokens: Sequence[str], rows: Sequence[Strip], caption: str) -> Markup:
    """Rows of bars, from -1 below the line to 1 above it."""
    return _rows(tokens, rows, caption, BAR_ROW, _bar, ([], 2.0))


def _rows(
    tokens: Sequence[str], rows: Sequence[Strip], caption: str, height: float, draw: DrawCell,
    head: tuple[list[Markup], float],
) -> Markup:  # fmt: skip
    if not tokens or not rows:
        return Markup()
    cell = (WIDTH - LABEL) / TOKENS_PER_LINE
    shapes, y = head
    for start in range(0, len(tokens), TOKENS_PER_LINE):
        here = slice(start, start + TOKENS_PER_LINE)
        header, y = _header(tokens[here], y, LABEL, cell)
        shapes += header
        for row in rows:
            shapes.append(words(LABEL - 5, y + height / 2 + 3.5, row.label, "end", fill="quiet"))
            cells = zip(row.values[here], row.meanings[here], strict=True)
            drawn = [
                draw(LABEL + i * cell, y, cell, height - 1, value, meaning) for i, (value, meaning) in enumerate(cells)
            ]
            shapes.append(_shaded(drawn))
            y += height
        y += LINE_GAP
    means = "; ".join(f"{row.label}: {sum(row.values) / len(row.values):.2f} on average" for row in rows)
    return _figure(y, shapes, caption, means)


def attention_rows(tokens: Sequence[str], weights: Sequence[Sequence[float]], caption: str) -> Markup:
    """What each token attends to: a row for each that attends to any, and in it a cell for each token from the first
    on."""
    seen = max(map(len, weights), default=0)
    if not seen:
        return Markup()
    attending = [(token, row) for token, row in zip(tokens, weights, strict=True) if row]
    left = 12 + TOKEN_CHARACTER * min(MAX_CHARACTERS, max(map(len, tokens)))
    cell = min(MAX_CELL, (WIDTH - left) / len(tokens))
    shapes, y = _scale()
    header, y = _header(tokens[:seen], y, left, cell)
    shapes += header
    height = max(cell, 10.0)
    for token, row in attending:
        shapes.append(_token(left - 5, y + height / 2 + 4, token, "end"))
        shapes.append(_shaded([
            _cell(left + i * cell, y, cell, height - 1, weight, f"{token} attends to {tokens[i]}: {weight:.1%}")
            for i, weight in enumerate(row) if weight >= MIN_WEIGHT
        ]))  # fmt: skip
        y += height
    rows = (f"{token}: mostly {tokens[max(range(len(row)), key=row.__getitem__)]}" for token, row in attending)
    return _figure(y + 4, shapes, caption, "; ".join(rows))


def _cell(x: float, y: float, width: float, height: float, value: float, meaning: str) -> Markup:
    opacity = round(min(1.0, max(0.0, value)), 2)
    return rect(x, y, width - 1, height, element("title", meaning), fill_opacity=opacity)


def _shaded(cells: Sequence[Markup]) -> Markup:
    """Cells in the main colour, which is said once for all of them."""
    return shape("g", *cells, fill="main", stroke="line", stroke_width=0.5)


def _bar(x: float, y: float, width: float, height: float, value: float, meaning: str) -> Markup:
    """Up or down from the middle; the whole cell can be pointed at."""
    middle, length = y + height / 2, height / 2 * min(1.0, abs(value))
    bar = rect(
        x + 1, middle - length if value > 0 else middle, width - 2, length, fill="main" if value > 0 else "negative"
    )
    ground = rect(x, y, width, height, fill="panel")
    parts = (element("title", meaning), ground, bar, line(x, middle, x + width, middle))
    return shape("g", *parts, stroke="none")


def _header(tokens: Sequence[str], y: float, left: float, cell: float) -> tuple[list[Markup], float]:
    """The tokens over their columns, upright where they are longer than a character; and where the rows begin."""
    longest = min(MAX_CHARACTERS, max(map(len, tokens)))
    if longest == 1:
        return [_token(left + (i + 0.45) * cell, y + 10, token, "middle") for i, token in enumerate(tokens)], y + 14
    height = 6 + TOKEN_CHARACTER * longest
    return [
        _token(0, 0, token, transform=f"translate({left + (i + 0.5) * cell + 3:.1f} {y + height - 4:.1f}) rotate(-90)")
        for i, token in enumerate(tokens)
    ], y + height


def _token(x: float, y: float, token: str, anchor: str = "start", transform: str | None = None) -> Markup:
    font = {"font_family": "ui-monospace, monospace", "font_size": TOKEN_SIZE}
    return words(x, y, shorten(token, MAX_CHARACTERS), anchor, transform=transform, **font)


def _scale() -> tuple[list[Markup], float]:
    """What the shades mean; and where the figure goes on below."""
    cells = [_cell(WIDTH - 118 + 18 * i, 0, 18, 12, i / 5, f"{i / 5:.1f}") for i in range(6)]
    ends = [words(WIDTH - 122, 10, "0", "end", fill="quiet"), words(WIDTH - 7, 10, "1", fill="quiet")]
    return [_shaded(cells), *ends], 20.0


def _figure(height: float, shapes: Sequence[Markup], caption: str, label: str) -> Markup:
    """`label` gives the main of it to those who cannot see the figure."""
    return figure(Drawing(height, (shape("g", *shapes, font_size=LABEL_SIZE),), label), caption, "strips")
