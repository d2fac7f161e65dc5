"""The booklet: every exercise on one page that needs no network, its answers folded away, its evidence computed now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from octavo.exercises.framework.answers import Answer, Choice, Formula, Function, Number, Truth
from octavo.exercises.framework.checking import CheckedExercise
from octavo.exercises.framework.exercise import Evidence, Exercise, Part
from octavo.exercises.framework.grading import condition_hints
from octavo.exercises.framework.mathml import as_mathml, inline_as_html, prose_as_html
from octavo.exercises.framework.verdicts import VERDICT_MEANINGS
from octavo.exercises.question_sets import tags_of, usual_answers
from octavo.pages.markup import NOTHING, element, join, render
from octavo.pages.sections import bullets, code, link, paragraph, render_page, section

VERDICTS = {"true": "True", "false": "False", "nearly": "Nearly true"}


def book(topics: Mapping[str, Sequence[Exercise]], checked: Mapping[str, CheckedExercise], command: str) -> str:
    """The page as HTML; exercises that were not checked stand there without evidence."""
    claims = sum(len(one.parts) for exercises in topics.values() for one in exercises)
    count = sum(map(len, topics.values()))
    lead = [paragraph(f"{count} exercises with {claims} claims. Think first; the answers unfold.")]
    if checked:
        seconds = sum(one.seconds for one in checked.values())
        confirmed = sum(evidence.holds for one in checked.values() for _, _, evidence in one.parts)
        total = sum(len(one.parts) for one in checked.values())
        lead.append(paragraph(
            f"{confirmed} of {total} claims were confirmed when this page was written, in {seconds:.0f} s of "
            "computing.", quiet=True
        ))  # fmt: skip
    lead.append(verdict_meanings())
    lead.append(paragraph("Made with ", code(command), quiet=True))
    body = [
        section(topic, *(article(one, checked.get(one.id), _figure(one, checked.get(one.id))) for one in exercises))
        for topic, exercises in topics.items()
    ]
    return render_page("Exercises", join(*lead), [_contents(topics), *body])


def verdict_meanings() -> Markup:
    """What the three verdicts on a statement mean."""
    meanings = [f"{VERDICTS[verdict]}: {meaning}." for verdict, meaning in VERDICT_MEANINGS.items()]
    return paragraph("A statement is true, false or nearly true.") + bullets(meanings)


def _figure(one: Exercise, checked: CheckedExercise | None) -> str:
    if checked and checked.figure:
        return checked.figure
    return one.figure() if one.figure else ""


def _contents(topics: Mapping[str, Sequence[Exercise]]) -> Markup:
    parts = []
    for topic, exercises in topics.items():
        rows = [element("li", link(f"#{one.id}", one.title)) for one in exercises]
        parts += [element("h2", topic), element("ol", *rows)]
    return element("nav", join(*parts), class_="contents")


def article(one: Exercise, checked: CheckedExercise | None, figure: str) -> Markup:
    """One exercise, its answer folded away with this figure, which is HTML, in it."""
    evidence = {name: found for name, _, found in checked.parts} if checked else {}
    usual = [text.split(": ", 1) for text in usual_answers(one.id)]
    return render(
        "exercise.html", id=one.id, title=one.title, question=prose_as_html(one.question),
        asked=[asked(part) for part in one.parts], problem=checked.problem if checked else "",
        answer=prose_as_html(one.answer), figure=Markup(figure), sources=", ".join(tags_of(one.id)),
        usual=[join(f"{source}: ", inline_as_html(text)) for source, text in usual],
        parts=[_part(part, evidence.get(part.id)) for part in one.parts],
    )  # fmt: skip


def asked(part: Part, note: str = "") -> Markup:
    """The question, a note, and what a statement or a choice leaves to choose from."""
    ask = inline_as_html(part.ask) + (element("span", f" ({note})", class_="quiet") if note else NOTHING)
    if isinstance(part.answer, Truth):
        hints = condition_hints(part.answer) if part.answer.condition is not None else []
        question = Markup("True or false? ") + ask
        return (
            question + " " + inline_as_html(hints[0]) + bullets(map(inline_as_html, hints[2:])) if hints else question
        )
    if isinstance(part.answer, Choice):
        return ask + bullets(_option(part.answer, name) for name in part.answer.options)
    return ask


def _option(answer: Choice, name: str) -> Markup:
    return Markup("{}: {}").format(name, inline_as_html(answer.options[name]))


def _part(part: Part, evidence: Evidence | None) -> Markup:
    wrong = [
        inline_as_html(name) if isinstance(part.answer, Function)
        else Markup("{}: {}").format(_answer(part.answer, given), inline_as_html(name))
        for name, given in part.wrong.items()
    ]  # fmt: skip
    wrong += [
        Markup("{}: right only if {}").format(_answer(part.answer, given), inline_as_html(condition))
        for condition, given in part.only_if.items()
    ]
    return join(
        prose_as_html(part.ask), element("div", _answer(part.answer, part.answer.right), class_="right"),
        prose_as_html(part.why), paragraph("Common mistakes:", kind="quiet wrong") if wrong else "",
        bullets(wrong, "wrong"), _evidence(part, evidence) if evidence else NOTHING,
    )  # fmt: skip


def _evidence(part: Part, evidence: Evidence) -> Markup:
    if evidence.skipped:
        return paragraph(f"Evidence ({part.kind}): skipped: {evidence.note}.", quiet=True)
    result = "confirmed" if evidence.holds else element("span", "not confirmed", class_="fails")
    return paragraph(
        f"Evidence ({part.kind}, {evidence.tolerance}): ", result, f" in {evidence.seconds:.2f} s: ",
        inline_as_html(evidence.note), ".", quiet=True,
    )  # fmt: skip


def _answer(kind: Answer, given: object) -> str | Markup:
    if isinstance(kind, Truth):
        verdict = kind.verdict(given)
        known = verdict == "nearly" and kind.only_if
        return Markup("{}: only if {}").format(VERDICTS[verdict], inline_as_html(kind.only_if)) if known \
            else VERDICTS[verdict]  # fmt: skip
    if isinstance(kind, Choice):
        return _option(kind, str(given))
    if isinstance(kind, Function):
        return code(kind.signature) if given is kind.right else "a function"
    if isinstance(kind, Formula) or (isinstance(kind, Number) and isinstance(given, str)):
        return as_mathml(str(given))
    return f"{given:,}" if isinstance(given, int) else f"{given:.8g}" if isinstance(given, float) else str(given)
