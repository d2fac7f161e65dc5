"""octavo exercises: list, show and check the exercises, grade students' answers, write the booklet."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from typing import Annotated, Any

from tyro.conf import Positional, arg

from octavo.cli.output import note, print_json, print_table
from octavo.errors import UserError
from octavo.exercises import Choice, Exercise, Formula, Function, Part, Truth
from octavo.exercises.framework.booklet import book as book_page
from octavo.exercises.framework.checking import CheckedExercise, check_exercises
from octavo.exercises.framework.grading import Student, answer_hints, answer_template, as_csv, as_json, find_answers
from octavo.exercises.framework.grading import grade as grade_answers
from octavo.exercises.framework.limits import Limits
from octavo.exercises.framework.mathml import as_text, prose_as_text
from octavo.exercises.framework.registry import exercises_by_topic, select_exercises
from octavo.io.files import whole_file
from octavo.io.progress import progress

Name = Annotated[Positional[str], arg(metavar="ID")]
Names = Annotated[Positional[tuple[str, ...]], arg(metavar="ID...")]
Answers = Annotated[Positional[str], arg(metavar="ANSWERS")]
MAX_WIDTH = 100  # characters of a line of prose
VERDICTS = {"true": "true", "false": "false", "nearly": "nearly true"}

USAGE = """usage: octavo exercises list                 list the exercises by topic
       octavo exercises show ID              show the question; --answer adds the answer and its derivation
       octavo exercises check [ID...]        compute the evidence for every claim; exit code 1 if one fails
       octavo exercises template [ID...]     write an empty answer file
       octavo exercises grade ANSWERS        grade an answer file, or a folder with one folder per student
       octavo exercises book [ID...]         write all exercises as one HTML page

ID is an exercise (softmax-range) or a topic ("Recurrent networks"). Every action takes --folder FOLDER with your own
exercises: Python files, which are executed, so name only a folder whose code you trust. list, show, check and grade
take --json. --help after an action shows all its options.

example: octavo exercises check softmax-range
"""


def list_(folder: str | None = None, json: bool = False) -> None:
    """List the exercises by topic.

    Example: octavo exercises list

    Args:
        folder: A folder with your own exercises.
        json: Print JSON.
    """
    topics = exercises_by_topic(folder)
    listed = [(topic, exercise) for topic, exercises in topics.items() for exercise in exercises]
    if json:
        print_json([{"id": one.id, "topic": topic, "title": one.title, "parts": [part.id for part in one.parts]}
                    for topic, one in listed])  # fmt: skip
        return
    rows = [(one.id, one.title, str(len(one.parts)), topic) for topic, one in listed]
    print_table(("id", "title", "claims", "topic"), rows, left=(0, 1, 3))
    claims = sum(int(row[2]) for row in rows)
    note(f"{len(rows)} exercises with {claims} claims; next: octavo exercises show ID")


def show(name: Name, answer: bool = False, folder: str | None = None, json: bool = False) -> None:
    """Show a question; with --answer also the answer, its derivation and common mistakes.

    Example: octavo exercises show softmax-range --answer

    Args:
        name: The exercise, or a topic for all its exercises.
        answer: Show the answers too.
        folder: A folder with your own exercises.
        json: Print JSON.
    """
    exercises = select_exercises([name], folder)
    if json:
        print_json([_exercise_json(exercise, answer) for exercise in exercises])
        return
    for exercise in exercises:
        print(f"{exercise.title}\n")
        _print_prose(exercise.question)
        for number, part in enumerate(exercise.parts, 1):
            print(f"\n{number}. [{part.id}]")
            _print_prose(f"True or false? {part.ask}" if isinstance(part.answer, Truth) else part.ask, "   ")
            for hint in answer_hints(part.answer):
                _print_prose(hint, "   ")
            if answer:
                _print_answer(part)
        if answer:
            print("\nSummary")
            _print_prose(exercise.answer, "   ")
        print()
    note(f"to compute the evidence: octavo exercises check {name}" if answer
         else f"to see the answer: octavo exercises show {name} --answer")  # fmt: skip


def _print_answer(part: Part) -> None:
    _print_prose(f"Answer: {_format_answer(part, part.answer.right)}", "   ")
    _print_prose(part.why, "      ")
    for mistake, given in part.wrong.items():
        shown = "" if isinstance(part.answer, Function) else f"{_format_answer(part, given)}: "
        _print_prose(f"common mistake: {shown}{mistake}", "      ")
    for condition, given in part.only_if.items():
        _print_prose(f"{_format_answer(part, given)} is right only if {condition}", "      ")


def _format_answer(part: Part, given: Any) -> str:
    """An answer as readable text."""
    answer = part.answer
    if isinstance(answer, Truth):
        verdict = answer.verdict(given)
        return VERDICTS[verdict] + (f": only if {prose_as_text(answer.only_if)}" if verdict == "nearly" else "")
    if isinstance(answer, Choice):
        return f"{given}: {prose_as_text(answer.options[given])}"
    if isinstance(answer, Function):
        return answer.signature if given is answer.right else "another function"
    if isinstance(answer, Formula) or isinstance(given, str):
        return as_text(str(given))
    return f"{given:,}" if isinstance(given, int) else str(given)


def _print_prose(text: str, indent: str = "") -> None:
    width = min(MAX_WIDTH, shutil.get_terminal_size((MAX_WIDTH, 24)).columns)
    for i, block in enumerate(text.strip().split("\n\n")):
        if i:
            print()
        print(textwrap.fill(" ".join(prose_as_text(block).split()), width, initial_indent=indent,
                            subsequent_indent=indent, break_on_hyphens=False))  # fmt: skip


def _exercise_json(exercise: Exercise, answer: bool) -> dict[str, Any]:
    parts = []
    for part in exercise.parts:
        record = {"id": part.id, "ask": part.ask, "answer_as": part.answer.template, "points": part.points}
        if answer:
            wrong = {name: _format_answer(part, given) for name, given in part.wrong_answers().items()}
            right = _format_answer(part, part.answer.right)
            record |= {"answer": right, "why": part.why, "evidence": part.kind, "wrong": wrong}
        parts.append(record)
    return {"id": exercise.id, "title": exercise.title, "question": exercise.question, "parts": parts,
            **({"answer": exercise.answer} if answer else {})}  # fmt: skip


def check(names: Names = (), full: bool = False, folder: str | None = None, json: bool = False) -> None:
    """Compute the evidence for every claim; exit code 1 if one is not confirmed.

    Example: octavo exercises check softmax-range

    Args:
        names: Exercises or topics; all exercises if none is named.
        full: Use the full settings of exercises that train or sample, which takes minutes.
        folder: A folder with your own exercises.
        json: Print JSON.
    """
    selected = select_exercises(names, folder)
    with progress("checking", len(selected), "exercises") as advance:
        checked = check_exercises(selected, folder, full, advance)
    if json:
        print_json([_check_json(one) for one in checked])
    else:
        _print_checked(checked)
    if not all(one.holds for one in checked):
        sys.exit(1)


def _print_checked(checked: list[CheckedExercise]) -> None:
    rows = []
    for one in checked:
        for name, kind, evidence in one.parts:
            outcome = "holds" if evidence.holds else "FAILS"
            rows.append((f"{one.id}.{name}", outcome, kind, f"{evidence.seconds:.2f} s", evidence.tolerance,
                         prose_as_text(evidence.note)))  # fmt: skip
        if one.problem:
            rows.append((one.id, "FAILS", "", "", "", one.problem))
    print_table(("claim", "result", "evidence", "time", "tolerance", "what was computed"), rows, left=(0, 1, 2, 4, 5))
    confirmed = sum(row[1] == "holds" for row in rows)
    note(f"{confirmed} of {len(rows)} claims hold; {sum(one.seconds for one in checked):.1f} s of computing")


def _check_json(one: CheckedExercise) -> dict[str, Any]:
    parts = [{"id": name, "evidence": kind, **evidence._asdict()} for name, kind, evidence in one.parts]
    return {"id": one.id, "holds": one.holds, "seconds": one.seconds, "problem": one.problem or None, "parts": parts}


def template(names: Names = (), out: str = "answers.toml", folder: str | None = None) -> None:
    """Write an empty answer file: the questions as comments, and a line for every answer.

    Example: octavo exercises template softmax-range --out answers.toml

    Args:
        names: Exercises or topics; all exercises if none is named.
        out: The file to write; - for standard output.
        folder: A folder with your own exercises.
    """
    text = answer_template(select_exercises(names, folder))
    if out == "-":
        print(text, end="")
        return
    if os.path.exists(out):
        raise UserError(f"{out} exists and may contain answers; choose another --out")
    with whole_file(out) as file:
        file.write(text.encode())
    note(f"wrote {out}; fill in the answers, then: octavo exercises grade {out}")


def grade(
    answers: Answers, only: tuple[str, ...] = (), seconds: float = 10.0, megabytes: int = 1024, csv: str | None = None,
    folder: str | None = None, json: bool = False,
) -> None:  # fmt: skip
    """Grade an answer file, or a folder with one folder per student and answers.toml in each.

    Students' Python files are run with your permissions, with limits on time and memory and without writing files;
    run files that you do not trust in a container.

    Example: octavo exercises grade answers.toml

    Args:
        answers: The answer file or the folder.
        only: The assigned exercises or topics; if none is named, those that anybody answered.
        seconds: Time limit for one answer.
        megabytes: Memory limit for one answer.
        csv: Also write a CSV file with one line per part of each student.
        folder: A folder with your own exercises.
        json: Print JSON.
    """
    if seconds <= 0 or megabytes < 256:
        raise UserError(f"limits must be above 0 s and at least 256 MB: seconds={seconds:g}, megabytes={megabytes}")
    assigned = [exercise.id for exercise in select_exercises(only, folder)] if only else []
    with progress("grading", len(find_answers(answers)), "students") as advance:
        students = grade_answers(
            answers, select_exercises((), folder), assigned, Limits(seconds, megabytes << 20), advance
        )
    if csv is not None:
        with whole_file(csv) as file:
            file.write(as_csv(students).encode())
    if json:
        print_json(as_json(students))
    elif len(students) == 1:
        _print_student(students[0])
    else:
        _print_class(students)
    if csv is not None:
        note(f"wrote {csv}")
    if not only:
        note("points are for the exercises that anybody answered; --only names those that were assigned")
    note("to see an answer and its derivation: octavo exercises show ID --answer")


def _print_student(student: Student) -> None:
    if student.problem:
        note(f"the answers of {student.name} cannot be read: {student.problem}")
    rows = [(f"{row.exercise}.{row.part}".rstrip("."), str(row.outcome), f"{row.points:g}", f"{row.of:g}",
             prose_as_text(row.why)) for row in student.rows]  # fmt: skip
    rows.append(("all", "", f"{student.points:g}", f"{student.of:g}", ""))
    print_table(("part", "result", "points", "of", "why"), rows, left=(0, 1, 4))


def _print_class(students: list[Student]) -> None:
    outcomes = ("right", "only if", "wrong", "refused", "missing")
    rows = [(one.name, f"{one.points:g}", f"{one.of:g}", *(str(one.count(outcome)) for outcome in outcomes),  # type: ignore[arg-type]
             one.problem) for one in students]  # fmt: skip
    print_table(("student", "points", "of", *outcomes, "problem"), rows, left=(0, 8))


def book(names: Names = (), out: str = "exercises.html", quick: bool = False, folder: str | None = None) -> None:
    """Write all exercises, answers, figures and evidence as one HTML page that needs no network.

    Example: octavo exercises book --out exercises.html

    Args:
        names: Exercises or topics; all exercises if none is named.
        out: The page to write.
        quick: Leave out the evidence, which takes time to compute.
        folder: A folder with your own exercises.
    """
    selected = {exercise.id: exercise for exercise in select_exercises(names, folder)}
    topics = {topic: [one for one in exercises if one.id in selected]
              for topic, exercises in exercises_by_topic(folder).items()}  # fmt: skip
    topics = {topic: exercises for topic, exercises in topics.items() if exercises}
    checked: list[CheckedExercise] = []
    if not quick:
        with progress("checking", len(selected), "exercises") as advance:
            checked = check_exercises(list(selected.values()), folder, False, advance, draw=True)
    command = " ".join(["octavo exercises book", *names, f"--out {out}", *["--quick"] * quick])
    with whole_file(out) as file:
        file.write(book_page(topics, {one.id: one for one in checked}, command).encode("utf-8", "backslashreplace"))
    note(f"wrote {out}")


ACTIONS: dict[str, Any] = {
    "list": list_, "show": show, "check": check, "template": template, "grade": grade, "book": book,
}  # fmt: skip
