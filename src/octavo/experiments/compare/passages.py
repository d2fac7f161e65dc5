"""The held-out text under several models: one passage as each of them sees it, and where two disagree most.

All of it comes from the bits that each byte cost when it was scored; no model runs again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from octavo.experiments.compare.rows import MIXTURE, CompareRow, Comparison
from octavo.pages.markup import NOTHING, join
from octavo.pages.sections import paragraph, section, side_by_side, subsection, tabs
from octavo.pages.surprisal import Piece, annotated_text, surprisal_legend, whole_characters
from octavo.tasks.language_page import character_start, readable_end

ByteCosts = Mapping[str, NDArray[Any]]  # of each model: the bits that every byte of the text cost

SEARCHED_BYTES = 1 << 22  # of the held-out text
PASSAGE_BYTES = 480  # shown under every model
WINDOW_BYTES = 60  # of a place where two models disagree
CONTEXT_BYTES = 60  # shown before it
PLACES = 2  # shown for each side of a pair
PAIRS = 2
WORD_BYTES = 12  # that a place may grow at either end, to begin and end with a word
IMPOSSIBLE_BITS = 64.0  # of a byte with probability zero, in the search


class Place(NamedTuple):
    """A stretch of the text, and how many bits more it cost one model than another."""

    start: int
    end: int
    difference: float


def same_passage(comparison: Comparison, held_out: bytes, byte_costs: ByteCosts) -> Markup:
    """One passage coloured by each model's surprisal, chosen by a row of buttons that need no script."""
    rows = [row for row in comparison if row.model in byte_costs]
    end = readable_end(held_out, PASSAGE_BYTES)
    if not rows or not end:
        return NOTHING
    views = []
    for row in rows:
        bits = byte_costs[row.model][:end]
        words = paragraph(f"{row.title}: {_bits(bits)} for these {end:,} bytes", quiet=True)
        views.append((row.model, join(words, annotated_text(pieces_of(held_out[:end], bits)))))
    explained = (
        "The beginning of the held-out text. The colour is the cost under the chosen model, in bits per byte; point at "
        "a character to read it."
    )
    return section(
        "Surprisal of one passage, by model", paragraph(explained), surprisal_legend(), tabs("model", "model", views)
    )  # fmt: skip


def disagreements(comparison: Comparison, held_out: bytes, byte_costs: ByteCosts) -> Markup:
    """Where the best of one family beats the best of another by most bits, and where it is the other way round."""
    text = held_out[:SEARCHED_BYTES]
    parts = []
    for one, other in pairs(comparison, byte_costs):
        for less, more in ((one, other), (other, one)):
            places = farthest(byte_costs[less.model][: len(text)], byte_costs[more.model][: len(text)], text)
            passages = [_both(place, (less, more), text, byte_costs) for place in places]
            parts.append(subsection(f"{less.model} predicts better than {more.model}", *passages))
    if not any(parts):
        return NOTHING
    explained = (
        f"Passages of about {WINDOW_BYTES} bytes whose costs differ most between the best models of two families; the "
        "text before them is grey."
    )
    if comparison.corpus.get("valid", {}).get("bytes", len(held_out)) > len(text):
        explained += f" Searched: the first {len(text):,} bytes."
    return section("Where the models disagree most", paragraph(explained), surprisal_legend(), *parts)


def pairs(comparison: Comparison, byte_costs: ByteCosts) -> list[tuple[CompareRow, CompareRow]]:
    """The best rows of different families, two by two; of one family alone, its best two. Mixtures do not count."""
    known = [row for row in comparison if row.model in byte_costs and row.is_finite and row.family != MIXTURE]
    best = list({row.family: row for row in reversed(known)}.values())
    best.sort(key=lambda row: row.bits_per_byte or 0.0)
    return list(combinations(best if len(best) > 1 else known[:2], 2))[:PAIRS]


def farthest(less_N: NDArray[Any], more_N: NDArray[Any], text: bytes) -> list[Place]:
    """The windows that cost the second model most bits more than the first, apart from each other."""
    costs = [np.nan_to_num(bits.astype(np.float64), posinf=IMPOSSIBLE_BITS) for bits in (less_N, more_N)]
    total = np.concatenate([[0.0], np.cumsum(costs[1] - costs[0])])
    window = min(WINDOW_BYTES, len(text))
    gain = total[window:] - total[:-window] if window else total[:0]
    places: list[Place] = []
    for _ in range(PLACES):
        if not len(gain) or (found := float(gain[at := int(gain.argmax())])) <= 0:
            break
        places.append(Place(at, at + window, found))
        gain[max(0, at - window - CONTEXT_BYTES) : at + window + CONTEXT_BYTES] = -math.inf
    return [_whole_words(place, text) for place in places]


def _both(place: Place, rows: Sequence[CompareRow], text: bytes, byte_costs: ByteCosts) -> Markup:
    """A place under two models, side by side."""
    start, end, _ = place
    first = character_start(text, max(0, start - CONTEXT_BYTES))
    context = text[first:start].decode("utf-8", "replace")
    views = []
    for row in rows:
        bits = byte_costs[row.model][start:end]
        cost = paragraph(f"{row.model}: {_bits(bits)}", quiet=True)
        views.append(join(cost, annotated_text(pieces_of(text[start:end], bits), context)))
    return join(paragraph(f"at byte {start:,}", quiet=True), side_by_side(*views))


def pieces_of(data: bytes, bits_N: NDArray[Any]) -> list[Piece]:
    """Characters and their cost; neighbours whose bytes cost exactly the same were one token, and stay together."""
    merged: list[Piece] = []
    costs = bits_N.astype(np.float64).tolist()
    for piece in whole_characters((data[i : i + 1], bits) for i, bits in enumerate(costs)):
        last = merged[-1] if merged else None
        # Equal infinities are close, too.
        same = last is not None and math.isclose(last.bits_per_byte, piece.bits_per_byte, rel_tol=1e-9)
        if last and same and "\n" not in last.text + piece.text:
            merged[-1] = Piece(last.text + piece.text, last.bytes + piece.bytes, last.bits + piece.bits)
        else:
            merged.append(piece)
    return merged


def _bits(bits_N: NDArray[Any]) -> str:
    total = float(bits_N.astype(np.float64).sum())
    return f"{total:,.0f} bits" if math.isfinite(total) else "impossible"


def _whole_words(place: Place, text: bytes) -> Place:
    """The place, grown to whole words where their ends are near, else to whole characters."""
    ahead = max(text.rfind(mark, max(0, place.start - WORD_BYTES), place.start) for mark in (b" ", b"\n"))
    after = [at for mark in (b" ", b"\n") if (at := text.find(mark, place.end, place.end + WORD_BYTES)) >= 0]
    start = ahead + 1 if ahead >= 0 else character_start(text, place.start)
    return place._replace(start=start, end=min(after) if after else character_start(text, place.end))
