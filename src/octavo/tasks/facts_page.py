"""The page of a run that answers questions: how often it is right, how sure it is, and what it learnt where."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from octavo.datasets.questions import Frame
from octavo.models.parts.config import GPTConfig
from octavo.pages.figures.lines import Series, lines
from octavo.pages.frame import document, paragraph, section, shown, table, verbatim
from octavo.tasks.facts_training import USUAL, FactsConfig
from octavo.tasks.reproduce import flags_of
from octavo.tasks.run import Run

STAGES = {"pretraining": "pretraining: every token of the spoilt texts", "finetuning": "finetuning: answers only"}


def answers_page_maker(
    source: str, config: GPTConfig, how: FactsConfig, out: str | Path, seed: int
) -> Callable[[Run], str]:
    """What training calls with the run to get the page."""
    words = ["octavo", "train", "facts", source, *flags_of(how)]
    words += flags_of(config, usual=USUAL)  # larger than any GPT's default
    words += [*(["--seed", str(seed)] if seed else []), "--out", str(out)]
    return lambda run: answers_page(run, shlex.join(words))


def answers_page(run: Run, command: str) -> str:
    """The whole page."""
    result, facts, name = run.record["result"], run.record["facts"], run.record["corpus"]["name"]
    told = "pretrained on its text and finetuned" if "pretraining" in facts else "trained without pretraining"
    lead = paragraph(f"A GPT, {told} on the questions of {name}.")
    return document(f"Answers about {name}", lead, [
        _how_good(result), _coverage(result), _calibration(result), _by_group(result["groups"]),
        _mistakes(result["surest_mistakes"], Frame(*facts["frame"])), _learning(facts),
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


def _learning(facts: Mapping[str, Any]) -> str:
    parts = []
    for stage, told in STAGES.items():
        if stage not in facts:
            continue
        one = facts[stage]
        parts.append(lines([Series(stage, one["curve"])], f"{told}; {one['steps']:,} steps in {one['seconds']:.0f} s.",
                           ("step", "loss, nats a token")))  # fmt: skip
    return section("How it learnt", *parts)
