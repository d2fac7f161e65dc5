"""A task: data with an identity, a model for them, the batch of every step, a loss, measures, and what a run of it is.

Everything that training, resuming, saving, loading and the command line do is written once, over `Task`. A new task is
a module that ends with `TASK = ...` and a line in TASKS.
"""

from __future__ import annotations

import dataclasses
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, TypeVar

import torch

from octavo.config import LARGEST_INT, Range, configs_from, from_json
from octavo.datasets.sources import SOURCES, where
from octavo.errors import UserError
from octavo.models import find_spec
from octavo.tasks.trained_run import TrainedRun
from octavo.training.loop_config import LoopConfig
from octavo.training.optimizer import OptimizerConfig
from octavo.training.stage import Stage

TASKS: dict[str, str] = {  # the module of each: imported when it is asked for, because together they take seconds
    "language": "octavo.tasks.language",
    "masked": "octavo.tasks.masked",
    "translation": "octavo.tasks.translation",
    "classification": "octavo.tasks.classification",
    "tagging": "octavo.tasks.tagging",
    "images": "octavo.tasks.images",
    "facts": "octavo.tasks.facts",
}
ALSO_SETTINGS = ("out", "seed", "device", "measure")

R = TypeVar("R", bound=Any)  # what a run of the task is
D = TypeVar("D")  # its data
Rows = Sequence[dict[str, Any]]  # of metrics.jsonl


@dataclass(frozen=True)
class Recipe:
    """Everything that a run is made from, but the data themselves."""

    model: str
    config: Any
    settings: Any
    loop: LoopConfig
    optimizer: OptimizerConfig
    seed: Annotated[int, Range(0, LARGEST_INT)] = 0
    device: str = "auto"
    counting: Any = None
    """Of a model that is fitted to counts: what counts (`EngineConfig`)."""

    def to_json(self) -> dict[str, Any]:
        """What the record keeps beside the model's own description."""
        kept = {"settings": asdict(self.settings), "loop": asdict(self.loop), "optimizer": asdict(self.optimizer)}
        plain: dict[str, Any] = json.loads(json.dumps({**kept, "device": self.device}))
        return plain

    def replace(self, **changes: Any) -> Recipe:
        return dataclasses.replace(self, **changes)


class Task(Generic[R, D]):
    """What is learnt from which data. Its methods are called in the order in which they stand here."""

    name: ClassVar[str]
    """As in TASKS and in a record."""
    purpose: ClassVar[str]
    """For messages: it was trained to ..."""
    data_key: ClassVar[str]
    """Where a record describes the data."""
    data_help: ClassVar[str]
    """What the data can be, for help texts."""
    data_kind: ClassVar[str] = "text"
    """Of the named sources that can be the data."""
    takes_file: ClassVar[bool] = True
    """Whether one text file can be the data."""
    train_verb: ClassVar[str] = "train"
    """Of the command line, before the model's name."""
    example: ClassVar[str]
    """Flags of an example for help texts, the data in front."""
    run_class: ClassVar[type[TrainedRun]]
    """What a run of it is."""
    settings: ClassVar[Any]
    """The usual settings of the task: how data are read and shown to the model."""
    loop: ClassVar[LoopConfig] = LoopConfig()
    optimizer: ClassVar[OptimizerConfig] = OptimizerConfig()

    def named_data(self) -> dict[str, str]:
        """The data that have a name and are on this machine, and what each is."""
        return {name: source.title for name, source in SOURCES.items() if source.kind == self.data_kind and where(name)}

    def configs(self, model: str) -> tuple[str, dict[str, Any]]:
        """The model that a name stands for, and its usual configs; with a loop where it is trained step by step."""
        spec = find_spec(model)
        config = spec.presets[model].config if model in spec.presets else spec.config()
        return spec.name, {
            "config": config, "settings": self.settings, "loop": self.loop, "optimizer": self.optimizer
        }  # fmt: skip

    def recipe(
        self, model: str, settings: Mapping[str, Any], seed: int = 0, device: str = "auto", others: Sequence[str] = ()
    ) -> Recipe:  # fmt: skip
        """The recipe with these settings in it, each in the config that has it; one that none has is refused."""
        name, usual = self.configs(model)
        made = configs_from(model, list(usual.values()), _plain(dict(settings)), (*ALSO_SETTINGS, *others))
        return self.made_recipe(name, dict(zip(usual, made, strict=True)), seed, device)

    def made_recipe(self, model: str, configs: Mapping[str, Any], seed: int, device: str) -> Recipe:
        """The recipe of configs as `configs` names them."""
        _, usual = self.configs(model)
        whole = {"loop": self.loop, "optimizer": self.optimizer, "counting": None, **usual, **configs}
        return Recipe(
            model, whole["config"], whole["settings"], whole["loop"], whole["optimizer"], seed, device,
            whole["counting"],
        )  # fmt: skip

    def recipe_of(self, record: Mapping[str, Any]) -> Recipe:
        """The recipe of a saved run."""
        if "training" not in record:
            raise UserError(
                f"a run of {record.get('model', 'this model')} was not trained step by step, so there is nothing to "
                "resume; train it anew"
            )
        try:
            kept = record["training"]
            _, usual = self.configs(record["model"])
            return Recipe(
                record["model"], from_json(type(usual["config"]), record["config"]),
                from_json(type(usual["settings"]), kept["settings"]), from_json(LoopConfig, kept["loop"]),
                from_json(OptimizerConfig, kept["optimizer"]), record["seed"], str(kept["device"]),
            )  # fmt: skip
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"the run does not say how it was trained: {error!r}; train it anew") from error

    # ------------------------------------------------------------------ training

    def check(self, recipe: Recipe) -> None:
        """Refuse what would only fail after some work."""

    def open(self, recipe: Recipe, source: Sequence[str], folder: Path | None = None) -> D:
        """Read the data; beside `folder`, the run's, there is room for temporary files."""
        raise NotImplementedError

    def describe(self, recipe: Recipe, source: Sequence[str], data: D) -> dict[str, Any]:
        """The data in words and numbers for the record, under `data_key` with `source` in it."""
        raise NotImplementedError

    def identity(self, record: Mapping[str, Any]) -> Any:
        """What tells the data of a record from others: their hash."""
        return record[self.data_key]["sha256"]

    def fits(self, recipe: Recipe) -> bool:
        """Whether the model is fitted at once, by `fit`, instead of trained step by step."""
        return False

    def fit(self, recipe: Recipe, data: D) -> tuple[R, Rows]:
        """The fitted run, and rows for metrics.jsonl."""
        raise NotImplementedError

    def create(self, recipe: Recipe, data: D) -> R:
        """A run with an untrained model."""
        raise NotImplementedError

    def untrained(self, recipe: Recipe, run: R, data: D) -> R:
        """The same run as it was before training: made again from its settings and seed."""
        return self.create(recipe, data)

    def suited(self, recipe: Recipe, run: R) -> Recipe:
        """The recipe with what suits the model where nothing was asked for."""
        return recipe.replace(optimizer=recipe.optimizer.suiting(run.model))

    def same_recipe(self, recipe: Recipe, saved: Recipe) -> bool:
        """Whether a saved run was begun with this recipe, which says less where it leaves things to the model."""
        loop = dataclasses.replace(saved.loop, **_left_open(recipe.loop, ("batch_size", "sequence_length")))
        optimizer = dataclasses.replace(saved.optimizer, **_left_open(recipe.optimizer, ("muon_learning_rate",)))
        theirs = (saved.config, saved.settings, loop, optimizer)
        return (recipe.config, recipe.settings, recipe.loop, recipe.optimizer) == theirs

    def recreate(self, recipe: Recipe, data: D, path: Path) -> R:
        """The run of a folder whose training is to be resumed."""
        return self.run_class.load(path)  # type: ignore[return-value]

    def stage_names(self, recipe: Recipe) -> Sequence[str]:
        """The stages of training, by name; most tasks have one, which needs none."""
        return ("",)

    def stage_of(self, record: Mapping[str, Any], stage: int) -> int:
        """The stage that a saved run is in, as its checkpoint says."""
        return stage

    def stage(self, recipe: Recipe, run: R, data: D, device: torch.device, number: int) -> Stage:
        """What the loop does in a stage; the model is on the device."""
        raise NotImplementedError

    def describe_training(self, run: R, data: D, stage: Stage) -> dict[str, Any]:
        """What the record says of a stage besides its recipe."""
        return {}

    def complete(self, recipe: Recipe, run: R, data: D) -> R:
        """The run after the last stage, with anything added that a trained model needs."""
        return run

    def measure(self, recipe: Recipe, run: R, data: D) -> Any:
        """Measure the finished run into its record's `result`; returns what else its page needs."""
        raise NotImplementedError

    def page(self, run: R, data: D, measured: Any, folder: Path) -> Any:
        """The `PageContent` of a run to be saved, by the module beside the task's, which few trainings need."""
        return import_module(f"{TASKS[self.name]}_page").page_content(run, data, measured, folder)

    def choices(self, run: R) -> int:
        """How many answers an untrained model chooses among: the logarithm is its first loss, in nats."""
        raise NotImplementedError

    def close(self, data: D, finished: bool = True) -> None:
        """Let go of what `open` has taken; what a killed job would go on from stays if it was not finished."""

    # ------------------------------------------------------------------ folders

    def evaluate(self, run: R, source: Any = None, **settings: Any) -> Any:
        """How good the run is on a source, or on its own held-out data."""
        raise NotImplementedError

    def reopen(self, record: Mapping[str, Any], name: str, remedy: str = "train it anew") -> D:
        """The data of a record, read again; refused where they have changed since."""
        recipe, about = self.recipe_of(record), record.get(self.data_key)
        source = about.get("source") if isinstance(about, Mapping) else None
        if not isinstance(source, list) or not all(isinstance(one, str) for one in source):
            raise UserError(f"{name} does not say what it was trained on; {remedy}")
        try:
            known = self.identity(record)
        except (KeyError, TypeError) as error:
            raise UserError(f"{name} does not say which data it was trained on: {error!r}; {remedy}") from error
        data = self.open(recipe, source)
        if self.identity(self.describe(recipe, source, data)) != known:
            raise UserError(f"{', '.join(source)} has changed since {name} was trained; {remedy}")
        return data


def _left_open(config: Any, names: Sequence[str]) -> dict[str, Any]:
    return {name: 0 for name in names if not getattr(config, name)}


def _plain(value: Any) -> Any:
    """Settings as JSON has them: paths may be given as such."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return str(value) if isinstance(value, Path) else value


def find_task(name: str) -> Task[Any, Any]:
    """The task of that name."""
    if name not in TASKS:
        raise UserError(f"there is no task {name!r}; tasks are {', '.join(TASKS)}")
    task: Task[Any, Any] = import_module(TASKS[name]).TASK
    return task


def task_for(model: str) -> Task[Any, Any]:
    """The task that a model is trained for; facts is a task of a language model, and named instead of it."""
    return find_task(model if model == "facts" else find_spec(model).task)


def made_with() -> dict[str, str]:
    """Versions, for the record."""
    return {"torch": torch.__version__, "python": platform.python_version(), "machine": platform.machine()}
