"""The table of a comparison as HTML, for its page and for notebooks."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import quote

from markupsafe import Markup

from octavo.experiments.compare.rows import Comparison
from octavo.experiments.compare.rows import Row as Result
from octavo.experiments.compare.verdict import DOMINATED
from octavo.io.files import size
from octavo.pages import sections
from octavo.pages.figures.axis import number
from octavo.pages.markup import element
from octavo.tasks.run import REPORT
from octavo.tasks.run_facts import number as bits


class Column(NamedTuple):
    """A column of numbers: its title, what the title means, and a row's number."""

    title: str
    meaning: str
    cell: Callable[[Result], str | Markup]


def _short(value: float) -> str:
    return number(float(f"{value:.3g}"))


def _whole(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else _short(value)


def _optional(value: float | None, written: Callable[[float], str] = _short) -> str:
    return "" if value is None else written(value)


def _bits(row: Result) -> str | Markup:
    if row.bits_per_byte is None or row.low is None or row.high is None:
        return _optional(row.bits_per_byte, bits)
    return Markup("{} {}").format(bits(row.bits_per_byte), element("small", f"{row.low:.3f}–{row.high:.3f}"))


COLUMNS = (
    Column("bits/byte", "of the held-out text, and the 95 % interval", _bits),
    Column("train s", "seconds of training", lambda row: _optional(row.seconds)),
    Column("parameters", "numbers that were learnt or counted", lambda row: _optional(row.parameters)),
    Column("on disk", "size of the model's files", lambda row: _optional(row.bytes, size)),
    Column("read/s", "tokens scored per second", lambda row: _optional(row.score_rate, _whole)),
    Column("write/s", "tokens generated per second", lambda row: _optional(row.write_rate, _whole)),
    Column("train FLOPs", "floating-point operations of training", lambda row: _optional(row.flops)),
    Column("memory", "of training, at its peak", lambda row: _optional(row.memory, size)),
)


def comparison_table(comparison: Comparison, links: bool = True) -> Markup:
    """The table, in a box that scrolls by itself; with `links`, a name leads to the page of its run."""
    columns = [sections.Column("model"), *(sections.Column(one.title, True, one.meaning) for one in COLUMNS)]
    rows = [_row(row, _address(comparison, row) if links else "") for row in comparison]
    return sections.table(columns, rows, kind="comparison", label="Results", row_headers=True)


def _address(comparison: Comparison, row: Result) -> str:
    """Where the run's own page is, seen from that of the comparison; empty where it has none."""
    if comparison.folder is None or row.run is None or not (comparison.folder / row.run / REPORT).is_file():
        return ""
    return quote(f"{row.run}/{REPORT}")


def _row(row: Result, address: str) -> sections.Row:
    name = sections.link(address, row.model) if address else row.model
    badge = element("span", "best", class_="badge") if row.best else ""
    first = Markup("{} {} {}").format(name, badge, element("small", row.title))
    if row.error is not None:
        return sections.Row((first, f"failed: {row.error}"), "failed")
    kind = "best" if row.best else "dominated" if row.dominated else "compressor" if row.family == "compressor" else ""
    return sections.Row((first, *(column.cell(row) for column in COLUMNS)), kind)


def footnotes(comparison: Comparison) -> list[str]:
    """What the table's numbers mean, sentence by sentence: only what it needs."""
    intervals = list(dict.fromkeys(row.interval for row in comparison if row.interval and row.low is not None))
    notes = []
    if any(row.dominated for row in comparison):
        notes.append(f"Grey: dominated, that is, {DOMINATED}.")
    if any(row.family == "compressor" for row in comparison):
        notes.append("Italic: general compressors, given the training text where they can use it.")
    if intervals:
        notes.append(f"Below bits per byte: the 95 % interval, {' or '.join(intervals)}.")
    notes += [
        f"{row.model} gave probability zero to {row.impossible:,} held-out tokens; one is enough to make the sum "
        "infinite."
        for row in comparison
        if row.impossible and row.error is None
    ]
    return [*notes, *(f"Context while scoring, {policy}." for policy in policies(comparison))]


def policies(comparison: Comparison) -> list[str]:
    """The context of each model while it scored; a mixture does as its parts do."""
    models: dict[str, list[str]] = {}
    for row in comparison:
        if row.policy and row.error is None and row.family not in ("compressor", "mixture"):
            models.setdefault(row.policy, []).append(row.model)
    most = max(models, key=lambda policy: len(models[policy]), default="")
    first = [f"{'all' if len(models) == 1 else 'most models'}: {most}"] if models else []
    return first + [f"{', '.join(names)}: {policy}" for policy, names in models.items() if policy != most]
