"""The commands that make a run again."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from octavo.tasks.count_training import TextConfig

OF_THE_PARTS = ("tokenizer", "size", "min_count", "split", "errors", "preprocess")  # a mixture reads as its parts do


def train_command(
    model: str, source: Any, text: TextConfig, config: Any, out: str | Path, seed: int,
    parts: Sequence[str | Path] = (), *how: Any,
) -> str:  # fmt: skip
    """octavo train with every setting that is not the default; `how` are further configs."""
    sources = [source] if isinstance(source, str | Path) else list(source)
    words = ["octavo", "train", model, *map(str, sources)]
    if parts:
        words += ["--parts", *map(str, parts), *flags_of(text, leave_out=OF_THE_PARTS)]
    else:
        words += ["--tokenizer", text.tokenizer, *flags_of(text, leave_out=("tokenizer",))]
    words += [flag for one in (config, *how) for flag in flags_of(one)]
    words += [*(["--seed", str(seed)] if seed else []), "--out", str(out)]
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
