"""Checking many exercises in parallel: each in one of a few processes, the results in the requested order."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import NamedTuple

from octavo.exercises.framework.exercise import Evidence, Exercise, Part
from octavo.exercises.framework.registry import select_exercises

MAX_PROCESSES = 8


class CheckedExercise(NamedTuple):
    """The evidence for one exercise's parts and the time it took; `problem` is the exception that ended the check."""

    id: str
    parts: tuple[tuple[str, str, Evidence], ...]  # the part's id, its kind of evidence, the outcome
    seconds: float
    problem: str = ""
    figure: str = ""  # HTML, if it was requested

    @property
    def holds(self) -> bool:
        return not self.problem and all(evidence.holds for _, _, evidence in self.parts)


def check_exercise(exercise: Exercise, full: bool = False, draw: bool = False) -> CheckedExercise:
    """Check every part, then draw the figure if asked to; an exception counts as a failed check of this exercise."""
    start, parts, problem = time.perf_counter(), [], ""
    for part in exercise.parts:
        evidence, problem = check_part(part, full)
        if evidence is None:
            break
        parts.append((part.id, part.kind, evidence))
    seconds = time.perf_counter() - start
    figure = exercise.figure() if draw and exercise.figure else ""  # here, where trained models are still cached
    return CheckedExercise(exercise.id, tuple(parts), seconds, problem, figure)


def check_part(part: Part, full: bool = False) -> tuple[Evidence | None, str]:
    """The evidence for one claim; None and a description if computing it raised an exception."""
    try:
        return part.check(full), ""
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
