"""The heat map: darker cells are larger shares, the numbers in them are percentages, and nothing lies outside."""

from __future__ import annotations

from itertools import pairwise

from html_pages import elements
from octavo.pages.figures.heat_map import HeatBlock, HeatRow, draw_heat_map
from octavo.pages.figures.svg import WIDTH

ROWS = [
    HeatRow("counts"), HeatRow("7-gram", [[0.06, 0.0], [1.0]]), HeatRow("attention"),
    HeatRow("gpt <full>", [[0.995, None], [0.5]]),
]  # fmt: skip
BLOCKS = [HeatBlock("by length", ["64", "4096"]), HeatBlock("by items", ["8"])]


def test_every_cell_says_its_share_in_percent_and_the_darkest_is_the_largest() -> None:
    drawn = str(draw_heat_map(ROWS, BLOCKS).inline())
    shades = [float(cell.attrib["fill-opacity"]) for cell in elements(drawn, "rect")]
    assert shades == [0.06, 0.0, 1.0, 0.99, 0.5]  # row by row; None is left out
    texts = [text.text for text in elements(drawn, "text")]
    assert [text for text in texts if text in ("6", "0", "100", "50")] == ["6", "0", "100", "100", "50"]


def test_numbers_on_dark_cells_are_light() -> None:
    drawn = str(draw_heat_map(ROWS, BLOCKS).inline())
    inks = {text.text: text.attrib["class"] for text in elements(drawn, "text") if "class" in text.attrib}
    assert inks["100"] == "fill-paper"
    assert inks["6"] == inks["50"] == "fill-ink"


def test_cells_of_a_row_lie_beside_each_other_inside_the_figure_and_rows_below_each_other() -> None:
    drawing = draw_heat_map(ROWS, BLOCKS)
    cells = [
        tuple(float(cell.attrib[name]) for name in ("x", "y", "width", "height"))
        for cell in elements(str(drawing.inline()), "rect")
    ]
    first, last = cells[:3], cells[3:]
    for (x, _, width, _), (right, *_) in pairwise(first):
        assert x + width <= right + 0.02
    assert all(x >= 0 and x + width <= WIDTH + 0.02 and y + height <= drawing.height for x, y, width, height in cells)
    assert len({y for _, y, _, _ in first}) == len({y for _, y, _, _ in last}) == 1
    assert last[0][1] >= first[0][1] + first[0][3]


def test_the_label_says_all_of_it_in_words_and_any_text_stays_text() -> None:
    drawing = draw_heat_map(ROWS, BLOCKS)
    assert drawing.label == (
        "Percent. 7-gram: by length 64: 6, 4096: 0; by items 8: 100. gpt <full>: by length 64: 100; by items 8: 50"
    )
    assert "gpt &lt;full&gt;" in drawing.file("what is <remembered>")
