"""Which row is best, which are dominated, and which model to choose, in plain words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from octavo.experiments.compare.rows import COMPRESSOR, CompareRow
from octavo.io.files import size
from octavo.training.diagnosis.curve import STILL_FALLING, fall_at_the_end

CLOSE, NEAR = 0.03, 0.10  # how much worse than the best may still be a good choice
WORTH_SAYING = 1.5  # times as fast or as small
DOMINATED = (
    "another model needs no more bits per byte, trains no longer, is no larger on disk and scores no slower, "
    "and is better in one of them"
)

Curve = Sequence[tuple[float, float]]  # the share of the budget spent, and the bits per byte of validation chunks


def rank_rows(rows: Sequence[CompareRow]) -> tuple[CompareRow, ...]:
    """The rows from best to worst, failed ones last, with the best and the dominated marked."""
    order = sorted(rows, key=lambda row: (row.bits_per_byte is None, row.bits_per_byte or 0.0))
    best = next((row.model for row in order if _usable(row)), None)
    return tuple(replace(row, best=row.model == best) for row in mark_dominated(order))


def mark_dominated(rows: Sequence[CompareRow]) -> tuple[CompareRow, ...]:
    """The rows, each marked if another model is at least as good in everything that counts, and better in one."""
    usable = [row for row in rows if _usable(row)]
    return tuple(
        replace(row, dominated=_usable(row) and any(_dominates(other, row) for other in usable)) for row in rows
    )


def _usable(row: CompareRow) -> bool:
    """Whether it is a model that works: compressors are only a line to compare with."""
    return row.family != COMPRESSOR and row.is_finite


def _dominates(one: CompareRow, other: CompareRow) -> bool:
    """Whether it is no worse in all that should be small, and better in one; what is not known of both decides not."""
    pairs = [(one.bits_per_byte, other.bits_per_byte), (one.seconds, other.seconds), (one.bytes, other.bytes),
             (other.score_rate, one.score_rate)]  # fmt: skip
    known = [(a, b) for a, b in pairs if a is not None and b is not None]
    return len(known) == len(pairs) and all(a <= b for a, b in known) and any(a < b for a, b in known)


def advice(
    rows: Sequence[CompareRow], curves: Mapping[str, Curve] | None = None, device: str = "cpu"
) -> tuple[str, ...]:
    """The recommendation: sentences that the rows, and the curves of the neural ones, support."""
    usable = sorted((row for row in rows if _usable(row)), key=_bits)
    if not usable:
        return ("No model could be trained and measured, so nothing can be recommended.",)
    best = usable[0]
    sentences = [_best(best, rows), *_alike(usable), *_cheaper(usable), *_smaller(usable), *_faster(usable)]
    return (*sentences, *_against_counts(usable), *_more_time(usable, curves or {}, device))


def _bits(row: CompareRow) -> float:
    assert row.bits_per_byte is not None
    return row.bits_per_byte


def _best(best: CompareRow, rows: Sequence[CompareRow]) -> str:
    sentence = f"{best.model} ({best.title}) is the best of these: {_bits(best):.3f} bits per byte"
    lines = [row for row in rows if row.family == COMPRESSOR and row.bits_per_byte is not None]
    if not lines:
        return f"{sentence}."
    line = min(lines, key=_bits)
    share = 1 - _bits(best) / _bits(line)
    return f"{sentence}, {abs(share):.0%} {'less' if share >= 0 else 'more'} than {line.title}."


def _alike(usable: Sequence[CompareRow]) -> list[str]:
    """Rows whose intervals over seeds overlap with that of the best."""
    best = usable[0]
    if "seeds" not in best.interval or best.high is None:
        return []
    alike = [row.model for row in usable[1:] if "seeds" in row.interval and (row.low or math.inf) <= best.high]
    over = f"{best.interval[0].upper()}{best.interval[1:]}"
    return [f"{over}, {_named(alike)} cannot be distinguished from it."] if alike else []


def _near(usable: Sequence[CompareRow], worse: float = NEAR) -> list[CompareRow]:
    """The rows that need at most so much more than the best."""
    return [row for row in usable if _bits(row) <= (1 + worse) * _bits(usable[0])]


def _cheaper(usable: Sequence[CompareRow]) -> list[str]:
    """What trains much faster and is nearly as good."""
    best = usable[0]
    for worse in (CLOSE, NEAR):
        timed = [row for row in _near(usable, worse) if row.seconds is not None]
        quick = min(timed, key=lambda row: row.seconds or 0.0, default=best)
        if best.seconds and quick.seconds is not None and best.seconds >= WORTH_SAYING * quick.seconds:
            ratio = best.seconds / max(quick.seconds, 0.01)
            times = f"{ratio:,.0f}" if ratio >= 9.5 else f"{ratio:.1f}"
            seconds = f"{quick.seconds:.1f}" if quick.seconds < 10 else f"{quick.seconds:,.0f}"
            return [f"{quick.model} ({quick.title}) is {_behind(quick, best)} and trains {times} times faster, "
                    f"in {seconds} s: take it if you train often."]  # fmt: skip
    return []


def _smaller(usable: Sequence[CompareRow]) -> list[str]:
    """The smallest that is not far behind."""
    best = usable[0]
    small = min((row for row in _near(usable) if row.bytes), key=lambda row: row.bytes or 0, default=best)
    if not best.bytes or not small.bytes or best.bytes < WORTH_SAYING * small.bytes:
        return []
    return [
        f"{small.model} is the smallest that is not more than {NEAR:.0%} behind: {size(small.bytes)} on disk instead "
        f"of {size(best.bytes)}, {_behind(small, best)}."
    ]


def _faster(usable: Sequence[CompareRow]) -> list[str]:
    """What generates fastest and is not far behind."""
    best = usable[0]
    quick = max(_near(usable), key=lambda row: row.generation_rate or 0.0, default=best)
    rate, usual = quick.generation_rate, best.generation_rate
    if not rate or not usual or rate < WORTH_SAYING * usual:
        return []
    return [f"{quick.model} generates fastest among those near the best: {rate:,.0f} tokens a second instead of "
            f"{usual:,.0f}."]  # fmt: skip


def _against_counts(usable: Sequence[CompareRow]) -> list[str]:
    """Whether learning by gradients has paid within the budget."""
    counted = [row for row in usable if row.family == "counts" and row.model != "bigram"]
    neural = [row for row in usable if row.is_neural]
    if not counted or not neural:
        return []
    line = counted[0]
    ahead = [row.model for row in neural if _bits(row) < _bits(line)]
    if not ahead:
        return [f"With this budget no neural model alone is better than {line.model}, which only counts."]
    behind = len(neural) - len(ahead)
    rest = f"; the {'other one has' if behind == 1 else f'other {behind} have'} not got there" if behind else ""
    verb = "is" if len(ahead) == 1 else "are"
    return [f"Alone, {_named(ahead)} {verb} better than {line.model}, which only counts{rest}."]


def _more_time(usable: Sequence[CompareRow], curves: Mapping[str, Curve], device: str) -> list[str]:
    """What more training would bring, by the end of a curve."""
    neural = [row for row in usable if row.is_neural and len(curves.get(row.model, ())) >= 4]
    falling = [row.model for row in neural if fall_at_the_end(curves[row.model]) >= STILL_FALLING]
    done = [row.model for row in neural if fall_at_the_end(curves[row.model]) <= 0]
    sentences = []
    if falling:
        gpu = "" if device.startswith("cuda") else ", or a GPU (--device cuda),"
        sentences.append(
            f"{_named(falling)} {'was' if len(falling) == 1 else 'were'} still getting better when the budget was "
            f"spent: a larger --budget{gpu} may change the order."
        )
    if done:
        sentences.append(
            f"{_named(done)} did not get better in the last third of the budget: more of it would be wasted."
        )
    return sentences


def _behind(row: CompareRow, best: CompareRow) -> str:
    """How many more bits it needs."""
    return f"{_bits(row) / _bits(best) - 1:.1%} behind the best"


def _named(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
