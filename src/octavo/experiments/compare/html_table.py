"""The table of a comparison as HTML, for its page and for notebooks."""

from __future__ import annotations

from urllib.parse import quote

from markupsafe import Markup

from octavo.experiments.compare.advice import DOMINATED
from octavo.experiments.compare.rows import Comparison, Row
from octavo.experiments.table import cells_of, page_columns
from octavo.pages import sections
from octavo.pages.markup import element
from octavo.tasks.run import REPORT


def comparison_table(comparison: Comparison, links: bool = True) -> Markup:
    """The table, in a box that scrolls by itself; with `links`, a name leads to the page of its run."""
    rows = [_row(row, _address(comparison, row) if links else "") for row in comparison]
    return sections.table(page_columns(Row), rows, kind="comparison", label="Results", row_headers=True)


def _address(comparison: Comparison, row: Row) -> str:
    """Where the run's own page is, seen from that of the comparison; empty where it has none."""
    if comparison.folder is None or row.run is None or not (comparison.folder / row.run / REPORT).is_file():
        return ""
    return quote(f"{row.run}/{REPORT}")


def _row(row: Row, address: str) -> sections.Row:
    name = sections.link(address, row.model) if address else row.model
    badge = element("span", "best", class_="badge") if row.best else ""
    first = Markup("{} {} {}").format(name, badge, element("small", row.title))
    if row.error is not None:
        return sections.Row((first, f"failed: {row.error}"), "failed")
    kind = "best" if row.best else "dominated" if row.dominated else "compressor" if row.family == "compressor" else ""
    return sections.Row((first, *cells_of(row)[1:]), kind)


def footnotes(comparison: Comparison) -> list[str]:
    """What the table's numbers mean, sentence by sentence: only what it needs."""
    intervals = list(dict.fromkeys(row.interval for row in comparison if row.interval and row.low is not None))
    notes = []
    if any(row.dominated for row in comparison):
        notes.append(f"Grey: dominated, that is, {DOMINATED}.")
    if any(row.family == "compressor" for row in comparison):
        notes.append("Italic: general compressors, given the training text where they can use it.")
    if intervals:
        notes.append(f"95 %: the confidence interval of the bits per byte, {' or '.join(intervals)}.")
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
