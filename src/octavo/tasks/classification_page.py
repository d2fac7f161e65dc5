"""The page of a text classifier: its scores, the confusion matrix, and its most confident mistakes word by word."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from octavo.pages.markup import element
from octavo.pages.sections import (
    confusion_matrix,
    facts,
    paragraph,
    render_page,
    reproduce,
    score,
    section,
    subsection,
    table,
)
from octavo.tasks.classification import ClassificationData
from octavo.tasks.classifier import Classifier
from octavo.tasks.run_page import PageContent
from octavo.tasks.word_contributions import Explained, explain, surest_errors

SHOWN_MISTAKES = 10
FULL_COLOUR_NATS = 1.0  # at which a word's colour is deepest
MIN_NATS = 0.05  # below which a word has no colour
COLOUR_STEPS = 4
EXCERPT_CHARACTERS = 160  # of a training example


def page_content(made: Classifier, data: ClassificationData, _: Any, out: Path) -> PageContent:
    """What the page shows, with the most confident of the mistakes on the test examples, where there are any."""
    test = data.test
    rows = surest_errors(made, test, SHOWN_MISTAKES)
    mistakes = explain(made, [test.texts[n] for n in rows], [test.classes[test.y_N[n]] for n in rows], data.learn)
    named = ", ".join(made.record["data"]["source"])
    sections = [classification_result(made.record["result"]), *([_mistakes(mistakes)] if len(test) else [])]
    lead = f"The classifier {out.name} ({made.model_name}), trained on {named}."
    return PageContent(f"{made.model_name} on {named}", lead, sections)


def explain_page(explained: Sequence[Explained], name: str, command: str) -> str:
    """Answers word by word."""
    return render_page(f"How {name} decides", "Each answer, and how much every word contributed to it.", [
        section("Word contributions", contributions_legend(), *map(contributions, explained)), reproduce([command]),
    ])  # fmt: skip


def classification_result(result: Mapping[str, Any]) -> Markup:
    """Accuracy and the other scores of any classifier, by class, and its confusion matrix."""
    pairs = [
        ("macro F1", f"{result['macro_f1']:.4f}: the mean over the classes, each counted alike"),
        ("log loss", f"{result['log_loss']:.4f} nats per example"),
        ("Brier score", f"{result['brier']:.4f}; 0 is perfect"),
        ("calibration error", f"{result['ece']:.4f}: how far confidence is from accuracy, on average"),
        ("examples", f"{result['examples']:,}, none of them used in training or to choose anything"),
    ]
    accuracy = score(f"{result['accuracy']:.2%}", f"accuracy, ± {result['standard_error']:.1%} (standard error)")
    matrix = confusion_matrix(result["classes"], result["confusion"])
    return section("Accuracy", accuracy, facts(pairs), subsection("Confusion matrix", matrix), table_of_classes(result))


def table_of_classes(result: Mapping[str, Any], kind: str = "class", counted: str = "examples") -> Markup:
    """Precision, recall and F1 of each class."""
    rows = [
        (c["class"], f"{c['examples']:,}", f"{c['precision']:.3f}", f"{c['recall']:.3f}", f"{c['f1']:.3f}")
        for c in result["per_class"]
    ]
    return table((kind, counted, "precision", "recall", "F1"), rows, numeric=range(1, 5))


def _mistakes(mistakes: Sequence[Explained]) -> Markup:
    if not mistakes:
        return section("Most confident mistakes", paragraph("It made none."))
    return section("Most confident mistakes", contributions_legend(), *map(contributions, mistakes))


def contributions_legend() -> Markup:
    """What the colours of words mean."""
    marks = [
        element("mark", words, class_=kind)
        for kind, words in (("for1", "a little"), ("for4", "much"), ("against1", "a little"), ("against4", "much"))
    ]
    return paragraph(
        marks[0], " ", marks[1], " for the answer; ", marks[2], " ", marks[3], " against it. The number is how much "
        "the log-odds of the answer, ln p / (1 − p), fall when the word is left out.", kind="words",
    )  # fmt: skip


def contributions(one: Explained) -> Markup:
    """One answer word by word."""
    truth = f", but it is {one.truth}" if one.truth is not None and one.truth != one.answer else ""
    words = [part for pair in zip(one.words, one.contributions, strict=True) for part in (_word(*pair), " ")]
    near = [(f"{n.likeness:.2f}", n.label, excerpt(n.text)) for n in one.nearest]
    return subsection(
        f"{one.answer}, {one.confidence:.1%} confident{truth}", paragraph(*words, kind="words"),
        paragraph(one.verdict(), quiet=True) if one.verdict() else "",
        table(("similarity", "class", "nearest training examples"), near, numeric=(0,)) if near else "",
    )  # fmt: skip


def _word(word: str, nats: float) -> Markup:
    step = min(COLOUR_STEPS, math.ceil(COLOUR_STEPS * abs(nats) / FULL_COLOUR_NATS)) if abs(nats) >= MIN_NATS else 0
    kind = f"{'for' if nats > 0 else 'against'}{step}" if step else None
    number = element("sub", f"{nats:+.2f}") if step else ""
    return element("span", element("mark", word, class_=kind, title=f"{nats:+.3f}"), number)


def excerpt(text: str, most: int = EXCERPT_CHARACTERS) -> str:
    """The beginning of a text, on one line."""
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1] + "…"
