"""Numbers over the tokens of a text: from 0 to 1 as rows of cells, the stronger the larger; with a sign as bars."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from octavo.pages.frame import shown

WIDTH, LABEL = 360, 92  # units; the room for the rows' labels
ACROSS = 24  # tokens in one line of the figure
HIGH, BARS_HIGH, BETWEEN = 13, 20, 12  # the height of a row, of a row of bars, and between lines of the figure
LETTER = 5.6  # the width of a token's letter
LONGEST = 9  # letters of a token that are shown
FAINTEST = 0.005  # what is below is not drawn

Draw = Callable[[float, float, float, float, float, str], str]  # x, y, width, height, value, what to say of it


class Strip(NamedTuple):
    """One row: a number for each token, and what to say of it when somebody points at it."""

    label: str
    values: Sequence[float]
    told: Sequence[str]


def strips(tokens: Sequence[str], rows: Sequence[Strip], caption: str) -> str:
    """Rows of cells, from 0 to 1, under the tokens; a long text goes on below."""
    return _rows(tokens, rows, caption, HIGH, _cell, _scale())


def bar_strips(tokens: Sequence[str], rows: Sequence[Strip], caption: str) -> str:
    """Rows of bars, from -1 below the line to 1 above it."""
    return _rows(tokens, rows, caption, BARS_HIGH, _bar, ([], 2.0))


def _rows(
    tokens: Sequence[str], rows: Sequence[Strip], caption: str, high: float, draw: Draw, head: tuple[list[str], float]
) -> str:
    if not tokens or not rows:
        return ""
    cell = (WIDTH - LABEL) / ACROSS
    drawn, y = head
    for start in range(0, len(tokens), ACROSS):
        here = slice(start, start + ACROSS)
        header, y = _header(tokens[here], y, LABEL, cell)
        drawn += header
        for row in rows:
            drawn.append(
                f'<text x="{LABEL - 5}" y="{y + high / 2 + 3.5:.1f}" class="faint end">{shown(row.label)}</text>'
            )
            drawn += [
                draw(LABEL + i * cell, y, cell, high - 1, value, told)
                for i, (value, told) in enumerate(zip(row.values[here], row.told[here], strict=True))
            ]
            y += high
        y += BETWEEN
    means = "; ".join(f"{row.label}: {sum(row.values) / len(row.values):.2f} on average" for row in rows)
    return _figure(y, drawn, caption, means)


def triangle(tokens: Sequence[str], weights: Sequence[Sequence[float]], caption: str) -> str:
    """What each token looks at: a row for each that looks at any, and in it a cell for each token seen, from the first
    on."""
    seen = max(map(len, weights), default=0)
    if not seen:
        return ""
    looking = [(token, row) for token, row in zip(tokens, weights, strict=True) if row]
    left = 12 + LETTER * 1.15 * min(LONGEST, max(map(len, tokens)))
    cell = min(16.0, (WIDTH - left) / len(tokens))
    drawn, y = _scale()
    header, y = _header(tokens[:seen], y, left, cell)
    drawn += header
    high = max(cell, 10.0)
    for token, row in looking:
        drawn.append(
            f'<text x="{left - 5:.1f}" y="{y + high / 2 + 4:.1f}" class="end token">{shown(_short(token))}</text>'
        )
        for i, weight in enumerate(row):
            if weight >= FAINTEST:
                told = f"{token} looks at {tokens[i]}: {weight:.1%}"
                drawn.append(_cell(left + i * cell, y, cell, high - 1, weight, told))
        y += high
    rows = (f"{token}: mostly {tokens[max(range(len(row)), key=row.__getitem__)]}" for token, row in looking)
    return _figure(y + 4, drawn, caption, "; ".join(rows))


def _cell(x: float, y: float, wide: float, high: float, value: float, told: str) -> str:
    return (
        f'<rect class="cell" x="{x:.1f}" y="{y:.1f}" width="{wide - 1:.1f}" height="{high:.1f}" '
        f'fill-opacity="{min(1.0, max(0.0, value)):.2f}"><title>{shown(told)}</title></rect>'
    )


def _bar(x: float, y: float, wide: float, high: float, value: float, told: str) -> str:
    """Up or down from the middle; the whole cell can be pointed at."""
    middle, length = y + high / 2, high / 2 * min(1.0, abs(value))
    top = middle - length if value > 0 else middle
    return (
        f'<g><title>{shown(told)}</title>'
        f'<rect class="back" x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{high:.1f}"></rect>'
        f'<rect class="{"up" if value > 0 else "down"}" x="{x + 1:.1f}" y="{top:.1f}" width="{wide - 2:.1f}" '
        f'height="{length:.1f}"></rect>'
        f'<line x1="{x:.1f}" x2="{x + wide:.1f}" y1="{middle:.1f}" y2="{middle:.1f}"></line></g>'
    )  # fmt: skip


def _header(tokens: Sequence[str], y: float, left: float, cell: float) -> tuple[list[str], float]:
    """The tokens over their columns, upright where they are longer than a letter; and where the rows begin."""
    longest = min(LONGEST, max(map(len, tokens)))
    if longest == 1:
        places = [
            f'x="{left + (i + 0.45) * cell:.1f}" y="{y + 10:.1f}" class="middle token"' for i in range(len(tokens))
        ]
        high = HIGH + 1.0
    else:
        high = 6 + LETTER * 1.15 * longest
        places = [
            f'transform="translate({left + (i + 0.5) * cell + 3:.1f} {y + high - 4:.1f}) rotate(-90)" class="token"'
            for i in range(len(tokens))
        ]
    texts = [f"<text {place}>{shown(_short(token))}</text>" for place, token in zip(places, tokens, strict=True)]
    return texts, y + high


def _short(token: str) -> str:
    return token if len(token) <= LONGEST else token[: LONGEST - 1] + "…"


def _scale() -> tuple[list[str], float]:
    """What the shades mean; and where the figure goes on below."""
    drawn = [f'<text x="{WIDTH - 122}" y="10" class="faint end">0</text>']
    drawn += [_cell(WIDTH - 118 + 18 * i, 0, 18, 12, i / 5, f"{i / 5:.1f}") for i in range(6)]
    drawn.append(f'<text x="{WIDTH - 7}" y="10" class="faint">1</text>')
    return drawn, 20.0


def _figure(height: float, drawn: Sequence[str], caption: str, told: str) -> str:
    """`told` says the main of it to those who cannot see the figure."""
    return (
        '<figure class="strips">\n<style>.strips { max-width: 40rem } .strips .cell { fill: var(--main); '
        "stroke: var(--line); stroke-width: .5 } .strips .back { fill: var(--panel) } .strips .up { fill: var(--main) "
        "} .strips .down { fill: var(--s7) } .strips text { font-size: 10.5px } .strips .token { font: 10px "
        "ui-monospace, monospace }</style>\n"
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{shown(told)}">\n'
        + "\n".join(drawn)
        + f"\n</svg>\n<figcaption>{shown(caption)}</figcaption>\n</figure>"
    )
