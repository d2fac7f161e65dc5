"""The texts that a model can be trained on from the page: named sources that are here, and files that were sent.

What is sent is kept in the folder `texts` beside the runs and nowhere else, under a name that is made safe.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from pathlib import Path

from octavo.datasets import sources
from octavo.errors import UserError
from octavo.io.files import size, whole_file
from octavo.io.run_folder import CONFIG
from octavo.studio.server.model_cache import Unknown

FOLDER = "texts"
FACTS = "known-facts"  # what users have said, run by run; see routes/answer.py
ENDING = ".txt"  # of every name, so that nothing is taken for a packed file or a table
LONGEST_NAME = 80
MOST_FILES, MOST_BYTES = 100, 200 << 20  # that are kept
LEAST = 20  # bytes that can be split


@dataclass(frozen=True)
class Text:
    """A text to train on; `source` is what the command line is given."""

    name: str
    bytes: int
    told: str
    source: str


class Texts:
    """The texts of one runs folder."""

    def __init__(self, root: Path) -> None:
        self.folder = root / FOLDER
        self._root, self._lock = root, threading.Lock()

    def all(self) -> list[Text]:
        """Those that were sent, then the named ones that are on this machine."""
        sent = [Text(path.name, path.stat().st_size, "sent to this folder", str(path)) for path in self._sent()]
        return sent + [
            Text(name, source.bytes, source.title, name)
            for name, source in sources.SOURCES.items()
            if source.kind == "text" and sources.where(name) is not None
        ]

    def find(self, name: str) -> Text:
        """The text of that name; no other can be trained on."""
        for text in self.all():
            if text.name == name:
                return text
        raise Unknown(f"there is no text {name!r} to train on; choose one from the list, or send one")

    def keep(self, name: str, data: bytes) -> Text:
        """Keep a file that was sent; one of the same name is not written over, but the same text is kept once."""
        name = safe_name(name)
        _check_text(name, data)
        with self._lock:
            self._check_folder()
            kept = self._sent()
            if len(kept) >= MOST_FILES or sum(path.stat().st_size for path in kept) + len(data) > MOST_BYTES:
                raise UserError(
                    f"{self.folder.name}/ keeps at most {MOST_FILES} texts and {size(MOST_BYTES)}: it has {len(kept)}; "
                    "delete some there"
                )
            path = self.folder / name
            for count in range(2, MOST_FILES + 3):
                if not path.exists():
                    break
                if path.is_file() and path.read_bytes() == data:
                    return self.find(path.name)
                path = self.folder / f"{name.removesuffix(ENDING)}-{count}{ENDING}"
            with whole_file(path) as file:
                file.write(data)
        return self.find(path.name)

    def ready(self) -> Path:
        """The folder, which is made where it is not there."""
        self._check_folder()
        return self.folder

    def _sent(self) -> list[Path]:
        """The kept files; links are no texts of ours."""
        if not self.folder.is_dir() or self.folder.is_symlink():
            return []
        return [
            path for path in sorted(self.folder.glob(f"*{ENDING}"))
            if path.is_file() and not path.is_symlink() and not path.name.startswith(".")
        ]  # fmt: skip

    def _check_folder(self) -> None:
        if (self._root / CONFIG).exists():
            raise UserError("this folder is itself a run; start the studio with the folder that runs are in")
        if self.folder.is_symlink() or (self.folder / CONFIG).exists():
            raise UserError(f"{self.folder.name}/ is taken by something else; rename that, so that texts can be kept")
        try:
            self.folder.mkdir(exist_ok=True)
        except OSError as error:
            raise UserError(f"cannot keep texts in {self.folder.name}/: {error.strerror}; make it writable") from error


def safe_name(name: str) -> str:
    """A file's name without a path and with plain letters alone, ending in .txt."""
    last = re.split(r"[/\\]", name)[-1].removesuffix(ENDING)
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", last).strip(".-_")[: LONGEST_NAME - len(ENDING)]
    return (plain or "text") + ENDING


def _check_text(name: str, data: bytes) -> None:
    if len(data) < LEAST:
        raise UserError(f"a text to train on has at least {LEAST} bytes: {name} has {len(data)}; send a longer one")
    try:
        binary = "\0" in data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{name} is not UTF-8 text: byte {error.start:,} is 0x{data[error.start]:02x}; save it as UTF-8"
        ) from error
    if binary:
        raise UserError(f"{name} is not a text: it holds zero bytes; send plain text")
