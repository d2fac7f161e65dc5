"""Checking many exercises at once: each in one of a few processes, the results in the order asked for."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import NamedTuple

from octavo.exercises.framework.exercise import Evidence, Exercise, Part
from octavo.exercises.framework.registry import chosen

MOST_PROCESSES = 8


class Checked(NamedTuple):
    """One exercise's parts with their evidence, by name, and how long it took; `problem` is what stopped it."""

    id: str
    parts: tuple[tuple[str, str, Evidence], ...]  # the part's id, its kind of evidence, what came of it
    seconds: float
    problem: str = ""
    figure: str = ""  # where it was asked for

    @property
    def holds(self) -> bool:
        return not self.problem and all(evidence.holds for _, _, evidence in self.parts)


def check_one(exercise: Exercise, full: bool = False) -> Checked:
    """Check every part; an exception is a failed check, not the end of the others."""
    began, parts, problem = time.perf_counter(), [], ""
    for part in exercise.parts:
        evidence, problem = check_part(part, full)
        if evidence is None:
            break
        parts.append((part.id, part.kind, evidence))
    return Checked(exercise.id, tuple(parts), time.perf_counter() - began, problem)


def check_part(part: Part, full: bool = False) -> tuple[Evidence | None, str]:
    """The evidence for one claim; None and what happened where computing it ended in an exception."""
    try:
        return part.check(full), ""
    except Exception as error:
        return None, f"{part.id}: {type(error).__name__}: {error}"


def check_all(
    exercises: Sequence[Exercise], folder: str | None = None, full: bool = False,
    advance: Callable[[float], None] = lambda _: None, processes: int | None = None, draw: bool = False,
) -> list[Checked]:  # fmt: skip
    """Check exercises in parallel, and draw their figures; `folder` is where a teacher's own come from."""
    count = min(processes or os.cpu_count() or 1, len(exercises), MOST_PROCESSES)
    if count <= 1:
        done = []
        for one in exercises:
            done.append(_drawn(one, check_one(one, full)) if draw else check_one(one, full))
            advance(1)
        return done
    # Forking would copy the threads' locks of torch, so processes are started anew; they are asked by name.
    context = multiprocessing.get_context("spawn")
    results: dict[str, Checked] = {}
    with ProcessPoolExecutor(count, mp_context=context, initializer=_one_thread) as pool:
        waiting = [pool.submit(_by_name, one.id, folder, full, draw) for one in exercises]
        for ready in as_completed(waiting):
            result = ready.result()
            results[result.id] = result
            advance(1)
    return [results[one.id] for one in exercises]


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)  # the processes already fill the cores


def _by_name(name: str, folder: str | None, full: bool, draw: bool) -> Checked:
    [exercise] = chosen([name], folder)
    checked = check_one(exercise, full)
    return _drawn(exercise, checked) if draw else checked


def _drawn(exercise: Exercise, checked: Checked) -> Checked:
    """With its figure, drawn where what was trained for the check is still at hand."""
    return checked._replace(figure=exercise.figure() if exercise.figure else "")
