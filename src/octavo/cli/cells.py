"""What --cells and --run-cell print, alike for every experiment."""

from __future__ import annotations

from octavo.cli.output import Output
from octavo.experiments.division import Division, PlannedExperiment


def output_of_part(experiment: PlannedExperiment, division: Division) -> Output | None:
    """The commands of the cells, or what came of one; None where the whole experiment is to be run or gathered."""
    if division.cells:
        commands = experiment.commands()
        return Output(commands, *(one.command for one in commands))
    if not division.run_cell:
        return None
    outcome = experiment.run_cell(division.run_cell)
    key, summary = outcome.cell.key, outcome.value.get("summary", "finished")
    data = {"key": key, "status": outcome.status, "summary": summary, "seconds": outcome.seconds}
    return Output(data, f"{key}: {summary}")
