"""A text coloured by what each token of it costs."""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass
from itertools import pairwise

from octavo.pages.frame import shown

STEPS = (0.5, 1, 2, 3, 4, 6, 8)  # bits per byte at which the colour changes


@dataclass(frozen=True)
class Piece:
    """One token, or several where a character is spelt by more than one."""

    text: str
    bytes: int
    bits: float

    @property
    def bits_per_byte(self) -> float:
        return self.bits / max(1, self.bytes)


def coloured(parts: list[Piece], before: str = "") -> str:
    """The text with each piece on the colour of its bits per byte; its bits are in the title.

    The text `before` it is shown in grey, for the context.
    """
    grey = f'<span class="quiet">{shown(before)}</span>' if before else ""
    return f'<pre class="surprise">\n{grey}' + "".join(_marked(part) for part in parts) + "</pre>"


def legend() -> str:
    """What the colours mean."""
    bounds = ("0", *(f"{step:g}" for step in STEPS))
    names = [f"{low}–{high}" for low, high in pairwise(bounds)] + [f"{bounds[-1]} and more"]
    marks = [f'<li><mark class="s{i}">{name}</mark></li>' for i, name in enumerate(names)]
    never = '<li><mark class="never">impossible</mark></li>'
    return f'<ul class="legend" aria-label="bits per byte">{"".join(marks)}{never}</ul>'


def level(bits_per_byte: float) -> str:
    """The class of a colour."""
    return f"s{bisect.bisect_right(STEPS, bits_per_byte)}" if math.isfinite(bits_per_byte) else "never"


def _marked(part: Piece) -> str:
    kinds = level(part.bits_per_byte) + (" n" if part.text.startswith("\n") else "")
    bits = f"{part.bits:.2f} bits" if math.isfinite(part.bits) else "impossible"
    title = bits if part.bytes == 1 else f"{bits}, {part.bytes} bytes"
    return f'<mark class="{kinds}" title="{title}">{shown(part.text)}</mark>'
