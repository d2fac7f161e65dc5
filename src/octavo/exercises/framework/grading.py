"""Answer files: an empty one to fill in, and grading one student's answers, part by part."""

from __future__ import annotations

import csv
import difflib
import io
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from octavo.errors import UserError
from octavo.exercises.framework.answers import Answer, Choice, Formula, Function, Number, Truth
from octavo.exercises.framework.exercise import CONDITIONAL_CREDIT, Exercise, Part
from octavo.exercises.framework.functions import FunctionRunner, grade_function
from octavo.exercises.framework.limits import Limits, Worker
from octavo.exercises.framework.mathml import wrap_prose

Outcome = Literal["right", "only if", "partly", "wrong", "refused", "missing", "not run"]
REASON = "-reason"  # suffix of the key under which a student explains a true or false
CONDITION = "-condition"  # suffix of the key under which a student names the condition of a nearly true statement
HEADER = """# Answers to octavo's exercises. Write your answers between the quotes; an empty answer counts as missing.
# Numbers: 0.25, 1/4, 25%, 65,536 or a formula such as "sqrt(2)/3"; three digits are enough unless a part asks for more.
# Formulas: "4*D^2", "4 D²" and '4\\cdot D^{2}' are read alike; any equivalent form is right.
# Statements have three verdicts. true: it holds as stated, without exception. false: it does not always hold.
# nearly: it does not always hold, but it does under a condition, which you name. Where a statement is nearly true,
# false is a right verdict too; half of the points are for the verdict, half for the condition.
# Functions: the name of a Python file beside this one; it may import Python's standard library, numpy and torch.
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
    solution: str = ""  # the right answer and its derivation, which only `--reveal` shows

    @property
    def explanation(self) -> str:
        """Why, and the solution."""
        return ": ".join(filter(None, (self.why, self.solution)))


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
        return Student("", tuple(grade_student(None, given, assigned, exercises, worker, None, raise_if_cancelled)))


def grade_student(
    file: Path | None, given: dict[str, Any], assigned: Sequence[Exercise], exercises: Sequence[Exercise],
    worker: Worker, runner: FunctionRunner | None = None, raise_if_cancelled: Callable[[], None] = lambda: None,
) -> list[GradedPart]:  # fmt: skip
    """Grade every part of the assigned exercises; without a file or a runner, functions are not run."""
    rows = []
    tables = {one.id: table if isinstance(table := given.get(one.id), dict) else {} for one in assigned}
    functions = {(one.id, part.id): (tables[one.id][part.id], part.answer) for one in assigned for part in one.parts
                 if isinstance(part.answer, Function) and tables[one.id].get(part.id, "") != ""}  # fmt: skip
    results = runner.run(file, functions) if file is not None and runner is not None and functions else {}
    for exercise in assigned:
        answers = tables[exercise.id]
        for part in exercise.parts:
            raise_if_cancelled()
            rows.append(_grade_part(exercise, part, answers, results.get((exercise.id, part.id)), worker))
        ids = [part.id for part in exercise.parts]
        known = [part + suffix for part in ids for suffix in ("", REASON, CONDITION)]
        rows += [_unknown_key(exercise.id, key, ids) for key in answers if key not in known]
    ids = [exercise.id for exercise in exercises]
    rows += [_unknown_key(key, "", ids) for key, value in given.items() if key not in ids and isinstance(value, dict)]
    return rows


def _grade_part(
    exercise: Exercise, part: Part, answers: dict[str, Any], results: Any, worker: Worker
) -> GradedPart:  # fmt: skip
    """Grade one part; `results` are those of a function, case by case, or a UserError that says why there are none."""
    given, reason = answers.get(part.id, ""), str(answers.get(part.id + REASON, ""))
    shown = shorten(str(given), MAX_ANSWER_CHARACTERS)
    if given == "":
        return refuse_part(exercise, part, "missing")
    if results is None and isinstance(part.answer, Function):
        return GradedPart(exercise.id, part.id, "not run", NOT_RUN, 0.0, 0.0, shown, "")
    try:
        condition = answers.get(part.id + CONDITION, "")
        outcome, why, share, solution = judge(part, given if results is None else results, worker, condition)
    except UserError as error:
        outcome, why, share, solution = "refused", _without_backticks(str(error)), 0.0, ""
    why, solution = shorten(why, MAX_WHY_CHARACTERS), shorten(solution, MAX_WHY_CHARACTERS)
    reason = shorten(reason, MAX_REASON_CHARACTERS)
    return GradedPart(exercise.id, part.id, outcome, why, share * part.points, part.points, shown, reason, solution)


class Judged(NamedTuple):
    """The outcome of an answer, why, the share of the points, and what would give the right answer away."""

    outcome: Outcome
    why: str
    share: float
    solution: str = ""


def judge(part: Part, given: Any, worker: Worker, condition: Any = "") -> Judged:
    """The outcome of an answer, or of a function's results; a UserError if it cannot be read or computed."""
    if isinstance(part.answer, Truth):
        return _judge_verdict(part, part.answer, given, condition, worker)
    if isinstance(part.answer, Function):
        return _judge_function(part, given)
    difference = compare_answers(part, part.answer.right, given, worker)
    if difference is None:
        return Judged("right", "", 1.0)
    for name, other in part.only_if.items():
        if compare_answers(part, other, given, worker) is None:
            return Judged("only if", f"right only if {name}", CONDITIONAL_CREDIT, difference)
    mistake = _name_mistake(part, given, worker)
    why = f". {part.why}" if isinstance(part.answer, Choice) else ""  # other kinds show where they differ
    return Judged("wrong", mistake, 0.0, difference + why)


def _name_mistake(part: Part, given: Any, worker: Worker) -> str:
    matching = (name for name, other in part.wrong.items() if compare_answers(part, other, given, worker) is None)
    return next(matching, "")


def _judge_function(part: Part, results: Any) -> Judged:
    """A function earns the share of its cases that are right."""
    if isinstance(results, UserError):
        raise results
    share, condition, why, first = grade_function(part, results)
    solution = _without_backticks(first)
    if condition:
        return Judged("only if", f"right only if {condition}", max(share, CONDITIONAL_CREDIT), solution)
    return Judged("right" if share == 1 else "partly" if share else "wrong", why, share, solution)


def _judge_verdict(part: Part, truth: Truth, given: Any, condition: Any, worker: Worker) -> Judged:
    """Half of the points of a nearly true statement are for the verdict, half for the condition."""
    verdict, named = truth.read(given)
    condition = condition if condition != "" else named
    verdict = "nearly" if condition != "" else verdict  # whoever names a condition does not mean it as stated
    if verdict == "true" or (verdict != truth.right and truth.right != "nearly"):
        if verdict == truth.right:
            return Judged("right", "", 1.0)
        return Judged("wrong", _name_mistake(part, verdict, worker), 0.0, f"{truth.compare(verdict)}. {part.why}")
    if truth.right != "nearly":
        return Judged("right", "", 1.0)
    explanation = f"it holds only if {truth.only_if}. {part.why}"
    if condition == "":
        return Judged("only if", "the verdict is right, the condition is missing", CONDITIONAL_CREDIT, explanation)
    try:
        difference = compare_values(truth.condition, truth.condition.right, truth.read_condition(condition), worker)
    except UserError as error:
        problem = f"the verdict is right, the condition cannot be read: {_without_backticks(str(error))}"
        return Judged("only if", problem, CONDITIONAL_CREDIT)
    if difference is None:
        return Judged("right", "", 1.0)
    return Judged("only if", "the verdict is right, the condition is not", CONDITIONAL_CREDIT, explanation)


def compare_answers(part: Part, right: Any, given: Any, worker: Worker) -> str | None:
    """How an answer differs from this one, None if it does not; formulas and numbers are computed by the worker."""
    answer = part.answer
    if isinstance(answer, Truth):
        return answer.compare(given, answer.verdict(right))
    assert not isinstance(answer, Function)
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


def refuse_part(exercise: Exercise, part: Part, outcome: Outcome, why: str = "") -> GradedPart:
    """A part without points, because its answer is missing or cannot be read."""
    return GradedPart(exercise.id, part.id, outcome, why, 0.0, part.points, "", "")


def _unknown_key(exercise: str, part: str, known: Sequence[str]) -> GradedPart:
    """An answer to a question that does not exist: shown, but it changes no points."""
    similar = difflib.get_close_matches(part or exercise, known, 1)
    why = f"there is no such {'part' if part else 'exercise'}" + (f"; did you mean {similar[0]}?" if similar else "")
    exercise, part = (shorten(name, MAX_NAME_CHARACTERS) for name in (exercise, part))
    return GradedPart(exercise, part, "refused", why, 0.0, 0.0, "", "")


def shorten(text: str, limit: int) -> str:
    """Printable text with at most so many characters."""
    clean = "".join(character if character.isprintable() else " " for character in text)
    return clean if len(clean) <= limit else clean[: limit - 3] + "..."


def conceal(student: Student) -> Student:
    """The results without the solutions."""
    return student._replace(rows=tuple(row._replace(solution="") for row in student.rows))


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
        heading = [_comment(exercise.title), _comment(exercise.question)]
        blocks.append("\n".join([f"[{exercise.id}]", *heading, *map(_part_lines, exercise.parts)]) + "\n")
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
    return wrap_prose(text, COMMENT_CHARACTERS, "# ")
