"""The booklet: every exercise on one page that needs no network, its answers folded away, its evidence computed now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from octavo.exercises.framework.answers import Answer, Choice, Formula, Function, Number, Truth
from octavo.exercises.framework.checking import CheckedExercise
from octavo.exercises.framework.exercise import Evidence, Exercise, Part
from octavo.exercises.framework.mathml import as_mathml, prose_as_html
from octavo.pages.frame import document, shown

VERDICTS = {"true": "True", "false": "False", "nearly": "Nearly true"}
STYLE = """
article { border-top: 1px solid var(--line); margin: 1.6rem 0; padding-top: .4rem } article h3 { font-size: 1.1rem }
details { margin: .6rem 0; padding: .1rem .8rem; background: var(--panel); border-radius: 4px; max-width: 46rem }
summary { cursor: pointer; padding: .35rem 0; color: var(--main) }
.part { margin: .8rem 0 } .part p { margin: .25rem 0 }
.mark { font-weight: 650 } .fails { color: #b3261e; font-weight: 650 } math { font-size: 1.06em }
math:has(mfrac) { display: inline math; margin: .3em 0; vertical-align: baseline }
.wide { overflow-x: auto; overflow-y: hidden; padding: .15rem 0 }
nav ol { columns: 18rem; padding-left: 1.4rem } nav h2 { font-size: 1rem }
.wrong { font-size: .9rem } .wrong li { margin: .15rem 0 }
.part > ol, .part > ul { padding-left: 1.2rem; margin: .3rem 0 }
@media (prefers-color-scheme: dark) { .fails { color: #ff8a80 } }
@media print { details { display: block } details > * { display: block } }
"""


def book(topics: Mapping[str, Sequence[Exercise]], checked: Mapping[str, CheckedExercise], command: str) -> str:
    """The page as HTML; exercises that were not checked stand there without evidence."""
    parts = sum(len(one.parts) for some in topics.values() for one in some)
    count = sum(map(len, topics.values()))
    lead = f"<p>{count} exercises with {parts} claims. Think first; the answers unfold.</p>"
    if checked:
        seconds = sum(one.seconds for one in checked.values())
        hold = sum(evidence.holds for one in checked.values() for _, _, evidence in one.parts)
        told = sum(len(one.parts) for one in checked.values())
        lead += (f'<p class="quiet">{hold} of {told} claims were confirmed when this page was written, '
                 f"in {seconds:.0f} s of computing.</p>")  # fmt: skip
    lead += f'<p class="quiet">Made with <code>{shown(command)}</code></p>'
    body = [_contents(topics)]
    for topic, some in topics.items():
        body.append(f"<section>\n<h2>{shown(topic)}</h2>")
        body += [article(one, checked.get(one.id), _figure(one, checked.get(one.id))) for one in some]
        body.append("</section>")
    return document("Exercises", lead, body, STYLE)


def _figure(one: Exercise, checked: CheckedExercise | None) -> str:
    if checked and checked.figure:
        return checked.figure
    return one.figure() if one.figure else ""


def _contents(topics: Mapping[str, Sequence[Exercise]]) -> str:
    blocks = []
    for topic, some in topics.items():
        rows = "".join(f'<li><a href="#{shown(one.id)}">{shown(one.title)}</a></li>' for one in some)
        blocks.append(f"<h2>{shown(topic)}</h2>\n<ol>{rows}</ol>")
    return "<nav>\n" + "\n".join(blocks) + "\n</nav>"


def article(one: Exercise, checked: CheckedExercise | None, figure: str) -> str:
    """One exercise, its answer folded away with this figure in it."""
    evidence = {name: found for name, _, found in checked.parts} if checked else {}
    asked = "".join(f"<li>{_asked(part)}</li>" for part in one.parts)
    problem = f'<p class="fails">A check stopped: {shown(checked.problem)}</p>' if checked and checked.problem else ""
    return "\n".join([
        f'<article id="{shown(one.id)}">\n<h3>{shown(one.title)}</h3>', prose_as_html(one.question),
        f"<ol>{asked}</ol>", problem,
        "<details><summary>Answer</summary>", prose_as_html(one.answer), figure,
        "<ol>", *(f"<li>{_part(part, evidence.get(part.id))}</li>" for part in one.parts), "</ol>", "</details>",
        f'<p class="quiet"><code>octavo exercises show {shown(one.id)}</code></p>', "</article>",
    ])  # fmt: skip


def _asked(part: Part) -> str:
    """The question, with what a statement or a choice leaves to choose from."""
    if isinstance(part.answer, Truth):
        return f"True or false? {_inline(part.ask)}"
    if isinstance(part.answer, Choice):
        options = "".join(f"<li>{shown(name)}: {_inline(said)}</li>" for name, said in part.answer.options.items())
        return f"{_inline(part.ask)}<ul>{options}</ul>"
    return _inline(part.ask)


def _part(part: Part, evidence: Evidence | None) -> str:
    wrong = "".join(f"<li>{_answer(part.answer, given)}: {_inline(name)}</li>" for name, given in part.wrong.items())
    held = "".join(f"<li>{_answer(part.answer, given)}: right only if {_inline(condition)}</li>"
                   for condition, given in part.only_if.items())  # fmt: skip
    return "\n".join([
        f'<div class="part">{prose_as_html(part.ask)}',
        f'<p class="wide"><span class="mark">{_answer(part.answer, part.answer.right)}</span></p>',
        prose_as_html(part.why),
        f'<p class="quiet wrong">Not right:</p><ul class="wrong">{wrong}{held}</ul>' if wrong or held else "",
        _evidence(part, evidence) if evidence else "", "</div>",
    ])  # fmt: skip


def _evidence(part: Part, evidence: Evidence) -> str:
    said = "confirmed" if evidence.holds else '<span class="fails">not confirmed</span>'
    return (
        f'<p class="quiet">Evidence ({shown(part.kind)}, {shown(evidence.tolerance)}): {said} in '
        f"{evidence.seconds:.2f} s: {_inline(evidence.note)}.</p>"
    )


def _answer(kind: Answer, given: object) -> str:
    if isinstance(kind, Truth):
        verdict = kind.verdict(given)
        known = verdict == "nearly" and kind.only_if
        return VERDICTS[verdict] + (f": only if {_inline(kind.only_if)}" if known else "")
    if isinstance(kind, Choice):
        return f"{shown(str(given))}: {_inline(kind.options[str(given)])}"
    if isinstance(kind, Function):
        return f"<code>{shown(kind.signature)}</code>" if given is kind.right else "a function"
    if isinstance(kind, Formula) or (isinstance(kind, Number) and isinstance(given, str)):
        return as_mathml(str(given))
    return shown(f"{given:,}" if isinstance(given, int) else f"{given:.8g}" if isinstance(given, float) else str(given))


def _inline(text: str) -> str:
    return prose_as_html(text).removeprefix("<p>").removesuffix("</p>")
