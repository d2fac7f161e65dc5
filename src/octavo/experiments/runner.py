"""The one runner of experiments: cells that are not finished are executed, stored one by one, and reported."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from octavo.errors import Stopped, UserError
from octavo.experiments.cell import Cell, Outcome
from octavo.experiments.executor import Executor, ThisProcess, Workers
from octavo.experiments.progress import Progress
from octavo.experiments.store import Store

Outcomes = dict[str, Outcome]
RowsOf = Callable[[Mapping[str, Outcome]], Sequence[Any]]  # an experiment's table of the outcomes so far


class Runner:
    """Executes the cells of one experiment; `run` may be called again, with cells that depend on earlier outcomes."""

    def __init__(
        self, store: Store, progress: Progress, rows: RowsOf, count: int, jobs: int = 1, command: str = "",
        executor: Executor | None = None,
    ) -> None:  # fmt: skip
        """`count`: how many cells there are in all; `command`: what resumes them."""
        if jobs < 1:
            raise UserError(f"jobs must be at least 1: jobs={jobs}; try --jobs 2")
        self.store, self.progress, self.rows, self.jobs = store, progress, rows, jobs
        self.count, self.command = count, command
        self.executor: Executor = executor or (ThisProcess() if jobs == 1 else Workers(jobs))
        self.outcomes: Outcomes = {}
        self.begun = 0
        self.overhead: dict[str, list[float]] = {}  # of each model: seconds beside its budget

    def run(self, cells: Sequence[Cell]) -> Outcomes:
        """Execute what is not finished; the outcomes of the cells, in their order."""
        with self.store.locked():
            found = {cell.key: outcome for cell in cells if (outcome := self.store.find(cell)) is not None}
            if found:
                self.progress.note(f"{len(found)} of {len(cells)} are finished in {self.store.folder} already")
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
            self.progress.start_cell(cell, self.begun, self.count, self.time_left(cells[i:]))
            yield cell

    def finish(self, outcome: Outcome) -> None:
        """Store and report what came of a cell."""
        cell = outcome.cell
        self.store.save(outcome)
        self.outcomes[cell.key] = outcome
        self.overhead.setdefault(cell.model, []).append(outcome.seconds - (cell.budget_seconds or 0.0))
        if outcome.error is not None:
            self.progress.note(f"{cell.key} failed: {outcome.error}")
        summary = outcome.value.get("summary", "")
        self.progress.show_rows(self.rows(self.outcomes), f"{cell.key}: {summary}" if summary else "")

    def time_left(self, cells: Sequence[Cell]) -> float | None:
        """Seconds for the rest: their budgets, and what such cells took beside them; None where too little is known."""
        known = {model: fmean(values) for model, values in self.overhead.items()}
        if not known and any(cell.budget_seconds is None for cell in cells):
            return None
        usual = fmean(known.values()) if known else 0.0
        return sum((cell.budget_seconds or 0.0) + known.get(cell.model, usual) for cell in cells) / self.jobs


def failures(outcomes: Mapping[str, Outcome]) -> dict[str, str]:
    """The cells that failed, and why."""
    return {key: outcome.error for key, outcome in outcomes.items() if outcome.error is not None}
