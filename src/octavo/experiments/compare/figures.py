"""The figures of a comparison, for its page and as files: SVG, and their data as CSV."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup

from octavo.experiments.compare.rows import COMPRESSOR, CompareRow, Comparison
from octavo.experiments.table import ADAPTIVE_MARK, csv_text
from octavo.io.files import whole_folder
from octavo.io.run_folder import METRICS
from octavo.pages.figures.charts import Series, draw_lines
from octavo.pages.figures.pareto import Mark, draw_pareto, frontier
from octavo.pages.figures.plot import Style, family_colour, number
from octavo.pages.figures.svg import Drawing, figure
from octavo.pages.markup import NOTHING
from octavo.pages.sections import paragraph, section, side_by_side, subsection
from octavo.training.metrics_log import read_rows

FIGURES = "figures"  # the folder inside that of the comparison
MIN_SECONDS = 1e-3  # what trains faster is drawn here
EXPLAINED = (
    "Lower is better. The line joins the best that each cost buys; a hollow mark is of a dominated model, a dashed "
    "line of a general compressor. Point at a mark, or go to it with the Tab key, to read its numbers."
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
    """A figure, and the table of its data."""

    name: str
    title: str
    drawing: Drawing | None
    caption: str
    columns: tuple[str, ...]
    data: list[tuple[Any, ...]]

    def __html__(self) -> str:
        return figure(self.drawing, self.caption)


COSTS = (
    Cost("seconds", "bits-by-training", "Against training time", "seconds of training", "s of training",
         "Further left trains faster. Both axes are logarithmic."),
    Cost("bytes", "bits-by-size", "Against size", "bytes on disk", "bytes on disk",
         "Further left is smaller."),
    Cost("score_rate", "bits-by-speed", "Against speed", "tokens scored per second", "tokens per second",
         "Further right reads faster.", more_is_better=True),
)  # fmt: skip


def draw_figures(comparison: Comparison, curves: Curves, folder: Path) -> list[Figure]:
    """The three trade-offs and the learning curves, but for those with nothing to draw; in the folder `figures` of a
    comparison's folder, each also as .svg and .csv."""
    drawn = [*(trade_off(comparison, cost) for cost in COSTS), learning_curves(curves, styles_of(comparison))]
    drawn = [one for one in drawn if one.drawing]
    with whole_folder(folder / FIGURES) as work:
        for one in drawn:
            assert one.drawing is not None
            (work / f"{one.name}.svg").write_text(one.drawing.file(one.caption), encoding="utf-8")
            (work / f"{one.name}.csv").write_text(csv_text(one.columns, one.data), encoding="utf-8")
    return drawn


def figures_section(drawn: Sequence[Figure]) -> Markup:
    """The section of the page with the figures."""
    if not drawn:
        return NOTHING
    files = f"The same figures as SVG files, with their data as CSV, are in the folder {FIGURES}."
    cells = side_by_side(*(subsection(figure.title, figure) for figure in drawn))
    return section("Cost and learning curves", paragraph(EXPLAINED), cells, paragraph(files, quiet=True))


def trade_off(comparison: Comparison, cost: Cost) -> Figure:
    """Bits per byte against one cost: a mark for each model, a line for each compressor."""
    models = [row for row in comparison if row.family != COMPRESSOR]
    drawable = [(row, at) for row in models if (at := _place(row, cost)) is not None]
    best = set(frontier([at for _, at in drawable], cost.more_is_better))
    styles = styles_of(comparison)
    marks = [
        Mark(_label(row), row.family, styles[row.model], x, y, row.low, row.high, row.dominated,
             f"{row.model}{', adaptive' if row.adaptive else ''}: {y:.4f} bits per byte, {number(x)} {cost.unit}")
        for row, (x, y) in drawable
    ]  # fmt: skip
    outside = [
        (row, bits)
        for row in comparison  # on a logarithmic axis there is no place for 0, which text that repeats itself may take
        if row.family == COMPRESSOR and row.error is None and (bits := row.bits_per_byte or 0.0) > 0
    ]
    drawn = [row for row, _ in (*drawable, *outside)]
    adaptive = f" {ADAPTIVE_MARK}: adaptive." if any(row.adaptive for row in drawn) else ""
    caption = f"Bits per byte against {cost.axis}. {cost.why}{adaptive}{_left_out(models, cost)}"
    lines = [(_label(row), bits) for row, bits in outside]
    drawing = draw_pareto(marks, lines, (cost.axis, "bits per byte"), cost.more_is_better)
    data: list[tuple[Any, ...]] = [
        (row.model, row.family, x, y, row.low, row.high, row.dominated, row.adaptive, (x, y) in best)
        for row, (x, y) in drawable
    ]
    data += [(row.model, COMPRESSOR, None, bits, None, None, False, row.adaptive, False) for row, bits in outside]
    columns = ("model", "family", cost.column, "bits_per_byte", "low", "high", "dominated", "adaptive", "frontier")
    return Figure(cost.name, cost.title, drawing, caption, columns, data)


def _label(row: CompareRow) -> str:
    return f"{row.model} {ADAPTIVE_MARK}" if row.adaptive else row.model


def styles_of(comparison: Comparison) -> dict[str, Style]:
    """A colour for each family and a mark for each model, the same in every figure."""
    models = [(family_colour(row.family), row.model) for row in comparison if row.family != COMPRESSOR]
    return {model: Style(colour, place) for place, (colour, model) in enumerate(sorted(models))}


def _place(row: CompareRow, cost: Cost) -> tuple[float, float] | None:
    """Where a row is drawn; None where one of its two numbers is missing or infinite."""
    x, y = getattr(row, cost.column), row.bits_per_byte
    if x is None or y is None or not row.is_finite or y <= 0:
        return None
    return max(float(x), MIN_SECONDS if cost.column == "seconds" else 1), y


def _left_out(models: Sequence[CompareRow], cost: Cost) -> str:
    missing = [row for row in models if _place(row, cost) is None and row.error is None]
    infinite = [row.model for row in missing if row.bits_per_byte is not None and not row.is_finite]
    unknown = [row.model for row in missing if row.model not in infinite]
    words = f" Infinite, and so not drawn: {', '.join(infinite)}." if infinite else ""
    return words + (f" Not drawn, because unknown: {', '.join(unknown)}." if unknown else "")


def learning_curves(curves: Curves, styles: Mapping[str, Style]) -> Figure:
    """Validation bits per byte over the seconds of training, of each neural model."""
    series = [Series(model, points, style=styles.get(model)) for model, points in curves.items() if points]
    caption = (
        "Bits per byte of the validation chunks during training; the table's results are of another text, the held-out "
        "one."
    )
    drawing = draw_lines(series, ("seconds of training", "bits per byte"), log_x=True, cut_peaks=True)
    data = [(one.label, x, y) for one in series for x, y in one.points]
    columns = ("model", "seconds", "held_out_bits_per_byte")
    return Figure("learning-curves", "Learning curves", drawing, caption, columns, data)


def read_curves(comparison: Comparison) -> dict[str, list[tuple[float, float]]]:
    """The validation curves in the runs' metrics; models that were not trained step by step are left out."""
    curves = {}
    for row in comparison:
        if path := comparison.file(row.run and f"{row.run}/{METRICS}"):
            logged = [(one.get("seconds"), one.get("held_out_bits_per_byte")) for one in read_rows(path.read_bytes())]
            numbers = [(x, y) for x, y in logged if isinstance(x, int | float) and isinstance(y, int | float)]
            curves[row.model] = [(max(MIN_SECONDS, float(x)), float(y)) for x, y in numbers]
    return {model: points for model, points in curves.items() if points}
