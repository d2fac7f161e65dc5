"""A heat map: shares as shaded cells with their percentages, rows under headings, columns in blocks with titles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from octavo.pages.figures.svg import WIDTH, Drawing, rect, words

ROW, HEADING, TITLES = 14, 20, 30  # units: heights of a row, of a heading, and of what stands above the first
LABELS, BLOCK_GAP = 94, 10  # units: for the names of the rows, and between blocks
SIZES = {"label": 10, "cell": 8.5}  # of the characters
DARK = 0.55  # shares above it have light characters


class HeatRow(NamedTuple):
    """A row's name and its shares from 0 to 1, block by block; without any it is a heading. None leaves a cell out."""

    name: str
    shares: Sequence[Sequence[float | None]] = ()


class HeatBlock(NamedTuple):
    """Columns that belong together."""

    title: str
    columns: Sequence[str]


def draw_heat_map(rows: Sequence[HeatRow], blocks: Sequence[HeatBlock]) -> Drawing:
    """The darker a cell, the larger its share."""
    columns = sum(len(block.columns) for block in blocks)
    width = (WIDTH - LABELS - BLOCK_GAP * (len(blocks) - 1)) / columns
    starts = [
        LABELS + i * BLOCK_GAP + width * sum(len(block.columns) for block in blocks[:i]) for i in range(len(blocks))
    ]
    shapes: list[Markup] = []
    for block, x in zip(blocks, starts, strict=True):
        shapes.append(words(x, 9, block.title, font_size=SIZES["label"]))
        shapes += [
            words(x + (i + 0.5) * width, TITLES - 5, name, "middle", fill="quiet", font_size=SIZES["cell"])
            for i, name in enumerate(block.columns)
        ]
    y: float = TITLES
    for row in rows:
        y += ROW if row.shares else HEADING
        look: dict[str, Any] = {} if row.shares else {"fill": "quiet"}
        shapes.append(words(0, y - 4, row.name, font_size=SIZES["label"], **look))
        for shares, x in zip(row.shares, starts, strict=False):
            shapes += [
                part for i, share in enumerate(shares) if share is not None
                for part in _cell(x + i * width, y - ROW, width, share)
            ]  # fmt: skip
    return Drawing(y + 4, tuple(shapes), _in_words(rows, blocks))


def _cell(x: float, y: float, width: float, share: float) -> tuple[Markup, Markup]:
    look: dict[str, Any] = {"fill": "main", "fill_opacity": round(share, 2), "stroke": "paper", "stroke_width": 0.8}
    ground = rect(round(x, 2), y, round(width, 2), ROW, **look)
    ink = "paper" if share > DARK else "ink"
    return ground, words(
        round(x + width / 2, 2), y + 10, f"{100 * share:.0f}", "middle", fill=ink, font_size=SIZES["cell"]
    )


def _in_words(rows: Sequence[HeatRow], blocks: Sequence[HeatBlock]) -> str:
    """What the cells say, in percent."""
    said = []
    for row in rows:
        parts = [
            f"{block.title} " + ", ".join(
                f"{name}: {100 * share:.0f}" for name, share in zip(block.columns, shares, strict=True)
                if share is not None
            )
            for block, shares in zip(blocks, row.shares, strict=False)
        ]  # fmt: skip
        said += [f"{row.name}: {'; '.join(parts)}"] if parts else []
    return "Percent. " + ". ".join(said)
