"""What operating systems do differently: locks, reading at a place, syncing, swapping names, permissions, limits.

Nothing beyond POSIX's common ground is imported at the start of octavo; where the system lacks something, the function
here does without it, or uses what the system has instead.
"""

from __future__ import annotations

import ctypes
import errno
import importlib
import os
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

AT_FDCWD, RENAME_EXCHANGE = -100, 2  # Linux: names are relative to the working directory; swap the two
LOCKED_BYTE = 1 << 30  # Windows locks bytes, and nobody can read a locked one: so one beyond the end of the file
NOT_INHERITED = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOINHERIT", 0)  # by processes that are started
NOT_A_LINK = getattr(os, "O_NOFOLLOW", 0)  # Windows cannot refuse a link; there, only administrators make them
NOT_WAITED_FOR = getattr(os, "O_NONBLOCK", 0)  # a pipe that nobody writes to
BINARY = getattr(os, "O_BINARY", 0)
_seeking = threading.Lock()


def _optional(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        return None


fcntl, msvcrt, resource = map(_optional, ("fcntl", "msvcrt", "resource"))


def lock(handle: int, shared: bool = False) -> None:
    """Lock an open file until it is closed; BlockingIOError where another process holds it.

    Any other OSError means that locks are not to be had here.
    """
    if fcntl is not None:
        try:
            fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise BlockingIOError(error.errno, error.strerror) from error
            raise
    elif msvcrt is not None:
        place = os.lseek(handle, 0, os.SEEK_CUR)
        os.lseek(handle, LOCKED_BYTE, os.SEEK_SET)
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError as error:
            raise BlockingIOError(errno.EWOULDBLOCK, "another process holds it") from error
        finally:
            os.lseek(handle, place, os.SEEK_SET)  # where the next byte is written
    else:
        raise OSError(errno.ENOSYS, "there are no file locks on this system")


def read_at(handle: int, size: int, offset: int) -> bytes:
    """At most so many bytes from a place in an open file, whatever other threads read from it."""
    if hasattr(os, "pread"):
        return os.pread(handle, size, offset)
    with _seeking:
        os.lseek(handle, offset, os.SEEK_SET)
        return os.read(handle, size)


def write_whole(handle: int, data: bytes) -> None:
    """Replace what an open file holds."""
    os.ftruncate(handle, 0)
    with _seeking:
        os.lseek(handle, 0, os.SEEK_SET)
        os.write(handle, data)


def sync(path: Path) -> None:
    """See to it that a file, or the names in a folder, are on disk; Windows can do so only for files."""
    if os.name == "nt" and path.is_dir():
        return
    handle = os.open(path, (os.O_RDWR if os.name == "nt" else os.O_RDONLY) | BINARY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def is_device(path: str | Path) -> bool:
    """Whether a pipe, a terminal or the like is there: it is written to as it is, not replaced."""
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


def open_folder(path: Path) -> int | None:
    """A handle of a folder, to hold a lock on it; None where folders cannot be opened."""
    return None if os.name == "nt" else os.open(path, os.O_RDONLY)


def set_usual_permissions(path: str | Path, most: int) -> None:
    """Give a file that was made for its owner alone the permissions that a new one would have."""
    mask = os.umask(0)
    os.umask(mask)
    with suppress(NotImplementedError):
        os.chmod(path, most & ~mask)


def exchange(one: Path, other: Path) -> bool:
    """Swap two names in one step, so that neither is ever missing; False where the system or its disk cannot."""
    renameat2 = getattr(ctypes.CDLL(None), "renameat2", None) if sys.platform == "linux" else None
    if renameat2 is None:
        return False
    done: int = renameat2(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE)
    return done == 0


def process_start(pid: int) -> str:
    """What tells a process from a later one of the same number: when it started, and since which start of the machine;
    empty where the system does not say.
    """
    try:
        started = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19].decode()
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {started}"
    except (OSError, IndexError):
        return ""


def is_alive(pid: int) -> bool:
    """Whether a process of this machine runs; where that cannot be asked without ending it, it does."""
    if os.name == "nt":  # os.kill would end it
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def allow_open_files(count: int) -> None:
    """Let this process have so many files and connections open, as far as the system lets it: macOS begins with 256."""
    if resource is not None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = count if hard == resource.RLIM_INFINITY else min(count, hard)
        if soft != resource.RLIM_INFINITY and soft < most:
            with suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
