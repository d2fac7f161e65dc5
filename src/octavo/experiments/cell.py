"""A cell: one row's work in an experiment, as JSON values alone, so that it can be executed anywhere; and its texts.

A text is a part of a corpus that begins and ends with whole characters, described in JSON, and opened again from that.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from octavo import __version__
from octavo.errors import UserError, is_out_of_memory
from octavo.io.encoding import UTF8
from octavo.io.files import whole_file
from octavo.io.partial_files import delete_folder, is_part
from octavo.io.run_folder import CONFIG, OURS, STATE, TENSORS, TOKENIZER, read_record
from octavo.io.system import read_at
from octavo.tasks import api
from octavo.tasks.run import Run, load
from octavo.text import Corpus, Split, open_corpus
from octavo.training.checkpoint import FILE
from octavo.training.schedule import Budget

Json = dict[str, Any]
FINISHED, FAILED = "finished", "failed"
IDENTITY = "identity"  # in the data of a cell that measures a model which is there already
WORK = {  # what executes a cell, by its kind of work: module and function of (cell, folder of the experiment)
    "candidate": ("octavo.experiments.compare.measure", "measure_candidate"),
    "pretrained": ("octavo.experiments.compare.measure", "measure_pretrained"),
    "proof": ("octavo.experiments.compare.proof", "prove_best"),
    "compressor": ("octavo.experiments.compare.compressors", "measure_compressor"),
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
    def is_trained_here(self) -> bool:
        """Whether its model is trained by the experiment; else it was trained elsewhere, and is only measured."""
        return IDENTITY not in self.data

    @property
    def run_files(self) -> list[str]:
        """The files, seen from the experiment's folder, without which its run must be trained again."""
        return [f"{self.key}/{name}" for name in (CONFIG, TENSORS, TOKENIZER)] if self.is_trained_here else []

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
    if is_out_of_memory(error):
        return "out of memory; try a smaller text, or a machine with more"
    return f"{type(error).__name__}: {message}"


def train_or_resume(cell: Cell, folder: Path, sources: Sequence[str], **settings: Any) -> Run:
    """The cell's run: as it is where it is finished, resumed where it was stopped, else trained."""
    path = folder / cell.key
    if path.is_dir() and CONFIG not in (names := os.listdir(path)) and all(map(is_ours, names)):
        delete_folder(path)  # a kill left some of its files
    if (path / CONFIG).is_file():
        training = read_record(path).get("training", {})
        is_finished = not training or training.get("finished")
        if is_finished and all((folder / name).is_file() for name in cell.run_files):
            return load(path)
        if not is_finished and (path / STATE / FILE).is_file():
            resumed: Run = api.resume(path, measure=False)
            return resumed
        delete_folder(path)  # it was killed before there was a checkpoint, or is damaged
    budget = {"budget": cell.budget} if cell.budget else {}
    run: Run = api.train(
        cell.model, sources, out=path, seed=cell.seed, measure=False, **{**cell.settings, **budget, **settings}
    )
    return run


def is_ours(name: str) -> bool:
    """Whether a file of that name in a run's folder is one that octavo writes there."""
    return name in OURS or is_part(name)


def identity_of(path: Path) -> Json:
    """What in a cell's data changes when the model at this path, which it measures, is replaced by another one."""
    record = path / CONFIG
    if record.is_file():
        return {IDENTITY: hashlib.sha256(record.read_bytes()).hexdigest()}
    return {IDENTITY: f"{path.stat().st_size} bytes, {path.stat().st_mtime_ns}" if path.exists() else ""}


def first_part(split: Split, limit: int) -> Split:
    """At most so many bytes from the beginning."""
    if split.size <= limit:
        return split
    ends = (at for at in range(limit, max(0, limit - 4), -1) if _starts_character(split, at))
    return Split(split.text, split.start, split.start + next(ends, limit))


def last_part(split: Split, limit: int) -> Split:
    """At most so many bytes from the end."""
    at = max(0, split.size - limit)
    starts = (place for place in range(at, min(at + 4, split.size)) if _starts_character(split, place))
    return Split(split.text, split.start + next(starts, at), split.end)


def _starts_character(split: Split, at: int) -> bool:
    """Whether a character of UTF-8 can begin at this place."""
    byte = read_at(split.text.file.fileno(), 1, split.start + at)
    return not byte or byte[0] & 0xC0 != 0x80


def write_part(split: Split, stem: Path) -> Path:
    """The part as a file beside `stem`, unless it is there: one document as plain text, several as JSON lines."""
    path = stem.with_name(stem.name + (".txt" if split.documents == 1 else ".jsonl"))
    if not path.is_file():
        with whole_file(path) as file:
            if split.documents == 1:
                file.writelines(block.data for block in split.chunks())
            else:
                file.writelines(_json_lines(split))
    return path


def _json_lines(split: Split) -> list[bytes]:
    data, starts, offset = split.read(), [], 0
    for block in split.chunks():
        starts += (block.starts + offset).tolist()
        offset += len(block.data)
    try:
        documents = [data[start:end].decode() for start, end in zip(starts, [*starts[1:], len(data)], strict=True)]
    except UnicodeDecodeError as error:
        raise UserError(f"several documents must be UTF-8 to be taken in parts: {error.reason}; join them") from error
    return [json.dumps({"text": document}).encode() + b"\n" for document in documents]


def describe_texts(corpus: Corpus, train: Split, scored: Split, valid: tuple[str, ...], field: str) -> dict[str, Any]:
    """What a cell says of its texts: the last part of a corpus's training text, and the first of its held-out text."""
    return {
        "sources": list(corpus.source), "valid": list(valid), "field": field, "errors": corpus.errors,
        **({"encoding": corpus.encoding} if corpus.encoding != UTF8 else {}),
        "train_bytes": train.size, "train_sha256": train.sha256,
        "scored_bytes": scored.size, "scored_sha256": scored.sha256,
    }  # fmt: skip


def open_texts(data: dict[str, Any]) -> tuple[Split, Split]:
    """The two texts that `describe_texts` described."""
    corpus = _corpus(data)
    return last_part(corpus.train, data["train_bytes"]), first_part(corpus.valid, data["scored_bytes"])


def describe_part(data: dict[str, Any]) -> str:
    """Which part of the held-out text is scored; nothing where it is all of it."""
    whole = _corpus(data).valid.size
    return f"first {data['scored_bytes']:,} of {whole:,} bytes" if data["scored_bytes"] < whole else ""


def _corpus(data: dict[str, Any]) -> Corpus:
    # The hash is among the arguments because a file may have changed since it was last opened by this process.
    names = tuple(data["sources"]), tuple(data["valid"])
    return _open(*names, data["field"], data["errors"], data.get("encoding", UTF8), data["scored_sha256"])


@lru_cache(maxsize=1)  # the cells of a process are mostly of one text
def _open(
    sources: tuple[str, ...], valid: tuple[str, ...], field: str, errors: Any, encoding: str, _: str
) -> Corpus:  # fmt: skip
    return open_corpus(sources, field=field, errors=errors, encoding=encoding, valid=valid or None)
