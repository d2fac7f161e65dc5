"""The trainings of a series, one after the other; each is kept as a line of a file as soon as it is measured.

P pieces of L tokens, N tokens.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

from octavo import __version__
from octavo.config import from_json
from octavo.errors import Stopped, UserError
from octavo.experiments.scale.excerpts import Excerpts
from octavo.experiments.scale.plan import Task, seconds_of
from octavo.io.files import whole_file
from octavo.models import stored_entries
from octavo.models.ngram import NGramConfig
from octavo.tasks import api
from octavo.tasks.count_training import TextConfig, fit_counts
from octavo.tasks.run import Run
from octavo.text import learn_and_tokenize
from octavo.text.validation_chunks import hold_out

POINTS = "points.jsonl"  # in OUT: what each training was, and what came of it
HIGHEST_ORDER = 16
TRAINING = 3  # operations of training for each of reading: forward, and two products for each on the way back

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Point:
    """One training and its figure on the held-out text."""

    model: str
    bytes: int  # of text to learn from
    size: float
    budget: float
    seed: int
    bits_per_byte: float | None  # None: infinite
    parameters: int  # of a network its weights, embeddings included; of an n-gram its n-grams
    seconds: float  # of training, as the run counts them
    passes: float  # over the text
    operations: float  # of training; 0 for what only counts
    width: int | None = None
    order: int | None = None
    pieces_bits: float | None = None  # bits per byte of pieces held out of the training text: what sizes are chosen by
    impossible: int = 0  # held-out tokens with probability zero

    @property
    def bits(self) -> float:
        return math.inf if self.bits_per_byte is None else self.bits_per_byte

    @property
    def shape(self) -> str:
        """How large the model is, in a word or two."""
        if self.order is not None:
            return f"order {self.order}"
        return f"width {self.width}" if self.width is not None else ""


def run_series(tasks: list[Task], excerpts: Excerpts, out: Path | None, device: str, tell: Tell) -> list[Point]:
    """The point of every task; those that are in OUT already are not trained again."""
    kept = dict(_read(out))
    made = [_key(task, excerpts) for task in tasks]
    left = [task for task, key in zip(tasks, made, strict=True) if key not in kept]
    if len(left) < len(tasks):
        tell(f"{len(tasks) - len(left)} of {len(tasks)} trainings are in {out} already")
    spent: dict[str, list[float]] = {}
    for done, task in enumerate(left):
        tell(f"training {done + 1} of {len(left)}: {_title(task, excerpts)}{_time_left(left[done:], spent)}")
        began = time.perf_counter()
        try:
            point = _train(task, excerpts, device)
        except KeyboardInterrupt as stop:
            where = "the same command goes on from there" if out is not None else "nothing is kept without out"
            message = f"stopped: {len(tasks) - len(left) + done} of {len(tasks)} trainings are done; {where}"
            raise Stopped(message, getattr(stop, "code", 130) - 128) from stop
        spent.setdefault(task.model, []).append(time.perf_counter() - began - (seconds_of(task) or 0))
        kept[_key(task, excerpts)] = point
        if out is not None:
            _write(out, kept)
    return [kept[key] for key in made]


def _train(task: Task, excerpts: Excerpts, device: str) -> Point:
    settings = dict(task.settings)
    with excerpts.files(task.share) as (train, valid):
        settings |= {"valid": [str(valid)]}
        if task.search_order:
            of_text = {key: value for key, value in settings.items() if key in TextConfig.__dataclass_fields__}
            of_model = {key: value for key, value in settings.items() if key not in of_text}
            settings["order"] = best_order(train, from_json(TextConfig, of_text), of_model)
        run = api.train(task.model, train, seed=task.seed, device=device, **settings)
    return _point(task, excerpts.bytes(task.share), run)


def _point(task: Task, size: int, run: Run) -> Point:
    told, result, training = run.record, run.record["result"], run.record.get("training")
    entries = stored_entries(run.model)
    ngrams, numbers = entries.get("n-grams", 0), entries.get("numbers", 0)
    passes, operations = 1.0, 0.0
    if training:
        passes = told["train_tokens"] / (training["lanes"] * training["window"] * training["steps_per_epoch"])
        operations = float(TRAINING * run.model.flops_per_token() * told["train_tokens"])
    config = run.model.config
    return Point(
        task.model, size, task.size, task.budget, task.seed, result["bits_per_byte"],
        sum(p.numel() for p in run.model.parameters()) or ngrams or numbers, told["train_seconds"], passes, operations,
        config.width if task.neural else None, getattr(config, "order", None),
        (training or {}).get("held_out_bits_per_byte"), result["impossible"],
    )  # fmt: skip


def best_order(train: Path, text: TextConfig, settings: Mapping[str, Any] = MappingProxyType({})) -> int:
    """The n-gram order that pays least for pieces held out of the training text, on which the others learn."""
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


def _title(task: Task, excerpts: Excerpts) -> str:
    told = dict(task.settings)
    words = [task.model, f"{excerpts.bytes(task.share):,} bytes of text"]
    words += [f"width {told['width']}"] if "width" in told else []
    words += [f"for {told['budget']}"] if task.neural else []
    return ", ".join(words + ([f"seed {task.seed}"] if task.seed else []))


def _time_left(left: list[Task], spent: dict[str, list[float]]) -> str:
    """What the rest takes: its budgets, and what measuring and starting took beside them so far."""
    seconds = 0.0
    for task in left:
        known = spent.get(task.model, [])
        asked = seconds_of(task)
        if not known and asked is None and task.neural:
            return ""
        seconds += (asked or 0) + (sum(known) / len(known) if known else 0)
    return f"; about {seconds / 60:.0f} min left" if seconds >= 90 else f"; about {seconds:.0f} s left"


def _key(task: Task, excerpts: Excerpts) -> str:
    """What makes a training the same as one that was done before."""
    return json.dumps([__version__, asdict(task), *excerpts.identity(task.share)], sort_keys=True)


def _read(out: Path | None) -> Iterator[tuple[str, Point]]:
    """What is in the file; a line that cannot be read is a training to do again."""
    path = out / POINTS if out is not None else None
    if path is None or not path.is_file():
        return
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            told = json.loads(line)
            yield str(told["made"]), from_json(Point, told["point"])
        except (ValueError, KeyError, TypeError, RecursionError, UserError):
            continue


def _write(out: Path, kept: dict[str, Point]) -> None:
    with whole_file(out / POINTS) as file:
        for made, point in kept.items():
            row: dict[str, Any] = {"made": made, "point": asdict(point)}
            file.write(json.dumps(row, allow_nan=False).encode() + b"\n")
