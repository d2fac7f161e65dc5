"""Which exercises there are: a topic is a list of modules, each with its `EXERCISES`; a teacher's is a file."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
from collections.abc import Sequence
from pathlib import Path

from octavo.errors import UserError
from octavo.exercises.framework.exercise import Exercise

TOPICS: dict[str, tuple[str, ...]] = {
    "Attention and softmax": ("softmax", "scores", "attention", "heads", "head_width", "permutation"),
    "Copy and average": ("copying", "noisy_keys", "lookup"),
    "Positions": ("positions", "positions_learnt"),
    "Efficient attention": ("efficient", "linear_attention", "encoder_decoder"),
    "Recurrent networks": ("sigmoid", "recurrence", "lstm_gradients", "long_gradients"),
    "Language models": ("language", "greedy", "perplexity", "preprocessing"),
    "Networks and pretraining": (
        "networks",
        "hidden_layer",
        "averaging",
        "pretraining",
        "self_labels",
        "facts",
        "unseen",
        "thresholds",
    ),
}
OWN = "Your own"


def exercises(folder: str | Path | None = None) -> dict[str, list[Exercise]]:
    """Every topic with its exercises, in order; those of a teacher's folder come last."""
    topics = {topic: [one for module in modules for one in _of_module(module)] for topic, modules in TOPICS.items()}
    if folder is not None:
        topics[OWN] = from_folder(folder)
    every = [one.id for some in topics.values() for one in some]
    if twice := sorted({name for name in every if every.count(name) > 1}):
        raise UserError(f"every exercise needs an id of its own: {', '.join(twice)} is there twice; rename one")
    return topics


def chosen(names: Sequence[str], folder: str | Path | None = None) -> list[Exercise]:
    """The exercises of these ids or topics, all of them where none is named."""
    topics = exercises(folder)
    every = {one.id: one for some in topics.values() for one in some}
    if not names:
        return list(every.values())
    picked: dict[str, Exercise] = {}
    for name in names:
        of_topic = next((some for topic, some in topics.items() if topic.lower() == name.lower()), None)
        if of_topic is None and name not in every:
            near = difflib.get_close_matches(name, [*every, *topics], 1)
            remedy = f"did you mean {near[0]}?" if near else "octavo exercises list shows them"
            raise UserError(f"there is no exercise {name!r}; {remedy}")
        picked |= {one.id: one for one in (of_topic if of_topic is not None else [every[name]])}
    return list(picked.values())


def from_folder(folder: str | Path) -> list[Exercise]:
    """The exercises of a teacher's Python files, which are run: name only a folder whose code you wrote or read."""
    files = sorted(Path(folder).glob("*.py"))
    if not files:
        raise UserError(f"a folder of exercises holds Python files: {folder} has none; see octavo exercises --help")
    found: list[Exercise] = []
    for file in files:
        spec = importlib.util.spec_from_file_location(f"octavo_own_{file.stem}", file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            raise UserError(
                f"{file} cannot be run: {type(error).__name__}: {error}; mend it or move it away"
            ) from error
        own = getattr(module, "EXERCISES", None)
        if not isinstance(own, list | tuple) or not all(isinstance(one, Exercise) for one in own):
            raise UserError(f"{file} must have a list EXERCISES of Exercise; see octavo/exercises/__init__.py")
        found += own
    return found


def _of_module(name: str) -> Sequence[Exercise]:
    found: Sequence[Exercise] = importlib.import_module(f"octavo.exercises.topics.{name}").EXERCISES
    return found
