"""Numbers as shaded cells: a map for each attention head, small images with maps over them, matrices side by side.

Neighbours that are alike are drawn as one path, so that a page of a hundred maps stays small and sharp, follows the
colours of the page, and needs no file beside it.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from markupsafe import Markup

from octavo.pages.figures.svg import WIDTH, Drawing, figure, rect, shape, shorten, words
from octavo.pages.markup import element, join
from octavo.pages.sections import captioned

BOUNDS = (0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5)  # the weights above which a cell is darker
OPACITIES = (0.07, 0.16, 0.28, 0.42, 0.58, 0.78, 1.0)
SCALE_STEP = 52  # units of a shade in the scale
TOKEN_SIZE, TOKEN_CHARACTER = 0.85, 0.55  # cells: the height of a token's characters, and the width of one
MAX_TOKEN = 8  # characters of a token that are written beside a map


class HeadMap(NamedTuple):
    """One head: its weights (square, rows attend to columns), its name, its kind, its statistics in words."""

    weights: Sequence[Sequence[float]]
    name: str
    kind: str
    summary: str
    tokens: Sequence[str] = ()  # of the rows and of the columns, where there is a row for each


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
    shades = cell_paths((bisect.bisect_left(BOUNDS, weight) - 1 for weight in row) for row in head.weights)
    paths = [shape("path", fill_opacity=OPACITIES[shade], d=d) for shade, d in sorted(shades.items()) if shade >= 0]
    written = [shorten(token, MAX_TOKEN) for token in head.tokens]
    margin = round(TOKEN_CHARACTER * max(map(len, written), default=0) + 0.4, 2) if written else 0
    ground = rect(0, 0, C, C, fill="panel", stroke="line", stroke_width=0.05)
    svg = shape(
        "svg", element("title", meaning), ground, shape("g", *paths, shape_rendering="crispEdges"),
        *(label for i, token in enumerate(written) for label in _token_labels(i, token, max(map(len, written)) > 1)),
        fill="main", viewBox=f"{-margin:g} {-margin:g} {C + margin:g} {C + margin:g}", role="img", aria_label=meaning,
    )  # fmt: skip
    kind = element("b", head.kind) if head.kind else ""
    return element("div", svg, element("p", f"{head.name} ", kind, element("span", head.summary)))


def _token_labels(i: int, token: str, turned: bool) -> tuple[Markup, Markup]:
    """A token beside its row, and above its column; turned, where tokens are longer than a column is wide."""
    look: dict[str, Any] = {"fill": "quiet", "font_size": TOKEN_SIZE, "class_": "token"}
    x, y = -0.25, i + 0.5 + 0.35 * TOKEN_SIZE
    beside = words(x, y, token, "end", **look)
    if not turned:
        return beside, words(i + 0.5, -0.25, token, "middle", **look)
    above = f"translate({i + 0.5 + 0.35 * TOKEN_SIZE:g} -0.25) rotate(-90)"
    return beside, words(0, 0, token, transform=above, **look)


def cell_paths(rows: Iterable[Iterable[Any]]) -> dict[Any, str]:
    """A path for each value, around the cells that have it; neighbours in a row are drawn as one."""
    found: dict[Any, list[str]] = {}
    for y, row in enumerate(rows):
        x = 0
        for value, cells in groupby(row):
            width = len(list(cells))
            found.setdefault(value, []).append(f"M{x} {y}h{width}v1h-{width}z")
            x += width
    return {value: "".join(parts) for value, parts in found.items()}


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


MAP_COLOUR = "#ff8c1a"  # visible on dark and on bright pixels
MAP_STEPS = 5  # of the scale
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
    paths = [shape("path", fill=colour, d=d) for colour, d in cell_paths(pixels).items()]
    size = f"0 0 {len(pixels[0])} {len(pixels)}"
    symbol = element("symbol", shape("g", *paths, shape_rendering="crispEdges"), id=name, viewBox=size)
    return element("svg", symbol, class_="symbols", aria_hidden="true")


def thumbnails(drawn: Sequence[Thumbnail]) -> Markup:
    """Several beside each other, as many as the page has room for; and what the colour laid over them means."""
    legend = _map_scale() if any(one.weights is not None for one in drawn) else ""
    return join(legend, element("div", join(*map(_thumbnail, drawn)), class_="thumbs"))


def _map_scale() -> Markup:
    """From the patch with the least weight of an image to that with the most."""
    steps = [
        rect(SCALE_STEP * i, 0, 50, 10, fill=MAP_COLOUR, fill_opacity=round(MAX_OPACITY * i / MAP_STEPS, 2),
             stroke="line") for i in range(MAP_STEPS + 1)
    ]  # fmt: skip
    ends = [words(0, 22, "least weight", fill="quiet"),
            words(SCALE_STEP * MAP_STEPS + 50, 22, "most", "end", fill="quiet")]  # fmt: skip
    size = {"viewBox": f"0 0 {SCALE_STEP * (MAP_STEPS + 1)} 26", "class_": "shades"}
    return shape("svg", *steps, *ends, **size, role="img", aria_label="the colour of the weights over an image")


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


GAP, TITLE = 24, 16  # units: between matrices, the height of a title
MATRIX_SCALE = 22  # units below the matrices, for what the shades mean
MIN_OPACITY = 0.12  # of a cell that is not zero


def shaded_matrices(matrices: Sequence[tuple[str, Any]], caption: str) -> Markup:
    """Each matrix (lists of rows, an array or a tensor) below its title; larger numbers are darker, zeros empty."""
    side = (WIDTH - GAP * (len(matrices) - 1)) / len(matrices)
    shapes, tallest, sizes = [], 0.0, []
    for place, (title, given) in enumerate(matrices):
        matrix = given.tolist() if hasattr(given, "tolist") else given
        rows, columns = len(matrix), len(matrix[0])
        cell, left = min(side / columns, side / rows), place * (side + GAP)
        tallest = max(tallest, cell * rows)
        shapes.append(words(left, 12, title))
        most = max(abs(value) for row in matrix for value in row) or 1.0
        cells = [
            rect(left + j * cell, TITLE + i * cell, cell, cell, fill_opacity=round(share, 2))
            for i, row in enumerate(matrix)
            for j, value in enumerate(row)
            for share in [MIN_OPACITY + (1 - MIN_OPACITY) * abs(value) / most if value else 0.0]
        ]
        shapes.append(shape("g", *cells, fill="main", stroke="line", stroke_width=0.6))
        sizes.append(f"{title}: {rows} by {columns}, {sum(value != 0 for row in matrix for value in row)} not zero")
    legend = _matrix_scale(TITLE + tallest + 8)
    return figure(Drawing(TITLE + tallest + MATRIX_SCALE, (*shapes, *legend), "; ".join(sizes)), caption)


def _matrix_scale(y: float) -> list[Markup]:
    """What the shades of a matrix mean: empty is zero, full the largest number in it."""
    shades = [0.0, MIN_OPACITY, *((MIN_OPACITY + (1 - MIN_OPACITY) * i / 4) for i in range(1, 5))]
    cells = [rect(30 + 14 * i, y, 14, 10, fill="main", fill_opacity=round(shade, 2), stroke="line", stroke_width=0.6)
             for i, shade in enumerate(shades)]  # fmt: skip
    right = 30 + 14 * len(shades) + 6
    return [words(24, y + 9, "0", "end", fill="quiet"), *cells, words(right, y + 9, "largest in size", fill="quiet")]
