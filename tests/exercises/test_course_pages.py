"""The course in docs/course: its file loads, its pages name real exercises, and their commands are accepted."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from octavo.cli import VERBS, main
from octavo.cli.exercises import ACTIONS
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
def test_a_lecture_has_its_parts_and_its_commands_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert re.findall(r"^## (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE) == HEADINGS
    lines = [words for words in commands(page) if words[:2] == ["octavo", "exercises"] and words[2] in WRITTEN]
    assert {words[2] for words in lines} >= {"sheet", "notebook", "template", "gradescope", "moodle"}
    shutil.copy(COURSE / "course.toml", tmp_path)
    monkeypatch.chdir(tmp_path)
    for words in lines:
        assert main(words[1:]) == 0
        assert (tmp_path / words[words.index("--out") + 1]).exists()


@pytest.mark.parametrize(
    "page", [*LECTURES, COURSE / "README.md", COURSE.parent / "course.md"], ids=lambda page: page.stem
)
def test_every_flag_on_the_pages_is_known(page: Path) -> None:
    for words in commands(page):
        if words[0] == "octavo":
            assert words[1] in VERBS
            assert words[1] != "exercises" or words[2] in ACTIONS
