"""The stylesheet: every colour in light and dark, readable on its background, and the figures' own colours the same."""

from __future__ import annotations

import re

import pytest

from octavo.pages.figures.svg import COLOURS, SERIES
from octavo.pages.markup import STYLE, stylesheet

PAIR = re.compile(r"--([\w-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)")
COLOUR = {name: (light, dark) for name, light, dark in PAIR.findall(STYLE.read_text(encoding="utf-8"))}
COLOUR["s0"] = COLOUR["paper"]
TEXT_ON = [("ink", "paper"), ("quiet", "paper"), ("ink", "panel"), ("quiet", "panel"), ("main", "paper"),
           ("on-main", "main"), ("on-never", "never"), ("bad", "paper"), ("good", "paper"),
           *(("ink", f"s{i}") for i in range(8)), *(("ink", f"{side}{i}") for side in ("for", "against")
             for i in range(1, 5))]  # fmt: skip


def luminance(colour: str) -> float:
    """The relative luminance of the WCAG."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(("text", "ground"), TEXT_ON)
def test_text_has_enough_contrast(text: str, ground: str, scheme: int) -> None:
    assert contrast(COLOUR[text][scheme], COLOUR[ground][scheme]) >= 4.5


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("place", range(SERIES))
def test_curves_are_seen_on_the_page(place: int, scheme: int) -> None:
    assert contrast(COLOUR[f"series{place}"][scheme], COLOUR["paper"][scheme]) >= 3


def test_a_figure_as_a_file_has_the_light_colours_of_the_page() -> None:
    assert {name: COLOUR[name][0] for name in COLOURS} == COLOURS


def test_every_colour_that_is_used_is_defined_and_the_other_way_round() -> None:
    style = stylesheet()
    used = set(re.findall(r"var\(--([\w-]+)\)", style)) - {"heads", "tint"}  # which rules set to one of the colours
    assert used <= set(COLOUR)
    assert set(COLOURS) <= used
