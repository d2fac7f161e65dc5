"""Figures: shapes lie where their numbers say, labels stay inside, and any text stays text."""

from __future__ import annotations

import math
from typing import Any

import pytest

from html_pages import HOSTILE, Page, elements
from octavo.pages.figures.charts import LABEL, NUMBER, Bar, Series, bars, lines, stacked_bars
from octavo.pages.figures.plot import DASHES, MARKS, Axis, number
from octavo.pages.figures.shaded_cells import (
    HeadMap,
    Thumbnail,
    attention_maps,
    image_symbol,
    shaded_matrices,
    thumbnails,
)
from octavo.pages.figures.svg import COLOURS, WIDTH
from octavo.pages.figures.token_rows import Strip, attention_rows, bar_strips, strips

FONT_SIZE = 12  # of the text, in the figure's units
EMS = {"M": 0.863, "k": 0.579, ".": 0.318, ",": 0.318, "·": 0.318, "-": 0.361}  # of DejaVu Sans, a wide font
DIGIT, RAISED = 0.636, 0.401
GROUPS = ("never", "unknown", "frequent", "other")


def width_of(text: str) -> float:
    """How wide a browser draws it."""
    return FONT_SIZE * sum(EMS.get(sign, DIGIT if sign.isascii() else RAISED) for sign in text)


def curves(figure: str) -> list[str]:
    """The paths of the curves, without those of the legend and the marks."""
    return [one.attrib["d"] for one in elements(figure, "path") if one.get("fill") == "none" and "L" in one.attrib["d"]]


def axis_labels(figure: str) -> list[tuple[float, str]]:
    texts = [text for text in elements(figure, "text") if text.get("text-anchor") == "end"]
    return [(float(text.attrib["x"]), text.text or "") for text in texts]


@pytest.mark.parametrize(
    ("low", "high", "log", "label"),
    [(1e4, 3e8, True, "100M"), (1e-12, 1.0, True, "10⁻¹²"), (0.0, 9_000.0, False, "8,000"),
     (0.0, 9e6, False, "8M"), (0.0, 1.0, False, "0.2"), (-4e-5, 4e-5, False, "-4·10⁻⁵"), (0, 2.5e8, False, "250M")],
)  # fmt: skip
def test_numbers_beside_the_axis_are_not_cut_off(low: float, high: float, log: bool, label: str) -> None:
    labels = axis_labels(lines([Series("a", [(0, low), (1, high)])], "", ("x", "y"), log_y=log))
    assert label in [text for _, text in labels]
    for x, text in labels[:-1]:  # the last is the title of the axis
        assert x >= width_of(text), text


def test_a_quiet_curve_is_labelled_at_its_right_end_in_whichever_order_its_points_come() -> None:
    points = [(0.0, 1.0), (0.5, 0.7), (1.0, 0.5)]
    main = Series("a", [(0, 0.5), (1, 0.5)])
    one, other = (
        [text.get("y") for text in elements(lines([main, Series("expected", some, True)], "", ("", "")), "text")
         if text.text == "expected"]
        for some in (points, points[::-1])
    )  # fmt: skip
    assert one == other
    assert len(one) == 1


def test_curves_differ_in_marks_and_dashes_and_not_only_in_colour() -> None:
    many = [Series(f"run {i}", [(0, 1.0), (1, 2.0 + i)]) for i in range(6)]
    figure = lines(many, "a caption", ("steps", "loss"))
    paths = elements(figure, "path")
    assert {one.get("stroke-dasharray", "") for one in paths} == set(DASHES)
    assert len({one.attrib["d"] for one in paths} & set(MARKS)) == len(many)
    assert all(f"run {i}" in Page(figure).text for i in range(6))


def test_a_curve_lies_where_its_numbers_say() -> None:
    [path] = curves(lines([Series("a", [(0, 1.0), (5, 10.0), (10, 100.0)])], "", ("t", "y"), log_y=True))
    (x0, y0), (x1, y1), (x2, y2) = [tuple(map(float, place.split())) for place in path[1:].split("L")]
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
    assert y0 - y1 == pytest.approx(y1 - y2, abs=0.2)  # equal factors are equal distances
    assert y0 > y2


def test_what_cannot_be_drawn_leaves_a_gap() -> None:
    points = [(0, 1.0), (1, 2.0), (2, math.nan), (3, 0.0), (4, 3.0), (5, 4.0)]
    for log, gaps in ((True, 2), (False, 2)):
        [path] = curves(lines([Series("a", points)], "", ("", ""), log_y=log))
        assert path.count("M") == gaps
    assert lines([Series("a", [(1, -1.0)])], "", ("", ""), log_y=True) == ""
    assert lines([], "", ("", "")) == ""


def test_long_curves_are_thinned_and_keep_their_ends() -> None:
    figure = lines([Series("loss", [(i, 1 / (1 + i)) for i in range(20_001)])], "", ("step", "loss"), log_x=True)
    [path] = curves(figure)
    assert path.count("L") < 320
    assert len(figure) < 20_000


def test_references_are_labelled_lines_and_stay_inside() -> None:
    references = [("a 7-gram", 2.0), ("xz", 2.0), ("best <ever>", 1.0), ("never", math.inf)]
    figure = lines([Series("loss", [(0, 3.0), (9, 2.5)])], "", ("step", "bits"), references=references)
    assert len([one for one in elements(figure, "line") if "stroke-dasharray" in one.attrib]) == 3
    labels = {text.text: text.get("y") for text in elements(figure, "text") if "paint-order" in text.attrib}
    assert set(labels) == {"a 7-gram", "xz", "best <ever>"}
    assert len(set(labels.values())) == 3


@pytest.mark.parametrize(
    ("values", "log", "expected"),
    [([0, 40], False, ["0", "10", "20", "30", "40"]), ([1e-12, 1], True, ["10⁻¹²", "10⁻¹⁰", "10⁻⁸", "10⁻⁶", "10⁻⁴",
      "0.01", "1"]), ([1.2, 2.3], False, ["1.2", "1.4", "1.6", "1.8", "2", "2.2", "2.4"]),
     ([0.5, 0.5], False, ["0.2", "0.3", "0.4", "0.5", "0.6", "0.7", "0.8"]), ([1, 100], True,
      ["1", "2", "5", "10", "20", "50", "100"]), ([-1, 1], False, ["-1", "-0.5", "0", "0.5", "1"])],
)  # fmt: skip
def test_ticks_are_round_numbers(values: list[float], log: bool, expected: list[str]) -> None:
    assert [label for _, label in Axis.around(values, log).ticks] == expected


@pytest.mark.parametrize(
    ("value", "written"),
    [(0, "0"), (0.05, "0.05"), (2000, "2,000"), (20_000, "20k"), (3e6, "3M"), (1e-8, "10⁻⁸"), (5.87e-11, "5.87·10⁻¹¹"),
     (1e12, "10¹²"), (-0.25, "-0.25"), (math.inf, "not finite"), (0.001, "0.001"), (1.5e8, "150M"),
     (5e-324, "0")],
)  # fmt: skip
def test_numbers_are_written_in_few_characters(value: float, written: str) -> None:
    assert number(value) == written


def test_bars_are_as_long_as_their_numbers() -> None:
    figure = bars([("a", 50), ("b", 100), ("c", 0)], "caption")
    widths = [float(one.attrib["width"]) for one in elements(figure, "rect")]
    assert widths[0] == pytest.approx(widths[1] / 2, abs=0.1)
    assert widths[2] == 1.0


def test_the_parts_of_a_stacked_bar_add_up_to_its_length() -> None:
    sets = [("one", [Bar("a", (1.0, 2.0, 0.0, 1.0)), Bar("b", (0.5, 0.5, 0.5, 0.5), faint=True)])]
    figure = stacked_bars(sets, GROUPS, "caption", "bits")
    widths = [float(one.attrib["width"]) for one in elements(figure, "rect") if len(one)]
    longest = WIDTH - LABEL - NUMBER
    assert sum(widths[:3]) == pytest.approx(longest, abs=0.1)
    assert sum(widths[3:]) == pytest.approx(longest / 2, abs=0.1)
    assert {"4.00", "2.00 *"} <= {text.text for text in elements(figure, "text")}


def test_an_infinite_bar_is_named_and_not_drawn() -> None:
    figure = stacked_bars([("one", [Bar("a", (math.inf, 1.0, 1.0, 1.0))])], GROUPS, "caption", "bits")
    assert "infinite" in [text.text for text in elements(figure, "text")]
    assert not elements(figure, "title")


def test_strips_have_a_cell_for_each_token_and_gate_and_survive_any_text() -> None:
    tokens = [HOSTILE, "a", "</svg>"] * 20
    figure = strips(tokens, [Strip("<gate>", [0.5] * 60, tokens), Strip("b", [2.0] * 60, tokens)], "caption")
    cells = elements(figure, "rect")
    assert len(cells) == 2 * 60 + 6  # and the scale's
    assert "script" not in Page(figure).tags
    assert max(float(cell.attrib["fill-opacity"]) for cell in cells) == 1.0
    assert strips([], [], "") == ""


def test_bars_rise_above_the_line_or_hang_below_it() -> None:
    figure = bar_strips(["a", "b"], [Strip("unit 3", [0.5, -1.0], ["half", "all"])], "caption")
    line = float(elements(figure, "line")[0].attrib["y1"])
    (up, up_height), (down, down_height) = (
        (float(one.attrib["y"]), float(one.attrib["height"]))
        for colour in ("main", "negative")
        for one in elements(figure, "rect")
        if one.get("fill") == COLOURS[colour]
    )
    assert up + up_height == pytest.approx(line, abs=0.11)
    assert down == pytest.approx(line, abs=0.11)
    assert down_height == pytest.approx(2 * up_height, abs=0.2)


def test_attention_rows_have_a_cell_for_each_weight() -> None:
    figure = attention_rows(["▷", "a", "b"], [[], [1.0], [0.25, 0.75]], "weights")
    assert [title.text for title in elements(figure, "title") if "attends" in (title.text or "")] == [
        "a attends to ▷: 100.0%", "b attends to ▷: 25.0%", "b attends to a: 75.0%",
    ]  # fmt: skip
    assert attention_rows(["▷"], [[]], "") == ""


def test_a_map_has_a_stretch_for_each_shade_and_nothing_where_the_weight_is_zero() -> None:
    weights = [[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.3, 0.3, 0.0]]
    figure = attention_maps([[HeadMap(weights, "head 1", "", "0.3 bits")]], "weights")
    assert [(one.attrib["fill-opacity"], one.attrib["d"]) for one in elements(figure, "path")] == [
        ("0.78", "M0 2h2v1h-2z"), ("1", "M0 0h1v1h-1zM0 1h1v1h-1z"),
    ]  # fmt: skip
    assert "layer 1 head 1: 0.3 bits" in Page(figure).text


def test_a_map_names_the_tokens_of_its_rows_and_columns_and_what_its_shades_mean() -> None:
    head = HeadMap([[1.0, 0.0], [0.5, 0.5]], "head 1", "", "0.3 bits", ("▷", "hippopotamus"))
    figure = attention_maps([[head]], "weights")
    tokens = [text.text for text in elements(figure, "text") if text.get("class", "").startswith("token")]
    assert tokens == ["▷", "▷", "hippopo…", "hippopo…"]
    assert [text.text for text in elements(figure, "text")][:2] == ["> 0", "> 0.005"]


def test_zeros_of_a_matrix_are_empty_and_the_largest_number_is_darkest() -> None:
    figure = shaded_matrices([("A", [[0.0, 1.0], [-2.0, 0.0]])], "caption")
    shades = [float(one.attrib["fill-opacity"]) for one in elements(figure, "rect")][:4]  # then those of the scale
    assert "largest in size" in Page(figure).text
    assert shades[0] == shades[3] == 0.0
    assert 0.0 < shades[1] < shades[2] == 1.0


def test_an_image_is_drawn_once_and_its_weights_are_laid_over_it() -> None:
    symbol = image_symbol("cat", [["#000000", "#000000"], ["#ffffff", "#000000"]])
    assert {(one.attrib["fill"], one.attrib["d"]) for one in elements(symbol, "path")} == {
        ("#000000", "M0 0h2v1h-2zM1 1h1v1h-1z"), ("#ffffff", "M0 1h1v1h-1z"),
    }  # fmt: skip
    plain: Any = Thumbnail("cat", 2, 2, HOSTILE, "words")
    figure = thumbnails([plain, plain._replace(weights=[[0.0, 0.5], [1.0, 0.0]])])
    assert [one.attrib["href"] for one in elements(figure, "use")] == ["#cat", "#cat"]
    patches = [(one.attrib["x"], one.attrib["y"], one.attrib["fill-opacity"])
               for one in elements(figure, "rect") if one.get("width") == "1"]  # fmt: skip
    assert "least weight" in Page(figure).text
    assert patches == [("1", "0", "0.42"), ("0", "1", "0.85")]
    assert not {"script", "img"} & set(Page(figure).tags)
