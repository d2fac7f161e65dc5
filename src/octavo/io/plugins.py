"""What installed packages add to octavo through entry points, by group: `octavo.tokenizers`, `octavo.models`, ..."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import TypeVar

Plugin = TypeVar("Plugin")


def load_plugins(group: str, what: str, check: Callable[[object, str], Plugin]) -> dict[str, Plugin]:
    """The objects that installed packages offer under the group, by name, each as `check(object, name)` returns it.

    One that fails to import, or that `check` refuses with an exception, is left out with one line on standard error:
    octavo works without it. `what` is what such an object is called there.
    """
    plugins: dict[str, Plugin] = {}
    for entry in sorted(entry_points(group=group), key=lambda entry: entry.name):
        try:
            plugins[entry.name] = check(entry.load(), entry.name)
        except Exception as error:  # whatever another package raises
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            package = entry.dist.name if entry.dist is not None else entry.module
            source = f"the {what} {entry.name} of the package {package}"
            print(f"octavo: {source} is left out: {reason}", file=sys.stderr)
    return plugins
