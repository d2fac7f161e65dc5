"""Jupyter notebooks of a topic: one for students and one with solutions, in the layouts of Otter-Grader and nbgrader.

A plain notebook checks answers by itself, without marks. Otter-Grader reads the tests beside its notebook
(`otter generate` and `otter run`); nbgrader reads its notebook from source/ASSIGNMENT and removes the solutions and
the hidden tests (`nbgrader generate_assignment`).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from octavo.errors import UserError
from octavo.exercises.framework.answers import Choice, Function, Truth
from octavo.exercises.framework.exercise import Exercise, Part
from octavo.exercises.framework.grading import answer_hints, condition_hints
from octavo.exercises.framework.mathml import prose_as_text
from octavo.exercises.framework.playground import PLAYGROUND

Layout = Literal["plain", "otter", "nbgrader"]
IMPORTS = "from octavo.exercises.notebook import check, figure, is_right, play"
OTTER_START = "import otter\n\ngrader = otter.Notebook()"
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def notebook_files(
    name: str, title: str, exercises: Sequence[Exercise], layout: Layout = "plain"
) -> dict[str, str]:  # fmt: skip
    """The files of a notebook by path: the students' notebook, the one with solutions, and what the layout needs."""
    if not exercises:
        raise UserError("a notebook needs at least one exercise: none is named")
    student, solution = (as_json(title, exercises, layout, solved) for solved in (False, True))
    if layout == "nbgrader":
        return {f"source/{name}/{name}.ipynb": solution}
    files = {f"{name}.ipynb": student, f"{name}-solution.ipynb": solution}
    if layout == "otter":
        files |= {f"tests/{variable(one, part)}.py": otter_test(one, part) for one in exercises for part in one.parts}
    return files


def as_json(title: str, exercises: Sequence[Exercise], layout: Layout, solved: bool) -> str:
    """The notebook as JSON, in version 4.5 of its format."""
    cells = list(_cells(title, exercises, layout, solved))
    for number, cell in enumerate(cells):
        cell["id"] = hashlib.sha256(f"{number}/{''.join(cell['source'])}".encode()).hexdigest()[:12]
    metadata = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    return json.dumps({"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}, indent=1) + "\n"


def _cells(title: str, exercises: Sequence[Exercise], layout: Layout, solved: bool) -> Iterator[dict[str, Any]]:
    yield _markdown(f"# {title}\n\nWrite your answers into the cells that say so, and run the cell below each.")
    yield _code(f"{OTTER_START}\n{IMPORTS}" if layout == "otter" else IMPORTS, _locked("imports", layout))
    for one in exercises:
        yield _markdown(f"## {one.title}\n\n{prose_as_text(one.question)}")
        for part in one.parts:
            yield _markdown("\n\n".join([f"### {part.id}", _asked(part)]))
            yield _code(_answer_cell(one, part, layout, solved), _answer_metadata(one, part, layout))
            yield _code(_check_cell(one, part, layout), _check_metadata(one, part, layout))
            if solved and layout != "nbgrader":
                yield _markdown(f"**Solution.** {prose_as_text(part.why)}")
        if solved and one.figure is not None and layout != "nbgrader":
            yield _code(f'figure("{one.id}")')
        for name, playground in PLAYGROUND.items():
            if playground.exercise_id == one.id:
                settings = ", ".join(f"{control.name}={control.value!r}" for control in playground.parameters)
                yield _markdown(f"**Play.** {playground.title}: change a value and run the cell again.")
                yield _code(f'play("{name}", {settings})', _locked(f"play-{name}", layout, locked=False))
    if layout == "otter":
        yield _code("grader.check_all()")


def _asked(part: Part) -> str:
    ask = f"True or false? {part.ask}" if isinstance(part.answer, Truth) else part.ask
    hint, *options = answer_hints(part.answer)
    if isinstance(part.answer, Truth) and part.answer.condition is not None:
        options += [*condition_hints(part.answer), 'write the condition as "only if ..."']
    listed = "\n".join(f"- {prose_as_text(option)}" for option in options)
    points = f"{part.points:g} {'point' if part.points == 1 else 'points'}"
    return "\n\n".join(filter(None, [prose_as_text(ask), listed, f"*{prose_as_text(hint)}; {points}*"]))


def variable(exercise: Exercise, part: Part) -> str:
    """The name of the variable that holds an answer; of a function answer, the function's own name."""
    return f"{exercise.id}_{part.id}".replace("-", "_")


def _answer_cell(exercise: Exercise, part: Part, layout: Layout, solved: bool) -> str:
    answer = part.answer
    name = variable(exercise, part)
    if isinstance(answer, Function):
        inside = re.split("[,;]", answer.signature.partition("(")[2].partition(")")[0])
        names = ", ".join(name for piece in inside if (name := piece.split(":")[0].strip()).isidentifier())
        empty = f"# {answer.signature}\ndef {answer.name}({names}):\n    raise NotImplementedError"
        right = f"# {answer.signature}\nfrom octavo.exercises.notebook import solution\n\n" \
                f'{answer.name} = solution("{exercise.id}", "{part.id}")'  # fmt: skip
    else:
        empty, right = f'{name} = ""', f"{name} = {_literal(part)}"
    if layout == "nbgrader":
        return f"### BEGIN SOLUTION\n{right}\n### END SOLUTION"
    return right if solved else empty


def _literal(part: Part) -> str:
    right = part.answer.right
    if isinstance(part.answer, Truth) and right == "nearly":
        return repr(f"only if {part.answer.condition.right}")
    if isinstance(part.answer, Truth | Choice) or isinstance(right, str):
        return repr(right)
    return repr(right) if isinstance(right, int | float) else repr(str(right))


def _given(exercise: Exercise, part: Part) -> str:
    return part.answer.name if isinstance(part.answer, Function) else variable(exercise, part)


def _check_cell(exercise: Exercise, part: Part, layout: Layout) -> str:
    arguments = f'"{exercise.id}", "{part.id}", {_given(exercise, part)}'
    if layout == "otter":
        return f'grader.check("{variable(exercise, part)}")'
    if layout == "nbgrader":
        return f"check({arguments})\n### BEGIN HIDDEN TESTS\nassert is_right({arguments})\n### END HIDDEN TESTS"
    return f"check({arguments})"


def otter_test(exercise: Exercise, part: Part) -> str:
    """The test file of a part in Otter-Grader's dictionary format: a visible case without points, a hidden one with."""
    given = _given(exercise, part)
    cases = [
        {"code": f">>> {given} != ''\nTrue", "hidden": False, "locked": False, "points": 0},
        {
            "code": f'>>> from octavo.exercises.notebook import is_right\n'
                    f'>>> is_right("{exercise.id}", "{part.id}", {given})\nTrue',
            "hidden": True, "locked": False, "points": part.points,
        },
    ]  # fmt: skip
    suite = {"cases": cases, "scored": True, "setup": "", "teardown": "", "type": "doctest"}
    test = {"name": variable(exercise, part), "points": None, "suites": [suite]}
    return f"OK_FORMAT = True\n\ntest = {test!r}\n"


def _markdown(text: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": text.splitlines(keepends=True)}


def _code(text: str, metadata: dict[str, Any] | None = None) -> dict[str, Any]:
    source = text.splitlines(keepends=True)
    return {"cell_type": "code", "execution_count": None, "metadata": metadata or {}, "outputs": [], "source": source}


def _locked(name: str, layout: Layout, locked: bool = True) -> dict[str, Any]:
    return _nbgrader(name, layout, locked=locked, grade=False, solution=False)


def _answer_metadata(exercise: Exercise, part: Part, layout: Layout) -> dict[str, Any]:
    return _nbgrader(f"{exercise.id}_{part.id}", layout, locked=False, grade=False, solution=True)


def _check_metadata(exercise: Exercise, part: Part, layout: Layout) -> dict[str, Any]:
    graded = _nbgrader(f"{exercise.id}_{part.id}_check", layout, locked=True, grade=True, solution=False)
    if graded:
        graded["nbgrader"]["points"] = part.points
    return graded


def _nbgrader(name: str, layout: Layout, **roles: bool) -> dict[str, Any]:
    if layout != "nbgrader":
        return {}
    return {"nbgrader": {"grade_id": name, "schema_version": 3, "task": False, **roles}}
