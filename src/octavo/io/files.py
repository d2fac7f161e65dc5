"""Files that are either whole or not there: write to a temporary name, sync, rename."""

from __future__ import annotations

import errno
import glob
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from octavo.errors import UserError
from octavo.io import system

PART = ".part"  # ends the names of what is not whole yet
STALE = 3600  # seconds after which a part that nobody holds a lock on is taken for a killed process's
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
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        with _naming(path), open(path, "wb") as file:
            yield file
        return
    with _naming(path):
        target.parent.mkdir(parents=True, exist_ok=True)
        _sweep(target)
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=PART)
    try:
        with _naming(path), os.fdopen(handle, "wb") as file:
            _lock(file.fileno())
            system.set_usual_permissions(name, 0o666)
            yield file
            file.flush()
            os.fsync(file.fileno())
        with _naming(path):
            os.replace(name, target)  # when it is closed: Windows renames no open file
        system.sync(target.parent)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


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
        _sweep(target)
        work = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.", suffix=PART))
    handle = system.open_folder(work)
    try:
        with _naming(path):
            if handle is not None:
                _lock(handle)
            system.set_usual_permissions(work, 0o777)
            yield work
            for file in work.rglob("*"):
                if file.is_file():
                    system.sync(file)
            _swap_in(work, target)
        system.sync(target.parent)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise
    finally:
        if handle is not None:
            os.close(handle)


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


def _swap_in(work: Path, path: Path) -> None:
    """Rename `work` to `path`; what stood at `path` is deleted last."""
    if not path.exists():
        os.rename(work, path)
        return
    if system.exchange(work, path):
        shutil.rmtree(work, ignore_errors=True)
        return
    # Without an exchange a kill between the two renames leaves the old folder only under its temporary name.
    aside = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=".old"))
    os.rename(path, aside / "old")
    os.rename(work, path)
    shutil.rmtree(aside, ignore_errors=True)


def _sweep(path: Path) -> None:
    """Delete what killed processes left of the same name: old parts on which no living process holds a lock."""
    for name in glob.glob(f".{glob.escape(path.name)}.*{PART}", root_dir=path.parent):
        part = path.parent / name
        try:
            if time.time() - part.stat().st_mtime < STALE:
                continue
            handle = os.open(part, os.O_RDONLY)
            try:
                system.lock(handle)
                shutil.rmtree(part) if part.is_dir() else part.unlink()
            finally:
                os.close(handle)
        except OSError:  # somebody still writes it, or it is not ours to delete
            continue


def _lock(handle: int) -> None:
    try:
        system.lock(handle)
    except OSError:  # a file system without locks cannot be swept either
        return


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
