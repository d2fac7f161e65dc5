"""The page that measures models on two domains: the table, the figure, and which words make the difference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from octavo.experiments.domains.result import ModelResult, Row, perplexity, rows_of
from octavo.experiments.domains.scoring import DOMAIN_RATIO, GROUPS, MARK, MAX_COSTLIEST, Reading, gap
from octavo.experiments.excerpts import first_bytes
from octavo.experiments.table import columns_of
from octavo.pages.figures.stacked_bars import Bar, stacked
from octavo.pages.frame import definitions, document, paragraph, section, shown, table, verbatim
from octavo.scoring.bits_per_byte import NOT_COMPARABLE
from octavo.tasks.run import REPORT
from octavo.tasks.run_facts import number

OPENING = 320  # bytes of each excerpt that the page shows
MEANINGS = (
    "characters that the training text never has",
    "words that the training text never has, but for such characters",
    f"known words, here at least {DOMAIN_RATIO:g} times as frequent as in the training text",
    "everything else, spaces and punctuation included",
)
REPORTED_OVERLAP = 0.05  # share of an excerpt in the training text from which the page says so


def domains_page(
    measured: Sequence[ModelResult], originals: Sequence[tuple[str, bytes]], folder: Path, command: str
) -> str:
    """The whole page; `originals` are the excerpts' bytes, `folder` is where the page will lie."""
    (home, first), (away, second) = originals
    lead = paragraph(
        f"Every model scores the same bytes: {len(first):,} of {home} and {len(second):,} of {away}, from the parts "
        "that are held out of training. Bits per byte says what a byte costs, 8 being the text as it is. Compare "
        "different models by that, or by the perplexity of a character, and never by the perplexity of a token."
    )
    return document(f"Two domains: {home} and {away}", lead, [
        section("What a byte costs, and for what", _figure(measured), _meanings()),
        section("The table", _results(measured, folder), *_notes(measured)),
        section("Why the perplexities cannot be compared", *_conversion(measured)),
        section("Which words make the difference", *_gaps(measured, home, away)),
        section("With and without preprocessing", *_preprocessing(measured)),
        section("The words that cost most", *_words(measured)),
        section("The excerpts", *_openings(originals, _best(measured))),
        section("Make it again", verbatim(command)),
    ])  # fmt: skip


def _figure(measured: Sequence[ModelResult]) -> str:
    sets = []
    for family, members in groupby(measured, key=lambda one: one.family):
        bars = [
            Bar(f"+ {one.steps}" if one.steps and one.name != family else reading.text,
                tuple(map(reading.cost, reading.groups)), bool(one.label))
            for readings in zip(*([(one, one.home), (one, one.away)] for one in members), strict=True)
            for one, reading in readings
        ]  # fmt: skip
        sets.append((family, bars))
    caption = "Bits per byte, lower is better; the parts of a bar add up to it."
    if any(one.label for one in measured):
        caption += f" *, pale: {NOT_COMPARABLE}, because preprocessing threw information away before scoring."
    return stacked(sets, GROUPS, caption, "bits per byte")


def _meanings() -> str:
    return definitions(zip(GROUPS, MEANINGS, strict=True)) + paragraph(
        "A byte belongs to a group by its character and its word, so the groups are the same whatever the model's "
        "tokens are; a token's bits are shared evenly among its bytes.", "quiet",
    )  # fmt: skip


def _results(measured: Sequence[ModelResult], folder: Path) -> str:
    columns, rows = columns_of(Row, "page"), []
    for one in measured:
        for i, row in enumerate(rows_of([one], {})):
            name = _link(one, folder) if i == 0 else ""
            text = shown(_text(one, (one.home, one.away)[i]))
            rows.append((name, text, *(shown(column.text(row)) for column in columns[2:])))
    return table([shown(column.title) for column in columns], rows, right=tuple(range(2, len(columns))))


def _text(one: ModelResult, reading: Reading) -> str:
    return f"{reading.text} + {one.steps}" if one.steps else reading.text


def _link(one: ModelResult, folder: Path) -> str:
    """The model's name and title; where the run lies below the page and has one of its own, a link to that."""
    path, name = Path(one.run), shown(one.name)
    if one.run and path.parent == folder and (path / REPORT).is_file():
        name = f'<a href="{shown(f"{path.name}/{REPORT}")}">{name}</a>'
    return f"{name}<br>{shown(one.title)}"


def _notes(measured: Sequence[ModelResult]) -> list[str]:
    notes = []
    if any(one.label for one in measured):
        notes.append(paragraph(f"*: {NOT_COMPARABLE}; see below.", "quiet"))
    notes += [
        paragraph(f"{one.name}: {one.overlap:.0%} of an excerpt stands in its training text, which flatters it.")
        for one in measured if one.overlap >= REPORTED_OVERLAP
    ]  # fmt: skip
    notes += [
        paragraph(f"{one.name} gives probability zero to {reading.impossible:,} of {reading.tokens:,} tokens of "
                  f"{reading.text}, and one is enough to make the sum infinite.")
        for one in measured for reading in (one.home, one.away) if reading.impossible
    ]  # fmt: skip
    return notes


def _conversion(measured: Sequence[ModelResult]) -> list[str]:
    """The argument, with the figures of the best model of words and the best of smaller tokens."""
    told = [paragraph(
        "A model's perplexity is the inverse of the probability it gives a token, averaged geometrically. How many "
        "tokens the text has is the tokenizer's choice: a model of words takes few decisions among thousands, a model "
        "of characters many among dozens. Spread over so different numbers of decisions, the same total looks large "
        "or small. What does not depend on the cut is the total: perplexity to the power of the number of tokens is 1 "
        "over the probability of the whole text, and its logarithm is the bits. Divided by the bytes of the text, "
        "which no tokenizer can change, it can be compared."
    )]  # fmt: skip
    fair = [one for one in measured if not one.label and math.isfinite(one.home.bits)]
    kinds = [[one for one in fair if (one.home.unknown_rate is not None) == words] for words in (True, False)]
    best = [min(kind, key=lambda one: one.home.bits) for kind in kinds if kind]
    if not best:
        return told
    sums = [
        (shown(one.title), perplexity(one.home.token_perplexity), f"{one.home.tokens:,}", f"{one.home.bits:,.0f}",
         f"{one.home.bytes:,}", number(one.home.bits_per_byte))
        for one in best
    ]  # fmt: skip
    titles = ("model", "perplexity", "tokens", "bits = tokens × log₂ perplexity", "÷ bytes", "= bits a byte")
    told.append(table(titles, sums, right=(1, 2, 3, 4, 5)))
    if len(best) == 2:
        larger, better = (max(best, key=key) for key in (_per_token, _saved))
        verdict = "yet it predicts the text better" if larger is better else "and it is the worse model too"
        told.append(paragraph(
            f"On {best[0].home.text}, {larger.title} has the larger perplexity a token, {verdict}: the "
            "perplexities alone could not have told."
        ))  # fmt: skip
    return told


def _per_token(one: ModelResult) -> float:
    return one.home.token_perplexity


def _saved(one: ModelResult) -> float:
    return -one.home.bits


def _gaps(measured: Sequence[ModelResult], home: str, away: str) -> list[str]:
    titles = ("model", "gap", *map(shown, GROUPS))
    rows = [
        (_starred(one), _signed(one.gap), *map(_signed, gap(one.home, one.away).values()))
        for one in measured
    ]  # fmt: skip
    prices = [
        (_starred(one) if reading is one.home else "", shown(reading.text),
         *(f"{reading.share(g):.1%} at {_price(g.bits_per_byte)}" if g.bytes else "none" for g in reading.groups))
        for one in measured for reading in (one.home, one.away)
    ]  # fmt: skip
    return [
        paragraph(
            f"The gap is what a byte of {away} costs more than one of {home}. Each byte counts with what it costs "
            f"beyond the model's average byte of {home}, so a group that is only larger adds nothing; below zero, it "
            "makes the gap smaller. The four columns add up to the gap."
        ),
        table(titles, rows, right=(1, 2, 3, 4, 5)),
        paragraph("The share of the bytes that each group has, and the bits per byte within it:"),
        table(("model", "text", *map(shown, GROUPS)), prices, right=(2, 3, 4, 5)),
    ]  # fmt: skip


def _starred(one: ModelResult) -> str:
    return shown(one.name) + (" *" if one.label else "")


def _preprocessing(measured: Sequence[ModelResult]) -> list[str]:
    pairs = [
        (plain, twin)
        for _, members in groupby(measured, key=lambda one: one.family)
        for plain, *twins in [sorted(members, key=lambda one: bool(one.label))]
        for twin in twins if not plain.label and twin.label
    ]  # fmt: skip
    if not pairs:
        return [paragraph("None of the runs has a twin that differs in preprocessing alone.")]
    rows = [
        (shown(plain.name), shown(twin.steps), *(
            f"{number(a.bits_per_byte)} → {number(b.bits_per_byte)} *"
            for a, b in ((plain.home, twin.home), (plain.away, twin.away))
        ))
        for plain, twin in pairs
    ]  # fmt: skip
    texts = (pairs[0][0].home.text, pairs[0][0].away.text)
    return [
        paragraph(
            "The twin of a model learns from the changed text and scores the same excerpt after the same change. Its "
            "bits are divided by the bytes as they were before. Where the figure falls, the model has not become "
            "better: the bits describe a text from which the original cannot be restored, and what was thrown away was "
            "not paid for. Where it rises, what was thrown away had helped to predict the rest. Either way it is "
            f"{NOT_COMPARABLE}, neither with the plain model's figure nor with that of another step."
        ),
        table(("model", "step", *map(shown, texts)), rows, right=(2, 3)),
    ]  # fmt: skip


def _best(measured: Sequence[ModelResult]) -> ModelResult | None:
    """The comparable model that pays least for both excerpts."""
    fair = [one for one in measured if not one.label and math.isfinite(one.home.bits + one.away.bits)]
    return min(fair, key=lambda one: one.home.bits_per_byte + one.away.bits_per_byte, default=None)


def _words(measured: Sequence[ModelResult]) -> list[str]:
    told = [paragraph(
        f"Up to {MAX_COSTLIEST} words of each excerpt, by what all their occurrences together cost beyond the same "
        "model's average byte of that excerpt (extra bits); ⏎ is the end of a line. A word comes with the space before "
        "it."
    )]  # fmt: skip
    best = _best(measured)
    for one in measured:
        state = " open" if one is best else ""
        tables = "".join(f"<article><h3>{shown(r.text)}</h3>\n{_costliest(r)}</article>" for r in (one.home, one.away))
        told.append(f'<details{state}><summary>{shown(one.name)}</summary>\n<div class="side">{tables}</div></details>')
    return told


def _costliest(reading: Reading) -> str:
    if not reading.costliest:
        return paragraph("The bits are infinite." if reading.impossible else "No word costs more than the average.")
    rows = [
        (f"<code>{shown(visible(c.word))}</code>", f"{c.excess:,.0f}", f"{c.count:,}", f"{c.bits:.1f}", shown(c.group))
        for c in reading.costliest
    ]
    return table(("word", "extra<br>bits", "times", "bits<br>each", "group"), rows, right=(1, 2, 3))


def visible(word: str) -> str:
    """A word on one line: white space and what cannot be printed are spelt."""
    marks = word.replace("\n", "⏎").replace(" ", "␣")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in marks)


def _openings(originals: Sequence[tuple[str, bytes]], best: ModelResult | None) -> list[str]:
    parts = []
    for i, (name, data) in enumerate(originals):
        parts.append(f"<h3>{shown(name)}</h3>")
        if marks := data.count(MARK):
            parts.append(paragraph(
                f"This text holds {marks:,} literal <unk> marks, where its makers removed a rare word. They are part "
                "of its bytes and are scored as the five characters they are; the words they hide cost nothing."
                + (_cost_of_marks(best, (best.home, best.away)[i]) if best else "")
            ))  # fmt: skip
        parts.append(verbatim(first_bytes(data, OPENING).decode("utf-8", "replace") + " …"))
    return parts


def _cost_of_marks(one: ModelResult, reading: Reading) -> str:
    rest = (reading.bits - reading.unk_mark_bits) / max(1, reading.bytes - len(MARK) * reading.unk_marks)
    return (
        f" For {one.name} they are {reading.unk_mark_bits / reading.bits:.1%} of all bits; a byte outside them costs "
        f"{rest:.4f} bits."
    )


def _price(bits: float) -> str:
    return f"{bits:.2f}" if math.isfinite(bits) else "infinite"


def _signed(bits: float) -> str:
    return f"{bits:+.3f}" if math.isfinite(bits) else "infinite"
