"""What each model costs against how good it is: named marks over a logarithmic cost, and the line of the best that each
cost buys (the Pareto frontier).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from octavo.pages.figures.plot import Axis, Plot, Style, curve, draw_legend, mark, series_colour
from octavo.pages.figures.svg import WIDTH, Drawing, halo_words, line, shape, shorten, words
from octavo.pages.markup import element

HEIGHTS, RIGHT = (270, 340, 420, 520), 10  # units: of the plot, the least that has room for all names; at its right
LABEL_HEIGHT, HALF_MARK = 12, 6  # units
MAX_NAME = 20  # characters of a name that are written beside its mark
NAME_CHARACTER = 6.8  # units, in a wide font
LABEL_DISTANCES = (8, 14, 22, 32, 44, 58, 74, 92, 112)  # units from its mark at which a label may stand
LEADER_DISTANCE = 20  # units from which on a thin line leads from the label to its mark
DIRECTIONS = (
    ("start", 1, 0), ("end", -1, 0), ("middle", 0, -1.1), ("middle", 0, 1.2), ("start", 0.75, -0.75),
    ("start", 0.75, 0.75), ("end", -0.75, -0.75), ("end", -0.75, 0.75), ("start", 0.95, -0.35), ("start", 0.95, 0.35),
    ("end", -0.95, -0.35), ("end", -0.95, 0.35),
)  # fmt: skip
X_MARGIN = 0.06  # of the x axis, at either end
Y_MARGIN = 1.08  # times the largest y, and below the least


class Mark(NamedTuple):
    """One model: a hollow mark is of one that another beats in everything."""

    name: str
    family: str
    style: Style
    x: float
    y: float
    low: float | None
    high: float | None
    hollow: bool
    description: str


class Box(NamedTuple):
    """Where something is drawn, as far as labels must stay clear of it."""

    left: float
    top: float
    right: float
    bottom: float

    def overlap(self, other: Box) -> float:
        """The area that both cover."""
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.bottom, other.bottom) - max(self.top, other.top)
        return width * height if width > 0 and height > 0 else 0.0


def frontier(points: Sequence[tuple[float, float]], more_is_better: bool = False) -> list[tuple[float, float]]:
    """The points that no other beats: from the cheapest on, each that has a lower y than all before it."""
    best: list[tuple[float, float]] = []
    for x, y in sorted(points, key=lambda point: (-point[0] if more_is_better else point[0], point[1])):
        if not best or y < best[-1][1]:
            best.append((x, y))
    return best


def draw_pareto(
    marks: Sequence[Mark], references: Sequence[tuple[str, float]], axes: tuple[str, str],
    more_is_better: bool = False,
) -> Drawing | None:  # fmt: skip
    """The marks, the frontier and horizontal reference lines; `axes` are the titles.

    Every x and y is positive and finite; without a mark there is no drawing. Names never lie on each other or on a
    mark: where they have no room the plot grows.
    """
    if not marks:
        return None
    families = sorted({(Style(one.style.colour, 0), one.family) for one in marks})
    legend, top = draw_legend(families, lambda style, x, y: mark(style, x + 6, y), 12)
    best = frontier([(one.x, one.y) for one in marks], more_is_better)
    on_line = set(best)
    ranked = sorted(marks, key=lambda one: ((one.x, one.y) not in on_line, one.hollow, one.y))
    for height in HEIGHTS:
        plot = _plot(marks, references, top + 22, height)
        places, hidden = _label_places(ranked, references, plot)
        if not hidden:
            break
    lines_below, labels_above = plot.draw_references(references)
    shapes = [
        *legend, *plot.draw_axes(axes), line(plot.left, plot.bottom, plot.right, plot.bottom), *lines_below,
        _staircase(best, plot, more_is_better), *labels_above,
        *(_point(one, place, plot) for one, place in zip(ranked, places, strict=True)),
    ]  # fmt: skip
    label = "; ".join(one.description for one in sorted(marks, key=lambda one: one.y))
    return Drawing(plot.bottom + 52, tuple(shapes), label, is_interactive=True)


def _plot(marks: Sequence[Mark], references: Sequence[tuple[str, float]], top: float, height: float) -> Plot:
    tight = Axis.around([one.x for one in marks], log=True, tight=True)
    margin = max((tight.high / tight.low) ** X_MARGIN, 1.05)
    heights = [one.y for one in marks] + [y for _, y in references]
    low, high = min(heights) / Y_MARGIN, max(heights) * Y_MARGIN
    # More numbers than an even axis has: the lower ones stand further apart.
    y_axis = Axis(low, high, True, Axis.around([low, (low + 2 * high) / 3], tight=True).step, even_ticks=True)
    left, right = 6 + y_axis.label_width, WIDTH - RIGHT
    strip = max((NAME_CHARACTER * len(label) + 2 * HALF_MARK for label, _ in references), default=0.0)
    share = strip / (right - left)  # at the right, where the names of the lines stand, there are no marks
    behind = max(margin, (margin * tight.high / tight.low) ** (share / (1 - share)))
    x_axis = Axis(tight.low / margin, tight.high * behind, True, tight.step)
    return Plot(x_axis, y_axis, left, right, top, height)


def _staircase(best: Sequence[tuple[float, float]], plot: Plot, more_is_better: bool) -> Markup:
    """The line of the best so far: level until the next better point, then down to it."""
    (x, y), *rest = [(plot.across(x), plot.up(y)) for x, y in best]
    steps = "".join(f"H{x:.1f}V{y:.1f}" for x, y in rest)
    end = plot.left if more_is_better else plot.right
    return curve(f"M{x:.1f} {y:.1f}{steps}H{end:.1f}", "quiet", 1.4)


def _point(one: Mark, place: tuple[float, float, str], plot: Plot) -> Markup:
    x, y = plot.across(one.x), plot.up(one.y)
    label_x, label_y, side = place
    inside = [element("title", one.description)]
    if one.low is not None and one.high is not None and 0 < one.low <= one.high:
        inside.append(line(x, plot.up(one.low), x, plot.up(one.high), series_colour(one.style.colour)))
    if math.hypot(label_x - x, label_y - 4 - y) > LEADER_DISTANCE:
        inside.append(line(x, y, label_x, label_y - 4))
    colour = "quiet" if one.hollow else "ink"
    inside += [
        mark(one.style, x, y, one.hollow), halo_words(label_x, label_y, shorten(one.name, MAX_NAME), side, fill=colour),
        words(0, plot.bottom + 47, one.description, class_="tip", display="none"),
    ]  # fmt: skip
    return shape("g", *inside, class_="point", tabindex=0, role="img", aria_label=one.description)


def _label_places(
    marks: Sequence[Mark], references: Sequence[tuple[str, float]], plot: Plot
) -> tuple[list[tuple[float, float, str]], float]:
    """For each mark where its name stands and on which side it begins: as near as it hides nothing; and the area that
    names hide nevertheless.
    """
    dots = [(plot.across(one.x), plot.up(one.y)) for one in marks]
    taken = [Box(x - HALF_MARK, y - HALF_MARK, x + HALF_MARK, y + HALF_MARK) for x, y in dots]
    labels = plot.spread_labels([(label, plot.up(y) - 4) for label, y in references])
    taken += [_box(plot.right - 2, y, NAME_CHARACTER * len(label), "end") for label, y in labels]
    places, hidden = [], 0.0
    for one, (x, y) in zip(marks, dots, strict=True):
        width = NAME_CHARACTER * len(shorten(one.name, MAX_NAME))
        ways = []
        for distance, (side, dx, dy) in itertools.product(LABEL_DISTANCES, DIRECTIONS):
            place = (x + distance * dx, y + 4 + distance * dy, side)
            box = _box(place[0], place[1], width, side)
            ways.append((_hidden(box, taken, plot), box, place))
        least, box, place = min(ways, key=lambda way: way[0])  # of equals the first, which is the nearest
        taken.append(box)
        places.append(place)
        hidden += least
    return places, hidden


def _box(x: float, y: float, width: float, side: str) -> Box:
    left = x - {"start": 0.0, "middle": width / 2, "end": width}[side]
    return Box(left, y - LABEL_HEIGHT + 2, left + width, y + 2)


def _hidden(box: Box, taken: Sequence[Box], plot: Plot) -> float:
    """How much a label would hide; outside the plot is as bad as can be."""
    inside = box.left >= plot.left and box.right <= plot.right and plot.top <= box.top and box.bottom <= plot.bottom
    return sum(box.overlap(other) for other in taken) if inside else math.inf
