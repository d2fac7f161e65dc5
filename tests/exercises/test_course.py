"""A course: what is wrong in its file is named; marks follow weights, deadlines, the late policy and the rubric."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from octavo.errors import UserError
from octavo.exercises.formats.course import (
    Course,
    LatePolicy,
    gradebook_csv,
    load_course,
    mark,
    read_manual,
    read_times,
    total_percent,
)  # fmt: skip
from octavo.exercises.framework.grading import GradedPart, Student

TEXT = """
title = "Sequence models"
late = { per_day = 0.25, max_days = 2 }

[[assignment]]
name = "week1"
exercises = ["score-scale"]
weight = 30
deadline = 2026-12-01T12:00:00Z
points = { "score-scale" = 2, "score-scale.variance" = 4 }
rubric = [{ name = "report", points = 6 }]

[[assignment]]
name = "week2"
exercises = ["softmax-range"]
weight = 10
"""
DEADLINE = datetime(2026, 12, 1, 12, tzinfo=UTC)


@pytest.fixture
def course(tmp_path: Path) -> Course:
    (tmp_path / "course.toml").write_text(TEXT)
    return load_course(tmp_path / "course.toml")


def student(name: str, exercise: str, points: float) -> Student:
    return Student(name, (GradedPart(exercise, "part", "right", "", points, points, "", ""),))


def test_points_of_an_exercise_and_of_one_of_its_parts(course: Course) -> None:
    (exercise,) = course.assignments[0].selected()
    points = {part.id: part.points for part in exercise.parts}
    assert points.pop("variance") == 4
    assert set(points.values()) == {2.0}


@pytest.mark.parametrize(("minutes", "days", "kept"), [(-1, 0, 1.0), (0, 0, 1.0), (1, 1, 0.75), (24 * 60, 1, 0.75),
                                                       (24 * 60 + 1, 2, 0.5), (48 * 60 + 1, 3, 0.0)])  # fmt: skip
def test_a_day_begun_counts_whole(course: Course, minutes: int, days: int, kept: float) -> None:
    week1 = course.assignments[0]
    assert week1.days_late(DEADLINE + timedelta(minutes=minutes)) == days
    assert week1.late.factor(days) == kept


def test_no_policy_takes_nothing() -> None:
    assert LatePolicy().factor(1000) == 1.0


def test_marks_add_up_by_hand(course: Course) -> None:
    week1, week2 = course.assignments
    of = sum(part.points for one in week1.selected() for part in one.parts) + 6
    manual = {("ada", "week1"): 5.0, ("bob", "week1"): 3.0}
    marks = mark(week1, [student("ada", "score-scale", 8.0)], {("ada", "week1"): DEADLINE + timedelta(hours=3)}, manual)
    assert [(one.student, one.graded, one.manual, one.of, one.days_late, one.points) for one in marks] == [
        ("ada", 8.0, 5.0, of, 1, 0.75 * 13.0), ("bob", 0.0, 3.0, of, 0, 3.0)
    ]  # fmt: skip
    second = mark(week2, [student("ada", "softmax-range", 3.0)], {}, {})
    expected = 100 * (30 * 0.75 * 13 / of + 10 * 3 / second[0].of) / 40
    assert total_percent(course, [marks[0], *second]) == pytest.approx(expected)
    lines = gradebook_csv(course, [*marks, *second]).splitlines()
    assert lines[0] == "student,week1,week1 of,week1 days late,week2,week2 of,week2 days late,percent"
    assert lines[1] == f"ada,9.75,{of:g},1,3,{second[0].of:g},0,{expected:.2f}"
    assert lines[2].startswith("bob,3,")  # no answers, but a report


@pytest.mark.parametrize(("text", "message"), [
    ("", "at least one"), ("[[assignment]]\nweight = 1", "needs a name"), ("titel = 1", "no setting 'titel'"),
    ('[[assignment]]\nname = "a"\nexercises = ["no-such"]', "no exercise, topic or source"),
    ('[[assignment]]\nname = "a"\ndeadline = "monday"', "date and time"),
    ('[[assignment]]\nname = "a"\nweight = -1', "must not be negative"),
    ('[[assignment]]\nname = "a"\npoints = { "b" = 1 }', "b is none"),
    ('[[assignment]]\nname = "a"\n[[assignment]]\nname = "a"', "occurs twice"),
    ('late = { per_day = 2.0 }\n[[assignment]]\nname = "a"', "between 0 and 1"),
    ('late = 3\n[[assignment]]\nname = "a"', "must be a table"), ("=", "cannot read the course"),
])  # fmt: skip
def test_what_is_wrong_in_a_course_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "course.toml").write_text(text)
    with pytest.raises(UserError, match=message):
        load_course(tmp_path / "course.toml")


def test_marks_given_by_hand_are_checked(tmp_path: Path, course: Course) -> None:
    file = tmp_path / "manual.csv"
    file.write_text("student,assignment,rubric,points,comment\nada,week1,report,5,good\nbob,week1,report,2.5,\n")
    assert read_manual(file, course) == {("ada", "week1"): 5.0, ("bob", "week1"): 2.5}
    for line, message in {
        "ada,week1,report,7": "0 to 6", "ada,week1,style,1": "no rubric", "ada,week1,report,x": "number",
        "ada,week1,report,1\nada,week1,report,1": "two marks",
    }.items():  # fmt: skip
        file.write_text(f"student,assignment,rubric,points\n{line}\n")
        with pytest.raises(UserError, match=message):
            read_manual(file, course)
    file.write_text("student,points\nada,1\n")
    with pytest.raises(UserError, match="assignment is missing"):
        read_manual(file, course)


def test_times_of_submissions(tmp_path: Path) -> None:
    file = tmp_path / "times.csv"
    file.write_text("student,assignment,submitted\nada,week1,2026-12-01T13:00:00+01:00\n")
    assert read_times(file) == {("ada", "week1"): DEADLINE}
    file.write_text("student,assignment,submitted\nada,week1,yesterday\n")
    with pytest.raises(UserError, match="must be a time"):
        read_times(file)
