"""octavo exercises: list, show and check the exercises, grade students' answers, write the booklet."""

from __future__ import annotations

import shlex
import shutil
import sys
import textwrap
from dataclasses import asdict
from typing import Annotated, Any

from markupsafe import Markup
from tyro.conf import Positional, arg

from octavo.cli.course import COURSE_ACTIONS, variants_of
from octavo.cli.exercises_grade import grade
from octavo.cli.flags import NewPath
from octavo.cli.output import note, print_json, print_table
from octavo.errors import UserError
from octavo.exercises import Choice, Exercise, Formula, Function, Part, Truth
from octavo.exercises.framework.booklet import book as book_page
from octavo.exercises.framework.checking import CheckedExercise, check_exercises
from octavo.exercises.framework.grading import answer_hints, answer_template, condition_hints
from octavo.exercises.framework.mathml import as_text, prose_as_text, wrap_prose
from octavo.exercises.framework.program_text import program_text
from octavo.exercises.framework.registry import exercises_by_topic, select_exercises
from octavo.exercises.framework.verdicts import VERDICT_MEANINGS
from octavo.exercises.question_sets import QuestionSet, find_question_set, tags_of, usual_answers
from octavo.io.files import whole_file, write_text
from octavo.io.progress import progress
from octavo.pages.sections import render_page, section

Name = Annotated[Positional[str], arg(metavar="ID")]
Names = Annotated[Positional[tuple[str, ...]], arg(metavar="[ID...]")]
MAX_WIDTH = 100  # characters of a line of prose
VERDICTS = {"true": "true", "false": "false", "nearly": "nearly true"}

USAGE = """usage: octavo exercises list                 list the exercises by topic; --source by question of a textbook
       octavo exercises show ID              show the question; --answer adds the answer and its derivation
       octavo exercises check [ID...]        compute the evidence for every claim; exit code 1 if one fails
       octavo exercises template [ID...]     write an empty answer file
       octavo exercises grade ANSWERS        grade an answer file, or a folder with one folder per student
       octavo exercises book [ID...]         write all exercises as one HTML page
       octavo exercises figure ID            write the figure of an exercise as an HTML page

for courses (docs/course.md):
       octavo exercises sheet [ID...]        write the questions without answers, as a page or a PDF
       octavo exercises notebook [ID...]     write Jupyter notebooks, also for Otter-Grader and nbgrader
       octavo exercises gradescope --only ID...   write an autograder for Gradescope
       octavo exercises moodle [ID...]       write a question bank for Moodle
       octavo exercises canvas [ID...]       write a quiz for Canvas
       octavo exercises gradebook COURSE SUBMISSIONS   grade the assignments of a course
       octavo exercises leaderboard RUNS --text FILE   rank submitted models on a hidden text

ID is an exercise (softmax-range), a topic ("Recurrent networks"), a source (bishop) or a question of one
("bishop 12.6"). Every action takes --folder FOLDER with your own exercises: Python files, which are executed, so name
only a folder whose code you trust. list, show, check and grade take --json. --help after an action shows its options.

example: octavo exercises check softmax-range
"""


def list_(source: str | None = None, folder: str | None = None, json: bool = False) -> None:
    """List the exercises by topic, or the questions of a textbook or course with the exercises that answer them.

    Example: octavo exercises list --source bishop

    Args:
        source: bishop, prince, cs224n, language-models or laboratory: list its questions by number.
        folder: A folder with your own exercises.
        json: Print JSON.
    """
    if source is not None:
        _list_questions(find_question_set(source), json)
        return
    topics = exercises_by_topic(folder)
    listed = [(topic, exercise) for topic, exercises in topics.items() for exercise in exercises]
    if json:
        print_json([{"id": one.id, "topic": topic, "title": one.title, "parts": [part.id for part in one.parts],
                     "sources": tags_of(one.id)} for topic, one in listed])  # fmt: skip
        return
    rows = [(one.id, one.title, str(len(one.parts)), topic) for topic, one in listed]
    print_table(("id", "title", "claims", "topic"), rows, left=(0, 1, 3))
    claims = sum(int(row[2]) for row in rows)
    note(f"{len(rows)} exercises with {claims} claims; next: octavo exercises show ID")


def _list_questions(chosen: QuestionSet, json: bool) -> None:
    if json:
        print_json([
            {"source": chosen.id, "number": one.number, "asks": one.asks, "parts": one.all_parts,
             "usual_answer": one.usual and asdict(one.usual)}
            for one in chosen.questions
        ])  # fmt: skip
        return
    rows = [(one.number if i == 0 else "", part, "differs" if one.usual and i == 0 else "",
             prose_as_text(one.asks) if i == 0 else "")
            for one in chosen.questions for i, part in enumerate(one.all_parts)]  # fmt: skip
    print_table(("number", "exercise.part", "usual answer", "question"), rows, left=(0, 1, 2, 3))
    differing = sum(one.usual is not None for one in chosen.questions)
    note(f"{chosen.title}: {len(chosen.questions)} questions; {differing} usual answers differ from the right one, and "
         "show EXERCISE --answer says how; next: octavo exercises show EXERCISE")  # fmt: skip


def show(name: Name, answer: bool = False, folder: str | None = None, json: bool = False) -> None:
    """Show a question; with --answer also the answer, its derivation and common mistakes.

    Example: octavo exercises show softmax-range --answer

    Args:
        name: The exercise; a topic or a source stands for all its exercises.
        answer: Show the answers too.
        folder: A folder with your own exercises.
        json: Print JSON.
    """
    exercises = select_exercises([name], folder)
    if json:
        print_json([_exercise_json(exercise, answer) for exercise in exercises])
        return
    for exercise in exercises:
        print(f"{exercise.title}\n{'─' * len(exercise.title)}")
        _print_prose(exercise.question)
        if tags := tags_of(exercise.id):
            print()
            _print_prose(f"Sources: {', '.join(tags)}")
        for number, part in enumerate(exercise.parts, 1):
            print(f"\n{number}. [{part.id}]")
            _print_prose(f"True or false? {part.ask}" if isinstance(part.answer, Truth) else part.ask, "   ")
            hints = answer_hints(part.answer)
            if isinstance(part.answer, Truth) and part.answer.condition is not None:
                hints += condition_hints(part.answer)
            for hint in hints:
                _print_prose(hint, "   ")
            if answer:
                _print_answer(part)
        if any(isinstance(part.answer, Truth) for part in exercise.parts):
            print("\nVerdicts")
            _print_prose("; ".join(f"{verdict}: {meaning}" for verdict, meaning in VERDICT_MEANINGS.items()), "   ")
        if answer:
            print("\nSummary")
            _print_prose(exercise.answer, "   ")
            for text in usual_answers(exercise.id):
                _print_prose(text, "   ")
        print()
    note(f"to compute the evidence: octavo exercises check {shlex.quote(name)}" if answer
         else f"to see the answer: octavo exercises show {shlex.quote(name)} --answer")  # fmt: skip


def _print_answer(part: Part) -> None:
    right = format_answer(part, part.answer.right)
    if isinstance(part.answer, Function):
        print(textwrap.indent(f"Answer: {part.answer.signature}\n\n{right}", "   "))
    else:
        _print_prose(f"Answer: {right}", "   ")
    _print_prose(part.why, "      ")
    for mistake, given in part.wrong.items():
        shown = "" if isinstance(part.answer, Function) else f"{format_answer(part, given)}: "
        _print_prose(f"Common mistake: {shown}{mistake}", "      ")
    for condition, given in part.only_if.items():
        _print_prose(f"Half right: {format_answer(part, given)} is right only if {condition}", "      ")


def format_answer(part: Part, given: Any) -> str:
    """An answer as readable text, which is right when it is pasted into an answer file; a function is a program."""
    answer = part.answer
    if isinstance(answer, Truth):
        verdict = answer.verdict(given)
        return VERDICTS[verdict] + (f": only if {prose_as_text(answer.only_if)}" if verdict == "nearly" else "")
    if isinstance(answer, Choice):
        return f"{given}: {prose_as_text(answer.options[given])}"
    if isinstance(answer, Function):
        return program_text(answer) if given is answer.right else "another function"
    if isinstance(answer, Formula) or isinstance(given, str):
        return as_text(str(given))
    return f"{given:,}" if isinstance(given, int) else str(given)


def _print_prose(text: str, indent: str = "") -> None:
    width = min(MAX_WIDTH, shutil.get_terminal_size((MAX_WIDTH, 24)).columns)
    for i, block in enumerate(text.strip().split("\n\n")):
        if i:
            print()
        print(wrap_prose(block, width, indent))


def _exercise_json(exercise: Exercise, answer: bool) -> dict[str, Any]:
    parts = []
    for part in exercise.parts:
        record = {"id": part.id, "ask": part.ask, "answer_as": part.answer.template, "points": part.points,
                  "sources": tags_of(exercise.id, part.id)}  # fmt: skip
        if answer:
            wrong = {name: format_answer(part, given) for name, given in part.wrong_answers().items()}
            right = format_answer(part, part.answer.right)
            record |= {"answer": right, "why": part.why, "evidence": part.kind, "wrong": wrong}
        parts.append(record)
    return {"id": exercise.id, "title": exercise.title, "question": exercise.question, "parts": parts,
            "sources": tags_of(exercise.id),
            **({"answer": exercise.answer, "usual_answers": usual_answers(exercise.id)} if answer else {})}  # fmt: skip


def check(names: Names = (), full: bool = False, folder: str | None = None, json: bool = False) -> None:
    """Compute the evidence for every claim; exit code 1 if one is not confirmed.

    Example: octavo exercises check softmax-range

    Args:
        names: Exercises, topics or sources (bishop); all exercises if none is named.
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
            rows.append((f"{one.id}.{name}", evidence.outcome, kind, f"{evidence.seconds:.2f} s", evidence.tolerance,
                         prose_as_text(evidence.note)))  # fmt: skip
        if one.problem:
            rows.append((one.id, "FAILS", "", "", "", one.problem))
    print_table(("claim", "result", "evidence", "time", "tolerance", "what was computed"), rows, left=(0, 1, 2, 4, 5))
    confirmed, skipped = (sum(row[1] == outcome for row in rows) for outcome in ("holds", "skipped"))
    without = f", {skipped} skipped for want of data" if skipped else ""
    note(f"{confirmed} of {len(rows)} claims hold{without}; {sum(one.seconds for one in checked):.1f} s of computing")


def _check_json(one: CheckedExercise) -> dict[str, Any]:
    parts = [{"id": name, "evidence": kind, **evidence._asdict()} for name, kind, evidence in one.parts]
    return {"id": one.id, "holds": one.holds, "seconds": one.seconds, "problem": one.problem or None, "parts": parts}


def template(
    names: Names = (), out: NewPath = "answers.toml", student: str | None = None, seed: int | None = None,
    folder: str | None = None,
) -> None:  # fmt: skip
    """Write an empty answer file: the questions as comments, and a line for every answer.

    Example: octavo exercises template softmax-range --out answers.toml

    Args:
        names: Exercises, topics or sources (bishop); all exercises if none is named.
        out: The file to write; - for standard output.
        student: The student whose file it is; with --seed, with the numbers of that student.
        seed: Draw individual numbers for each student from this seed.
        folder: A folder with your own exercises.
    """
    text = answer_template(variants_of(select_exercises(names, folder), student, seed))
    if out == "-":
        print(text, end="")
        return
    with whole_file(out) as file:
        file.write(text.encode())
    note(f"wrote {out}; fill in the answers, then: octavo exercises grade {out}")


def book(names: Names = (), out: NewPath = "exercises.html", quick: bool = False, folder: str | None = None) -> None:
    """Write all exercises, answers, figures and evidence as one HTML page that needs no network.

    Example: octavo exercises book --out exercises.html

    Args:
        names: Exercises, topics or sources (bishop); all exercises if none is named.
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
    command = " ".join(["octavo exercises book", *map(shlex.quote, names), f"--out {out}", *["--quick"] * quick])
    with whole_file(out) as file:
        file.write(book_page(topics, {one.id: one for one in checked}, command).encode("utf-8", "backslashreplace"))
    note(f"wrote {out}")


def figure(name: Name, out: NewPath = "figure.html", folder: str | None = None) -> None:
    """Write the figure of an exercise as an HTML page that needs no network.

    Example: octavo exercises figure score-scale --out figure.html

    Args:
        name: The exercise.
        out: The page to write.
        folder: A folder with your own exercises.
    """
    drawn = [(one, one.figure) for one in select_exercises([name], folder) if one.figure is not None]
    if not drawn:
        raise UserError(f"{name} has no figure")
    page = render_page(name, "", [section(one.title, Markup(figure())) for one, figure in drawn])
    write_text(out, page)
    note(f"wrote {out}")


ACTIONS: dict[str, Any] = {
    "list": list_, "show": show, "check": check, "template": template, "grade": grade, "book": book,
    "figure": figure, **COURSE_ACTIONS,
}  # fmt: skip
