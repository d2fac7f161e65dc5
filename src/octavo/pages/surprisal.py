"""A text coloured by its surprisal: what each token of it costs, in bits per byte."""

from __future__ import annotations

import bisect
import codecs
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup

from octavo.pages.markup import element

BOUNDS = (0.5, 1, 2, 3, 4, 6, 8)  # bits per byte at which the colour changes


@dataclass(frozen=True)
class Piece:
    """One token, or several where a character is spelt by more than one."""

    text: str
    bytes: int
    bits: float

    @property
    def bits_per_byte(self) -> float:
        return self.bits / max(1, self.bytes)


def whole_characters(chunks: Iterable[tuple[bytes, float]]) -> list[Piece]:
    """Bytes and their costs in bits as pieces of whole characters; a character that is in several costs their sum."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    pieces, size, bits = [], 0, 0.0
    for data, cost in chunks:
        size, bits = size + len(data), bits + cost
        if text := decoder.decode(data):
            pieces.append(Piece(text, size, bits))
            size, bits = 0, 0.0
    return [*pieces, Piece(decoder.decode(b"", final=True), size, bits)] if size else pieces


def annotated_text(pieces: Sequence[Piece], context: str = "") -> Markup:
    """The text with each piece on the colour of its bits per byte; its bits are in the title.

    The text of the `context` before it is shown in grey.
    """
    grey = element("span", context, class_="quiet") if context else ""
    return element("pre", "\n", grey, *map(_mark, pieces), class_="surprise")


def surprisal_legend() -> Markup:
    """What the colours mean."""
    bounds = ("0", *(f"{bound:g}" for bound in BOUNDS))
    names = [f"{low}–{high}" for low, high in pairwise(bounds)] + [f"{bounds[-1]} and more"]
    marks = [element("mark", name, class_=f"s{i}") for i, name in enumerate(names)]
    marks.append(element("mark", "impossible", class_="never"))
    return element("ul", *(element("li", mark) for mark in marks), class_="legend", aria_label="bits per byte")


def level(bits_per_byte: float) -> str:
    """The class of a colour."""
    return f"s{bisect.bisect_right(BOUNDS, bits_per_byte)}" if math.isfinite(bits_per_byte) else "never"


def _mark(piece: Piece) -> Markup:
    kinds = level(piece.bits_per_byte) + (" n" if piece.text.startswith("\n") else "")
    bits = f"{piece.bits:.2f} bits" if math.isfinite(piece.bits) else "impossible"
    return element("mark", piece.text, class_=kinds, title=bits if piece.bytes == 1 else f"{bits}, {piece.bytes} bytes")
