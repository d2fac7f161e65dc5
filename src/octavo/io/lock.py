"""One process at a time works on a run's folder: a lock file beside it says which.

The lock is the operating system's, so that it is free when its holder has died, however; the file's text is for the
message to whoever comes second, and decides where a file system has no locks.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from octavo.errors import UserError
from octavo.io import system
from octavo.io.json_text import read_json_file

MAX_HOLDER_BYTES = 1 << 14  # of a lock file
TRIES = 30  # while others come and go
HELD: ContextVar[frozenset[Path]] = ContextVar("HELD", default=frozenset())  # locks of whoever calls


def lock_file(path: str | Path) -> Path:
    """The lock of a folder: beside it, because the folder itself is replaced when it is complete."""
    target = Path(os.path.realpath(path))
    return target.with_name(f".{target.name}.lock")


@contextmanager
def locked(path: str | Path | None, doing: str = "trains") -> Iterator[None]:
    """Hold the lock of a folder or a file; refused, with the process that has it, where another one does.

    What is held already may be locked again within. None, or a pipe, which can have several writers: nothing is locked.
    """
    is_led = bool(int(os.environ.get("RANK", "0")))  # of several processes that train together, the first holds it
    if path is None or is_led or system.is_device(path):
        yield
        return
    file = lock_file(path)
    if file in HELD.get():
        yield
        return
    made = [folder for folder in (file.parent, *file.parent.parents) if not folder.exists()]
    handle = _take(file, path)
    held = HELD.set(HELD.get() | {file})
    try:
        pid = os.getpid()
        holder = {"pid": pid, "host": socket.gethostname(), "doing": doing, "started": system.process_start(pid)}
        with suppress(OSError):  # a full disk: the lock holds without its text
            system.write_whole(handle, json.dumps(holder).encode())
        yield
    finally:
        HELD.reset(held)
        with suppress(OSError):  # Windows deletes no open file; it stays, and nobody holds it
            file.unlink(missing_ok=True)  # while it is held, so that nobody takes a file that is about to go
        os.close(handle)
        for folder in made:  # empty where the work was refused before it wrote anything
            with suppress(OSError):
                folder.rmdir()


def _take(file: Path, path: str | Path) -> int:
    for _ in range(TRIES):
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(file, os.O_RDWR | os.O_CREAT | system.NOT_INHERITED, 0o666)
        except FileNotFoundError:  # somebody who made the folder has removed it again
            continue
        except OSError as error:
            raise UserError(f"cannot write {path}: {error.strerror}; choose another --out") from error
        try:
            system.lock(handle)
        except BlockingIOError as error:
            os.close(handle)
            raise _refusal(file, path, _wait_for_holder(file)) from error
        except OSError as error:  # a file system without locks: only the text can tell
            if _is_alive(holder := read_holder(file)):
                os.close(handle)
                raise _refusal(file, path, holder) from error
        if _is_same(handle, file):
            return handle
        os.close(handle)  # its holder has deleted it in between
    raise UserError(f"cannot lock {path}: {file} comes and goes; try again")


def _refusal(file: Path, path: str | Path, holder: dict[str, Any]) -> UserError:
    pid, host, doing = (holder.get(key, "?") for key in ("pid", "host", "doing"))
    elsewhere = host not in ("?", socket.gethostname())
    remedy = f"wait for it, or stop it; if it has died with its machine, delete {file}" if elsewhere else ""
    return UserError(
        f"one process at a time writes {path}: process {pid} on {host} {doing} there; "
        f"{remedy or 'wait for it, or stop it'}"
    )


def _wait_for_holder(file: Path) -> dict[str, Any]:
    """What a lock file says, which its holder may be about to write."""
    for _ in range(TRIES):
        if holder := read_holder(file):
            return holder
        time.sleep(0.01)
    return {}


def read_holder(file: Path) -> dict[str, Any]:
    """What a lock file says about the process that made it; {} where it says nothing."""
    try:
        holder = read_json_file(file, "", MAX_HOLDER_BYTES)
    except UserError:
        return {}
    return holder if isinstance(holder, dict) else {}


def living_holder(path: str | Path) -> dict[str, Any]:
    """What the lock file of a folder says about the process that works there; {} where that has died."""
    holder = read_holder(lock_file(path))
    return holder if _is_alive(holder) else {}


def _is_alive(holder: dict[str, Any]) -> bool:
    """Whether the process is there, and no later one of its number; another machine's counts as alive."""
    if holder.get("host") != socket.gethostname():
        return bool(holder)
    try:
        pid = int(holder.get("pid", 0))
    except (ValueError, TypeError):
        return False
    if not 0 < pid < 1 << 31:
        return False
    started = holder.get("started")
    if started and system.process_start(pid) != started:
        return False
    return system.is_alive(pid)


def _is_same(handle: int, file: Path) -> bool:
    try:
        mine, there = os.fstat(handle), os.stat(file)
    except FileNotFoundError:
        return False
    return (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino)
