"""Horizontal bars with their numbers; and bars in sets, each stacked of the same groups."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from octavo.pages.figures.svg import WIDTH, Drawing, figure, rect, shape, shorten, words
from octavo.pages.markup import element

BAR, STEP = 16, 24  # units: the height of a bar, and from one to the next
WIDE_CHARACTER = 7.4  # units
MAX_LABEL = 120  # units


def bars(rows: Sequence[tuple[str, float]], caption: str, digits: int = 0) -> Markup:
    """A bar for each label, with its number to so many digits after the point."""
    most = max((value for _, value in rows), default=0) or 1
    numbers = [f"{value:,.{digits}f}" for _, value in rows]
    left = min(MAX_LABEL, 10 + WIDE_CHARACTER * max((len(label) for label, _ in rows), default=0))
    longest = WIDTH - left - 10 - WIDE_CHARACTER * max(map(len, numbers), default=0)
    shapes = []
    for i, ((label, value), number) in enumerate(zip(rows, numbers, strict=True)):
        y, width = i * STEP + 4, max(1.0, longest * value / most)
        shapes += [
            words(left - 6, y + 12, label, "end"), rect(left, y, width, BAR, fill="main"),
            words(left + width + 5, y + 12, number),
        ]  # fmt: skip
    label = "; ".join(f"{label}: {number}" for (label, _), number in zip(rows, numbers, strict=True))
    return figure(Drawing(len(rows) * STEP + 4, tuple(shapes), label), caption)


LABEL, NUMBER = 104, 40  # units for the bars' names and for the numbers behind them
STACKED_BAR, STACKED_STEP = 12, 16  # units: a bar, and from one to the next
HEADING, GAP = 18, 10  # units: a set's title, between sets
LABEL_CHARACTER = 6.6  # units


class Bar(NamedTuple):
    """One bar: its name and its parts, in the order of the groups; a faint one is not comparable with the others."""

    name: str
    parts: tuple[float, ...]
    faint: bool = False

    @property
    def total(self) -> float:
        return math.fsum(self.parts) if all(map(math.isfinite, self.parts)) else math.inf

    @property
    def number(self) -> str:
        return f"{self.total:.2f}{' *' if self.faint else ''}" if math.isfinite(self.total) else "infinite"


def stacked_bars(sets: Sequence[tuple[str, Sequence[Bar]]], groups: Sequence[str], caption: str, unit: str) -> Markup:
    """Sets of bars under their titles, with a legend; a bar that is not finite is named, not drawn."""
    totals = [bar.total for _, bars in sets for bar in bars if math.isfinite(bar.total)]
    scale = (WIDTH - LABEL - NUMBER) / max([*totals, 1e-9])
    shapes, y = _legend(groups)
    label = []
    for title, bars in sets:
        shapes.append(words(0, y + 12, title, font_weight=650))
        y += HEADING
        for bar in bars:
            shapes.append(_bar(bar, groups, y, scale))
            label.append(f"{title}, {bar.name}: {bar.number} {unit}")
            y += STACKED_STEP
        y += GAP
    return figure(Drawing(y, tuple(shapes), "; ".join(label)), caption)


def _bar(bar: Bar, groups: Sequence[str], y: int, scale: float) -> Markup:
    """The name, the parts from the most expensive group to the common one, the sum."""
    x, parts = float(LABEL), []
    for i, (group, value) in enumerate(zip(groups, bar.parts, strict=True)):
        if math.isfinite(bar.total) and value > 0:
            title = element("title", f"{group}: {value:.4f}")
            parts.append(rect(x, y, value * scale, STACKED_BAR, title, fill=f"group{i}"))
            x += value * scale
    name = words(LABEL - 6, y + 10, shorten(bar.name, int((LABEL - 6) / LABEL_CHARACTER)), "end", fill="quiet")
    return shape("g", name, shape("g", *parts, opacity=0.55 if bar.faint else None), words(x + 4, y + 10, bar.number))


def _legend(groups: Sequence[str]) -> tuple[list[Markup], int]:
    """What the colours mean, two a line; and where the first set begins."""
    shapes = []
    for i, group in enumerate(groups):
        x, y = (i % 2) * WIDTH // 2, i // 2 * STACKED_STEP
        shapes += [
            rect(x, y + 2, STACKED_BAR, STACKED_BAR, fill=f"group{i}"),
            words(x + STACKED_BAR + 6, y + 12, group),
        ]
    return shapes, -(-len(groups) // 2) * STACKED_STEP + GAP
