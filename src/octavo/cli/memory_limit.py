"""Too little address space (ulimit -v) is said in words: the libraries of numpy and torch end the process instead."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

from octavo.errors import UserError
from octavo.io.files import size

NUMPY_BYTES = 120_000_000
OTHER_BYTES = 300_000_000  # of Python, numpy, scipy and what torch takes beside its libraries
THREAD_BYTES = 40_000_000  # of each thread that the libraries start when they are loaded


def watch_imports() -> None:
    """Where the limit on address space is too low for numpy or torch, let their import say so."""
    limit = address_space()
    if limit is not None and limit < torch_bytes() and not any(isinstance(one, Watch) for one in sys.meta_path):
        needed = {"numpy": NUMPY_BYTES + threads() * THREAD_BYTES, "torch": torch_bytes()}
        sys.meta_path.insert(0, Watch(limit, {name: count for name, count in needed.items() if limit < count}))


class Watch:
    """A finder of modules that refuses some."""

    def __init__(self, limit: int, needed: Mapping[str, int]) -> None:
        self.limit, self.needed = limit, needed

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name in self.needed:
            raise UserError(
                f"too little memory for {name}: this process may take {size(self.limit)} of address space, and {name} "
                f"needs about {size(self.needed[name])}; raise the limit (ulimit -v unlimited)"
            )
        return None


def address_space() -> int | None:
    """The limit on this process's address space in bytes; None where there is none."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def torch_bytes() -> int:
    """About how much address space a command takes that loads torch: its libraries, the rest and the threads."""
    spec = PathFinder.find_spec("torch")
    libraries = 0
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        with suppress(OSError):
            libraries += sum(file.stat().st_size for file in Path(folder, "lib").iterdir() if ".so" in file.name)
    return libraries + OTHER_BYTES + threads() * THREAD_BYTES


def threads() -> int:
    """How many threads numpy's and torch's libraries start."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return int(asked) if asked.isdigit() else os.cpu_count() or 1
