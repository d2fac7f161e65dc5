"""The page of a classifier: how good it is, what it takes for what, and its surest mistakes word by word."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from octavo.datasets.labels import Labelled
from octavo.pages.frame import definitions, document, paragraph, section, shown, table, verbatim
from octavo.tasks.classifier import Classifier
from octavo.tasks.reproduce import train_command
from octavo.tasks.task import Recipe, find_task
from octavo.tasks.word_contributions import Explained, explain, surest_errors

ERRORS = 10  # mistakes that are shown
FULL = 1.0  # nats at which a word's colour is deepest
SHORT = 160  # letters of a training example
MOST_CLASSES = 30  # whose confusion is drawn
STEPS = 4

STYLE = """
:root { --f1: #e3effb; --f2: #c3dcf5; --f3: #97c2ec; --f4: #6aa6e0; --a1: #fbeadf; --a2: #f7d0b8; --a3: #f0ae88;
  --a4: #e68f60 }
@media (prefers-color-scheme: dark) { :root { --f1: #18293a; --f2: #1c3c5c; --f3: #1f4f80; --f4: #2563a3;
  --a1: #33241a; --a2: #4f3220; --a3: #6d4125; --a4: #8c4f28 } }
.f1 { background: var(--f1) } .f2 { background: var(--f2) } .f3 { background: var(--f3) } .f4 { background: var(--f4) }
.a1 { background: var(--a1) } .a2 { background: var(--a2) } .a3 { background: var(--a3) } .a4 { background: var(--a4) }
.words { line-height: 1.9; max-width: 46rem } .words mark { padding: .1rem .25rem; border-radius: 3px }
.words sub { font-size: .65rem; color: var(--quiet) } .words span { white-space: nowrap }
th { white-space: normal } td:not(.r) { min-width: 0 } .scroll { margin: .6rem 0 }
"""


def classify_page(
    recipe: Recipe, made: Classifier, test: Labelled, learnt: Labelled | None, out: Path
) -> str:  # fmt: skip
    """The page of a run that is saved, with the surest of the mistakes on these examples."""
    rows = surest_errors(made, test, ERRORS)
    mistakes = explain(made, [test.texts[n] for n in rows], [test.classes[test.y_N[n]] for n in rows], learnt)
    source = made.record["data"]["source"]
    named = ", ".join(source)
    lead = paragraph(f"The classifier {out.name} ({made.name}), trained on {named}.")
    return document(f"{made.name} on {named}", lead, [
        _result(made.record.get("result", {})),
        _mistakes(mistakes),
        section("Make it again", verbatim(train_command(find_task("classification"), recipe, source, out))),
    ], STYLE)  # fmt: skip


def explain_page(explained: Sequence[Explained], name: str, command: str) -> str:
    """Answers word by word."""
    title = f"What {name} sees"
    body = [
        section("Word by word", words_legend(), *map(explained_html, explained)),
        section("Make it again", verbatim(command)),
    ]
    return document(title, paragraph("Each answer, and what every word did for it."), body, STYLE)


def _result(result: Mapping[str, Any]) -> str:
    if not result:
        return ""
    told = [
        ("macro F1", f"{result['macro_f1']:.4f}: the mean of the classes', the rare as the common"),
        ("log loss", f"{result['log_loss']:.4f} nats an example"),
        ("Brier score", f"{result['brier']:.4f}; 0 is perfect"),
        ("calibration error", f"{result['ece']:.4f}: how far confidence is from accuracy, on average"),
        ("examples", f"{result['examples']:,}, none of them learnt from; they have chosen nothing"),
    ]
    error = result["standard_error"]
    figure = f'<p class="number">{result["accuracy"]:.1%} <small>right, ± {error:.1%} (standard error)</small></p>'
    return section("How good it is", figure, definitions(told), _confusion(result), _per_class(result["per_class"]))


def _confusion(result: Mapping[str, Any]) -> str:
    names = result["classes"]
    if len(names) > MOST_CLASSES:
        return ""
    rows = [
        (shown(name), *(f"<b>{count:,}</b>" if i == j else f"{count:,}" for j, count in enumerate(counts)))
        for i, (name, counts) in enumerate(zip(names, result["confusion"], strict=True))
    ]
    titles = ("truth \\ answer", *map(shown, names))
    return "<h3>What it takes for what</h3>" + table(titles, rows, right=range(1, len(titles)))


def _per_class(classes: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        (shown(c["class"]), f"{c['examples']:,}", f"{c['precision']:.3f}", f"{c['recall']:.3f}", f"{c['f1']:.3f}")
        for c in classes
    ]
    return table(("class", "examples", "precision", "recall", "F1"), rows, right=range(1, 5))


def _mistakes(mistakes: Sequence[Explained]) -> str:
    if not mistakes:
        return section("Its surest mistakes", paragraph("It made none."))
    said = "The examples that it got wrong with most confidence."
    return section("Its surest mistakes", paragraph(said), words_legend(), *map(explained_html, mistakes))


def words_legend() -> str:
    """What the colours of words mean."""
    return (
        '<p class="words"><mark class="f1">a little</mark> <mark class="f4">much</mark> for the answer; '
        '<mark class="a1">a little</mark> <mark class="a4">much</mark> against it. '
        "The number is how much the log-odds of the answer, ln p / (1 − p), fall when the word is left out.</p>"
    )


def explained_html(one: Explained) -> str:
    """One answer word by word."""
    truth = f", but it is {one.truth}" if one.truth is not None and one.truth != one.answer else ""
    head = f"<h3>{shown(one.answer)}, {one.confidence:.1%} sure{shown(truth)}</h3>"
    words = " ".join(_word(w, c) for w, c in zip(one.words, one.contributions, strict=True))
    near = [(f"{n.likeness:.2f}", shown(n.label), shown(short(n.text))) for n in one.nearest]
    alike = table(("likeness", "class", "nearest training examples"), near, right=(0,)) if near else ""
    return f'{head}<p class="words">{words}</p>{paragraph(one.verdict(), "quiet") if one.verdict() else ""}{alike}'


def _word(word: str, contribution: float) -> str:
    step = min(STEPS, math.ceil(STEPS * abs(contribution) / FULL)) if abs(contribution) >= 0.05 else 0
    kind = f' class="{"f" if contribution > 0 else "a"}{step}"' if step else ""
    number = f"<sub>{contribution:+.2f}</sub>" if step else ""
    return f'<span><mark{kind} title="{contribution:+.3f}">{shown(word)}</mark>{number}</span>'


def short(text: str, most: int = SHORT) -> str:
    """The beginning of a text, on one line."""
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1] + "…"
