"""The page of a translation model: its scores, translations beside their references, alignment and training."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from octavo.datasets.pairs import Lines
from octavo.errors import UserError
from octavo.models.cost.parts import parameter_count
from octavo.pages.figures.lines import Series, lines
from octavo.pages.markup import join
from octavo.pages.sections import facts, paragraph, render_page, reproduce, section, table, versions
from octavo.tasks.alignment_page import alignment_parts
from octavo.tasks.reproduce import train_command
from octavo.tasks.task import Recipe, find_task
from octavo.tasks.translation_alignment import align
from octavo.tasks.translator import Translator

SHOWN_TRANSLATIONS = 12  # texts of the test set


def translation_page(
    recipe: Recipe, run: Translator, test: Lines, history: Sequence[Mapping[str, Any]], out: Path
) -> str:  # fmt: skip
    """The page of a run that is saved."""
    command = train_command(find_task("translation"), recipe, run.record["pairs"]["source"], out)
    commands = [command, shlex.join(["octavo", "eval", str(out)])]
    title = f"Translating {run.languages[0]} to {' and '.join(run.languages[1:])}"
    return render_page(title, run.summary(), [
        section("Scores", _scores(run.record["result"]["languages"])),
        section("Translations", _translations(run, test)),
        section("Alignment", _alignment(run, test.sources[0])),
        section("Training", _training(run, history)),
        reproduce(commands, versions(run.record.get("made_with", {}))),
    ])  # fmt: skip


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


def _training(run: Translator, history: Sequence[Mapping[str, Any]]) -> Markup:
    accuracy = [(float(row["step"]), 100 * float(row["right"])) for row in history if "right" in row]
    pairs, training = run.record["pairs"], run.record["training"]
    settings = facts([
        ("pairs", f"{pairs['name']}: {pairs['train']:,} for training, {pairs['valid']:,} for validation, "
                  f"{pairs['test']:,} for testing ({pairs['split']})"),
        ("trained", f"{run.record['train_seconds']:.0f} s, {training['steps']:,} steps: {training['why']}"),
        ("parameters", f"{parameter_count(run.model):,}"),
    ])  # fmt: skip
    caption = "Token accuracy on the validation targets, the tokens before each given."
    return join(settings, lines([Series("validation", accuracy)], caption, ("step", "%")))
