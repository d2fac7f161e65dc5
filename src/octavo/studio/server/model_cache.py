"""The runs of one folder, and a least-recently-used cache of their models.

A run is named by its path below the folder: `gru`, `demo/ngram`. Nothing outside the folder is read, whatever a name
or a link says.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from octavo.errors import UserError
from octavo.io.files import size
from octavo.io.progress import listening
from octavo.io.run_folder import CONFIG, read_record
from octavo.io.run_index import MODEL_FILES, RunIndex, Version, is_settled, links_out, version_of
from octavo.studio.server.scheduler import POLL_SECONDS, Ticket
from octavo.tasks.api import load
from octavo.tasks.device import move, pick_device
from octavo.tasks.encoder import NAMED
from octavo.tasks.task import find_task
from octavo.tasks.trained_run import TrainedRun

MAX_MODELS = 4  # in memory
MAX_MODEL_BYTES = 4 << 30  # of their files, together
MAX_RECORDS, MAX_CACHED_RECORD_BYTES = 64, 1 << 16  # in memory, each
R = TypeVar("R", bound=TrainedRun)


class Conflict(UserError):
    """Another training run is in progress, the name is taken, or there is no room for more texts."""


class NotFound(UserError):
    """There is no such run."""


@dataclass
class CacheEntry:
    """A model that is loading, that is in memory, or that failed to load."""

    version: tuple[Version, ...]  # of its files
    bytes: int
    read: float = 0  # of those bytes
    total: float = 0
    loaded: TrainedRun | None = None
    error: UserError | None = None
    done: threading.Event = field(default_factory=threading.Event)


class ModelCache:
    """Finds runs by name, and keeps the most recently used models in memory."""

    def __init__(
        self, root: Path, max_models: int = MAX_MODELS, max_bytes: int = MAX_MODEL_BYTES, device: str = "auto"
    ) -> None:
        self.index = RunIndex(root)
        self.root = self.index.root
        self.max_models, self.max_bytes, self.device = max_models, max_bytes, pick_device(device)
        self._lock = threading.Lock()
        self._models: OrderedDict[str, CacheEntry] = OrderedDict()  # least recently used first
        self._records: dict[str, tuple[Version, dict[str, Any]]] = {}

    def names(self) -> list[str]:
        """The names of all runs in the folder."""
        return [run.name for run in self.index.runs()]

    def path(self, name: str) -> Path:
        """The folder of a run. A name that is no run below our folder is refused, and the refusal reveals nothing."""
        if (path := self.index.find(name)) is None:
            raise NotFound(f"there is no run {name!r} here; the runs page lists those that are")
        return path

    def record(self, name: str) -> dict[str, Any]:
        """The record of a run: its config.json, read again when it has changed. It is shared: change nothing in it."""
        path = self.path(name)
        version, now = version_of(path / CONFIG), time.time_ns()
        with self._lock:
            known = self._records.get(name)
        if known is not None and known[0] == version:
            return known[1]
        record = read_record(path)
        if version is not None and is_settled(version, now) and version.bytes <= MAX_CACHED_RECORD_BYTES:
            with self._lock:
                self._records[name] = version, record
                if len(self._records) > MAX_RECORDS:
                    del self._records[next(iter(self._records))]
        return record

    # ------------------------------------------------------------------ models

    def get(self, name: str, ticket: Ticket, kind: type[R] = TrainedRun) -> R:  # type: ignore[assignment]
        """The loaded run: from memory, or loaded now; concurrent callers wait for the same load. A run of another kind
        is refused."""
        path = self.path(name)
        entry, is_new = self._claim(name, path)
        if is_new:
            threading.Thread(target=self._load, args=(name, path, entry), name=f"loading {name}", daemon=True).start()
        while not entry.done.wait(POLL_SECONDS):  # loading continues when the client leaves: it may come back
            ticket.check()
        if entry.error is not None:
            raise entry.error
        if not isinstance(entry.loaded, kind):
            raise UserError(f"{name} does not {find_task(kind.task).purpose}; choose a run that does")
        return entry.loaded

    def _claim(self, name: str, path: Path) -> tuple[CacheEntry, bool]:
        """The model's entry, and whether the caller must load it."""
        versions = [version_of(path / file) for file in MODEL_FILES]
        version = tuple(one for one in versions if one is not None)
        file_bytes = sum(one.bytes for one in version)
        if file_bytes > self.max_bytes:
            raise UserError(
                f"{name} takes {size(file_bytes)}, and the studio keeps at most {size(self.max_bytes)} in memory; "
                "start it with a larger --memory"
            )
        with self._lock:
            entry = self._models.get(name)
            if entry is not None and entry.version == version:
                self._models.move_to_end(name)
                return entry, False
            entry = self._models[name] = CacheEntry(version, file_bytes, total=file_bytes)
            self._models.move_to_end(name)
            self._evict()
            return entry, True

    def _evict(self) -> None:
        """Drop the least recently used; a request that computes with one holds it until it is done."""
        while len(self._models) > self.max_models or sum(e.bytes for e in self._models.values()) > self.max_bytes:
            self._models.popitem(last=False)

    def _load(self, name: str, path: Path, entry: CacheEntry) -> None:
        def listen(done: float, total: float) -> None:
            entry.read, entry.total = done, total

        try:
            record = read_record(path)
            check_links(path, self.root)
            check_base(record, self.root)
            with listening(listen):
                loaded = load(path)
            move(loaded, self.device)
            loaded.model.eval()
            entry.loaded = loaded
        except UserError as error:
            entry.error = error
        except KeyError as error:
            entry.error = UserError(f"{name} was trained to {error}, which this octavo does not know; update octavo")
        except MemoryError:
            entry.error = UserError(f"{name} takes more memory than there is; close other programs, or choose another")
        except BaseException as error:  # whatever it was, a library's panic too, those who wait must not wait for ever
            entry.error = UserError(f"{name} could not be read: {type(error).__name__}: {error}; train it again")
        finally:
            if entry.error is not None:  # so that the next request tries again
                with self._lock:
                    if self._models.get(name) is entry:
                        del self._models[name]
            entry.done.set()

    def states(self) -> list[dict[str, Any]]:
        """The models in memory and those loading."""
        with self._lock:
            return [
                {"run": name, "ready": entry.done.is_set(), "bytes": entry.bytes,
                 "progress": 1.0 if entry.done.is_set() else min(1.0, entry.read / max(1.0, entry.total))}
                for name, entry in self._models.items()
            ]  # fmt: skip


def check_links(path: Path, root: Path) -> None:
    """Refuse a folder with a link that leads out of ours: any of its files may be read."""
    if out := links_out(path, root):
        raise UserError(f"{out[0]} is a link that leads out of the studio's folder; put the file itself there")


def check_base(record: dict[str, Any], root: Path) -> None:
    """Refuse a classifier that is built on a model outside the folder."""
    base = record.get("base")
    path = str(base.get("path", "")) if isinstance(base, dict) else ""
    if path and path not in NAMED and not Path(path).resolve().is_relative_to(root):
        raise UserError(f"it reads another model, {path}, which is not below the studio's folder; move that there")
    if path and Path(path).is_dir():
        check_links(Path(path), root)
