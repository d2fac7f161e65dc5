"""Attention as small maps, one for each head.

T tokens, C cells along a side of a map. Maps are drawn as paths, one for each shade, so that a page of a hundred maps
stays small and sharp and follows the colours of the page.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from itertools import groupby

import torch.nn.functional as F
from torch import Tensor

from octavo.inspect.attention_maps import Head, heads_of
from octavo.models.views import TokenMaps
from octavo.pages.frame import shown

CELLS = 48  # along a side of a map; of more tokens, several share a cell
SHADES = (0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5)  # the weights above which a cell is darker
OPACITIES = (0.07, 0.16, 0.28, 0.42, 0.58, 0.78, 1.0)

MAPS_STYLE = (
    ".maps { max-width: none } .maps h4 { font-size: .9rem; margin: .6rem 0 .2rem } .maps .row { display: grid; "
    "grid-template-columns: repeat(auto-fill, minmax(max(6.5rem, 100% / var(--heads) - .6rem), 1fr)); "
    "gap: .5rem .6rem; max-width: calc(12rem * var(--heads)) } .maps text { fill: var(--quiet) } "
    ".maps svg { border: 1px solid var(--line); background: var(--panel); fill: var(--main) } "
    ".maps p { margin: 0; font-size: .75rem; line-height: 1.3; color: var(--quiet) } "
    ".maps p b { color: var(--ink); font-weight: 600 } "
    + " ".join(f".a{i} {{ fill-opacity: {opacity:g} }}" for i, opacity in enumerate(OPACITIES))
)


def maps_figure(maps: TokenMaps, caption: str) -> str:
    """A map for each head, layer by layer: rows are the tokens from the top, columns what they look at."""
    by, across = together(maps), len(maps.layers[0])
    blocks = [_scale()]
    for layer in range(1, len(maps.layers) + 1):
        heads = "\n".join(_one(head, by) for head in heads_of(maps) if head.layer == layer)
        blocks.append(f'<h4>Layer {layer}</h4>\n<div class="row" style="--heads: {across}">\n{heads}\n</div>')
    if by > 1:
        caption += f" A cell stands for {by} × {by} tokens and shows the largest weight among them."
    return _figure("maps", MAPS_STYLE, "\n".join(blocks), caption)


def together(maps: TokenMaps) -> int:
    """How many tokens share a cell."""
    return -(-len(maps.visible_T) // CELLS)


def shrunk(a_TT: Tensor, by: int) -> Tensor:
    """The map with the largest of each `by` × `by` weights."""
    missing = -len(a_TT) % by
    a_TT = F.pad(a_TT, (0, missing, 0, missing))
    C = len(a_TT) // by
    return a_TT.reshape(C, by, C, by).amax((1, 3))


def _one(head: Head, by: int) -> str:
    a_CC = shrunk(head.a_TT, by)
    kind = f" <b>{shown(head.kind)}</b>" if head.kind else ""
    told = f"{head.name}: {head.entropy:.1f} bits, {head.distance:.1f} tokens back"
    C = len(a_CC)
    return (
        f'<div><svg viewBox="0 0 {C} {C}" shape-rendering="crispEdges" role="img" aria-label="{shown(told)}">'
        f"<title>{shown(told)}</title>{_paths(a_CC.tolist())}</svg>"
        f"<p>head {head.head}{kind}<br>{head.entropy:.1f} bits, {head.distance:.1f} back</p></div>"
    )


def _paths(rows: Iterable[Sequence[float]]) -> str:
    """A path for each shade, of the stretches of cells that have it."""
    found: dict[int, list[str]] = {}
    for y, row in enumerate(rows):
        x = 0
        for shade, cells in groupby(row, key=_shade):
            wide = len(list(cells))
            if shade >= 0:
                found.setdefault(shade, []).append(f"M{x} {y}h{wide}v1h-{wide}z")
            x += wide
    return "".join(f'<path class="a{shade}" d="{"".join(parts)}"></path>' for shade, parts in sorted(found.items()))


def _shade(weight: float) -> int:
    """Which shade a weight has; -1 is nothing at all."""
    return bisect.bisect_left(SHADES, weight) - 1


def _scale() -> str:
    names = ["> 0", *(f"> {shade:g}" for shade in SHADES[1:])]
    parts = "".join(
        f'<rect class="a{i}" x="{52 * i}" y="0" width="50" height="10"></rect>'
        f'<text x="{52 * i + 25}" y="21" class="middle">{shown(name)}</text>' for i, name in enumerate(names)
    )  # fmt: skip
    return (
        f'<svg class="shades" style="max-width: 23rem; border: 0; background: none" viewBox="0 0 {52 * len(names)} 24" '
        f'role="img" aria-label="the shades of the weights"><g>{parts}</g></svg>'
    )


def _figure(kind: str, style: str, body: str, caption: str) -> str:
    return (
        f'<figure class="{kind}">\n<style>{style}</style>\n{body}\n<figcaption>{shown(caption)}</figcaption>\n</figure>'
    )
