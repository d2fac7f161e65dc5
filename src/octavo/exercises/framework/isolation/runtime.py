"""What a student's program may see of this machine: Python, the system's libraries, numpy and torch, and not octavo."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PACKAGES = ("numpy", "torch")  # what an answer may import beside the standard library; with them, what they need
PACKAGES_FOLDER = "/packages"  # where an isolated program finds them
WORK_FOLDER = "/work"  # the only folder into which it can write
HIDDEN_PACKAGE = "octavo"
PACKAGE_FOLDER = os.path.realpath(Path(__file__).parents[3])  # where it is installed
SYSTEM_LIBRARIES = ("/usr/lib", "/usr/lib64", "/usr/libx32", "/usr/lib32", "/lib", "/lib64")
LIBRARY_FILES = ("/etc/ld.so.cache",)
DEVICES = tuple(filter(os.path.exists, ("/dev/null", "/dev/urandom", "/dev/random")))


class Runtime(NamedTuple):
    """The files that are shown, read-only and under their own names, and the folders in them that are shown empty."""

    python: str
    libraries: tuple[str, ...]
    links: tuple[tuple[str, str], ...]  # name, what it links to
    hidden: tuple[str, ...]
    packages: tuple[tuple[str, str], ...]  # name in PACKAGES_FOLDER, file or folder here


@functools.cache
def find_runtime() -> Runtime:
    """The runtime of the Python that runs now."""
    python = os.path.realpath(sys.executable)
    prefixes = dict.fromkeys(os.path.realpath(prefix) for prefix in (sys.base_prefix, sys.base_exec_prefix))
    roots = [f"{prefix}/{folder}" for prefix in prefixes for folder in dict.fromkeys(("lib", sys.platlibdir))]
    links = [(name, os.readlink(name)) for name in SYSTEM_LIBRARIES if os.path.islink(name)]
    folders = [name for name in (*SYSTEM_LIBRARIES, *roots) if os.path.isdir(name) and not os.path.islink(name)]
    libraries = [name for name in dict.fromkeys(folders) if not any(_is_below(name, other) for other in folders)]
    files = [name for name in LIBRARY_FILES if os.path.isfile(name)]
    hidden = [folder for library in libraries for folder in _package_folders(library)]
    if any(_is_below(PACKAGE_FOLDER, one) for one in libraries) and not any(
        _is_below(PACKAGE_FOLDER, one) for one in hidden
    ):
        hidden.append(PACKAGE_FOLDER)
    return Runtime(python, (*libraries, *files), tuple(links), tuple(hidden), tuple(sorted(find_packages().items())))


def find_packages() -> dict[str, str]:
    """The files and folders of PACKAGES and of all that they require, by their name in site-packages."""
    found: dict[str, str] = {}
    waiting, seen = list(PACKAGES), {HIDDEN_PACKAGE}
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in seen:
            continue
        seen.add(name)
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:  # not installed, or needed only elsewhere
            continue
        for entry in _top_level(distribution):
            path = os.path.realpath(str(distribution.locate_file(entry)))
            if os.path.exists(path):
                found.setdefault(entry, path)
        waiting += [re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]
                    for requirement in distribution.requires or () if "extra ==" not in requirement]  # fmt: skip
    found.pop(HIDDEN_PACKAGE, None)
    return found


def _top_level(distribution: importlib.metadata.Distribution) -> Iterator[str]:
    """The entries of site-packages that belong to a distribution, apart from its metadata."""
    record = distribution.read_text("RECORD") or distribution.read_text("installed-files.txt") or ""
    names = {line.split(",", 1)[0].split("/", 1)[0] for line in record.splitlines()}
    for name in names or {distribution.name}:
        if name and not name.startswith((".", "__")) and not name.endswith((".dist-info", ".egg-info", ".pth")):
            yield name


def _package_folders(library: str) -> Iterator[str]:
    for pattern in ("python*/site-packages", "python*/dist-packages"):
        for folder in sorted(Path(library).glob(pattern)):
            if folder.is_dir() and not folder.is_symlink():
                yield str(folder)


def _is_below(path: str, folder: str) -> bool:
    return path != folder and path.startswith(folder.rstrip("/") + "/")
