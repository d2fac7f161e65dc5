"""Where the parts of a figure lie: names beside their marks without touching anything, ticks on every axis, one colour
for each family and one mark for each model, and curves whose first values do not flatten the rest.
"""

from __future__ import annotations

import itertools
import math
import re

import numpy as np
import pytest
from markupsafe import Markup

from html_pages import elements
from octavo.experiments.compare.advice import rank_rows
from octavo.experiments.compare.compressors import COMPRESSORS
from octavo.experiments.compare.figures import COSTS, learning_curves, styles_of, trade_off
from octavo.experiments.compare.rows import CompareRow, Comparison
from octavo.pages.figures.charts import Series, draw_lines
from octavo.pages.figures.pareto import HALF_MARK, MAX_NAME, NAME_CHARACTER
from octavo.pages.figures.plot import FAMILIES, MARKS, MIN_TICKS, Axis
from octavo.pages.figures.svg import WIDTH, Drawing, shorten

Box = tuple[float, float, float, float]  # left, top, right, bottom
FONT_HEIGHT, DESCENT = 10, 2  # units of the signs of a label above and below its line


def made_comparison(seed: int) -> Comparison:
    """Models of all families at drawn places: few and many, spread and crowded, short names and long ones."""
    draw = np.random.default_rng(seed)
    rows = []
    crowded = draw.random() < 0.5
    for i in range(int(draw.integers(2, 26))):
        family = FAMILIES[int(draw.integers(len(FAMILIES)))]
        bits = float(2 + (0.05 if crowded else 1.5) * draw.random())
        seconds = float(np.exp(draw.normal() * (0.2 if crowded else 3)))
        name = f"{family[:3]}{i}" + "-of-a-plug-in-package" * bool(draw.random() < 0.1)
        rows.append(
            CompareRow(
                name, name, family, bits, low=bits * 0.98, high=bits * 1.02, seconds=seconds,
                bytes=int(seconds * 10_000), score_rate=1e5 / seconds,
            )
        )  # fmt: skip
    rows += [CompareRow(name, name, "compressor", 2 + float(draw.random())) for name in COMPRESSORS]
    return Comparison(rank_rows(tuple(rows)), {"name": "made.txt"})


def drawings(seed: int) -> list[tuple[Comparison, Drawing]]:
    comparison = made_comparison(seed)
    drawn = [trade_off(comparison, cost).drawing for cost in COSTS]
    return [(comparison, one) for one in drawn if one is not None]


def label_box(text: object, width: float) -> Box:
    get = text.get  # type: ignore[attr-defined]
    left = float(get("x")) - {"end": width, "middle": width / 2}.get(get("text-anchor", ""), 0.0)
    return left, float(get("y")) - FONT_HEIGHT, left + width, float(get("y")) + DESCENT


def boxes_of(comparison: Comparison, drawing: Drawing) -> tuple[dict[str, Box], list[Box], list[Box]]:
    """Of the models' names, of the compressors' names, and of the marks in the plot."""
    page = Markup(drawing.inline())
    models = {shorten(row.model, MAX_NAME) for row in comparison if row.family != "compressor"}
    outside = {row.model for row in comparison if row.family == "compressor"}
    names: dict[str, Box] = {}
    compressors = []
    for text in elements(page, "text"):
        label = text.text or ""
        if label in models and text.get("paint-order"):
            names[label] = label_box(text, NAME_CHARACTER * len(label))
        elif label in outside:
            compressors.append(label_box(text, NAME_CHARACTER * len(label)))
    marks = []
    for group in elements(page, "g"):
        for one in group if group.get("class") == "point" else ():
            if found := re.match(r"translate\(([-\d.]+) ([-\d.]+)\)", one.get("transform", "")):
                x, y = map(float, found.groups())
                marks.append((x - HALF_MARK, y - HALF_MARK, x + HALF_MARK, y + HALF_MARK))
    return names, compressors, marks


def overlap(a: Box, b: Box) -> bool:
    slack = 0.11  # places are written with one digit
    wide = min(a[2], b[2]) - max(a[0], b[0])
    high = min(a[3], b[3]) - max(a[1], b[1])
    return wide > slack and high > slack


@pytest.mark.parametrize("seed", range(30))
def test_names_lie_on_no_other_name_and_on_no_mark_and_inside_the_plot(seed: int) -> None:
    for comparison, drawing in drawings(seed):
        names, compressors, marks = boxes_of(comparison, drawing)
        assert len(names) == len(marks) == sum(row.family != "compressor" for row in comparison)
        for (name, box), (other, second) in itertools.combinations(names.items(), 2):
            assert not overlap(box, second), f"{name} on {other}"
        for name, box in names.items():
            assert not any(overlap(box, one) for one in marks), f"{name} on a mark"
            assert not any(overlap(box, one) for one in compressors), f"{name} on a compressor's name"
            assert not any(overlap(one, other) for one in compressors for other in marks), "a compressor's on a mark"
            assert box[0] >= 0
            assert box[2] <= WIDTH


@pytest.mark.parametrize("seed", range(30))
def test_a_family_has_one_colour_and_a_model_one_mark_in_every_figure(seed: int) -> None:
    comparison = made_comparison(seed)
    styles = styles_of(comparison)
    families = {row.model: row.family for row in comparison if row.family != "compressor"}
    colours = {(families[model], style.colour) for model, style in styles.items()}
    assert len(colours) == len(set(families.values()))
    assert len({style.mark for style in styles.values()}) == len(styles)
    curves = {model: [(1.0, 4.0), (10.0, 3.0)] for model, family in families.items() if family == "recurrent"}
    learnt = learning_curves(curves, styles).drawing
    figures = [trade_off(comparison, cost).drawing for cost in COSTS] + ([learnt] if learnt else [])
    seen: dict[str, set[tuple[str, str]]] = {}
    for drawing in figures:
        assert drawing is not None
        for group in elements(Markup(drawing.inline()), "g"):
            title = next((one.text for one in group if one.tag.endswith("title")), None)
            for one in group:
                if title and "mark" in (one.get("class") or "").split():
                    colour = one.get("stroke") if "fill-paper" in one.get("class", "") else one.get("fill")
                    seen.setdefault(title.split(":")[0], set()).add((str(colour), str(one.get("d"))))
    assert seen.keys() == families.keys()
    assert all(len(looks) == 1 for looks in seen.values())


def test_all_marks_are_different() -> None:
    assert len(set(MARKS)) == len(MARKS) >= 16


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("tight", [False, True])
def test_every_axis_has_several_round_ticks(log: bool, tight: bool) -> None:
    draw = np.random.default_rng(0)
    for _ in range(300):
        low = float(np.exp(draw.normal() * 5))
        values = [low, low * (1 + float(np.exp(draw.normal() * 3 - 2)))]
        axis = Axis.around(values, log, tight)
        ticks = axis.ticks
        assert MIN_TICKS <= len(ticks) <= 12, (values, ticks)
        assert len({label for _, label in ticks}) == len(ticks) or values[1] / values[0] < 1.01, (values, ticks)


def test_numbers_of_the_x_axis_never_touch() -> None:
    draw = np.random.default_rng(1)
    for log in (False, True):
        for _ in range(100):
            low = float(np.exp(draw.normal() * 4))
            points = [(low, 1.0), (low * (1 + float(np.exp(draw.normal() * 3))), 2.0)]
            drawn = draw_lines([Series("a", points)], ("x", "y"), log_x=log)
            assert drawn is not None
            numbers = [text for text in elements(Markup(drawn.inline()), "text") if text.get("text-anchor") == "middle"]
            boxes = sorted(label_box(text, 6.4 * len(text.text or "")) for text in numbers)
            assert len(boxes) >= 2
            assert all(a[2] < b[0] for a, b in itertools.pairwise(boxes)), points
            assert boxes[-1][2] <= WIDTH


def curve_heights(drawing: Drawing) -> list[float]:
    """The y of the points of every curve in the plot."""
    paths = [one.get("d", "") for one in elements(Markup(drawing.inline()), "path")
             if one.get("fill") == "none" and "h" not in one.get("d", "")]  # fmt: skip
    return [float(place.split()[1]) for d in paths for place in re.split("[ML]", d) if place]


def test_the_first_losses_leave_the_plot_and_the_rest_is_seen() -> None:
    curve = [(1.0, 9.0), *((float(i), 2 + 1 / i) for i in range(2, 41))]
    plain, cut = (draw_lines([Series("loss", curve)], ("step", "nats"), cut_peaks=peaks) for peaks in (False, True))
    assert plain is not None
    assert cut is not None

    def rest(drawing: Drawing) -> float:
        heights = curve_heights(drawing)[-30:]
        return max(heights) - min(heights)

    assert rest(cut) > 3 * rest(plain)
    assert "▲ from 9" in [text.text for text in elements(Markup(cut.inline()), "text")]
    lowest_tick = min(float(text.get("y", "0")) for text in elements(Markup(cut.inline()), "text") if text.text == "2")
    assert all(math.isfinite(y) and y <= lowest_tick for y in curve_heights(cut))


def test_without_peaks_nothing_is_cut() -> None:
    curve = [(float(i), 3.0 - 0.1 * i) for i in range(10)]
    drawn = [draw_lines([Series("loss", curve)], ("step", "nats"), cut_peaks=peaks) for peaks in (False, True)]
    assert drawn[0] == drawn[1]


def test_a_curve_that_crosses_the_top_is_cut_there() -> None:
    curve = [(0.0, 1.0), (1.0, 1.1), (2.0, 50.0), (3.0, 1.1), *((float(i), 1.0) for i in range(4, 40))]
    drawn = draw_lines([Series("loss", curve)], ("step", "nats"), cut_peaks=True)
    assert drawn is not None
    heights = curve_heights(drawn)
    top = min(heights)
    assert heights.count(top) == 2  # once up, once down
