"""Answer files: an empty one to fill in, and grading one or a folder with one folder per student."""

from __future__ import annotations

import csv
import difflib
import io
import textwrap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from octavo.errors import UserError
from octavo.exercises.framework.answers import Answer, Choice, Formula, Function, Number, Truth
from octavo.exercises.framework.exercise import CONDITIONAL_CREDIT, Exercise, Part
from octavo.exercises.framework.limits import Limits, Worker, call_function
from octavo.exercises.framework.mathml import prose_as_text

Outcome = Literal["right", "only if", "partly", "wrong", "refused", "missing", "not run"]
REASON = "-reason"  # suffix of the key under which a student explains a true or false
CONDITION = "-condition"  # suffix of the key under which a student names the condition of a nearly true statement
ANSWER_FILE = "answers.toml"
HEADER = """# Answers to octavo's exercises. Write your answers between the quotes; an empty answer counts as missing.
# Numbers: 0.25, 1/4, 25%, 65,536 or a formula such as "sqrt(2)/3"; three digits are enough unless a part asks for more.
# Formulas: "4*D^2", "4 D²" and '4\\cdot D^{2}' are read alike; any equivalent form is right.
# Statements have three verdicts. true: it holds as stated, without exception. false: it does not always hold.
# nearly: it does not always hold, but it does under a condition, which you name. Where a statement is nearly true,
# false is a right verdict too; half of the points are for the verdict, half for the condition.
# To grade this file: octavo exercises grade answers.toml
"""
COMMENT_CHARACTERS = 110  # of a line of the template
MAX_NAME_CHARACTERS, MAX_ANSWER_CHARACTERS, MAX_WHY_CHARACTERS, MAX_REASON_CHARACTERS = 60, 200, 1000, 2000
NOT_RUN = "a Python file is not run here; run it yourself: octavo exercises grade answers.toml"
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet would evaluate a cell that begins with one of these


class GradedPart(NamedTuple):
    """One part of one student: the answer, its outcome and points, and why."""

    exercise: str
    part: str
    outcome: Outcome
    why: str
    points: float
    of: float  # points for a right answer
    answer: str
    reason: str  # the student's explanation, for the teacher to read


class Student(NamedTuple):
    """A student's graded parts; `problem` says why the answers could not be read."""

    name: str
    rows: tuple[GradedPart, ...]
    problem: str = ""

    @property
    def points(self) -> float:
        return sum(row.points for row in self.rows)

    @property
    def of(self) -> float:
        return sum(row.of for row in self.rows)

    def count(self, outcome: Outcome) -> int:
        """The number of parts with this outcome."""
        return sum(row.outcome == outcome for row in self.rows)


def grade(
    answers: str | Path, exercises: Sequence[Exercise], only: Sequence[str] = (), limits: Limits = Limits(),  # noqa: B008
    advance: Callable[[float], None] = lambda _: None,
) -> list[Student]:  # fmt: skip
    """Grade a file or a folder of students on the exercises `only` names or, without it, those anybody answered."""
    path, files = Path(answers), find_answers(answers)
    is_class = path.is_dir() and not (path / ANSWER_FILE).is_file()
    with Worker(limits) as worker:
        read = [(_shorten(name, MAX_NAME_CHARACTERS), file, *_read_answers(worker, file, is_class))
                for name, file in files]  # fmt: skip
        answered = {key for *_, given, _ in read for key, value in given.items() if isinstance(value, dict)}
        assigned = [exercise for exercise in exercises if exercise.id in (only or answered)]
        students = []
        for name, file, given, problem in read:
            if problem:
                rows = [_no_points(one, part, "refused", problem) for one in assigned for part in one.parts]
            else:
                rows = _grade_student(file, given, assigned, exercises, worker)
            students.append(Student(name, tuple(rows), problem))
            advance(1)
    return students


def grade_text(
    text: str, exercises: Sequence[Exercise], limits: Limits = Limits(), raise_if_cancelled: Callable[[], None] = lambda: None,  # noqa: B008, E501
) -> Student:  # fmt: skip
    """Grade the text of an answer file. No Python file is run: parts that need one count neither for nor against.

    `raise_if_cancelled` is called before each part, and may raise to stop.
    """
    with Worker(limits) as worker:
        try:
            given: dict[str, Any] = worker.ask({"do": "parse", "text": text})
        except UserError as error:
            return Student("", (), str(error))
        assigned = [exercise for exercise in exercises if isinstance(given.get(exercise.id), dict)]
        return Student("", tuple(_grade_student(None, given, assigned, exercises, worker, raise_if_cancelled)))


def find_answers(answers: str | Path) -> list[tuple[str, Path]]:
    """Each student's name and file: for a file, a folder with answers.toml in it, or a folder of such folders."""
    path = Path(answers)
    if path.is_file():
        return [(path.parent.name if path.name == ANSWER_FILE and path.parent.name else path.stem, path)]
    if (path / ANSWER_FILE).is_file():
        return [(path.resolve().name, path / ANSWER_FILE)]
    folders = sorted(path.iterdir()) if path.is_dir() else []
    files = [(one.name, one / ANSWER_FILE) for one in folders if one.is_dir() and one.name[0] not in "._"]
    if not any(file.is_file() for _, file in files):
        raise UserError(f"answers must be a TOML file, or a folder with one folder per student and {ANSWER_FILE} in "
                        f"each: {answers} is neither; octavo exercises template writes an empty file")  # fmt: skip
    return files


def _read_answers(worker: Worker, file: Path, is_class: bool) -> tuple[dict[str, Any], str]:
    """A student's answers, or why they cannot be read; in a class a link could lead to another student's file."""
    if is_class and (file.is_symlink() or file.parent.is_symlink()):
        return {}, f"{ANSWER_FILE} or its folder is a link; hand in the file itself"
    if not file.is_file():
        return {}, f"there is no file {ANSWER_FILE} in the folder"
    try:
        given: dict[str, Any] = worker.ask({"do": "read", "file": str(file)})
        return given, ""
    except UserError as error:
        return {}, str(error)


def _grade_student(
    file: Path | None, given: dict[str, Any], assigned: Sequence[Exercise], exercises: Sequence[Exercise],
    worker: Worker, raise_if_cancelled: Callable[[], None] = lambda: None,
) -> list[GradedPart]:  # fmt: skip
    rows = []
    for exercise in assigned:
        table = given.get(exercise.id)
        answers = table if isinstance(table, dict) else {}
        for part in exercise.parts:
            raise_if_cancelled()
            rows.append(_grade_part(exercise, part, answers, file, worker))
        ids = [part.id for part in exercise.parts]
        known = [part + suffix for part in ids for suffix in ("", REASON, CONDITION)]
        rows += [_unknown_key(exercise.id, key, ids) for key in answers if key not in known]
    ids = [exercise.id for exercise in exercises]
    rows += [_unknown_key(key, "", ids) for key, value in given.items() if key not in ids and isinstance(value, dict)]
    return rows


def _grade_part(
    exercise: Exercise, part: Part, answers: dict[str, Any], file: Path | None, worker: Worker
) -> GradedPart:
    given, reason = answers.get(part.id, ""), str(answers.get(part.id + REASON, ""))
    shown = _shorten(str(given), MAX_ANSWER_CHARACTERS)
    if given == "":
        return _no_points(exercise, part, "missing")
    if file is None and isinstance(part.answer, Function):
        return GradedPart(exercise.id, part.id, "not run", NOT_RUN, 0.0, 0.0, shown, "")
    try:
        outcome, why, share = judge(part, given, file, worker, answers.get(part.id + CONDITION, ""))
    except UserError as error:
        outcome, why, share = "refused", _without_backticks(str(error)), 0.0
    why, reason = _shorten(why, MAX_WHY_CHARACTERS), _shorten(reason, MAX_REASON_CHARACTERS)
    return GradedPart(exercise.id, part.id, outcome, why, share * part.points, part.points, shown, reason)


class Judged(NamedTuple):
    """The outcome of an answer, why, and the share of the points."""

    outcome: Outcome
    why: str
    share: float


def judge(part: Part, given: Any, file: Path | None, worker: Worker, condition: Any = "") -> Judged:
    """The outcome of an answer; a UserError if it cannot be read or computed."""
    if isinstance(part.answer, Truth):
        return _judge_verdict(part, part.answer, given, condition, worker)
    if isinstance(part.answer, Function):
        assert file is not None
        given = call_function(_file_beside(file, given), part.answer.name, part.answer.cases, worker.limits)
    difference = compare_answers(part, part.answer.right, given, worker)
    if difference is None:
        return Judged("right", "", 1.0)
    for name, other in part.only_if.items():
        if compare_answers(part, other, given, worker) is None:
            return Judged("only if", f"right only if {name}; {difference}", CONDITIONAL_CREDIT)
    mistake = _name_mistake(part, given, worker)
    if isinstance(part.answer, Function) and (right := part.answer.count_right(given)) and not mistake:
        cases = len(part.answer.cases)
        return Judged("partly", f"{right} of {cases} cases are right: {difference}", right / cases)
    why = f". {part.why}" if isinstance(part.answer, Choice) else ""  # other kinds show where they differ
    return Judged("wrong", mistake + difference + why, 0.0)


def _name_mistake(part: Part, given: Any, worker: Worker) -> str:
    matching = (name for name, other in part.wrong.items() if compare_answers(part, other, given, worker) is None)
    return next((f"{name}: " for name in matching), "")


def _judge_verdict(part: Part, truth: Truth, given: Any, condition: Any, worker: Worker) -> Judged:
    """Half of the points of a nearly true statement are for the verdict, half for the condition."""
    verdict, named = truth.read(given)
    condition = condition if condition != "" else named
    verdict = "nearly" if condition != "" else verdict  # whoever names a condition does not mean it as stated
    if verdict == "true" or (verdict != truth.right and truth.right != "nearly"):
        if verdict == truth.right:
            return Judged("right", "", 1.0)
        return Judged("wrong", f"{_name_mistake(part, verdict, worker)}{truth.compare(verdict)}. {part.why}", 0.0)
    if truth.right != "nearly":
        return Judged("right", "", 1.0)
    explanation = f"it holds only if {truth.only_if}. {part.why}"
    if condition == "":
        return Judged("only if", f"the verdict is right, the condition is missing: {explanation}", CONDITIONAL_CREDIT)
    try:
        difference = compare_values(truth.condition, truth.condition.right, condition, worker)
    except UserError as error:
        problem = f"the verdict is right, the condition cannot be read: {_without_backticks(str(error))}"
        return Judged("only if", problem, CONDITIONAL_CREDIT)
    if difference is None:
        return Judged("right", "", 1.0)
    return Judged("only if", f"the verdict is right, the condition is not: {explanation}", CONDITIONAL_CREDIT)


def compare_answers(part: Part, right: Any, given: Any, worker: Worker) -> str | None:
    """How an answer differs from this one, None if it does not; formulas and numbers are computed by the worker."""
    answer = part.answer
    if isinstance(answer, Truth):
        return answer.compare(given, answer.verdict(right))
    if isinstance(answer, Function):
        difference = answer.compare(given, [right(*case) for case in answer.cases] if callable(right) else right)
        return difference and _without_backticks(difference)
    return compare_values(answer, right, given, worker)


def compare_values(answer: Choice | Number | Formula, right: Any, given: Any, worker: Worker) -> str | None:
    """How a choice, a number or a formula differs from this one."""
    if isinstance(answer, Choice):
        return answer.compare(given, right)
    if isinstance(answer, Formula):
        request: dict[str, Any] = {"do": "formula", "as": {"right": right, "symbols": dict(answer.symbols)}}
    else:
        value = right if isinstance(right, int | float | str) else str(right)  # a Fraction becomes a formula
        request = {"do": "number",
                   "as": {"right": value, "rel": answer.rel, "abs": answer.abs, "digits": answer.digits}}  # fmt: skip
    reply: str | None = worker.ask({**request, "given": given})
    return reply


def _without_backticks(text: str) -> str:
    """A student's text, in which backticks must not mark formulas as they do in ours."""
    return text.replace("`", "'")


def _file_beside(file: Path, name: Any) -> Path:
    """A Python file in the student's own folder; any other could be another student's."""
    if not isinstance(name, str) or not name.endswith(".py"):
        shown = _shorten(str(name), MAX_NAME_CHARACTERS)
        raise UserError(f'the answer must be the name of a Python file, such as "answers.py": it is {shown!r}')
    path = (file.parent / name).resolve()
    if path.parent != file.parent.resolve() or not path.is_file():
        raise UserError(f"the Python file must be beside {file.name}: {_shorten(name, MAX_NAME_CHARACTERS)!r} is not")
    return path


def _no_points(exercise: Exercise, part: Part, outcome: Outcome, why: str = "") -> GradedPart:
    return GradedPart(exercise.id, part.id, outcome, why, 0.0, part.points, "", "")


def _unknown_key(exercise: str, part: str, known: Sequence[str]) -> GradedPart:
    """An answer to a question that does not exist: shown, but it changes no points."""
    similar = difflib.get_close_matches(part or exercise, known, 1)
    why = f"there is no such {'part' if part else 'exercise'}" + (f"; did you mean {similar[0]}?" if similar else "")
    exercise, part = (_shorten(name, MAX_NAME_CHARACTERS) for name in (exercise, part))
    return GradedPart(exercise, part, "refused", why, 0.0, 0.0, "", "")


def _shorten(text: str, limit: int) -> str:
    clean = "".join(character if character.isprintable() else " " for character in text)
    return clean if len(clean) <= limit else clean[: limit - 3] + "..."


def as_csv(students: Sequence[Student]) -> str:
    """One line per part of each student."""
    rows = [(student.name, *row) for student in students for row in student.rows]
    return csv_text([("student", *GradedPart._fields), *rows])


def csv_text(rows: Iterable[Iterable[Any]]) -> str:
    """Rows as CSV; no cell is one that a spreadsheet would evaluate."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([_quote_formula(value) for value in row] for row in rows)
    return out.getvalue()


def _quote_formula(value: Any) -> Any:
    return "'" + value if isinstance(value, str) and value.startswith(FORMULA_STARTS) else value


def as_json(students: Sequence[Student]) -> list[dict[str, Any]]:
    """All results, student by student."""
    return [
        {"student": one.name, "points": one.points, "of": one.of, "problem": one.problem or None,
         "parts": [row._asdict() for row in one.rows]}
        for one in students
    ]  # fmt: skip


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
        if part.answer.condition is not None:
            lines += [*map(_comment, condition_hints(part.answer)), f'{part.id}{CONDITION} = ""']
        lines.append(f'{part.id}{REASON} = ""')
    return "\n".join(lines)


def answer_hints(answer: Answer) -> list[str]:
    """The format of an answer, and the options of a choice."""
    options = answer.options.items() if isinstance(answer, Choice) else ()
    return [f"({answer.template})", *(f"{name}: {meaning}" for name, meaning in options)]


def condition_hints(answer: Truth) -> list[str]:
    """The question for the condition of a statement, and its options."""
    if isinstance(answer.condition, Choice):
        return ["If it holds only under a condition, which one?", *answer_hints(answer.condition)]
    return [f"If it holds only under a condition: {answer.phrase}", *answer_hints(answer.condition)]


def _comment(text: str) -> str:
    words = " ".join(prose_as_text(text).split())
    return textwrap.fill(
        words, COMMENT_CHARACTERS, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False
    )  # fmt: skip
