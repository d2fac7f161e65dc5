"""What can be asked of a training run from the page: models, their main settings, and the limits of each.

Names, usual values, choices and explanations come from the configs; what stands here is which of them are offered and
how far they go.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import math
import textwrap
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

from octavo.config import from_json, no_such_setting
from octavo.cost import Shape, cost_of_config, on_meta, training_memory
from octavo.errors import UserError
from octavo.io.files import size
from octavo.io.memory import available
from octavo.models import find_spec, preset
from octavo.tasks.count_training import TextConfig
from octavo.training.loop_config import LoopConfig
from octavo.training.optimizer import OptimizerConfig

Value = int | float | str
Limits = (
    tuple[float, float] | tuple[str, ...] | None
)  # of a number; or the words to choose from; None: all its type has

MIN_SECONDS, MAX_SECONDS, DEFAULT_SECONDS = 1, 3600, 120
MOST_BYTES = 8 << 30  # that training may take, where there is as much
VOCAB = {"byte": 257, "char": 1000, "word": 30_000, "bpe": 4096}  # where the text is not known yet
WIDE: dict[str, Limits] = {"width": (2, 1024), "layers": (1, 12), "dropout": (0, 0.9)}
BLOCKS: dict[str, Limits] = {
    "width": (2, 1024), "layers": (1, 24), "heads": (1, 32), "context": (2, 2048), "dropout": (0, 0.9),
    "positions": None,
}  # fmt: skip
OFFERED: dict[str, dict[str, Limits]] = {
    "bag": {"k": (0, 1000)},
    "ngram": {"order": (1, 12), "estimator": ("kneser-ney", "mle", "add-k", "stupid")},
    "bigram": {"dim": (1, 512), "hidden": (1, 512), "steps": (1, 5000), "rate": (1e-5, 1)},
    "rnn": WIDE, "gru": WIDE, "lstm": WIDE,
    "rnn-attention": {"cell": None, "width": (2, 1024), "memory": (0, 1024), "score": None, "dropout": (0, 0.9)},
    "gpt": BLOCKS, "local": BLOCKS | {"attention_window": (1, 2048)}, "linear": BLOCKS | {"features": None},
    "synthesizer": BLOCKS | {"attention": ("dense", "random")},
}  # fmt: skip
OF_TEXT: dict[str, Limits] = {"tokenizer": ("byte", "char", "word", "bpe"), "size": (10, 50_000)}
OF_LOOP: dict[str, Limits] = {
    "batch_size": (0, 1024), "sequence_length": (0, 2048), "evaluations": (1, 50),
}  # fmt: skip
OF_OPTIM: dict[str, Limits] = {"learning_rate": (1e-6, 1), "optimizer": None}
SEED = (0, 2**31 - 1)


@dataclass(frozen=True)
class Setting:
    """One field of the form."""

    name: str
    kind: str  # whole, number or choice
    usual: Value | None  # None: as it suits
    told: str
    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    main: bool = False  # of the model itself

    def check(self, value: Value) -> None:
        """Refuse what the form does not offer."""
        if self.kind == "choice":
            if value not in self.choices:
                raise UserError(f"{self.name} must be one of {', '.join(self.choices)}: {self.name}={value!r}")
            return
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole and (self.kind == "whole" or not isinstance(value, float) or not math.isfinite(value)):
            raise UserError(f"{self.name} must be a {'whole ' * (self.kind == 'whole')}number: {self.name}={value!r}")
        if not self.least <= value <= self.most:  # type: ignore[operator]
            raise UserError(f"{self.name} must be from {self.least:g} to {self.most:g} here: {self.name}={value}")


@dataclass(frozen=True)
class Form:
    """What is asked for one model."""

    model: str
    told: str
    steps: bool  # it learns step by step, so a budget ends it and a stopped one can be resumed
    settings: tuple[Setting, ...]

    def flags(self, given: Mapping[str, Value]) -> list[str]:
        """The command line's flags for what was given; all of it is checked before."""
        known = {one.name: one for one in self.settings}
        for name, value in given.items():
            if name not in known:
                raise no_such_setting(f"the form of {self.model}", name, list(known))
            known[name].check(value)
        self._check_together(given)
        flags = {name: value for name, value in given.items() if value != known[name].usual}
        return [word for name, value in flags.items() for word in (f"--{name.replace('_', '-')}", f"{value}")]

    def _check_together(self, given: Mapping[str, Value]) -> None:
        """The configs' own rules, and that it fits into memory."""
        model, usual = preset(self.model)
        owner = {one.name for one in self.settings if one.main}
        config: Any = from_json(
            type(usual), dataclasses.asdict(usual) | {name: v for name, v in given.items() if name in owner}
        )
        tokenizer = str(given.get("tokenizer", TextConfig.tokenizer))
        if "size" in given and tokenizer not in ("word", "bpe"):
            raise UserError(f"size is for word and bpe tokens: tokenizer={tokenizer}; leave size empty")
        if not self.steps:
            return
        if hasattr(config, "check_use"):
            config.check_use()
        vocab = int(given.get("size", VOCAB[tokenizer])) + 257
        loop = LoopConfig(
            batch_size=int(given.get("batch_size", 0)), sequence_length=int(given.get("sequence_length", 0))
        )
        loop = loop.suiting(on_meta(model, config, vocab))
        takes = training_memory(
            cost_of_config(model, config, vocab, Shape(loop.batch_size, loop.sequence_length)), "muon", "float32"
        )
        room = min(MOST_BYTES, available())
        if takes.total > room:
            raise UserError(
                f"training this takes about {size(takes.total)}, and {size(room)} can be had; try a smaller width, "
                "fewer layers or a smaller batch"
            )


@cache
def forms() -> dict[str, Form]:
    """A form for each model."""
    return {name: _form(name, limits) for name, limits in OFFERED.items()}


def form_of(model: str) -> Form:
    """The form of that model."""
    if model not in OFFERED:
        raise UserError(f"there is no model {model!r} to train here; choose from {', '.join(OFFERED)}")
    return forms()[model]


def _form(name: str, limits: Mapping[str, Limits]) -> Form:
    spec, (_, usual) = find_spec(name), preset(name)
    steps = spec.trained_by_gradient
    groups: list[tuple[Any, Mapping[str, Limits]]] = [(usual, limits), (TextConfig(), OF_TEXT)]
    groups += [(LoopConfig(), OF_LOOP), (OptimizerConfig(), OF_OPTIM)] if steps else []
    settings = [_setting(owner, key, some[key], owner is usual) for owner, some in groups for key in some]
    settings.append(Setting("seed", "whole", 0, "For everything that is drawn at random.", *SEED))
    return Form(name, spec.presets.get(name, spec).description, steps, tuple(settings))


def _setting(usual: Any, name: str, limits: Limits, main: bool) -> Setting:
    hint, told = typing.get_type_hints(type(usual))[name], explained(type(usual))[name]
    value = getattr(usual, name)
    words = limits if limits and isinstance(limits[0], str) else typing.get_args(hint) if limits is None else ()
    if words:
        return Setting(name, "choice", value, told, choices=tuple(map(str, words)), main=main)
    assert limits is not None
    least, most = limits
    return Setting(name, "number" if hint is float else "whole", value, told, float(least), float(most), main=main)


def explained(config: type) -> dict[str, str]:
    """What the source of a config says below each field."""
    (body,) = (node.body for node in ast.parse(textwrap.dedent(inspect.getsource(config))).body
               if isinstance(node, ast.ClassDef))  # fmt: skip
    told = {}
    for one, after in pairwise(body):
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and isinstance(after, ast.Expr) \
                and isinstance(after.value, ast.Constant):  # fmt: skip
            told[one.target.id] = " ".join(str(after.value.value).split())
    return told
