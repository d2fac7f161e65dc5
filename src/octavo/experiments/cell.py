"""A cell: one row's work in an experiment, as JSON values alone, so that it can be executed anywhere."""

from __future__ import annotations

import hashlib
import importlib
import shutil
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from octavo import __version__
from octavo.errors import UserError
from octavo.io.run_folder import CONFIG, STATE, TENSORS, TOKENIZER, read_record
from octavo.tasks import api
from octavo.tasks.run import Run, load
from octavo.training.checkpoint import FILE
from octavo.training.schedule import Budget

Json = dict[str, Any]
FINISHED, FAILED = "finished", "failed"
IDENTITY = "identity"  # in the data of a cell that measures a model which is there already
WORK = {  # what executes a cell, by its kind of work: module and function of (cell, folder of the experiment)
    "candidate": ("octavo.experiments.compare.measure", "measure_candidate"),
    "pretrained": ("octavo.experiments.compare.measure", "measure_pretrained"),
    "proof": ("octavo.experiments.compare.measure", "prove_best"),
    "compressor": ("octavo.experiments.compare.measure", "measure_compressor"),
    "scale": ("octavo.experiments.scale.measure", "measure_point"),
    "domains": ("octavo.experiments.domains.run", "measure_run"),
}


@dataclass(frozen=True)
class Cell:
    """A model with its settings, a text, a seed and a budget. Every value is JSON."""

    key: str  # unique in its experiment; the name of the run's folder, where there is one
    work: str  # one of WORK
    model: str
    settings: Json = field(default_factory=dict)  # of training
    data: Json = field(default_factory=dict)  # the text to train on: where it is, and its hashes
    seed: int = 0
    budget: str = ""  # of training by gradient; empty for everything else
    options: Json = field(default_factory=dict)  # how it is measured
    title: str = ""  # for progress lines

    @property
    def training(self) -> list[Any]:
        """What decides how the run is trained: one with the same values can be used again, or resumed."""
        return [__version__, self.model, self.settings, self.data, self.seed, self.budget]

    @property
    def budget_seconds(self) -> float | None:
        """How long it trains, where the budget is a time."""
        budget = Budget.parse(self.budget) if self.budget else None
        return budget.amount if budget is not None and budget.kind == "seconds" else None


@dataclass(frozen=True)
class Outcome:
    """What came of a cell: a value, or the reason why there is none."""

    cell: Cell
    value: Json = field(default_factory=dict)
    error: str | None = None
    traceback: str | None = None  # where the error is not one of the user's
    seconds: float = 0.0

    @property
    def status(self) -> str:
        return FINISHED if self.error is None else FAILED

    def to_json(self) -> Json:
        return {"status": self.status, "training": self.cell.training, **asdict(self)}

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Outcome:
        """The outcome that `to_json` described."""
        rest = {key: record[key] for key in ("value", "error", "traceback", "seconds")}
        return cls(Cell(**record["cell"]), **rest)


def execute(cell: Cell, folder: Path) -> Outcome:
    """Do a cell's work; whatever goes wrong, short of being stopped, becomes its outcome."""
    module, name = WORK[cell.work]
    work: Callable[[Cell, Path], Json] = getattr(importlib.import_module(module), name)
    began = time.perf_counter()
    try:
        return Outcome(cell, work(cell, folder), seconds=time.perf_counter() - began)
    except Exception as error:  # the other cells can do without this one
        trace = None if isinstance(error, UserError) else traceback.format_exc()
        return Outcome(cell, {}, in_one_line(error), trace, time.perf_counter() - began)


def in_one_line(error: Exception) -> str:
    """What went wrong."""
    message = " ".join(str(error).split())
    if isinstance(error, UserError):
        return message
    if isinstance(error, MemoryError) or "out of memory" in message or "allocate memory" in message:
        return "out of memory; try a smaller text, or a machine with more"
    return f"{type(error).__name__}: {message}"


def train_or_resume(cell: Cell, path: Path, sources: Sequence[str], **settings: Any) -> Run:
    """The cell's run: as it is where it is finished, resumed where it was stopped, else trained."""
    if (path / CONFIG).is_file():
        training = read_record(path).get("training", {})
        is_finished = not training or training.get("finished")
        if is_finished and all((path.parent / name).is_file() for name in files_of_run(path.name)):
            return load(path)
        if not is_finished and (path / STATE / FILE).is_file():
            resumed: Run = api.resume(path, measure=False)
            return resumed
        shutil.rmtree(path)  # it was killed before there was a checkpoint, or is damaged
    budget = {"budget": cell.budget} if cell.budget else {}
    run: Run = api.train(
        cell.model, sources, out=path, seed=cell.seed, measure=False, **{**cell.settings, **budget, **settings}
    )
    return run


def files_of_run(key: str) -> list[str]:
    """The files, seen from the experiment's folder, without which a cell's run must be trained again."""
    return [f"{key}/{name}" for name in (CONFIG, TENSORS, TOKENIZER)]


def file_identity(path: Path) -> str:
    """What changes when a model at this path is replaced by another one."""
    record = path / CONFIG
    if record.is_file():
        return hashlib.sha256(record.read_bytes()).hexdigest()
    return f"{path.stat().st_size} bytes, {path.stat().st_mtime_ns}" if path.exists() else ""
