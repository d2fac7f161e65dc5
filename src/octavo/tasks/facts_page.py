"""The page of a run that answers questions: how often it is right, how sure it is, and what it learnt where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from octavo.datasets.questions import Frame
from octavo.pages.figures.lines import Series, lines
from octavo.pages.frame import document, paragraph, section, shown, table, verbatim
from octavo.tasks.reproduce import train_command
from octavo.tasks.run import Run
from octavo.tasks.task import Recipe, Rows, find_task

CURVE_POINTS = 100  # of a loss curve
STAGES = {"pretraining": "pretraining: every token of the spoilt texts", "finetuning": "finetuning: answers only"}


def answers_page(recipe: Recipe, run: Run, rows: Rows, out: Path) -> str:
    """The page of a run that is saved."""
    result, corpus = run.record["result"], run.record["corpus"]
    stages = {stage["name"]: stage for stage in run.record["training"]["stages"]}
    how = "pretrained on its text and finetuned" if "pretraining" in stages else "trained without pretraining"
    lead = paragraph(f"A GPT, {how} on the questions of {corpus['name']}.")
    command = train_command(find_task("facts"), recipe, corpus["source"], out)
    return document(f"Answers about {corpus['name']}", lead, [
        _how_good(result), _coverage(result), _calibration(result), _by_group(result["groups"]),
        _mistakes(result["surest_mistakes"], Frame(*run.record["facts"]["frame"])), _learning(stages, rows),
        section("Make it again", verbatim(command)),
    ])  # fmt: skip


def _how_good(result: Mapping[str, Any]) -> str:
    common = result["commonest"]
    figure = (
        f'<p class="number">{result["exact_match"]:.1%} <small>of {result["questions"]:,} new questions answered '
        f"exactly, ± {result['standard_error']:.1%} (standard error)</small></p>"
    )
    return section(
        "How good it is", figure,
        paragraph(f"Always {common['answer']!r}, the commonest answer learnt, would be right for "
                  f"{common['exact_match']:.1%}."),
    )  # fmt: skip


def _coverage(result: Mapping[str, Any]) -> str:
    series = [
        Series(name, [(100 * coverage, 100 * accuracy) for _, coverage, accuracy in one["curve"]])
        for name, one in _curves(result).items()
    ]
    figure = lines(series, "Answering only the surest questions: fewer answers, more of them right.",
                   ("answered, %", "right, %"), references=[_always(result["commonest"])])  # fmt: skip
    rows = [
        (f"{one['wanted']:.0%}", f"{one['threshold']:.3f}", f"{one['coverage']:.1%}", f"{one['accuracy']:.1%}")
        for one in result["at_accuracy"]
    ]
    found = table(("wanted right", "threshold", "answered", "right"), rows, right=(0, 1, 2, 3)) if rows else ""
    note = "No threshold makes half of the answers right." if not rows else "The thresholds were chosen on these same "
    note += "questions, so new ones will be a little worse." if rows else ""
    return section("When to abstain", figure, found, paragraph(note, "quiet"))


def _always(common: Mapping[str, Any]) -> tuple[str, float]:
    return f"always {common['answer']}", 100 * common["exact_match"]


def _curves(result: Mapping[str, Any]) -> dict[str, Any]:
    groups: dict[str, Any] = result["groups"]
    return groups if len(groups) > 1 else {"new questions": result}


def _calibration(result: Mapping[str, Any]) -> str:
    points = [(100 * confidence, 100 * accuracy) for _, confidence, accuracy in result["bins"]]
    figure = lines(
        [Series("answers in ten bins", points), Series("ideal", [(0, 0), (100, 100)], quiet=True)],
        "Below the straight line the model is surer than it should be.", ("confidence, %", "right, %"),
    )  # fmt: skip
    told = f"On average confidence is {result['ece']:.1%} away from accuracy (expected calibration error)."
    return section("Can its confidence be believed?", figure, paragraph(told))


def _by_group(groups: Mapping[str, Any]) -> str:
    rows = [
        (shown(name), f"{one['questions']:,}", f"{one['exact_match']:.1%}", f"{one['confidence']:.1%}",
         f"{one['ece']:.1%}") for name, one in groups.items()
    ]  # fmt: skip
    return section(
        "By where a name was seen",
        table(("name", "asked", "right", "sure", "off by"), rows, right=(1, 2, 3, 4)),
        paragraph("Sure: the mean confidence. Off by: how far confidence is from accuracy, on average.", "quiet"),
    )


def _mistakes(wrong: Sequence[Sequence[Any]], frame: Frame) -> str:
    if not wrong:
        return ""
    rows = [(shown(frame.name_in(q)), shown(right), shown(said), f"{sure:.1%}") for q, right, said, sure in wrong]
    return section("Its surest mistakes", table(("name", "right", "its answer", "sure"), rows, right=(3,)))


def _learning(stages: Mapping[str, Any], rows: Rows) -> str:
    parts = []
    for name, explained in STAGES.items():
        if name not in stages:
            continue
        losses = [(row["step"], row["loss"]) for row in rows if row.get("stage") == name and "loss" in row]
        places = [round(i * (len(losses) - 1) / (CURVE_POINTS - 1)) for i in range(CURVE_POINTS)]
        curve = losses if len(losses) <= CURVE_POINTS else [losses[place] for place in places]
        how_long = f"{stages[name]['steps']:,} steps in {stages[name]['seconds']:.0f} s"
        parts.append(lines([Series(name, curve)], f"{explained}; {how_long}.", ("step", "loss, nats a token")))
    return section("How it learnt", *parts)
