"""A page for each verb of the command line, with its flags, from the descriptions that --help shows."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import NamedTuple

from octavo.cli import VERBS
from octavo.cli.help import Description, index

UNTITLED = "flags"


class Command(NamedTuple):
    """A command as it is typed, and what it takes."""

    words: tuple[str, ...]
    described: Description


def pages() -> dict[str, str]:
    """reference/commands/VERB.md for every verb, and their index."""
    rows = [f"| [`octavo {verb}`]({verb}.md) | {about} |" for verb, (_, about) in VERBS.items()]
    first = ["# Commands", "", "Every verb with its flags, as `octavo VERB --help` shows them.", "",
             "| command | what it does |", "|---|---|", *rows, ""]  # fmt: skip
    made = {"reference/commands/index.md": "\n".join(first)}
    for verb, (_, about) in VERBS.items():
        made[f"reference/commands/{verb}.md"] = _verb_page(verb, about)
    return made


def commands(verb: str) -> Iterator[Command]:
    """The verb itself and whatever follows it: actions, or models, each with flags of its own."""
    for name, described in index().items():
        words = tuple(name.split())
        if words == (verb,) or (words[0] == verb and "about" in described and verb != "scale"):
            yield Command(words, described)


def asked(*words: str) -> Command:
    """The command of these words."""
    return Command(words, index()[" ".join(words)])


def _verb_page(verb: str, about: str) -> str:
    lines = [f"# octavo {verb}"]
    found = list(commands(verb))
    if "about" not in found[0].described:  # otherwise its help says it
        lines += ["", about[0].upper() + about[1:] + "."]
    for command in found:
        if len(command.words) > 1:
            lines += ["", f"## octavo {' '.join(command.words)}"]
        if "usage" in command.described:
            lines += ["", "```text", command.described["usage"].rstrip(), "```"]
        if "about" in command.described:
            lines += _command_lines(command)
    return "\n".join(lines) + "\n"


def _command_lines(command: Command) -> Iterator[str]:
    """The description, then a table of flags for each group."""
    for paragraph in command.described["about"].split("\n\n"):
        yield ""
        yield _paragraph(paragraph)
    for title, rows in flag_table(command):
        if title:
            yield ""
            yield f"**{title}**"
        yield ""
        yield "| flag | what it is | default |"
        yield "|---|---|---|"
        yield from rows


def flag_table(command: Command) -> Iterator[tuple[str, list[str]]]:
    """Each group of a command's flags: its title, and a row of a table for each flag."""
    if arguments := command.described.get("arguments"):
        yield "", list(map(_row, arguments))
    for title, flags in command.described.get("groups", {}).items():
        yield "" if title == UNTITLED else title[0].upper() + title[1:], list(map(_row, flags))


def _paragraph(text: str) -> str:
    """A sentence of help; an example command is set as code."""
    label, colon, rest = text.partition(": ")
    if colon and re.match(r"(octavo|torchrun|echo) ", rest):
        return f"{plain(label)}: `{rest}`"
    return plain(text)


def _row(one: Description) -> str:
    text = one["help"]
    text, _, default = text.rpartition(" (") if text.endswith(")") else (text, "", "")
    default = default.removesuffix(")").removeprefix("default: ")
    flag = " ".join(filter(None, (one["flag"], one["value"])))
    shown = f"`{default}`" if default and not default.startswith(("required", "at least")) else default
    return f"| {_code(flag)} | {plain(text)} | {plain(shown) if not shown.startswith('`') else shown} |"


def _code(text: str) -> str:
    """In a table: a bar between choices must not end the cell, and long choices may wrap."""
    return "<code>" + html.escape(text).replace("|", "&#124;<wbr>") + "</code>"


def plain(text: str) -> str:
    """Text that Markdown leaves as it is."""
    text = html.escape(text, quote=False).replace("|", "&#124;")
    return re.sub(r"([\[\]*_`])", r"\\\1", text)
