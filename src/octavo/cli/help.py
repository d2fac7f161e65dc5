"""Help texts from descriptions of the commands, which commands.json holds: nothing slow is imported to show them.

`python -m octavo.cli.command_index` writes that file anew from the commands themselves; a test compares the two.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import textwrap
from functools import cache
from pathlib import Path
from typing import Any

INDEX = Path(__file__).with_name("commands.json")
HELP_FLAGS = ("-h", "--help")
LISTS_MODELS = ("train", "cost", "scale", "classify")  # whose pages list models, of installed packages too
MAX_WIDTH = 110  # characters of a line
FLAG_WIDTH = 30  # characters of the column of flags
ALSO = (
    ("--quiet", "print results and errors only"),
    ("--verbose", "print more of what is done, and where errors come from"),
    ("--max-bytes SIZE", "trust what is read up to this size, such as 40GB: unpacked, or in one line"),
)

Description = dict[str, Any]
"""Of a command: usage, a text as it is; about, arguments, and groups of flags, each with flag, value, help, choices."""


@cache
def index() -> dict[str, Description]:
    """The description of every command by its words: eval, train gpt, data list."""
    try:
        found: dict[str, Description] = json.loads(INDEX.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found


def asked_for(argv: list[str]) -> list[str] | None:
    """The words of the command that help is asked for: octavo eval --help, octavo help eval; None where it is not."""
    if argv[:1] == ["help"]:
        return [word for word in argv[1:] if word not in HELP_FLAGS]
    if argv and argv[-1] in HELP_FLAGS and not any(word in HELP_FLAGS for word in argv[:-1]):
        return argv[:-1]
    return None


def show_help(words: list[str]) -> bool:
    """Print the help of a command; False where that cannot be known without importing it."""
    found = index().get(" ".join(words))
    if found is None or (words[0] in LISTS_MODELS and _has_plugins()):
        return False
    sys.stdout.write(help_text(" ".join(words), found))
    return True


def _has_plugins() -> bool:
    """Whether installed packages bring models."""
    from importlib.metadata import entry_points

    return bool(entry_points(group="octavo.models"))


def help_text(command: str, found: Description) -> str:
    """The page of a command, as wide as the terminal."""
    width = min(MAX_WIDTH, shutil.get_terminal_size().columns)
    if "about" not in found:
        return str(found["usage"])
    names = " ".join(one["value"] for one in found["arguments"])
    lines = [found["usage"] if "usage" in found else f"usage: octavo {command} {names} [flags]\n".replace("  ", " ")]
    for paragraph in found["about"].split("\n\n"):
        is_command = paragraph.startswith(("Example:", "Several processes:"))  # to be copied as it is
        wrapped = textwrap.wrap(paragraph, width, break_long_words=False, break_on_hyphens=False)
        lines += [*([paragraph] if is_command else wrapped), ""]
    for one in found["arguments"]:
        lines += _entry(one["value"], one["help"], width)
    for title, flags in found["groups"].items():
        lines += ["", f"{title}:"]
        for one in flags:
            lines += _entry(" ".join(filter(None, (one["flag"], one["value"]))), one["help"], width)
    lines += ["", "every verb:", *(line for flag, about in ALSO for line in _entry(flag, about, width))]
    return "\n".join(lines) + "\n"


def _entry(name: str, about: str, width: int) -> list[str]:
    """A flag and what it does, beside each other or, where there is no room, below each other."""
    column = min(FLAG_WIDTH, width // 3)
    wrapped = textwrap.wrap(about, max(20, width - column - 2), break_long_words=False, break_on_hyphens=False) or [""]
    first = f"  {name}"
    if len(first) + 2 > column:
        return [first, *(" " * column + line for line in wrapped)]
    return [f"{first:<{column}}{wrapped[0]}", *(" " * column + line for line in wrapped[1:])]


def readable_value(metavar: str) -> str:
    """A value's name as a reader expects it: N for a whole number, a|b for choices, ... for several."""
    metavar = re.sub(r"\{None\}\|?|\|\{None\}|(?<=\{)None,|,None(?=\})", "", metavar)
    metavar = re.sub(r"\[(\w+) \[\w+ \.\.\.\]\]", r"\1...", metavar)
    metavar = re.sub(r"\{([^{}]*)\}", lambda found: found[1].replace(",", "|"), metavar)
    return metavar.replace("INT", "N").replace("FLOAT", "X").replace("STR", "TEXT")


def readable_help(flag: str, text: str) -> str:
    """A help text without defaults that say nothing; of a flag that turns something off, in words that read so."""
    text = re.sub(r" ?\(default: (None|False|True|''|)\)$", "", text).removesuffix(" (required)")
    if not flag.startswith("--no-"):
        return text
    before, named, after = text.partition(flag)
    if not named:
        return f"Turn off: {text[:1].lower()}{text[1:]}"
    after, before = after.strip(" :;"), before.strip(" :;.")
    after = after[:1].upper() + after[1:]
    plain = before[:1].lower() + before[1:] if before[1:2].islower() else before
    return f"{after} Without it: {plain}." if before else after
