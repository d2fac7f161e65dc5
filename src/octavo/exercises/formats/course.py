"""A course in one file: its assignments with weights, deadlines, late policy and rubric lines, and the gradebook.

    title = "Sequence models"
    late = { per_day = 0.1, max_days = 5 }

    [[assignment]]
    name = "week1"
    exercises = ["score-scale", "Recurrent networks"]
    weight = 20
    deadline = 2026-12-01T23:59:00+01:00
    seed = 7
    points = { "score-scale.variance" = 2 }
    rubric = [{ name = "report", points = 5, description = "clear figures" }]

Submissions stand in FOLDER/week1/STUDENT/answers.toml. The time of a submission is that of its answer file, unless a
CSV file (student, assignment, submitted) tells it; marks given by hand come from a CSV file (student, assignment,
rubric, points, comment).
"""

from __future__ import annotations

import csv
import io
import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from octavo.errors import UserError
from octavo.exercises.framework.exercise import Exercise
from octavo.exercises.framework.grading import Student, csv_text
from octavo.exercises.framework.registry import select_exercises
from octavo.io.encoding import read_text

DAY_SECONDS = 86_400


@dataclass(frozen=True)
class LatePolicy:
    """What a late submission costs: a share of its points for each day begun, and everything after some days."""

    per_day: float = 0.0
    max_days: int = 0  # days after which nothing counts; 0: never

    def factor(self, days: int) -> float:
        """The share of the points that a submission keeps when it is this many days late."""
        if days and self.max_days and days > self.max_days:
            return 0.0
        return max(0.0, 1.0 - self.per_day * days)


@dataclass(frozen=True)
class Rubric:
    """A line that is marked by hand."""

    name: str
    points: float
    description: str = ""


@dataclass(frozen=True)
class CourseAssignment:
    """One assignment of a course."""

    name: str
    exercises: tuple[str, ...] = ()
    weight: float = 1.0
    deadline: datetime | None = None
    late: LatePolicy = LatePolicy()
    seed: int | None = None  # numbers of each student's own
    points: Mapping[str, float] = field(default_factory=dict)  # exercise.part, or exercise -> points of each part
    rubric: tuple[Rubric, ...] = ()

    def selected(self, folder: str | None = None) -> list[Exercise]:
        """The exercises, with the points that the course gives them."""
        chosen = [replace(one, parts=[self._with_points(one, part) for part in one.parts])
                  for one in select_exercises(self.exercises, folder)] if self.exercises else []  # fmt: skip
        known = {name for one in chosen for name in (one.id, *(f"{one.id}.{part.id}" for part in one.parts))}
        if unknown := sorted(set(self.points) - known):
            raise UserError(f"{self.name}: points name an exercise or part of the assignment: {unknown[0]} is none")
        return chosen

    def _with_points(self, exercise: Exercise, part: Any) -> Any:
        points = self.points.get(f"{exercise.id}.{part.id}", self.points.get(exercise.id, part.points))
        return replace(part, points=float(points))

    def days_late(self, submitted: datetime | None) -> int:
        """How many days after the deadline, begun days counted whole."""
        if self.deadline is None or submitted is None or submitted <= self.deadline:
            return 0
        return math.ceil((submitted - self.deadline).total_seconds() / DAY_SECONDS)


@dataclass(frozen=True)
class Course:
    """A course: its title and its assignments in order."""

    title: str
    assignments: tuple[CourseAssignment, ...]


class Mark(NamedTuple):
    """A student's result in one assignment."""

    student: str
    assignment: str
    graded: float  # points of the exercises
    manual: float  # points given by hand
    of: float
    days_late: int
    points: float  # after the late policy
    problem: str = ""


def load_course(path: str | Path) -> Course:
    """The course in a TOML file; a UserError names what is wrong in it."""
    try:
        given = tomllib.loads(read_text(Path(path)))
    except (ValueError, RecursionError) as error:
        raise UserError(f"cannot read the course {path}: {error}; see docs/course.md for its form") from error
    _known(given, ("title", "late", "assignment"), str(path))
    late = _record(LatePolicy, given.get("late", {}), f"{path}: late")
    tables = given.get("assignment", [])
    if not isinstance(tables, list) or not tables:
        raise UserError(f"{path} must have at least one [[assignment]]: it has none")
    assignments = tuple(
        _assignment(table, late, f"{path}: assignment {place}") for place, table in enumerate(tables, 1)
    )
    names = [one.name for one in assignments]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise UserError(f"{path}: every assignment needs its own name: {repeated[0]} occurs twice")
    return Course(str(given.get("title", Path(path).stem)), assignments)


def find_assignment(course: Course, name: str | None) -> CourseAssignment:
    """The assignment of that name."""
    for one in course.assignments:
        if one.name == name:
            return one
    raise UserError(f"there is no assignment {name!r}; there are {', '.join(one.name for one in course.assignments)}")


def _assignment(table: Any, late: LatePolicy, where: str) -> CourseAssignment:
    if not isinstance(table, dict) or not isinstance(table.get("name"), str) or not table["name"].strip():
        raise UserError(f"{where} needs a name")
    own = {**table, "exercises": tuple(table.get("exercises", ()))}
    own["late"] = _record(LatePolicy, table["late"], f"{where}: late") if "late" in table else late
    own["rubric"] = tuple(_record(Rubric, one, f"{where}: rubric") for one in table.get("rubric", ()))
    deadline = own.get("deadline")
    if deadline is not None:
        if not isinstance(deadline, datetime):
            raise UserError(
                f"{where}: deadline must be a date and time such as 2026-12-01T23:59:00+01:00: it is {deadline}"
            )
        own["deadline"] = deadline if deadline.tzinfo else deadline.replace(tzinfo=UTC)
    made: CourseAssignment = _record(CourseAssignment, own, where)
    if made.weight < 0 or not 0 <= made.late.per_day <= 1:
        raise UserError(f"{where}: weight must not be negative and per_day between 0 and 1: weight={made.weight}, "
                        f"per_day={made.late.per_day}")  # fmt: skip
    made.selected()  # unknown exercises are refused before anything is graded
    return made


def _record(kind: type[Any], given: Any, where: str) -> Any:
    names = [one.name for one in fields(kind)]
    if not isinstance(given, dict):
        raise UserError(f"{where} must be a table with {', '.join(names)}: it is {str(given)[:60]!r}")
    _known(given, names, where)
    try:
        return kind(**given)
    except TypeError as error:
        raise UserError(f"{where} must name {', '.join(names)}: {error}") from error


def _known(given: Mapping[str, Any], names: Iterable[str], where: str) -> None:
    if unknown := sorted(set(given) - set(names)):
        raise UserError(f"{where} has no setting {unknown[0]!r}; there are {', '.join(names)}")


def read_times(path: str | Path) -> dict[tuple[str, str], datetime]:
    """The times of submissions, by student and assignment, from a CSV file."""
    times = {}
    for row in _rows(path, ("student", "assignment", "submitted")):
        try:
            time = datetime.fromisoformat(row["submitted"])
        except ValueError as error:
            raise UserError(
                f"{path}: submitted must be a time such as 2026-12-01T10:00:00: {row['submitted']!r}"
            ) from error
        times[row["student"], row["assignment"]] = time if time.tzinfo else time.replace(tzinfo=UTC)
    return times


def read_manual(path: str | Path, course: Course) -> dict[tuple[str, str], float]:
    """The points given by hand, summed by student and assignment, from a CSV file; each names a line of the rubric."""
    rubrics = {(one.name, line.name): line for one in course.assignments for line in one.rubric}
    manual: dict[tuple[str, str], float] = {}
    seen: set[tuple[str, str, str]] = set()
    for row in _rows(path, ("student", "assignment", "rubric", "points")):
        key = (row["assignment"], row["rubric"])
        if key not in rubrics:
            raise UserError(
                f"{path}: the course has no rubric {row['rubric']!r} in the assignment {row['assignment']!r}"
            )
        try:
            points = float(row["points"])
        except ValueError as error:
            raise UserError(f"{path}: points must be a number: {row['points']!r} of {row['student']}") from error
        if not 0 <= points <= rubrics[key].points:
            raise UserError(
                f"{path}: {row['rubric']} has 0 to {rubrics[key].points:g} points: {row['student']} has {points:g}"
            )
        if (row["student"], *key) in seen:
            raise UserError(f"{path}: {row['student']} has two marks for {row['rubric']} of {row['assignment']}")
        seen.add((row["student"], *key))
        place = (row["student"], row["assignment"])
        manual[place] = manual.get(place, 0.0) + points
    return manual


def _rows(path: str | Path, columns: Sequence[str]) -> list[dict[str, str]]:
    try:
        rows = list(csv.DictReader(io.StringIO(read_text(Path(path)).removeprefix("\ufeff"))))
    except csv.Error as error:
        raise UserError(f"cannot read {path}: {error}") from error
    if rows and (missing := [name for name in columns if name not in rows[0]]):
        raise UserError(f"{path} must have the columns {', '.join(columns)}: {missing[0]} is missing")
    return [{name: (row[name] or "").strip() for name in columns} for row in rows]


def mark(
    assignment: CourseAssignment, students: Sequence[Student], times: Mapping[tuple[str, str], datetime],
    manual: Mapping[tuple[str, str], float],
) -> list[Mark]:  # fmt: skip
    """The results of an assignment: graded and manual points, and what they are worth after the late policy."""
    rubric = sum(line.points for line in assignment.rubric)
    parts = sum(part.points for one in assignment.selected() for part in one.parts)
    graded = {student.name: student for student in students}
    names = [*graded, *(name for name, where in manual if where == assignment.name and name not in graded)]
    marks = []
    for name in names:
        student, by_hand = graded.get(name), manual.get((name, assignment.name), 0.0)
        days = assignment.days_late(times.get((name, assignment.name)))
        own = student.points if student else 0.0
        problem = student.problem if student else "no answers"
        points = (own + by_hand) * assignment.late.factor(days)
        marks.append(Mark(name, assignment.name, own, by_hand, parts + rubric, days, points, problem))
    return marks


def total_percent(course: Course, marks: Sequence[Mark]) -> float:
    """A student's final mark in percent: assignments by their weights; one without a submission counts as zero."""
    by_name = {one.assignment: one for one in marks}
    whole = sum(one.weight for one in course.assignments)
    earned = sum(one.weight * by_name[one.name].points / by_name[one.name].of
                 for one in course.assignments if one.name in by_name and by_name[one.name].of)  # fmt: skip
    return 100 * earned / whole if whole else 0.0


def gradebook_csv(course: Course, marks: Sequence[Mark]) -> str:
    """One line per student: the points of every assignment, the days it was late, and the final mark in percent."""
    columns = [title for one in course.assignments for title in (one.name, f"{one.name} of", f"{one.name} days late")]
    rows: list[tuple[Any, ...]] = [("student", *columns, "percent")]
    for name in sorted({one.student for one in marks}):
        own = {one.assignment: one for one in marks if one.student == name}
        cells: list[Any] = []
        for one in course.assignments:
            got = own.get(one.name)
            cells += [f"{got.points:g}", f"{got.of:g}", got.days_late] if got else ["", "", ""]
        rows.append((name, *cells, f"{total_percent(course, list(own.values())):.2f}"))
    return csv_text(rows)
