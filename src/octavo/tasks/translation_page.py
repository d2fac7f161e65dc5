"""The pages of a translation model: its scores, translations beside their references, alignment and training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup
from torch import Tensor

from octavo.datasets.pairs import Lines, Pairs
from octavo.errors import UserError
from octavo.io.files import thousands
from octavo.models import parameter_count
from octavo.pages.markup import NOTHING, join
from octavo.pages.sections import Shaded, details, facts, heat_table, paragraph, render_page, section, table, verbatim
from octavo.tasks.run_page import PageContent
from octavo.tasks.translation_alignment import Alignment, align
from octavo.tasks.translator import Translator

SHOWN_TRANSLATIONS = 12  # texts of the test set


def page_content(run: Translator, data: Pairs, _: Any, out: Path) -> PageContent:
    """What the page shows."""
    test = data.test
    title = f"Translating {run.languages[0]} to {' and '.join(run.languages[1:])}"
    return PageContent(title, run.summary(), [
        section("Scores", _scores(run.record["result"]["languages"])),
        section("Translations", _translations(run, test)),
        section("Alignment", _alignment(run, test.sources[0])),
    ], [_model(run)], [["octavo", "eval", str(out)]])  # fmt: skip


def _alignment(run: Translator, source: str) -> Markup:
    try:
        return alignment_parts(align(run, source))
    except UserError as error:  # it has no attention, or the text is too long to draw
        return paragraph(str(error))


def _scores(languages: Mapping[str, Any]) -> Markup:
    rows = [
        (name, f"{one['bleu']:.1f}", f"{one['chrf']:.1f}", f"{one['exact']:.1%}", f"{one['sentences']:,}")
        for name, one in languages.items()
    ]
    first = next(iter(languages.values()))
    counted = f"Computed by sacrebleu on raw text. BLEU: {first['signature']}. chrF: {first['chrf_signature']}."
    columns = ("into", "BLEU", "chrF", "exact match", "texts")
    return join(table(columns, rows, numeric=range(1, 5)), paragraph(counted, quiet=True))


def _translations(run: Translator, test: Lines) -> Markup:
    sources, parts = list(test.references(0))[:SHOWN_TRANSLATIONS], []
    for language, outputs in run.into(sources).items():
        known = test.references(run.number_of(language))
        rows = [
            (source, output, " / ".join(known[source])) for source, output in zip(sources, outputs, strict=True)
        ]  # fmt: skip
        parts.append(table((run.languages[0], f"into {language}", "reference"), rows))
    return join(*parts, paragraph("The first texts of the test set, by beam search with a beam of 5.", quiet=True))


def _model(run: Translator) -> Markup:
    pairs = run.record["pairs"]
    return section("Model and pairs", facts([
        ("parameters", thousands(parameter_count(run.model))),
        ("pairs", f"{pairs['name']}: {pairs['train']:,} for training, {pairs['valid']:,} for validation, "
                  f"{pairs['test']:,} for testing ({pairs['split']})"),
    ]))  # fmt: skip


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
