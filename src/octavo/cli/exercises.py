"""octavo exercises: the classic questions, with answers that are checked, and students' answers graded."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from typing import Annotated, Any

from tyro.conf import Positional, arg

from octavo.cli.flags import run_command
from octavo.cli.output import note, print_json, print_table
from octavo.errors import UserError
from octavo.exercises.framework.answers import Choice, Formula, Function, Number, Truth
from octavo.exercises.framework.booklet import book as book_page
from octavo.exercises.framework.checking import CheckedExercise, check_exercises
from octavo.exercises.framework.exercise import Exercise, Part
from octavo.exercises.framework.grading import Student, as_csv, as_json, find_answers
from octavo.exercises.framework.grading import grade as grade_answers
from octavo.exercises.framework.limits import Limits
from octavo.exercises.framework.mathml import as_text, prose_as_text
from octavo.exercises.framework.registry import exercises_by_topic, select_exercises
from octavo.exercises.framework.template import answer_hints, answer_template
from octavo.io.files import whole_file
from octavo.io.progress import progress

Name = Annotated[Positional[str], arg(metavar="ID")]
Names = Annotated[Positional[tuple[str, ...]], arg(metavar="ID...")]
Answers = Annotated[Positional[str], arg(metavar="ANSWERS")]
WIDTH = 100
VERDICTS = {"true": "true", "false": "false", "nearly": "nearly true"}

USAGE = """usage: octavo exercises list                 the exercises, by topic
       octavo exercises show ID              the question; --answer shows the answer and its derivation
       octavo exercises check [ID...]        compute the evidence for every claim
       octavo exercises template [ID...]     write an empty file of answers
       octavo exercises grade ANSWERS        grade a file, or a folder with a folder for each student
       octavo exercises book [ID...]         all of it as one HTML page

An ID is an exercise or a topic. Each takes --folder FOLDER, where your own exercises are (Python files, which are run:
name only a folder whose code you wrote); list, show, check and grade take --json. --help after any of them shows more.

example: octavo exercises check softmax-range
"""


def run_exercises(argv: list[str]) -> None:
    """Dispatch the actions."""
    if not argv or argv[0] in ("-h", "--help"):
        print(USAGE, end="")
        return
    if argv[0] not in ACTIONS:
        raise UserError(f"exercises has no action {argv[0]!r}; it has {', '.join(ACTIONS)}")
    run_command(ACTIONS[argv[0]], f"octavo exercises {argv[0]}", argv[1:])


def list_(folder: str | None = None, json: bool = False) -> None:
    """The exercises, by topic.

    Example: octavo exercises list

    Args:
        folder: Where your own exercises are.
        json: Print JSON.
    """
    topics = exercises_by_topic(folder)
    if json:
        print_json([{"id": one.id, "topic": topic, "title": one.title, "parts": [part.id for part in one.parts]}
                    for topic, some in topics.items() for one in some])  # fmt: skip
        return
    rows = [(one.id, one.title, str(len(one.parts)), topic) for topic, some in topics.items() for one in some]
    print_table(("id", "title", "claims", "topic"), rows, left=(0, 1, 3))
    claims = sum(int(row[2]) for row in rows)
    note(f"{len(rows)} exercises with {claims} claims; next: octavo exercises show ID")


def show(name: Name, answer: bool = False, folder: str | None = None, json: bool = False) -> None:
    """A question; with --answer also the answer, its derivation and the usual mistakes.

    Example: octavo exercises show softmax-range --answer

    Args:
        name: The exercise.
        answer: Show the answer too.
        folder: Where your own exercises are.
        json: Print JSON.
    """
    found = select_exercises([name], folder)
    if json:
        print_json([_told(one, answer) for one in found])
        return
    for one in found:
        print(f"{one.title}\n")
        _say(one.question)
        for number, part in enumerate(one.parts, 1):
            print(f"\n{number}. [{part.id}]")
            _say(part.ask, "   ")
            for hint in answer_hints(part.answer):
                _say(hint, "   ")
            if answer:
                _show_answer(part)
        if answer:
            print("\nIn short")
            _say(one.answer, "   ")
        print()
    note(f"the evidence: octavo exercises check {name}" if answer else f"octavo exercises show {name} --answer")


def _show_answer(part: Part) -> None:
    print(f"   -> {_written(part, part.answer.right)}")
    _say(part.why, "      ")
    for mistake, given in part.wrong.items():
        given = "" if isinstance(part.answer, Function) else f" {_written(part, given)}"
        _say(f"not{given}: {mistake}", "      ")
    for condition, given in part.only_if.items():
        _say(f"{_written(part, given)} is right only if {condition}", "      ")


def _written(part: Part, given: Any) -> str:
    """An answer as readable text."""
    kind = part.answer
    if isinstance(kind, Truth):
        verdict = kind.verdict(given)
        return VERDICTS[verdict] + (f": only if {prose_as_text(kind.only_if)}" if verdict == "nearly" else "")
    if isinstance(kind, Choice):
        return f"{given}: {prose_as_text(kind.options[given])}"
    if isinstance(kind, Function):
        return kind.signature if given is kind.right else "another function"
    if isinstance(kind, Formula) or isinstance(given, str):
        return as_text(str(given))
    assert isinstance(kind, Number)
    return f"{given:,}" if isinstance(given, int) else str(given)


def _say(text: str, indent: str = "") -> None:
    wide = min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns)
    for i, block in enumerate(text.strip().split("\n\n")):
        if i:
            print()
        print(textwrap.fill(" ".join(prose_as_text(block).split()), wide, initial_indent=indent,
                            subsequent_indent=indent, break_on_hyphens=False))  # fmt: skip


def _told(one: Exercise, answer: bool) -> dict[str, Any]:
    parts = []
    for part in one.parts:
        told: dict[str, Any] = {
            "id": part.id,
            "ask": part.ask,
            "answer_as": part.answer.template,
            "points": part.points,
        }
        if answer:
            told |= {"answer": _written(part, part.answer.right), "why": part.why, "evidence": part.kind,
                     "wrong": {name: _written(part, one) for name, one in part.wrong_answers().items()}}  # fmt: skip
        parts.append(told)
    return {"id": one.id, "title": one.title, "question": one.question, "parts": parts,
            **({"answer": one.answer} if answer else {})}  # fmt: skip


def check(names: Names = (), full: bool = False, folder: str | None = None, json: bool = False) -> None:
    """Compute the evidence for every claim; exit code 1 where one is not confirmed.

    Example: octavo exercises check softmax-range

    Args:
        names: Exercises or topics; all of them where none is named.
        full: Train and draw as much as the real setting takes, not the small one.
        folder: Where your own exercises are.
        json: Print JSON.
    """
    picked = select_exercises(names, folder)
    with progress("checking", len(picked), "exercises") as advance:
        checked = check_exercises(picked, folder, full, advance)
    if json:
        print_json([_as_json(one) for one in checked])
    else:
        _print_checked(checked)
    if not all(one.holds for one in checked):
        sys.exit(1)


def _print_checked(checked: list[CheckedExercise]) -> None:
    rows = []
    for one in checked:
        for name, kind, evidence in one.parts:
            said = "holds" if evidence.holds else "FAILS"
            rows.append((f"{one.id}.{name}", said, kind, f"{evidence.seconds:.2f} s", evidence.tolerance,
                         prose_as_text(evidence.note)))  # fmt: skip
        if one.problem:
            rows.append((one.id, "FAILS", "", "", "", one.problem))
    print_table(("claim", "", "evidence", "time", "tolerance", "what was found"), rows, left=(0, 1, 2, 4, 5))
    held = sum(row[1] == "holds" for row in rows)
    note(f"{held} of {len(rows)} claims hold; {sum(one.seconds for one in checked):.1f} s of computing")


def _as_json(one: CheckedExercise) -> dict[str, Any]:
    parts = [{"id": name, "evidence": kind, **evidence._asdict()} for name, kind, evidence in one.parts]
    return {"id": one.id, "holds": one.holds, "seconds": one.seconds, "problem": one.problem or None, "parts": parts}


def template(names: Names = (), out: str = "answers.toml", folder: str | None = None) -> None:
    """Write an empty file of answers.

    Example: octavo exercises template softmax-range --out answers.toml

    Args:
        names: Exercises or topics; all of them where none is named.
        out: The file; - for standard output.
        folder: Where your own exercises are.
    """
    text = answer_template(select_exercises(names, folder))
    if out == "-":
        print(text, end="")
        return
    if os.path.exists(out):
        raise UserError(f"{out} is there already, perhaps with answers in it; choose another --out")
    with whole_file(out) as file:
        file.write(text.encode())
    note(f"the empty answers are in {out}; fill them in, then: octavo exercises grade {out}")


def grade(
    answers: Answers, only: tuple[str, ...] = (), seconds: float = 10.0, megabytes: int = 1024, csv: str | None = None,
    folder: str | None = None, json: bool = False,
) -> None:  # fmt: skip
    """Grade a file of answers, or a folder with a folder for each student and answers.toml in it.

    Students' Python files are run as you, with limits on time and memory and no writing of files; run those of
    strangers in a container.

    Example: octavo exercises grade answers.toml

    Args:
        answers: The file or the folder.
        only: The exercises that were set; those that anybody has answered where none is named.
        seconds: What one answer may take.
        megabytes: The memory that one answer may take.
        csv: Also write a table with a line for each part of each student.
        folder: Where your own exercises are.
        json: Print JSON.
    """
    if seconds <= 0 or megabytes < 256:
        raise UserError(f"limits must be above 0 s and at least 256 MB: seconds={seconds:g}, megabytes={megabytes}")
    picked = [one.id for one in select_exercises(only, folder)] if only else []
    with progress("grading", len(find_answers(answers)), "students") as advance:
        students = grade_answers(
            answers, select_exercises((), folder), picked, Limits(seconds, megabytes << 20), advance
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
        note(f"the table of all parts is in {csv}")
    if not only:
        note("what counts are the exercises that anybody answered; --only says which were set")
    note("the answers with their derivations: octavo exercises show ID --answer")


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
        names: Exercises or topics; all of them where none is named.
        out: The page.
        quick: Leave the evidence out, which has to be computed.
        folder: Where your own exercises are.
    """
    picked = {one.id for one in select_exercises(names, folder)}
    topics = {
        topic: some
        for topic, every in exercises_by_topic(folder).items()
        if (some := [e for e in every if e.id in picked])
    }
    flat = [one for some in topics.values() for one in some]
    checked: list[CheckedExercise] = []
    if not quick:
        with progress("checking", len(flat), "exercises") as advance:
            checked = check_exercises(flat, folder, False, advance, draw=True)
    command = " ".join(["octavo exercises book", *names, f"--out {out}", *["--quick"] * quick])
    with whole_file(out) as file:
        file.write(book_page(topics, {one.id: one for one in checked}, command).encode("utf-8", "backslashreplace"))
    note(f"the booklet is {out}")


ACTIONS: dict[str, Any] = {
    "list": list_, "show": show, "check": check, "template": template, "grade": grade, "book": book,
}  # fmt: skip
