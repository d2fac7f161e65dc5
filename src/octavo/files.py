"""Files that are either whole or not there: write to a temporary name, sync, rename."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from octavo.errors import UserError


@contextmanager
def whole_file(path: str | Path) -> Iterator[IO[bytes]]:
    """Open a file for writing that appears under its name only when everything in it is on disk."""
    path = Path(path)
    with _telling_about(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with _telling_about(path), os.fdopen(handle, "wb") as file:
            os.fchmod(file.fileno(), 0o666 & ~_umask())
            yield file
            file.flush()
            os.fsync(file.fileno())
            os.replace(name, path)
        _sync_folder(path.parent)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


@contextmanager
def whole_folder(path: str | Path) -> Iterator[Path]:
    """Fill a folder under a temporary name, then put it in place of the one that stood there."""
    path = Path(path)
    with _telling_about(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part"))
        work.chmod(0o777 & ~_umask())
    try:
        with _telling_about(path):
            yield work
            for file in work.rglob("*"):
                if file.is_file():
                    _sync(file)
            _swap_in(work, path)
        _sync_folder(path.parent)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise


def _swap_in(work: Path, path: Path) -> None:
    """Rename `work` to `path`; what stood at `path` is set aside first and deleted last."""
    if not path.exists():
        os.rename(work, path)
        return
    aside = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=".old"))
    os.rename(path, aside / "old")
    os.rename(work, path)
    shutil.rmtree(aside, ignore_errors=True)


@contextmanager
def _telling_about(path: Path) -> Iterator[None]:
    """Turn the operating system's refusals into a message that names the file and the remedy."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            free = shutil.disk_usage(_existing(path)).free
            raise UserError(
                f"the disk is full: writing {path} failed with {free:,} bytes free; free some room and run it again"
            ) from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG):
            raise UserError(f"cannot write {path}: {error.strerror}; choose another place") from error
        raise


def _existing(path: Path) -> Path:
    return next(p for p in (path, *path.absolute().parents) if p.exists())


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _sync(file: Path) -> None:
    with open(file, "rb") as opened:
        os.fsync(opened.fileno())


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
