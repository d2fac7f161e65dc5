"""The page of a model that answers questions: exact match, coverage, calibration, mistakes and training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from octavo.datasets.questions import Frame
from octavo.pages.figures.charts import Series, lines
from octavo.pages.markup import NOTHING
from octavo.pages.sections import paragraph, score, section, table
from octavo.tasks.facts_run import FactsRun
from octavo.tasks.run_page import PageContent


def page_content(run: FactsRun, *_: Any) -> PageContent:
    """What the page shows."""
    result, name = run.record["result"], run.record["corpus"]["name"]
    pretrained = any(stage["name"] == "pretraining" for stage in run.record["training"]["stages"])
    how = "pretrained on its text and finetuned" if pretrained else "trained without pretraining"
    return PageContent(f"Answers about {name}", f"A GPT, {how} on the questions of {name}.", [
        _exact_match(result), _coverage(result), _calibration(result), _by_group(result["groups"]),
        _mistakes(result["surest_mistakes"], run.frame),
    ])  # fmt: skip


def _exact_match(result: Mapping[str, Any]) -> Markup:
    common = result["commonest"]
    return section(
        "Exact match",
        score(f"{result['exact_match']:.1%}", f"of {result['questions']:,} new questions answered exactly, "
              f"± {result['standard_error']:.1%} (standard error)"),
        paragraph(f"Always {common['answer']!r}, the most common answer in training, would be right for "
                  f"{common['exact_match']:.1%}."),
    )  # fmt: skip


def _coverage(result: Mapping[str, Any]) -> Markup:
    groups: Mapping[str, Any] = result["groups"]
    curves = groups if len(groups) > 1 else {"new questions": result}
    series = [
        Series(name, [(100 * coverage, 100 * accuracy) for _, coverage, accuracy in one["curve"]])
        for name, one in curves.items()
    ]
    common = result["commonest"]
    baseline = (f"always {common['answer']}", 100 * common["exact_match"])
    caption = "Accuracy against coverage: answering only the most confident questions, fewer but more of them right."
    figure = lines(series, caption, ("coverage, %", "accuracy, %"), references=[baseline])
    rows = [
        (f"{one['wanted']:.0%}", f"{one['threshold']:.3f}", f"{one['coverage']:.1%}", f"{one['accuracy']:.1%}")
        for one in result["at_accuracy"]
    ]
    columns = ("wanted accuracy", "threshold", "coverage", "accuracy")
    thresholds = table(columns, rows, numeric=(0, 1, 2, 3)) if rows else NOTHING
    note = (
        "The thresholds were chosen on these same questions, so new ones will be a little worse." if rows
        else "No threshold makes half of the answers right."
    )  # fmt: skip
    return section("Coverage and abstention", figure, thresholds, paragraph(note, quiet=True))


def _calibration(result: Mapping[str, Any]) -> Markup:
    points = [(100 * confidence, 100 * accuracy) for _, confidence, accuracy in result["bins"]]
    figure = lines(
        [Series("answers in ten bins", points), Series("ideal", [(0, 0), (100, 100)], quiet=True)],
        "Below the straight line the model is more confident than it should be.", ("confidence, %", "accuracy, %"),
    )  # fmt: skip
    error = f"On average confidence is {result['ece']:.1%} away from accuracy (expected calibration error)."
    return section("Calibration", figure, paragraph(error))


def _by_group(groups: Mapping[str, Any]) -> Markup:
    rows = [
        (name, f"{one['questions']:,}", f"{one['exact_match']:.1%}", f"{one['confidence']:.1%}", f"{one['ece']:.1%}")
        for name, one in groups.items()
    ]
    columns = ("name", "questions", "exact match", "mean confidence", "calibration error")
    return section("By where a name was seen", table(columns, rows, numeric=(1, 2, 3, 4)))


def _mistakes(wrong: Sequence[Sequence[Any]], frame: Frame) -> Markup:
    rows = [(frame.name_in(question), right, said, f"{p:.1%}") for question, right, said, p in wrong]
    columns = ("name", "right answer", "its answer", "confidence")
    return section("Most confident mistakes", table(columns, rows, numeric=(3,)) if rows else NOTHING)
