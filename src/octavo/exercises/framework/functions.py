"""Grading functions: which files of a student are run, and what share of a function's cases is right."""

from __future__ import annotations

import dataclasses
import os
import stat
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from octavo.errors import UserError
from octavo.exercises.framework.answers import Function
from octavo.exercises.framework.exercise import Part
from octavo.exercises.framework.isolation import Backend, CaseResult, IsolationError, call_functions, choose_backend
from octavo.exercises.framework.limits import Limits
from octavo.io.system import NOT_A_LINK, NOT_INHERITED, NOT_WAITED_FOR

MAX_SOURCE_BYTES = 1 << 20  # of all Python files of one student
MAX_SHOWN_CHARACTERS = 60  # of a file's name in a message


class FunctionGrade(NamedTuple):
    """How a function was graded: the share of its cases that is right, the condition it needs, and what differs."""

    share: float
    condition: str
    why: str
    solution: str  # the first case that differs, with the right result


class FunctionRunner:
    """Runs students' functions in a backend, which is chosen when the first function is run."""

    def __init__(self, limits: Limits, choose: Callable[[], Backend] = choose_backend) -> None:
        self.limits, self._choose = limits, choose
        self._lock = threading.Lock()
        self._backend: Backend | None = None
        self.refusal = ""  # why no function can be run here

    def run(self, answers: Path, wanted: Mapping[tuple[str, str], tuple[Any, Function]]) -> dict[Any, Any]:
        """For each key the results of its function, case by case, or the UserError that says why there are none.

        `wanted` maps a key to the answer, which must be the name of a file, and the function expected in that file.
        """
        outcomes: dict[Any, Any] = {}
        by_file: dict[str, list[tuple[str, str]]] = {}
        sources: dict[str, bytes] = {}
        for key, (given, _) in wanted.items():
            name = given if isinstance(given, str) else repr(given)  # a list could not be a key
            try:
                if name not in by_file:
                    sources[name] = _read_source(answers, name, sources)
                by_file.setdefault(name, []).append(key)
            except UserError as error:
                outcomes[key] = error
        for name, keys in by_file.items():
            functions = [(wanted[key][1].name, wanted[key][1].cases) for key in keys]
            try:
                results: Sequence[Any] = self._call(sources, name, functions)
            except IsolationError:
                raise  # no fault of the student, who must not lose marks for it
            except UserError as error:
                results = [error] * len(keys)
            outcomes |= dict(zip(keys, results, strict=True))
        return outcomes

    def start(self) -> Backend:
        """The backend; a UserError says why there is none."""
        with self._lock:
            if self._backend is None and not self.refusal:
                try:
                    self._backend = self._choose()
                except UserError as error:
                    self.refusal = str(error)
        if self._backend is None:
            raise UserError(self.refusal)
        return self._backend

    def _call(self, sources: dict[str, bytes], name: str, functions: Any) -> list[list[CaseResult]]:
        return call_functions(self.start(), sources, name, functions, self.limits)


def _read_source(answers: Path, name: str, others: Mapping[str, bytes]) -> bytes:
    """A Python file in the student's own folder; any other could be another student's."""
    if not name.endswith(".py"):
        raise UserError(f'the answer must be the name of a Python file, such as "answers.py": it is {_shown(name)}')
    missing = UserError(f"the Python file must be beside {answers.name}: {_shown(name)} is not")
    if os.path.basename(name) != name:
        raise missing
    try:
        handle = os.open(answers.parent / name, os.O_RDONLY | NOT_A_LINK | NOT_INHERITED | NOT_WAITED_FOR)
    except (OSError, ValueError):
        raise missing from None
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise missing
        source = file.read(MAX_SOURCE_BYTES + 1)
    if len(source) + sum(map(len, others.values())) > MAX_SOURCE_BYTES:
        raise UserError(f"the Python files of one student may have {MAX_SOURCE_BYTES:,} bytes; shorten them")
    return source


def grade_function(part: Part, results: Sequence[CaseResult]) -> FunctionGrade:
    """Compare the results of a function, case by case; a UserError if there is not even one."""
    answer = part.answer
    assert isinstance(answer, Function)
    expected = [answer.right(*case) for case in answer.cases]
    differences = [_difference(answer, *one) for one in zip(answer.cases, results, expected, strict=True)]
    share = differences.count(None) / len(differences)
    if share == 1.0:
        return FunctionGrade(1.0, "", "", "")
    if all(result.problem for result in results):
        raise UserError(results[0].problem)
    first = next(difference for difference in differences if difference is not None)
    for condition, other in part.only_if.items():
        if _matches(answer, results, other):
            return FunctionGrade(share, condition, "", first)
    mistake = next((name for name, other in part.wrong.items() if _matches(answer, results, other)), "")
    count = f"{differences.count(None)} of {len(differences)} cases are right" if share else ""
    problem = next((result.problem for result in results if result.problem), "")
    solution = first if first != problem else ""
    return FunctionGrade(share, "", "; ".join(filter(None, (mistake, count, problem))), solution)


def _difference(answer: Function, case: tuple[Any, ...], result: CaseResult, expected: Any) -> str | None:
    if result.problem:
        return result.problem
    return dataclasses.replace(answer, cases=[case]).compare([result.value], [expected])


def _matches(answer: Function, results: Sequence[CaseResult], other: Any) -> bool:
    """Whether these are the results of another function, of ours."""
    if any(result.problem for result in results):
        return False
    return answer.compare([result.value for result in results], [other(*case) for case in answer.cases]) is None


def _shown(name: str) -> str:
    text = repr(name)
    return text if len(text) <= MAX_SHOWN_CHARACTERS else text[: MAX_SHOWN_CHARACTERS - 3] + "..."
