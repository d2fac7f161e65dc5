"""The page of a series: its figures, laws and crossing, and every point."""

from __future__ import annotations

from octavo.experiments.scale.figure import Drawn, law_figure
from octavo.experiments.scale.measure import Point
from octavo.experiments.scale.power_law import LEVEL
from octavo.experiments.scale.result import EXTRAPOLATED, Curve, Scaling, Variable, value_of
from octavo.experiments.scale.wording import crossing_lines, joint_line, law_lines, limit_lines
from octavo.experiments.table import columns_of
from octavo.pages.frame import document, paragraph, section, shown, table, verbatim

AXES: dict[Variable, str] = {
    "text": "bytes of text to learn from", "parameters": "parameters", "flops": "FLOPs of training",
}  # fmt: skip
HOW = (
    f"A law is fitted by least squares of relative errors. Its interval ({LEVEL:.0%}) is that of refits to the law's "
    "own values with noise as large as the points' misses; with few points it is wide, and that is the truth about few "
    "points. It knows nothing of a bend that comes later, so what is extrapolated is worth less the further it goes. "
    "All texts to learn from are ends of the same training part, so a longer one holds the shorter ones. The size of a "
    "network and the order of an n-gram are chosen for each length on validation chunks of the training text, never "
    "on the text that the figures are of."
)


def scaling_page(scaling: Scaling) -> str:
    """The whole page."""
    models = scaling.model if scaling.against is None else f"{scaling.model} and {scaling.against}"
    lead = paragraph(
        f"{len(scaling.points)} trainings, all measured on the same {scaling.held_out_bytes:,} bytes of "
        f"{scaling.corpus} that none of them learnt from. Bits per byte, lower is better."
    )
    body = [section("More text", _text_figure(scaling), *_told(scaling, list(scaling.text.values())))]
    if scaling.against is not None:
        body.append(section("Where they cross", *map(paragraph, crossing_lines(scaling))))
    for title, curve in (("More training", scaling.training), ("More parameters", scaling.parameters)):
        if curve is not None:
            body.append(section(title, _figure(scaling, curve), *_told(scaling, [curve])))
    if scaling.joint is not None and scaling.joint.whole:
        body.append(section("Parameters and text together", paragraph(joint_line(scaling.joint))))
    if limits := limit_lines(scaling):
        body.append(section("What is the limit", *map(paragraph, limits)))
    body += [section("The points", _points(scaling), paragraph(MARKED, "quiet")), section("How", paragraph(HOW))]
    body += [section("Make it again", verbatim(scaling.command))] if scaling.command else []
    return document(f"Scaling: {models} on {scaling.corpus}", lead, body)


MARKED = "*: the size that was best on validation chunks of the training text; the law over text goes through it."


def _told(scaling: Scaling, curves: list[Curve]) -> list[str]:
    return [paragraph(line) for curve in curves for line in law_lines(curve, scaling)]


def _text_figure(scaling: Scaling) -> str:
    drawn = []
    for model, curve in scaling.text.items():
        taken = set(curve.points)
        others = [(value_of(p, "text"), p.bits) for p in scaling.points
                  if p.model == model and p.budget == 1 and p not in taken]  # fmt: skip
        drawn.append(Drawn(_label(curve), curve.xy, curve.fit, others))
    return law_figure(drawn, _caption(any(one.others for one in drawn)), (AXES["text"], "bits per byte"), EXTRAPOLATED)


def _figure(scaling: Scaling, curve: Curve) -> str:
    references = []
    if scaling.against is not None and (best := _whole(scaling, scaling.against)) is not None:
        references.append((f"{scaling.against}, the whole text", best.bits))
    drawn = [Drawn(_label(curve), curve.xy, curve.fit)]
    return law_figure(drawn, _caption(), (AXES[curve.variable], "bits per byte"), EXTRAPOLATED, references)


def _whole(scaling: Scaling, model: str) -> Point | None:
    """A model's point on the whole text, where it is finite."""
    found = [p for p in scaling.text[model].points if p.bytes == scaling.text_bytes and p.bits_per_byte is not None]
    return found[0] if found else None


def _label(curve: Curve) -> str:
    if curve.variable == "flops":
        return f"{curve.model}, the whole text, longer and longer"
    if curve.variable == "parameters":
        return f"{curve.model}, the whole text, wider and wider"
    return f"{curve.model}, order chosen for each length" if curve.model == "ngram" else curve.model


def _caption(others: bool = False) -> str:
    pale = "; pale ones are other sizes" if others else ""
    return (
        f"Marks are measured{pale}. The line is the law, dashed where it goes beyond what was "
        f"measured, up to {EXTRAPOLATED:.0f} times; the band is its interval ({LEVEL:.0%})."
    )


def _points(scaling: Scaling) -> str:
    columns = columns_of(Point, "page", scaling.rows)
    rows = [[shown(column.text(point)) for column in columns] for point in scaling.rows]
    right = [i for i, column in enumerate(columns) if column.align == "right"]
    return table([column.title for column in columns], rows, right=tuple(right))
