"""Graded students, stored one by one, so that grading a class can be stopped and resumed."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from octavo.errors import UserError
from octavo.exercises.framework.answers import Function
from octavo.exercises.framework.exercise import Exercise, Part
from octavo.exercises.framework.functions import MAX_SOURCE_BYTES
from octavo.exercises.framework.limits import Limits
from octavo.io.files import whole_file

RESULT_SUFFIX = ".json"


class ResultFolder:
    """A folder with one file per student, which appears whole as soon as the student is graded.

    A stored result counts only for the same answers, Python files, exercises and limits; otherwise it is graded again.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise UserError(f"results are stored in a folder: {folder} is a file; choose another")

    def load(self, answers: Path, exercises: Sequence[Exercise], limits: Limits) -> list[list[Any]] | None:
        """The rows of a student who has been graded; None if there are none that still count."""
        try:
            record = json.loads(self._path(answers).read_text(encoding="utf-8"))
            rows: list[list[Any]] = record["rows"]
            return rows if record["identity"] == _identify(answers, exercises, limits) else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def save(self, answers: Path, exercises: Sequence[Exercise], limits: Limits, rows: Sequence[Any]) -> None:
        """Store the rows of a student."""
        record = {"student": answers.parent.name, "identity": _identify(answers, exercises, limits), "rows": rows}
        with whole_file(self._path(answers)) as file:
            file.write(json.dumps(record, indent=1).encode())

    def _path(self, answers: Path) -> Path:
        """Named after the student's folder; the digest keeps equal names apart."""
        folder = answers.absolute().parent
        name = re.sub(r"[^A-Za-z0-9_-]+", "-", folder.name)[:40]
        digest = hashlib.sha256(str(answers.absolute()).encode("utf-8", "surrogateescape")).hexdigest()[:12]
        return self.folder / f"{name}-{digest}{RESULT_SUFFIX}"


def _identify(answers: Path, exercises: Sequence[Exercise], limits: Limits) -> str:
    """A digest of all that a student's marks depend on."""
    digest = hashlib.sha256(repr(limits).encode())
    for exercise in exercises:
        digest.update(repr([exercise.id, *map(_describe, exercise.parts)]).encode())
    for path in (answers, *sorted(answers.parent.glob("*.py"))):
        if path.is_file() and not path.is_symlink():
            with open(path, "rb") as file:  # more than MAX_SOURCE_BYTES is refused anyway
                content = hashlib.sha256(file.read(MAX_SOURCE_BYTES + 1)).hexdigest()
            digest.update(f"{path.name!r} {content}".encode())
    return digest.hexdigest()


def _describe(part: Part) -> str:
    """A part as text that changes when its answer does; the addresses of functions are left out."""
    codes = [
        (function.__code__.co_code, function.__code__.co_consts)
        for function in ([part.answer.right, *part.wrong.values()] if isinstance(part.answer, Function) else ())
        if hasattr(function, "__code__")
    ]
    return re.sub(r" at 0x[0-9a-f]+", "", repr((part.id, part.points, part.answer, part.wrong, part.only_if, codes)))
