"""What installed packages add to octavo through entry points, by group: `octavo.tokenizers`, `octavo.models`, ..."""

from __future__ import annotations

import sys
from importlib.metadata import entry_points
from typing import Any


def load_plugins(group: str) -> dict[str, Any]:
    """The objects that installed packages offer under the group, by name; one that fails to import is left out."""
    plugins = {}
    for entry in entry_points(group=group):
        try:
            plugins[entry.name] = entry.load()
        except Exception as error:  # whatever another package's import raises must not stop octavo
            print(f"octavo: the plug-in {entry.name} ({entry.value}) is left out: {error}", file=sys.stderr)
    return plugins
