"""Horizontal bars, alone or stacked in sets; curves, each with its marks and dashes; and points with fitted laws."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from octavo.pages.figures.plot import (
    Axis,
    Plot,
    Style,
    curve,
    draw_legend,
    mark,
    number,
    series_colour,
    series_curve,
    style_at,
)  # fmt: skip
from octavo.pages.figures.svg import (
    CHARACTER,
    SERIES,
    WIDTH,
    Drawing,
    figure,
    halo_words,
    path,
    rect,
    shape,
    shorten,
    words,
)  # fmt: skip
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
    for i, ((label, value), shown) in enumerate(zip(rows, numbers, strict=True)):
        y, width = i * STEP + 4, max(1.0, longest * value / most)
        shapes += [
            words(left - 6, y + 12, label, "end"), rect(left, y, width, BAR, fill="main"),
            words(left + width + 5, y + 12, shown),
        ]  # fmt: skip
    label = "; ".join(f"{label}: {shown}" for (label, _), shown in zip(rows, numbers, strict=True))
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


MIN_RIGHT = 12  # units at the right of the plot
MAX_POINTS = 300  # of a series that are drawn; more would not be seen
MARKS_PER_CURVE = 5
MAX_LABEL_CHARACTERS = 14  # of a quiet curve's label
PEAK_QUANTILE, PEAK_ROOM = 0.9, 0.35  # above that quantile, a curve may rise by so much of the range below it
QUIET_DASHES = ("1 3", "5 4", "8 3 1 3")

Point = tuple[float, float]


class Series(NamedTuple):
    """One curve; a quiet one is for comparison: thin, without marks, and its label stands at its end."""

    label: str
    points: Sequence[Point]
    quiet: bool = False
    style: Style | None = None  # without one, by its place among the curves


def lines(
    series: Sequence[Series], caption: str, axes: tuple[str, str], log_y: bool = False, log_x: bool = False,
    references: Sequence[tuple[str, float]] = (), cut_peaks: bool = False,
) -> Markup:  # fmt: skip
    """The curves as a figure, and labelled horizontal lines; `axes` are the titles of x and y."""
    return figure(draw_lines(series, axes, log_y, log_x, references, cut_peaks), caption)


def draw_lines(
    series: Sequence[Series], axes: tuple[str, str], log_y: bool = False, log_x: bool = False,
    references: Sequence[tuple[str, float]] = (), cut_peaks: bool = False,
) -> Drawing | None:  # fmt: skip
    """The curves; None without a point.

    What cannot be drawn, because it is not finite or not positive on a logarithmic axis, leaves a gap. `cut_peaks`: a
    few very high values, such as the first losses of a training, leave the plot at its top, so that the rest is seen.
    """
    inside = [point for one in series for point in one.points if _is_drawable(point, log_x, log_y)]
    references = [(label, y) for label, y in references if _is_drawable((1, y), False, log_y)]
    if not inside:
        return None
    x_axis = Axis.around([x for x, _ in inside], log_x, tight=True)
    heights = [y for _, y in inside] + [y for _, y in references]
    y_axis = Axis.around(_without_peaks(heights) if cut_peaks else heights, log_y)
    series = _with_styles(series)
    legend, top = draw_legend([(one.style, one.label) for one in series if one.style])
    labels = [shorten(one.label, MAX_LABEL_CHARACTERS) for one in series if one.quiet]
    beside = 8 + CHARACTER * max(map(len, labels), default=0)
    plot = Plot(x_axis, y_axis, 6 + y_axis.label_width, WIDTH - max(MIN_RIGHT, beside), top + 22)
    lines_below, labels_above = plot.draw_references(references)
    shapes = [*legend, *plot.draw_axes(axes), *lines_below, *_curves(series, plot, log_x, log_y), *labels_above]
    if max(heights) > y_axis.high:
        note = f"▲ from {number(max(heights))}"
        shapes.append(halo_words(plot.right - 2, plot.top + 10, note, "end", fill="quiet"))
    return Drawing(plot.bottom + 36, tuple(shapes), "; ".join(map(_in_words, series)))


def _with_styles(series: Sequence[Series]) -> list[Series]:
    """Every curve but the quiet ones with a style."""
    count = itertools.count()
    return [one if one.quiet or one.style else one._replace(style=style_at(next(count))) for one in series]


def _without_peaks(heights: Sequence[float]) -> list[float]:
    """The values that the plot shows: those far above nine tenths of them are cut."""
    most = float(np.quantile(heights, PEAK_QUANTILE))
    limit = most + PEAK_ROOM * (most - min(heights))
    return [y for y in heights if y <= limit]


def _curves(series: Sequence[Series], plot: Plot, log_x: bool, log_y: bool) -> list[Markup]:
    """The quiet series below the others, and the labels at their ends."""
    shapes, ends = [], []
    for place, one in enumerate(sorted(series, key=lambda one: not one.quiet)):
        stretches = _stretches(one.points, plot, log_x, log_y)
        shapes.append(_curve(one, place, stretches))
        if one.quiet and stretches:
            _, height = max(point for stretch in stretches for point in stretch)  # where it is furthest to the right
            ends.append((one.label, height + 4))
    return shapes + [
        words(plot.right + 4, y, shorten(label, MAX_LABEL_CHARACTERS), fill="quiet")
        for label, y in plot.spread_labels(ends)
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
    return [part for stretch in stretches for part in _below(stretch, plot.top)]


def _below(stretch: Sequence[Point], top: float) -> list[list[Point]]:
    """The parts of a curve that lie in the plot, cut at its top."""
    parts: list[list[Point]] = [[]]
    for i, (x, y) in enumerate(stretch):
        before = stretch[i - 1] if i else (x, y)
        if (y < top) != (before[1] < top):  # it crosses the top
            crossing = (before[0] + (x - before[0]) * (top - before[1]) / (y - before[1]), top)
            parts[-1].append(crossing)
        if y >= top:
            parts[-1].append((x, y))
        elif parts[-1]:
            parts.append([])
    return [part for part in parts if part]


def _curve(one: Series, place: int, stretches: Sequence[list[Point]]) -> Markup:
    title = element("title", one.label)
    d = "".join(map(path, stretches))
    if one.style is None:
        return shape("g", title, curve(d, "quiet", 1.2, QUIET_DASHES[place % len(QUIET_DASHES)]))
    points = [point for stretch in stretches for point in stretch]
    # Each curve begins its marks elsewhere, so that those of curves which run together remain distinct.
    step = max(1, len(points) // MARKS_PER_CURVE)
    marks = [mark(one.style, x, y) for x, y in points[place * step // SERIES % step :: step]]
    return shape("g", title, series_curve(d, one.style), *marks)


def _in_words(one: Series) -> str:
    """A series in words: where it begins, its middle and its end."""
    if not one.points:
        return f"{one.label}: nothing"
    places = sorted({0, len(one.points) // 2, len(one.points) - 1})
    return f"{one.label}: " + ", ".join(f"{number(y)} at {number(x)}" for x, y in (one.points[i] for i in places))


CURVE_POINTS = 60  # along a law
EDGE = 1.15  # so that the first mark is whole


class FittedPoints(NamedTuple):
    """Points, the law fitted to them and its interval at each x; `others` are points that it was not fitted to."""

    label: str
    points: Sequence[Point]
    law: Callable[[float], float] | None = None
    band: Callable[[float], tuple[float, float]] | None = None
    others: Sequence[Point] = ()
    style: Style | None = None  # without one, by its place among the models


def law_figure(
    drawn: Sequence[FittedPoints], caption: str, axes: tuple[str, str], further: float,
    references: Sequence[tuple[str, float]] = (),
) -> Markup:  # fmt: skip
    """Points, laws up to `further` times the largest x, and labelled horizontal lines; empty without points."""
    seen = [(x, y) for one in drawn for x, y in (*one.points, *one.others) if math.isfinite(y)]
    if not seen:
        return Markup()
    low, high = min(x for x, _ in seen), max(x for x, _ in seen)
    x_L = np.geomspace(low, high * further, CURVE_POINTS).tolist()
    least = min([y for _, y in seen] + [y for _, y in references])
    # A band that is wider than the figure is cut off: what was measured must stay readable.
    laws = [one.law(x) for one in drawn if one.law for x in (x_L[0], x_L[-1])]
    bottom, top = min([least, *laws]) / 1.06, max([y for _, y in seen] + laws) * 1.03
    y_axis = Axis(bottom, top, True, Axis.around([bottom, top]).step, even_ticks=True)
    x_axis = Axis.around([low / EDGE, high * further], True, tight=True)
    styles = [one.style or style_at(place) for place, one in enumerate(drawn)]
    legend, legend_height = draw_legend([(style, one.label) for style, one in zip(styles, drawn, strict=True)])
    plot = Plot(x_axis, y_axis, 6 + y_axis.label_width, WIDTH - MIN_RIGHT, legend_height + 24)
    lines, labels = plot.draw_references(references)
    laws_drawn = [_law(one, style, plot, x_L, high) for style, one in zip(styles, drawn, strict=True)]
    label = "; ".join(
        f"{one.label}: " + ", ".join(f"{y:.3f} at {number(x)}" for x, y in one.points) for one in drawn
    )  # for those who cannot see it
    shapes = [*legend, *plot.draw_axes(axes), *lines, *laws_drawn, *labels]
    return figure(Drawing(plot.bottom + 36, tuple(shapes), label), caption)


def _law(one: FittedPoints, style: Style, plot: Plot, x_L: Sequence[float], high: float) -> Markup:
    """The band, the law (dashed beyond what was measured) and the marks of one model."""

    def at(x: float, y: float) -> tuple[float, float]:
        return plot.across(x), plot.up(min(max(y, plot.y.low), plot.y.high))

    parts, colour = [element("title", one.label)], series_colour(style.colour)
    if one.law is not None and one.band is not None:
        bands = [(x, *one.band(x)) for x in x_L]
        ends = [at(x, low) for x, low, _ in bands] + [at(x, high) for x, _, high in reversed(bands)]
        parts.append(shape("path", fill=colour, fill_opacity=0.15, d=path(ends) + "z"))
        measured, beyond = [x for x in x_L if x < high] + [high], [high] + [x for x in x_L if x > high]
        for dashes, xs in ((None, measured), ("5 4", beyond)):
            parts.append(curve(path([at(x, one.law(x)) for x in xs]), colour, dashes=dashes))
    others = [mark(style, *at(x, y)) for x, y in one.others if math.isfinite(y)]
    parts += [shape("g", *others, opacity=0.35)] if others else []
    return shape("g", *parts, *(mark(style, *at(x, y)) for x, y in one.points if math.isfinite(y)))
