"""Curves: their labels stay inside the drawing, whatever the numbers beside the axis are."""

from __future__ import annotations

import re

import pytest

from octavo.pages.figures.lines import Series, lines

SIZE = 12  # of the letters, in the figure's units
EMS = {"M": 0.863, "k": 0.579, ".": 0.318, ",": 0.318, "·": 0.318, "-": 0.361}  # of DejaVu Sans, a wide font
DIGIT, RAISED = 0.636, 0.401


def wide(text: str) -> float:
    """How wide a browser draws it."""
    return SIZE * sum(EMS.get(one, DIGIT if one.isascii() else RAISED) for one in text)


@pytest.mark.parametrize(
    ("low", "high", "log", "label"),
    [(1e4, 3e8, True, "100M"), (1e-12, 1.0, True, "10⁻¹²"), (0.0, 9_000.0, False, "8,000"),
     (0.0, 9e6, False, "8M"), (0.0, 1.0, False, "0.2"), (-4e-5, 4e-5, False, "-4·10⁻⁵"), (0, 2.5e8, False, "250M")],
)  # fmt: skip
def test_numbers_beside_the_axis_are_not_cut_off(low: float, high: float, log: bool, label: str) -> None:
    figure = lines([Series("a", [(0, low), (1, high)])], "", ("x", "y"), log_y=log)
    labels = re.findall(r'<text x="([\d.]+)" y="[\d.]+" class="faint end">([^<]+)</text>', figure)
    assert label in [text for _, text in labels]
    for x, text in labels[:-1]:  # the last is the name of the axis
        assert float(x) >= wide(text), text


def test_a_quiet_curve_is_labelled_at_its_right_end_in_whichever_order_its_points_come() -> None:
    points = [(0.0, 1.0), (0.5, 0.7), (1.0, 0.5)]
    main = Series("a", [(0, 0.5), (1, 0.5)])
    one, other = (
        re.findall(r'y="([\d.]+)">expected<', lines([main, Series("expected", some, quiet=True)], "", ("", "")))
        for some in (points, points[::-1])
    )
    assert one == other
