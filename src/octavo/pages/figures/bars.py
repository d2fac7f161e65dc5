"""Horizontal bars with their numbers."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from octavo.pages.figures.svg import WIDTH, Drawing, figure, rect, words

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
