"""The questions without answers: as a page, with a student's own numbers, and as a PDF where there is a browser."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from octavo.cli import main
from octavo.errors import UserError
from octavo.exercises.formats.sheet import BROWSERS, print_pdf, question_sheet
from octavo.exercises.framework.registry import select_exercises
from octavo.exercises.framework.variants import student_variant

EXERCISES = select_exercises(["score-scale", "softmax-range", "greedy-or-best"])


def test_every_question_is_there_and_no_answer() -> None:
    page = question_sheet(EXERCISES, "Week 1")
    for one in EXERCISES:
        assert one.title.replace("'", "&#39;") in page
    assert page.count("<li>") >= sum(len(one.parts) for one in EXERCISES)
    assert "<details" not in page
    for one in EXERCISES:
        for part in one.parts:
            assert part.why[:40] not in page


def test_a_student_has_a_name_and_numbers_of_their_own() -> None:
    one, other = (
        question_sheet([student_variant(exercise, name, 7) for exercise in EXERCISES], "Week 1", name)
        for name in ("ada", "bob")
    )
    assert "Name: ada" in one
    assert one.replace("ada", "") != other.replace("bob", "")


@pytest.mark.browser
def test_a_browser_prints_it(tmp_path: Path) -> None:
    if not any(map(shutil.which, BROWSERS)):
        pytest.skip(f"a PDF needs one of {', '.join(BROWSERS[:3])}")
    assert main(["exercises", "sheet", "score-scale", "--out", str(tmp_path / "week1.pdf")]) == 0
    content = (tmp_path / "week1.pdf").read_bytes()
    assert content.startswith(b"%PDF-")
    assert content.rstrip().endswith(b"%%EOF")


def test_without_a_browser_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UserError, match="none is on the PATH"):
        print_pdf("<p>")


def test_numbers_need_a_student(tmp_path: Path) -> None:
    assert main(["exercises", "sheet", "score-scale", "--seed", "3", "--out", str(tmp_path / "a.html")]) == 2
    assert not (tmp_path / "a.html").exists()
