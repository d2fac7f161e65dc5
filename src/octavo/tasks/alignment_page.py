"""Translations with what each of their tokens attended to in the source."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup
from torch import Tensor

from octavo.pages.markup import NOTHING, join
from octavo.pages.sections import Shaded, details, heat_table, render_page, section, verbatim
from octavo.tasks.translation_alignment import Alignment

MIN_WRITTEN = 0.10  # weights from here on are written out


def alignment_page(title: str, summary: str, aligned: Sequence[Alignment]) -> str:
    """The whole page; the attention of each layer unfolds below the mean of all."""
    titles = [
        f"{n}. into {one.language}" if len(aligned) > 1 else f"Into {one.language}" for n, one in enumerate(aligned, 1)
    ]
    sections = [section(heading, alignment_parts(one)) for heading, one in zip(titles, aligned, strict=True)]
    return render_page(title, summary, sections)


def alignment_parts(one: Alignment) -> Markup:
    """The texts and the attention weights between them."""
    layers = len(one.a_LHTS)
    mean = ", the mean of all heads and layers" if one.a_LHTS.shape[1] * layers > 1 else ""
    caption = (
        "Rows are the translation from the top down; in each, the attention weights over the source when the token was "
        f"generated, in per cent{mean}. Rows sum to 100; what is below 10 is only shaded."
    )
    each = [
        weights_table(one, a_HTS.mean(0), f"Layer {n} of {layers}, the mean of its heads.")
        for n, a_HTS in enumerate(one.a_LHTS, 1)
    ]
    by_layer = details("Layer by layer", *each) if layers > 1 else NOTHING
    return join(verbatim(f"{one.text}\n{one.translation}"), weights_table(one, one.mean, caption), by_layer)


def weights_table(one: Alignment, a_TS: Tensor, caption: str) -> Markup:
    """The source across, the target down, cells shaded by the attention weight."""
    rows = [
        (token, [
            Shaded(f"{100 * a:.0f}" if a >= MIN_WRITTEN else "", a, f"{token} attends to {seen}: {a:.1%}")
            for seen, a in zip(one.source, weights, strict=True)
        ])
        for token, weights in zip(one.target, a_TS.tolist(), strict=True)
    ]  # fmt: skip
    return heat_table(("", *one.source), rows, caption)
