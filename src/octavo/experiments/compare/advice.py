"""Which row is best, which tie, which are dominated, and which model to choose, in plain words.

A difference counts where the paired test over blocks of the text says so (`octavo.experiments.compare.intervals`); no
model is recommended that a compressor beats.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from octavo.experiments.compare.adaptive import bits_of as _bits
from octavo.experiments.compare.adaptive import compare_with_fixed
from octavo.experiments.compare.intervals import BlockCosts
from octavo.experiments.compare.rows import COMPRESSOR, NOT_PROVED, CompareRow
from octavo.io.files import size
from octavo.text.overlap import REPEAT_BYTES
from octavo.training.diagnosis.curve import STILL_FALLING, fall_at_the_end

CLOSE, NEAR = 0.03, 0.10  # how much worse than the best may still be a good choice
WORTH_SAYING = 1.5  # times as fast or as small
MIN_SAVED_SECONDS, MIN_SAVED_BYTES = 1.0, 1 << 20  # that make a difference to anyone
MIN_HELD_OUT_BYTES = 1 << 11  # fewer do not tell models apart
MIN_REPEATED = 0.2  # share of a text that stands in the training text, from which on it repeats itself
DOMINATED = (
    "another model needs no more bits per byte, trains no longer, is no larger on disk and scores no slower, "
    "and is better in one of them"
)

BEHIND = "behind: bits per byte more than the row above"
TIE = "tie: on the same blocks of the text, the 95 % interval of this difference holds zero"

Curve = Sequence[tuple[float, float]]  # the share of the budget spent, and the bits per byte of validation chunks


@dataclass(frozen=True)
class Evidence:
    """What the advice rests on besides the rows."""

    blocks: BlockCosts = field(default_factory=BlockCosts)  # without them nothing is called a tie
    curves: Mapping[str, Curve] = field(default_factory=dict)  # of the neural models
    device: str = "cpu"
    repeated: float = 0.0  # the share of the held-out text that stands word for word in the training text


def rank_rows(rows: Sequence[CompareRow], blocks: BlockCosts = BlockCosts()) -> tuple[CompareRow, ...]:  # noqa: B008
    """The rows from best to worst, failed ones last, with the best, the dominated and the ties marked."""
    order = sorted(rows, key=lambda row: (row.bits_per_byte is None, row.bits_per_byte or 0.0))
    best = next((row.model for row in order if _usable(row)), None)
    marked = [replace(row, best=row.model == best) for row in mark_dominated(order)]
    return tuple(_beside(row, above, blocks) for row, above in zip(marked, [None, *marked], strict=False))


def _beside(row: CompareRow, above: CompareRow | None, blocks: BlockCosts) -> CompareRow:
    """The row with its difference from the one above, and its interval where both were measured on blocks."""
    if above is None or not (row.is_finite and above.is_finite):
        return replace(row, behind=None, behind_low=None, behind_high=None, tie=False)
    found = blocks.difference(row.model, above.model)
    if found is None:
        return replace(row, behind=_bits(row) - _bits(above), behind_low=None, behind_high=None, tie=False)
    return replace(row, behind=found.mean, behind_low=found.low, behind_high=found.high, tie=found.is_tie)


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


def advice(rows: Sequence[CompareRow], evidence: Evidence = Evidence()) -> tuple[str, ...]:  # noqa: B008
    """The recommendation: sentences that the rows and the evidence support; what failed is not passed over."""
    return (*_judgement(rows, evidence), *_failed(rows))


def _failed(rows: Sequence[CompareRow]) -> list[str]:
    """The models that nothing can be said of."""
    ways = {"is not proved": [row.model for row in rows if row.error and row.error.startswith(NOT_PROVED)]}
    ways["failed"] = [row.model for row in rows if row.error and row.model not in ways["is not proved"]]
    return [
        f"{_named(names)} {verb if len(names) == 1 else verb.replace('is ', 'are ')}, so "
        f"{'it is' if len(names) == 1 else 'they are'} not judged."
        for verb, names in ways.items() if names
    ]  # fmt: skip


def _judgement(rows: Sequence[CompareRow], evidence: Evidence) -> tuple[str, ...]:
    usable = sorted((row for row in rows if _usable(row)), key=_bits)
    if not usable:
        return ("No model could be trained and measured, so nothing can be recommended.",)
    best, blocks = usable[0], evidence.blocks
    if 0 < blocks.bytes < MIN_HELD_OUT_BYTES:
        return (_too_little(best, blocks.bytes),)
    lines = [row for row in rows if row.family == COMPRESSOR and row.is_finite]
    peer = min(lines, key=_bits, default=None)
    if peer is not None and _bits(peer) < _bits(best):
        adapting = compare_with_fixed(rows, blocks, is_tested=not best.adaptive)
        return (_beaten(best, peer, evidence), *adapting, *_tokenizers(usable, blocks), *_more_time(usable, evidence))
    choices = [row for row in usable if peer is None or _bits(row) < _bits(peer)]
    sentences = [_best(best, peer, blocks), *compare_with_fixed(rows, blocks), *_ties(usable, blocks)]
    sentences += _cheaper(choices, blocks)
    sentences += [*_smaller(choices, blocks), *_faster(choices), *_against_counts(usable, blocks)]
    return (*sentences, *_tokenizers(usable, blocks), *_more_time(usable, evidence))


def _too_little(best: CompareRow, held_out: int) -> str:
    known = f", with a 95 % interval from {best.low:.3f} to {best.high:.3f}" if best.low is not None else ""
    return (
        f"Too little text to tell which model is best: {held_out:,} bytes were held out, and it takes "
        f"{MIN_HELD_OUT_BYTES:,}. {best.model} has the fewest bits per byte, {_bits(best):.3f}{known}. Give more text, "
        f"about {size(10 * MIN_HELD_OUT_BYTES)} in all, or a text to measure on (--valid FILE)."
    )


def _beaten(best: CompareRow, peer: CompareRow, evidence: Evidence) -> str:
    """What to say where a compressor needs fewer bits than every model."""
    found = evidence.blocks.difference(best.model, peer.model)
    words = "the best model" if best.adaptive or not peer.adaptive else "the best fixed model"
    of = f"{peer.title}, needs {_bits(peer):.3f} bits per byte, {best.model}, {words}, {_bits(best):.3f}"
    if found is not None and found.is_tie:
        return f"No model beats {peer.model}: {of}, a tie ({found.in_words()})."
    interval = f" ({found.in_words()})" if found is not None else ""
    if evidence.repeated >= MIN_REPEATED:
        why = (
            f"Your text repeats itself: {evidence.repeated:.0%} of the held-out text stands word for word in the "
            f"training text, in stretches of {REPEAT_BYTES} bytes or more, and a compressor copies those from far back"
        )
    else:
        why = "A larger --budget, or other --models, may change that"
    return f"No model beats {peer.model}: {of}{interval}. {why}."


def _best(best: CompareRow, peer: CompareRow | None, blocks: BlockCosts) -> str:
    sentence = f"{best.model} ({best.title}) is the best of these: {_bits(best):.3f} bits per byte"
    if peer is None:
        return f"{sentence}."
    found = blocks.difference(best.model, peer.model)
    if found is not None and found.is_tie:
        return f"{sentence}, a tie with {peer.title}, the strongest compressor ({found.in_words()})."
    return f"{sentence}, {1 - _bits(best) / _bits(peer):.0%} less than {peer.title}, the strongest compressor."


def _ties(usable: Sequence[CompareRow], blocks: BlockCosts) -> list[str]:
    """The models that the text does not tell from the best."""
    found = {row.model: blocks.difference(row.model, usable[0].model) for row in usable[1:]}
    ties = {model: one for model, one in found.items() if one is not None and one.is_tie}
    if not ties:
        return []
    how = "; ".join(f"{model} {one.in_words()}" for model, one in ties.items())
    verb, count = "ties" if len(ties) == 1 else "tie", max(one.blocks for one in ties.values())
    return [f"{_named(list(ties))} {verb} with it on the {count} blocks of this text: {how}."]


def _near(usable: Sequence[CompareRow], worse: float = NEAR) -> list[CompareRow]:
    """The rows that need at most so much more than the best."""
    return [row for row in usable if _bits(row) <= (1 + worse) * _bits(usable[0])]


def _cheaper(usable: Sequence[CompareRow], blocks: BlockCosts) -> list[str]:
    """What trains much faster and is nearly as good."""
    best = usable[0]
    for worse in (CLOSE, NEAR):
        timed = [row for row in _near(usable, worse) if row.seconds is not None]
        quick = min(timed, key=lambda row: row.seconds or 0.0, default=best)
        if best.seconds is None or quick.seconds is None or best.seconds - quick.seconds < MIN_SAVED_SECONDS:
            continue
        if best.seconds >= WORTH_SAYING * quick.seconds:
            ratio = best.seconds / max(quick.seconds, 0.01)
            times = f"{ratio:,.0f}" if ratio >= 9.5 else f"{ratio:.1f}"
            seconds = f"{quick.seconds:.1f}" if quick.seconds < 10 else f"{quick.seconds:,.0f}"
            return [f"{quick.model} ({quick.title}) {_behind(quick, best, blocks)} and trains {times} times faster, "
                    f"in {seconds} s: take it if you train often."]  # fmt: skip
    return []


def _smaller(usable: Sequence[CompareRow], blocks: BlockCosts) -> list[str]:
    """The smallest that is not far behind."""
    best = usable[0]
    small = min((row for row in _near(usable) if row.bytes), key=lambda row: row.bytes or 0, default=best)
    if not best.bytes or not small.bytes or best.bytes < WORTH_SAYING * small.bytes:
        return []
    if best.bytes - small.bytes < MIN_SAVED_BYTES:
        return []
    return [
        f"{small.model} is the smallest that is not more than {NEAR:.0%} behind: {size(small.bytes)} on disk instead "
        f"of {size(best.bytes)}; it {_behind(small, best, blocks)}."
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


def _against_counts(usable: Sequence[CompareRow], blocks: BlockCosts) -> list[str]:
    """Whether learning by gradients has paid within the budget."""
    counted = [row for row in usable if row.family == "counts" and row.model != "bigram"]
    neural = [row for row in usable if row.is_neural]
    if not counted or not neural:
        return []
    line = counted[0]
    tested = {row.model: blocks.difference(row.model, line.model) for row in neural}
    ties = [model for model, found in tested.items() if found is not None and found.is_tie]
    ahead = [row.model for row in neural if _bits(row) < _bits(line) and row.model not in ties]
    tied = f"; {_named(ties)} {'ties' if len(ties) == 1 else 'tie'} with it" if ties else ""
    if not ahead:
        return [f"With this budget no neural model alone is better than {line.model}, which only counts{tied}."]
    behind = len(neural) - len(ahead) - len(ties)
    rest = f"; the {'other one has' if behind == 1 else f'other {behind} have'} not got there" if behind else ""
    verb = "is" if len(ahead) == 1 else "are"
    return [f"Alone, {_named(ahead)} {verb} better than {line.model}, which only counts{tied}{rest}."]


def _tokenizers(usable: Sequence[CompareRow], blocks: BlockCosts) -> list[str]:
    """Which tokenizer pays, of each model that was compared with several."""
    groups: dict[str, list[CompareRow]] = {}
    for row in usable:
        groups.setdefault(row.variant_of or row.model, []).append(row)
    words = [_tokenizer(model, rows, blocks) for model, rows in groups.items() if len(rows) > 1]
    return [f"Which tokenizer pays: {'; '.join(words)}."] if words else []


def _tokenizer(model: str, rows: Sequence[CompareRow], blocks: BlockCosts) -> str:
    """The best tokenizers of a model, and what the usual one, or the next, needs more."""
    found = {row.model: blocks.difference(row.model, rows[0].model) for row in rows}
    pays = [row for row in rows if row is rows[0] or ((one := found[row.model]) is not None and one.is_tie)]
    rest = sorted((row for row in rows if row not in pays), key=lambda row: row.model != model)
    words = f"{_named([row.tokenizer for row in pays])} for {model}{' (a tie)' if len(pays) > 1 else ''}"
    if not rest:
        return words
    more = found[rest[0].model]
    needs = more.in_words() if more is not None else f"{_bits(rest[0]) - _bits(rows[0]):+.3f} bits per byte"
    return f"{words}, where {rest[0].tokenizer} needs {needs}"


def _more_time(usable: Sequence[CompareRow], evidence: Evidence) -> list[str]:
    """What more training would bring, by the end of a curve."""
    curves = evidence.curves
    neural = [row for row in usable if row.is_neural and len(curves.get(row.model, ())) >= 4]
    falling = [row.model for row in neural if fall_at_the_end(curves[row.model]) >= STILL_FALLING]
    done = [row.model for row in neural if fall_at_the_end(curves[row.model]) <= 0]
    sentences = []
    if falling:
        gpu = "" if evidence.device.startswith("cuda") else ", or a GPU (--device cuda),"
        sentences.append(
            f"{_named(falling)} {'was' if len(falling) == 1 else 'were'} still getting better when the budget was "
            f"spent: a larger --budget{gpu} may change the order."
        )
    if done:
        sentences.append(
            f"{_named(done)} did not get better in the last third of the budget: more of it would be wasted."
        )
    return sentences


def _behind(row: CompareRow, best: CompareRow, blocks: BlockCosts) -> str:
    """How many more bits it needs."""
    found = blocks.difference(row.model, best.model)
    if found is not None and found.is_tie:
        return "ties with the best"
    return f"is {_bits(row) / _bits(best) - 1:.1%} behind the best"


def _named(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
