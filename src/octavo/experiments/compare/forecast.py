"""How long the cells of a comparison take, before any is finished: rough figures of two cores.

The runner corrects them by what the first cells really take.
"""

from __future__ import annotations

from octavo.experiments.cell import Cell
from octavo.experiments.compare.compressors import COMPRESSORS
from octavo.experiments.compare.rows import MIXTURE
from octavo.training.schedule import Budget

PAGE_SECONDS = 3.0
CELL_SECONDS = 1.5  # of every model: its sample and its page
COUNTED_BYTES_PER_SECOND = 5e5
SCORED_BYTES_PER_SECOND = {"counts": 2e5, "gradient": 1.5e4, MIXTURE: 8e3}
PROVED_BYTES_PER_SECOND = 5e3  # compressed and restored
STEP_SECONDS, TRAINED_TOKENS_PER_SECOND = 0.2, 2e4  # where the budget is no time


def expected_seconds(cell: Cell) -> float:
    """Seconds that a cell takes beside its budget, where that is a time, else in all."""
    scored, train = float(cell.data.get("scored_bytes", 0)), float(cell.data.get("train_bytes", 0))
    if cell.work == "compressor":
        compressor = COMPRESSORS[cell.model]  # which compresses the training text alone, and both
        return (scored + 2 * min(train, compressor.max_known_bytes)) / compressor.bytes_per_second
    if cell.work == "proof":
        limit: float | None = cell.options.get("seconds")
        expected = CELL_SECONDS + scored / PROVED_BYTES_PER_SECOND
        return expected if limit is None else min(expected, CELL_SECONDS + limit)
    if cell.budget:
        return CELL_SECONDS + scored / SCORED_BYTES_PER_SECOND["gradient"] + _training_seconds(cell)
    if cell.options.get("family") == MIXTURE:
        return CELL_SECONDS + scored / SCORED_BYTES_PER_SECOND[MIXTURE]
    if cell.work == "pretrained":
        return CELL_SECONDS + scored / SCORED_BYTES_PER_SECOND["gradient"]
    return CELL_SECONDS + train / COUNTED_BYTES_PER_SECOND + scored / SCORED_BYTES_PER_SECOND["counts"]


def _training_seconds(cell: Cell) -> float:
    """Of a budget that is counted in steps or tokens."""
    budget = Budget.parse(cell.budget)
    return {"seconds": 0.0, "steps": budget.amount * STEP_SECONDS}.get(
        budget.kind, budget.amount / TRAINED_TOKENS_PER_SECOND
    )
