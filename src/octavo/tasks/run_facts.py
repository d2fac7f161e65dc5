"""What the pages and tables say about a run, and the command that makes it again."""

from __future__ import annotations

import dataclasses
import math
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from octavo.core import LanguageModel
from octavo.io.run_folder import TENSORS, TOKENIZER
from octavo.models import spec_of, stored_entries
from octavo.pages.sections import render_page, reproduce, versions
from octavo.tasks.run import Run
from octavo.tasks.task import Recipe, Task, find_task


def title_of(run: Run) -> str:
    """What the model is, in a few words: 7-gram of bytes, Kneser-Ney."""
    tokens = run.tokenizer.unit
    spec = spec_of(run.model)
    return f"{spec.title} over {tokens}" if spec.summarise is None else spec.summarise(run.model, tokens)


def bits_per_byte(run: Run) -> float:
    """The held-out result: infinite where a token was impossible, nan where nothing was measured."""
    result = run.record.get("result") or {}
    value = result.get("bits_per_byte")
    if value is not None:
        return float(value)
    return math.inf if result.get("impossible") else math.nan


def number(bits: float) -> str:
    """Bits per byte with four places, infinity as a word."""
    return f"{bits:.4f}" if math.isfinite(bits) else "infinite" if math.isinf(bits) else "not measured"


def stored(model: LanguageModel[Any]) -> str:
    """What a model is made of: its n-grams, or its numbers."""
    return ", ".join(f"{count:,} {name}" for name, count in sorted(stored_entries(model).items()) if count)


def bytes_on_disk(path: Path) -> int:
    """The files that using the model takes: its tensors and its tokenizer."""
    return sum((path / name).stat().st_size for name in (TENSORS, TOKENIZER))


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


def render_run_page(
    task: str, recipe: Recipe, run: Any, out: Path, title: str, lead: str, sections: Iterable[Any],
    *more: Sequence[str],
) -> str:  # fmt: skip
    """The page of a saved run of any task: its sections, the command that trained it and `more`, and the versions."""
    found = find_task(task)
    trained = train_command(found, recipe, run.record[found.data_key]["source"], out)
    commands = reproduce([trained, *map(shlex.join, more)], versions(run.record.get("made_with", {})))
    return render_page(title, lead, [*sections, commands])


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
