"""The page of a scaling study: its figures, power laws and crossing, and every point."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from octavo.experiments.scale.measure import ScalePoint
from octavo.experiments.scale.power_law import CONFIDENCE, Fit
from octavo.experiments.scale.result import EXTRAPOLATED, ScaleCurve, Scaling, Variable, value_of
from octavo.experiments.scale.wording import crossing_lines, joint_line, law_lines, limit_lines
from octavo.experiments.table import page_table
from octavo.pages.figures import plot as plots
from octavo.pages.figures.plot import (
    Axis,
    EvenLogAxis,
    Plot,
    draw_axes,
    draw_legend,
    draw_references,
    mark,
    number,
    series_colour,
)
from octavo.pages.figures.svg import WIDTH, Drawing, figure, path, shape
from octavo.pages.markup import NOTHING, element
from octavo.pages.sections import paragraph, paragraphs, render_page, reproduce, section

AXES: dict[Variable, str] = {
    "text": "bytes of training text", "parameters": "parameters", "flops": "training FLOPs",
}  # fmt: skip
HOW = (
    f"A power law is fitted by least squares of relative errors. Its interval ({CONFIDENCE:.0%}) is that of refits to "
    "the law's own values with noise as large as the residuals (parametric bootstrap); with few points it is wide. It "
    "knows nothing of a bend that comes later, so an extrapolation is worth less the further it goes. All training "
    "texts are ends of the same training part, so a longer one contains the shorter ones. The size of a network and "
    "the order of an n-gram are chosen for each length on validation chunks of the training text, never on the text "
    "that the results are of."
)
CURVE_POINTS = 60  # along a law
EDGE = 1.15  # so that the first mark is whole
RIGHT = 12  # units at the right of the plot
MARKED = "*: the size that was best on the validation chunks; the law over text goes through it."


def scaling_page(scaling: Scaling) -> str:
    """The whole page."""
    models = scaling.model if scaling.against is None else f"{scaling.model} and {scaling.against}"
    lead = (
        f"{len(scaling.points)} trainings, all measured on the same {scaling.held_out_bytes:,} bytes of "
        f"{scaling.corpus} that none of them was trained on. Bits per byte, lower is better."
    )
    curves = [(title, curve) for title, curve in (("More compute", scaling.training),
                                                  ("More parameters", scaling.parameters)) if curve]  # fmt: skip
    joint = scaling.joint
    return render_page(f"Scaling: {models} on {scaling.corpus}", lead, [
        section("More text", _text_figure(scaling), _laws(scaling, list(scaling.text.values()))),
        section("Where they cross", paragraphs(crossing_lines(scaling))) if scaling.against is not None else NOTHING,
        *(section(title, _figure(scaling, curve), _laws(scaling, [curve])) for title, curve in curves),
        section("Parameters and text together", paragraph(joint_line(joint))) if joint and joint.whole else NOTHING,
        section("What limits the model", paragraphs(limit_lines(scaling))),
        section("Results", page_table(scaling.rows), paragraph(MARKED, quiet=True)), section("Method", paragraph(HOW)),
        reproduce([scaling.command]) if scaling.command else NOTHING,
    ])  # fmt: skip


def _laws(scaling: Scaling, curves: list[ScaleCurve]) -> Markup:
    return paragraphs(line for curve in curves for line in law_lines(curve, scaling))


def _text_figure(scaling: Scaling) -> Markup:
    drawn = []
    for model, curve in scaling.text.items():
        taken = set(curve.points)
        others = [(value_of(p, "text"), p.bits) for p in scaling.points
                  if p.model == model and p.budget == 1 and p not in taken]  # fmt: skip
        drawn.append(FittedPoints(_label(curve), curve.xy, curve.fit, others))
    return law_figure(drawn, _caption(any(one.others for one in drawn)), (AXES["text"], "bits per byte"), EXTRAPOLATED)


def _figure(scaling: Scaling, curve: ScaleCurve) -> Markup:
    references = []
    if scaling.against is not None and (best := _whole(scaling, scaling.against)) is not None:
        references.append((f"{scaling.against}, the whole text", best.bits))
    drawn = [FittedPoints(_label(curve), curve.xy, curve.fit)]
    return law_figure(drawn, _caption(), (AXES[curve.variable], "bits per byte"), EXTRAPOLATED, references)


def _whole(scaling: Scaling, model: str) -> ScalePoint | None:
    """A model's point on the whole text, where it is finite."""
    found = [p for p in scaling.text[model].points if p.bytes == scaling.text_bytes and p.bits_per_byte is not None]
    return found[0] if found else None


def _label(curve: ScaleCurve) -> str:
    if curve.variable == "flops":
        return f"{curve.model}, the whole text, more steps"
    if curve.variable == "parameters":
        return f"{curve.model}, the whole text, wider"
    return f"{curve.model}, order chosen for each length" if curve.model == "ngram" else curve.model


def _caption(others: bool = False) -> str:
    pale = "; pale ones are other sizes" if others else ""
    return (
        f"Marks are measured{pale}. The line is the fitted law, dashed where it is extrapolated, up to "
        f"{EXTRAPOLATED:.0f} times; the band is its interval ({CONFIDENCE:.0%})."
    )


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
            parts.append(plots.curve(path([at(x, one.fit.law(x)) for x in xs]), colour, dashes=dashes))
    others = [mark(place, *at(x, y)) for x, y in one.others if math.isfinite(y)]
    parts += [shape("g", *others, opacity=0.35)] if others else []
    return shape("g", *parts, *(mark(place, *at(x, y)) for x, y in one.points if math.isfinite(y)))
