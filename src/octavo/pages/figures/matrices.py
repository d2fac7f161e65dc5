"""Matrices as shaded cells, side by side in one figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from octavo.pages.figures.svg import WIDTH, Drawing, figure, rect, shape, words

GAP, TITLE = 24, 16  # units: between matrices, the height of a title
MIN_OPACITY = 0.12  # of a cell that is not zero


def shaded_matrices(matrices: Sequence[tuple[str, Any]], caption: str) -> Markup:
    """Each matrix (lists of rows, an array or a tensor) below its title; larger numbers are darker, zeros empty."""
    side = (WIDTH - GAP * (len(matrices) - 1)) / len(matrices)
    shapes, tallest, sizes = [], 0.0, []
    for place, (title, given) in enumerate(matrices):
        matrix = given.tolist() if hasattr(given, "tolist") else given
        rows, columns = len(matrix), len(matrix[0])
        cell, left = min(side / columns, side / rows), place * (side + GAP)
        tallest = max(tallest, cell * rows)
        shapes.append(words(left, 12, title))
        most = max(abs(value) for row in matrix for value in row) or 1.0
        cells = [
            rect(left + j * cell, TITLE + i * cell, cell, cell, fill_opacity=_opacity(value, most))
            for i, row in enumerate(matrix)
            for j, value in enumerate(row)
        ]
        shapes.append(shape("g", *cells, fill="main", stroke="line", stroke_width=0.6))
        sizes.append(f"{title}: {rows} by {columns}, {sum(value != 0 for row in matrix for value in row)} not zero")
    return figure(Drawing(TITLE + tallest + 2, tuple(shapes), "; ".join(sizes)), caption)


def _opacity(value: float, most: float) -> float:
    return round(MIN_OPACITY + (1 - MIN_OPACITY) * abs(value) / most, 2) if value else 0.0
