"""One process at a time works on a run's folder: a lock file beside it says which.

The lock is the operating system's, so that it is free when its holder has died, however; the file's text is for the
message to whoever comes second.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from octavo.errors import UserError
from octavo.io import system


def lock_file(path: str | Path) -> Path:
    """The lock of a folder: beside it, because the folder itself is replaced when it is complete."""
    target = Path(os.path.realpath(path))
    return target.with_name(f".{target.name}.lock")


@contextmanager
def locked(path: str | Path | None, doing: str = "trains") -> Iterator[None]:
    """Hold the lock of a folder; refused, with the process that has it, where another one does. None: no folder."""
    if path is None or int(os.environ.get("RANK", "0")):  # of several processes that train together, the first holds it
        yield
        return
    file = lock_file(path)
    made = [folder for folder in (file.parent, *file.parent.parents) if not folder.exists()]
    file.parent.mkdir(parents=True, exist_ok=True)
    handle = _take(file, path)
    try:
        holder = {"pid": os.getpid(), "host": socket.gethostname(), "doing": doing}
        system.write_whole(handle, json.dumps(holder).encode())
        yield
    finally:
        with suppress(PermissionError):  # Windows deletes no open file; it stays, and nobody holds it
            file.unlink(missing_ok=True)  # while it is held, so that nobody takes a file that is about to go
        os.close(handle)
        for folder in made:  # empty where the work was refused before it wrote anything
            with suppress(OSError):
                folder.rmdir()


def _take(file: Path, path: str | Path) -> int:
    while True:
        try:
            handle = os.open(file, os.O_RDWR | os.O_CREAT | system.NOT_INHERITED, 0o666)
        except OSError as error:
            raise UserError(f"cannot write {file}: {error.strerror}; choose another --out") from error
        try:
            system.lock(handle)
        except BlockingIOError as error:
            holder = read_holder(file)
            os.close(handle)
            raise UserError(
                f"one process at a time trains in {path}: process {holder.get('pid', '?')} on "
                f"{holder.get('host', '?')} {holder.get('doing', 'trains')} there; wait for it, or stop it"
            ) from error
        except OSError as error:
            if _is_alive(read_holder(file)):  # a file system without locks: only the text can tell
                os.close(handle)
                raise UserError(
                    f"one process at a time trains in {path}, and {file} names one; stop it, or delete that file"
                ) from error
        if _is_same(handle, file):
            return handle
        os.close(handle)  # its holder has deleted it in between


def read_holder(file: Path) -> dict[str, Any]:
    """What a lock file says about the process that made it; {} where it says nothing."""
    try:
        holder = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    return holder if isinstance(holder, dict) else {}


def _is_alive(holder: dict[str, Any]) -> bool:
    """Whether the process is there; of another machine's that cannot be known, so it is."""
    if holder.get("host") != socket.gethostname():
        return bool(holder)
    try:
        pid = int(holder.get("pid", 0))
    except (ValueError, TypeError):
        return False
    return pid != os.getpid() and system.is_alive(pid)


def _is_same(handle: int, file: Path) -> bool:
    try:
        mine, there = os.fstat(handle), os.stat(file)
    except FileNotFoundError:
        return False
    return (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino)
