"""The commands that make a run again."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from octavo.tasks.task import Recipe, Task


def train_command(task: Task[Any, Any], recipe: Recipe, source: Sequence[str], out: str | Path) -> str:
    """octavo train with every setting that is not the usual one."""
    name = task.name if task.name == "facts" else recipe.model
    _, usual = task.configs(name)
    words = ["octavo", *(["classify"] if task.name == "classification" else []), "train", name, *map(str, source)]
    said = ("tokenizer",) if task.name == "language" and hasattr(recipe.settings, "tokenizer") else ()
    words += [word for name in said for word in (f"--{name}", getattr(recipe.settings, name))]
    for key, config in usual.items():
        words += flags_of(getattr(recipe, key), usual=config, leave_out=said if key == "settings" else ())
    words += [*(["--seed", str(recipe.seed)] if recipe.seed else []), "--out", str(out)]
    return shlex.join(words)


def flags_of(config: Any, leave_out: Sequence[str] = (), usual: Any = None) -> list[str]:
    """The fields that differ from the usual config's, or from their defaults, as the command line spells them."""
    words: list[str] = []
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if value == (field.default if usual is None else getattr(usual, field.name)) or field.name in leave_out:
            continue
        name = field.name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{name}" if value else f"--no-{name}")
        else:
            words += [f"--{name}", *map(str, value if isinstance(value, tuple) else (value,))]
    return words
