"""A page that shows translations with what each of their tokens looked at."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from octavo.pages.figures.heat_table import Cell, heat_table
from octavo.pages.frame import document, paragraph, section, shown, verbatim
from octavo.tasks.translation_alignment import Alignment

SHOWN = 0.10  # weights from here on are written out


def alignment_page(title: str, summary: str, aligned: Sequence[Alignment]) -> str:
    """The whole page; the looks of each layer can be opened below those of all."""
    titles = [
        f"{n}. into {one.language}" if len(aligned) > 1 else f"Into {one.language}" for n, one in enumerate(aligned, 1)
    ]
    sections = [section(told, *alignment_parts(one)) for told, one in zip(titles, aligned, strict=True)]
    return document(title, paragraph(summary), sections)


def alignment_parts(one: Alignment) -> list[str]:
    """The texts and the looks, as HTML."""
    layers = len(one.a_LHTS)
    mean = ", the mean of all heads and layers" if one.a_LHTS.shape[1] * layers > 1 else ""
    caption = (
        "Rows are the translation from the top down; in each, what of the source was looked at to write the token, in "
        f"percent{mean}. Rows sum to 100; what is below 10 is only shaded."
    )
    parts = [verbatim(f"{one.text}\n{one.translation}"), looks_table(one, one.mean, caption)]
    if layers > 1:
        each = [
            looks_table(one, a_HTS.mean(0), f"Layer {n} of {layers}, the mean of its heads.")
            for n, a_HTS in enumerate(one.a_LHTS, 1)
        ]
        parts.append("<details><summary>Layer by layer</summary>\n" + "\n".join(each) + "\n</details>")
    return parts


def looks_table(one: Alignment, a_TS: Tensor, caption: str) -> str:
    """The source across, the target down, cells shaded by the weight."""
    rows = []
    for token, looks in zip(one.target, a_TS.tolist(), strict=True):
        cells = [
            Cell(shown(f"{100 * a:.0f}") if a >= SHOWN else "", a, f"{token} looks at {seen}: {a:.1%}")
            for seen, a in zip(one.source, looks, strict=True)
        ]
        rows.append((token, cells))
    return heat_table(("", *one.source), rows, caption)
