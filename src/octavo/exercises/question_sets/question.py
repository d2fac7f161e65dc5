"""A question of a textbook or course, and the parts of octavo's exercises that answer it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class UsualAnswer:
    """An answer that is often given and is wrong: `given` is what it would be in `part`, whose evidence refutes it."""

    text: str
    why_wrong: str
    part: str  # exercise.part
    given: Any


@dataclass(frozen=True)
class SourceQuestion:
    """One question of a source, in our own words; `parts` are named exercise.part."""

    number: str
    asks: str
    parts: tuple[str, ...]
    usual: UsualAnswer | None = None

    @property
    def all_parts(self) -> tuple[str, ...]:
        """The parts that answer the question, and the one that refutes the usual answer."""
        return tuple(dict.fromkeys([*self.parts, *([self.usual.part] if self.usual else [])]))

    @property
    def sort_key(self) -> tuple[tuple[int, str], ...]:
        """12.2 comes before 12.10, and 12.10a before 12.10b."""
        pieces = re.findall(r"\d+|[a-z]+", self.number)
        return tuple((int(piece), "") if piece.isdigit() else (0, piece) for piece in pieces)


@dataclass(frozen=True)
class QuestionSet:
    """The questions of one textbook chapter, assignment or laboratory sheet, by number."""

    id: str  # what --source takes
    title: str
    questions: tuple[SourceQuestion, ...]
