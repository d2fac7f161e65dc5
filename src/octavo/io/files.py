"""Files that are either whole or not there: write to a temporary name, sync, rename."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from octavo.errors import UserError
from octavo.io import system
from octavo.io.partial_files import file_part, folder_part, replace_folder

REFUSALS = (
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.EEXIST,
    errno.ENOENT, errno.ELOOP, errno.EIO, errno.EBUSY,
)  # fmt: skip


@contextmanager
def whole_file(path: str | Path) -> Iterator[IO[bytes]]:
    """Open a file for writing that appears under its name only when everything in it is on disk.

    A link is followed; what is no file, such as a pipe or /dev/stdout, cannot be replaced and is written to as it is.
    """
    target = Path(os.path.realpath(path))
    if system.is_device(path):
        with _naming(path), open(path, "wb") as file:
            yield file
        return
    with _naming(path):
        target.parent.mkdir(parents=True, exist_ok=True)
        with file_part(target) as (file, part):
            system.set_usual_permissions(part, 0o666)
            yield file
            file.flush()
            os.fsync(file.fileno())
            if os.name == "nt":  # which renames no open file
                file.close()
            os.replace(part, target)
            system.sync(target.parent)


def write_text(path: str | Path, text: str) -> None:
    """Write a whole file of UTF-8; what UTF-8 cannot hold is written as an escape."""
    with whole_file(path) as file:
        file.write(text.encode("utf-8", "backslashreplace"))


@contextmanager
def whole_folder(path: str | Path) -> Iterator[Path]:
    """Fill a folder under a temporary name, then put it in place of the one that stood there; a link is followed."""
    target = Path(os.path.realpath(path))
    with _naming(path):
        target.parent.mkdir(parents=True, exist_ok=True)
        with folder_part(target) as work:
            system.set_usual_permissions(work, 0o777)
            yield work
            for below in (*work.rglob("*"), work):
                if below.is_file() or below.is_dir():
                    system.sync(below)
            replace_folder(work, target)
            system.sync(target.parent)


@contextmanager
def filled_folder(path: str | Path, names: Collection[str] = ()) -> Iterator[Path]:
    """A folder to write files into, which appears when all of them are there; the `names` in an old one are replaced.

    Where an old one holds anything else, each file is written into it as a whole.
    """
    held = set(os.listdir(path)) if os.path.isdir(path) else set()
    if held <= set(names):
        with whole_folder(path) as work:
            yield work
    else:
        yield Path(path)


def check_new(path: str | Path, force: bool = False) -> None:
    """Refuse to replace a file, or to write into a folder that holds something, unless that is asked for."""
    if not force and (os.path.isfile(path) or (os.path.isdir(path) and os.listdir(path))):
        raise UserError(f"{path} exists and is not replaced; choose another name, or add --force")


def lines_of(text: str) -> list[str]:
    """The lines as `wc -l` counts them: a form feed or a Unicode line separator stands inside a line."""
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines] if "\r" in text else lines


def json_records(lines: Iterable[str | bytes], source: str | Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of JSON lines, each with its place in words; empty lines are passed over."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        place = f"line {number:,} of {source}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{place} is not JSON: {error}; every line must be one JSON object") from error
        if not isinstance(record, dict):
            raise UserError(f"{place} must be a JSON object: it is {type(record).__name__}")
        yield place, record


def thousands(count: int) -> str:
    """A number of parameters, tokens or bytes to the last digit: 855553 as 855,553."""
    return f"{count:,}"


def size(count: float) -> str:
    """A number of bytes in words: 1115394 as 1.1 MB."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


@contextmanager
def _naming(path: str | Path) -> Iterator[None]:
    """Turn the operating system's refusals into a message that names the file and the remedy."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            above = next(place for place in (Path(path), *Path(path).absolute().parents) if place.exists())
            free = shutil.disk_usage(above).free
            raise UserError(
                f"the disk is full: writing {path} failed with {free:,} bytes free; free some room and run it again"
            ) from error
        if error.errno in REFUSALS:
            raise UserError(f"cannot write {path}: {error.strerror}; choose another place") from error
        if error.filename is None and error.errno is not None:  # say at least which file it was
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def refuse_pipes(folder: Path, owner: str) -> None:
    """Refuse a folder that holds what never ends when it is read: a pipe that nobody writes to, or a device."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.is_file() and not entry.is_dir() and os.path.exists(entry.path):
                raise UserError(f"{owner} holds files and folders: {entry.path} is a pipe or a device; remove it")
