"""The run made again from its own settings and seed: what its first loss should have been, and which weights training
has not changed.

B rows of a batch.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

import torch

from octavo.errors import UserError
from octavo.models import spec_of
from octavo.tasks.language import LanguageData
from octavo.tasks.task import Recipe, Task, find_task
from octavo.text import tokenize
from octavo.training.distributed import Team
from octavo.training.stage import Stage

MAX_BYTES = 20_000_000  # of a text: the first batch of a longer one is taken from its beginning
CPU = torch.device("cpu")


@dataclass
class Bench:
    """The trained model and a new one, each as a stage of training with the run's own batches."""

    task: Task[Any, Any]
    recipe: Recipe
    data: Any
    trained: Stage
    fresh: Stage


def set_up(run: Any) -> Bench:
    """Read the run's data again and make its model anew; refused where the data are gone or the record says too little.

    The first stage is that of the new model, the last one that of the trained.
    """
    task = find_task(run.task)
    record = {**run.record, **run.description()}
    recipe = task.recipe_of(record)
    recipe = recipe.replace(device="cpu")
    data = _read_again(task, run, record)
    new = task.untrained(recipe, run, data)
    last = len(task.stage_names(recipe)) - 1
    trained = copy.copy(run)
    trained.model = copy.deepcopy(run.model).cpu()
    fresh = task.stage(recipe, new, data, CPU, 0)
    return Bench(task, recipe, data, task.stage(recipe, trained, data, CPU, last), fresh)


def _read_again(task: Task[Any, Any], run: Any, record: Any) -> Any:
    data = task.reopen(record, str(run.path or run.name))
    if isinstance(data, LanguageData):
        part = data.corpus.train.first(MAX_BYTES)
        data.corpus = replace(data.corpus, train=part)
        data.store = tokenize(part, run.tokenizer)
    return data


def loss_of(stage: Stage, number: int, training: bool, seed: int, gradient: bool = False) -> float:
    """The mean loss of a batch; in training mode, drawn as the first step of a run with that seed draws."""
    batch = stage.batch(number)
    stage.model.train(training)
    with torch.random.fork_rng([]), torch.set_grad_enabled(gradient):
        torch.manual_seed(Team(0, 1, CPU).step_seed(seed, 0))
        loss, _ = stage.objective(stage.start(batch.rows), batch.part(0, batch.rows, CPU))
        if gradient:
            loss.backward()
    stage.model.eval()
    return float(loss.detach()) / max(1.0, batch.targets)


def why_no_bench(run: Any) -> str:
    """Why a run cannot be made again, where it was not trained step by step; else empty."""
    steps = run.record.get("training", {}).get("steps_per_epoch")
    is_stepwise = spec_of(run.model).trained_by_gradient and steps is not None
    return "" if is_stepwise else "the model was not trained step by step"


def try_set_up(run: Any) -> tuple[Bench | None, str]:
    """The bench, or why there is none."""
    if why := why_no_bench(run):
        return None, why
    try:
        return set_up(run), ""
    except UserError as error:
        return None, str(error).partition(";")[0]
