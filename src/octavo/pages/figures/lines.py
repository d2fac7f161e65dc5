"""Curves as inline SVG: several series over one pair of axes, each told apart by its marks and dashes, not by colour
alone. Drawn 360 units wide so that the letters stay readable on a telephone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from octavo.pages.figures.axis import Axis, number
from octavo.pages.frame import shown

WIDTH, PLOT, RIGHT = 360, 230, 12  # units; the plot's height and the least room at its right
LETTER, KEY, SAMPLE = 6.4, 17, 30  # the width of a letter, the height of a line of the key, the length of its samples
MOST_POINTS = 300  # of a series that are drawn; more would not be seen
MARKS = 5  # on a curve
MOST_BESIDE = 14  # letters of a quiet curve's label
APART = 13  # labels closer than this would overlap
COLOURS = (  # each in light and in dark, at least 3 to 1 against the page
    ("#1f5fa8", "#7db4f0"), ("#c2410c", "#f29b62"), ("#15803d", "#63c98a"),
    ("#86198f", "#d88be0"), ("#0e7490", "#5cc4d8"), ("#92700c", "#d9b74a"),
)  # fmt: skip
DASHES = ("", "7 3", "2 3", "9 3 2 3", "12 4", "4 2 1 2")
QUIET_DASHES = ("1 3", "5 4", "8 3 1 3")
SHAPES = (  # around the origin
    "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z", "M-3.5 -3.5h7v7h-7z", "M0 -5L4.5 3.5H-4.5z",
    "M0 -5L5 0L0 5L-5 0z", "M0 5L4.5 -3.5H-4.5z", "M-5 -1.5h3.5v-3.5h3v3.5h3.5v3h-3.5v3.5h-3v-3.5h-3.5z",
)  # fmt: skip


class Series(NamedTuple):
    """One curve; a quiet one is for comparison: thin, without marks, and its label stands at its end."""

    label: str
    points: Sequence[tuple[float, float]]
    quiet: bool = False


@dataclass(frozen=True)
class Frame:
    """Where the plot lies and how its numbers become places."""

    x: Axis
    y: Axis
    left: float
    right: float
    top: float
    height: float = PLOT

    @property
    def bottom(self) -> float:
        return self.top + self.height

    def across(self, x: float) -> float:
        return self.left + (self.right - self.left) * self.x.share(x)

    def up(self, y: float) -> float:
        return self.top + self.height * (1 - self.y.share(y))


def lines(
    series: Sequence[Series], caption: str, axes: tuple[str, str], log_y: bool = False, log_x: bool = False,
    references: Sequence[tuple[str, float]] = (),
) -> str:  # fmt: skip
    """The curves, and labelled horizontal lines; `axes` are the labels of x and y.

    What cannot be drawn, because it is not finite or not positive on a logarithmic axis, leaves a gap.
    """
    inside = [point for one in series for point in one.points if _drawable(point, log_x, log_y)]
    references = [(label, y) for label, y in references if _drawable((1, y), False, log_y)]
    if not inside:
        return ""
    x_axis = Axis.around([x for x, _ in inside], log_x, tight=True)
    y_axis = Axis.around([y for _, y in inside] + [y for _, y in references], log_y)
    key, top = _key([one.label for one in series if not one.quiet])
    left = 6 + y_axis.room
    room = 8 + LETTER * max((len(_cut(one.label, MOST_BESIDE)) for one in series if one.quiet), default=0)
    frame = Frame(x_axis, y_axis, left, WIDTH - max(RIGHT, room), top + 22)
    drawn = [*key, *draw_axes(frame, axes)]
    reference_lines, reference_labels = draw_references(references, frame)
    drawn += reference_lines
    beside = []
    places = {True: 0, False: 0}  # quiet series and others have their looks apart
    for one in sorted(series, key=lambda one: not one.quiet):  # what is quiet lies below
        runs = _runs(one.points, frame, log_x, log_y)
        drawn.append(_curve(one, places[one.quiet], runs))
        places[one.quiet] += 1
        if one.quiet and runs:
            _, height = max(place for run in runs for place in run)  # where it is furthest to the right
            beside.append((one.label, height + 4))
    for label, at in spread_labels(beside, frame):
        drawn.append(
            f'<text class="faint" x="{frame.right + 4:.1f}" y="{at:.1f}">{shown(_cut(label, MOST_BESIDE))}</text>'
        )
    drawn += reference_labels  # last, so that no curve strikes them out
    return _figure(frame.bottom + 36, drawn, caption, "; ".join(map(_told, series)))


def _drawable(point: tuple[float, float], log_x: bool, log_y: bool) -> bool:
    x, y = point
    return math.isfinite(x) and math.isfinite(y) and (x > 0 or not log_x) and (y > 0 or not log_y)


def _runs(
    points: Sequence[tuple[float, float]], frame: Frame, log_x: bool, log_y: bool
) -> list[list[tuple[float, float]]]:
    """The places of a curve's points, in pieces between its gaps, and not more of them than can be seen."""
    pieces: list[list[tuple[float, float]]] = [[]]
    nearest = (frame.right - frame.left) / MOST_POINTS if len(points) > MOST_POINTS else 0.0
    for i, point in enumerate(points):
        if _drawable(point, log_x, log_y):
            place = frame.across(point[0]), frame.up(point[1])
            if not pieces[-1] or i == len(points) - 1 or place[0] - pieces[-1][-1][0] >= nearest:
                pieces[-1].append(place)
        elif pieces[-1]:
            pieces.append([])
    return [piece for piece in pieces if piece]


def _curve(one: Series, place: int, runs: Sequence[Sequence[tuple[float, float]]]) -> str:
    path = "".join("M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in run) for run in runs)
    if one.quiet:
        dash = QUIET_DASHES[place % len(QUIET_DASHES)]
        return f'<g class="q"><title>{shown(one.label)}</title><path d="{path}" stroke-dasharray="{dash}"></path></g>'
    points = [point for run in runs for point in run]
    # Each curve begins its marks elsewhere, so that those of curves which run together can still be told apart.
    step = max(1, len(points) // MARKS)
    marks = "".join(mark(place, x, y) for x, y in points[place * step // len(SHAPES) % step :: step])
    return (
        f'<g class="{colour(place)}"><title>{shown(one.label)}</title>'
        f'<path d="{path}" stroke-dasharray="{_dash(place)}"></path>{marks}</g>'
    )


def mark(place: int, x: float, y: float) -> str:
    """The shape of a place in the order of curves, around a point."""
    return f'<path class="mark" transform="translate({x:.1f} {y:.1f})" d="{SHAPES[place % len(SHAPES)]}"></path>'


def colour(place: int) -> str:
    """The class of a place in the order of curves."""
    return f"k{place % len(COLOURS)}"


def _dash(place: int) -> str:
    """After one round of colours and marks, the dashes have moved on by one."""
    return DASHES[(place + place // len(DASHES)) % len(DASHES)]


def _key(labels: Sequence[str]) -> tuple[list[str], float]:
    """A sample of each curve with its label, in lines; and how high all of that is."""
    drawn, x, y = [], 0.0, 0.0
    for place, label in enumerate(labels):
        text = _cut(label, int((WIDTH - SAMPLE - 6) / LETTER))
        wide = SAMPLE + 18 + LETTER * len(text)
        if x and x + wide - 12 > WIDTH:
            x, y = 0.0, y + KEY
        drawn.append(
            f'<g class="{colour(place)}">'
            f'<path d="M{x + 1:.1f} {y + 8}h{SAMPLE - 2}" stroke-dasharray="{_dash(place)}"></path>'
            f"{mark(place, x + SAMPLE / 2, y + 8)}</g>"
            f'<text x="{x + SAMPLE + 5:.1f}" y="{y + 12}">{shown(text)}</text>'
        )
        x += wide
    return drawn, y + KEY if labels else 0.0


def draw_axes(frame: Frame, axes: tuple[str, str]) -> list[str]:
    """Ticks, their numbers, and the labels of x and y."""
    right, bottom = frame.right, frame.bottom
    drawn = []
    for y, label in frame.y.ticks:
        at = frame.up(y)
        drawn.append(
            f'<line x1="{frame.left:.1f}" x2="{right:.1f}" y1="{at:.1f}" y2="{at:.1f}"></line>'
            f'<text x="{frame.left - 5:.1f}" y="{at + 4:.1f}" class="faint end">{label}</text>'
        )
    for x, label in frame.x.ticks:
        at = frame.across(x)
        side = "end" if at > right - LETTER * len(label) / 2 and len(label) > 3 else "middle"
        drawn.append(
            f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{bottom}" y2="{bottom + 4}"></line>'
            f'<text x="{at:.1f}" y="{bottom + 17}" class="faint {side}">{label}</text>'
        )
    drawn.append(f'<text x="0" y="{frame.top - 9:.1f}" class="faint">{shown(axes[1])}</text>')
    drawn.append(f'<text x="{right:.1f}" y="{bottom + 31}" class="faint end">{shown(axes[0])}</text>')
    return drawn


def draw_references(references: Sequence[tuple[str, float]], frame: Frame) -> tuple[list[str], list[str]]:
    """Horizontal lines, and their labels above them at the right."""
    drawn, labels = [], []
    for _, y in references:
        at = f'y1="{frame.up(y):.1f}" y2="{frame.up(y):.1f}"'
        drawn.append(f'<line class="peer" x1="{frame.left:.1f}" x2="{frame.right:.1f}" {at}></line>')
    for label, at_y in spread_labels([(label, frame.up(y) - 4) for label, y in references], frame):
        labels.append(f'<text class="faint line end" x="{frame.right - 2:.1f}" y="{at_y:.1f}">{shown(label)}</text>')
    return drawn, labels


def spread_labels(labels: Sequence[tuple[str, float]], frame: Frame) -> list[tuple[str, float]]:
    """The labels, from the lowest up, moved so far that none lies on another and none leaves the plot."""
    placed, above = [], math.inf
    for done, (label, at) in enumerate(sorted(labels, key=lambda one: -one[1]), 1):
        above = max(min(at, above - APART), frame.top + 10 + APART * (len(labels) - done))
        placed.append((label, above))
    return placed


def _cut(label: str, room: int) -> str:
    return label if len(label) <= room else label[: room - 1] + "…"


def _told(one: Series) -> str:
    """A series in words: where it begins, its middle and its end."""
    if not one.points:
        return f"{one.label}: nothing"
    places = sorted({0, len(one.points) // 2, len(one.points) - 1})
    return f"{one.label}: " + ", ".join(f"{number(y)} at {number(x)}" for x, y in (one.points[i] for i in places))


def _figure(height: float, drawn: Sequence[str], caption: str, told: str) -> str:
    """`told` says the same to those who cannot see the figure."""
    return (
        f'<figure class="curves">\n<style>{colours_style()}</style>\n'
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{shown(told)}">\n'
        + "\n".join(drawn)
        + f"\n</svg>\n<figcaption>{shown(caption)}</figcaption>\n</figure>"
    )


def colours_style() -> str:
    """How curves and marks look in a figure of the class `curves`."""

    def colours(which: int) -> str:
        return " ".join(f".curves .k{i} {{ --k: {pair[which]} }}" for i, pair in enumerate(COLOURS))

    return (
        ".curves path { fill: none; stroke: var(--k); stroke-width: 1.8 } .curves .q { --k: var(--quiet) } "
        ".curves .q path { stroke-width: 1.2 } .curves .mark { fill: var(--k); stroke: var(--paper); "
        f"stroke-width: .8 }} {colours(0)} @media (prefers-color-scheme: dark) {{ {colours(1)} }}"
    )
