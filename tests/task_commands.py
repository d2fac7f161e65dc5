"""A small training run of every task, as a call and as words of the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import octavo
from octavo.tasks.task import find_task

GPT = {"width": 16, "layers": 1, "heads": 2}
SETTINGS: dict[str, tuple[str, str, dict[str, Any]]] = {  # the model, the data, and what makes it small
    "language": ("gru", "text.txt", {"width": 16, "layers": 1, "batch_size": 4, "sequence_length": 8, "dropout": 0.2}),
    "masked": ("bert", "text.txt", {**GPT, "context": 32, "batch_size": 4, "vocab_size": 120, "dropout": 0.2}),
    "translation": ("seq2seq", "pairs.tsv", {**GPT, "vocab_size": 300, "batch_size": 128, "dropout": 0.2}),
    "classification": ("dan", "moods.tsv", {"width": 8, "batch_size": 8}),
    "tagging": ("tagger", "tags.tsv", {"width": 8, "batch_size": 8}),
    "images": ("vit", "images", {**GPT, "patch": 4, "batch_size": 8, "dropout": 0.2}),
    "facts": ("facts", "people-16", {
        **GPT, "context": 96, "pretrain_epochs": 4, "pretrain_batch_size": 8, "batch_size": 8, "dropout": 0.2,
    }),
}  # fmt: skip
STEPS = 9


def arguments(task: str, data: Path) -> tuple[str, str, dict[str, Any]]:
    model, source, settings = SETTINGS[task]
    usual = {"budget": f"{STEPS}steps", "evaluations": 3, "checkpoint_seconds": 0.0, "precision": "float32", "ema": 0.5}
    return model, source if task == "facts" else str(data / source), {**usual, **settings}


def train(task: str, data: Path, out: Path, **changes: Any) -> Any:
    model, source, settings = arguments(task, data)
    return octavo.train(model, source, out=out, device="cpu", **{**settings, **changes})


def command(task: str, data: Path, out: Path, **changes: Any) -> list[str]:
    model, source, settings = arguments(task, data)
    flags = [
        word for key, value in {**settings, **changes}.items() for word in (f"--{key.replace('_', '-')}", str(value))
    ]
    return [*find_task(task).train_verb.split(), model, source, *flags, "--device", "cpu", "--out", str(out)]
