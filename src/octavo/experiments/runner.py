"""The one runner of experiments: cells that are not finished are executed, stored one by one, and reported.

experiment.json  which experiment this is, and what all of its cells have in common
cells/KEY.json   a cell and what came of it: started, finished or failed
KEY/             its run
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

from octavo import __version__
from octavo.config import plain_json
from octavo.errors import Stopped, UserError
from octavo.experiments.cell import FINISHED, Cell, Outcome
from octavo.experiments.executor import Executor, ThisProcess, Workers
from octavo.experiments.progress import Progress
from octavo.io import system
from octavo.io.files import write_text
from octavo.io.run_folder import COMPARISON, CONFIG
from octavo.models.parts.checks import check_positive

HEADER, CELLS = "experiment.json", "cells"
FORMAT = 2  # 1 was octavo 0.1's, one file for each kind of experiment
BEFORE = {COMPARISON: "comparison", "scaling.json": "scaling series", "trained.json": "domains table"}
STARTED = "started"


class Store:
    """What is stored of one experiment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def open(
        cls, folder: Path, kind: str, common: Mapping[str, Any],
        differs: Callable[[Mapping[str, Any]], str] = lambda common: "", ours: Sequence[str] = (),
    ) -> Store:  # fmt: skip
        """The store in a folder, or a new one; another experiment's folder, or anything else, is refused.

        `differs` says how the common values of the folder differ from those of this experiment, and is empty where they
        do not matter; a new store may be made in a folder with files of the names `ours`.
        """
        store, path = cls(folder), folder / HEADER
        if not path.is_file():
            check_folder(folder, kind, ours)
            _write(path, {"format": FORMAT, "experiment": kind, "octavo": __version__, "common": dict(common)})
            return store
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            if record["experiment"] != kind or record["format"] != FORMAT:
                raise ValueError(f"it is a {record['experiment']} of format {record['format']!r}")
            difference = differs(record["common"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise UserError(
                f"{path} is damaged or foreign: {error}; delete {folder}, or choose another --out"
            ) from error
        if difference:
            raise UserError(f"{folder} is a {kind} {difference}; choose another --out, or delete {folder}")
        return store

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Within it, no other command executes cells of this folder; the lock of a killed one is released with it."""
        with open(self.folder / HEADER, "rb") as file:
            try:
                system.lock(file.fileno())
            except BlockingIOError as error:
                remedy = "wait for it or stop it, or choose another --out"
                raise UserError(f"another command is at work in {self.folder}; {remedy}") from error
            except OSError:  # a disk or a system without locks: nobody else can be seen
                pass
            yield

    def find(self, cell: Cell) -> Outcome | None:
        """The outcome of just this cell, if it is finished and the files that belong to it are there."""
        record = self._read(cell.key)
        if record.get("status") != FINISHED or record.get("cell") != plain_json(cell):
            return None
        try:
            outcome = Outcome.of(record)
        except (KeyError, TypeError):
            return None
        return outcome if all((self.folder / name).is_file() for name in outcome.value.get("files", ())) else None

    def start(self, cell: Cell) -> None:
        """Note that a cell is being executed; a run that was trained in another way is removed first."""
        run = self.folder / cell.key
        is_ours = cell.is_trained_here and (run / CONFIG).is_file()
        if is_ours and self._read(cell.key).get("training") != plain_json(cell.training):
            shutil.rmtree(run)
        _write(self._path(cell.key), {"status": STARTED, "training": cell.training, "cell": asdict(cell)})

    def save(self, outcome: Outcome) -> None:
        """Store what came of a cell."""
        _write(self._path(outcome.cell.key), outcome.to_json())

    def _path(self, key: str) -> Path:
        return self.folder / CELLS / f"{key}.json"

    def _read(self, key: str) -> dict[str, Any]:
        """The record of a cell; a damaged one counts as none."""
        try:
            record = json.loads(self._path(key).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return {}
        return record if isinstance(record, dict) else {}


def check_folder(folder: Path, kind: str, ours: Sequence[str] = ()) -> None:
    """Refuse a place where something stands that is not this experiment's."""
    if not os.path.lexists(folder) or (folder / HEADER).is_file():
        return
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else None
    if names is not None and names <= set(ours):
        return
    for name, earlier in BEFORE.items():
        if names is not None and name in names:
            raise UserError(
                f"{folder} is a {earlier} made by octavo 0.1, which this version cannot resume; choose another --out"
            )
    raise UserError(f"{folder} is there already and is not a {kind}; choose another --out")


def _write(path: Path, record: Mapping[str, Any]) -> None:
    write_text(path, json.dumps(record, indent=1, allow_nan=False) + "\n")


Outcomes = dict[str, Outcome]
RowsOf = Callable[[Mapping[str, Outcome]], Sequence[Any]]  # an experiment's table of the outcomes so far


class Runner:
    """Executes the cells of one experiment; `run` may be called again, with cells that depend on earlier outcomes."""

    def __init__(
        self, store: Store, progress: Progress, rows: RowsOf, count: int, jobs: int = 1, command: str = "",
        executor: Executor | None = None, expected: Callable[[Cell], float] | None = None,
    ) -> None:  # fmt: skip
        """`count`: how many cells there are in all; `command`: what resumes them; `expected`: how many seconds a cell
        may take beside its budget, before such a one is finished.
        """
        check_positive("jobs", jobs, 2)
        self.store, self.progress, self.rows, self.jobs = store, progress, rows, jobs
        self.count, self.command = count, command
        self.executor: Executor = executor or (ThisProcess() if jobs == 1 else Workers(jobs))
        self.outcomes: Outcomes = {}
        self.begun = 0
        self.overhead: dict[str, list[float]] = {}  # of each model: seconds beside its budget
        self.expected = expected
        self.ratios: dict[tuple[str, bool], list[tuple[float, float]]] = {}  # of each kind of cell: taken, expected
        self.later: Sequence[Cell] = ()  # what `run` will be called with after its present cells, for the time left
        self.last_seconds = 0.0  # what comes after all cells

    def run(self, cells: Sequence[Cell]) -> Outcomes:
        """Execute what is not finished; the outcomes of the cells, in their order."""
        with self.store.locked():
            found = {cell.key: outcome for cell in cells if (outcome := self.store.find(cell)) is not None}
            if found:
                self.progress.note(f"finished in {self.store.folder} already: {', '.join(found)}")
                self.outcomes |= found
                self.begun += len(found)
                self.progress.show_rows(self.rows(self.outcomes))
            left = [cell for cell in cells if cell.key not in found]
            try:
                for outcome in self.executor.execute(self._begin(left), self.store.folder, self.progress):
                    self.finish(outcome)
            except KeyboardInterrupt as stop:
                raise self.stopped(stop) from stop
        return {cell.key: self.outcomes[cell.key] for cell in cells}

    def stopped(self, stop: KeyboardInterrupt) -> Stopped:
        """What to raise when the user has stopped it."""
        done = sum(outcome.error is None for outcome in self.outcomes.values())
        resume = f"resume with: {self.command}" if self.command else "call it again to resume"
        number = stop.code - 128 if isinstance(stop, Stopped) else signal.SIGINT
        return Stopped(f"stopped; {done} of {self.count} are finished and stored; {resume}", number)

    def _begin(self, cells: Sequence[Cell]) -> Iterator[Cell]:
        """The cells, each recorded as started when it is taken."""
        for i, cell in enumerate(cells):
            self.begun += 1
            self.store.start(cell)
            left, rest = self.time_left(cells[i:]), self.time_left(cells[i + 1 :])
            self.progress.start_cell(cell, self.begun, self.count, left, rest or 0.0)
            yield cell

    def finish(self, outcome: Outcome) -> None:
        """Store and report what came of a cell."""
        cell = outcome.cell
        self.store.save(outcome)
        self.outcomes[cell.key] = outcome
        beside = outcome.seconds - (cell.budget_seconds or 0.0)
        self.overhead.setdefault(cell.model, []).append(beside)
        if self.expected is not None and outcome.error is None:
            self.ratios.setdefault(_kind(cell), []).append((beside, self.expected(cell)))
        if outcome.error is not None:
            self.progress.note(f"{cell.key} failed: {outcome.error}")
        summary = outcome.value.get("summary", "")
        self.progress.show_rows(self.rows(self.outcomes), f"{cell.key}: {summary}" if summary else "")

    def time_left(self, cells: Sequence[Cell]) -> float | None:
        """Seconds for the rest: their budgets, and what such cells took beside them, or may be expected to take; None
        where too little is known.
        """
        if self.expected is not None:
            left = sum((cell.budget_seconds or 0.0) + self._beside(cell) for cell in (*cells, *self.later))
            return left / self.jobs + self.last_seconds
        known = {model: fmean(values) for model, values in self.overhead.items()}
        if not known and any(cell.budget_seconds is None for cell in cells):
            return None
        usual = fmean(known.values()) if known else 0.0
        return sum((cell.budget_seconds or 0.0) + known.get(cell.model, usual) for cell in cells) / self.jobs

    def _beside(self, cell: Cell) -> float:
        """Seconds beside its budget that a cell is expected to take, corrected by what cells of its kind took."""
        assert self.expected is not None
        found = self.ratios.get(_kind(cell), ())
        taken, expected = (max(0.0, sum(column)) for column in zip(*found, strict=True)) if found else (1.0, 1.0)
        return self.expected(cell) * (taken / expected if expected else 1.0)


def _kind(cell: Cell) -> tuple[str, bool]:
    """Cells that take about the same time for the same text."""
    return cell.work, bool(cell.budget)


def failures(outcomes: Mapping[str, Outcome]) -> dict[str, str]:
    """The cells that failed, and why."""
    return {key: outcome.error for key, outcome in outcomes.items() if outcome.error is not None}
