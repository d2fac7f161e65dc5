"""The part of the page of inspect about views that have a table for each token: a back-off path, a Viterbi path.

The data are those that the studio shows: `octavo.inspection.token_tables.token_table`.
"""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from octavo.inspection.inspection import Inspection
from octavo.inspection.token_tables import summary_table
from octavo.models.views import TokenDetail, TokenTable, View
from octavo.pages.markup import element, join
from octavo.pages.sections import SHADES, code, details, paragraph, subsection, table

TABLE_TOKENS = 200  # whose tables are on the page
TINTS = 18  # that the stylesheet tells apart


def token_lines(one: Inspection, view: View, shown: TokenTable) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Titles and rows, as plain text: what the view says of each token in one line."""
    every = zip(one.tokens[1:], shown.details, strict=True)
    return ("token", view.title.lower()), [(token, detail.title) for token, detail in every]


def token_table_part(one: Inspection, view: View, shown: TokenTable) -> Markup:
    """The text in the view's colours, then the table of each token, and what the view says of the whole text."""
    tokens, summary = one.tokens[1:], summary_table(shown)
    left = len(tokens) - TABLE_TOKENS
    more = f"The tables of {left:,} more tokens are in --json." if left > 0 else ""
    drawn = [] if summary is None else [
        table(summary.titles, summary.rows, numeric=range(1, len(summary.titles)), row_headers=True),
        paragraph(summary.caption, quiet=True),
    ]  # fmt: skip
    return subsection(
        view.title, paragraph(shown.intro), _legend(shown), _coloured(tokens, shown),
        details("Token by token", _token_by_token(tokens[:TABLE_TOKENS], shown),
                paragraph(more, quiet=True) if more else ""),
        paragraph(shown.outro, quiet=True) if shown.outro else "", *drawn,
    )  # fmt: skip


def _coloured(tokens: Sequence[str], shown: TokenTable) -> Markup:
    marks = [
        element("mark", token, class_=_colour(detail.shade, shown), title=detail.title)
        for token, detail in zip(tokens, shown.details, strict=True)
    ]
    return element("pre", "\n", *marks, class_="surprise")


def _colour(shade: float, shown: TokenTable) -> str:
    """The class of a token's tint, or of its shade."""
    if shown.parts:
        return f"tint tint{int(shade) % TINTS}"
    return f"h{level}" if (level := min(SHADES, max(0, round(shade * SHADES)))) else "s0"


def _legend(shown: TokenTable) -> Markup:
    names = shown.parts or shown.legend
    if not names:
        return Markup()
    shades = range(len(names)) if shown.parts else [place / max(1, len(names) - 1) for place in range(len(names))]
    marks = [element("mark", name, class_=_colour(shade, shown)) for name, shade in zip(names, shades, strict=True)]
    return element("ul", *(element("li", mark) for mark in marks), class_="legend", aria_label="colours")


def _token_by_token(tokens: Sequence[str], shown: TokenTable) -> Markup:
    """A token's table unfolds below its line; tokens without rows stand in one table."""
    every = list(zip(tokens, shown.details, strict=False))
    if not any(detail.rows or detail.notes for _, detail in every):
        return table(("token", "prediction"), [(code(token), detail.title) for token, detail in every])
    return join(*(_token_part(token, detail, shown) for token, detail in every))


def _token_part(token: str, detail: TokenDetail, shown: TokenTable) -> Markup:
    """Its line says the token, as that of a back-off path does by itself."""
    line = detail.title if detail.title.startswith("“") else f"“{token}”: {detail.title}"
    rows = table(shown.columns, detail.rows, numeric=range(1, len(shown.columns))) if detail.rows else ""
    return details(line, *(paragraph(note) for note in detail.notes), rows)
