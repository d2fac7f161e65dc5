"""Faults in the running process: a kill or an error at the n-th file-system change below a folder, and clock jumps.

The library `kill_at.c` is built on the spot and preloaded, so that every change of every part of the process counts.
Without a compiler, Python's audit events take its place: they see files that are opened for writing and names that
change, not what is written, and no fault tears a write or moves the clock.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("kill_at.c")
LIBRARY = "TORTURE_LIBRARY"  # set where the library was preloaded, or could not be built (empty)
ARM = "TORTURE_ARM"
HOW = ("count", "before", "after", "torn", "fail once", "fail on")  # as in kill_at.c
NAMES = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate")
GROWING = ("open", "os.mkdir", "os.link", "os.symlink")


@dataclass(frozen=True)
class Fault:
    """What happens to a process at its n-th change below the folder of a trial."""

    number: int = 0
    how: str = "count"
    error: int = 0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class ClockJump:
    """After so many calls of the clock it is so many seconds off; after `second` calls, `seconds_again`."""

    first: int
    seconds: int
    second: int = 0
    seconds_again: int = 0
    monotonic: bool = False


def preload_library() -> None:
    """Start this program again with the library preloaded; once."""
    if LIBRARY in os.environ:
        return
    os.environ[LIBRARY] = ""
    compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")
    if sys.platform != "linux" or compiler is None:
        return
    library = Path(tempfile.mkdtemp(prefix="torture-library-")) / "kill_at.so"
    words = [compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"]
    built = subprocess.run(words, capture_output=True, text=True, check=False)
    if built.returncode:
        print(f"torture: {SOURCE.name} was not built: {built.stderr.strip()[:300]}", file=sys.stderr)
        shutil.rmtree(library.parent)
        return
    before = os.environ.get("LD_PRELOAD", "")
    os.environ.update({LIBRARY: str(library), "LD_PRELOAD": f"{library} {before}".strip()})
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def remove_library() -> None:
    """Delete the library, at the end."""
    if path := os.environ.get(LIBRARY):
        shutil.rmtree(Path(path).parent, ignore_errors=True)


def has_library() -> bool:
    return bool(os.environ.get(LIBRARY))


def arm(fault: Fault, folder: Path, notes: Path) -> None:
    """Count this process's changes below `folder` from now on, and those of programs that it starts.

    The counter and, while counting, a line for each change are written beside `notes`.
    """
    counter, log = f"{notes}.count", f"{notes}.log" if fault.how == "count" else ""
    if not has_library():
        AuditCounter(fault, folder, notes).start()
        return
    how = HOW.index(fault.how)
    words = [str(fault.number), str(how), str(fault.error), str(folder), counter, log]
    os.environ[ARM] = "\t".join(words)
    library = ctypes.CDLL(None)
    library.torture_arm.argtypes = [ctypes.c_char_p] * 3 + [ctypes.c_long, ctypes.c_int, ctypes.c_int]
    paths = [os.fsencode(path) for path in (folder, counter, log)]
    if library.torture_arm(*paths, fault.number, how, fault.error):
        raise OSError(f"the counter {counter} could not be shared")


def jump_clock(jump: ClockJump) -> None:
    """Shift the clock of this process."""
    library = ctypes.CDLL(None)
    library.torture_clock.argtypes = [
        ctypes.c_long, ctypes.c_longlong, ctypes.c_long, ctypes.c_longlong, ctypes.c_int,
    ]  # fmt: skip
    library.torture_clock(jump.first, jump.seconds, jump.second, jump.seconds_again, int(jump.monotonic))


def read_counter(notes: Path) -> tuple[int, bool]:
    """How many changes were made, and whether the fault has struck."""
    try:
        data = Path(f"{notes}.count").read_bytes()
    except OSError:
        return 0, False
    changes, done = (int.from_bytes(data[at : at + 8], sys.byteorder) for at in (0, 8))
    return changes, bool(done)


def read_changes(notes: Path) -> list[str]:
    """What each change was, in their order."""
    try:
        lines = Path(f"{notes}.log").read_text(errors="replace").splitlines()
    except OSError:
        return []
    return [line.split(" ", 1)[1] for line in lines]


class AuditCounter:
    """The same faults by Python's audit events."""

    def __init__(self, fault: Fault, folder: Path, notes: Path) -> None:
        self.fault, self.folder, self.notes = fault, str(folder), notes
        self.changes, self.is_noting = 0, False

    def start(self) -> None:
        sys.addaudithook(self.see)

    def see(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.is_noting or not (event in NAMES or (event == "open" and self.opens_for_writing(*arguments[:3]))):
            return
        path = arguments[1] if event in ("os.rename", "os.link", "os.symlink") else arguments[0]
        if not isinstance(path, str | bytes | os.PathLike):
            return
        name = os.path.abspath(os.fsdecode(path))
        if not name.startswith(self.folder + os.sep):
            return
        self.changes += 1
        self.note(event, name)
        self.strike(event)

    def opens_for_writing(self, path: Any, mode: Any, flags: Any) -> bool:
        if isinstance(mode, str):
            return any(letter in mode for letter in "wax+")
        return isinstance(flags, int) and bool(flags & (os.O_CREAT | os.O_TRUNC))

    def note(self, event: str, name: str, done: bool = False) -> None:
        self.is_noting = True
        try:
            data = self.changes.to_bytes(8, sys.byteorder) + int(done).to_bytes(8, sys.byteorder)
            Path(f"{self.notes}.count").write_bytes(data)
            if self.fault.how == "count":
                with open(f"{self.notes}.log", "a") as log:
                    log.write(f"{self.changes} {event} {name[len(self.folder) + 1 :]}\n")
        finally:
            self.is_noting = False

    def strike(self, event: str) -> None:
        how, number = self.fault.how, self.fault.number
        if how == "count" or self.changes < number:
            return
        if how in ("fail once", "fail on"):
            if event in GROWING and (how == "fail on" or self.changes == number):
                self.note(event, self.folder, done=True)
                raise OSError(self.fault.error or errno.ENOSPC, os.strerror(self.fault.error or errno.ENOSPC))
        elif self.changes == number:
            self.note(event, self.folder, done=True)
            os.kill(os.getpid(), signal.SIGKILL)
