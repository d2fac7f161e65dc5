"""The page of models on two domains: their bits per byte, and which words make the difference."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from octavo.experiments.domains.result import DomainsRow, ModelResult, perplexity, rows_of, show_gap
from octavo.experiments.domains.scoring import DOMAIN_RATIO, GROUPS, MARK, MAX_COSTLIEST, Reading, gap
from octavo.experiments.table import adaptive_note, cells_of, marked_name, page_columns
from octavo.io.run_folder import REPORT
from octavo.pages import sections
from octavo.pages.figures.charts import Bar, stacked_bars
from octavo.pages.markup import element, join
from octavo.pages.sections import facts, link, paragraph, section, subsection, table
from octavo.scoring.bits_per_byte import NOT_COMPARABLE
from octavo.tasks.language_page import character_start
from octavo.tasks.run_page import number
from octavo.text.token_display import on_one_line

OPENING_BYTES = 320  # of each excerpt that the page shows
MEANINGS = (
    "characters that the training text never has",
    "words that the training text never has, but for such characters",
    f"known words, here at least {DOMAIN_RATIO:g} times as frequent as in the training text",
    "everything else, spaces and punctuation included",
)
ONE_GROUP = (
    "A byte belongs to a group by its character and its word, so the groups are the same whatever the model's tokens "
    "are; a token's bits are shared evenly among its bytes."
)
REPORTED_OVERLAP = 0.05  # share of an excerpt in the training text from which the page says so


def domains_page(
    measured: Sequence[ModelResult], originals: Sequence[tuple[str, bytes]], folder: Path, command: str,
    failed: Mapping[str, str],
) -> str:  # fmt: skip
    """The whole page; `originals` are the excerpts' bytes, `folder` is where the page will lie; `failed` says of the
    models without a result why."""
    (home, first), (away, second) = originals
    lead = (
        f"Every model scores the same bytes: {len(first):,} of {home} and {len(second):,} of {away}, from the parts "
        "that are held out of training. Bits per byte is the cost of a byte; uncompressed text has 8. Compare "
        "different models by that, or by the perplexity per character, and never by the perplexity per token."
    )
    return sections.render_page(f"Two domains: {home} and {away}", lead, [
        section("Bits per byte, by kind of word", _figure(measured), facts(zip(GROUPS, MEANINGS, strict=True)),
                paragraph(ONE_GROUP, quiet=True)),
        section("Results", _results(measured, folder, failed), *_notes(measured)),
        section("Why token perplexities cannot be compared", *_conversion(measured)),
        section("Which words make the difference", *_gaps(measured, home, away)),
        section("With and without preprocessing", *_preprocessing(measured)),
        section("The most expensive words", *_words(measured)),
        section("The excerpts", *_openings(originals, _best(measured))),
        sections.reproduce([command]),
    ])  # fmt: skip


def _figure(measured: Sequence[ModelResult]) -> Markup:
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
    return stacked_bars(sets, GROUPS, caption, "bits per byte")


def _results(measured: Sequence[ModelResult], folder: Path, failed: Mapping[str, str]) -> Markup:
    rows: list[Any] = []
    for one in measured:
        for i, row in enumerate(rows_of([one], {})):
            _, _, *numbers = cells_of(row)
            text = f"{row.text} + {one.steps}" if one.steps else row.text
            rows.append((_link(one, folder) if i == 0 else "", text, *numbers))
    rows += [sections.TableRow((name, f"failed: {error}"), "failed") for name, error in failed.items()]
    return table(page_columns(DomainsRow), rows)


def _link(one: ModelResult, folder: Path) -> Markup:
    """The model's name and title; where the run lies below the page and has one of its own, a link to that."""
    path = Path(one.run)
    has_page = bool(one.run) and path.parent == folder and (path / REPORT).is_file()
    shown = marked_name(one.name, one.home.adaptive)
    name = link(quote(f"{path.name}/{REPORT}"), shown) if has_page else shown
    return join(element("div", name), element("small", one.title))


def _notes(measured: Sequence[ModelResult]) -> list[Markup]:
    notes = [paragraph(note, quiet=True)] if (note := adaptive_note(one.home for one in measured)) else []
    if any(one.label for one in measured):
        notes.append(paragraph(f"*: {NOT_COMPARABLE}; see below.", quiet=True))
    notes += [
        paragraph(f"{one.name}: {one.overlap:.0%} of an excerpt is in its training text, so its result is too good.")
        for one in measured if one.overlap >= REPORTED_OVERLAP
    ]  # fmt: skip
    notes += [
        paragraph(f"{one.name} gives probability zero to {reading.impossible:,} of {reading.tokens:,} tokens of "
                  f"{reading.text}, and one is enough to make the sum infinite.")
        for one in measured for reading in (one.home, one.away) if reading.impossible
    ]  # fmt: skip
    return notes


def _conversion(measured: Sequence[ModelResult]) -> list[Markup]:
    """The argument, with the results of the best model of words and the best of smaller tokens."""
    parts = [paragraph(
        "A model's perplexity is the inverse of the probability it gives a token, averaged geometrically. How many "
        "tokens the text has is the tokenizer's choice: a model of words makes few predictions among thousands of "
        "words, a model of characters many among dozens. Averaged over such different numbers of predictions, the same "
        "total looks large or small. What does not depend on the tokenizer is the total: perplexity to the power of "
        "the number of tokens is 1 over the probability of the whole text, and its logarithm is the bits. Divided by "
        "the bytes of the text, which no tokenizer can change, it can be compared."
    )]  # fmt: skip
    fair = [one for one in measured if not one.label and math.isfinite(one.home.bits)]
    kinds = [[one for one in fair if (one.home.unknown_rate is not None) == words] for words in (True, False)]
    best = [min(kind, key=lambda one: one.home.bits) for kind in kinds if kind]
    if not best:
        return parts
    sums = [
        (one.title, perplexity(one.home.token_perplexity), f"{one.home.tokens:,}", f"{one.home.bits:,.0f}",
         f"{one.home.bytes:,}", number(one.home.bits_per_byte))
        for one in best
    ]  # fmt: skip
    titles = ("model", "perplexity", "tokens", "bits = tokens × log₂ perplexity", "÷ bytes", "= bits per byte")
    parts.append(table(titles, sums, numeric=(1, 2, 3, 4, 5)))
    if len(best) == 2:
        larger = max(best, key=lambda one: one.home.token_perplexity)
        better = min(best, key=lambda one: one.home.bits)
        verdict = "yet it predicts the text better" if larger is better else "and it is the worse model too"
        parts.append(paragraph(
            f"On {best[0].home.text}, {larger.title} has the larger perplexity per token, {verdict}: the "
            "perplexities alone could not show it."
        ))  # fmt: skip
    return parts


def _gaps(measured: Sequence[ModelResult], home: str, away: str) -> list[Markup]:
    titles = ("model", "gap", *GROUPS)
    rows = [(one.marked_name, *map(show_gap, (one.gap, *gap(one.home, one.away).values()))) for one in measured]
    prices = [
        (one.marked_name if reading is one.home else "", reading.text,
         *(f"{reading.share(g):.1%} at {show_gap(g.bits_per_byte, '.2f')}" if g.bytes else "none"
           for g in reading.groups))
        for one in measured for reading in (one.home, one.away)
    ]  # fmt: skip
    return [
        paragraph(
            f"The gap is what a byte of {away} costs more than one of {home}. Each byte counts with what it costs "
            f"beyond the model's average byte of {home}, so a group that is only larger adds nothing; below zero, it "
            "makes the gap smaller. The four columns add up to the gap."
        ),
        table(titles, rows, numeric=(1, 2, 3, 4, 5)),
        paragraph("The share of the bytes that each group has, and the bits per byte within it:"),
        table(("model", "text", *GROUPS), prices, numeric=(2, 3, 4, 5)),
    ]  # fmt: skip


def _preprocessing(measured: Sequence[ModelResult]) -> list[Markup]:
    pairs = [
        (plain, changed)
        for _, members in groupby(measured, key=lambda one: one.family)
        for plain, *others in [sorted(members, key=lambda one: bool(one.label))]
        for changed in others if not plain.label and changed.label
    ]  # fmt: skip
    if not pairs:
        return [paragraph("No two of the runs differ in preprocessing alone.")]
    rows = [
        (plain.name, changed.steps, *(
            f"{number(a.bits_per_byte)} → {number(b.bits_per_byte)} *"
            for a, b in ((plain.home, changed.home), (plain.away, changed.away))
        ))
        for plain, changed in pairs
    ]  # fmt: skip
    texts = (pairs[0][0].home.text, pairs[0][0].away.text)
    return [
        paragraph(
            "The same model, trained on the preprocessed text, scores the same excerpt after the same preprocessing. "
            "Its bits are divided by the bytes as they were before. Where the result falls, the model has not become "
            "better: the bits describe a text from which the original cannot be restored, and what was removed was not "
            "counted. Where it rises, what was removed had helped to predict the rest. Either way it is "
            f"{NOT_COMPARABLE}, neither with the plain model's result nor with that of another step."
        ),
        table(("model", "step", *texts), rows, numeric=(2, 3)),
    ]  # fmt: skip


def _best(measured: Sequence[ModelResult]) -> ModelResult | None:
    """The comparable model with the fewest bits per byte on both excerpts."""
    fair = [one for one in measured if not one.label and math.isfinite(one.home.bits + one.away.bits)]
    return min(fair, key=lambda one: one.home.bits_per_byte + one.away.bits_per_byte, default=None)


def _words(measured: Sequence[ModelResult]) -> list[Markup]:
    parts = [paragraph(
        f"Up to {MAX_COSTLIEST} words of each excerpt, by what all their occurrences together cost beyond the same "
        "model's average byte of that excerpt (extra bits); ⏎ is the end of a line. A word comes with the space before "
        "it."
    )]  # fmt: skip
    best = _best(measured)
    for one in measured:
        tables = [subsection(reading.text, _costliest(reading)) for reading in (one.home, one.away)]
        parts.append(sections.details(one.name, sections.side_by_side(*tables), is_open=one is best))
    return parts


def _costliest(reading: Reading) -> Markup:
    if not reading.costliest:
        return paragraph("The bits are infinite." if reading.impossible else "No word costs more than the average.")
    rows = [
        (sections.code(on_one_line(c.word)), f"{c.excess:,.0f}", f"{c.count:,}", f"{c.bits:.1f}", c.group)
        for c in reading.costliest
    ]
    return table(("word", "extra bits", "times", "bits each", "group"), rows, numeric=(1, 2, 3))


def _openings(originals: Sequence[tuple[str, bytes]], best: ModelResult | None) -> list[Markup]:
    parts = []
    for i, (name, data) in enumerate(originals):
        parts.append(element("h3", name))
        if marks := data.count(MARK):
            cost = ""
            if best is not None:
                reading = (best.home, best.away)[i]
                rest = (reading.bits - reading.unk_mark_bits) / max(1, reading.bytes - len(MARK) * reading.unk_marks)
                cost = (f" For {best.name} they are {reading.unk_mark_bits / reading.bits:.1%} of all bits; a byte "
                        f"outside them costs {rest:.4f} bits.")  # fmt: skip
            parts.append(paragraph(
                f"This text holds {marks:,} literal <unk> marks, where its makers removed a rare word. They are part "
                "of its bytes and are scored as the five characters they are; the words they hide cost nothing."
                + cost
            ))  # fmt: skip
        shown = data[: character_start(data, OPENING_BYTES)].decode("utf-8", "replace")
        parts.append(sections.verbatim(f"{shown} …"))
    return parts
