"""Figures as inline SVG, drawn 360 units wide so that their letters stay readable on a telephone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from octavo.report.page import shown

WIDTH = 360
BAR, STEP = 16, 24  # the height of a bar, and from one to the next
TOP, LEFT, RIGHT, PLOT = 24, 26, 10, 250  # the frame of the scatter plot and its height
LETTER = 7.4  # the width of a wide letter of the figures' font
APART = 13  # labels closer than this would overlap


class Point(NamedTuple):
    """One thing to plot."""

    label: str
    x: float
    y: float


def bars(rows: Sequence[tuple[str, float]], caption: str, digits: int = 0) -> str:
    """Horizontal bars with their numbers to so many digits after the point; labels are plain text."""
    most = max((value for _, value in rows), default=0) or 1
    left = min(120, 10 + LETTER * max((len(label) for label, _ in rows), default=0))
    numbers = [f"{value:,.{digits}f}" for _, value in rows]
    room = WIDTH - left - 10 - LETTER * max((len(number) for number in numbers), default=0)
    drawn = []
    for i, ((label, value), number) in enumerate(zip(rows, numbers, strict=True)):
        y, width = i * STEP + 4, max(1.0, room * value / most)
        drawn.append(
            f'<text x="{left - 6:.0f}" y="{y + 12}" class="end">{shown(label)}</text>'
            f'<rect class="bar" x="{left:.0f}" y="{y}" width="{width:.1f}" height="{BAR}"></rect>'
            f'<text x="{left + width + 5:.1f}" y="{y + 12}">{number}</text>'
        )
    told = "; ".join(f"{label}: {number}" for (label, _), number in zip(rows, numbers, strict=True))
    return _figure(len(rows) * STEP + 4, drawn, caption, told)


def scatter(points: Sequence[Point], lines: Sequence[tuple[str, float]], caption: str, axes: tuple[str, str]) -> str:
    """Numbered points over a logarithmic x, and labelled horizontal lines; `axes` are the labels of x and y."""
    if not points:
        return ""
    x_low, x_high = _decades([point.x for point in points])
    heights = [point.y for point in points] + [y for _, y in lines]
    y_low, y_high = math.floor(min(heights)), math.ceil(max(heights) + 0.01)

    def across(x: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (math.log10(x) - x_low) / (x_high - x_low)

    def up(y: float) -> float:
        return TOP + PLOT * (y_high - y) / (y_high - y_low)

    drawn = [_y_tick(up(y), y) for y in range(y_low, y_high + 1)]
    drawn += [_x_tick(across(10.0**power), f"{10.0**power:g}") for power in range(x_low, x_high + 1)]
    for _, y in lines:
        drawn.append(f'<line class="peer" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{up(y):.1f}" y2="{up(y):.1f}"></line>')
    for (label, _), at in zip(lines, _spread([up(y) - 4 for _, y in lines]), strict=True):
        drawn.append(f'<text class="faint line end" x="{WIDTH - RIGHT}" y="{at:.1f}">{shown(label)}</text>')
    for number, point in enumerate(points, 1):
        x, y = across(point.x), up(point.y)
        drawn.append(
            f'<g><title>{shown(point.label)}: {point.y:.4f}, {point.x:.2f} s</title>'
            f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="8"></circle>'
            f'<text class="on" x="{x:.1f}" y="{y + 4:.1f}">{number}</text></g>'
        )  # fmt: skip
    drawn.append(f'<text x="2" y="{TOP - 12}" class="faint">{shown(axes[1])}</text>')
    drawn.append(f'<text x="{WIDTH - RIGHT}" y="{TOP + PLOT + 31}" class="faint end">{shown(axes[0])}</text>')
    told = "; ".join(f"{number}: {point.label}" for number, point in enumerate(points, 1))
    return _figure(TOP + PLOT + 36, drawn, caption, told)


def _decades(values: Sequence[float]) -> tuple[int, int]:
    """The powers of ten around some positive numbers, with a little room."""
    low, high = math.floor(math.log10(min(values) / 1.2)), math.ceil(math.log10(max(values) * 1.2))
    return low, max(high, low + 1)


def _spread(heights: Sequence[float]) -> list[float]:
    """The same heights, from the lowest line up, moved so far that their labels do not overlap."""
    placed: dict[int, float] = {}
    above = math.inf
    for i in sorted(range(len(heights)), key=lambda i: -heights[i]):
        placed[i] = above = min(heights[i], above - APART)
    return [placed[i] for i in range(len(heights))]


def _y_tick(at: float, y: int) -> str:
    return (
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"></line>'
        f'<text x="{LEFT - 6}" y="{at + 4:.1f}" class="faint end">{y}</text>'
    )


def _x_tick(at: float, label: str) -> str:
    return (
        f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{TOP + PLOT}"></line>'
        f'<text x="{at:.1f}" y="{TOP + PLOT + 15}" class="faint middle">{label}</text>'
    )


def _figure(height: float, drawn: Sequence[str], caption: str, told: str) -> str:
    """`told` says the same to those who cannot see the figure."""
    return (
        f'<figure>\n<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{shown(told)}">\n'
        + "\n".join(drawn)
        + f"\n</svg>\n<figcaption>{shown(caption)}</figcaption>\n</figure>"
    )
