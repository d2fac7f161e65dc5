"""octavo exercises grade: grade one student's answers, or a class."""

from __future__ import annotations

import os
from typing import Annotated

from tyro.conf import Positional, arg

from octavo.cli.output import note, print_json, print_table
from octavo.errors import UserError
from octavo.exercises.framework.functions import FunctionRunner
from octavo.exercises.framework.grading import Student, as_csv, as_json, conceal
from octavo.exercises.framework.isolation import CONTAINER_IMAGE, IsolationKind, choose_backend
from octavo.exercises.framework.limits import Limits
from octavo.exercises.framework.mathml import prose_as_text
from octavo.exercises.framework.registry import select_exercises
from octavo.exercises.framework.results import ResultFolder
from octavo.exercises.framework.submissions import find_answers
from octavo.exercises.framework.submissions import grade as grade_answers
from octavo.io.files import write_text
from octavo.io.progress import progress

Answers = Annotated[Positional[str], arg(metavar="ANSWERS")]


def grade(
    answers: Answers, only: tuple[str, ...] = (), seconds: float = 10.0, megabytes: int = 1024, csv: str | None = None,
    results: str | None = None, isolation: IsolationKind = "auto", image: str = CONTAINER_IMAGE, trust: bool = False,
    seed: int | None = None, reveal: bool = False, folder: str | None = None, json: bool = False,
) -> None:  # fmt: skip
    """Grade an answer file, or a folder with one folder per student and answers.toml in each.

    Students' Python files are run in isolation: without octavo, other students' files, the network, or anything to
    write to but an empty folder. Where the system offers no isolation, functions are refused.

    Example: octavo exercises grade answers.toml

    Args:
        answers: The answer file or the folder.
        only: The assigned exercises or topics; if none is named, those that anybody answered.
        seconds: Time limit for one answer.
        megabytes: Memory limit for one answer.
        csv: Also write a CSV file with one line per part of each student, whenever a student has been graded.
        results: A folder that stores the results of each student who has been graded; grading resumes from it.
        isolation: bubblewrap, namespaces, container (Docker or Podman), or user (for root in a container); auto takes
            bubblewrap or namespaces.
        image: The container's image, which has Python, numpy and torch, and not octavo.
        trust: Run students' files without isolation, with your permissions. Only for files that you trust.
        seed: Every student has numbers of their own, drawn from this seed and the student's name.
        reveal: Show the right answers and derivations too.
        folder: A folder with your own exercises.
        json: Print JSON.
    """
    if seconds <= 0 or megabytes < 256:
        raise UserError(f"limits must be above 0 s and at least 256 MB: seconds={seconds:g}, megabytes={megabytes}")
    assigned = [exercise.id for exercise in select_exercises(only, folder)] if only else []
    limits = Limits(seconds, megabytes << 20)
    secrets = [answers] if os.path.isdir(answers) else []
    runner = FunctionRunner(limits, lambda: choose_backend(isolation, trust, image, megabytes, secrets))
    if isolation != "auto":
        runner.start()  # what was asked for by name must work
    so_far: list[Student] = []
    with progress("grading", len(find_answers(answers)), "students") as advance:

        def finish(student: Student) -> None:
            so_far.append(student if reveal else conceal(student))
            if csv is not None and (os.path.isfile(csv) or not os.path.exists(csv)):  # not into a pipe, again and again
                write_text(csv, as_csv(so_far))
            advance(1)

        stored = ResultFolder(results) if results is not None else None
        students = grade_answers(answers, select_exercises((), folder), assigned, limits, finish, runner, stored, seed)
    students = students if reveal else list(map(conceal, students))
    if csv is not None:
        write_text(csv, as_csv(students))
    if json:
        print_json(as_json(students))
    elif len(students) == 1:
        _print_student(students[0])
    else:
        _print_class(students)
    if csv is not None:
        note(f"wrote {csv}")
    if runner.refusal:
        note(runner.refusal)
    if not only:
        note("points are for the exercises that anybody answered; --only names those that were assigned")
    if not reveal:
        note("right answers and derivations: --reveal")


def _print_student(student: Student) -> None:
    if student.problem:
        note(f"the answers of {student.name} cannot be read: {student.problem}")
    rows = [(f"{row.exercise}.{row.part}".rstrip("."), str(row.outcome), f"{row.points:g}", f"{row.of:g}",
             prose_as_text(row.explanation)) for row in student.rows]  # fmt: skip
    rows.append(("all", "", f"{student.points:g}", f"{student.of:g}", ""))
    print_table(("part", "result", "points", "of", "why"), rows, left=(0, 1, 4))


def _print_class(students: list[Student]) -> None:
    outcomes = ("right", "only if", "partly", "wrong", "refused", "missing")
    rows = [(one.name, f"{one.points:g}", f"{one.of:g}", *(str(one.count(outcome)) for outcome in outcomes),  # type: ignore[arg-type]
             one.problem) for one in students]  # fmt: skip
    print_table(("student", "points", "of", *outcomes, "problem"), rows, left=(0, 9))
