"""Grading: a student's file of answers against the exercises, or a folder with one folder for each student."""

from __future__ import annotations

import csv
import difflib
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from octavo.errors import UserError
from octavo.exercises.framework.answers import Choice, Formula, Function, Number, Truth
from octavo.exercises.framework.exercise import HALF, Exercise, Part
from octavo.exercises.framework.limits import Limits, Worker, call_function

Outcome = Literal["right", "only if", "wrong", "refused", "missing", "not run"]
REASON = "-reason"  # ends the key under which a student explains a true or false
FILE = "answers.toml"
LONGEST_NAME, LONGEST_WHY = 60, 1000
NOT_RUN = "a Python file is not run here; run it yourself: octavo exercises grade answers.toml"
RISKY = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet would compute a cell that begins so


class Graded(NamedTuple):
    """One part of one student: what was answered, what it is worth, and why."""

    exercise: str
    part: str
    outcome: Outcome
    why: str
    points: float
    of: float
    answer: str
    reason: str  # the student's, for the teacher to read


class Student(NamedTuple):
    """A student's rows; `problem` says why there are none."""

    name: str
    rows: tuple[Graded, ...]
    problem: str = ""

    @property
    def points(self) -> float:
        return sum(row.points for row in self.rows)

    @property
    def of(self) -> float:
        return sum(row.of for row in self.rows)

    def count(self, outcome: Outcome) -> int:
        """How many parts came out so."""
        return sum(row.outcome == outcome for row in self.rows)


def grade(
    answers: str | Path, exercises: Sequence[Exercise], only: Sequence[str] = (), limits: Limits = Limits(),  # noqa: B008
    advance: Callable[[float], None] = lambda _: None,
) -> list[Student]:  # fmt: skip
    """The students of a file, or of a folder; asked is what `only` names or, without it, whatever anybody answered."""
    files = find_answers(answers)
    known = {one.id: one for one in exercises}
    with Worker(limits) as worker:
        read = [(_short(name, LONGEST_NAME), file, *_read(worker, file, of_class=_is_class(Path(answers))))
                for name, file in files]  # fmt: skip
        met = {key for *_, said, _ in read for key, value in said.items() if isinstance(value, dict)}
        asked = [one for one in exercises if one.id in (only or met)]
        students = []
        for name, file, said, problem in read:
            if problem:
                students.append(Student(name, tuple(_lost(one, part, problem) for one in asked for part in one.parts),
                                        problem))  # fmt: skip
            else:
                students.append(_student(name, file, said, asked, known, worker))
            advance(1)
    return students


def grade_text(
    text: str, exercises: Sequence[Exercise], limits: Limits = Limits(), wanted: Callable[[], None] = lambda: None,  # noqa: B008
) -> Student:  # fmt: skip
    """A file of answers given as its text; no Python file is run, and what asks for one counts neither for nor against.

    `wanted` is called before each part, and may raise to stop.
    """
    known = {one.id: one for one in exercises}
    with Worker(limits) as worker:
        try:
            said: dict[str, Any] = worker.ask({"do": "parse", "text": text})
        except UserError as error:
            return Student("", (), str(error))
        asked = [one for one in exercises if isinstance(said.get(one.id), dict)]
        return _student("", None, said, asked, known, worker, wanted)


def find_answers(answers: str | Path) -> list[tuple[str, Path]]:
    """Each student's name and file: a file, a folder with answers.toml in it, or a folder of such folders."""
    path = Path(answers)
    if path.is_file():
        return [(path.parent.name if path.name == FILE and path.parent.name else path.stem, path)]
    if (path / FILE).is_file():
        return [(path.resolve().name, path / FILE)]
    found = [(one.name, one / FILE) for one in sorted(path.iterdir()) if one.is_dir() and one.name[0] not in "._"
             ] if path.is_dir() else []  # fmt: skip
    if not any(file.is_file() for _, file in found):
        raise UserError(f"answers are a TOML file, or a folder with a folder for each student and {FILE} in it: "
                        f"{answers} is neither; octavo exercises template writes an empty one")  # fmt: skip
    return found


def _is_class(path: Path) -> bool:
    return path.is_dir() and not (path / FILE).is_file()


def _read(worker: Worker, file: Path, of_class: bool) -> tuple[dict[str, Any], str]:
    """What a student answered, or why it cannot be read; a link could lead to what somebody else handed in."""
    if of_class and (file.is_symlink() or file.parent.is_symlink()):
        return {}, f"{FILE} or its folder is a link; hand in the file itself"
    if not file.is_file():
        return {}, f"there is no file {FILE} in the folder"
    try:
        said: dict[str, Any] = worker.ask({"do": "read", "file": str(file)})
        return said, ""
    except UserError as error:
        return {}, str(error)


def _student(
    name: str, file: Path | None, said: dict[str, Any], asked: Sequence[Exercise], known: dict[str, Exercise],
    worker: Worker, wanted: Callable[[], None] = lambda: None,
) -> Student:  # fmt: skip
    rows = []
    for one in asked:
        answers = said.get(one.id)
        answers = answers if isinstance(answers, dict) else {}
        for part in one.parts:
            wanted()
            rows.append(_graded(one, part, answers, file, worker))
        rows += [_stray(one.id, key, [part.id for part in one.parts]) for key in answers
                 if not any(key in (part.id, part.id + REASON) for part in one.parts)]  # fmt: skip
    rows += [
        _stray(key, "", list(known)) for key, value in said.items() if key not in known and isinstance(value, dict)
    ]
    return Student(name, tuple(rows))


def _graded(one: Exercise, part: Part, answers: dict[str, Any], file: Path | None, worker: Worker) -> Graded:
    given, reason = answers.get(part.id, ""), str(answers.get(part.id + REASON, ""))
    if given == "":
        return _lost(one, part, "", "missing")
    if file is None and isinstance(part.answer, Function):
        return Graded(one.id, part.id, "not run", NOT_RUN, 0.0, 0.0, _short(str(given), 200), "")
    try:
        outcome, why = judged(part, given, file, worker)
    except UserError as error:
        outcome, why = "refused", _unquoted(str(error))
    worth = {"right": part.points, "only if": HALF * part.points}.get(outcome, 0.0)
    return Graded(one.id, part.id, outcome, _short(why, LONGEST_WHY), worth, part.points, _short(str(given), 200),
                  _short(reason, 2000))  # fmt: skip


def judged(part: Part, given: Any, file: Path | None, worker: Worker) -> tuple[Outcome, str]:
    """How an answer comes out, and why; a UserError where it cannot be read or computed."""
    if isinstance(part.answer, Function):
        assert file is not None
        given = call_function(_beside(file, given), part.answer.name, part.answer.cases, worker.limits)
    refusal = compared(part, part.answer.right, given, worker)
    if refusal is None:
        return "right", ""
    for condition, other in part.only_if.items():
        if compared(part, other, given, worker) is None:
            return "only if", f"right only if {condition}; {refusal}"
    same = (f"{mistake}: " for mistake, other in part.wrong.items() if compared(part, other, given, worker) is None)
    mistake = next(same, "")
    if isinstance(part.answer, Truth) and part.answer.right == "nearly":
        half = part.answer.verdict(given) == "true"
        said = "right only if" if half else "as it stands it is not true, but it is if"
        return "only if", f"{mistake}{said} {part.answer.only_if}. {part.why}"
    taught = f". {part.why}" if isinstance(part.answer, Truth | Choice) else ""  # others are shown where they differ
    return "wrong", mistake + refusal + taught


def compared(part: Part, right: Any, given: Any, worker: Worker) -> str | None:
    """Why an answer is not this one; what has to be computed is computed by the worker."""
    kind = part.answer
    if isinstance(kind, Truth | Choice):
        return kind.compare(given, kind.verdict(right) if isinstance(kind, Truth) else right)
    if isinstance(kind, Function):
        refusal = kind.compare(given, [right(*case) for case in kind.cases] if callable(right) else right)
        return refusal and _unquoted(refusal)
    if isinstance(kind, Formula):
        asked: dict[str, Any] = {"do": "formula", "as": {"right": right, "symbols": dict(kind.symbols)}}
    else:
        assert isinstance(kind, Number)
        text = right if isinstance(right, int | float | str) else str(right)  # a Fraction is a formula of numbers
        asked = {"do": "number", "as": {"right": text, "rel": kind.rel, "abs": kind.abs}}
    told: str | None = worker.ask({**asked, "given": given})
    return told


def _unquoted(text: str) -> str:
    """Foreign text without backticks, between which formulas of ours stand."""
    return text.replace("`", "'")


def _beside(file: Path, name: Any) -> Path:
    """A file in the student's own folder; anything else could be another student's."""
    if not isinstance(name, str) or not name.endswith(".py"):
        raise UserError(
            f'the answer must be the name of a Python file, such as "answers.py": it is {_short(str(name), 60)!r}'
        )
    found = (file.parent / name).resolve()
    if found.parent != file.parent.resolve() or not found.is_file():
        raise UserError(f"the Python file must lie beside {file.name}: {_short(name, 60)!r} does not")
    return found


def _lost(one: Exercise, part: Part, why: str, outcome: Outcome = "refused") -> Graded:
    return Graded(one.id, part.id, outcome, why, 0.0, part.points, "", "")


def _stray(exercise: str, part: str, known: Sequence[str]) -> Graded:
    """An answer to nothing that was asked: shown, but worth nothing and asked of nobody."""
    name = part or exercise
    near = difflib.get_close_matches(name, known, 1)
    why = f"there is no such {'part' if part else 'exercise'}" + (f"; did you mean {near[0]}?" if near else "")
    return Graded(_short(exercise, 60), _short(part, 60), "refused", why, 0.0, 0.0, "", "")


def _short(text: str, most: int) -> str:
    clean = "".join(letter if letter.isprintable() else " " for letter in text)
    return clean if len(clean) <= most else clean[: most - 3] + "..."


def as_csv(students: Sequence[Student]) -> str:
    """A line for each part of each student; no cell is one that a spreadsheet would compute."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("student", *Graded._fields))
    for student in students:
        for row in student.rows:
            writer.writerow(_cell(value) for value in (student.name, *row))
    return out.getvalue()


def _cell(value: Any) -> Any:
    return "'" + value if isinstance(value, str) and value.startswith(RISKY) else value


def as_json(students: Sequence[Student]) -> list[dict[str, Any]]:
    """Everything, student by student."""
    return [
        {"student": one.name, "points": one.points, "of": one.of, "problem": one.problem or None,
         "parts": [row._asdict() for row in one.rows]}
        for one in students
    ]  # fmt: skip
