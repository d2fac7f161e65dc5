"""Gradescope's autograder, run in the folders that Gradescope makes; its results follow the documented schema."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

import octavo
from octavo.cli import main
from octavo.errors import UserError
from octavo.exercises.formats.gradescope import Assignment, autograder_zip, grade_submission, requirements
from octavo.exercises.framework.answers import Number, read_number
from octavo.exercises.framework.registry import select_exercises
from octavo.exercises.framework.variants import student_variant

VISIBILITY = ("hidden", "after_due_date", "after_published", "visible")
EMAIL = "ada@example.org"


def unpack(root: Path, content: bytes, submission: dict[str, str]) -> Path:
    """The folders of Gradescope's container: source, submission, results and the submission's metadata."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        archive.extractall(root / "source")
        modes = {one.filename: one.external_attr >> 16 for one in archive.infolist()}
    assert modes["run_autograder"] & 0o111
    assert modes["setup.sh"] & 0o111
    (root / "submission").mkdir()
    for name, text in submission.items():
        (root / "submission" / name).write_text(text)
    (root / "submission_metadata.json").write_text(json.dumps({"id": 1, "users": [{"email": EMAIL, "id": 2}]}))
    return root


def assert_schema(results: dict[str, Any]) -> None:
    known = {
        "score",
        "execution_time",
        "output",
        "visibility",
        "stdout_visibility",
        "extra_data",
        "tests",
        "leaderboard",
    }
    assert set(results) <= known
    assert results["stdout_visibility"] in VISIBILITY
    assert "score" in results or results["tests"]
    for one in results["tests"]:
        assert set(one) <= {"score", "max_score", "status", "name", "number", "output", "tags", "visibility"}
        assert 0 <= one["score"] <= one["max_score"]
        assert one["status"] in ("passed", "failed")
        assert one["visibility"] in VISIBILITY
    for entry in results.get("leaderboard", []):
        assert set(entry) <= {"name", "value", "order"}
        assert entry.get("order", "desc") in ("asc", "desc")


def test_the_autograder_runs_from_its_zip_file_and_hides_the_answers(tmp_path: Path) -> None:
    answers = '[score-scale]\nmean = "m"\nvariance = "d*s^4 + m^2"\nunit = "1"\n'
    content = autograder_zip(Assignment(("score-scale",), "after_due_date"))
    root = unpack(tmp_path, content, {"answers.toml": answers})
    environment = {**os.environ, "PYTHONPATH": str(root / "source/package")}
    command = [sys.executable, "-P", "-m", "octavo.exercises.formats.gradescope", str(root)]
    subprocess.run(command, env=environment, check=True, cwd=root)
    results = json.loads((root / "results/results.json").read_text())
    assert_schema(results)
    by_name = {one["name"]: one for one in results["tests"]}
    assert by_name["score-scale: mean"]["score"] == 1.0
    assert by_name["score-scale: variance"]["output"].startswith("wrong. forgot that the mean")
    assert "2*s" not in json.dumps(results)
    assert "2s" not in json.dumps(results, ensure_ascii=False)
    assert results["leaderboard"] == [{"name": "points", "value": 1.0}]
    assert {one["visibility"] for one in results["tests"]} == {"after_due_date"}


def test_points_are_the_courses_and_reveal_shows_the_solution(tmp_path: Path) -> None:
    assignment = Assignment(("score-scale",), points={"score-scale": 2.5}, reveal=True)
    root = unpack(tmp_path, autograder_zip(assignment), {"answers.toml": '[score-scale]\nmean = "m"\nvariance = "d"\n'})
    results = grade_submission(root)
    mean, variance, *_ = results["tests"]
    assert mean["score"] == mean["max_score"] == 2.5
    assert "is right" in variance["output"]


def test_the_students_address_decides_the_numbers(tmp_path: Path) -> None:
    (exercise,) = select_exercises(["score-scale"])
    own = student_variant(exercise, EMAIL, 7).part("variance")
    assert isinstance(own.answer, Number)
    answers = f"[score-scale]\nvariance = {read_number(own.answer.right)!r}\n"
    root = unpack(tmp_path, autograder_zip(Assignment(("score-scale",), seed=7)), {"answers.toml": answers})
    assert grade_submission(root)["tests"][1]["status"] == "passed"
    (root / "submission_metadata.json").write_text("{}")
    assert "e-mail address" in grade_submission(root)["output"]


def test_a_submission_without_answers_has_no_points_and_a_reason(tmp_path: Path) -> None:
    results = grade_submission(unpack(tmp_path, autograder_zip(Assignment(("score-scale",))), {}))
    assert_schema(results)
    assert results["score"] == 0.0
    assert "answers.toml" in results["output"]


def test_a_competition_shows_bits_per_byte(tmp_path: Path) -> None:
    text = "the cat sat on the mat. " * 80
    (tmp_path / "text").write_text(text)
    content = autograder_zip(Assignment((), competition=True), text.encode())
    root = unpack(tmp_path / "autograder", content, {}) if (tmp_path / "autograder").mkdir() is None else tmp_path
    octavo.train("ngram", tmp_path / "text", order=3, out=root / "submission/run", measure=False)
    results = grade_submission(root)
    assert_schema(results)
    assert [one["order"] for one in results["leaderboard"]] == ["asc", "asc"]
    assert 0 < results["leaderboard"][0]["value"] < 2


def test_an_autograder_for_an_assignment_of_a_course(tmp_path: Path) -> None:
    course = tmp_path / "course.toml"
    course.write_text('[[assignment]]\nname = "week1"\nexercises = ["score-scale"]\nseed = 7\n'
                      'points = { "score-scale.mean" = 3 }\n')  # fmt: skip
    words = ["exercises", "gradescope", "--course", str(course), "--out", str(tmp_path / "a.zip")]
    assert main([*words, "--assignment", "week2"]) == 2
    assert main([*words, "--assignment", "week1"]) == 0
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        made = json.loads(archive.read("assignment.json"))
    assert (made["exercises"], made["seed"], made["points"]) == (["score-scale"], 7, {"score-scale.mean": 3})


def test_what_cannot_be_an_assignment_is_refused_before_the_upload(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no exercise, topic or source"):
        autograder_zip(Assignment(("no-such",)))
    with pytest.raises(UserError, match="hidden text"):
        autograder_zip(Assignment(("score-scale",), competition=True))
    assert main(["exercises", "gradescope", "--out", str(tmp_path / "a.zip")]) == 2
    assert not (tmp_path / "a.zip").exists()


def test_the_requirements_are_the_packages_without_extras() -> None:
    names = requirements()
    assert any(one.startswith("torch") for one in names)
    assert not any("extra" in one or one.startswith("pytest") for one in names)
