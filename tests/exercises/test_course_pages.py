"""The course in docs/course: its file loads, its pages name real exercises, and their commands are accepted."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from octavo.exercises.formats.course import load_course
from octavo.exercises.framework.registry import select_exercises

COURSE = Path(__file__).parents[2] / "docs/course"
LECTURES = sorted(COURSE.glob("[0-9]-*.md"))
WRITTEN = ("sheet", "notebook", "template", "gradescope", "moodle", "figure")  # actions that a test can run at once
HEADINGS = ["Reading", "Exercises", "Notebook", "Figure", "In class", "Assignment"]


def commands(page: Path) -> list[list[str]]:
    return [shlex.split(line[2:]) for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("$ ")]


def test_the_course_file_holds_the_exercises_of_the_lectures() -> None:
    course = load_course(COURSE / "course.toml")
    assert len(course.assignments) == len(LECTURES) == 8
    assert sum(one.weight for one in course.assignments) == 100
    for assignment, page in zip(course.assignments, LECTURES, strict=True):
        named = re.findall(r"^- `([\w-]+)`$", page.read_text(encoding="utf-8"), re.MULTILINE)
        assert [one.id for one in assignment.selected()] == [one.id for one in select_exercises(named)]
        assert set(assignment.exercises) == set(named)


def test_no_exercise_belongs_to_two_lectures() -> None:
    names = [name for one in load_course(COURSE / "course.toml").assignments for name in one.exercises]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("page", LECTURES, ids=lambda page: page.stem)
def test_a_lecture_has_its_parts_and_its_commands_run(page: Path, tmp_path: Path) -> None:
    assert re.findall(r"^## (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE) == HEADINGS
    lines = [words for words in commands(page) if words[:2] == ["octavo", "exercises"] and words[2] in WRITTEN]
    assert {words[2] for words in lines} >= {"sheet", "notebook", "template", "gradescope", "moodle"}
    program = "import json, sys\nfrom octavo.cli import main\nsys.exit(max(map(main, json.loads(sys.argv[1]))))\n"
    done = subprocess.run([sys.executable, "-P", "-c", program, json.dumps([words[1:] for words in lines])],
                          cwd=tmp_path, capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    for words in lines:
        assert (tmp_path / words[words.index("--out") + 1]).exists()


@pytest.mark.parametrize(
    "page", [*LECTURES, COURSE / "README.md", COURSE.parent / "course.md"], ids=lambda page: page.stem
)
def test_every_flag_on_the_pages_is_known(page: Path) -> None:
    from octavo.cli import VERBS
    from octavo.cli.exercises import ACTIONS

    for words in commands(page):
        if words[0] == "octavo":
            assert words[1] in VERBS
            assert words[1] != "exercises" or words[2] in ACTIONS
