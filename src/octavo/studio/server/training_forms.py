"""The forms that start a training run, one for each model, made from the specs of the models and their configs.

Names, defaults, choices and descriptions come from the config classes, so the model of an installed package has a form
too. What stands here is how far numbers may go on a shared machine, and which settings are shown first.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import math
import textwrap
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

from octavo.config import no_such_setting
from octavo.costs import Shape, cost_of_config, on_meta, training_memory
from octavo.errors import UserError
from octavo.io.files import size
from octavo.io.memory import available
from octavo.models import MODELS
from octavo.ops.attention.kinds import kinds_for
from octavo.tasks.corpus import TextConfig
from octavo.tasks.task import find_task, task_for

Value = int | float | str

MIN_SECONDS, MAX_SECONDS, DEFAULT_SECONDS = 1, 3600, 120
MAX_TRAINING_BYTES = 8 << 30  # where there is as much
VOCAB = {"byte": 257, "char": 1000, "word": 30_000, "bpe": 4096}  # assumed before the text is known
LIMITS: dict[str, tuple[float, float]] = {  # by a setting's name; other numbers may be four times their default
    "width": (2, 1024), "layers": (1, 24), "heads": (1, 32), "context": (2, 2048), "dropout": (0, 0.9),
    "attention_window": (1, 2048), "memory": (0, 1024), "order": (1, 12), "k": (0, 1000), "dim": (1, 512),
    "hidden": (1, 512), "steps": (1, 5000), "learning_rate": (1e-6, 1),
    "vocab_size": (10, 50_000), "feed_forward_width": (0, 4096),
    "batch_size": (0, 1024), "sequence_length": (0, 2048), "evaluations": (1, 50), "seed": (0, 2**31 - 1),
}  # fmt: skip
SMALL_NUMBER = 256  # every number without a limit of its own may be as large
FIRST = ("width", "layers", "heads", "context", "attention", "attention_window", "positions", "dropout")
FEW_SETTINGS = 8  # a config with no more shows all of them first
CHOICES = {"tokenizer": tuple(VOCAB), "attention": tuple(kinds_for("text"))}  # of settings that are names
IMAGE_CHOICES = {"attention": tuple(kinds_for("image"))}
NOT_TRAINED = ("arpa",)  # choices of imported models
NOT_OFFERED = ("min_count", "split", "errors", "encoding")  # of what is read, which a page does not show
LOOP_SETTINGS, OPTIMIZER_SETTINGS = ("batch_size", "sequence_length", "evaluations"), ("learning_rate", "optimizer")


@dataclass(frozen=True)
class Setting:
    """One field of a form."""

    name: str
    kind: str  # integer, number or choice
    default: Value | None  # None: chosen by the model or the device
    description: str
    min: float | None = None
    max: float | None = None
    choices: tuple[str, ...] = ()
    main: bool = False  # shown first

    def check(self, value: Value) -> None:
        """Refuse a value that the form does not offer."""
        if self.kind == "choice":
            if value not in self.choices:
                raise UserError(f"{self.name} must be one of {', '.join(self.choices)}: {self.name}={value!r}")
            return
        is_integer = isinstance(value, int) and not isinstance(value, bool)
        if not is_integer and (self.kind == "integer" or not isinstance(value, float) or not math.isfinite(value)):
            raise UserError(f"{self.name} must be a {'whole ' * (self.kind == 'integer')}number: {self.name}={value!r}")
        if not self.min <= value <= self.max:  # type: ignore[operator]
            raise UserError(f"{self.name} must be from {self.min:g} to {self.max:g} here: {self.name}={value}")


@dataclass(frozen=True)
class Form:
    """The settings of one model's training run."""

    model: str
    task: str
    description: str
    has_budget: bool  # a budget ends the training, not a number of epochs
    settings: tuple[Setting, ...]

    def flags(self, values: Mapping[str, Value]) -> list[str]:
        """The flags of the command line for these values, which are checked before."""
        settings = {setting.name: setting for setting in self.settings}
        for name, value in values.items():
            if name not in settings:
                raise no_such_setting(f"the form of {self.model}", name, list(settings))
            settings[name].check(value)
        self._check_together(values)
        changed = {name: value for name, value in values.items() if value != settings[name].default}
        return [word for name, value in changed.items() for word in (f"--{name.replace('_', '-')}", f"{value}")]

    def _check_together(self, values: Mapping[str, Value]) -> None:
        """The configs' own rules, and that training a language model fits into memory."""
        task = find_task(self.task)
        recipe = task.recipe(self.model, {name: value for name, value in values.items() if name != "seed"})
        task.check(recipe)
        if not isinstance(recipe.settings, TextConfig):
            return
        tokenizer, vocab_size = recipe.settings.tokenizer, recipe.settings.vocab_size
        if vocab_size is not None and tokenizer not in ("word", "bpe"):
            raise UserError(f"vocab_size is for word and bpe tokens: tokenizer={tokenizer}; leave it empty")
        if not self.has_budget:
            return
        vocab = int(vocab_size or VOCAB[tokenizer]) + 257
        loop = recipe.loop.suiting(on_meta(recipe.model, recipe.config, vocab))
        cost = cost_of_config(recipe.model, recipe.config, vocab, Shape(loop.batch_size, loop.sequence_length))
        needed, limit = training_memory(cost, "muon", "float32").total, min(MAX_TRAINING_BYTES, available())
        if needed > limit:
            raise UserError(
                f"training this takes about {size(needed)}, and {size(limit)} are available; try a smaller width, "
                "fewer layers or a smaller batch"
            )


@cache
def forms() -> dict[str, Form]:
    """The form of each model and of each preset, by name; what is made of trained models has none."""
    specs = [spec for spec in MODELS.values() if spec.fitting != "mixture"]
    names = [name for spec in specs for name in (spec.name, *spec.presets)]
    return {name: form for name in (*names, "facts") if (form := _form(name)) is not None}


def form_of(model: str) -> Form:
    """The form of that model."""
    if model not in forms():
        raise UserError(f"there is no model {model!r} to train here; choose from {', '.join(forms())}")
    return forms()[model]


def _form(name: str) -> Form | None:
    """The form of a model; None where its defaults alone cannot be trained."""
    task = task_for(name)
    model, usual = task.configs(name)
    try:
        task.check(task.recipe(name, {}))
    except UserError:
        return None
    own = list(_settings(usual["config"], choices=IMAGE_CHOICES if task.name == "images" else CHOICES))
    if len(own) <= FEW_SETTINGS:
        own = [dataclasses.replace(setting, main=True) for setting in own]
    else:
        own.sort(key=lambda setting: FIRST.index(setting.name) if setting.main else len(FIRST))
    shared = list(_settings(usual["settings"]))
    if "loop" in usual:
        shared += [*_settings(usual["loop"], LOOP_SETTINGS), *_settings(usual["optimizer"], OPTIMIZER_SETTINGS)]
    seed = Setting("seed", "integer", 0, "Of the random numbers.", *LIMITS["seed"])
    about = {spec.name: spec.description for spec in MODELS.values()}
    about |= {name: preset.description for spec in MODELS.values() for name, preset in spec.presets.items()}
    description = about.get(name, f"a {model} that learns to {task.purpose}")
    return Form(name, task.name, description, "loop" in usual and bool(task.loop.budget), (*own, *shared, seed))


def _settings(
    default: Any, only: Sequence[str] = (), choices: Mapping[str, tuple[str, ...]] = CHOICES
) -> Iterator[Setting]:
    """Fields of a config that a form can offer: numbers and choices. Texts might be paths, which are not offered."""
    hints, descriptions = typing.get_type_hints(type(default)), field_descriptions(type(default))
    for name in only or [field.name for field in dataclasses.fields(default) if field.name not in NOT_OFFERED]:
        hint, value, main = hints[name], getattr(default, name), name in FIRST
        kinds = [kind for kind in typing.get_args(hint) or (hint,) if kind is not type(None)]
        description = descriptions.get(name, "")
        words = choices.get(name, tuple(word for word in kinds if isinstance(word, str)))
        if words:
            offered = tuple(word for word in words if word not in NOT_TRAINED)
            yield Setting(name, "choice", value, description, choices=offered, main=main)
        elif kinds in ([int], [float]) and (value is None or value >= 0):  # a negative default means: not set by users
            low, high = LIMITS.get(name, (0, SMALL_NUMBER))
            high = high if (value or 0) <= high else 4 * value
            kind = "integer" if kinds == [int] else "number"
            yield Setting(name, kind, value, description, float(low), float(high), main=main)


def field_descriptions(config: type) -> dict[str, str]:
    """The docstring below each field in the source of a config, inherited ones included."""
    descriptions = {}
    for kind in reversed([kind for kind in config.__mro__ if dataclasses.is_dataclass(kind)]):
        (body,) = (node.body for node in ast.parse(textwrap.dedent(inspect.getsource(kind))).body
                   if isinstance(node, ast.ClassDef))  # fmt: skip
        for field, after in pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(after, ast.Expr) \
                    and isinstance(after.value, ast.Constant):  # fmt: skip
                descriptions[field.target.id] = " ".join(str(after.value.value).split())
    return descriptions
