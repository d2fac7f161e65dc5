"""One file and one entry in the registry add an exercise: it is listed, shown, checked, graded and printed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from octavo.cli import main
from octavo.errors import UserError
from octavo.exercises import topics
from octavo.exercises.framework import registry

DOCUMENTED = Path(__file__).parents[2] / "docs" / "exercises.md"


@pytest.fixture
def new_topic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The documented exercise as a module of the topics package, with one entry in the registry."""
    [code] = re.findall(r"```python\n(.*?)```", DOCUMENTED.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "gauss.py").write_text(code, encoding="utf-8")
    monkeypatch.setattr(topics, "__path__", [*topics.__path__, str(tmp_path)])
    monkeypatch.setitem(registry.TOPICS, "Sums", ("gauss",))
    return "first-sum"


def test_a_registered_exercise_is_listed_shown_and_checked(new_topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["exercises", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed[-1] == {"id": new_topic, "topic": "Sums", "title": "A sum", "parts": ["sum"], "sources": []}
    assert main(["exercises", "show", new_topic, "--answer"]) == 0
    shown = capsys.readouterr().out
    assert "Answer: 5,050" in shown
    assert "Common mistake: 4,950: left out the 100" in shown
    assert main(["exercises", "check", "sums", "--json"]) == 0
    [record] = json.loads(capsys.readouterr().out)
    assert (record["id"], record["holds"]) == (new_topic, True)


def test_a_registered_exercise_is_graded_and_in_the_booklet(
    new_topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answers, page = tmp_path / "answers.toml", tmp_path / "book.html"
    assert main(["exercises", "template", new_topic, "--out", str(answers)]) == 0
    answers.write_text(answers.read_text(encoding="utf-8").replace('sum = ""', "sum = 5050"), encoding="utf-8")
    capsys.readouterr()
    assert main(["exercises", "grade", str(answers), "--json"]) == 0
    [student] = json.loads(capsys.readouterr().out)
    assert (student["points"], student["of"]) == (1, 1)
    assert main(["exercises", "book", new_topic, "--out", str(page)]) == 0
    assert "A sum" in page.read_text(encoding="utf-8")


def test_two_exercises_with_one_id_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.TOPICS, "Again", ("softmax",))
    with pytest.raises(UserError, match="softmax-range occurs twice"):
        registry.exercises_by_topic()


def test_every_topic_module_is_registered() -> None:
    files = {file.stem for file in Path(next(iter(topics.__path__))).glob("[a-z]*.py")}
    assert files == {module for modules in registry.TOPICS.values() for module in modules}
