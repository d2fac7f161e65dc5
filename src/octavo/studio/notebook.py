"""The studio's views in a notebook: each function gives an object that a notebook shows as HTML, whole in itself.

    from octavo.studio import notebook
    notebook.read(run, "To be, or not to be", other=another)

A run is one that `octavo.load` or `octavo.train` gave, or the path of its folder. Nothing here has a script, and
nothing is fetched from anywhere.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from octavo.errors import UserError
from octavo.inspect.inspection import has_inspection, inspect_run
from octavo.inspect.page import inside_html
from octavo.inspect.surprisal import surprises
from octavo.pages.figures.bars import bars
from octavo.pages.figures.lines import Series, lines
from octavo.pages.frame import STYLE, paragraph, shown, table
from octavo.pages.surprisal import Piece, coloured, legend
from octavo.scoring.answers import Point, at_threshold
from octavo.studio.server.scoped_style import scoped
from octavo.tasks.answering import Reply, Rules, other_answers, replies_to
from octavo.tasks.api import generate
from octavo.tasks.classification_page import STYLE as CLASSIFY_STYLE
from octavo.tasks.classification_page import explained_html, words_legend
from octavo.tasks.classifier import Classifier, load_classifier
from octavo.tasks.facts_run import oracle_of
from octavo.tasks.run import Run, load
from octavo.tasks.surprisal import pieces
from octavo.tasks.word_contributions import explain as explain_texts
from octavo.text.bag_of_ngrams import words_of
from octavo.text.preprocess import apply

KIND = "octavo-view"
MOST = 200  # tokens of an n-gram's table
OTHERS = 5  # answers that are shown beside the first
CLASSES = 12  # that are drawn
AROUND = (  # what a page has around itself, and what a notebook says of every table
    "body { margin: 0; padding: .8rem; border: 1px solid var(--line); border-radius: 4px } "
    "h2:first-child, section:first-child h2, h3:first-child { margin-top: 0 } "
    "table { margin: .6rem 0 } tr { background: none !important }"
)
STYLES = re.compile(r"<style>(.*?)</style>\s*", re.DOTALL)


@dataclass(frozen=True)
class View:
    """Something to look at: HTML in a notebook, a line of text elsewhere."""

    told: str
    body: str = field(repr=False)

    def _repr_html_(self) -> str:
        """The view with its style, which reaches no further than itself."""
        own = dict.fromkeys(STYLES.findall(self.body))  # figures bring theirs along
        style = scoped("\n".join([STYLE, CLASSIFY_STYLE, AROUND, *own]), KIND)
        return f'<div class="{KIND}"><style>{style}</style>\n{STYLES.sub("", self.body)}\n</div>'

    def __repr__(self) -> str:
        return self.told


def read(run: Run | str | Path, text: str, other: Run | str | Path | None = None) -> View:
    """A text, each token on the colour of what it cost; with another run, both side by side."""
    found = [_read(_run(one), text) for one in (run, other) if one is not None]
    told = "; ".join(told for told, _ in found)
    sides = "".join(f"<div><p><b>{shown(told)}</b></p>{html}</div>" for told, html in found)
    return View(told, f'<div class="side">{sides}</div>{legend()}')


def _read(run: Run, text: str) -> tuple[str, str]:
    parts = _pieces(run, text)
    if not parts:
        raise UserError("there is nothing to read: the text is empty; give a sentence or two")
    return f"{run.name}: {_bits_per_byte(parts):.3f} bits per byte", coloured(parts)


def _pieces(run: Run, text: str) -> list[Piece]:
    return pieces(run.model, run.tokenizer, _bytes(run, text))


def _bytes(run: Run, text: str) -> bytes:
    """A text as the model would have met it in training."""
    return apply(run.record.get("preprocess", ()), text.encode("utf-8", "replace"))


def _bits_per_byte(parts: list[Piece]) -> float:
    return sum(part.bits for part in parts) / max(1, sum(part.bytes for part in parts))


def inside(run: Run | str | Path, text: str) -> View:
    """What goes on inside while the text is read: gates, attention, layers; of a model that counts, which context."""
    run = _run(run)
    told = f"{run.name} reads {len(text):,} characters"
    if has_inspection(run):
        return View(told, inside_html(inspect_run(run, text), run.name))
    found = surprises(run.model, run.tokenizer, _bytes(run, text))[:MOST]
    if not found:
        raise UserError("there is nothing to look at: the text is empty; give a sentence or two")
    titles = ("token", "bits", "rank", "known context", "expected")
    rows = [
        (f"<code>{shown(one.token)}</code>", f"{one.bits:.2f}", str(one.rank),
         "–" if one.context is None else str(one.context),
         ", ".join(f"<code>{shown(token)}</code> {p:.0%}" for token, p in one.candidates))
        for one in found
    ]  # fmt: skip
    note = paragraph("Known context: how many tokens before it the longest n-gram has that ends with it.", "quiet")
    return View(told, f"<h2>Inside {shown(run.name)}</h2>{table(titles, rows, right=(1, 2, 3))}{note}")


def write(
    run: Run | str | Path, prompt: str = "", max_tokens: int = 200, method: str = "sample", seed: int = 0,
    **settings: Any,
) -> View:  # fmt: skip
    """What follows the prompt, each token on the colour of what it cost; settings are the method's, as of generate."""
    run = _run(run)
    text = generate(run, prompt, max_tokens, method, seed, **settings)
    before, new, seen = len(_bytes(run, prompt)), [], 0
    for part in _pieces(run, prompt + text):
        seen += part.bytes
        if seen > before:
            new.append(part)
    return View(prompt + text, f"{paragraph(f'{run.name}, {method}')}{coloured(new, prompt)}{legend()}")


def explain(classifier: Classifier | str | Path, text: str) -> View:
    """The class of a text, and what every word did for the answer."""
    made = classifier if isinstance(classifier, Classifier) else load_classifier(classifier)
    if not words_of([text]).spelt()[0]:
        raise UserError("there is no word in the text; give some")
    [one] = explain_texts(made, [text], [None])
    p_C = made.probabilities([text])[0].tolist()
    ranked = sorted(zip(made.classes, p_C, strict=True), key=lambda pair: -pair[1])[:CLASSES]
    figure = bars([(name, 100 * p) for name, p in ranked], "Probability of each class, %.", 1)
    return View(f"{one.answer}, {one.confidence:.1%} sure", explained_html(one) + figure + words_legend())


def answer(run: Run | str | Path, question: str, threshold: float = 0.5) -> View:
    """The answer of a run that knows facts, how sure it is, and what comes of the threshold."""
    oracle = oracle_of(_run(run))
    [reply] = replies_to(oracle, [question], Rules(threshold))
    guesses = [(reply.guess or "(nothing)", reply.confidence), *other_answers(oracle, reply, OTHERS)]
    every = sorted(guesses, key=lambda one: -one[1])
    figure = bars([(text, 100 * p) for text, p in every], "Probability of each whole answer, %.", 1)
    told = _told(reply, threshold)
    curve = [Point(*point) for point in oracle.run.record.get("result", {}).get("curve", [])]
    return View(told, f"<h3>{shown(told)}</h3>{figure}{_coverage(curve, threshold)}")


def _told(reply: Reply, threshold: float) -> str:
    if reply.answer is not None:
        return f"{reply.answer}, {reply.confidence:.1%} sure"
    return f"It abstains: {reply.guess!r} is {reply.confidence:.1%} sure, below {threshold:.1%}"


def _coverage(curve: list[Point], threshold: float) -> str:
    """The curve on the questions that the run was measured on, and where the threshold lies on it."""
    if not curve:
        return ""
    at = at_threshold(curve, threshold)
    told = f"At {threshold:.1%} or surer it answers " + (
        f"{at.coverage:.1%} of new questions, {at.accuracy:.1%} of them rightly." if at else "no new question."
    )
    series = [Series("new questions", [(100 * point.coverage, 100 * point.accuracy) for point in curve])]
    if at:
        series.append(Series("this threshold", [(100 * at.coverage, 100 * at.accuracy)]))
    return lines(series, told, ("answered, %", "right, %"))


def _run(run: Run | str | Path) -> Run:
    if isinstance(run, str | Path):
        return load(run)
    if not isinstance(run, Run):
        raise UserError(f"a run is asked for, not {type(run).__name__}; get one with octavo.load(PATH)")
    return run
