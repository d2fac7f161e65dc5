"""Gradescope: an autograder's zip file, and the program that Gradescope then runs for each submission.

Gradescope unpacks the zip file into /autograder/source, runs setup.sh once and run_autograder for every submission,
which finds the student's files in /autograder/submission and writes /autograder/results/results.json.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import octavo
from octavo.errors import UserError
from octavo.exercises.formats.archive import zip_bytes
from octavo.exercises.formats.course import CourseAssignment
from octavo.exercises.formats.leaderboard import EntryLimits, measure_run
from octavo.exercises.framework.exercise import Exercise
from octavo.exercises.framework.functions import FunctionRunner
from octavo.exercises.framework.grading import GradedPart, Student, conceal
from octavo.exercises.framework.isolation import Backend, choose_backend
from octavo.exercises.framework.limits import Limits
from octavo.exercises.framework.mathml import prose_as_text
from octavo.exercises.framework.submissions import ANSWER_FILE, grade
from octavo.exercises.framework.variants import student_variant

Visibility = Literal["visible", "hidden", "after_due_date", "after_published"]
ROOT = "/autograder"
HIDDEN_TEXT = "hidden_text"
SETUP = f"""#!/usr/bin/env bash
set -euo pipefail
apt-get update
apt-get install -y python3 python3-venv bubblewrap
python3 -m venv {ROOT}/venv
{ROOT}/venv/bin/pip install -r {ROOT}/source/requirements.txt
chmod -R go-rwx {ROOT}/source
"""
RUN = f"""#!/usr/bin/env bash
export PYTHONPATH={ROOT}/source/package
exec {ROOT}/venv/bin/python -P -m {__name__} {ROOT}
"""


@dataclass(frozen=True)
class Assignment:
    """What is graded, and what students see of it."""

    exercises: tuple[str, ...]
    visibility: Visibility = "visible"  # of each part's result
    points: Mapping[str, float] = field(default_factory=dict)  # exercise, or exercise.part -> points of each part
    seed: int | None = None  # of each student's own numbers
    reveal: bool = False  # the right answers and derivations
    trust: bool = False  # run function answers without isolation where the container offers none
    competition: bool = False  # the submission is a run folder, ranked by bits per byte on the hidden text


def autograder_zip(assignment: Assignment, text: bytes | None = None) -> bytes:
    """The zip file to upload: octavo itself, what it needs, the assignment, and the hidden text of a competition."""
    if assignment.competition != (text is not None):
        raise UserError("a competition needs a hidden text, and other assignments have none: name it with --text")
    assigned(assignment)  # unknown names are refused here, not on Gradescope
    package = Path(octavo.__file__).parent
    files: dict[str, str | bytes] = {
        "setup.sh": SETUP, "run_autograder": RUN, "requirements.txt": "\n".join(requirements()) + "\n",
        "assignment.json": json.dumps(asdict(assignment), indent=2),
        **({HIDDEN_TEXT: text} if text is not None else {}),
        **{f"package/octavo/{one.relative_to(package).as_posix()}": one.read_bytes()
           for one in sorted(package.rglob("*")) if one.is_file() and "__pycache__" not in one.parts},
    }  # fmt: skip
    return zip_bytes(files, programs=("setup.sh", "run_autograder"))


def requirements() -> list[str]:
    """The packages that octavo needs, without those of its extras."""
    return [one for one in metadata.requires("octavo") or [] if "extra ==" not in one]


def grade_submission(root: Path) -> dict[str, Any]:
    """The results of the submission in an autograder's folder; they are also written to results/results.json."""
    start = time.monotonic()
    settings = json.loads((root / "source/assignment.json").read_text(encoding="utf-8"))
    assignment = Assignment(**{**settings, "exercises": tuple(settings["exercises"])})
    try:
        results = _competition(root) if assignment.competition else _graded(root, assignment)
    except UserError as error:
        results = {"score": 0.0, "output": str(error), "tests": []}
    results |= {"execution_time": round(time.monotonic() - start), "stdout_visibility": "hidden"}
    (root / "results").mkdir(exist_ok=True)
    (root / "results/results.json").write_text(json.dumps(results, indent=2), encoding="utf-8")
    return results


def assigned(assignment: Assignment) -> list[Exercise]:
    """The exercises with the points that the assignment gives them."""
    return CourseAssignment("assignment", assignment.exercises, points=assignment.points).selected()


def _graded(root: Path, assignment: Assignment) -> dict[str, Any]:
    exercises = assigned(assignment)
    if assignment.seed is not None:
        exercises = [student_variant(one, student_of(root), assignment.seed) for one in exercises]
    if not (root / "submission" / ANSWER_FILE).is_file():
        raise UserError(f"the submission must hold a file {ANSWER_FILE}: there is none; hand it in again")
    limits = Limits()
    runner = FunctionRunner(limits, lambda: _backend(root, assignment.trust))
    (student,) = grade(root / "submission", exercises, [one.id for one in exercises], limits, runner=runner)
    return results_json(student if assignment.reveal else conceal(student), assignment)


def _backend(root: Path, trust: bool) -> Backend:
    """The best isolation that the container offers; none where there is none and the teacher said so."""
    try:
        return choose_backend()
    except UserError as refusal:
        try:
            return choose_backend("user", secrets=[root / "source"])
        except UserError:
            if not trust:
                raise refusal from None
            return choose_backend(trust=True)


def results_json(student: Student, assignment: Assignment) -> dict[str, Any]:
    """A graded student as Gradescope's results: one test per part."""
    tests = [_test(row, assignment.visibility, number) for number, row in enumerate(student.rows, 1)]
    return {
        "output": student.problem or "One line per part. An empty answer counts as missing.",
        "tests": tests, "leaderboard": [{"name": "points", "value": round(sum(one["score"] for one in tests), 6)}],
    }  # fmt: skip


def _test(row: GradedPart, visibility: Visibility, number: int) -> dict[str, Any]:
    output = prose_as_text(f"{row.outcome}. {row.explanation}".removesuffix(" "))
    return {
        "name": f"{row.exercise}: {row.part}".removesuffix(": "), "number": str(number),
        "score": round(row.points, 6), "max_score": round(row.of, 6),
        "status": "passed" if row.outcome == "right" else "failed",
        "output": output, "visibility": visibility, "tags": [row.exercise],
    }  # fmt: skip


def _competition(root: Path) -> dict[str, Any]:
    submission = root / "submission"
    folders = [one for one in submission.iterdir() if one.is_dir() and one.name[0] not in "._"]
    run = folders[0] if len(folders) == 1 else submission
    entry = measure_run(run, root / "source" / HIDDEN_TEXT, EntryLimits())
    if entry.bits_per_byte is None:
        raise UserError(entry.problem)
    used = f"{entry.megabytes:.1f} MB, {entry.seconds:.1f} s"
    output = f"{entry.bits_per_byte:.4f} bits per byte, restored to the byte; {used}"
    return {
        "score": 0.0, "output": output, "tests": [],
        "leaderboard": [{"name": "bits per byte", "value": round(entry.bits_per_byte, 4), "order": "asc"},
                        {"name": "megabytes", "value": round(entry.megabytes, 2), "order": "asc"}],
    }  # fmt: skip


def student_of(root: Path) -> str:
    """The student's e-mail address, by which the numbers of a variant are drawn."""
    try:
        users = json.loads((root / "submission_metadata.json").read_text(encoding="utf-8"))["users"]
        names = sorted(str(user["email"]).strip().lower() for user in users)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError("submission_metadata.json must name the student's e-mail address: it does not") from error
    if not names or not re.fullmatch(r"[^\s@]+@[^\s@]+", names[0]):
        raise UserError("submission_metadata.json must name the student's e-mail address: it does not")
    return names[0]


if __name__ == "__main__":
    grade_submission(Path(sys.argv[1]))
