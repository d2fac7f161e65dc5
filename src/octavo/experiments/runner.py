"""The one runner of experiments: cells that are not finished are executed, stored one by one, and reported.

experiment.json  which experiment this is, and what all of its cells have in common
cells/KEY.json   a cell and what came of it: started, finished or failed
KEY/             its run
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

from octavo import __version__
from octavo.config import plain_json
from octavo.errors import Stopped, UserError
from octavo.experiments.cell import FAILED, FINISHED, Cell, Outcome
from octavo.experiments.executor import Executor, local_executor
from octavo.experiments.progress import Progress
from octavo.io.files import write_text
from octavo.io.json_text import parse_json, read_json_file
from octavo.io.lock import locked
from octavo.io.partial_files import delete_folder, is_part, sweep_all
from octavo.io.run_folder import COMPARISON, CONFIG
from octavo.io.system import is_device

HEADER, CELLS = "experiment.json", "cells"
FORMAT = 2  # 1 was octavo 0.1's, one file for each kind of experiment
BEFORE = {COMPARISON: "comparison", "scaling.json": "scaling series", "trained.json": "domains table"}
STARTED = "started"
LARGEST_NUMBER = 1e30  # that an experiment can have measured: operations of training are the largest


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
        for one in folder.iterdir() if folder.is_dir() else ():
            if is_device(one):  # it would be written to, and waited for
                raise UserError(f"{one} is no file; delete it, or choose another --out")
        if not path.is_file():
            check_folder(folder, kind, ours)
            _write(path, {"format": FORMAT, "experiment": kind, "octavo": __version__, "common": dict(common)})
            return store
        try:
            record = parse_json(path.read_bytes())
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

    def find(self, cell: Cell, check: Callable[[Outcome], object] = lambda outcome: None) -> Outcome | None:
        """The outcome of just this cell, if it is finished, and the files that belong to it are there.

        One whose record is not as it was written, or that `check` cannot make sense of, counts as none: the cell is
        executed again.
        """
        record = self._read(cell.key)
        if record.get("status") != FINISHED or record.get("cell") != plain_json(cell):
            return None
        if record.get("sha256", digest_of(record)) != digest_of(record):  # older records have none
            return None
        try:
            check_recorded_numbers(record)
            outcome = Outcome.of(record)
            check(outcome)
            files = [self.folder / str(name) for name in outcome.value.get("files", ())]
            hashes = dict(outcome.value.get("hashes", {}))  # of files that are too large to be in the record
            is_whole = all(file.is_file() for file in files) and all(
                file_digest(self.folder / str(name)) == sha256 for name, sha256 in hashes.items()
            )
        except (UserError, OSError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError):
            return None
        return outcome if is_whole else None

    def stored(self, cell: Cell, check: Callable[[Outcome], object] = lambda outcome: None) -> Outcome | None:
        """The outcome of just this cell, if it is finished or has failed."""
        record = self._read(cell.key)
        is_ours = record.get("cell") == plain_json(cell) and record.get("sha256") == digest_of(record)
        if is_ours and record.get("status") == FAILED:
            return Outcome.of(record)
        return self.find(cell, check)

    def start(self, cell: Cell) -> None:
        """Note that a cell is being executed; a run that was trained in another way is removed first."""
        run = self.folder / cell.key
        is_ours = cell.is_trained_here and (run / CONFIG).is_file()
        if is_ours and self._read(cell.key).get("training") != plain_json(cell.training):
            delete_folder(run)
        _write(self._path(cell.key), {"status": STARTED, "training": cell.training, "cell": asdict(cell)})

    def save(self, outcome: Outcome) -> None:
        """Store what came of a cell."""
        record = plain_json(outcome.to_json())
        _write(self._path(outcome.cell.key), record | {"sha256": digest_of(record)})

    def _path(self, key: str) -> Path:
        return self.folder / CELLS / f"{key}.json"

    def _read(self, key: str) -> dict[str, Any]:
        """The record of a cell; a damaged one counts as none."""
        path = self._path(key)
        if path.exists() and not path.is_file():
            raise UserError(f"{path} must be a file, which it is not; delete it, or choose another --out")
        try:
            record = read_json_file(path, "delete it")
        except UserError:
            return {}
        return record if isinstance(record, dict) else {}


def digest_of(record: Mapping[str, Any]) -> str:
    """A hash of a cell's record, which stands in it: what was changed by somebody else is measured again."""
    rest = {key: value for key, value in record.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def file_digest(path: Path) -> str:
    """The hash of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_recorded_numbers(value: Any) -> None:
    """Refuse numbers that nothing can have measured, and with which sums would overflow."""
    if isinstance(value, Mapping):
        for one in value.values():
            check_recorded_numbers(one)
    elif isinstance(value, list):
        for one in value:
            check_recorded_numbers(one)
    elif isinstance(value, int | float) and not abs(value) <= LARGEST_NUMBER:
        raise UserError(f"{value:g} is no number that an experiment measures")


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Within it, no other command works in an experiment's folder; what killed ones left there goes."""
    with locked(folder, "runs an experiment"):
        sweep_all(folder)
        for file in folder.glob(".*.lock"):  # of a run: taken and given back, it goes
            with suppress(UserError), locked(folder / file.name[1:].removesuffix(".lock")):
                pass
        yield


def check_folder(folder: Path, kind: str, ours: Sequence[str] = ()) -> None:
    """Refuse a place where something stands that is not this experiment's; what a kill in its first save left is."""
    if not os.path.lexists(folder) or (folder / HEADER).is_file():
        return
    names = {path.name for path in folder.iterdir() if not is_part(path.name)} if folder.is_dir() else None
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
        check: Callable[[Outcome], object] = lambda outcome: None,
    ) -> None:  # fmt: skip
        """`count`: how many cells there are in all; `command`: what resumes them; `expected`: how many seconds a cell
        may take beside its budget, before such a one is finished; `check` refuses a stored outcome that is damaged.
        """
        self.store, self.progress, self.rows, self.jobs = store, progress, rows, jobs
        self.count, self.command = count, command
        self.executor: Executor = executor or local_executor(jobs)
        self.outcomes: Outcomes = {}
        self.begun = 0
        self.overhead: dict[str, list[float]] = {}  # of each model: seconds beside its budget
        self.expected, self.check = expected, check
        self.ratios: dict[tuple[str, bool], list[tuple[float, float]]] = {}  # of each kind of cell: taken, expected
        self.later: Sequence[Cell] = ()  # what `run` will be called with after its present cells, for the time left
        self.last_seconds = 0.0  # what comes after all cells

    def run(self, cells: Sequence[Cell]) -> Outcomes:
        """Execute what is not finished; the outcomes of the cells, in their order."""
        found = {cell.key: outcome for cell in cells if (outcome := self.store.find(cell, self.check)) is not None}
        if found:
            self.progress.note(f"finished in {self.store.folder} already: {', '.join(found)}")
            self.outcomes |= found
            self.begun += len(found)
            self.progress.show_rows(self.rows(self.outcomes))
        left = [cell for cell in cells if cell.key not in found]
        with self.stoppable():
            for outcome in self.executor.execute(self._begin(left), self.store.folder, self.progress):
                self.finish(outcome)
        return {cell.key: self.outcomes[cell.key] for cell in cells}

    def collect(self, cells: Sequence[Cell]) -> Outcomes:
        """The outcomes of cells that other commands have executed, failed ones among them; nothing is executed."""
        stored = {cell.key: self.store.stored(cell, self.check) for cell in cells}
        missing = [key for key, outcome in stored.items() if outcome is None]
        if missing:
            raise UserError(
                f"{len(missing)} of {len(cells)} cells are not finished in {self.store.folder}: {', '.join(missing)}; "
                "run their commands, which --cells prints, or leave --collect out"
            )
        self.outcomes |= {key: outcome for key, outcome in stored.items() if outcome is not None}
        self.begun += len(cells)
        self.progress.show_rows(self.rows(self.outcomes))
        return {cell.key: self.outcomes[cell.key] for cell in cells}

    @contextmanager
    def stoppable(self) -> Iterator[None]:
        """Within it, whoever stops the experiment learns how to go on."""
        try:
            yield
        except KeyboardInterrupt as stop:
            raise self.stopped(stop) from stop

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
