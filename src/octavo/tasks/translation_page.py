"""The report of a run that translates: its figures, some translations beside their references, and how it learnt."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from octavo.datasets.pairs import Lines
from octavo.errors import UserError
from octavo.pages.figures.lines import Series, colours_style, lines
from octavo.pages.frame import definitions, document, paragraph, section, shown, table, verbatim
from octavo.tasks.alignment_page import alignment_parts
from octavo.tasks.reproduce import train_command
from octavo.tasks.task import Recipe, find_task
from octavo.tasks.translation_alignment import align
from octavo.tasks.translator import Translator

TRANSLATED = 12  # texts of the test that are shown with their translations


def translation_page(
    recipe: Recipe, run: Translator, test: Lines, history: Sequence[Mapping[str, Any]], out: Path
) -> str:  # fmt: skip
    """The page of a run that is saved."""
    command = train_command(find_task("translation"), recipe, run.record["pairs"]["source"], out)
    commands = [command, shlex.join(["octavo", "eval", str(out)])]
    figures = run.record["result"]["languages"]
    sections = [section("How good", *_figures(figures)), section("Translations", *_translations(run, test))]
    try:
        sections.append(section("What was looked at", *alignment_parts(align(run, test.sources[0]))))
    except UserError as error:  # it has no attention, or the text is too long to draw
        sections.append(section("What was looked at", paragraph(str(error))))
    sections.append(section("How it learnt", *_learning(run, history)))
    versions = definitions([(name, str(version)) for name, version in run.record.get("made_with", {}).items()])
    sections.append(section("Make it again", verbatim("\n".join(commands)), versions))
    title = f"Translating {run.languages[0]} to {' and '.join(run.languages[1:])}"
    return document(title, paragraph(run.summary()), sections, colours_style())


def _figures(figures: Mapping[str, Any]) -> list[str]:
    rows = [
        (shown(one), f"{told['bleu']:.1f}", f"{told['chrf']:.1f}", f"{told['exact']:.1%}", f"{told['sentences']:,}")
        for one, told in figures.items()
    ]
    first = next(iter(figures.values()))
    counted = f"Counted by sacrebleu on raw text. BLEU: {first['signature']}. chrF: {first['chrf_signature']}."
    return [table(("into", "BLEU", "chrF", "exact", "texts"), rows, right=range(1, 5)), paragraph(counted, "quiet")]


def _translations(run: Translator, test: Lines) -> list[str]:
    parts, sources = [], list(test.references(0))[:TRANSLATED]
    for language, outputs in run.into(sources).items():
        known = test.references(run.number_of(language))
        rows = [
            (shown(source), shown(output), shown(" / ".join(known[source])))
            for source, output in zip(sources, outputs, strict=True)
        ]
        parts.append(table((shown(run.languages[0]), f"into {shown(language)}", "reference"), rows))
    return [*parts, paragraph("The first texts of the test, by a beam of 5.", "quiet")]


def _learning(run: Translator, history: Sequence[Mapping[str, Any]]) -> list[str]:
    checked = [(float(row["step"]), 100 * float(row["right"])) for row in history if "right" in row]
    pairs, training = run.record["pairs"], run.record["training"]
    facts = definitions([
        ("pairs", f"{pairs['name']}: {pairs['train']:,} to learn from, {pairs['valid']:,} to choose by, "
                  f"{pairs['test']:,} to measure on ({pairs['split']})"),
        ("trained", f"{run.record['train_seconds']:.0f} s, {training['steps']:,} steps: {training['why']}"),
        ("numbers learnt", f"{sum(one.numel() for one in run.model.parameters()):,}"),
    ])  # fmt: skip
    caption = "Tokens of the validation targets that were foreseen, those before them given."
    return [facts, lines([Series("foreseen", checked)], caption, ("step", "%"))]
