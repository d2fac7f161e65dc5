"""octavo data: the named sources. Nothing here needs torch, so it starts at once."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import islice
from typing import Annotated

import tyro
from tyro.conf import FlagCreatePairsOff, Positional, arg

from octavo.cli.show import print_json, print_table, size
from octavo.errors import UserError
from octavo.text import sources


def run_data(argv: list[str]) -> None:
    """Dispatch list, get and show."""
    if not argv or argv[0] in ("-h", "--help"):
        print("usage: octavo data list | get NAME | show NAME      (each takes --json; --help shows more)\n")
        print("example: octavo data get shakespeare")
        return
    if argv[0] not in ACTIONS:
        raise UserError(f"octavo data takes {', '.join(ACTIONS)}: got {argv[0]!r}; try octavo data list")
    tyro.cli(ACTIONS[argv[0]], prog=f"octavo data {argv[0]}", args=argv[1:], config=(FlagCreatePairsOff,))


def list_sources(json: bool = False) -> None:
    """List the named sources and whether each is on this machine.

    Example: octavo data list

    Args:
        json: Print JSON.
    """
    if json:
        print_json(
            [source.to_json() | {"here": sources.where(name) is not None} for name, source in sources.SOURCES.items()]
        )
        return
    rows = [
        (name, source.kind, size(source.bytes), "yes" if sources.where(name) else "", source.licence, source.title)
        for name, source in sources.SOURCES.items()
    ]
    print_table(("name", "kind", "size", "here", "licence", "what it is"), rows, left=(0, 1, 4, 5))


def get_source(
    name: Annotated[Positional[str], arg(metavar="NAME")] = sources.DEFAULT, again: bool = False, json: bool = False
) -> None:
    """Fetch a source if it is not here yet, check it, and print where its files are.

    Example: octavo data get shakespeare

    Args:
        name: A name from octavo data list.
        again: Fetch it even if it is here.
        json: Print JSON.
    """
    files = sources.get_files(name, again)
    if json:
        print_json({file: str(path) for file, path in files.items()})
    else:
        print("\n".join(map(str, files.values())))


def show_source(
    name: Annotated[Positional[str], arg(metavar="NAME")] = sources.DEFAULT,
    lines: Annotated[int, arg(aliases=["-n"])] = 10,
    json: bool = False,
) -> None:
    """Show where a source comes from, its licence and hashes, and its first lines if it is here.

    Example: octavo data show shakespeare

    Args:
        name: A name from octavo data list.
        lines: How many lines of the text to show.
        json: Print JSON.
    """
    if lines < 0:
        raise UserError(f"lines must not be negative: lines={lines}; try --lines 10")
    source = sources.find(name)
    if json:
        print_json(source.to_json())
        return
    for key, value in source.to_json().items():
        if key == "files":
            for file in value:
                print(f"file      {file['name']}  {file['bytes']:,} bytes  sha256 {file['sha256']}")
        else:
            print(f"{key:<10}{value}")
    place = sources.where(name)
    if place is None:
        print(f"here      no; fetch it with: octavo data get {name}")
    elif place.is_file() and source.kind in ("text", "pairs", "labelled"):
        with open(place, encoding="utf-8", errors="replace") as file:
            sys.stdout.write("\n" + "".join(line[:200].rstrip("\n") + "\n" for line in islice(file, lines)))
    else:
        print(f"here      {place}")


ACTIONS: dict[str, Callable[..., None]] = {"list": list_sources, "get": get_source, "show": show_source}
