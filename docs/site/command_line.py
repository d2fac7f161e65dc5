"""A page for each verb of the command line, with its flags, from the parser that the verb itself uses."""

from __future__ import annotations

import argparse
import contextlib
import html
import io
import re
import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, NamedTuple

import tyro
import tyro.extras

from octavo.cli import VERBS, main
from octavo.models import MODELS

MODEL_VERBS = ("train", "cost")  # their flags depend on the model: each has a section
GROUPS = {"positional arguments": "", "options": "", "config options": "The model", "settings options": "Settings",
          "loop options": "How long, and in what batches", "optimizer options": "The optimizer"}  # fmt: skip


class Command(NamedTuple):
    """A command as it is typed, and either its parser or the text that it prints."""

    words: tuple[str, ...]
    parser: argparse.ArgumentParser | None
    usage: str


def pages() -> dict[str, str]:
    """reference/commands/VERB.md for every verb, and their index."""
    rows = [f"| [`octavo {verb}`]({verb}.md) | {about} |" for verb, (_, about) in VERBS.items()]
    index = ["# Commands", "", "Every verb with its flags, as `octavo VERB --help` shows them.", "",
             "| command | what it does |", "|---|---|", *rows, ""]  # fmt: skip
    made = {"reference/commands/index.md": "\n".join(index)}
    for verb, (_, about) in VERBS.items():
        made[f"reference/commands/{verb}.md"] = _verb_page(verb, about)
    return made


def commands(verb: str) -> Iterator[Command]:
    """The verb itself and whatever its first words can be: actions, or models."""
    first = asked(verb)
    yield first
    if first.parser is not None:
        return
    for word in _second_words(verb):
        command = asked(verb, word)
        if command.parser is not None:
            yield command
    if verb == "classify":
        for model in ("linear", "dan", "head"):
            yield asked(verb, "train", model)


def asked(*words: str) -> Command:
    """What `octavo WORDS --help` would show: tyro is asked for the parser in place of the help."""
    found: list[argparse.ArgumentParser] = []

    def keep_parser(function: Callable[..., Any], *, prog: str | None = None, config: Any = None, **_: Any) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # get_parser is deprecated, and has no successor yet
            found.append(tyro.extras.get_parser(function, prog=prog, config=config))
        raise SystemExit(0)

    printed = io.StringIO()
    real, tyro.cli = tyro.cli, keep_parser  # type: ignore[assignment]
    try:
        with contextlib.redirect_stdout(printed):
            code = main([*words, "--help"])
    finally:
        tyro.cli = real
    if code:
        raise RuntimeError(f"octavo {' '.join(words)} --help exits with {code}: {printed.getvalue()}")
    return Command(words, found[0] if found else None, printed.getvalue())


def _second_words(verb: str) -> list[str]:
    if verb in MODEL_VERBS:
        presets = [name for spec in MODELS.values() for name in spec.presets]
        of_task = ["facts"] if verb == "train" else []
        return [*(name for name in MODELS if verb == "train" or MODELS[name].cost), *of_task, *presets]
    module = import_module(f"octavo.cli.{VERBS[verb][0].partition('.')[0]}")
    return list(getattr(module, "ACTIONS", ()))


def _verb_page(verb: str, about: str) -> str:
    lines = [f"# octavo {verb}", "", about[0].upper() + about[1:] + "."]
    for command in commands(verb):
        if len(command.words) > 1:
            lines += ["", f"## octavo {' '.join(command.words)}"]
        if command.parser is None:
            lines += ["", "```text", command.usage.rstrip(), "```"]
        else:
            lines += _command_lines(command.parser)
    return "\n".join(lines) + "\n"


def _command_lines(parser: argparse.ArgumentParser) -> Iterator[str]:
    """The description, then a table of flags for each group."""
    for paragraph in (parser.description or "").strip().split("\n\n"):
        yield ""
        yield _paragraph(" ".join(paragraph.split()))
    for title, rows in flag_table(Command((), parser, "")):
        if title:
            yield ""
            yield f"**{title}**"
        yield ""
        yield "| flag | what it is | default |"
        yield "|---|---|---|"
        yield from rows


def flag_table(command: Command) -> Iterator[tuple[str, list[str]]]:
    """Each group of a command's flags: its title, and a row of a table for each flag."""
    groups = command.parser._action_groups if command.parser is not None else []
    for group in groups:
        actions = [action for action in group._group_actions if "--help" not in action.option_strings]
        name = group.title or ""
        if actions:
            yield GROUPS.get(name, name.removesuffix(" options").capitalize()), list(map(_row, actions))


def _paragraph(text: str) -> str:
    """A sentence of help; an example command is set as code."""
    label, colon, rest = text.partition(": ")
    if colon and re.match(r"(octavo|torchrun|echo) ", rest):
        return f"{plain(label)}: `{rest}`"
    return plain(text)


def _row(action: argparse.Action) -> str:
    text = " ".join((action.help or "").split())
    text, _, default = text.rpartition(" (") if text.endswith(")") else (text, "", "")
    default = default.removesuffix(")").removeprefix("default: ")
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    names = ", ".join(action.option_strings)
    flag = f"{names} {metavar}".strip() if names else metavar
    shown = f"`{default}`" if default and not default.startswith(("required", "at least")) else default
    return f"| {_code(flag)} | {plain(text)} | {plain(shown) if not shown.startswith('`') else shown} |"


def _code(text: str) -> str:
    """In a table: a bar between choices must not end the cell, and long choices may wrap."""
    return "<code>" + html.escape(text).replace("|", "&#124;").replace(",", ",<wbr>") + "</code>"


def plain(text: str) -> str:
    """Text that Markdown leaves as it is."""
    text = html.escape(text, quote=False).replace("|", "&#124;")
    return re.sub(r"([\[\]*_`])", r"\\\1", text)
