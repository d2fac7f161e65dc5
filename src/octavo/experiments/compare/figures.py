"""The figures of a comparison, for its page and as files: SVG, PNG, and what they show as CSV."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from octavo.experiments.compare.rows import Comparison, Row
from octavo.io.files import whole_folder
from octavo.pages.figures.axis import number
from octavo.pages.figures.lines import Series, lines
from octavo.pages.figures.pareto import Mark, frontier, pareto
from octavo.pages.png import png
from octavo.pages.svg_file import standalone
from octavo.tasks.run import METRICS

FIGURES = "figures"  # the folder, in that of the comparison
FAMILIES = ("counts", "recurrent", "attention", "mixture", "pretrained")  # in the order of their marks
SHORTEST = 1e-3  # seconds: what trains faster is drawn here
EXPLAINED = (
    "Lower is better. The line joins the best that each cost buys; a hollow mark is of a dominated model, a dashed "
    "line of a general compressor. Point at a mark, or go to it with the Tab key, to read its figures."
)

Curves = Mapping[str, Sequence[tuple[float, float]]]  # of each model: seconds of training, bits per byte


class Cost(NamedTuple):
    """What a figure sets bits per byte against."""

    column: str
    name: str  # of the files
    title: str
    axis: str
    unit: str  # after the number
    why: str  # which way is better, for the caption
    more_is_better: bool = False


class Figure(NamedTuple):
    """A figure, and the table of what it shows."""

    name: str
    title: str
    html: str
    titles: tuple[str, ...]
    data: list[tuple[Any, ...]]


COSTS = (
    Cost("seconds", "bits-by-training", "Against training time", "seconds of training", "s of training",
         "Further left trains faster. Both axes are logarithmic."),
    Cost("bytes", "bits-by-size", "Against size", "bytes on disk", "bytes on disk",
         "Further left is smaller."),
    Cost("score_rate", "bits-by-speed", "Against speed", "tokens scored a second", "tokens a second",
         "Further right reads faster.", more_is_better=True),
)  # fmt: skip


def figures(comparison: Comparison, curves: Curves) -> list[Figure]:
    """The three trade-offs and the learning curves; those with nothing to draw are left out."""
    drawn = [*(trade_off(comparison, cost) for cost in COSTS), learning(curves)]
    return [figure for figure in drawn if figure.html]


def trade_off(comparison: Comparison, cost: Cost) -> Figure:
    """Bits per byte against one cost: a mark for each model, a line for each compressor."""
    models = [row for row in comparison if row.family != "compressor"]
    drawable = [(row, at) for row in models if (at := _place(row, cost)) is not None]
    best = set(frontier([at for _, at in drawable], cost.more_is_better))
    marks = [
        Mark(row.model, FAMILIES.index(row.family), *at, row.low, row.high, row.dominated, _told(row, at, cost))
        for row, at in drawable
    ]
    outside = [
        (row.model, row.bits_per_byte)
        for row in comparison
        if row.family == "compressor" and row.bits_per_byte is not None and row.error is None
    ]
    caption = f"Bits per byte against {cost.axis}. {cost.why}{_left_out(models, cost)}"
    drawing = pareto(marks, FAMILIES, outside, caption, (cost.axis, "bits per byte"), cost.more_is_better)
    data: list[tuple[Any, ...]] = [
        (row.model, row.family, x, y, row.low, row.high, row.dominated, (x, y) in best) for row, (x, y) in drawable
    ]
    data += [(model, "compressor", None, bits, None, None, False, False) for model, bits in outside]
    titles = ("model", "family", cost.column, "bits_per_byte", "low", "high", "dominated", "frontier")
    return Figure(cost.name, cost.title, drawing, titles, data)


def _place(row: Row, cost: Cost) -> tuple[float, float] | None:
    """Where a row is drawn; None where one of its two figures is missing or infinite."""
    x, y = getattr(row, cost.column), row.bits_per_byte
    if row.error is not None or x is None or y is None or not math.isfinite(y) or y <= 0:
        return None
    least = SHORTEST if cost.column == "seconds" else 1
    return max(float(x), least), y


def _told(row: Row, at: tuple[float, float], cost: Cost) -> str:
    return f"{row.model}: {at[1]:.4f} bits per byte, {number(at[0])} {cost.unit}"


def _left_out(models: Sequence[Row], cost: Cost) -> str:
    missing = [row for row in models if _place(row, cost) is None and row.error is None]
    infinite = [row.model for row in missing if row.bits_per_byte is not None and not math.isfinite(row.bits_per_byte)]
    unknown = [row.model for row in missing if row.model not in infinite]
    told = f" Infinite, and so not drawn: {', '.join(infinite)}." if infinite else ""
    return told + (f" Not drawn, having no such figure: {', '.join(unknown)}." if unknown else "")


def learning(curves: Curves) -> Figure:
    """Held-out bits per byte over the seconds of training, of each neural model."""
    series = [Series(model, points) for model, points in curves.items() if points]
    caption = (
        "Bits per byte of pieces held out of the training part, while training went on; the table's figures are of "
        "another text, the held-out one."
    )
    drawing = lines(series, caption, ("seconds of training", "bits per byte"), log_x=True) if series else ""
    data = [(one.label, x, y) for one in series for x, y in one.points]
    return Figure("learning-curves", "How they learnt", drawing, ("model", "seconds", "held_out_bits_per_byte"), data)


def read_curves(comparison: Comparison) -> dict[str, list[tuple[float, float]]]:
    """What the runs' metrics say of their learning; models that did not learn step by step are left out."""
    curves = {}
    for row in comparison:
        path = comparison.folder / row.run / METRICS if comparison.folder and row.run else None
        if path is not None and path.is_file() and (points := _held_out(path)):
            curves[row.model] = points
    return curves


def _held_out(path: Path) -> list[tuple[float, float]]:
    """The points of one run, over the seconds that its log gives."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
    return [
        (max(SHORTEST, float(row["seconds"])), float(row["held_out_bits_per_byte"]))
        for row in rows
        if isinstance(row.get("held_out_bits_per_byte"), int | float) and isinstance(row.get("seconds"), int | float)
    ]


def write_figures(drawn: Sequence[Figure], folder: Path) -> list[Path]:
    """Each figure as .svg, .png and .csv, in the folder `figures` of a comparison's folder."""
    with whole_folder(folder / FIGURES) as work:
        for figure in drawn:
            svg = standalone(figure.html)
            (work / f"{figure.name}.svg").write_text(svg, encoding="utf-8")
            (work / f"{figure.name}.png").write_bytes(png(svg))
            (work / f"{figure.name}.csv").write_text(_csv(figure), encoding="utf-8")
    return sorted((folder / FIGURES).iterdir())


def _csv(figure: Figure) -> str:
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerows([figure.titles, *figure.data])
    return written.getvalue()
