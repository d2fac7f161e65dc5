"""From a text to a trained neural model: the run's folder appears first, fills while it trains, and ends complete."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from octavo.config import from_json
from octavo.core import LanguageModel, seeded_generator
from octavo.errors import Stopped, UserError
from octavo.io.files import whole_file
from octavo.models import MODELS, build, describe
from octavo.tasks.count_training import (
    Page,
    TextConfig,
    check_before_work,
    check_begin,
    finish,
    pick_device,
    record_of,
    reopened,
    room_on_disk,
    sample,
)
from octavo.tasks.run import BOARD, CONFIG, METRICS, STATE, Run, read_record, read_tokenizer, save
from octavo.text import Corpus, Store, Tokenizer, learn_and_tokenize, tokenize
from octavo.text.validation_chunks import Held, hold_out
from octavo.training.checkpoint import FILE, Checkpoint
from octavo.training.distributed import Team, team
from octavo.training.loop import Loop, Text
from octavo.training.loop_config import LoopConfig
from octavo.training.metrics_log import Log, TensorBoard
from octavo.training.optimizer import OptimizerConfig
from octavo.training.schedule import Budget
from octavo.training.signals import Stopping
from octavo.training.streams import Lanes

SAMPLE_TOKENS = 120  # of the text written at each check


@dataclass(frozen=True)
class Recipe:
    """Everything that a neural run is made from, but the text itself."""

    model: str
    config: Any
    text: TextConfig
    loop: LoopConfig
    optim: OptimizerConfig
    seed: int = 0
    device: str = "auto"

    def to_json(self) -> dict[str, Any]:
        kept = {"text": asdict(self.text), "loop": asdict(self.loop), "optim": asdict(self.optim)}
        return {**kept, "device": self.device}

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Recipe:
        """As the record of a run tells it."""
        told, spec = record.get("training"), MODELS.get(record.get("model", ""))
        if not isinstance(told, Mapping) or spec is None or not spec.trained_by_gradient:
            raise UserError("this run was not trained step by step, so there is nothing to go on with; train it anew")
        return cls(
            record["model"], from_json(spec.config, record.get("config", {})),
            from_json(TextConfig, told.get("text", {})), from_json(LoopConfig, told.get("loop", {})),
            from_json(OptimizerConfig, told.get("optim", {})), record.get("seed", 0), str(told.get("device", "auto")),
        )  # fmt: skip

    def fresh_model(self, tokenizer: Tokenizer, device: torch.device) -> LanguageModel[Any]:
        """The model as training starts with it, its sequences opened as the tokenizer opens them."""
        config = self.config
        if getattr(config, "begin", 0) < 0 and tokenizer.begin != tokenizer.vocab - 1:
            config = replace(config, begin=tokenizer.begin)
        check_begin(self.model, tokenizer, getattr(config, "begin", -1))
        model: LanguageModel[Any] = MODELS[self.model].model(config, tokenizer.vocab)  # type: ignore[assignment]
        model.initialise(seeded_generator(self.seed))
        return model.to(device)


def train_neural(
    recipe: Recipe, source: Any, out: str | Path | None, measure: bool = True, page: Page | None = None
) -> Run:
    """Train a neural model on the training part of a text, in this process or in those that torchrun started."""
    check_before_work(out, recipe.seed)
    if hasattr(recipe.config, "check_use"):
        recipe.config.check_use()
    _refuse_unfinished(out)
    corpus = recipe.text.open(source)
    with room_on_disk(out, corpus.train.size) as folder, team(pick_device(recipe.device)) as processes:
        mapped = folder / f"train{processes.rank}.bin" if folder else None
        tokenizer, store = learn_and_tokenize(recipe.text.tokenizer, corpus, mapped, **recipe.text.tokenizer_options())
        model = recipe.fresh_model(tokenizer, processes.device)
        recipe = replace(recipe, loop=recipe.loop.suiting(model), optim=recipe.optim.suiting(model))
        loop, held = _loop(recipe, model, tokenizer, store, corpus, processes, out)
        record = _record(recipe, corpus, held, loop)
        if out is not None and processes.leads:
            record["training"]["before"] = _put_aside(Path(os.path.realpath(out)))
            save(Run(build(describe(model), loop.first), tokenizer, record), out, {METRICS: ""})
        return _train(loop, recipe, tokenizer, record, corpus, out, measure, page)


def resume(path: str | Path, budget: str | None = None, measure: bool = True, page: Page | None = None) -> Run:
    """Go on with a run that was stopped or killed, as if it had not been; or, with a larger budget, with any run."""
    path, told = Path(path), read_record(path)
    recipe = Recipe.of(told)
    recipe = replace(recipe, loop=replace(recipe.loop, budget=budget)) if budget else recipe
    saved = Checkpoint.load(path)
    at = saved.position
    spent = Budget.parse(recipe.loop.budget).spent(at.seconds, at.step, at.tokens)
    if told["training"].get("finished"):
        if spent >= 1 or not budget:
            why = at.ended or f"it has trained for {at.step:,} steps, {at.seconds:.0f} s, {at.tokens:,} tokens"
            raise UserError(f"{path} is finished: {why}; to go on, give a larger one with --budget")
        at.ended, at.stale, at.skipped, at.restored = "", 0, 0, 0
    if budget:
        at.checked = int(spent * recipe.loop.evaluations)
    tokenizer = read_tokenizer(path)
    corpus = reopened(str(path), told, "train", "train it anew")
    with room_on_disk(path, corpus.train.size) as folder, team(pick_device(recipe.device)) as processes:
        store = tokenize(corpus.train, tokenizer, folder / f"train{processes.rank}.bin" if folder else None)
        model = recipe.fresh_model(tokenizer, processes.device)
        loop, held = _loop(recipe, model, tokenizer, store, corpus, processes, path)
        loop.take(saved)
        record = _record(recipe, corpus, held, loop)
        record["training"]["before"] = str(told["training"].get("before", ""))
        if processes.leads:
            _rewrite(path, told | {"training": record["training"]})
        return _train(loop, recipe, tokenizer, record, corpus, path, measure, page)


def _rewrite(path: Path, told: Mapping[str, Any]) -> None:
    """Say that the run is not finished, and its new budget, in case that it is stopped again."""
    with whole_file(path / CONFIG) as file:
        file.write((json.dumps(told, indent=1, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace"))


def _loop(
    recipe: Recipe, model: LanguageModel[Any], tokenizer: Tokenizer, store: Store, corpus: Corpus, processes: Team,
    out: str | Path | None,
) -> tuple[Loop, Held]:  # fmt: skip
    held = hold_out(store.tokens, model.begin)
    if len(held.train_N) < 2:
        raise UserError(f"a text of {len(store)} tokens is too short to learn from; give a longer one")
    lanes = Lanes.fitting(held.train_N, model.begin, recipe.loop.batch_size, recipe.loop.sequence_length, recipe.seed)
    if lanes.batch != recipe.loop.batch_size:  # the pieces of a small text's batch must divide it too
        recipe = replace(recipe, loop=replace(recipe.loop, batch_size=lanes.batch, accumulate=1))
    pieces_PL = torch.from_numpy(held.pieces_PL.astype("int64"))
    opened_PL = model.prepend_begin(pieces_PL) if pieces_PL.numel() else pieces_PL
    piece_bytes = sum(len(tokenizer.decode(piece)) for piece in held.pieces_PL)
    charged = max(1, len(store) - len(store.starts))
    text = Text(lanes, opened_PL, piece_bytes, corpus.train.size / charged)
    folder = Path(out) if out is not None else None

    def write(model: LanguageModel[Any]) -> str:
        return sample(Run(model, tokenizer), recipe.seed, SAMPLE_TOKENS)

    return Loop(model, text, recipe.loop, recipe.optim, processes, recipe.seed, folder, write), held


def _train(
    loop: Loop, recipe: Recipe, tokenizer: Tokenizer, record: dict[str, Any], corpus: Corpus, out: str | Path | None,
    measure: bool, page: Page | None,
) -> Run:  # fmt: skip
    loop.log = Log(Path(out) / METRICS if out is not None and loop.team.leads else None, loop.position.log_bytes)
    if out is not None and loop.team.leads and recipe.loop.tensorboard:
        loop.board = TensorBoard(Path(out) / BOARD)
    try:
        ours = [loop.team.device] if loop.team.device.type == "cuda" else []
        with Stopping() as stopping, torch.random.fork_rng(ours):  # each step seeds the generators; the caller's stay
            why = loop.run(stopping)
        last = loop.capture()
        if out is not None and loop.team.leads:
            last.save(Path(out))
    except (RuntimeError, MemoryError) as error:
        if told := _out_of_memory(error, loop.config):
            raise told from error
        raise
    finally:
        loop.log.close()
        if loop.board is not None:
            loop.board.close()
    model = build(describe(loop.model), loop.best or last.tensors["weights"])
    at = loop.position
    record |= {"train_seconds": at.seconds, "train_tokens": at.tokens}
    record["training"] |= {"finished": True, "why": why, "steps": at.step, "held_out_bits_per_byte": at.best_bits}
    run = Run(model.to(loop.team.device), tokenizer, record)
    if not loop.team.leads:
        return run
    before = record["training"].pop("before", "")
    try:
        finish(run, corpus, out, recipe.seed, measure, page, loop.log.rows, keep=(STATE, BOARD))
    except KeyboardInterrupt as error:
        raise Stopped(f"stopped while measuring; go on with: octavo resume {out}", signal.SIGINT) from error
    if before:
        shutil.rmtree(Path(os.path.realpath(str(out))).with_name(Path(before).name), ignore_errors=True)
    return run


def _record(recipe: Recipe, corpus: Corpus, held: Held, loop: Loop) -> dict[str, Any]:
    record = record_of(corpus, recipe.text.field, recipe.text.valid, recipe.seed, 0.0, 0)
    lanes = loop.text.lanes
    told = {
        **recipe.to_json(), "finished": False, "held": held.identity, "held_tokens": int(held.pieces_PL.size),
        "lanes": lanes.batch, "window": lanes.window, "steps_per_epoch": lanes.steps, "processes": loop.team.size,
        "bytes_per_token": loop.text.bytes_per_token,
        "precision": "bfloat16" if loop.precision.low else "float32", "peak": loop.precision.peak,
    }  # fmt: skip
    return record | {"training": told}


def _put_aside(out: Path) -> str:
    """A finished run that stands there keeps until the new one is finished too; returns the name it has meanwhile."""
    if not (out / CONFIG).is_file():
        return ""
    aside = out.with_name(f"{out.name}.before")
    if aside.exists():
        raise UserError(f"{aside} is in the way: {out} would be put there until the new run is finished; move it")
    os.rename(out, aside)
    return aside.name


def _refuse_unfinished(out: str | Path | None) -> None:
    """A killed run's work is not written over."""
    if out is None or not (Path(out) / STATE / FILE).is_file() or int(os.environ.get("RANK", "0")):
        return
    if not read_record(out).get("training", {}).get("finished", True):
        raise UserError(
            f"{out} holds a training run that was stopped; go on with octavo resume {out}, or choose another --out"
        )


def _out_of_memory(error: BaseException, loop: LoopConfig) -> UserError | None:
    if not isinstance(error, MemoryError) and "allocate memory" not in str(error) and "out of memory" not in str(error):
        return None
    more = next((n for n in range(loop.accumulate + 1, loop.batch_size + 1) if loop.batch_size % n == 0), 0)
    same = f"--accumulate {more} takes less and trains the same, " if more else ""
    size, length = loop.batch_size, loop.sequence_length
    fewer = f"--batch-size {size // 2} takes less" if size > 1 else f"--sequence-length {length // 2} takes less"
    return UserError(
        f"out of memory with batch_size={size}, sequence_length={length}, accumulate={loop.accumulate}; "
        f"{same}{fewer}, and so does a narrower model"
    )
