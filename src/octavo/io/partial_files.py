"""Parts: files and folders that are not whole yet, under a hidden name beside the one that they will have.

A part of NAME is `.NAME.xxxxxxxx.part`. Whoever makes one holds a shared lock on the folder around it meanwhile, and
then a lock on the part itself until it has its own name. So a process that has that folder to itself for a moment, and
gets the lock of a part, knows that the part's maker has died: nothing is judged by its age.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import tempfile
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from octavo.io import system

PART = ".part"  # ends the names of what is not whole yet
OLD = ".old"  # of a folder while another one is renamed to its place, where the system cannot exchange the two
WORK = "octavo"  # the name of temporary folders
DRAWN = "[a-z0-9_]{8}"  # what tempfile puts into names
FOLDER_TRIES, TRY_SECONDS = 200, 0.01  # to lock a folder that somebody else has


@contextmanager
def file_part(target: Path) -> Iterator[tuple[IO[bytes], Path]]:
    """A new part of a file, open for writing and locked, and its path; what is not renamed is deleted."""
    sweep(target)
    with _making(target.parent):
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=PART)
        _lock(handle)
    file = open(handle, "wb")  # noqa: SIM115
    try:
        yield file, Path(name)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    finally:
        file.close()


@contextmanager
def folder_part(target: Path) -> Iterator[Path]:
    """A new part of a folder, empty and locked; what is not renamed is deleted."""
    sweep(target)
    with _making(target.parent):
        part = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.", suffix=PART))
        handle = system.open_folder(part)
        _lock(handle)
    try:
        yield part
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    finally:
        if handle is not None:
            os.close(handle)


def sweep_temporary(beside: Path) -> None:
    """Delete the temporary folders that killed processes left."""
    sweep(beside / WORK)


class TemporaryFolder:
    """A hidden folder that is deleted with its object, or, of a killed process, when the next one is made there."""

    def __init__(self, beside: Path) -> None:
        sweep_temporary(beside)
        with _making(beside):
            self._folder = tempfile.TemporaryDirectory(dir=beside, prefix=f".{WORK}.", suffix=PART)
            handle = system.open_folder(self.path)
            _lock(handle)
        self._unlock = weakref.finalize(self, os.close, handle) if handle is not None else None

    @property
    def path(self) -> Path:
        return Path(self._folder.name)

    def cleanup(self) -> None:
        """Delete it."""
        self._folder.cleanup()
        if self._unlock is not None:
            self._unlock()


def replace_folder(part: Path, target: Path) -> None:
    """Rename a part to its own name; the folder that stood there is deleted last."""
    if not target.exists():
        try:
            os.rename(part, target)
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):  # these: another writer was there first
                raise
    if system.exchange(part, target):
        shutil.rmtree(part, ignore_errors=True)
        return
    aside = part.with_suffix(OLD)  # killed between the two renames, the next command brings it back
    os.rename(target, aside)
    try:
        os.rename(part, target)
    except OSError:
        os.rename(aside, target)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def delete_folder(path: Path) -> None:
    """Delete a folder at once for all who look for its name: killed while its files go, it leaves a part."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}{PART}")
    os.rename(path, part)
    shutil.rmtree(part, ignore_errors=True)


def parts_of(target: Path) -> list[Path]:
    """What there is of parts of a file or folder, and of old folders that were put aside for one."""
    return [part for part in parts_in(target.parent) if re.fullmatch(_pattern(re.escape(target.name)), part.name)]


def parts_in(folder: Path) -> list[Path]:
    """What there is of parts in a folder, of whatever name."""
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    return [folder / name for name in sorted(names) if re.fullmatch(_pattern(".+"), name)]


def is_part(name: str) -> bool:
    """Whether a file's name is that of a part."""
    return re.fullmatch(_pattern(".+"), name) is not None


def _pattern(name: str) -> str:
    return rf"\.{name}\.{DRAWN}({re.escape(PART)}|{re.escape(OLD)})"


def sweep(target: Path, held: bool = False) -> None:
    """Delete what killed processes left of a file or folder; bring an old folder back whose place is empty.

    `held`: this process holds what nobody writes there without, so parts are dead even where there are no locks.
    """
    _sweep(parts_of(target), target.parent, held)


def sweep_all(folder: Path, held: bool = False) -> None:
    """Delete what killed processes left in a folder of ours, of whatever name."""
    _sweep(parts_in(folder), folder, held)


def _sweep(parts: list[Path], folder: Path, held: bool) -> None:
    if not parts:
        return
    handle = system.open_folder(folder)
    try:
        if not _gets_lock(handle, held):
            return
        for part in sorted(parts, key=lambda part: part.suffix != OLD):  # an old folder first, while its part is there
            target = folder / re.sub(rf"^\.(.+)\.{DRAWN}\.\w+$", r"\1", part.name)
            with suppress(OSError):  # it is gone by now, or not ours to delete
                if part.suffix == OLD and not os.path.lexists(target):
                    if _is_dead(part.with_suffix(PART), held):
                        os.rename(part, target)
                elif _is_dead(part, held):
                    shutil.rmtree(part) if part.is_dir() and not part.is_symlink() else part.unlink()
    finally:
        if handle is not None:
            os.close(handle)


def _is_dead(part: Path, held: bool) -> bool:
    """Whether no process holds a part."""
    try:
        handle = os.open(part, os.O_RDONLY | system.NOT_A_LINK | system.NOT_WAITED_FOR)
    except FileNotFoundError:
        return True
    except OSError:
        return held
    try:
        return _gets_lock(handle, held)
    finally:
        os.close(handle)


def _gets_lock(handle: int | None, otherwise: bool = False) -> bool:
    """Whether a file or folder can be had alone; where there are no locks, what is said."""
    if handle is None:
        return otherwise
    try:
        system.lock(handle)
    except BlockingIOError:
        return False
    except OSError:
        return otherwise
    return True


@contextmanager
def _making(folder: Path) -> Iterator[None]:
    """Within it nobody sweeps the folder: a part that was made, but is not locked yet, would look dead."""
    handle = system.open_folder(folder)
    try:
        _lock(handle, FOLDER_TRIES)
        yield
    finally:
        if handle is not None:
            os.close(handle)


def _lock(handle: int | None, tries: int = 1) -> None:
    """Hold a part, or a folder in which one is made; several may, and a file system without locks is not swept.

    A sweep gives a folder back soon. Whoever has it for longer, as `flock FOLDER octavo ...` has, does not sweep.
    """
    for _ in range(tries if handle is not None else 0):
        try:
            system.lock(handle, shared=True)  # type: ignore[arg-type]
        except BlockingIOError:
            time.sleep(TRY_SECONDS)
        except OSError:
            return
        else:
            return
