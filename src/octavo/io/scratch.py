"""A folder for what is needed only while a command works: deleted at its end, or by the next command after a kill."""

from __future__ import annotations

import glob
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from octavo.io import system

SCRATCH = ".scratch"  # ends the names of such folders
LOCK = ".lock"  # in it: held as long as its process lives, so that nobody else takes it for a killed one's


@contextmanager
def scratch_folder(path: str | Path) -> Iterator[Path]:
    """An empty folder beside `path`, so that files can be moved there; those of killed processes are deleted first."""
    target = Path(os.path.realpath(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    sweep_scratch(target.parent, target.name)
    work, handle = _make(target)
    try:
        yield work
    finally:
        os.close(handle)
        shutil.rmtree(work, ignore_errors=True)


def sweep_scratch(folder: Path, name: str = "") -> None:
    """Delete the scratch folders in a folder, or those for one name, whose processes have ended, however."""
    for found in glob.glob(f".{glob.escape(name) or '*'}.*{SCRATCH}", root_dir=folder):
        work = folder / found
        handle = _take(work)
        if handle is not None:
            shutil.rmtree(work, ignore_errors=True)  # while it is locked, so that its maker, if it lives, makes another
            os.close(handle)
            if os.name == "nt":  # which deletes no open file
                shutil.rmtree(work, ignore_errors=True)


def discard_folder(path: Path) -> None:
    """Delete a folder that somebody may look into meanwhile: it goes at once, and a kill leaves no half of it."""
    with scratch_folder(path) as scratch:
        os.rename(path, scratch / "discarded")


def _make(target: Path) -> tuple[Path, int]:
    """A new folder and its lock; one that another process has swept before it was locked is made again."""
    while True:
        work = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.", suffix=SCRATCH))
        handle = _take(work)
        if handle is not None and (work / LOCK).exists():
            return work, handle
        if handle is not None:
            os.close(handle)


def _take(work: Path) -> int | None:
    """The lock of a scratch folder; None where another process has it, or the folder is gone or not ours."""
    try:
        handle = os.open(work / LOCK, os.O_RDWR | os.O_CREAT | system.NOT_INHERITED, 0o600)
    except OSError:
        return None
    try:
        system.lock(handle)
    except BlockingIOError:
        os.close(handle)
        return None
    except OSError:  # a file system without locks: whose it is cannot be known
        if os.fstat(handle).st_size:
            os.close(handle)
            return None
        os.write(handle, b"1")
    return handle
