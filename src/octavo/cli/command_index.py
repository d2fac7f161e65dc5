"""Descriptions of all commands, made from the commands themselves; `python -m octavo.cli.command_index` stores them."""

from __future__ import annotations

import contextlib
import io
import json
import re
import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import tyro

from octavo.cli import VERBS
from octavo.cli.help import INDEX, Description, readable_help, readable_value

TITLES = {"options": "flags", "positional arguments": "flags"}
PATHS = ("--out", "--page", "--csv", "--folder", "--results", "--facts", "--file", "--manual", "--times")


def describe_command(function: Callable[..., Any], prog: str, style: Any) -> Description:
    """What a command takes, from its function's signature."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # there is no other way to ask tyro
        parser = tyro.extras.get_parser(function, prog=prog, config=style)
    arguments, groups = [], dict[str, list[Description]]()
    for action in parser._actions:
        flag = action.option_strings[-1] if action.option_strings else ""
        if flag == "--help":
            continue
        metavar = action.metavar if isinstance(action.metavar, str) else " ".join(action.metavar or ())
        value = readable_value(metavar) if action.nargs != 0 else ""
        value = "PATH" if flag in PATHS else value
        described: Description = {
            "flag": flag,
            "value": value,
            "help": readable_help(flag, " ".join((action.help or "").split())),
        }
        if action.choices:
            choices = [str(one) for one in action.choices]
            if "None" in choices:  # then tyro has them in no order
                choices = sorted(one for one in choices if one != "None")
                described["value"] = "|".join(choices)
            described["choices"] = choices
        if flag:
            groups.setdefault(_title(action.container), []).append(described)
        else:
            is_optional = action.nargs in ("?", "*") and "(at least one)" not in described["help"]
            described["value"] = f"[{value}]" if is_optional and not value.startswith("[") else value
            arguments.append(described)
    about = re.sub(r"(?<!\n)\n(?!\n)", " ", (parser.description or "").strip())
    return {"about": re.sub(r" +", " ", about), "arguments": arguments, "groups": groups}


def _title(group: Any) -> str:
    """The title of a group of flags: what the command says of it, else the name of the argument."""
    title, about = group.title or "flags", (getattr(group, "description", None) or "").strip().rstrip(".")
    return TITLES.get(title) or (about if about and "\n" not in about else title.removesuffix(" options"))


def commands() -> Iterator[list[str]]:
    """The words of every command that has a page of its own."""
    from octavo.models import MODELS, names
    from octavo.tasks.trained_run import models_of

    grouped = {"classify": "classification", "tag": "tagging"}  # verbs with an action to train
    others = (spec.name for spec in MODELS.values() if spec.task not in ("language", *grouped.values()))
    trained = [*names(), *others]
    for verb, (place, _) in VERBS.items():
        yield [verb]
        module, _, name = place.partition(".")
        actions = [] if name and not name.startswith("run_") else list(
            getattr(import_module(f"octavo.cli.{module}"), "ACTIONS", ())
        )  # fmt: skip
        yield from ([verb, action] for action in actions)
        if verb in grouped:
            yield [verb, "train"]
            yield from ([verb, "train", model] for model in models_of(grouped[verb]))
        elif verb in ("train", "cost", "scale"):
            yield from ([verb, model] for model in (names() if verb == "scale" else trained))
            yield from [[verb, "facts"]] if verb == "train" else []


def build_index(only: Callable[[list[str]], bool] = lambda words: True) -> dict[str, Description]:
    """The description of every command, or of some, by its words."""
    from octavo.cli.flags import DESCRIBED
    from octavo.cli.verbs import run_verb

    found: dict[str, Description] = {}
    for words in filter(only, commands()):
        printed, described = io.StringIO(), list[Description]()
        token = DESCRIBED.set(described)
        try:
            with contextlib.redirect_stdout(printed):
                run_verb(words[0], [*words[1:], "--help"])
        finally:
            DESCRIBED.reset(token)
        usage = {"usage": printed.getvalue()} if printed.getvalue() else {}
        found[" ".join(words)] = usage | (described[0] if described else {})
    return found


if __name__ == "__main__":
    lines = [f"{json.dumps(name)}: {json.dumps(one, ensure_ascii=False)}" for name, one in build_index().items()]
    INDEX.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
