"""What every figure with two axes has: the plot and its axes, ticks, legend, reference lines, marks and colours."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from markupsafe import Markup

from octavo.pages.figures.svg import CHARACTER, LINE_HEIGHT, SERIES, WIDTH, halo_words, line, shape, shorten, words

TICKS = 6  # about as many are written
MIN_TICKS = 3  # on every axis
SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
WRITTEN_OUT = range(-3, 4)  # powers of ten
DIGIT_WIDTH = 7.7  # units, in the widest of the fonts that a browser may choose
WIDTHS = {  # units of other characters
    **dict.fromkeys(",.·", 3.9), **dict.fromkeys("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", 5.0), "-": 4.4, "M": 10.4,
}  # fmt: skip


@dataclass(frozen=True)
class Axis:
    """From `low` to `high`, which on a logarithmic axis are positive; on a linear one, ticks are a `step` apart."""

    low: float
    high: float
    log: bool
    step: float
    even_ticks: bool = False  # on a logarithmic axis too: bits per byte rarely span a power of ten

    @classmethod
    def around(cls, values: Sequence[float], log: bool = False, tight: bool = False) -> Axis:
        """An axis for finite numbers (positive ones, if it is logarithmic); it ends at a tick near by, or tightly."""
        low, high = min(values), max(values)
        if low == high:
            low, high = (low / 2, high * 2) if log else (low - (abs(low) / 2 or 1), high + (abs(high) / 2 or 1))
        step = _step(high - low)
        if tight:
            return cls(low, high, log, step)
        if not log:
            return cls(step * math.floor(low / step + 1e-9), step * math.ceil(high / step - 1e-9), log, step)
        round_numbers = _log_ticks(low / 10, high * 10)
        below = [tick for tick in round_numbers if tick <= low * (1 + 1e-9)]
        above = [tick for tick in round_numbers if tick >= high * (1 - 1e-9)]
        margin = (high / low) ** 0.05  # where the next round number is far away
        return cls(max(below, default=low / margin), min(above, default=high * margin), log, step)

    @property
    def label_width(self) -> float:
        """The units that the widest of its labels takes."""
        return max((text_width(label) for _, label in self.ticks), default=0.0)

    def share(self, value: float) -> float:
        """How far along the axis a value lies, from 0 to 1."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Round numbers on the axis, as they are written."""
        ticks = _log_ticks(self.low, self.high) if self.log and not self.even_ticks else []
        step = _step(self.high - self.low) if self.log and not self.even_ticks else self.step
        while len(ticks) < MIN_TICKS:
            first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
            ticks = [step * i for i in range(first, last + 1)]
            step = _next_finer(step)
        return [(tick, number(tick)) for tick in ticks]


def text_width(label: str) -> float:
    """The units that a number takes in a wide font."""
    return sum(WIDTHS.get(sign, DIGIT_WIDTH) for sign in label)


def _step(span: float) -> float:
    """A round distance, 1, 2 or 5 times a power of ten, that cuts the span in about TICKS."""
    power = 10.0 ** math.floor(math.log10(span / TICKS))
    return next(factor * power for factor in (1, 2, 5, 10, 20) if span / (factor * power) <= TICKS * (1 + 1e-9))


def _next_finer(step: float) -> float:
    """5 after 10, 2 after 5, 1 after 2."""
    power = 10.0 ** math.floor(math.log10(step) + 1e-9)
    return {1: 0.5, 2: 1, 5: 2}[round(step / power)] * power


def _log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten, every second or third of them where there are many; where there are few, 2 and 5 times them."""
    first, last = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
    every = max(1, math.ceil((last - first) / TICKS))
    factors = (1, 2, 5) if math.log10(high / low) < 2.5 else (1,)
    powers = [p for p in range(first, last + 1) if p % every == 0]
    ticks = [factor * 10.0**p for p in powers for factor in factors]
    return [tick for tick in ticks if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]


def number(value: float) -> str:
    """A number in few characters: 0.05, 2,000, 20k, 3M, 10⁻⁸."""
    if not math.isfinite(value):
        return "not finite"
    if abs(value) < sys.float_info.min:  # 10 to such a power cannot be divided by
        return "0"
    power = math.floor(math.log10(abs(value)) + 1e-9)
    for least, unit in ((6, "M"), (4, "k")):
        if least <= power < 9:
            return f"{value / 10.0 ** (least // 3 * 3):.4g}{unit}"
    if power in WRITTEN_OUT:
        return f"{float(f'{value:.4g}'):,g}"
    digits = f"{value / 10.0**power:.3g}"
    ten = "10" + str(power).translate(SUPERSCRIPT)
    return ten if digits == "1" else f"{digits}·{ten}"


MIN_LABEL_SPACE = 6  # units between the numbers of the x axis
LABEL_GAP = 13  # units; labels closer than this would overlap
LEGEND_SAMPLE = 30  # units
MARKS = (  # around the origin: a circle, a square, triangles, a diamond, a plus, a cross, polygons, stars, an hourglass
    "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z", "M-3.5 -3.5h7v7h-7z", "M0 -5L4.5 3.5H-4.5z",
    "M0 -5L5 0L0 5L-5 0z", "M0 5L4.5 -3.5H-4.5z", "M-5 -1.5h3.5v-3.5h3v3.5h3.5v3h-3.5v3.5h-3v-3.5h-3.5z",
    "M-4.5 -2.5L-2.5 -4.5L0 -2L2.5 -4.5L4.5 -2.5L2 0L4.5 2.5L2.5 4.5L0 2L-2.5 4.5L-4.5 2.5L-2 0z",
    "M5 0L-3.5 4.5V-4.5z", "M-5 0L3.5 4.5V-4.5z", "M0 -4.8L4.6 -1.5L2.8 3.9H-2.8L-4.6 -1.5z",
    "M-4.6 0L-2.3 -4H2.3L4.6 0L2.3 4H-2.3z",
    "M0 -5.2L1.4 -1.6L5.2 -1.6L2.2 0.8L3.2 4.6L0 2.3L-3.2 4.6L-2.2 0.8L-5.2 -1.6L-1.4 -1.6z",
    "M-4.2 -4.2H4.2L0.9 0L4.2 4.2H-4.2L-0.9 0z", "M-4.5 2.5a4.5 4.5 0 0 1 9 0z",
    "M0 -5L1.5 -1.5L5 0L1.5 1.5L0 5L-1.5 1.5L-5 0L-1.5 -1.5z",
    "M-2 -5h4v10h-4z",
)  # fmt: skip
FAMILIES = ("counts", "recurrent", "attention", "mixture", "pretrained")  # of models, each with a colour of its own


class Style(NamedTuple):
    """How a curve or a point is drawn: the place of its colour, and that of its mark and dashes."""

    colour: int
    mark: int


def style_at(place: int) -> Style:
    """Of a curve by its place among the curves of a figure."""
    return Style(place, place)


def family_colour(family: str) -> int:
    """The place of a family's colour, the same in all figures; families of installed packages share the last one."""
    return FAMILIES.index(family) if family in FAMILIES else len(FAMILIES)


DASHES = ("", "7 3", "2 3", "9 3 2 3", "12 4", "4 2 1 2")


@dataclass(frozen=True)
class Plot:
    """Where the plot lies and how its numbers become places."""

    x: Axis
    y: Axis
    left: float
    right: float
    top: float
    height: float = 230

    @property
    def bottom(self) -> float:
        return self.top + self.height

    def across(self, x: float) -> float:
        return self.left + (self.right - self.left) * self.x.share(x)

    def up(self, y: float) -> float:
        return self.top + self.height * (1 - self.y.share(y))

    def draw_axes(self, titles: tuple[str, str]) -> list[Markup]:
        """Ticks, their numbers, and the titles of x and y."""
        right, bottom = self.right, self.bottom
        shapes = []
        for y, label in self.y.ticks:
            at = self.up(y)
            shapes += [line(self.left, at, right, at), words(self.left - 5, at + 4, label, "end", fill="quiet")]
        free = -math.inf  # what is left of it is taken by the labels so far
        for x, label in self.x.ticks:
            at, width = self.across(x), text_width(label)
            shapes.append(line(at, bottom, at, bottom + 4))
            middle = min(at, WIDTH - width / 2)
            if middle - width / 2 >= free:
                shapes.append(words(middle, bottom + 17, label, "middle", fill="quiet"))
                free = middle + width / 2 + MIN_LABEL_SPACE
        shapes.append(words(0, self.top - 9, titles[1], fill="quiet"))
        return [*shapes, words(right, bottom + 31, titles[0], "end", fill="quiet")]

    def draw_references(self, references: Sequence[tuple[str, float]]) -> tuple[list[Markup], list[Markup]]:
        """Horizontal lines, and their labels above them at the right."""
        lines = [
            line(self.left, self.up(y), self.right, self.up(y), "quiet", stroke_dasharray="4 3") for _, y in references
        ]
        places = self.spread_labels([(label, self.up(y) - 4) for label, y in references])
        return lines, [halo_words(self.right - 2, y, label, "end", fill="quiet") for label, y in places]

    def spread_labels(self, labels: Sequence[tuple[str, float]]) -> list[tuple[str, float]]:
        """The labels, from the lowest up, moved so far that none lies on another and none leaves the plot."""
        placed, above = [], math.inf
        for done, (label, y) in enumerate(sorted(labels, key=lambda label: -label[1]), 1):
            above = max(min(y, above - LABEL_GAP), self.top + 10 + LABEL_GAP * (len(labels) - done))
            placed.append((label, above))
        return placed


def series_colour(place: int) -> str:
    """The colour of a place in the order of curves."""
    return f"series{place % SERIES}"


def mark(style: Style, x: float, y: float, is_hollow: bool = False) -> Markup:
    """A mark around a point."""
    colour = series_colour(style.colour)
    fill, stroke, width = ("paper", colour, 1.5) if is_hollow else (colour, "paper", 0.8)
    return shape(
        "path", fill=fill, stroke=stroke, stroke_width=width, class_="mark",
        transform=f"translate({x:.1f} {y:.1f})", d=MARKS[style.mark % len(MARKS)],
    )  # fmt: skip


def curve(d: str, colour: str, width: float = 1.8, dashes: str | None = None) -> Markup:
    """A line through a plot."""
    return shape("path", fill="none", stroke=colour, stroke_width=width, stroke_dasharray=dashes, d=d)


def series_curve(d: str, style: Style) -> Markup:
    """A line in the colour and dashes of a style; after one round of dashes, they have moved on by one."""
    dashes = DASHES[(style.mark + style.mark // len(DASHES)) % len(DASHES)] or None
    return curve(d, series_colour(style.colour), dashes=dashes)


def legend_sample(style: Style, x: float, y: float) -> Markup:
    """A curve's sample for the legend: its dashes and its mark."""
    drawn = series_curve(f"M{x + 1:.1f} {y:.1f}h{LEGEND_SAMPLE - 2}", style)
    return shape("g", drawn, mark(style, x + LEGEND_SAMPLE / 2, y))


def draw_legend(
    labels: Sequence[tuple[Style, str]], sample: Callable[[Style, float, float], Markup] = legend_sample,
    sample_width: float = LEGEND_SAMPLE,
) -> tuple[list[Markup], float]:  # fmt: skip
    """A sample of each style and its label, in lines; and how high all of that is."""
    shapes, x, y = [], 0.0, 0.0
    for style, label in labels:
        label = shorten(label, int((WIDTH - sample_width - 6) / CHARACTER))
        width = sample_width + 18 + CHARACTER * len(label)
        if x and x + width - 12 > WIDTH:
            x, y = 0.0, y + LINE_HEIGHT
        shapes += [sample(style, x, y + 8), words(x + sample_width + 5, y + 12, label)]
        x += width
    return shapes, y + LINE_HEIGHT if labels else 0.0
