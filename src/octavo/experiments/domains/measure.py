"""The work of a domains cell: train a model or load a run, and score excerpts of two texts."""

from __future__ import annotations

from pathlib import Path

from octavo.core import single_thread
from octavo.experiments.cell import IDENTITY, Cell, Json, files_of_run, train_or_resume
from octavo.experiments.domains.scoring import Vocabulary, excerpt, read
from octavo.experiments.excerpts import first_part
from octavo.tasks.corpus import learnt_text
from octavo.tasks.run import Run, load
from octavo.tasks.run_facts import title_of
from octavo.text import Split, open_corpus


def measure_run(cell: Cell, folder: Path) -> Json:
    """Score the excerpts with a run, which is trained first where the cell is not of a run that is there."""
    trained_here = IDENTITY not in cell.data
    run = train_or_resume(cell, folder / cell.key, cell.data["sources"]) if trained_here else load(cell.model)
    steps = tuple(run.record.get("preprocess", ()))
    vocabulary = _vocabulary(run, steps)
    texts = zip(cell.options["names"], cell.options["texts"], cell.options["bytes"], strict=True)
    with single_thread():
        readings = [
            read(run.model, run.tokenizer, excerpt(name, open_excerpt(text, bytes).read(), steps), vocabulary)
            for name, text, bytes in texts
        ]
    return {
        "readings": [reading.record() for reading in readings], "title": title_of(run), "name": run.name,
        "files": files_of_run(cell.key) if trained_here else [],
        "summary": ", ".join(f"{reading.bits_per_byte:.4f}" for reading in readings) + " bits per byte",
    }  # fmt: skip


def open_excerpt(text: str, bytes: int) -> Split:
    """The first bytes of the part of a text that is held out of training."""
    return first_part(open_corpus(text, errors="raw").valid, bytes)


VOCABULARIES: dict[tuple[str, ...], Vocabulary] = {}  # of training texts, which several runs of a process share


def _vocabulary(run: Run, steps: tuple[str, ...]) -> Vocabulary:
    train = learnt_text(run)
    key = (train.sha256, *steps)
    if key not in VOCABULARIES:
        VOCABULARIES[key] = Vocabulary.learn(train)
    return VOCABULARIES[key]
