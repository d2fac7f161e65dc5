"""Small images as drawings of squares, and maps laid over them: a page holds them without a file beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from octavo.pages.figures.attention_maps import cell_runs
from octavo.pages.figures.svg import rect, shape
from octavo.pages.markup import element, join

MAP_COLOUR = "#ff8c1a"  # visible on dark and on bright pixels
MAX_OPACITY, MIN_SHARE = 0.85, 0.02  # of the map laid over the image

Pixels = Sequence[Sequence[str]]  # rows of colours, #rrggbb


class Thumbnail(NamedTuple):
    """An image with its title and words below it, and weights of its patches to lay over it."""

    image: str  # the name of a symbol
    height: int
    width: int
    title: str
    words: str
    weights: Sequence[Sequence[float]] | None = None


def image_symbol(name: str, pixels: Pixels) -> Markup:
    """The image once, for thumbnails to show as often as they like: a path for each colour."""
    found: dict[object, list[str]] = {}
    for y, row in enumerate(pixels):
        for colour, d in cell_runs(row, y):
            found.setdefault(colour, []).append(d)
    paths = [shape("path", fill=str(colour), d="".join(parts)) for colour, parts in found.items()]
    size = f"0 0 {len(pixels[0])} {len(pixels)}"
    symbol = element("symbol", shape("g", *paths, shape_rendering="crispEdges"), id=name, viewBox=size)
    return element("svg", symbol, class_="symbols", aria_hidden="true")


def thumbnails(drawn: Sequence[Thumbnail]) -> Markup:
    """Several beside each other, as many as the page has room for."""
    return element("div", join(*map(_thumbnail, drawn)), class_="thumbs")


def _thumbnail(one: Thumbnail) -> Markup:
    size: dict[str, Any] = {"width": one.width, "height": one.height}
    over = _weights(one.weights, size) if one.weights is not None else ""
    svg = element(
        "svg", element("title", one.title), element("use", href=f"#{one.image}", **size), over,
        viewBox=f"0 0 {one.width} {one.height}", role="img", aria_label=f"{one.title}: {one.words}",
    )  # fmt: skip
    return element("div", svg, element("p", element("b", one.title), " ", element("span", one.words)))


def _weights(weights: Sequence[Sequence[float]], size: dict[str, Any]) -> Markup:
    """A square for each patch: the largest weight in full colour, the smallest in none."""
    least, most = min(map(min, weights)), max(map(max, weights))
    patches = [
        rect(x, y, 1, 1, fill_opacity=round(MAX_OPACITY * share, 2))
        for y, row in enumerate(weights)
        for x, weight in enumerate(row)
        if (share := (weight - least) / max(most - least, 1e-12)) > MIN_SHARE
    ]
    viewbox = f"0 0 {len(weights[0])} {len(weights)}"
    return shape("svg", *patches, fill=MAP_COLOUR, viewBox=viewbox, preserveAspectRatio="none", class_="over", **size)
