"""Old names that still work: each use warns, says what to use instead, and when the old name goes."""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from types import ModuleType
from typing import Any

REMOVAL = "2.0"  # old names last as long as the major version in which they were renamed


def warn_deprecated(old: str, new: str, removal: str = REMOVAL) -> None:
    """Warn that a name is old, at the line outside octavo that used it: Python shows no others by default."""
    message = f"{old} is deprecated and will be removed in octavo {removal}; use {new}"
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and _is_internal(frame.f_globals.get("__name__", "")):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, DeprecationWarning, stacklevel=level)


def _is_internal(module: str) -> bool:
    """Whether a frame is octavo's, or one of the import system that stands between it and the user."""
    return module.split(".")[0] in ("octavo", "importlib")


class MovedModule(ModuleType):
    """Stands in the place of a module that moved: its names are those of the new one, with a warning."""

    def __init__(self, old: str, new: str) -> None:
        super().__init__(old, f"Moved to {new}.")
        self._new = new

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what Python itself asks of a module
            raise AttributeError(name)
        value = getattr(import_module(self._new), name)
        warn_deprecated(f"{self.__name__}.{name}", f"{self._new}.{name}")
        return value


def register_moved_module(old: str, new: str) -> None:
    """Let `from OLD import NAME` go on working.

    OLD is not bound in its package: that attribute may be a function by now.
    """
    sys.modules.setdefault(old, MovedModule(old, new))
