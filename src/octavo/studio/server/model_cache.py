"""The runs of one folder, and the few models that are kept in memory.

A run is called by its path below the folder: `gru`, `demo/ngram`. Nothing outside the folder is read, whatever a name
or a link says.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from octavo.errors import UserError
from octavo.io.files import size
from octavo.io.progress import listening
from octavo.io.run_folder import CONFIG, TENSORS, TOKENIZER, find_runs, read_record
from octavo.studio.server.scheduler import LOOK_AGAIN, Ticket
from octavo.tasks.classifier import Classifier, load_classifier
from octavo.tasks.count_training import pick_device
from octavo.tasks.encoder import NAMED, Encoder, load_encoder
from octavo.tasks.image_run import ImageRun, load_images
from octavo.tasks.run import Run, load
from octavo.tasks.translator import Translator, load_translator

KEPT = 4  # models in memory
KEPT_BYTES = 4 << 30  # of their files, together
READ_FROM = (CONFIG, TENSORS, TOKENIZER)
LOADERS: dict[str, Callable[[Path], Any]] = {  # by what a run was trained to do; "" predicts the next token
    "": load, "classify text": load_classifier, "classify images": load_images, "translate": load_translator,
    "fill in masked words": load_encoder,
}  # fmt: skip
Loaded = Run | Classifier | ImageRun | Translator | Encoder


class Unknown(UserError):
    """There is no such run."""


@dataclass
class Model:
    """A model that is being read, that is in memory, or that could not be read."""

    version: tuple[int, ...]  # of the files that it is read from
    bytes: int
    read: float = 0  # how many of them have been read
    total: float = 0
    loaded: Loaded | None = None
    error: UserError | None = None
    done: threading.Event = field(default_factory=threading.Event)


class Shelf:
    """Finds runs by name, and keeps those in memory that were used last."""

    def __init__(self, root: Path, kept: int = KEPT, kept_bytes: int = KEPT_BYTES, device: str = "auto") -> None:
        self.root = root.resolve()
        self.kept, self.kept_bytes, self.device = kept, kept_bytes, pick_device(device)
        self._lock = threading.Lock()
        self._models: OrderedDict[str, Model] = OrderedDict()  # the one used last is last

    def names(self) -> list[str]:
        """Every run of the folder, by name."""
        if (self.root / CONFIG).is_file():  # the folder is itself a run
            return [self.root.name]
        found = [path.relative_to(self.root).as_posix() for path in find_runs(self.root)]
        return [name for name in found if self._inside(self.root / name)]

    def path(self, name: str) -> Path:
        """The folder of a run; what is no run below our folder is refused, and nothing is told of it."""
        if name not in self.names():
            raise Unknown(f"there is no run {name!r} here; the runs page lists those that are")
        return self.root if (self.root / CONFIG).is_file() else self.root / name

    def record(self, name: str) -> dict[str, Any]:
        """What config.json says of a run."""
        return read_record(self.path(name))

    def _inside(self, path: Path) -> bool:
        """Whether no link of those that a model is read through leads out of the folder."""
        files = [path, *(path / name for name in READ_FROM)]
        return all(one.resolve().is_relative_to(self.root) for one in files)

    # ------------------------------------------------------------------ models

    def get(self, name: str, ticket: Ticket) -> Loaded:
        """The run's model: from memory, else it is read now; whoever asks while it is being read waits for it."""
        path = self.path(name)
        model, mine = self._claim(name, path)
        if mine:
            threading.Thread(target=self._read, args=(name, path, model), name=f"reading {name}", daemon=True).start()
        while not model.done.wait(LOOK_AGAIN):  # reading goes on where the reader leaves: it may come back
            ticket.check()
        if model.error is not None:
            raise model.error
        assert model.loaded is not None
        return model.loaded

    def _claim(self, name: str, path: Path) -> tuple[Model, bool]:
        """The model's place on the shelf, and whether the caller must fill it."""
        stats = [(path / file).stat() for file in READ_FROM if (path / file).exists()]
        version, large = tuple(stat.st_mtime_ns for stat in stats), sum(stat.st_size for stat in stats)
        if large > self.kept_bytes:
            raise UserError(
                f"{name} takes {size(large)}, and the studio keeps at most {size(self.kept_bytes)} in memory; start it "
                "with a larger --memory"
            )
        with self._lock:
            model = self._models.get(name)
            if model is not None and model.version == version:
                self._models.move_to_end(name)
                return model, False
            model = self._models[name] = Model(version, large, total=large)
            self._models.move_to_end(name)
            self._make_room()
            return model, True

    def _make_room(self) -> None:
        """Let go of those not used for longest; who works with one of them keeps it until the work is done."""
        while len(self._models) > self.kept or sum(one.bytes for one in self._models.values()) > self.kept_bytes:
            self._models.popitem(last=False)

    def _read(self, name: str, path: Path, model: Model) -> None:
        def listen(done: float, total: float) -> None:
            model.read, model.total = done, total

        try:
            told = read_record(path)
            check_links(path, self.root)
            check_base(told, self.root)
            with listening(listen):
                loaded = LOADERS[str(told.get("task", ""))](path)
            loaded.model.to(self.device).eval()
            model.loaded = loaded
        except UserError as error:
            model.error = error
        except KeyError as error:
            model.error = UserError(f"{name} was trained to {error}, which this octavo does not know; update octavo")
        except Exception as error:  # whatever it was, those who wait must be told
            model.error = UserError(f"{name} could not be read: {type(error).__name__}: {error}")
        finally:
            if model.error is not None:  # so that it is tried again
                with self._lock:
                    if self._models.get(name) is model:
                        del self._models[name]
            model.done.set()

    def states(self) -> list[dict[str, Any]]:
        """The models in memory and those being read."""
        with self._lock:
            return [
                {"run": name, "ready": model.done.is_set(), "bytes": model.bytes,
                 "share": 1.0 if model.done.is_set() else min(1.0, model.read / max(1.0, model.total))}
                for name, model in self._models.items()
            ]  # fmt: skip


def check_links(path: Path, root: Path) -> None:
    """Refuse a folder in which a link leads out of ours: any of its files may be read."""
    with os.scandir(path) as entries:
        links = [entry.name for entry in entries if entry.is_symlink()]
    if out := [name for name in links if not (path / name).resolve().is_relative_to(root)]:
        raise UserError(f"{out[0]} is a link that leads out of the studio's folder; put the file itself there")


def check_base(told: dict[str, Any], root: Path) -> None:
    """Refuse a classifier that is built on a model outside the folder."""
    base = told.get("base")
    path = str(base.get("path", "")) if isinstance(base, dict) else ""
    if path and path not in NAMED and not Path(path).resolve().is_relative_to(root):
        raise UserError(f"it reads another model, {path}, which is not below the studio's folder; move that there")
    if path and Path(path).is_dir():
        check_links(Path(path), root)
