"""The part of the page of inspect about a model that learns while it reads: what the text costs before and after."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup

from octavo.inspection.adaptation import MAX_TOKENS, Adaptation, TwoReadings
from octavo.inspection.inspection import Inspection
from octavo.inspection.token_tables import summary_table
from octavo.models.views import TokenTable
from octavo.pages.figures.charts import Series, lines
from octavo.pages.markup import join
from octavo.pages.sections import code, details, paragraph, section, side_by_side, subsection, table
from octavo.pages.surprisal import annotated_text, surprisal_legend, whole_characters
from octavo.text.token_display import display_token

COLOURED_TOKENS = 2000  # of the text that is shown in colours
TABLE_TOKENS = 200
FIRST, SECOND, BEST_EXPERT = "first reading", "second reading", "best expert"

WHAT_IS_LEARNT = (
    "This model goes on learning while it reads. It has read the text twice in a row, with its state carried on: at "
    "the first reading it has learnt from what stood before a token, at the second from the whole text. The fixed "
    "models beside it learn nothing. What they gain at the second reading is what a running state or a context window "
    "holds of the first; the rest of the model's gain is learning. Begin stands in front of each reading."
)
OF_PARTS = "Each of the mixture's parts is read by itself, fixed: a mixture whose experts learn has no fixed form."
SO_FAR = "Bits per byte of the text so far. Where a curve ends, it is the score of all that was read."


def adaptation_section(one: Inspection, name: str) -> Markup:
    """What learning from the text has done, in numbers, as a curve, in colours and token by token."""
    found = one.adaptation
    if found is None:
        return Markup()
    return section(
        f"{name} learns while it reads", paragraph(WHAT_IS_LEARNT), paragraph(OF_PARTS) if one.experts else "",
        table(*readings_table(found), numeric=(1, 2, 3), row_headers=True),
        paragraph(found.too_short) if found.too_short else "",
        paragraph(f"How it learns: {found.policy}.", quiet=True), _curve(found),
        experts_part(one.experts) if one.experts else "", _in_colours(one, found), _token_by_token(one, found),
        paragraph(limit_note(found), quiet=True) if found.truncated else "",
    )  # fmt: skip


def limit_note(found: Adaptation) -> str:
    """Said where the text was longer than what is read."""
    return f"Only the first {len(found.x_N):,} tokens were read twice, {MAX_TOKENS:,} at most."


def readings_table(found: Adaptation) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Titles and rows, as plain text: of each model the bits per byte of both readings, and what the second saves."""
    return ("bits per byte", FIRST, SECOND, "saved"), [_readings_row(found, one) for one in found.every]


def _readings_row(found: Adaptation, one: TwoReadings) -> tuple[str, ...]:
    first, second = one.bits
    finite = math.isfinite(first) and math.isfinite(second)
    if one is found.learning and found.too_short:
        return one.name, in_digits(found.per_byte(first), 4), in_digits(found.per_byte(second), 4), "nothing learnt"
    saved = f"{round(1 - second / first, 3) + 0.0:.1%}" if finite and first > 0 else "–"  # + 0.0: no minus before 0
    return one.name, in_digits(found.per_byte(first), 4), in_digits(found.per_byte(second), 4), saved


def in_digits(value: float, digits: int = 2) -> str:
    """A number of bits; one that is not finite is of something impossible."""
    return f"{value:.{digits}f}" if math.isfinite(value) else "infinite"


def _curve(found: Adaptation) -> Markup:
    if len(found.places) < 2:
        return Markup()

    def series(name: str, one: TwoReadings, second: bool = False) -> Series:
        values = found.curve(one.second_N if second else one.first_N)
        return Series(name, list(zip(found.bytes_read, values, strict=True)))

    drawn = [series(f"{found.learning.name}, {FIRST}", found.learning), *(series(one.name, one) for one in found.fixed)]
    drawn.append(series(f"{found.learning.name}, {SECOND}", found.learning, second=True))
    return lines(drawn, SO_FAR, ("bytes of the text", "bits per byte so far"), cut_peaks=True)


def experts_part(experts: TokenTable) -> Markup:
    """Which expert of a mixture gave the tokens most, and what each costs."""
    summary = summary_table(experts)
    if summary is None:
        return Markup()
    rows = table(summary.titles, summary.rows, numeric=(1, 2), row_headers=True)
    return subsection("Which expert knew best", rows, paragraph(summary.caption, quiet=True))


def _in_colours(one: Inspection, found: Adaptation) -> Markup:
    tokenizer = one.run.tokenizer
    spelt = [tokenizer.token_bytes(token) for token in found.x_N[:COLOURED_TOKENS]]

    def coloured(title: str, bits: Sequence[float]) -> Markup:
        pieces = whole_characters(zip(spelt, bits, strict=False))
        return join(paragraph(Markup("<b>{}</b>").format(title)), annotated_text(pieces))

    learning = found.learning
    sides = side_by_side(coloured(FIRST, learning.first_N.tolist()), coloured(SECOND, learning.second_N.tolist()))
    note = f"Coloured are the first {COLOURED_TOKENS:,} tokens." if len(found.x_N) > COLOURED_TOKENS else ""
    return subsection(
        "Both readings, in bits per byte", sides, surprisal_legend(), paragraph(note, quiet=True) if note else ""
    )


def _token_by_token(one: Inspection, found: Adaptation) -> Markup:
    titles, rows = token_rows(one)
    cells = [(code(row[0]), *row[1:]) for row in rows[:TABLE_TOKENS]]
    drawn = table(titles, cells, numeric=range(1, len(titles) - bool(one.experts)))
    left = len(rows) - TABLE_TOKENS
    more = paragraph(f"{left:,} more tokens are in --json.", quiet=True) if left > 0 else ""
    return details("Token by token: the cost in bits", drawn, more)


def token_rows(one: Inspection) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Titles and rows, as plain text: each token's cost, learning and fixed, and of a mixture its best expert."""
    found = one.adaptation
    assert found is not None
    fixed, experts = found.best_fixed, one.experts
    titles = ("token", FIRST, SECOND, *([fixed.name] if fixed else []), *([BEST_EXPERT] if experts else []))
    columns = [[display_token(one.run.tokenizer, token) for token in found.x_N]]
    columns += [
        [in_digits(bits) for bits in bits_N.tolist()]
        for bits_N in (found.learning.first_N, found.learning.second_N, *([fixed.first_N] if fixed else []))
    ]
    if experts:
        best = [experts.parts[int(detail.shade)] for detail in experts.details]
        columns.append(best + [""] * (len(found.x_N) - len(best)))
    return titles, list(zip(*columns, strict=True))
