"""Tables whose cells are shaded by a number from 0 to 1."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from octavo.pages.frame import shown

HEAT = 7  # shades of a table's cell, besides none
HEAT_STYLE = (
    ".heat { max-width: none } .heat th, .heat td { min-width: 0; padding: .12rem .45rem; text-align: center; "
    "white-space: nowrap; border: 1px solid var(--line) } .heat th { font-weight: 400; color: var(--quiet) } "
    ".heat tbody th { font: .8rem/1.4 ui-monospace, monospace; color: var(--ink) } .heat td { font-size: .8rem } "
    ".heat small { color: inherit; opacity: .8; font-size: .7rem } .heat .sure { font-weight: 700; "
    "text-decoration: underline } "
    # At most so much colour that the ink on it stays readable in light and in dark.
    + " ".join(f".h{i} {{ background: color-mix(in srgb, var(--main) {6 * i}%, var(--paper)) }}"
               for i in range(1, HEAT + 1))
)  # fmt: skip


class Cell(NamedTuple):
    """One cell of a shaded table; `html` is what stands in it, `told` is said when somebody points at it."""

    html: str
    shade: float  # from 0 to 1
    told: str


def heat_table(titles: Sequence[str], rows: Iterable[tuple[str, Sequence[Cell]]], caption: str) -> str:
    """Rows with a label each and shaded cells; titles and labels are plain text."""
    head = "".join(f'<th scope="col">{shown(title)}</th>' for title in titles)
    body = "\n".join(
        f'<tr><th scope="row">{shown(label)}</th>'
        + "".join(f'<td class="h{_heat(cell.shade)}" title="{shown(cell.told)}">{cell.html}</td>' for cell in cells)
        + "</tr>"
        for label, cells in rows
    )
    table = f'<div class="scroll"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table></div>'
    return _figure("heat", HEAT_STYLE, table, caption)


def _heat(share: float) -> int:
    return min(HEAT, max(0, round(share * HEAT)))


def _figure(kind: str, style: str, body: str, caption: str) -> str:
    return (
        f'<figure class="{kind}">\n<style>{style}</style>\n{body}\n<figcaption>{shown(caption)}</figcaption>\n</figure>'
    )
