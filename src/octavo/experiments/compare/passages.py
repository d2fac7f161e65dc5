"""The held-out text under several models: one passage as each of them sees it, and where two disagree most.

All of it comes from the bits that each byte cost when it was scored; no model runs again.
"""

from __future__ import annotations

import codecs
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from octavo.experiments.compare.rows import Comparison, Row
from octavo.pages.frame import paragraph, section, shown
from octavo.pages.surprisal import Piece, coloured, legend

ByteCosts = Mapping[str, NDArray[Any]]  # of each model: the bits that every byte of the text cost

LOOKED_AT = 1 << 22  # bytes of the held-out text that are searched
PASSAGE = 480  # bytes that are shown under every model
WINDOW = 60  # bytes of a place where two models disagree
BEFORE = 60  # bytes shown before it, for its context
PLACES = 2  # shown for each side of a pair
PAIRS = 2
WORD = 12  # bytes that a place may grow at either end, to begin and end with a word
FAMILIES = ("counts", "recurrent", "attention", "pretrained")  # a mixture agrees with its parts
IMPOSSIBLE = 64.0  # bits: what an impossible byte counts as in the search


class Place(NamedTuple):
    """A stretch of the text, and how many more bits one model paid for it than another."""

    start: int
    end: int
    difference: float


def same_passage(comparison: Comparison, held_out: bytes, byte_costs: ByteCosts) -> str:
    """One passage coloured by each model's surprise, chosen by a row of buttons that need no script."""
    rows = [row for row in comparison if row.model in byte_costs]
    end = _passage_end(held_out)
    if not rows or not end:
        return ""
    buttons, views = [], []
    for place, row in enumerate(rows):
        checked = " checked" if place == 0 else ""
        buttons.append(
            f'<input type="radio" name="seen" id="seen{place}"{checked} /><label for="seen{place}">'
            f"{shown(row.model)}</label>"
        )
        bits = byte_costs[row.model][:end]
        told = f"{row.title}: {_bits(bits)} for these {end:,} bytes"
        view = paragraph(told, "quiet") + coloured(pieces_of(held_out[:end], bits))
        views.append(f'<article class="seen{place}">{view}</article>')
    explained = (
        "The beginning of the held-out text. The colour is what the chosen model paid, in bits per byte; point at a "
        "letter to read the figure."
    )
    return section(
        "The same passage, as each model sees it", paragraph(explained), legend(),
        '<div class="seen" role="radiogroup" aria-label="model">', *buttons, *views, "</div>",
    )  # fmt: skip


def chooser_style(count: int) -> str:
    """Which view each of the buttons shows."""
    rules = ", ".join(f"#seen{i}:checked ~ .seen{i}" for i in range(count))
    return f"{rules} {{ display: block }}" if count else ""


def disagreements(comparison: Comparison, held_out: bytes, byte_costs: ByteCosts) -> str:
    """Where the best of one family beats the best of another by most bits, and where it is the other way round."""
    text = held_out[:LOOKED_AT]
    parts = []
    for one, other in pairs(comparison, byte_costs):
        for less, more in ((one, other), (other, one)):
            places = farthest(byte_costs[less.model][: len(text)], byte_costs[more.model][: len(text)], text)
            if places:
                parts.append(f"<h3>{shown(less.model)} knows better than {shown(more.model)}</h3>")
                parts += [_both(place, (less, more), text, byte_costs) for place in places]
    if not parts:
        return ""
    explained = (
        f"Stretches of about {WINDOW} bytes for which the best models of two families paid most differently; what "
        "comes before them is grey."
    )
    if comparison.corpus.get("valid", {}).get("bytes", len(held_out)) > len(text):
        explained += f" Searched: the first {len(text):,} bytes."
    return section("Where they disagree most", paragraph(explained), legend(), *parts)


def pairs(comparison: Comparison, byte_costs: ByteCosts) -> list[tuple[Row, Row]]:
    """The best rows of different families, two by two; of one family alone, its best two."""
    known = [row for row in comparison if row.model in byte_costs and _finite(row) and row.family in FAMILIES]
    best = list({row.family: row for row in reversed(known)}.values())
    best.sort(key=lambda row: row.bits_per_byte or 0.0)
    return list(combinations(best if len(best) > 1 else known[:2], 2))[:PAIRS]


def farthest(less_N: NDArray[Any], more_N: NDArray[Any], text: bytes) -> list[Place]:
    """The windows that cost the second model most bits more than the first, apart from each other."""
    costs = [np.nan_to_num(bits.astype(np.float64), posinf=IMPOSSIBLE) for bits in (less_N, more_N)]
    total = np.concatenate([[0.0], np.cumsum(costs[1] - costs[0])])
    window = min(WINDOW, len(text))
    gain = total[window:] - total[:-window] if window else total[:0]
    places: list[Place] = []
    for _ in range(PLACES):
        if not len(gain) or (found := float(gain[at := int(gain.argmax())])) <= 0:
            break
        places.append(Place(at, at + window, found))
        gain[max(0, at - window - BEFORE) : at + window + BEFORE] = -math.inf
    return [_whole_words(place, text) for place in places]


def _both(place: Place, rows: Sequence[Row], text: bytes, byte_costs: ByteCosts) -> str:
    """A place under two models, side by side."""
    start, end, _ = place
    first = _character_start(text, max(0, start - BEFORE))
    before = text[first:start].decode("utf-8", "replace")
    views = []
    for row in rows:
        bits = byte_costs[row.model][start:end]
        told = paragraph(f"{row.model}: {_bits(bits)}", "quiet")
        views.append(f"<article>{told}{coloured(pieces_of(text[start:end], bits), before)}</article>")
    return f'<p class="quiet at">at byte {start:,}</p><div class="side">{"".join(views)}</div>'


def pieces_of(data: bytes, bits_N: NDArray[Any]) -> list[Piece]:
    """Characters and their price; neighbours whose bytes cost exactly the same were one token, and stay together."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    found: list[Piece] = []
    size, cost = 0, 0.0
    for i, bits in enumerate(bits_N.astype(np.float64).tolist()):
        size, cost = size + 1, cost + bits
        text = decoder.decode(data[i : i + 1], final=i == len(data) - 1)
        if not text:
            continue
        last = found[-1] if found else None
        if last and "\n" not in last.text + text and _same(last, cost / size):
            found[-1] = replace(last, text=last.text + text, bytes=last.bytes + size, bits=last.bits + cost)
        else:
            found.append(Piece(text, size, cost))
        size, cost = 0, 0.0
    return found


def _same(last: Piece, bits_per_byte: float) -> bool:
    return last.bits_per_byte == bits_per_byte or math.isclose(last.bits_per_byte, bits_per_byte, rel_tol=1e-9)


def _bits(bits_N: NDArray[Any]) -> str:
    total = float(bits_N.astype(np.float64).sum())
    return f"{total:,.0f} bits" if math.isfinite(total) else "impossible"


def _finite(row: Row) -> bool:
    return row.bits_per_byte is not None and math.isfinite(row.bits_per_byte) and row.error is None


def _passage_end(data: bytes) -> int:
    """Where the passage ends: after a line, a word or at least a character."""
    if len(data) <= PASSAGE:
        return len(data)
    ends = (data.rfind(mark, PASSAGE // 2, PASSAGE) + 1 for mark in (b"\n", b" "))
    return next(filter(None, ends), _character_start(data, PASSAGE))


def _character_start(data: bytes, at: int) -> int:
    """The same place, or a little before it where it lies inside a character."""
    for start in range(at, max(at - 4, -1), -1):
        if start >= len(data) or data[start] & 0xC0 != 0x80:
            return start
    return at  # not UTF-8


def _whole_words(place: Place, text: bytes) -> Place:
    """The place, grown to whole words where their ends are near, else to whole characters."""
    ahead = max(text.rfind(mark, max(0, place.start - WORD), place.start) for mark in (b" ", b"\n"))
    after = [at for mark in (b" ", b"\n") if (at := text.find(mark, place.end, place.end + WORD)) >= 0]
    start = ahead + 1 if ahead >= 0 else _character_start(text, place.start)
    return place._replace(start=start, end=min(after) if after else _character_start(text, place.end))
