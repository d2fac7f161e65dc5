"""The data that a model can be trained on from the page: named ones on this machine, and uploaded text files.

Uploads are stored in the folder `texts` beside the runs and nowhere else, under sanitised names.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from pathlib import Path

from octavo.errors import UserError
from octavo.io.files import size, whole_file
from octavo.io.run_folder import CONFIG
from octavo.studio.server.model_cache import Conflict, NotFound
from octavo.tasks.task import TASKS, find_task

TEXTS_FOLDER = "texts"
FACTS_FOLDER = "known-facts"  # users' own answers, run by run; see routes/answer.py
SUFFIX = ".txt"  # of every name, so that nothing is taken for a compressed file or a table
MAX_NAME_CHARACTERS = 80
MAX_FILES, MAX_STORED_BYTES = 100, 200 << 20
MIN_TEXT_BYTES = 20  # a shorter text cannot be split


@dataclass(frozen=True)
class Text:
    """A text, or other data to train on, as the page shows it."""

    name: str
    bytes: int | None  # of an upload
    description: str
    tasks: tuple[str, ...]  # that can be trained on it


class TextStore:
    """The texts of one runs folder."""

    def __init__(self, root: Path) -> None:
        self.folder = root / TEXTS_FOLDER
        self._root, self._lock = root, threading.Lock()

    def all(self) -> list[Text]:
        """The uploads, then the named data of every task."""
        tasks = [find_task(name) for name in TASKS]
        takers = tuple(task.name for task in tasks if task.takes_file)
        uploads = [Text(path.name, path.stat().st_size, "uploaded", takers) for path in self._uploads()]
        named = {name: description for task in tasks for name, description in task.named_data().items()}
        return uploads + [
            Text(name, None, description, tuple(task.name for task in tasks if name in task.named_data()))
            for name, description in named.items()
        ]

    def find(self, name: str, task: str = "") -> Text:
        """The text of that name; a task can be trained on no other."""
        for text in self.all():
            if text.name == name and (not task or task in text.tasks):
                return text
        raise NotFound(f"there is no text {name!r} to train on; choose one from the list, or upload one")

    def source(self, name: str, task: str) -> str:
        """What the command line calls the text of that name. The page is not shown it, since it may be a path."""
        path = self.folder / self.find(name, task).name
        return str(path) if path in self._uploads() else name

    def store(self, name: str, data: bytes) -> Text:
        """Store an upload. A file of the same name is not overwritten, but the same text is stored once."""
        name = safe_name(name)
        _check_text(name, data)
        with self._lock:
            self.make_folder()
            stored = self._uploads()
            if len(stored) >= MAX_FILES or sum(path.stat().st_size for path in stored) + len(data) > MAX_STORED_BYTES:
                raise Conflict(
                    f"{self.folder.name}/ holds at most {MAX_FILES} texts and {size(MAX_STORED_BYTES)}: it has "
                    f"{len(stored)}; delete some there"
                )
            path = self.folder / name
            for count in range(2, MAX_FILES + 3):
                if not path.exists():
                    break
                if path.is_file() and path.read_bytes() == data:
                    return self.find(path.name)
                path = self.folder / f"{name.removesuffix(SUFFIX)}-{count}{SUFFIX}"
            with whole_file(path) as file:
                file.write(data)
        return self.find(path.name)

    def _uploads(self) -> list[Path]:
        """The stored files; links are not followed."""
        if not self.folder.is_dir() or self.folder.is_symlink():
            return []
        return [
            path for path in sorted(self.folder.glob(f"*{SUFFIX}"))
            if path.is_file() and not path.is_symlink() and not path.name.startswith(".")
        ]  # fmt: skip

    def make_folder(self) -> Path:
        """The folder, created where it does not exist."""
        if (self._root / CONFIG).exists():
            raise UserError("this folder is itself a run; start the studio with the folder that runs are in")
        if self.folder.is_symlink() or (self.folder / CONFIG).exists():
            raise UserError(f"{self.folder.name}/ is taken by something else; rename that, so that texts can be stored")
        try:
            self.folder.mkdir(exist_ok=True)
        except OSError as error:
            raise UserError(f"cannot store texts in {self.folder.name}/: {error.strerror}; make it writable") from error
        return self.folder


def safe_name(name: str) -> str:
    """A file name without a path, with ASCII letters and digits alone, ending in .txt."""
    last = re.split(r"[/\\]", name)[-1].removesuffix(SUFFIX)
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", last).strip(".-_")[: MAX_NAME_CHARACTERS - len(SUFFIX)]
    return (plain or "text") + SUFFIX


def _check_text(name: str, data: bytes) -> None:
    if len(data) < MIN_TEXT_BYTES:
        raise UserError(
            f"a text to train on has at least {MIN_TEXT_BYTES} bytes: {name} has {len(data)}; upload a longer one"
        )
    try:
        binary = "\0" in data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{name} is not UTF-8 text: byte {error.start:,} is 0x{data[error.start]:02x}; save it as UTF-8"
        ) from error
    if binary:
        raise UserError(f"{name} is not a text: it holds zero bytes; upload plain text")
