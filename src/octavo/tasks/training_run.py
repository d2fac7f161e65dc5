"""From data to a finished run, for every task: create, train stage by stage, measure, save; resume what was stopped.

The run's folder appears before training begins, fills while it goes on, and ends complete. A finished run that stood
at its place stays beside it, as NAME.before, until then.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from octavo.core import seeded_generator
from octavo.errors import Stopped, UserError
from octavo.io.lock import locked
from octavo.io.run_folder import BOARD, METRICS, REPORT, STATE, check_out, read_record, write_record
from octavo.tasks.run_place import (
    aside,
    bring_back,
    check_free,
    is_stopped,
    log_length,
    numbered,
    put_aside,
    restore_old,
)
from octavo.tasks.task import Recipe, Rows, Task, find_task, made_with, pick_device
from octavo.training.checkpoint import FILE, Checkpoint, Position
from octavo.training.distributed import Team, team
from octavo.training.loop import Loop
from octavo.training.schedule import Budget
from octavo.training.stage import Stage


@dataclass
class TrainingRun:
    """The training of a run: for which task, how, on which data, and where it goes."""

    task: Task[Any, Any]
    recipe: Recipe
    data: Any
    team: Team
    folder: Path | None = None
    measure: bool = True
    quiet: bool = False

    def begin(self, described: Mapping[str, Any], began: float) -> Any:
        """Train from the start; `described` are the data."""
        task, recipe = self.task, self.recipe
        record = {**described, "seed": recipe.seed, "made_with": made_with()}
        if task.fits(recipe):
            run, rows = task.fit(recipe, self.data)
            run.record = record | {"train_seconds": time.perf_counter() - began} | run.record
            return self.finish(run, rows)
        run = task.create(recipe, self.data)
        self.recipe = recipe = task.suited(recipe, run)
        run.record = record | run.record | {"training": {**recipe.to_json(), "finished": False}}
        return self.train(run)

    def resume_same(self, described: Mapping[str, Any], path: Path) -> Any:
        """Resume the stopped run of the same recipe and data that stands at the place of a new one."""
        record, task, recipe = read_record(path), self.task, self.recipe
        same = record["task"] == task.name and task.identity(record) == task.identity(described)
        if same and (record.get("model"), record.get("seed")) == (recipe.model, recipe.seed):
            self.recipe = task.recipe_of(record)
            if task.same_recipe(recipe, self.recipe):
                return self.resume(record, path)
        raise UserError(
            f"{path} holds a training run that was stopped, with other settings or data; resume it: octavo resume "
            f"{path}, or choose another --out, or replace it with --force"
        )

    def resume(self, record: dict[str, Any], path: Path, budget: str | None = None) -> Any:
        """Go on from the last checkpoint, where a budget is named up to it."""
        saved, task, recipe, device = Checkpoint.load(path), self.task, self.recipe, self.team.device
        at = saved.position
        at.stage = task.stage_of(record, at.stage)
        run = task.recreate(recipe, self.data, path)
        run.model.to(device)
        stage = task.stage(recipe, run, self.data, device, at.stage)
        spent = Budget.parse(stage.budget).in_unit(stage.unit).spent(at)
        if record["training"].get("finished"):
            if spent >= 1 or not budget:
                done = f"it has trained for {at.step:,} steps, {at.seconds:.0f} s, {at.examples:,} {stage.unit}"
                raise UserError(f"{path} is finished: {at.ended or done}; to go on, give a larger --budget")
            at.ended, at.stale, at.skipped, at.restored = "", 0, 0, 0
        if budget:
            at.evaluations = int(spent * recipe.loop.evaluations)
        run.record |= {"training": {**record["training"], **recipe.to_json(), "finished": False}}
        return self.train(run, saved)

    def train(self, run: Any, saved: Checkpoint | None = None) -> Any:
        """The stages that are left, then the end."""
        task, recipe, folder, device = self.task, self.recipe, self.folder, self.team.device
        training, first = run.record["training"], saved.position.stage if saved is not None else 0
        training["stages"] = training.get("stages", [])[:first]
        rows: list[dict[str, Any]] = []
        for number in range(first, len(task.stage_names(recipe))):
            run.model.to(device)
            stage = task.stage(recipe, run, self.data, device, number)
            loop = Loop(stage, recipe.loop, self.team, recipe.seed, folder, self.quiet)
            if saved is not None and number == first:
                loop.take(saved)
            else:
                loop.position = Position(stage=number, log_bytes=log_length(folder) if number else 0)
            training |= _describe(loop) | task.describe_training(run, self.data, stage)
            with _begun(run, loop, folder if self.team.leads else None, new=saved is None and number == 0):
                why = loop.train()
            run.model = loop.trained_model()
            at = loop.position
            training["stages"].append({"name": stage.name, "steps": at.step, "seconds": at.seconds, "why": why})
            rows = loop.log.rows if folder is not None else [*rows, *loop.log.rows]
        run.model.to(device).eval()
        seconds = sum(stage["seconds"] for stage in training["stages"])
        run.record |= {"train_seconds": seconds, f"train_{loop.stage.unit}": at.examples}
        training |= {"finished": True, "why": why, "steps": at.step}
        best = at.best_value if at.final_value is None else at.final_value
        training |= {loop.stage.best: best} if loop.stage.best else {}
        return self.finish(task.complete(recipe, run, self.data), rows)

    def finish(self, run: Any, rows: Rows) -> Any:
        """Measure and save, all at once: the folder appears with its page in it."""
        before, folder = run.record.get("training", {}).pop("before", ""), self.folder
        try:
            measured = self.task.measure(self.recipe, run, self.data) if self.measure and self.team.leads else None
            if folder is not None and self.team.leads:
                self._save(run, rows, measured, folder)
            run.model.cpu()
        except KeyboardInterrupt as error:
            if not (folder and (folder / STATE).is_dir()):
                raise
            raise Stopped(f"stopped while measuring; go on with: octavo resume {folder}", signal.SIGINT) from error
        if before and folder is not None and self.team.leads:
            shutil.rmtree(aside(folder).with_name(Path(before).name), ignore_errors=True)
        return run

    def _save(self, run: Any, rows: Rows, measured: Any, folder: Path) -> None:
        texts: dict[str, str] = {}
        if self.measure:
            from octavo.tasks.run_page import render_run_page  # which takes a while, and few trainings need

            content = self.task.page(run, self.data, measured, folder)
            texts = {REPORT: render_run_page(self.recipe, run, content, rows, folder), **content.files}
            rows = [*rows, run.record["result"]]
        lines = "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows)
        run.model.cpu()
        run.save(folder, {METRICS: lines, **texts}, keep=(STATE, BOARD))


def train_run(
    task: Task[Any, Any], recipe: Recipe, source: Sequence[str], out: str | Path | None = None, measure: bool = True,
    quiet: bool = False, force: bool = False, number: bool = False,
) -> Any:  # fmt: skip
    """Train a model for a task, in this process or in those that torchrun started.

    A run that was stopped at `out`, with the same recipe and data, is resumed; any other run there is refused, or, with
    `force`, replaced when the new one is finished. With `number`, the run goes to the first of out, out-2, out-3, ...
    that is not there yet.
    """
    seeded_generator(recipe.seed)
    folder = Path(out) if out is not None else None
    if folder is not None and not number:
        check_out(folder)
    task.check(recipe)
    if task.loop.budget or recipe.loop.budget:  # where there is no usual one, the task has its own measure
        Budget.parse(recipe.loop.budget)
    with ExitStack() as stack:
        if not number:
            stack.enter_context(locked(folder))
        processes = stack.enter_context(team(pick_device(recipe.device)))
        if number and folder is not None:
            folder = stack.enter_context(numbered(folder, processes))
            stack.enter_context(locked(folder))
        if processes.leads:
            restore_old(folder)
            check_free(folder, force)
        (stopped,) = processes.agree(float(processes.leads and not force and is_stopped(folder)))
        began = time.perf_counter()
        data = stack.enter_context(closing_data(task, task.open(recipe, source, folder)))
        described = task.describe(recipe, source, data)
        run = TrainingRun(task, recipe, data, processes, folder, measure, quiet)
        return run.resume_same(described, folder) if folder and stopped else run.begin(described, began)


def resume_run(path: str | Path, budget: str | None = None, measure: bool = True, quiet: bool = False) -> Any:
    """Go on with a run that was stopped or killed, as if it had not been; or, with a larger budget, with any run that
    was trained step by step.
    """
    path = Path(path)
    with locked(path, "resumes"):
        if not int(os.environ.get("RANK", "0")):
            restore_old(path)
        record = read_record(path)
        task = find_task(record["task"])
        recipe = task.recipe_of(record)
        recipe = recipe.replace(loop=replace(recipe.loop, budget=budget)) if budget else recipe
        with team(pick_device(recipe.device)) as processes, closing_data(task, task.reopen(record, str(path))) as data:
            return TrainingRun(task, recipe, data, processes, path, measure, quiet).resume(record, path, budget)


@contextmanager
def closing_data(task: Task[Any, Any], data: Any) -> Iterator[Any]:
    """The data, let go of at the end."""
    try:
        yield data
    finally:
        task.close(data)


def train_in_memory(task: Task[Any, Any], recipe: Recipe, run: Any, data: Any, device: torch.device) -> Any:
    """Train a run's model stage by stage in this process, without a folder."""
    for number in range(len(task.stage_names(recipe))):
        run.model.to(device)
        run.model = train_alone(task.stage(recipe, run, data, device, number), recipe, device).trained_model().eval()
    return task.complete(recipe, run, data)


def train_alone(stage: Stage, recipe: Recipe, device: torch.device, quiet: bool = True) -> Loop:
    """Train a stage in this process, without a folder: the loop at its end."""
    loop = Loop(stage, recipe.loop, Team(0, 1, device), recipe.seed, quiet=quiet)
    loop.train()
    return loop


def _describe(loop: Loop) -> dict[str, Any]:
    """What the record says of how a stage was trained, besides its recipe."""
    low = "bfloat16" if loop.precision.low else "float32"
    described = {"steps_per_epoch": loop.stage.steps_per_epoch, "precision": low, "processes": loop.team.size}
    described |= {"best_measure": loop.stage.best} if loop.stage.best else {}
    return described | ({"peak": loop.precision.peak} if loop.stage.flops_per_example else {})


@contextmanager
def _begun(run: Any, loop: Loop, folder: Path | None, new: bool) -> Iterator[None]:
    """The folder says that the run is being trained; an old run at its place comes back where nothing was learnt."""
    if folder is None:
        yield
        return
    if not new:
        write_record(folder, {**read_record(folder), "training": run.record["training"]})
        yield
        return
    try:
        run.record["training"]["before"] = put_aside(folder)
        model, run.model = run.model, loop.untrained  # which is whole, where the other one is sharded
        run.save(folder, {METRICS: ""})
        run.model = model
        yield
    except Exception as error:
        learnt = (folder / STATE / FILE).is_file() and Checkpoint.load(folder).position.step > 0
        if not isinstance(error, Stopped) and aside(folder).exists() and not learnt:
            bring_back(folder)
        raise
