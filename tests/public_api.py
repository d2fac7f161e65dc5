"""A folder with a small run of every task, in which the examples of the documentation run."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import octavo
from studio_place import write_texts

STEPS = {"budget": "6steps", "evaluations": 2, "device": "cpu", "measure": False}
GPT = {"width": 16, "layers": 1, "heads": 2}
RUNS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "kn3": ("ngram", "book.txt", {"order": 3, "tokenizer": "byte"}),
    "gru": ("gru", "book.txt", {**STEPS, "width": 16, "layers": 1, "batch_size": 4, "sequence_length": 16}),
    "gpt": ("gpt", "book.txt", {**STEPS, **GPT, "context": 32, "batch_size": 4, "sequence_length": 16}),
    "moods": ("linear-classifier", "texts/moods.tsv", {"device": "cpu", "measure": False}),
    "tags": ("tagger", "texts/tags.tsv", {"width": 16, "batch_size": 8, "budget": "60steps", "device": "cpu",
                                           "dropout": 0.0, "measure": False}),
    "pairs": ("seq2seq", "texts/words.tsv", {**STEPS, **GPT, "vocab_size": 300, "batch_size": 128}),
    "bert": ("bert", "book.txt", {**STEPS, **GPT, "context": 32, "batch_size": 4, "vocab_size": 120}),
    "facts": ("facts", "texts/people", {
        **GPT, "context": 64, "pretrain_epochs": 1, "pretrain_batch_size": 12, "epochs": 1, "batch_size": 8,
        "device": "cpu", "measure": False,
    }),
}  # fmt: skip
WORDS = (
    "to be or not to be that is the question whether tis nobler in the mind to suffer the slings and arrows of "
    "outrageous fortune or to take arms against a sea of troubles and by opposing end them"
).split()  # fmt: skip


def write_folder(folder: Path) -> None:
    """Texts and runs, with paths seen from the folder, which must be the current one."""
    luck = random.Random(0)
    lines = [" ".join(luck.choices(WORDS, k=8)) for _ in range(1000)]
    (folder / "book.txt").write_text("".join(f"{line}\n" for line in lines))
    (folder / "other.txt").write_text("The harvest of the year was good, and the river was high in spring.\n" * 60)
    write_texts(folder / "texts")
    for name, (model, corpus, settings) in RUNS.items():
        octavo.train(model, corpus, out=f"runs/{name}", **settings)
    octavo.export("runs/kn3", "kn3.arpa")
