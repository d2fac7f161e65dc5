"""An experiment in parts: one command for each cell, for the jobs of a scheduler such as Slurm, then one that gathers.

Commands for different cells can run at the same time, on machines that see the experiment's folder.
"""

from __future__ import annotations

import shlex
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from octavo.errors import UserError, did_you_mean
from octavo.experiments.cell import Cell, Outcome
from octavo.experiments.runner import CELLS, HEADER, Runner, locked_folder
from octavo.io.lock import living_holder, locked


@dataclass(frozen=True)
class Division:
    """One command for each cell, for Slurm and other schedulers."""

    cells: bool = False
    """Run nothing; print a command for each cell that is not finished, one a line."""
    run_cell: str = ""
    """Run this cell alone, as the commands of --cells say."""
    collect: bool = False
    """Gather what these commands did, train nothing again, and refuse where a cell is missing."""

    def __post_init__(self) -> None:
        given = [f"--{name}" for name in ("cells", "run-cell", "collect") if getattr(self, name.replace("-", "_"))]
        if len(given) > 1:
            raise UserError(
                f"--cells, --run-cell and --collect are different commands: {' and '.join(given)} were given; give one"
            )


@dataclass(frozen=True)
class CellCommand:
    """What executes one cell."""

    key: str
    title: str
    command: str


class PlannedExperiment(ABC):
    """An experiment whose cells are known: all of them can be run, or one alone."""

    def __init__(self, command: Sequence[str], lock: ExitStack) -> None:
        """`command` are the words that run it on this machine; `lock` is given back when it is done."""
        self.words, self.lock = command, lock
        self.runner: Runner

    @abstractmethod
    def plan(self) -> Sequence[Cell]:
        """The cells that do not depend on others."""

    def commands(self) -> list[CellCommand]:
        """What executes, one by one, the cells that are not finished; what depends on others is left to `run`."""
        with self.lock:
            return [
                CellCommand(cell.key, cell.title or cell.key, self._command(cell.key))
                for cell in self.plan() if self.runner.store.find(cell, self.runner.check) is None
            ]  # fmt: skip

    def run_cell(self, key: str) -> Outcome:
        """Execute one cell, unless it is finished; one that fails is refused with the reason."""
        runner = self.runner
        runner.rows, runner.count = lambda outcomes: (), 1  # the table is written by whoever runs or gathers them all
        runner.command = self._command(key)
        with self.lock, runner.progress:
            outcome = runner.run([find_cell(self.plan(), key)])[key]
        if outcome.error is not None:
            raise UserError(f"{key}: {outcome.error}")
        return outcome

    def _command(self, key: str) -> str:
        return shlex.join([*self.words, "--run-cell", key])


def without_division(words: Sequence[str]) -> list[str]:
    """The words of a command without the flags of `Division`."""
    left, rest = [], iter(words)
    for word in rest:
        if word == "--run-cell":
            next(rest, None)
        elif word not in ("--cells", "--collect") and not word.startswith("--run-cell="):
            left.append(word)
    return left


def lock_for(folder: Path, cell: str = "") -> AbstractContextManager[None]:
    """The lock that a command needs for a whole experiment, or for one cell of it."""
    return locked_cell(folder, cell) if cell else locked_folder(folder)


@contextmanager
def locked_cell(folder: Path, key: str) -> Iterator[None]:
    """Within it, no other command works on this cell; others may work on other cells of the experiment."""
    if not (folder / HEADER).is_file():
        raise UserError(f"there is no experiment in {folder} yet; begin it with --cells, which prints its commands")
    if holder := living_holder(folder):
        raise UserError(
            f"process {holder.get('pid', '?')} on {holder.get('host', '?')} runs the whole experiment in {folder}; "
            "wait for it, or stop it"
        )
    with locked(folder / CELLS / f"{key}.json", "works on this cell"):
        yield


def find_cell(cells: Sequence[Cell], key: str) -> Cell:
    """The cell of that name."""
    known = {cell.key: cell for cell in cells}
    if key not in known:
        remedy = did_you_mean(key, known, f"its cells are {', '.join(known)}")
        raise UserError(f"the experiment has no cell {key!r} that stands alone; {remedy}")
    return known[key]
