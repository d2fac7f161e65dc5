"""Calling a verb, and what the command line has of its own for each task."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from octavo.cli import VERBS
from octavo.cli.flags import run_action, run_command
from octavo.errors import UserError
from octavo.io.run_folder import CONFIG, read_record


class TaskVerbs(NamedTuple):
    """What the command line has of its own for a task."""

    module: str  # with print_result(result), and functions for the verbs
    verbs: tuple[str, ...]  # that these functions serve for runs of the task
    next_steps: tuple[str, ...]  # what to type after training


TASK_VERBS = {
    "language": TaskVerbs(
        "eval", (), ("eval {run} FILE", "generate {run} --max-tokens 200", "inspect {run}")),
    "facts": TaskVerbs("answer", (), ("answer {run} QUESTION --facts facts.db",)),
    "images": TaskVerbs("images", ("eval", "inspect"), ("eval {run}", "inspect {run} --image 0 --out attention.html")),
    "translation": TaskVerbs(
        "translate", ("eval", "inspect"), ("translate {run} --text TEXT", "inspect {run} --text TEXT")),
    "classification": TaskVerbs(
        "classify", ("eval", "inspect"), ("classify explain {run}", "classify predict {run} FILE")),
    "tagging": TaskVerbs("tag", ("eval",), ("tag eval {run}", "tag predict {run} FILE")),
    "masked": TaskVerbs("masked", (), ('fill {run} "a text with a [MASK] in it"', "embed {run} FILE", "export {run}")),
}  # fmt: skip


def run_verb(verb: str, argv: list[str]) -> None:
    """Parse the flags of one verb and call it."""
    module, _, name = VERBS[verb][0].partition(".")
    if not name:
        group = import_module(f"octavo.cli.{module}")
        run_action(verb, group.USAGE, group.ACTIONS, argv)
    elif name.startswith("run_"):
        verb_function(VERBS[verb][0])(argv)
    else:
        own = TASK_VERBS.get(task_of(argv), TASK_VERBS["language"])
        run_command(verb_function(f"{own.module if verb in own.verbs else module}.{name}"), f"octavo {verb}", argv)


def verb_function(named: str) -> Callable[..., Any]:
    """The function of that module of the command line."""
    module, name = named.split(".")
    found: Callable[..., Any] = getattr(import_module(f"octavo.cli.{module}"), name)
    return found


def task_of(argv: list[str]) -> str:
    """The task of the first run among the words."""
    for word in argv:
        if not word.startswith("-") and (Path(word) / CONFIG).is_file():
            with suppress(UserError):  # what is wrong with it is said when it is read
                return str(read_record(word)["task"])
            return ""
    return ""
