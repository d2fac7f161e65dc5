"""octavo exercises, the formats of courses: autograders, notebooks, quizzes, sheets, the gradebook, a competition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from octavo.cli.flags import MaybeNewPath, NewPath
from octavo.cli.output import note, print_json, print_table
from octavo.errors import UserError
from octavo.exercises import Exercise
from octavo.exercises.formats.canvas import canvas_zip
from octavo.exercises.formats.course import (
    Mark,
    find_assignment,
    gradebook_csv,
    load_course,
    mark,
    read_manual,
    read_times,
    total_percent,
)  # fmt: skip
from octavo.exercises.formats.gradescope import Assignment, Visibility, autograder_zip
from octavo.exercises.formats.leaderboard import Entry, EntryLimits, rank_runs
from octavo.exercises.formats.moodle import moodle_xml
from octavo.exercises.formats.notebooks import Layout, notebook_files
from octavo.exercises.formats.quiz import left_out, quiz_questions
from octavo.exercises.formats.sheet import print_pdf, question_sheet
from octavo.exercises.framework.grading import csv_text
from octavo.exercises.framework.registry import exercises_by_topic, select_exercises
from octavo.exercises.framework.submissions import ANSWER_FILE, grade
from octavo.exercises.framework.variants import student_variant
from octavo.io.files import filled_folder, whole_file, write_text
from octavo.io.progress import progress

Names = Annotated[Positional[tuple[str, ...]], arg(metavar="[ID...]")]
File = Annotated[Positional[str], arg(metavar="FILE")]
Folder = Annotated[Positional[str], arg(metavar="FOLDER")]


def gradescope(
    only: tuple[str, ...] = (), out: NewPath = "autograder.zip", course: str | None = None,
    assignment: str | None = None, visibility: Visibility = "visible", seed: int | None = None, text: str | None = None,
    reveal: bool = False, trust: bool = False,
) -> None:  # fmt: skip
    """Write an autograder for Gradescope: upload the zip file under Configure Autograder.

    Students hand in answers.toml (octavo exercises template writes it) and the Python files it names; with --text
    they hand in a run folder, and the leaderboard ranks the bits per byte on that text.

    Example: octavo exercises gradescope --only score-scale softmax-range --out autograder.zip

    Args:
        only: The assigned exercises or topics; none for a competition.
        out: The zip file to write.
        course: A course's TOML file, from which exercises, points and seed are taken.
        assignment: Which assignment of the course.
        visibility: When students see the result of each part.
        seed: Draw other numbers for every student from this seed, by e-mail address.
        text: The hidden text of a competition; it is packed into the zip file.
        reveal: Show the right answers and derivations to students.
        trust: Run function answers even where the container offers no isolation.
    """
    points: Mapping[str, float] = {}
    if course is not None:
        chosen = find_assignment(load_course(course), assignment)
        only, points, seed = only or chosen.exercises, chosen.points, chosen.seed if seed is None else seed
    if not only and text is None:
        raise UserError("an assignment needs exercises: name them with --only, or a competition's text with --text")
    made = Assignment(only, visibility, points, seed, reveal, trust, competition=text is not None)
    _write(out, autograder_zip(made, Path(text).read_bytes() if text is not None else None))


def moodle(
    names: Names = (), out: NewPath = "moodle.xml", variants: int = 1, seed: int = 0, folder: str | None = None
) -> None:  # fmt: skip
    """Write a question bank for Moodle (Moodle XML): numbers, formulas at a point, true or false, choices.

    Example: octavo exercises moodle "Recurrent networks" --variants 5

    Args:
        names: Exercises, topics or sources (bishop); all exercises if none is named.
        out: The file to write.
        variants: Questions with other numbers for each formula, in a category of their own, to draw one at random.
        seed: The seed of those numbers.
        folder: A folder with your own exercises.
    """
    _write(out, moodle_xml(_quiz(select_exercises(names, folder), variants, seed)))


def canvas(
    names: Names = (), out: NewPath = "canvas.zip", title: str = "Exercises", variants: int = 1, seed: int = 0,
    folder: str | None = None,
) -> None:  # fmt: skip
    """Write a quiz for Canvas (QTI 1.2): import it under Settings, Import Course Content, QTI .zip file.

    Example: octavo exercises canvas score-scale --title "Week 1"

    Args:
        names: Exercises, topics or sources (bishop); all exercises if none is named.
        out: The file to write.
        title: The title of the quiz.
        variants: Questions with other numbers for each formula.
        seed: The seed of those numbers.
        folder: A folder with your own exercises.
    """
    _write(out, canvas_zip(_quiz(select_exercises(names, folder), variants, seed), title))


def notebook(
    names: Names = (), out: NewPath = "notebooks", layout: Layout = "plain", folder: str | None = None
) -> None:  # fmt: skip
    """Write Jupyter notebooks, one per topic: questions, cells for answers, figures to play with; and with solutions.

    Example: octavo exercises notebook "Attention and softmax" --layout otter

    Args:
        names: Exercises, topics or sources (bishop); all exercises if none is named.
        out: The folder to write into.
        layout: plain checks answers without marks; otter adds the tests of Otter-Grader; nbgrader writes its source.
        folder: A folder with your own exercises.
    """
    chosen = {one.id for one in select_exercises(names, folder)}
    written = 0
    with filled_folder(out) as place:
        for topic, exercises in exercises_by_topic(folder).items():
            own = [one for one in exercises if one.id in chosen]
            name = topic.lower().replace(" ", "-")
            for path, content in (notebook_files(name, topic, own, layout) if own else {}).items():
                write_text(place / (name if layout == "otter" else "") / path, content)
                written += path.endswith(".ipynb")
    note(f"wrote {written} notebooks to {out}")


def sheet(
    names: Names = (), out: NewPath = "sheet.html", title: str = "Exercises", student: str | None = None,
    seed: int | None = None, folder: str | None = None,
) -> None:  # fmt: skip
    """Write the questions without answers as a page, or as a PDF if --out ends with .pdf (a browser prints it).

    Example: octavo exercises sheet score-scale softmax-range --out week1.pdf

    Args:
        names: Exercises, topics or sources (bishop); all exercises if none is named.
        out: The page (.html) or the PDF (.pdf) to write.
        title: The title of the sheet.
        student: The student whose sheet it is; with --seed, with the numbers of that student.
        seed: Draw individual numbers for each student from this seed.
        folder: A folder with your own exercises.
    """
    exercises = variants_of(select_exercises(names, folder), student, seed)
    page = question_sheet(exercises, title, student or "")
    _write(out, print_pdf(page) if out.endswith(".pdf") else page.encode("utf-8", "backslashreplace"))


def gradebook(
    course: File, submissions: Folder, out: NewPath = "gradebook.csv", manual: str | None = None,
    times: str | None = None, json: bool = False,
) -> None:  # fmt: skip
    """Grade the assignments of a course: weights, deadlines, late policy, and the marks that were given by hand.

    Example: octavo exercises gradebook course.toml submissions --manual manual.csv

    Args:
        course: The course's TOML file.
        submissions: A folder with one folder per assignment, and in it one per student with answers.toml.
        out: The CSV file to write, one line per student.
        manual: A CSV file with the columns student, assignment, rubric, points.
        times: A CSV file with the columns student, assignment, submitted; else the time of each answers.toml counts.
        json: Print JSON.
    """
    loaded = load_course(course)
    by_hand = read_manual(manual, loaded) if manual else {}
    recorded = read_times(times) if times else {}
    marks: list[Mark] = []
    for assignment in loaded.assignments:
        folder = Path(submissions) / assignment.name
        if not folder.is_dir() or not assignment.exercises:
            marks += mark(assignment, [], recorded, by_hand)
            continue
        files = {one.name: one / ANSWER_FILE for one in folder.iterdir() if (one / ANSWER_FILE).is_file()}
        own = {(name, assignment.name): datetime.fromtimestamp(file.stat().st_mtime, UTC)
               for name, file in files.items()}  # fmt: skip
        exercises = assignment.selected()
        with progress(f"grading {assignment.name}", max(1, len(files)), "students") as advance:
            names = [one.id for one in exercises]
            students = grade(folder, exercises, names, finished=lambda _: advance(1), seed=assignment.seed)
        marks += mark(assignment, students, {**own, **recorded}, by_hand)
    _write(out, gradebook_csv(loaded, marks).encode())
    names = sorted({one.student for one in marks})
    percents = {name: total_percent(loaded, [one for one in marks if one.student == name]) for name in names}
    if json:
        print_json({"title": loaded.title, "percent": percents, "marks": [one._asdict() for one in marks]})
        return
    own_marks = {(one.student, one.assignment): one for one in marks}
    rows = [
        (name, *(_points(own_marks.get((name, one.name))) for one in loaded.assignments), f"{percents[name]:.1f} %")
        for name in names
    ]
    print_table(("student", *(one.name for one in loaded.assignments), "mark"), rows)


def _points(one: Mark | None) -> str:
    late = f", {one.days_late} d late" if one and one.days_late else ""
    return f"{one.points:g} of {one.of:g}{late}" if one else ""


def leaderboard(
    submissions: Folder, text: str, megabytes: float = 100.0, seconds: float = 120.0, out: MaybeNewPath = None,
    json: bool = False,
) -> None:  # fmt: skip
    """Rank submitted run folders by audited bits per byte on a hidden text.

    Each run is scored, and its archive of the text must restore it to the byte.

    Example: octavo exercises leaderboard submissions --text hidden.txt

    Args:
        submissions: A folder with one run folder per team.
        text: The hidden text.
        megabytes: The size that a run folder may have.
        seconds: The time that scoring, compressing and restoring may take.
        out: Also write the ranking as a CSV file.
        json: Print JSON.
    """
    teams = [one for one in Path(submissions).iterdir() if one.is_dir()] if Path(submissions).is_dir() else []
    with progress("measuring", max(1, len(teams)), "runs") as advance:
        entries = rank_runs(submissions, text, EntryLimits(megabytes, seconds), advance)
    titles = ("rank", "team", "bits/byte", "model", "MB", "seconds", "problem")
    rows = [_entry(place, one) for place, one in enumerate(entries, 1)]
    if out is not None:
        _write(out, csv_text([titles, *rows]).encode())
    if json:
        print_json([one._asdict() for one in entries])
    else:
        print_table(titles, rows, left=(1, 3, 6))


def _entry(place: int, one: Entry) -> tuple[str, ...]:
    used = (f"{one.megabytes:.1f}", f"{one.seconds:.1f}")
    if one.bits_per_byte is None:
        return "", one.team, "", "", *used, one.problem
    return str(place), one.team, f"{one.bits_per_byte:.4f}", one.model, *used, ""


def variants_of(exercises: Sequence[Exercise], student: str | None, seed: int | None) -> list[Exercise]:
    """The exercises with the numbers of one student; as they are without a seed."""
    if seed is None:
        return list(exercises)
    if not student:
        raise UserError("--seed draws the numbers of one student: name the student with --student")
    return [student_variant(one, student, seed) for one in exercises]


def _quiz(exercises: Sequence[Exercise], variants: int, seed: int) -> list[Any]:
    if variants < 1:
        raise UserError(f"variants must be at least 1: variants={variants}")
    if missing := left_out(exercises):
        note(f"left out, because a quiz cannot run Python: {', '.join(missing)}")
    return quiz_questions(exercises, variants, seed)


def _write(out: str, content: bytes) -> None:
    with whole_file(out) as file:
        file.write(content)
    note(f"wrote {out}")


COURSE_ACTIONS: dict[str, Any] = {
    "gradescope": gradescope, "notebook": notebook, "moodle": moodle, "canvas": canvas, "sheet": sheet,
    "gradebook": gradebook, "leaderboard": leaderboard,
}  # fmt: skip
