"""An empty file of answers: the questions as comments, a key for every part."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from octavo.exercises.framework.answers import Answer, Choice, Truth
from octavo.exercises.framework.exercise import Exercise, Part
from octavo.exercises.framework.grading import REASON
from octavo.exercises.framework.mathml import prose_as_text

HEAD = """# Answers to octavo's exercises. Fill in what stands between the quotes; what is left empty counts as missing.
# Numbers need no quotes. Formulas stand in quotes: "sqrt(x^2 + 1)/(2*pi)"; write 2*x, not 2x.
# true and false need no quotes; "only if ..." says on which condition a statement holds.
# To grade it: octavo exercises grade answers.toml
"""


def template(exercises: Sequence[Exercise]) -> str:
    """The file as text."""
    blocks = [HEAD]
    for one in exercises:
        blocks.append(
            "\n".join([f"[{one.id}]", _comment(f"{one.title}. {one.question}"), *map(_part, one.parts)]) + "\n"
        )
    return "\n".join(blocks)


def _part(part: Part) -> str:
    lines = ["", _comment(part.ask), *map(_comment, hints(part.answer)), f'{part.id} = ""']
    if isinstance(part.answer, Truth):
        lines.append(f'{part.id}{REASON} = ""')
    return "\n".join(lines)


def hints(answer: Answer) -> list[str]:
    """What an answer may be, and the options of a choice."""
    options = answer.options.items() if isinstance(answer, Choice) else ()
    return [f"({answer.template})", *(f"{name}: {said}" for name, said in options)]


def _comment(text: str) -> str:
    return textwrap.fill(
        " ".join(prose_as_text(text).split()), 110, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False
    )
