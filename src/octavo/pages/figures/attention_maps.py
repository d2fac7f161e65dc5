"""Attention weights as small maps, one for each head.

Maps are drawn as paths, one for each shade, so that a page of a hundred maps stays small and sharp and follows the
colours of the page.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from markupsafe import Markup

from octavo.pages.figures.svg import rect, shape, words
from octavo.pages.markup import element, join
from octavo.pages.sections import captioned

BOUNDS = (0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5)  # the weights above which a cell is darker
OPACITIES = (0.07, 0.16, 0.28, 0.42, 0.58, 0.78, 1.0)
SCALE_STEP = 52  # units of a shade in the scale


class HeadMap(NamedTuple):
    """One head: its weights (square, rows attend to columns), its name, its kind, its statistics in words."""

    weights: Sequence[Sequence[float]]
    name: str
    kind: str
    summary: str


def attention_maps(layers: Sequence[Sequence[HeadMap]], caption: str) -> Markup:
    """A map for each head, layer by layer: rows are the tokens from the top, columns what they attend to."""
    blocks = [_scale()]
    for number, heads in enumerate(layers, 1):
        blocks += [
            element("h4", f"Layer {number}"),
            element(
                "div", join(*(_head(number, head) for head in heads)), class_="row", style=f"--heads: {len(heads)}"
            ),
        ]
    return captioned(join(*blocks), caption, "maps")


def _head(layer: int, head: HeadMap) -> Markup:
    C, meaning = len(head.weights), f"layer {layer} {head.name}: {head.summary}"
    svg = shape(
        "svg", element("title", meaning), *_paths(head.weights), fill="main", viewBox=f"0 0 {C} {C}",
        shape_rendering="crispEdges", role="img", aria_label=meaning,
    )  # fmt: skip
    kind = element("b", head.kind) if head.kind else ""
    return element("div", svg, element("p", f"{head.name} ", kind, element("span", head.summary)))


def cell_runs(row: Iterable[object], y: int) -> Iterable[tuple[object, str]]:
    """Neighbours in a row that are alike: what they are, and a path around their cells."""
    x = 0
    for value, cells in groupby(row):
        width = len(list(cells))
        yield value, f"M{x} {y}h{width}v1h-{width}z"
        x += width


def _paths(weights: Sequence[Sequence[float]]) -> list[Markup]:
    """A path for each shade, of the stretches of cells that have it."""
    found: dict[int, list[str]] = {}
    for y, row in enumerate(weights):
        for shade, d in cell_runs((bisect.bisect_left(BOUNDS, weight) - 1 for weight in row), y):
            if isinstance(shade, int) and shade >= 0:
                found.setdefault(shade, []).append(d)
    return [
        shape("path", fill_opacity=OPACITIES[shade], d="".join(parts)) for shade, parts in sorted(found.items())
    ]  # fmt: skip


def _scale() -> Markup:
    """What the shades mean."""
    names = ["> 0", *(f"> {bound:g}" for bound in BOUNDS[1:])]
    parts = [
        part for i, name in enumerate(names)
        for part in (rect(SCALE_STEP * i, 0, 50, 10, fill="main", fill_opacity=OPACITIES[i]),
                     words(SCALE_STEP * i + 25, 21, name, "middle", fill="quiet"))
    ]  # fmt: skip
    size = {"viewBox": f"0 0 {SCALE_STEP * len(names)} 24", "class_": "shades"}
    return shape("svg", *parts, **size, role="img", aria_label="the shades of the weights")
