"""Where cells are executed: in this process, or in several worker processes.

A worker process, python -m octavo.experiments.executor, takes {"cell": {...}, "folder": "..."} as a line of JSON on
standard input and answers with a line of JSON. Everything else that is written meanwhile goes to standard error. When
its input ends, it stops at the next checkpoint.
"""

from __future__ import annotations

import _thread
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import redirect_stderr, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Protocol

from octavo.experiments.cell import Cell, Outcome, execute
from octavo.experiments.progress import Progress
from octavo.models.parts.checks import check_positive

# A worker that is stopped while it still imports ends without a traceback.
LAUNCH = "try:\n from octavo.experiments.executor import work; work()\nexcept KeyboardInterrupt: raise SystemExit(130)"
STOP_SECONDS = 60.0  # that stopped workers may take for their checkpoints


class Executor(Protocol):
    """Executes cells somewhere, and gives their outcomes in the order in which they are finished."""

    @property
    def jobs(self) -> int:
        """How many cells it executes at a time."""

    def execute(self, cells: Iterable[Cell], folder: Path, progress: Progress) -> Iterator[Outcome]:
        """Take cells one by one, as soon as there is room for them; `folder` is the experiment's."""


class ThisProcess:
    """One cell after the other, here."""

    jobs = 1

    def execute(self, cells: Iterable[Cell], folder: Path, progress: Progress) -> Iterator[Outcome]:
        for cell in cells:
            with redirect_stderr(progress.stream):
                outcome = execute(cell, folder)
            yield outcome


def local_executor(jobs: int) -> Executor:
    """So many cells at a time on this machine."""
    check_positive("jobs", jobs, 2)
    return ThisProcess() if jobs == 1 else Workers(jobs)


class Workers:
    """So many processes of this machine, each with its share of the cores; one that dies costs only its cell."""

    def __init__(self, jobs: int) -> None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        asked = os.environ.get("OMP_NUM_THREADS", "")  # fewer where the user asks for fewer
        self.jobs, self.threads = jobs, max(1, min(cores // jobs, int(asked) if asked.isdigit() else cores))

    def execute(self, cells: Iterable[Cell], folder: Path, progress: Progress) -> Iterator[Outcome]:
        waiting, answers = iter(cells), queue.Queue[Answer]()
        started: list[_Worker] = []
        busy: set[_Worker] = set()
        try:
            while True:
                while len(busy) < self.jobs and (cell := next(waiting, None)) is not None:
                    idle = next((one for one in started if one not in busy and one.process.poll() is None), None)
                    if idle is None:
                        idle = _Worker(self.threads, progress, answers)
                        started.append(idle)
                    idle.give(cell, folder)
                    busy.add(idle)
                if not busy:
                    return
                worker, outcome = answers.get()
                if worker not in busy:  # it has died while it had nothing to do
                    continue
                busy.discard(worker)
                yield worker.death() if outcome is None else outcome
        except (KeyboardInterrupt, GeneratorExit):
            _stop(busy)
            raise
        finally:
            for worker in started:
                worker.end()


class _Worker:
    """A process and the threads that listen to it."""

    cell: Cell

    def __init__(self, threads: int, progress: Progress, answers: queue.Queue[Answer]) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [sys.executable, "-c", LAUNCH], stdin=pipe, stdout=pipe, stderr=pipe, text=True,
            encoding="utf-8", errors="backslashreplace", start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": str(threads)},
        )  # fmt: skip
        self.listeners = [
            threading.Thread(target=self._listen, args=(answers,), daemon=True),
            threading.Thread(target=self._pass_on, args=(progress,), daemon=True),
        ]
        for listener in self.listeners:
            listener.start()

    def give(self, cell: Cell, folder: Path) -> None:
        self.cell = cell
        assert self.process.stdin is not None
        with suppress(OSError):  # a worker that has died says so by the end of its output
            self.process.stdin.write(json.dumps({"cell": asdict(cell), "folder": str(folder.absolute())}) + "\n")
            self.process.stdin.flush()

    def death(self) -> Outcome:
        """The outcome of a cell whose process has ended."""
        code = self.process.wait()
        why = f"signal {-code} killed" if code < 0 else f"exit code {code} ended"
        return Outcome(self.cell, error=f"{why} the process that worked on it; run the same command to try again")

    def end(self) -> None:
        """Let the process end, as it does when its input ends, and wait for that."""
        assert self.process.stdin is not None
        with suppress(OSError):
            self.process.stdin.close()
        self.process.wait()
        for listener in self.listeners:
            listener.join()

    def _listen(self, answers: queue.Queue[Answer]) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                answers.put((self, Outcome.of(json.loads(line))))
        if self.process.wait() != 0:
            answers.put((self, None))

    def _pass_on(self, progress: Progress) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            for line in lines:
                progress.stream.write(line)


Answer = tuple[_Worker, Outcome | None]  # None: the worker has died


def _stop(workers: set[_Worker]) -> None:
    """Let the workers save checkpoints; a second interrupt, or too long a wait, ends them at once."""
    for worker in workers:
        with suppress(OSError):
            if os.name == "nt":  # which sends no interrupts: the end of its input is one
                worker.process.stdin.close()  # type: ignore[union-attr]
            else:
                worker.process.send_signal(signal.SIGINT)
    try:
        for worker in workers:
            worker.process.wait(STOP_SECONDS)
    except (KeyboardInterrupt, subprocess.TimeoutExpired):
        for worker in workers:
            worker.process.kill()


def work() -> None:
    """Execute cells from standard input until there are no more."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where a shell has started us in the background
    lines, working = queue.Queue[str](), threading.Event()
    threading.Thread(target=_read, args=(lines, working), daemon=True).start()
    with suppress(KeyboardInterrupt):
        while line := lines.get():
            working.set()
            request = json.loads(line)
            outcome = execute(Cell(**request["cell"]), Path(request["folder"]))
            print(json.dumps(outcome.to_json(), allow_nan=False), file=answers, flush=True)
            working.clear()


def _read(lines: queue.Queue[str], working: threading.Event) -> None:
    """Pass the lines of standard input on; at its end, ask a training that is under way to save and stop."""
    for line in sys.stdin:
        lines.put(line)
    lines.put("")
    if working.is_set():
        os.kill(os.getpid(), signal.SIGINT) if os.name == "posix" else _thread.interrupt_main()
