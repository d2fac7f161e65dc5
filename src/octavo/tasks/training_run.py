"""From data to a finished run, for every task: create, train stage by stage, measure, save; resume what was stopped.

The run's folder appears before training begins, fills while it goes on, and ends complete. A run that is to replace
another one does so hidden beside it (`run_place`).
"""

from __future__ import annotations

import json
import os
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
from octavo.io.run_folder import (
    BOARD,
    METRICS,
    REPORT,
    STATE,
    check_out,
    final_folder,
    read_record,
    replacement_folder,
    write_record,
)
from octavo.tasks.device import pick_device
from octavo.tasks.run_place import (
    check_free,
    is_stopped,
    log_length,
    new_place,
    numbered,
    remove_replacement,
    tidy,
    training_place,
)
from octavo.tasks.task import Recipe, Rows, Task, find_task, made_with
from octavo.training.checkpoint import FILE, Checkpoint, Position
from octavo.training.distributed import Team, team
from octavo.training.loop import Loop
from octavo.training.schedule import Budget
from octavo.training.signals import Terminated, interrupted_by_sigterm
from octavo.training.stage import Stage


@dataclass
class TrainingRun:
    """The training of a run: for which task, how, on which data, where it goes, and where it is until then."""

    task: Task[Any, Any]
    recipe: Recipe
    data: Any
    team: Team
    folder: Path | None = None
    place: Path | None = None
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

    def resume_same(self, described: Mapping[str, Any], place: Path) -> Any:
        """Resume the stopped run of the same recipe and data that stands at the place of a new one."""
        record, task, recipe, path = read_record(place), self.task, self.recipe, self.folder
        same = record["task"] == task.name and task.identity(record) == task.identity(described)
        if same and (record.get("model"), record.get("seed")) == (recipe.model, recipe.seed):
            self.recipe = task.recipe_of(record)
            if task.same_recipe(recipe, self.recipe):
                return self.resume(record, place, described)
        raise UserError(
            f"{path} holds a training run that was stopped, with other settings or data; resume it: octavo resume "
            f"{path}, or choose another --out, or replace it with --force"
        )

    def resume(
        self, record: dict[str, Any], place: Path, described: Mapping[str, Any], budget: str | None = None
    ) -> Any:
        """Go on from the last checkpoint, where a budget is named up to it. The data are described anew: what the
        record says of them beside their hash is not checked when it is read.
        """
        saved, task, recipe, device = Checkpoint.load(place), self.task, self.recipe, self.team.device
        at = saved.position
        at.stage = task.stage_of(record, at.stage)
        run = task.recreate(recipe, self.data, place)
        run.model.to(device)
        stage = task.stage(recipe, run, self.data, device, at.stage)
        spent = Budget.parse(stage.budget).in_unit(stage.unit).spent(at)
        if record["training"].get("finished"):
            if spent >= 1 or not budget:
                done = f"it has trained for {at.step:,} steps, {at.seconds:.0f} s, {at.examples:,} {stage.unit}"
                raise UserError(f"{self.folder} is finished: {at.ended or done}; to go on, give a larger --budget")
            at.ended, at.stale, at.skipped, at.restored = "", 0, 0, 0
        if budget:
            at.evaluations = int(spent * recipe.loop.evaluations)
        run.record |= {**described, "training": {**record["training"], **recipe.to_json(), "finished": False}}
        return self.train(run, saved)

    def train(self, run: Any, saved: Checkpoint | None = None) -> Any:
        """The stages that are left, then the end."""
        task, recipe, place, device = self.task, self.recipe, self.place, self.team.device
        training, first = run.record["training"], saved.position.stage if saved is not None else 0
        training["stages"] = training.get("stages", [])[:first]
        rows: list[dict[str, Any]] = []
        for number in range(first, len(task.stage_names(recipe))):
            run.model.to(device)
            stage = task.stage(recipe, run, self.data, device, number)
            loop = Loop(stage, recipe.loop, self.team, recipe.seed, place, self.quiet)
            if saved is not None and number == first:
                loop.take(saved)
            else:
                loop.position = Position(stage=number, log_bytes=log_length(place) if number else 0)
            training |= _describe(loop) | task.describe_training(run, self.data, stage)
            with self._begun(run, loop, new=saved is None and number == 0):
                why = loop.train()
            run.model = loop.trained_model()
            at = loop.position
            training["stages"].append({"name": stage.name, "steps": at.step, "seconds": at.seconds, "why": why})
            rows = loop.log.rows if place is not None else [*rows, *loop.log.rows]
        run.model.to(device).eval()
        seconds = sum(stage["seconds"] for stage in training["stages"])
        run.record |= {"train_seconds": seconds, f"train_{loop.stage.unit}": at.examples}
        training |= {"finished": True, "why": why, "steps": at.step}
        best = at.best_value if at.final_value is None else at.final_value
        training |= {loop.stage.best: best} if loop.stage.best else {}
        return self.finish(task.complete(recipe, run, self.data), rows)

    def finish(self, run: Any, rows: Rows) -> Any:
        """Measure and save, all at once: the folder appears with its page in it."""
        folder, leads = self.folder, self.team.leads
        measured = self.task.measure(self.recipe, run, self.data) if self.measure and leads else None
        if folder is not None and leads:
            self._save(run, rows, measured, folder)
            remove_replacement(folder)
        run.model.cpu()
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
        trained = (STATE, BOARD) if "training" in run.record else ()  # a fitted model has neither
        run.write(folder, {METRICS: lines, **texts}, [(self.place or folder) / name for name in trained])

    @contextmanager
    def _begun(self, run: Any, loop: Loop, new: bool) -> Iterator[None]:
        """The folder says that the run is being trained; one that was to replace another goes if it learns nothing."""
        place = self.place if self.team.leads else None
        if place is None:
            yield
            return
        if not new:
            write_record(place, {**read_record(place), "training": run.record["training"]})
            yield
            return
        try:
            model, run.model = run.model, loop.untrained  # which is whole, where the other one is sharded
            if self.folder is not None and place != self.folder:
                remove_replacement(self.folder)
            run.write(place, {METRICS: ""})
            run.model = model
            yield
        except Exception:
            learnt = (place / STATE / FILE).is_file() and Checkpoint.load(place).position.step > 0
            if self.folder is not None and place != self.folder and not learnt:
                remove_replacement(self.folder)
            raise


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
        stack.enter_context(saying_how_to_resume(folder))
        processes = stack.enter_context(team(pick_device(recipe.device)))
        if number and folder is not None:
            folder = stack.enter_context(numbered(folder, processes))
            stack.enter_context(saying_how_to_resume(folder))
        if processes.leads and folder is not None:
            tidy(folder)
            check_free(folder, force)
        stopped = processes.leads and not force and is_stopped(folder)
        hidden = processes.leads and folder is not None and new_place(folder, force) != folder
        stopped, hidden = map(bool, processes.agree(float(stopped), float(hidden)))
        began = time.perf_counter()
        data = stack.enter_context(closing_data(task, task.open(recipe, source, folder)))
        described = task.describe(recipe, source, data)
        run = TrainingRun(task, recipe, data, processes, folder, folder, measure, quiet)
        if folder is not None and stopped:
            run.place = training_place(folder)
            return run.resume_same(described, run.place)
        if folder is not None and hidden:
            run.place = replacement_folder(folder)
        return run.begin(described, began)


def resume_run(
    path: str | Path, budget: str | None = None, measure: bool = True, quiet: bool = False, device: str | None = None
) -> Any:  # fmt: skip
    """Go on with a run that was stopped or killed, as if it had not been; or, with a larger budget, with any run that
    was trained step by step.
    """
    path = final_folder(Path(path))
    with locked(path, "resumes"), saying_how_to_resume(path):
        if not int(os.environ.get("RANK", "0")):
            tidy(path)
        first = read_record(training_place(path))
        task = find_task(first["task"])
        chosen = pick_device(device or task.recipe_of(first).device)
        with team(chosen) as processes:  # by now the leader has tidied the folder
            place = training_place(path)
            record = read_record(place)
            recipe = task.recipe_of(record)
            recipe = recipe.replace(loop=replace(recipe.loop, budget=budget)) if budget else recipe
            recipe = recipe.replace(device=device or recipe.device)
            with closing_data(task, task.reopen(record, str(path))) as data:
                run = TrainingRun(task, recipe, data, processes, path, place, measure, quiet)
                described = task.describe(recipe, record[task.data_key]["source"], data)
                if not is_stopped(path) and not record["training"].get("finished") and not log_length(place):
                    # killed before its first checkpoint, and before its first step
                    return run.begin(described, time.perf_counter())
                return run.resume(record, place, described, budget)


@contextmanager
def saying_how_to_resume(folder: Path | None) -> Iterator[None]:
    """Turn an interrupt, Ctrl-C or SIGTERM, that comes outside the loop into one that says what to do."""
    with interrupted_by_sigterm():
        try:
            yield
        except Stopped:
            raise
        except KeyboardInterrupt as error:
            number = signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT
            if folder is None:
                after = "nothing was saved, because there is no folder to save to"
            elif is_stopped(folder):
                after = f"go on with: octavo resume {folder}"
            else:
                after = "nothing was learnt yet, so there is nothing to resume: give the same command again"
            raise Stopped(f"stopped; {after}", number) from error


@contextmanager
def closing_data(task: Task[Any, Any], data: Any) -> Iterator[Any]:
    """The data, let go of at the end."""
    finished = False
    try:
        yield data
        finished = True
    finally:
        task.close(data, finished)


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
