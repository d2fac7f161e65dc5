"""An empty answer file: the questions as TOML comments, and a key for every part."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from octavo.exercises.framework.answers import Answer, Choice, Truth
from octavo.exercises.framework.exercise import Exercise, Part
from octavo.exercises.framework.grading import REASON
from octavo.exercises.framework.mathml import prose_as_text

HEADER = """# Answers to octavo's exercises. Write your answers between the quotes; an empty answer counts as missing.
# Numbers need no quotes. Formulas need quotes: "sqrt(x^2 + 1)/(2*pi)"; write 2*x, not 2x.
# true and false need no quotes; "only if ..." names the condition under which a statement holds.
# To grade this file: octavo exercises grade answers.toml
"""
COMMENT_WIDTH = 110


def answer_template(exercises: Sequence[Exercise]) -> str:
    """The text of an answer file without answers."""
    blocks = [HEADER]
    for exercise in exercises:
        heading = _comment(f"{exercise.title}. {exercise.question}")
        blocks.append("\n".join([f"[{exercise.id}]", heading, *map(_part_lines, exercise.parts)]) + "\n")
    return "\n".join(blocks)


def _part_lines(part: Part) -> str:
    lines = ["", _comment(part.ask), *map(_comment, answer_hints(part.answer)), f'{part.id} = ""']
    if isinstance(part.answer, Truth):
        lines.append(f'{part.id}{REASON} = ""')
    return "\n".join(lines)


def answer_hints(answer: Answer) -> list[str]:
    """The format of an answer, and the options of a choice."""
    options = answer.options.items() if isinstance(answer, Choice) else ()
    return [f"({answer.template})", *(f"{name}: {meaning}" for name, meaning in options)]


def _comment(text: str) -> str:
    words = " ".join(prose_as_text(text).split())
    return textwrap.fill(
        words, COMMENT_WIDTH, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False
    )  # fmt: skip
