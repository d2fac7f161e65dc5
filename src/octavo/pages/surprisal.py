"""A text coloured by what each token of it costs."""

from __future__ import annotations

import bisect
import codecs
import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from octavo.core import LanguageModel
from octavo.pages.frame import shown
from octavo.scoring.bits_per_byte import charges
from octavo.text import Split
from octavo.text.tokenizers.protocol import Tokenizer

OPENING = 600  # bytes
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


def opening(split: Split, limit: int = OPENING) -> bytes:
    """The first bytes of the first document, up to the end of a line, a word or at least a character."""
    first = next(split.blocks(), None)
    if first is None:
        return b""
    later = first.starts[first.starts > 0]
    data = first.data[: int(later[0]) if len(later) else None]
    if len(data) <= limit:
        return data
    for mark in (b"\n", b" "):
        end = data.rfind(mark, limit // 2, limit) + 1
        if end:
            return data[:end]
    end = limit
    while end > limit - 4 and data[end] & 0xC0 == 0x80:  # inside a character
        end -= 1
    return data[:end]


def pieces(model: LanguageModel[Any], tokenizer: Tokenizer, data: bytes) -> list[Piece]:
    """The text and its price, in parts that are whole characters; charged from the begin token on."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    found, size, bits = [], 0, 0.0
    for tokens_W, bits_W in charges(model, [tokenizer.encode(data)]):
        for token, cost in zip(tokens_W.tolist(), bits_W.tolist(), strict=True):
            spelt = tokenizer.spelling(token)
            size, bits = size + len(spelt), bits + cost
            if text := decoder.decode(spelt):
                found.append(Piece(text, size, bits))
                size, bits = 0, 0.0
    rest = decoder.decode(b"", final=True)
    return [*found, Piece(rest, size, bits)] if size else found


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
