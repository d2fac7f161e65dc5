"""Curves: several series over one pair of axes, each recognised by its marks and dashes, not by colour alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from octavo.pages.figures.plot import (
    MARKS,
    Axis,
    Plot,
    curve,
    dash,
    draw_axes,
    draw_legend,
    draw_references,
    mark,
    number,
    series_colour,
    spread_labels,
)
from octavo.pages.figures.svg import CHARACTER, WIDTH, Drawing, figure, path, shape, shorten, words
from octavo.pages.markup import element

MIN_RIGHT = 12  # units at the right of the plot
MAX_POINTS = 300  # of a series that are drawn; more would not be seen
MARKS_PER_CURVE = 5
MAX_LABEL_CHARACTERS = 14  # of a quiet curve's label
QUIET_DASHES = ("1 3", "5 4", "8 3 1 3")

Point = tuple[float, float]


class Series(NamedTuple):
    """One curve; a quiet one is for comparison: thin, without marks, and its label stands at its end."""

    label: str
    points: Sequence[Point]
    quiet: bool = False


def lines(
    series: Sequence[Series], caption: str, axes: tuple[str, str], log_y: bool = False, log_x: bool = False,
    references: Sequence[tuple[str, float]] = (),
) -> Markup:  # fmt: skip
    """The curves as a figure, and labelled horizontal lines; `axes` are the titles of x and y."""
    return figure(draw_lines(series, axes, log_y, log_x, references), caption)


def draw_lines(
    series: Sequence[Series], axes: tuple[str, str], log_y: bool = False, log_x: bool = False,
    references: Sequence[tuple[str, float]] = (),
) -> Drawing | None:  # fmt: skip
    """The curves; None without a point.

    What cannot be drawn, because it is not finite or not positive on a logarithmic axis, leaves a gap.
    """
    inside = [point for one in series for point in one.points if _is_drawable(point, log_x, log_y)]
    references = [(label, y) for label, y in references if _is_drawable((1, y), False, log_y)]
    if not inside:
        return None
    x_axis = Axis.around([x for x, _ in inside], log_x, tight=True)
    y_axis = Axis.around([y for _, y in inside] + [y for _, y in references], log_y)
    legend, top = draw_legend(list(enumerate(one.label for one in series if not one.quiet)))
    labels = [shorten(one.label, MAX_LABEL_CHARACTERS) for one in series if one.quiet]
    beside = 8 + CHARACTER * max(map(len, labels), default=0)
    plot = Plot(x_axis, y_axis, 6 + y_axis.label_width, WIDTH - max(MIN_RIGHT, beside), top + 22)
    lines_below, labels_above = draw_references(references, plot)
    shapes = [*legend, *draw_axes(plot, axes), *lines_below, *_curves(series, plot, log_x, log_y), *labels_above]
    return Drawing(plot.bottom + 36, tuple(shapes), "; ".join(map(_in_words, series)))


def _curves(series: Sequence[Series], plot: Plot, log_x: bool, log_y: bool) -> list[Markup]:
    """The quiet series below the others, and the labels at their ends."""
    shapes, ends = [], []
    places = {True: 0, False: 0}  # quiet series and others are counted apart
    for one in sorted(series, key=lambda one: not one.quiet):
        stretches = _stretches(one.points, plot, log_x, log_y)
        shapes.append(_curve(one, places[one.quiet], stretches))
        places[one.quiet] += 1
        if one.quiet and stretches:
            _, height = max(point for stretch in stretches for point in stretch)  # where it is furthest to the right
            ends.append((one.label, height + 4))
    return shapes + [
        words(plot.right + 4, y, shorten(label, MAX_LABEL_CHARACTERS), fill="quiet")
        for label, y in spread_labels(ends, plot)
    ]


def _is_drawable(point: Point, log_x: bool, log_y: bool) -> bool:
    x, y = point
    return math.isfinite(x) and math.isfinite(y) and (x > 0 or not log_x) and (y > 0 or not log_y)


def _stretches(points: Sequence[Point], plot: Plot, log_x: bool, log_y: bool) -> list[list[Point]]:
    """The places of a curve's points, in stretches between its gaps, and not more of them than can be seen."""
    stretches: list[list[Point]] = [[]]
    nearest = (plot.right - plot.left) / MAX_POINTS if len(points) > MAX_POINTS else 0.0
    for i, point in enumerate(points):
        if _is_drawable(point, log_x, log_y):
            place = plot.across(point[0]), plot.up(point[1])
            if not stretches[-1] or i == len(points) - 1 or place[0] - stretches[-1][-1][0] >= nearest:
                stretches[-1].append(place)
        elif stretches[-1]:
            stretches.append([])
    return [stretch for stretch in stretches if stretch]


def _curve(one: Series, place: int, stretches: Sequence[list[Point]]) -> Markup:
    title = element("title", one.label)
    d = "".join(map(path, stretches))
    if one.quiet:
        return shape("g", title, curve(d, "quiet", 1.2, QUIET_DASHES[place % len(QUIET_DASHES)]))
    points = [point for stretch in stretches for point in stretch]
    # Each curve begins its marks elsewhere, so that those of curves which run together remain distinct.
    step = max(1, len(points) // MARKS_PER_CURVE)
    marks = [mark(place, x, y) for x, y in points[place * step // len(MARKS) % step :: step]]
    return shape("g", title, curve(d, series_colour(place), dashes=dash(place)), *marks)


def _in_words(one: Series) -> str:
    """A series in words: where it begins, its middle and its end."""
    if not one.points:
        return f"{one.label}: nothing"
    places = sorted({0, len(one.points) // 2, len(one.points) - 1})
    return f"{one.label}: " + ", ".join(f"{number(y)} at {number(x)}" for x, y in (one.points[i] for i in places))
