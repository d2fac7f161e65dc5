"""Points and their power law on logarithmic axes: the line with its interval as a band, dashed beyond the data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from octavo.experiments.scale.power_law import Fit
from octavo.pages.figures.axis import Axis, EvenLogAxis, number
from octavo.pages.figures.plot import Plot, curve, draw_axes, draw_legend, draw_references, mark, series_colour
from octavo.pages.figures.svg import WIDTH, Drawing, figure, path, shape
from octavo.pages.markup import element

CURVE_POINTS = 60  # along a law
EDGE = 1.15  # so that the first mark is whole
RIGHT = 12  # units at the right of the plot


class FittedPoints(NamedTuple):
    """What is drawn of one model; `others` are points that the law was not fitted to."""

    label: str
    points: Sequence[tuple[float, float]]
    fit: Fit | None
    others: Sequence[tuple[float, float]] = ()


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
    laws = [y for one in drawn if one.fit for y in (one.fit.law(x_L[0]), one.fit.law(x_L[-1]))]
    bottom, top = min([least, *laws]) / 1.06, max([y for _, y in seen] + laws) * 1.03
    y_axis = EvenLogAxis(bottom, top, True, Axis.around([bottom, top]).step)
    x_axis = Axis.around([low / EDGE, high * further], True, tight=True)
    legend, legend_height = draw_legend(list(enumerate(one.label for one in drawn)))
    plot = Plot(x_axis, y_axis, 6 + y_axis.label_width, WIDTH - RIGHT, legend_height + 24)
    lines, labels = draw_references(references, plot)
    laws_drawn = [_law(one, place, plot, x_L, high) for place, one in enumerate(drawn)]
    label = "; ".join(
        f"{one.label}: " + ", ".join(f"{y:.3f} at {number(x)}" for x, y in one.points) for one in drawn
    )  # for those who cannot see it
    shapes = [*legend, *draw_axes(plot, axes), *lines, *laws_drawn, *labels]
    return figure(Drawing(plot.bottom + 36, tuple(shapes), label), caption)


def _law(one: FittedPoints, place: int, plot: Plot, x_L: Sequence[float], high: float) -> Markup:
    """The band, the law (dashed beyond what was measured) and the marks of one model."""

    def at(x: float, y: float) -> tuple[float, float]:
        return plot.across(x), plot.up(min(max(y, plot.y.low), plot.y.high))

    parts, colour = [element("title", one.label)], series_colour(place)
    if one.fit is not None:
        intervals = [one.fit.interval(x) for x in x_L]
        ends = [at(x, interval.low) for x, interval in zip(x_L, intervals, strict=True)]
        ends += [at(x, interval.high) for x, interval in zip(reversed(x_L), reversed(intervals), strict=True)]
        parts.append(shape("path", fill=colour, fill_opacity=0.15, d=path(ends) + "z"))
        measured, beyond = [x for x in x_L if x < high] + [high], [high] + [x for x in x_L if x > high]
        for dashes, xs in ((None, measured), ("5 4", beyond)):
            parts.append(curve(path([at(x, one.fit.law(x)) for x in xs]), colour, dashes=dashes))
    others = [mark(place, *at(x, y)) for x, y in one.others if math.isfinite(y)]
    parts += [shape("g", *others, opacity=0.35)] if others else []
    return shape("g", *parts, *(mark(place, *at(x, y)) for x, y in one.points if math.isfinite(y)))
