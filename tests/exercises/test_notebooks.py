"""Notebooks: valid files that run, the solution right in every cell, and accepted by Otter-Grader and nbgrader."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from octavo.errors import UserError
from octavo.exercises import Function, Truth
from octavo.exercises.formats.notebooks import Layout, as_json, notebook_files, variable
from octavo.exercises.framework.mathml import prose_as_text
from octavo.exercises.framework.playground import PLAYGROUND
from octavo.exercises.framework.registry import exercises_by_topic, select_exercises
from octavo.exercises.notebook import check, figure, is_right, play

SOME = select_exercises(["score-scale", "softmax-derivatives"])  # formulas, verdicts and a function
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def needs(package: str) -> pytest.MarkDecorator:
    missing = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(missing, reason=f"{package} is not installed: pip install -e '.[course]'")


def write(folder: Path, layout: Layout) -> None:
    for path, text in notebook_files("scores", "Scores", SOME, layout).items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)


def sources(notebook: str) -> list[str]:
    return ["".join(cell["source"]) for cell in json.loads(notebook)["cells"] if cell["cell_type"] == "code"]


def run_cells(notebook: str) -> list[Any]:
    """The last value of every code cell, all run in one namespace."""
    space: dict[str, Any] = {}
    shown = []
    for source in sources(notebook):
        *lines, last = source.split("\n")
        exec("\n".join(lines) if last.startswith(("check(", "figure(", "play(")) else source, space)
        if last.startswith(("check(", "figure(", "play(")):
            shown.append(eval(last, space))
    return shown


@pytest.mark.parametrize("topic", exercises_by_topic())
def test_every_answer_of_a_topics_solution_is_right_and_the_students_copy_has_none(topic: str) -> None:
    exercises = exercises_by_topic()[topic]
    files = notebook_files("topic", topic, exercises)
    for one in json.loads(files["topic.ipynb"])["cells"]:
        assert set(one) >= {"cell_type", "id", "metadata", "source"}
    solved = [str(value) for value in run_cells(files["topic-solution.ipynb"])]
    parts = sum(len(one.parts) for one in exercises)
    assert solved.count("right") == parts
    empty = [str(value) for value in run_cells(files["topic.ipynb"])]
    assert empty.count("no answer yet") == parts


def test_a_wrong_answer_is_named_and_the_right_one_is_not_shown() -> None:
    assert repr(check("score-scale", "variance", "d*s^4 + 2*s^2*m")) == "right"
    assert repr(check("score-scale", "variance", "d*s^4 + m^2")).startswith("not right: forgot that the mean")
    assert repr(check("score-scale", "variance", "d*s^4 + 7")) == "not right"
    assert "cannot be read" in repr(check("score-scale", "variance", "d*("))
    assert "ZeroDivisionError" in repr(check("softmax-derivatives", "all", lambda z: 1 / 0))
    assert not is_right("score-scale", "variance", "d")


def test_the_mistake_of_a_function_is_named() -> None:
    for one in select_exercises(()):
        for part in one.parts:
            if isinstance(part.answer, Function):
                for mistake, function in part.wrong.items():
                    assert repr(check(one.id, part.id, function)) == f"not right: {prose_as_text(mistake)}"


def test_a_nearly_true_statement_needs_its_condition() -> None:
    nearly = [(one, part) for one in select_exercises(()) for part in one.parts
              if isinstance(part.answer, Truth) and part.answer.right == "nearly"]  # fmt: skip
    for one, part in nearly:
        assert not is_right(one.id, part.id, "nearly")
        assert is_right(one.id, part.id, f"only if {part.answer.condition.right}")  # type: ignore[union-attr]
        assert "only if" in repr(check(one.id, part.id, "false"))
        assert repr(check(one.id, part.id, True)).startswith("not right")


def test_figures_are_whole_in_themselves() -> None:
    html = figure("score-scale")._repr_html_()
    assert html is not None
    assert "<svg" in html
    with pytest.raises(UserError, match="there is no interactive exercise"):
        play("no-such")
    for name in PLAYGROUND:
        shown = play(name)._repr_html_()
        assert shown is not None
        assert "<svg" in shown


def test_a_notebook_is_the_same_to_the_byte_and_needs_an_exercise() -> None:
    assert as_json("Scores", SOME, "otter", False) == as_json("Scores", SOME, "otter", False)
    with pytest.raises(UserError, match="at least one exercise"):
        notebook_files("none", "None", [])


@needs("nbclient")
def test_jupyter_runs_the_notebooks(tmp_path: Path) -> None:
    import nbformat
    from nbclient import NotebookClient

    write(tmp_path, "plain")
    notebook = nbformat.read(tmp_path / "scores-solution.ipynb", 4)
    nbformat.validate(notebook)
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": tmp_path}}).execute()
    outputs = [out["data"]["text/plain"] for cell in notebook.cells if cell.cell_type == "code" for out in cell.outputs]
    assert outputs.count("right") == sum(len(one.parts) for one in SOME)


@needs("otter")
@pytest.mark.parametrize(("name", "share"), [("scores-solution", 1.0), ("scores", 0.0)])
def test_otter_grades_the_notebook(tmp_path: Path, name: str, share: float) -> None:
    write(tmp_path, "otter")
    (tmp_path / "out").mkdir()
    program = shutil.which("otter", path=ENVIRONMENT["PATH"])
    for command in (["generate", "-t", "tests", "-o", "autograder.zip", "--no-environment"],
                    ["run", f"{name}.ipynb", "-a", "autograder.zip", "-o", "out"]):  # fmt: skip
        subprocess.run([str(program), *command], cwd=tmp_path, env=ENVIRONMENT, check=True, capture_output=True)
    results = json.loads((tmp_path / "out/results.json").read_text())["tests"]
    scores = {one["name"]: one["score"] for one in results if "score" in one}
    assert scores == {variable(one, part): share * part.points for one in SOME for part in one.parts}


@needs("nbgrader")
def test_nbgrader_hides_the_solutions_and_grades(tmp_path: Path) -> None:
    write(tmp_path, "nbgrader")

    def nbgrader(*arguments: str) -> None:
        subprocess.run([sys.executable, "-m", "nbgrader", *arguments], cwd=tmp_path, env=ENVIRONMENT, check=True,
                       capture_output=True)  # fmt: skip

    nbgrader("generate_assignment", "scores")
    released = (tmp_path / "release/scores/scores.ipynb").read_text()
    assert "is_right(" not in released
    assert "d*s^4 + 2*s^2*m" not in released
    for name, copied in (("ada", "source"), ("bob", "release")):  # the solution, and what students get
        (tmp_path / "submitted" / name / "scores").mkdir(parents=True)
        shutil.copy(tmp_path / copied / "scores/scores.ipynb", tmp_path / "submitted" / name / "scores")
    nbgrader("autograde", "scores", "--create")
    nbgrader("export")
    header, *rows = [line.split(",") for line in (tmp_path / "grades.csv").read_text().split()]
    points = {row[header.index("student_id")]: float(row[header.index("raw_score")]) for row in rows}
    assert points == {"ada": sum(part.points for one in SOME for part in one.parts), "bob": 0.0}
