"""Adaptive rows: what it buys to go on learning from the held-out text while it is scored, and what it costs.

An adaptive model pays for every byte before it learns from it, so its number is as honest as a fixed model's. The two
are good for different things: see docs/bits-per-byte.md.
"""

from __future__ import annotations

from collections.abc import Sequence

from octavo.experiments.compare.intervals import BlockCosts
from octavo.experiments.compare.rows import COMPRESSOR, CompareRow
from octavo.experiments.table import ADAPTIVE, show_amount

COMPRESSORS_ADAPT = f"{ADAPTIVE}; every general compressor does"


def compare_with_fixed(rows: Sequence[CompareRow], blocks: BlockCosts, is_tested: bool = False) -> list[str]:
    """What adapting buys and costs, where an adaptive row needs fewer bits than every fixed model.

    `is_tested`: whether the sentence before has named the best fixed model and tested the difference.
    """
    finite = sorted((row for row in rows if row.is_finite), key=bits_of)
    fixed = next((row for row in finite if not row.adaptive and row.family != COMPRESSOR), None)
    if fixed is None or not finite[0].adaptive:
        return []
    first = finite[0]
    found = None if is_tested else blocks.difference(fixed.model, first.model)
    interval = f", 95 % interval {found.low:.3f} to {found.high:.3f}" if found is not None else ""
    tie = ", a tie" if found is not None and found.is_tie else ""
    named = "" if is_tested else (
        f"The best fixed model is {fixed.model} ({fixed.title}): {bits_of(fixed):.3f} bits per byte. "
    )  # fmt: skip
    buys = " and models text in a way of its own; that buys" if first.family == COMPRESSOR else ", which buys"
    return [
        f"{named}{first.model} is adaptive: it goes on learning from the held-out text while it scores it{buys} "
        f"{bits_of(fixed) - bits_of(first):.3f} bits per byte{interval}{tie}. It costs {_time(first, fixed)}state: "
        f"{_state(first)}."
    ]


def bits_of(row: CompareRow) -> float:
    """The bits per byte of a row that has a result."""
    assert row.bits_per_byte is not None
    return row.bits_per_byte


def _time(first: CompareRow, fixed: CompareRow) -> str:
    if not first.score_rate or not fixed.score_rate:
        return "time and "
    unit = "bytes" if first.family == COMPRESSOR else "tokens"
    return (
        f"time ({first.model} reads {show_amount(first.score_rate)} {unit} a second, {fixed.model} "
        f"{show_amount(fixed.score_rate)} tokens) and "
    )


def _state(first: CompareRow) -> str:
    if first.family == COMPRESSOR:
        return "it stores nothing of what it has learnt, reads the training text again each time, and cannot generate"
    return "what it has learnt of a text must be stored to continue it, and a text is read in order, in one stream"
