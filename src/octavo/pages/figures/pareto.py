"""What each model costs against how good it is, as inline SVG: named marks over a logarithmic cost, and the line of the
best that each cost buys. Drawn 360 units wide so that the letters stay readable on a telephone.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from octavo.pages.figures.axis import Axis
from octavo.pages.figures.lines import Frame, colour, colours_style, draw_axes, draw_references, mark, spread_labels
from octavo.pages.frame import shown

WIDTH, HEIGHT, RIGHT = 360, 270, 10  # units: of the figure, of the plot, and the room at its right
LETTER, LINE, MARK = 6.4, 12, 6  # the width of a letter, the height of a label, half the room of a mark
REACH = (8, 14, 22, 32, 44, 58)  # how far from its mark a label may stand
NEAR = 1.0  # square units that a label may hide to stand a unit nearer
FAR = 20  # from here on, a thin line leads from the label to its mark
DIRECTIONS = (
    ("", 1, 0), ("end", -1, 0), ("middle", 0, -1.1), ("middle", 0, 1.2), ("", 0.75, -0.75), ("", 0.75, 0.75),
    ("end", -0.75, -0.75), ("end", -0.75, 0.75),
)  # fmt: skip
MARGIN = 0.06  # of the x axis, at either end
ROOM = 1.08  # times the largest y, and below the least
STYLE = """.pareto .frontier { stroke: var(--quiet); stroke-width: 1.4 } .pareto .hollow .mark { fill: var(--paper);
stroke: var(--k); stroke-width: 1.5 } .pareto .hollow text { fill: var(--quiet) } .pareto .spread { stroke: var(--k) }
.pareto .tip { display: none } .pareto .point:focus { outline: none } .pareto .point:focus .mark { stroke: var(--ink);
stroke-width: 2 }
.pareto .point:hover .tip, .pareto svg:not(:hover) .point:focus .tip { display: block }"""


class Mark(NamedTuple):
    """One model: a hollow mark is of one that another beats in everything."""

    name: str
    kind: int  # the place of its family in the key
    x: float
    y: float
    low: float | None
    high: float | None
    hollow: bool
    told: str  # its figures, in words


@dataclass(frozen=True)
class Proportional(Axis):
    """Logarithmic, so that equal heights are equal percentages, with evenly spaced numbers beside it."""

    @classmethod
    def for_values(cls, values: Sequence[float]) -> Proportional:
        """From a little below the least to a little above the most, with more numbers than an even axis has."""
        low, high = min(values) / ROOM, max(values) * ROOM
        return cls(low, high, True, Axis.around([low, (low + 2 * high) / 3], tight=True).step)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        return Axis(self.low, self.high, False, self.step).ticks


class Box(NamedTuple):
    """Where something is drawn, as far as labels must stay clear of it."""

    left: float
    top: float
    right: float
    bottom: float

    def shared(self, other: Box) -> float:
        """The area that both cover."""
        wide = min(self.right, other.right) - max(self.left, other.left)
        high = min(self.bottom, other.bottom) - max(self.top, other.top)
        return wide * high if wide > 0 and high > 0 else 0.0


def frontier(points: Sequence[tuple[float, float]], more_is_better: bool = False) -> list[tuple[float, float]]:
    """The points that no other beats: from the cheapest on, each that has a lower y than all before it."""
    kept: list[tuple[float, float]] = []
    for x, y in sorted(points, key=lambda point: (-point[0] if more_is_better else point[0], point[1])):
        if not kept or y < kept[-1][1]:
            kept.append((x, y))
    return kept


def pareto(
    marks: Sequence[Mark], kinds: Sequence[str], lines: Sequence[tuple[str, float]], caption: str,
    axes: tuple[str, str], more_is_better: bool = False,
) -> str:  # fmt: skip
    """The figure; `kinds` are the families' names, `lines` horizontal lines with their labels, `axes` the labels of
    x and y. Every x and y is positive and finite; without a mark there is no figure.
    """
    if not marks:
        return ""
    used = sorted({one.kind for one in marks})
    key, top = _key([(kind, kinds[kind]) for kind in used])
    frame = _frame(marks, lines, top + 22)
    ground = f'x1="{frame.left:.1f}" x2="{frame.right:.1f}" y1="{frame.bottom:.1f}" y2="{frame.bottom:.1f}"'
    drawn = [*key, *draw_axes(frame, axes), f"<line {ground}></line>"]
    reference_lines, reference_labels = draw_references(lines, frame)
    best = frontier([(one.x, one.y) for one in marks], more_is_better)
    drawn += [*reference_lines, _staircase(best, frame, more_is_better)]
    on_line = set(best)
    ranked = sorted(marks, key=lambda one: ((one.x, one.y) not in on_line, one.hollow, one.y))
    places = _label_places(ranked, lines, frame)
    drawn += reference_labels
    drawn += [_point(one, place, frame) for one, place in zip(ranked, places, strict=True)]
    told = "; ".join(one.told for one in sorted(marks, key=lambda one: one.y))
    return (
        f'<figure class="curves pareto">\n<style>{colours_style()} {STYLE}</style>\n'
        f'<svg viewBox="0 0 {WIDTH} {frame.bottom + 52:.0f}" role="group" aria-label="{shown(told)}">\n'
        + "\n".join(drawn)
        + f"\n</svg>\n<figcaption>{shown(caption)}</figcaption>\n</figure>"
    )


def _frame(marks: Sequence[Mark], lines: Sequence[tuple[str, float]], top: float) -> Frame:
    tight = Axis.around([one.x for one in marks], log=True, tight=True)
    room = max((tight.high / tight.low) ** MARGIN, 1.05)
    x_axis = Axis(tight.low / room, tight.high * room, True, tight.step)
    y_axis = Proportional.for_values([one.y for one in marks] + [y for _, y in lines])
    left = 6 + y_axis.room
    return Frame(x_axis, y_axis, left, WIDTH - RIGHT, top, HEIGHT)


def _key(kinds: Sequence[tuple[int, str]]) -> tuple[list[str], float]:
    """A mark of each family with its name, in lines; and how high all of that is."""
    drawn, x, y = [], 0.0, 0.0
    for kind, name in kinds:
        wide = 30 + LETTER * len(name)
        if x and x + wide > WIDTH:
            x, y = 0.0, y + 17
        drawn.append(
            f'<g class="{colour(kind)}">{mark(kind, x + 6, y + 8)}</g><text x="{x + 16:.1f}" y="{y + 12}">'
            f"{shown(name)}</text>"
        )
        x += wide
    return drawn, y + 17


def _staircase(best: Sequence[tuple[float, float]], frame: Frame, more_is_better: bool) -> str:
    """The line of the best so far: level until the next better point, then down to it."""
    (x, y), *rest = [(frame.across(x), frame.up(y)) for x, y in best]
    steps = "".join(f"H{x:.1f}V{y:.1f}" for x, y in rest)
    end = frame.left if more_is_better else frame.right
    return f'<path class="frontier" d="M{x:.1f} {y:.1f}{steps}H{end:.1f}"></path>'


def _point(one: Mark, place: tuple[float, float, str], frame: Frame) -> str:
    x, y = frame.across(one.x), frame.up(one.y)
    spread = ""
    if one.low is not None and one.high is not None and 0 < one.low <= one.high:
        ends = f'y1="{frame.up(one.low):.1f}" y2="{frame.up(one.high):.1f}"'
        spread = f'<line class="spread" x1="{x:.1f}" x2="{x:.1f}" {ends}></line>'
    at_x, at_y, side = place
    if math.hypot(at_x - x, at_y - 4 - y) > FAR:
        spread += f'<line x1="{x:.1f}" x2="{at_x:.1f}" y1="{y:.1f}" y2="{at_y - 4:.1f}"></line>'
    kinds = f"point {colour(one.kind)}" + (" hollow" if one.hollow else "")
    return (
        f'<g class="{kinds}" tabindex="0" role="img" aria-label="{shown(one.told)}"><title>{shown(one.told)}</title>'
        f"{spread}{mark(one.kind, x, y)}"
        f'<text class="line {side}" x="{at_x:.1f}" y="{at_y:.1f}">{shown(one.name)}</text>'
        f'<text class="tip" x="0" y="{frame.bottom + 47:.1f}">{shown(one.told)}</text></g>'
    )


def _label_places(
    marks: Sequence[Mark], lines: Sequence[tuple[str, float]], frame: Frame
) -> list[tuple[float, float, str]]:
    """For each mark where its name stands and on which side it begins: where it hides least, close by if it can."""
    dots = [(frame.across(one.x), frame.up(one.y)) for one in marks]
    taken = [Box(x - MARK, y - MARK, x + MARK, y + MARK) for x, y in dots]
    labels = spread_labels([(label, frame.up(y) - 4) for label, y in lines], frame)
    taken += [_box(frame.right - 2, at, LETTER * len(label), "end") for label, at in labels]
    places = []
    for one, (x, y) in zip(marks, dots, strict=True):
        wide = LETTER * len(one.name)
        ways = []
        for far, (side, dx, dy) in itertools.product(REACH, DIRECTIONS):
            place = (x + far * dx, y + 4 + far * dy, side)
            box = _box(place[0], place[1], wide, side)
            ways.append((_hidden(box, taken, frame) + far * NEAR, box, place))
        _, box, place = min(ways, key=lambda way: way[0])  # of equals the first
        taken.append(box)
        places.append(place)
    return places


def _box(x: float, y: float, wide: float, side: str) -> Box:
    left = x - {"": 0.0, "middle": wide / 2, "end": wide}[side]
    return Box(left, y - LINE + 2, left + wide, y + 2)


def _hidden(box: Box, taken: Sequence[Box], frame: Frame) -> float:
    """How much a label would hide; outside the plot is as bad as can be."""
    inside = box.left >= frame.left and box.right <= frame.right and frame.top <= box.top and box.bottom <= frame.bottom
    return sum(box.shared(other) for other in taken) if inside else math.inf
