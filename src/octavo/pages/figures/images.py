"""Small images as drawings of squares, and maps laid over them; nothing but the page itself is needed to see them.

C channels, H and W pixels, h and w patches.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import torch.nn.functional as F
from torch import Tensor

from octavo.pages.frame import shown

SHADES = 16  # that a channel is drawn with
LARGEST = 56  # pixels along a side that are drawn; of a larger image several share a square
OVER = "#ff8c1a"  # visible on dark and on bright pixels
STYLE = (
    ".thumbs { max-width: none; display: grid; gap: .5rem .6rem; "
    "grid-template-columns: repeat(auto-fill, minmax(var(--wide, 5.5rem), 1fr)) } .thumbs > div { max-width: 9rem } "
    ".thumbs svg { border: 1px solid var(--line) } .thumbs p { margin: 0; font-size: .75rem; line-height: 1.3; "
    "color: var(--quiet) } .thumbs p b { color: var(--ink) } .kept { position: absolute; width: 0; height: 0 }"
)


def symbol(name: str, x_CHW: Tensor) -> str:
    """The image once, for `thumb` to show as often as it likes."""
    squares, H, W = _squares(x_CHW)
    return f'<svg class="kept" aria-hidden="true"><symbol id="{name}" viewBox="0 0 {W} {H}">{squares}</symbol></svg>'


def thumb(name: str, x_CHW: Tensor, title: str, words: str, over_hw: Tensor | None = None) -> str:
    """A drawing of the symbol, with a map over it: the largest weight in full colour, the smallest in none."""
    H, W = x_CHW.shape[1:]
    size = f'width="{W}" height="{H}"'
    over = "" if over_hw is None else _over(over_hw, size)
    return (
        f'<div><svg viewBox="0 0 {W} {H}" role="img" aria-label="{shown(f"{title}: {words}")}">'
        f'<title>{shown(title)}</title><use href="#{name}" {size}></use>{over}</svg>'
        f"<p><b>{shown(title)}</b><br>{shown(words)}</p></div>"
    )


def thumbs(drawn: Sequence[str], wide: str = "5.5rem") -> str:
    """Several beside each other, as many as the page has room for."""
    return f'<div class="thumbs" style="--wide: {wide}">\n' + "\n".join(drawn) + "\n</div>"


def _squares(x_CHW: Tensor) -> tuple[str, int, int]:
    """A path for each colour, of the stretches of pixels that have it."""
    by = -(-max(x_CHW.shape[1:]) // LARGEST)
    small_CHW = F.avg_pool2d(x_CHW.float()[None], by, ceil_mode=True)[0] if by > 1 else x_CHW.float()
    shades_HWC = (small_CHW * (SHADES - 1) / 255).round().long().movedim(0, -1)
    found: dict[tuple[int, ...], list[str]] = {}
    H, W = shades_HWC.shape[:2]
    for y, row in enumerate(shades_HWC.tolist()):
        x = 0
        for colour, pixels in groupby(map(tuple, row)):
            wide = len(list(pixels))
            found.setdefault(colour, []).append(f"M{x} {y}h{wide}v1h-{wide}z")
            x += wide
    paths = "".join(f'<path fill="{_hex(colour)}" d="{"".join(parts)}"></path>' for colour, parts in found.items())
    return f'<g shape-rendering="crispEdges">{paths}</g>', H, W


def _hex(colour: tuple[int, ...]) -> str:
    channels = colour * 3 if len(colour) == 1 else colour
    return "#" + "".join(f"{round(shade * 255 / (SHADES - 1)):02x}" for shade in channels)


def _over(over_hw: Tensor, size: str) -> str:
    """A square for each patch, over an image of that size."""
    h, w = over_hw.shape
    least, most = float(over_hw.min()), float(over_hw.max())
    share_hw = (over_hw - least) / max(most - least, 1e-12)
    patches = "".join(
        f'<rect x="{x}" y="{y}" width="1" height="1" fill-opacity="{0.85 * share:.2f}"></rect>'
        for y, row in enumerate(share_hw.tolist())
        for x, share in enumerate(row)
        if share > 0.02
    )
    return (
        f'<svg viewBox="0 0 {w} {h}" {size} preserveAspectRatio="none" style="fill: {OVER}; border: 0">{patches}</svg>'
    )
