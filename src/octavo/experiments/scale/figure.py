"""Points and their law on logarithmic axes: the fitted line with its interval as a band, dashed where it goes on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from octavo.experiments.scale.power_law import Fit
from octavo.pages.figures.axis import Axis, number
from octavo.pages.figures.lines import WIDTH, Frame, colour, colours_style, draw_axes, draw_references, mark
from octavo.pages.frame import shown

STEPS = 60  # places along a law
EDGE = 1.15  # so that the first mark is whole
LETTER, KEY = 6.4, 17  # the width of a letter, the height of a line of the key
STYLE = (
    ".curves .band { fill: var(--k); fill-opacity: .15; stroke: none } .curves .on { stroke-dasharray: 5 4 } "
    ".curves .pale { opacity: .35 }"
)


class Drawn(NamedTuple):
    """What is drawn of one model; `others` are points that the law was not fitted to."""

    label: str
    points: Sequence[tuple[float, float]]
    fit: Fit | None
    others: Sequence[tuple[float, float]] = ()


@dataclass(frozen=True)
class FineAxis(Axis):
    """A logarithmic axis with ticks at equal distances: bits per byte rarely span a power of ten."""

    @property
    def ticks(self) -> list[tuple[float, str]]:
        return Axis(self.low, self.high, False, self.step).ticks


def law_figure(
    drawn: Sequence[Drawn], caption: str, axes: tuple[str, str], further: float,
    references: Sequence[tuple[str, float]] = (),
) -> str:  # fmt: skip
    """Points, laws up to `further` times the largest x, and labelled horizontal lines; empty without points."""
    seen = [(x, y) for one in drawn for x, y in (*one.points, *one.others) if math.isfinite(y)]
    if not seen:
        return ""
    low, high = min(x for x, _ in seen), max(x for x, _ in seen)
    x_L = np.geomspace(low, high * further, STEPS)
    bands = [_band(one.fit, x_L) for one in drawn]
    least = min([y for _, y in seen] + [y for _, y in references])
    # A band that is wider than the figure is cut off: what was measured must stay readable.
    laws = [y for one in drawn if one.fit for y in (one.fit.law(x_L[0]), one.fit.law(x_L[-1]))]
    bottom, top = min([least, *laws]) / 1.06, max([y for _, y in seen] + laws) * 1.03
    y_axis = FineAxis(bottom, top, True, Axis.around([bottom, top]).step)
    left = 6 + y_axis.room
    x_axis = Axis.around([low / EDGE, high * further], True, tight=True)
    frame = Frame(x_axis, y_axis, left, WIDTH - 12, KEY * len(drawn) + 24)
    lines, labels = draw_references(references, frame)
    body = [*_key([one.label for one in drawn]), *draw_axes(frame, axes), *lines]
    body += [
        _one(one, band, place, frame, x_L, high) for place, (one, band) in enumerate(zip(drawn, bands, strict=True))
    ]
    return _framed(frame.bottom + 36, [*body, *labels], caption, drawn)


Band = tuple[Sequence[float], Sequence[float]]


def _band(fit: Fit | None, x_L: np.ndarray) -> Band | None:
    """The ends of the interval at each place."""
    if fit is None:
        return None
    intervals = [fit.interval(x) for x in x_L.tolist()]
    return [one.low for one in intervals], [one.high for one in intervals]


def _one(one: Drawn, band: Band | None, place: int, frame: Frame, x_L: np.ndarray, high: float) -> str:
    def at(x: float, y: float) -> str:
        inside = min(max(y, frame.y.low), frame.y.high)
        return f"{frame.across(x):.1f} {frame.up(inside):.1f}"

    parts = []
    if one.fit is not None and band is not None:
        places = x_L.tolist()
        ends = [at(x, y) for x, y in zip(places, band[0], strict=True)]
        ends += reversed([at(x, y) for x, y in zip(places, band[1], strict=True)])
        parts.append(f'<path class="band" d="M{"L".join(ends)}z"></path>')
        measured, beyond = [x for x in places if x < high] + [high], [high] + [x for x in places if x > high]
        for kind, some in (("", measured), ("on", beyond)):
            parts.append(f'<path class="{kind}" d="M{"L".join(at(x, one.fit.law(x)) for x in some)}"></path>')
    for x, y in one.others:
        if math.isfinite(y):
            parts.append(f'<g class="pale">{mark(place, frame.across(x), frame.up(y))}</g>')
    parts += [mark(place, frame.across(x), frame.up(y)) for x, y in one.points if math.isfinite(y)]
    return f'<g class="{colour(place)}"><title>{shown(one.label)}</title>{"".join(parts)}</g>'


def _key(labels: Sequence[str]) -> list[str]:
    return [
        f'<g class="{colour(i)}"><path d="M1 {KEY * i + 8}h28"></path>{mark(i, 15, KEY * i + 8)}</g>'
        f'<text x="35" y="{KEY * i + 12}">{shown(label)}</text>'
        for i, label in enumerate(labels)
    ]


def _framed(height: float, body: Sequence[str], caption: str, drawn: Sequence[Drawn]) -> str:
    told = "; ".join(
        f"{one.label}: " + ", ".join(f"{y:.3f} at {number(x)}" for x, y in one.points) for one in drawn
    )  # for those who cannot see it
    return (
        f'<figure class="curves">\n<style>{colours_style()} {STYLE}</style>\n'
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{shown(told)}">\n'
        + "\n".join(body)
        + f"\n</svg>\n<figcaption>{shown(caption)}</figcaption>\n</figure>"
    )
