"""The page of a sequence tagger: its scores, the confusion of tags, and the mistakes that it is surest of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup

from octavo.pages.markup import element
from octavo.pages.sections import confusion_matrix, facts, paragraph, score, section, subsection, table
from octavo.tasks.classification_page import table_of_classes
from octavo.tasks.run_page import PageContent
from octavo.tasks.tagger import Tagger
from octavo.tasks.tagging import TaggingData

SHOWN_MISTAKES = 20
NEIGHBOURS = 6  # words that are shown on either side of a mistake


class Mistake(NamedTuple):
    """A word with the wrong tag, among its neighbours."""

    words: Sequence[str]
    place: int
    truth: str
    answer: str
    probability: float


def page_content(made: Tagger, data: TaggingData, _: Any, out: Path) -> PageContent:
    """What the page shows, with the surest mistakes on the test sentences."""
    named = ", ".join(made.record["data"]["source"])
    sections = [tagging_result(made.record["result"]), _mistakes(surest_mistakes(made, data, SHOWN_MISTAKES))]
    lead = f"The tagger {out.name} ({made.model.config.encoder}), trained on {named}."
    return PageContent(f"{made.model_name} on {named}", lead, sections, commands=[["octavo", "tag", "eval", str(out)]])


def surest_mistakes(made: Tagger, data: TaggingData, count: int) -> list[Mistake]:
    """The wrong tags that it gives the highest probability, the surest first."""
    found = []
    number = {name: c for c, name in enumerate(made.tags)}
    for one, truth in zip(made.tag(data.test.sentences), data.test.tags, strict=True):
        found += [
            Mistake(one.words, t, made.tags[truth[t]], tag, float(one.p_TC[t, number[tag]]))
            for t, tag in enumerate(one.tags) if number[tag] != truth[t]
        ]  # fmt: skip
    return sorted(found, key=lambda mistake: -mistake.probability)[:count]


def tagging_result(result: Mapping[str, Any]) -> Markup:
    """Accuracy and the other scores, by kind of span and by tag, and the confusion of tags."""
    baseline = result["baseline_accuracy"]
    pairs = [
        ("sentences", f"{result['sentences_right']:.1%} of {result['sentences']:,} without a mistake"),
        *([] if baseline is None else [("the commonest tag of each word", f"{baseline:.2%}, the baseline")]),
        ("words that training lacks", f"{result['unknown_accuracy']:.2%} of {result['unknown']:,} right"),
        ("macro F1", f"{result['macro_f1']:.4f}: the mean over the tags, each counted alike"),
        ("log loss", f"{result['log_loss']:.4f} nats per word"),
        ("calibration error", f"{result['ece']:.4f}: how far confidence is from accuracy, on average"),
        ("words", f"{result['examples']:,}, none of them used in training or to choose anything"),
    ]
    accuracy = score(f"{result['accuracy']:.2%}", "of the words have the right tag")
    spans = result.get("spans")
    shown = [score(f"{spans['f1']:.3f}", "F1 of spans"), _table_of_spans(spans)] if spans else []
    matrix = subsection("Confusion matrix", confusion_matrix(result["classes"], result["confusion"]))
    return section("Accuracy", accuracy, facts(pairs), *shown, matrix, table_of_classes(result, "tag", "words"))


def _table_of_spans(spans: Mapping[str, Any]) -> Markup:
    rows = [
        (one.get("kind", "all"), f"{one['spans']:,}", f"{one['precision']:.3f}", f"{one['recall']:.3f}",
         f"{one['f1']:.3f}")
        for one in (*spans["per_kind"], spans)
    ]  # fmt: skip
    return table(("kind", "spans", "precision", "recall", "F1"), rows, numeric=range(1, 5))


def _mistakes(mistakes: Sequence[Mistake]) -> Markup:
    if not mistakes:
        return section("Surest mistakes", paragraph("It made none."))
    parts = [
        subsection(f"{one.answer}, {one.probability:.1%} sure, but it is {one.truth}",
                   paragraph(*_in_context(one), kind="words"))
        for one in mistakes
    ]  # fmt: skip
    return section("Surest mistakes", *parts)


def _in_context(one: Mistake) -> list[Any]:
    first, last = max(0, one.place - NEIGHBOURS), one.place + NEIGHBOURS + 1
    before, after = one.words[first : one.place], one.words[one.place + 1 : last]
    marked = element("mark", one.words[one.place], class_="against2")
    return ["… " if first else "", " ".join([*before, ""]), marked, " ".join(["", *after]),
            " …" if last < len(one.words) else ""]  # fmt: skip
