"""The work of a scaling cell: train a model on a part of the text, and score it on the held-out text.

P chunks of L tokens, N tokens.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import numpy as np
import torch

from octavo.config import from_json, plain_json
from octavo.costs import cost_of, one_token
from octavo.errors import UserError
from octavo.experiments.cell import Cell, Json, Outcome, open_texts, train_or_resume, write_part
from octavo.experiments.table import Column, marked_name, show_bits
from octavo.io.files import size as byte_size
from octavo.io.files import thousands
from octavo.io.partial_files import delete_folder
from octavo.models import parameter_count
from octavo.models.ngram import NGramConfig
from octavo.scoring.bits_per_byte import score_text
from octavo.tasks import api
from octavo.tasks.corpus import TextConfig, fit_counts
from octavo.tasks.device import move, pick_device
from octavo.tasks.run import Run
from octavo.text import learn_and_tokenize
from octavo.text.validation_chunks import hold_out

TEXTS = "texts"  # the folder of the parts of the text, while trainings may need them
HIGHEST_ORDER = 16
TRAINING_PASSES = 3  # FLOPs of training for each of scoring: forward, and two products for each of the backward pass


@dataclass(frozen=True)
class ScalePoint:
    """One training and its result on the held-out text."""

    model: Annotated[str, Column("model", lambda point: point.marked_model, align="left", of_row=True)]
    bytes: Annotated[int, Column("text", byte_size, "bytes of text to learn from")]
    size: Annotated[float, Column("size", lambda point: point.shape, align="left", of_row=True)]
    budget: Annotated[
        float, Column("budget", lambda p: f"{p.budget:g}" if p.flops else "", "share of the whole budget", of_row=True)
    ]
    seed: Annotated[int, Column("seed", if_varies=True)]
    bits_per_byte: float | None  # None: infinite
    parameters: Annotated[int, Column("params", thousands, "weights, or n-grams")] = 0
    seconds: Annotated[float, Column("train s", lambda value: f"{value:.1f}", "seconds of training")] = 0.0
    passes: Annotated[
        float, Column("passes", lambda p: f"{p.passes:.3g}" if p.flops else "", "over the text", of_row=True)
    ] = 1.0  # fmt: skip
    flops: float = 0.0  # of training; 0 for what only counts
    width: int | None = None
    order: int | None = None
    validation_bits_per_byte: float | None = None  # of chunks held out of the training text: sizes are chosen by it
    impossible: int = 0  # held-out tokens with probability zero
    chosen: Annotated[
        bool, Column("bits/byte", lambda point: point.shown_bits, "bits per byte of the held-out text", of_row=True)
    ] = False  # whether the law over text goes through it
    error: str | None = None
    adaptive: bool = False  # whether the model went on learning while it was scored

    @property
    def bits(self) -> float:
        return math.inf if self.bits_per_byte is None else self.bits_per_byte

    @property
    def marked_model(self) -> str:
        return marked_name(self.model, self.adaptive)

    @property
    def shown_bits(self) -> str:
        star = " *" if self.chosen and self.flops else "  " if self.flops else ""
        return "failed" if self.error else show_bits(self.bits) + star

    @property
    def shape(self) -> str:
        """How large the model is, in a word or two."""
        if self.order is not None:
            return f"order {self.order}"
        return f"width {self.width}" if self.width is not None else ""


def point_of(outcome: Outcome) -> ScalePoint:
    """The point of a cell; of one that failed, what is known of it."""
    cell = outcome.cell
    about = {"model": cell.model, "bytes": cell.data["train_bytes"], "size": cell.options["size"],
             "budget": cell.options["part"], "seed": cell.seed}  # fmt: skip
    if outcome.error is not None:
        return ScalePoint(**about, bits_per_byte=None, error=outcome.error)
    return from_json(ScalePoint, about | {key: value for key, value in outcome.value.items() if key != "summary"})


def measure_point(cell: Cell, folder: Path) -> Json:
    """Train on a part of the text, or resume that, and score the held-out text."""
    train, valid = open_texts(cell.data)
    train_file, valid_file = (write_part(part, folder / TEXTS / f"{part.sha256[:16]}") for part in (train, valid))
    settings = {"valid": [str(valid_file)], "device": cell.options["device"]}
    if cell.options["search_order"]:
        names = TextConfig.__dataclass_fields__
        of_text = {key: value for key, value in (cell.settings | {"valid": [str(valid_file)]}).items() if key in names}
        of_model = {key: value for key, value in cell.settings.items() if key not in of_text}
        settings["order"] = best_order(train_file, from_json(TextConfig, of_text), of_model)
    if cell.budget:  # its checkpoints are worth a folder
        run = train_or_resume(cell, folder, [str(train_file)], **settings)
        move(run, pick_device(cell.options["device"]))
    else:
        run = api.train(cell.model, train_file, seed=cell.seed, measure=False, **{**cell.settings, **settings})
    score = score_text(run.model, run.tokenizer, valid, "held-out text")
    if (folder / cell.key).is_dir():
        delete_folder(folder / cell.key)
    return _values(cell, run) | {
        "bits_per_byte": plain_json(score.bits_per_byte), "impossible": score.impossible,
        "adaptive": score.adaptive, "summary": f"{show_bits(score.bits_per_byte)} bits per byte",
    }  # fmt: skip


def _values(cell: Cell, run: Run) -> Json:
    record, training, config = run.record, run.record.get("training"), run.model.config
    passes, flops = 1.0, 0.0
    if training:
        passes = record["train_tokens"] / (
            training["streams"] * training["sequence_length"] * training["steps_per_epoch"]
        )
        reading = cost_of(run.model, one_token(config)).total("forward")
        flops = float(TRAINING_PASSES * reading * record["train_tokens"])
    return {
        "parameters": parameter_count(run.model),
        "seconds": record["train_seconds"], "passes": passes, "flops": flops,
        "width": getattr(config, "width", None) if cell.budget else None, "order": getattr(config, "order", None),
        "validation_bits_per_byte": (training or {}).get("held_out_bits_per_byte"),
    }  # fmt: skip


def best_order(train: Path, text: TextConfig, settings: Mapping[str, Any] = MappingProxyType({})) -> int:
    """The n-gram order with the fewest bits on validation chunks of the training text."""
    corpus = text.open(train)
    tokenizer, store = learn_and_tokenize(text.tokenizer, corpus, **text.tokenizer_options())
    held = hold_out(store.tokens, tokenizer.begin)
    if not held.pieces_PL.size:
        raise UserError(f"the text is too short to choose an n-gram's order: {corpus.train.size:,} bytes; name --order")
    x_N, pieces_PL = torch.from_numpy(held.train_N.astype(np.int32)), torch.from_numpy(held.pieces_PL.astype(np.int64))
    best, least = 1, math.inf
    for order in range(2, HIGHEST_ORDER + 1):
        config = from_json(NGramConfig, {**settings, "order": order})
        model = fit_counts("ngram", x_N, config, tokenizer).model
        nats = -float(model.score(pieces_PL)[pieces_PL != tokenizer.begin].double().sum())
        if nats >= least:
            break
        best, least = order, nats
    return best
