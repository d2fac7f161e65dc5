"""Checking exercises: many in parallel, or one claim at a time in a process that can be cancelled.

python -m octavo.exercises.framework.checking reads requests as lines of JSON and answers each with one line.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import select
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any, NamedTuple

from octavo.errors import UserError
from octavo.exercises.framework.exercise import Evidence, Exercise, Part
from octavo.exercises.framework.limits import POLL_SECONDS, JsonProcess
from octavo.exercises.framework.mathml import prose_as_text
from octavo.exercises.framework.registry import select_exercises

MAX_PROCESSES = 8
IDLE_SECONDS = 300.0  # without a request, after which the process ends
NICENESS = 10  # so that pages stay responsive while it computes


class CheckedExercise(NamedTuple):
    """The evidence for one exercise's parts and the time it took; `problem` is the exception that ended the check."""

    id: str
    parts: tuple[tuple[str, str, Evidence], ...]  # the part's id, its kind of evidence, the outcome
    seconds: float
    problem: str = ""
    figure: str = ""  # HTML, if it was requested

    @property
    def holds(self) -> bool:
        return not self.problem and all(evidence.holds or evidence.skipped for _, _, evidence in self.parts)


def check_exercise(exercise: Exercise, full: bool = False, draw: bool = False) -> CheckedExercise:
    """Check every part, then draw the figure if asked to; an exception counts as a failed check of this exercise."""
    start, parts, problem = time.perf_counter(), [], ""
    for part in exercise.parts:
        evidence, problem = check_part(exercise, part, full)
        if evidence is None:
            break
        parts.append((part.id, part.kind, evidence))
    problem = problem or "; ".join(exercise.text_problems())
    seconds = time.perf_counter() - start
    figure = exercise.figure() if draw and exercise.figure else ""  # here, where trained models are still cached
    return CheckedExercise(exercise.id, tuple(parts), seconds, problem, figure)


def check_part(exercise: Exercise, part: Part, full: bool = False) -> tuple[Evidence | None, str]:
    """The evidence for one claim; None and a description if computing it raised an exception."""
    try:
        return part.check(full, exercise.facts(part)), ""
    except Exception as error:
        return None, f"{part.id}: {type(error).__name__}: {error}"


def check_exercises(
    exercises: Sequence[Exercise], folder: str | None = None, full: bool = False,
    advance: Callable[[float], None] = lambda _: None, processes: int | None = None, draw: bool = False,
) -> list[CheckedExercise]:  # fmt: skip
    """Check exercises in parallel, and draw their figures; `folder` is where a teacher's own come from."""
    workers = min(processes or os.cpu_count() or 1, len(exercises), MAX_PROCESSES)
    results: dict[str, CheckedExercise] = {}
    if workers <= 1:
        for exercise in exercises:
            results[exercise.id] = check_exercise(exercise, full, draw)
            advance(1)
        return list(results.values())
    # A fork would copy locks held by torch's threads, so processes are spawned; they look exercises up by id.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_use_one_thread) as pool:
        futures = [pool.submit(_check_by_id, exercise.id, folder, full, draw) for exercise in exercises]
        for future in as_completed(futures):
            result = future.result()
            results[result.id] = result
            advance(1)
    return [results[exercise.id] for exercise in exercises]


def _use_one_thread() -> None:
    import torch

    torch.set_num_threads(1)  # the processes already use all cores


def _check_by_id(name: str, folder: str | None, full: bool, draw: bool) -> CheckedExercise:
    [exercise] = select_exercises([name], folder)
    return check_exercise(exercise, full, draw)


class CheckProcess(JsonProcess):
    """Client of one process, which is started on the first request and serves one request at a time."""

    def __init__(self) -> None:
        one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        super().__init__("octavo.exercises.framework.checking", environment=one_thread)
        self._lock = threading.Lock()

    def warm_up(self) -> None:
        """Start the process if it does not run, so that the next request need not wait for its imports."""
        if self._lock.acquire(blocking=False):
            try:
                self.start()
            finally:
                self._lock.release()

    def check(self, exercise: str, part: str, raise_if_cancelled: Callable[[], None]) -> dict[str, Any]:
        """The evidence for one claim; `raise_if_cancelled` is called while waiting, and may raise to stop it."""
        return self._ask({"do": "check", "exercise": exercise, "part": part}, raise_if_cancelled)

    def figure(self, exercise: str, raise_if_cancelled: Callable[[], None]) -> str:
        """An exercise's figure as HTML, empty if it has none."""
        return str(self._ask({"do": "figure", "exercise": exercise}, raise_if_cancelled)["figure"])

    def _ask(self, request: dict[str, Any], raise_if_cancelled: Callable[[], None]) -> dict[str, Any]:
        while not self._lock.acquire(timeout=POLL_SECONDS):
            raise_if_cancelled()
        try:
            reply = self._reply(request, raise_if_cancelled)
        except BaseException:  # a cancelled request must not leave its reply for the next one
            self.end()
            raise
        finally:
            self._lock.release()
        if "refused" in reply:
            raise UserError(reply["refused"])
        return reply

    def _reply(self, request: dict[str, Any], raise_if_cancelled: Callable[[], None]) -> dict[str, Any]:
        for _ in range(2):  # the process may just have ended because it was idle
            try:
                return self.request(request, poll=raise_if_cancelled)
            except (BrokenPipeError, json.JSONDecodeError):
                self.end()
        raise UserError("the process that computes exercises ended without an answer; try again")


def answer_request(request: dict[str, Any]) -> dict[str, Any]:
    """Compute the evidence or the figure that one request asks for."""
    try:
        [exercise] = select_exercises([request["exercise"]])
        if request["do"] == "figure":
            return {"figure": exercise.figure() if exercise.figure else ""}
        part = exercise.part(request["part"])
        evidence, problem = check_part(exercise, part)
        if evidence is None:
            return {"id": part.id, "evidence": part.kind, "holds": False, "problem": problem}
        return {"id": part.id, "evidence": part.kind, **evidence._asdict(), "note": prose_as_text(evidence.note)}
    except UserError as error:
        return {"refused": str(error)}


def main() -> None:
    os.nice(NICENESS)
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what an exercise prints must not be read as a reply
    select_exercises(())  # import everything before the first request
    while select.select([sys.stdin], [], [], IDLE_SECONDS)[0]:
        line = sys.stdin.readline()
        if not line:
            return
        print(json.dumps(answer_request(json.loads(line))), file=replies, flush=True)


if __name__ == "__main__":
    main()
