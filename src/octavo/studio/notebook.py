"""The studio's views in a notebook: each function gives an object that a notebook shows as HTML, whole in itself.

    from octavo.studio import notebook
    notebook.read(run, "To be, or not to be", other=another)

A run is one that `octavo.load` or `octavo.train` gave, or the path of its folder. Nothing here has a script, and
nothing is fetched from anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from markupsafe import Markup

from octavo.errors import UserError
from octavo.inspection.inspection import has_inspection, inspect_run
from octavo.inspection.page import inside_section, surprisal_section
from octavo.inspection.surprisal import surprises
from octavo.pages.figures.charts import Series, bars, lines
from octavo.pages.markup import NOTHING, element, join
from octavo.pages.sections import notebook_view, paragraph, side_by_side
from octavo.pages.surprisal import annotated_text, surprisal_legend
from octavo.scoring.metrics import CoveragePoint, at_threshold
from octavo.tasks.answering import Rules, other_answers, replies_to
from octavo.tasks.api import generate
from octavo.tasks.classification_page import contributions, contributions_legend
from octavo.tasks.classifier import Classifier
from octavo.tasks.facts_run import answering_run
from octavo.tasks.language_page import annotate
from octavo.tasks.run import Run, load
from octavo.tasks.word_contributions import explain as explain_texts
from octavo.text.bag_of_ngrams import words_of
from octavo.text.preprocess import apply

OTHER_ANSWERS = 5  # that are shown beside the first
SHOWN_CLASSES = 12


@dataclass(frozen=True)
class View:
    """A part of a page: HTML in a notebook, a line of text elsewhere."""

    summary: str
    body: Markup = field(repr=False)

    def _repr_html_(self) -> str:
        """The view with its style, which holds inside it alone."""
        return notebook_view(self.body)

    def __repr__(self) -> str:
        return self.summary


def read(run: Run | str | Path, text: str, other: Run | str | Path | None = None) -> View:
    """A text coloured by its surprisal, token by token; with another run, both side by side."""
    views = [_read(_run(one), text) for one in (run, other) if one is not None]
    sides = [join(paragraph(element("b", summary)), body) for summary, body in views]
    return View("; ".join(summary for summary, _ in views), join(side_by_side(*sides), surprisal_legend()))


def _read(run: Run, text: str) -> tuple[str, Markup]:
    pieces = annotate(run.model, run.tokenizer, _bytes(run, text))
    if not pieces:
        raise UserError("there is nothing to read: the text is empty; give a sentence or two")
    bits_per_byte = sum(piece.bits for piece in pieces) / max(1, sum(piece.bytes for piece in pieces))
    return f"{run.name}: {bits_per_byte:.3f} bits per byte", annotated_text(pieces)


def _bytes(run: Run, text: str) -> bytes:
    """A text as the model would have met it in training."""
    return apply(run.record.get("preprocess", ()), text.encode("utf-8", "replace"))


def inside(run: Run | str | Path, text: str) -> View:
    """The gates, attention and layers of a model while it reads the text; of an n-gram model, the context it knows."""
    run = _run(run)
    summary = f"{run.name} reads {len(text):,} characters"
    if has_inspection(run):
        return View(summary, inside_section(inspect_run(run, text), run.name))
    tokens = surprises(run.model, run.tokenizer, _bytes(run, text))
    if not tokens:
        raise UserError("there is nothing to look at: the text is empty; give a sentence or two")
    return View(summary, surprisal_section(tokens, f"Inside {run.name}"))


def write(
    run: Run | str | Path, prompt: str = "", max_tokens: int = 200, method: str = "sample", seed: int = 0,
    **settings: Any,
) -> View:  # fmt: skip
    """What follows the prompt, coloured by its surprisal; settings are the method's, as of generate."""
    run = _run(run)
    text = generate(run, prompt, max_tokens, method, seed, **settings)
    before, new, seen = len(_bytes(run, prompt)), [], 0
    for piece in annotate(run.model, run.tokenizer, _bytes(run, prompt + text)):
        seen += piece.bytes
        if seen > before:
            new.append(piece)
    parts = (paragraph(f"{run.name}, {method}"), annotated_text(new, prompt), surprisal_legend())
    return View(prompt + text, join(*parts))


def explain(classifier: Classifier | str | Path, text: str) -> View:
    """The class of a text, and how much every word contributed to it."""
    made = classifier if isinstance(classifier, Classifier) else Classifier.load(classifier)
    if not words_of([text]).spelt()[0]:
        raise UserError("there is no word in the text; give some")
    [one] = explain_texts(made, [text], [None])
    p_C = made.probabilities([text])[0].tolist()
    ranked = sorted(zip(made.classes, p_C, strict=True), key=lambda pair: -pair[1])[:SHOWN_CLASSES]
    figure = bars([(name, 100 * p) for name, p in ranked], "Probability of each class, %.", 1)
    summary = f"{one.answer}, {one.confidence:.1%} confident"
    return View(summary, join(contributions(one), figure, contributions_legend()))


def answer(run: Run | str | Path, question: str, threshold: float = 0.5) -> View:
    """The answer of a run that knows facts, its confidence, and the coverage at the threshold."""
    oracle = answering_run(_run(run))
    [reply] = replies_to(oracle, [question], Rules(threshold))
    guesses = [(reply.guess or "(nothing)", reply.confidence), *other_answers(oracle, reply, OTHER_ANSWERS)]
    every = sorted(guesses, key=lambda one: -one[1])
    figure = bars([(text, 100 * p) for text, p in every], "Probability of each whole answer, %.", 1)
    summary = (
        f"It abstains: {reply.guess!r} has a confidence of {reply.confidence:.1%}, below {threshold:.1%}"
        if reply.answer is None else f"{reply.answer}, {reply.confidence:.1%} confident"
    )  # fmt: skip
    curve = [CoveragePoint(*point) for point in oracle.record.get("result", {}).get("curve", [])]
    return View(summary, join(element("h3", summary), figure, _coverage(curve, threshold)))


def _coverage(curve: list[CoveragePoint], threshold: float) -> Markup:
    """Accuracy against coverage on the questions that the run was measured on, and the threshold's point on it."""
    if not curve:
        return NOTHING
    at = at_threshold(curve, threshold)
    caption = f"At a confidence of {threshold:.1%} or more it answers " + (
        f"{at.coverage:.1%} of new questions, {at.accuracy:.1%} of them correctly." if at else "no new question."
    )
    series = [Series("new questions", [(100 * point.coverage, 100 * point.accuracy) for point in curve])]
    if at:
        series.append(Series("this threshold", [(100 * at.coverage, 100 * at.accuracy)]))
    return lines(series, caption, ("coverage, %", "accuracy, %"))


def _run(run: Run | str | Path) -> Run:
    if isinstance(run, str | Path):
        return load(run)
    if not isinstance(run, Run):
        raise UserError(f"a run is asked for, not {type(run).__name__}; get one with octavo.load(PATH)")
    return run
