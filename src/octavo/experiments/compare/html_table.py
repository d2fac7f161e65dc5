"""The table of a comparison as HTML, for its page and for notebooks."""

from __future__ import annotations

import html
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import quote

from octavo.experiments.compare.rows import Comparison, Row
from octavo.experiments.compare.verdict import DOMINATED
from octavo.io.files import size
from octavo.pages.figures.axis import number
from octavo.pages.frame import shown
from octavo.tasks.run import REPORT
from octavo.tasks.run_facts import number as bits


class Column(NamedTuple):
    """A column of figures: its title, what the title means, and a row's figure."""

    title: str
    meaning: str
    cell: Callable[[Row], str]


def _short(value: float) -> str:
    return number(float(f"{value:.3g}"))


def _some(value: float | None, written: Callable[[float], str] = _short) -> str:
    return "" if value is None else written(value)


def _interval(row: Row) -> str:
    if row.low is None or row.high is None:
        return ""
    return f" <small>{row.low:.3f}–{row.high:.3f}</small>"


def _bits(row: Row) -> str:
    return bits(row.bits_per_byte) + _interval(row) if row.bits_per_byte is not None else ""


COLUMNS = (
    Column("bits/byte", "of the held-out text, and the 95 % interval", _bits),
    Column("train s", "seconds of training", lambda row: _some(row.seconds)),
    Column("parameters", "numbers that were learnt or counted", lambda row: _some(row.parameters)),
    Column("on disk", "size of the model's files", lambda row: _some(row.bytes, size)),
    Column("read/s", "tokens scored a second", lambda row: _some(row.score_rate, _whole)),
    Column("write/s", "tokens written a second", lambda row: _some(row.write_rate, _whole)),
    Column("train FLOPs", "floating-point operations of training", lambda row: _some(row.flops)),
    Column("memory", "of training, at its peak", lambda row: _some(row.memory, size)),
)


def _whole(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else _short(value)


def table_html(comparison: Comparison, links: bool = True) -> str:
    """The table, in a box that scrolls by itself; with `links`, a name leads to the page of its run."""
    head = "".join(
        f'<th scope="col" class="r" title="{html.escape(column.meaning)}">{column.title}</th>' for column in COLUMNS
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
        cells = "".join(f'<td class="r">{column.cell(row)}</td>' for column in COLUMNS)
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
        told.append(f"Below bits per byte: the 95 % interval, {' or '.join(intervals)}.")
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
