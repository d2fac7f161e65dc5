"""What installed packages add to octavo through entry points, by group: `octavo.tokenizers`, `octavo.models`, ..."""

from __future__ import annotations

import sys
from collections.abc import Callable, Container
from importlib.metadata import EntryPoint, entry_points
from typing import TypeVar

Plugin = TypeVar("Plugin")


def load_plugins(
    group: str, check: Callable[[object], Plugin], built_in: Container[str]
) -> dict[str, Plugin]:  # fmt: skip
    """The objects that installed packages offer under the group, by name, as `check` returns them.

    One that fails to import, that `check` refuses with an exception, or whose name is taken is left out with one line
    on standard error: octavo works without it.
    """
    plugins: dict[str, Plugin] = {}
    for entry in sorted(entry_points(group=group), key=lambda entry: entry.name):
        try:
            if entry.name in built_in or entry.name in plugins:
                raise ValueError(f"the name {entry.name} is taken; choose another")
            plugins[entry.name] = check(entry.load())
        except Exception as error:  # whatever another package raises
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            print(f"octavo: {entry.name} of the package {_package(entry)} is left out: {reason}", file=sys.stderr)
    return plugins


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.module
