"""The table of a comparison as HTML, for its page and for notebooks."""

from __future__ import annotations

import html
from urllib.parse import quote

from octavo.experiments.compare.advice import DOMINATED
from octavo.experiments.compare.rows import Comparison, Row
from octavo.experiments.table import columns_of
from octavo.pages.frame import shown
from octavo.tasks.run import REPORT

COLUMNS = columns_of(Row, "page")[1:]  # the first one names the row


def table_html(comparison: Comparison, links: bool = True) -> str:
    """The table, in a box that scrolls by itself; with `links`, a name leads to the page of its run."""
    head = "".join(
        f'<th scope="col" class="r" title="{html.escape(column.help)}">{column.title}</th>' for column in COLUMNS
    )
    body = "\n".join(_row(row, _address(comparison, row) if links else "") for row in comparison)
    return (
        '<div class="scroll ladder" tabindex="0" role="region" aria-label="The table"><table>\n'
        f'<thead><tr><th scope="col">model</th>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table></div>'
    )


def _address(comparison: Comparison, row: Row) -> str:
    """Where the run's own page is, seen from that of the comparison; empty where it has none."""
    if comparison.folder is None or row.run is None or not (comparison.folder / row.run / REPORT).is_file():
        return ""
    return quote(f"{row.run}/{REPORT}")


def _row(row: Row, address: str) -> str:
    name = f'<a href="{address}">{shown(row.model)}</a>' if address else shown(row.model)
    mark = ' <span class="mark-best">best</span>' if row.best else ""
    first = f'<th scope="row">{name}{mark}<small>{shown(row.title)}</small></th>'
    kind = _kind(row)
    if row.error is not None:
        cells = f'<td colspan="{len(COLUMNS)}">failed: {shown(row.error)}</td>'
    else:
        cells = "".join(f'<td class="r">{column.text(row)}</td>' for column in COLUMNS)
    return f'<tr class="{kind}">{first}{cells}</tr>' if kind else f"<tr>{first}{cells}</tr>"


def _kind(row: Row) -> str:
    if row.error is not None:
        return "failed"
    return "best" if row.best else "dominated" if row.dominated else "outside" if row.family == "compressor" else ""


def footnotes(comparison: Comparison) -> list[str]:
    """What the table's figures mean, sentence by sentence: only what it needs."""
    intervals = list(dict.fromkeys(row.interval for row in comparison if row.interval and row.low is not None))
    told = []
    if any(row.dominated for row in comparison):
        told.append(f"Grey: dominated, that is, {DOMINATED}.")
    if any(row.family == "compressor" for row in comparison):
        told.append("Italic: general compressors, given the training text where they can use it.")
    if intervals:
        told.append(f"95 %: the confidence interval of the bits per byte, {' or '.join(intervals)}.")
    for row in comparison:
        if row.impossible and row.error is None:
            told.append(
                f"{row.model} gave probability zero to {row.impossible:,} held-out tokens; one is enough to make the "
                "sum infinite."
            )
    return [*told, *(f"Context while scoring, {said}." for said in policies(comparison))]


def policies(comparison: Comparison) -> list[str]:
    """How far back the models looked while they scored; a mixture does as its parts do."""
    models: dict[str, list[str]] = {}
    for row in comparison:
        if row.policy and row.error is None and row.family not in ("compressor", "mixture"):
            models.setdefault(row.policy, []).append(row.model)
    most = max(models, key=lambda policy: len(models[policy]), default="")
    told = [f"{'all' if len(models) == 1 else 'most models'}: {most}"] if models else []
    return told + [f"{', '.join(names)}: {policy}" for policy, names in models.items() if policy != most]
