"""An index of the runs in a folder, refreshed by change: a folder that did not change is not listed again.

A refresh compares the inode and the times of every folder with those it has seen. Creating, deleting, renaming or
exchanging a file changes the times of the folder that it is in; a folder that takes another's place has another inode.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from octavo.io.run_folder import CONFIG, OURS, STATE, TENSORS, TOKENIZER

MODEL_FILES = (CONFIG, TENSORS, TOKENIZER)
SETTLED_NS = 2_000_000_000  # after a change; before that, a second one may leave the same times (FAT counts in 2 s)
MAX_AGE_NS = 60_000_000_000  # of a listing: some file systems do not change the times of folders


class Version(NamedTuple):
    """What tells a file or folder from an earlier one at its place."""

    device: int
    inode: int
    modified_ns: int
    changed_ns: int
    bytes: int


class Listing(NamedTuple):
    """The entries of a folder that an index needs."""

    version: Version
    read_ns: int
    files: frozenset[str]  # that have the names of a run's files
    folders: tuple[str, ...]  # that are not hidden
    links: frozenset[str]  # to anything

    def is_current(self, version: Version, now: int) -> bool:
        """Whether it cannot have changed."""
        return self.version == version and is_settled(version, self.read_ns) and 0 <= now - self.read_ns < MAX_AGE_NS


class IndexedRun(NamedTuple):
    """One run folder below the index's."""

    name: str  # its path below the folder: gru, demo/ngram
    path: Path
    files: frozenset[str]
    version: tuple[Version, ...] | None  # of all that it is described by; None where it may have changed unnoticed


class RunIndex:
    """The runs directly in a folder and one below; the folder may itself be a run."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self._lock = threading.Lock()
        self._listings: dict[str, Listing] = {}
        self._file_sets: dict[frozenset[str], frozenset[str]] = {}  # one object for the many runs with the same files
        self._runs: list[IndexedRun] = []
        self._by_name: dict[str, IndexedRun] = {}
        self._refreshed_ns = -1  # when the last refresh began

    def runs(self) -> list[IndexedRun]:
        """All runs by name, as they are now. Concurrent callers share one refresh that began after they asked."""
        asked = time.monotonic_ns()
        with self._lock:
            if self._refreshed_ns < asked:
                began = time.monotonic_ns()
                self._runs = self._refresh()
                self._by_name = {run.name: run for run in self._runs}
                self._refreshed_ns = began
            return self._runs

    def find(self, name: str) -> Path | None:
        """The folder of one run, found without looking at the others; None where there is no such run inside ours."""
        try:
            if (self.root / CONFIG).is_file():
                return self.root if name == self.root.name else None
            parts = name.split("/")
            path = self.root.joinpath(*parts)
            if len(parts) > 2 or any(not part or part.startswith(".") for part in parts):
                return None
            is_file = os.path.lexists(path / CONFIG) and not os.path.isdir(path / CONFIG)
            has_name = path.relative_to(self.root).parts == tuple(parts)
            return path if is_file and has_name and self._is_inside(path) else None
        except (OSError, ValueError):  # no file can have this name
            return None

    def _is_inside(self, path: Path) -> bool:
        """Whether none of the links that a model is read through leads out of the folder."""
        files = [path, *(path / name for name in MODEL_FILES)]
        if os.name == "posix" and not any(map(os.path.islink, (path.parent, *files))):
            return True  # as most are
        try:
            return all(file.resolve().is_relative_to(self.root) for file in files)
        except (OSError, RuntimeError):  # a link leads to itself
            return False

    # ------------------------------------------------------------------ refreshing

    def _refresh(self) -> list[IndexedRun]:
        before, self._listings = self._listings, {}  # what vanished is forgotten
        if (self.root / CONFIG).is_file():
            listing = self._list(str(self.root), before)
            return [] if listing is None else [self._run(self.root.name, str(self.root), listing, before)]
        found = []
        for name, listing, is_link in self._folders("", self._list(str(self.root), before), before):
            found.append((name, listing, is_link))
            found += [(sub, of, is_link or is_sub) for sub, of, is_sub in self._folders(f"{name}/", listing, before)]
        runs = [
            self._run(name, f"{self.root}{os.sep}{name}", listing, before)
            for name, listing, is_link in found
            if CONFIG in listing.files
            and (not (is_link or listing.links.intersection(MODEL_FILES)) or self._is_inside(self.root / name))
        ]
        return sorted(runs, key=lambda run: run.name.split("/"))

    def _folders(
        self, above: str, listing: Listing | None, before: dict[str, Listing]
    ) -> Iterator[tuple[str, Listing, bool]]:
        """The folders in a folder with their listings, and whether each is a link."""
        for name in listing.folders if listing is not None else ():
            inner = self._list(f"{self.root}{os.sep}{above}{name}", before)
            if inner is not None:
                yield above + name, inner, name in listing.links  # type: ignore[union-attr]

    def _run(self, name: str, place: str, listing: Listing, before: dict[str, Listing]) -> IndexedRun:
        """The run with its version: that of the folder, of its checkpoints' folder, its record and its tensors."""
        state = self._list(f"{place}{os.sep}{STATE}", before) if STATE in listing.folders else None
        folders = [listing] if state is None else [listing, state]
        files = [version_of(f"{place}{os.sep}{file}") for file in (CONFIG, TENSORS) if file in listing.files]
        version = (*(folder.version for folder in folders), *(file for file in files if file is not None))
        known, now = self._by_name.get(name), time.time_ns()
        if known is not None and known.version == version:
            return known
        is_sure = not any(of.links for of in folders) and all(is_settled(part, now) for part in version)
        return IndexedRun(name, Path(place), listing.files, version if is_sure else None)

    def _list(self, place: str, before: dict[str, Listing]) -> Listing | None:
        """The listing of a folder: the one known, where the folder did not change; None where it cannot be read."""
        if (listing := self._listings.get(place)) is not None:
            return listing
        version, now = version_of(place), time.time_ns()
        listing = before.get(place)
        if version is None:
            return None
        if listing is None or not listing.is_current(version, now):
            try:
                listing = self._read(place, version, now)
            except OSError:
                return None
        self._listings[place] = listing
        return listing

    def _read(self, place: str, version: Version, now: int) -> Listing:
        with os.scandir(place) as entries:
            every = list(entries)
            folders = tuple(entry.name for entry in every if not entry.name.startswith(".") and _is_folder(entry))
            links = frozenset(entry.name for entry in every if _is_link(entry))
        files = frozenset(entry.name for entry in every if entry.name in OURS).difference(folders)
        return Listing(version, now, self._file_sets.setdefault(files, files), folders, links)


def version_of(path: str | Path) -> Version | None:
    """The version of a file or folder; None where there is none."""
    try:
        stat = os.stat(path)
    except (OSError, ValueError):
        return None
    return Version(stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size)


def is_settled(version: Version, now: int) -> bool:
    """Whether a further change would show: it would not, if it came in the same tick of the file system's clock."""
    return now - max(version.modified_ns, version.changed_ns) > SETTLED_NS


def links_out(path: Path, root: Path) -> list[str]:
    """The names of links in a folder that lead out of another."""
    with os.scandir(path) as entries:
        links = [entry.name for entry in entries if _is_link(entry)]
    return [name for name in links if not (path / name).resolve().is_relative_to(root)]


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads to itself
        return False


def _is_link(entry: os.DirEntry[str]) -> bool:
    """Whether it is a link, or Windows' other kind of link."""
    return entry.is_symlink() or (hasattr(entry, "is_junction") and entry.is_junction())
