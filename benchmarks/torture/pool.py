"""Worker processes for trials: a fork of this process each, ended with all that it started when a trial hangs."""

from __future__ import annotations

import ctypes
import itertools
import multiprocessing
import os
import shutil
import signal
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torture.campaign import Attack, Result

PR_SET_CHILD_SUBREAPER = 36
POLL_SECONDS = 0.2
SETUP_SECONDS = 600.0  # that a part of a setup may take


class Worker:
    """A process that runs trials one after the other."""

    def __init__(self, attack: Attack, place: Path) -> None:
        context = multiprocessing.get_context("fork")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(attack, place, theirs, self.pipe), daemon=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads that a fork does not take along
            self.process.start()
        theirs.close()
        self.point: Any = None
        self.deadline = float("inf")
        self.is_busy = False
        self.trials = 0

    def give(self, kind: str, point: Any, limit_s: float) -> None:
        self.point, self.deadline, self.is_busy = point, time.monotonic() + limit_s, True
        self.trials += kind == "run"
        self.pipe.send((kind, point))

    def end(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid or 0, signal.SIGKILL)
        with suppress(ProcessLookupError):
            os.kill(self.process.pid or 0, signal.SIGKILL)
        self.process.join()
        self.pipe.close()


class Pool:
    """Workers for one attack."""

    def __init__(self, jobs: int, attack: Attack, place: Path) -> None:
        self.jobs, self.attack, self.place = jobs, attack, place
        self.workers: list[Worker] = []
        self.exhausted = False

    def __enter__(self) -> Pool:
        self.workers = [Worker(self.attack, self.place) for _ in range(self.jobs)]
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            worker.end()

    def run(self, kind: str, points: Iterator[Any], until: float) -> Iterator[tuple[Any, list[Result]]]:
        """Points and what came of them, as they are finished; none is begun after `until`."""
        self.exhausted = False
        while True:
            for worker in self.workers:
                if worker.is_busy or self.exhausted or time.monotonic() >= until:
                    continue
                first = list(itertools.islice(points, 1))
                if worker.trials >= self.attack.worker_trials:
                    worker = self._renew(worker)
                if first:
                    worker.give(kind, first[0], self.attack.limit_s if kind == "run" else SETUP_SECONDS)
                else:
                    self.exhausted = True
            busy = {worker.pipe: worker for worker in self.workers if worker.is_busy}
            if not busy:
                return
            for pipe in wait(list(busy), POLL_SECONDS):
                worker = busy.pop(pipe)  # type: ignore[call-overload]
                yield worker.point, self._answer(worker)
            for worker in busy.values():
                if time.monotonic() > worker.deadline:
                    yield worker.point, self._replace(worker, f"no end after {self.attack.limit_s:.0f} s")

    def _answer(self, worker: Worker) -> list[Result]:
        try:
            results: list[Result] = worker.pipe.recv()
        except (EOFError, ConnectionError):
            return self._replace(worker, "the worker process died")
        worker.is_busy = False
        return results

    def _renew(self, worker: Worker) -> Worker:
        worker.end()
        new = self.workers[self.workers.index(worker)] = Worker(self.attack, self.place)
        return new

    def _replace(self, worker: Worker, what: str) -> list[Result]:
        from torture.campaign import Outcome, Result

        self._renew(worker)
        return [Result(Outcome.HANG if "no end" in what else Outcome.OTHER, what)]


def _work(attack: Attack, place: Path, pipe: Connection, parents: Connection) -> None:
    """What a worker does: it leads a group of processes, and inherits those that lose their parent."""
    from torture.campaign import Outcome, Result

    parents.close()
    os.setsid()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    silent = os.open(os.devnull, os.O_RDWR)
    os.dup2(silent, 0)
    os.dup2(silent, 1)
    work = place
    while True:
        try:
            kind, point = pipe.recv()
        except (EOFError, ConnectionError):
            return
        if work != place:  # until now the parent could copy what the last trial shows
            shutil.rmtree(work, ignore_errors=True)
        results: list[Result] = []
        work = Path(tempfile.mkdtemp(prefix="trial-", dir=place))
        try:
            if kind == "setup":
                attack.setup(place, point)
            else:
                results = list(attack.run(place, point, work))
        except BaseException:
            results = [Result(Outcome.OTHER, "the campaign's own fault: " + traceback.format_exc()[-1500:])]
        pipe.send(results)
