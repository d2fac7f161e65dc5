"""octavo's commands in forks of this process: quick to start, killed at a given point, watched to the last child."""

from __future__ import annotations

import atexit
import os
import resource
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from torture.faults import ClockJump, Fault, arm, jump_clock

POLL_SECONDS = 0.002
SENT = (signal.SIGINT, signal.SIGTERM)
ORPHAN_SECONDS = 5.0  # in which the children of a killed process must end by themselves


@dataclass(frozen=True)
class Ended:
    """How a command ended; code is negative for a signal, None where it did not end in time."""

    code: int | None
    text: str  # standard output and standard error
    seconds: float
    orphans: tuple[str, ...] = ()


@dataclass(frozen=True)
class Circumstances:
    """What happens to a command while it runs."""

    fault: Fault | None = None
    jump: ClockJump | None = None
    memory_bytes: int = 0  # of address space, beyond what the process has at its start
    signal: int = 0
    after_s: float = 0.0  # when the signal comes


UNDISTURBED = Circumstances()


class Command:
    """A command that runs in a fork, in a session of its own."""

    def __init__(self, words: Sequence[str], folder: Path, notes: Path, how: Circumstances = UNDISTURBED) -> None:
        self.words, self.log = list(words), Path(f"{notes}.out")
        self.started = time.monotonic()
        self.code: int | None = None
        self.orphans: tuple[str, ...] = ()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
        if self.pid == 0:
            _become(lambda: _run_octavo(self.words), folder, self.log, notes, how)

    def poll(self) -> bool:
        """Whether it has ended."""
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
        return self.code is not None

    def send(self, number: int) -> None:
        if not self.poll():
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def wait(self, limit_s: float, number: int = 0, after_s: float = 0.0) -> Ended:
        """Wait for its end, sending a signal on the way; what it leaves behind is ended, and named."""
        while not self.poll():
            spent = time.monotonic() - self.started
            if number and spent >= after_s:
                self.send(number)
                number = 0
            if spent > limit_s:
                end_session(self.pid)
                with suppress(ChildProcessError):
                    os.waitpid(self.pid, 0)
                return Ended(None, self.read_text(), spent)
            time.sleep(POLL_SECONDS)
        seconds = time.monotonic() - self.started
        self.orphans = self.wait_for_children()
        return Ended(self.code, self.read_text(), seconds, self.orphans)

    def wait_for_children(self) -> tuple[str, ...]:
        until = time.monotonic() + ORPHAN_SECONDS
        while left := session_processes(self.pid):
            if time.monotonic() > until:
                names = tuple(left.values())
                end_session(self.pid)
                return names
            time.sleep(0.02)
        return ()

    def read_text(self) -> str:
        with suppress(OSError):
            return self.log.read_text(errors="replace")
        return ""


def run(
    words: Sequence[str], folder: Path, notes: Path, how: Circumstances = UNDISTURBED, limit_s: float = 60.0
) -> Ended:
    """Run a command of octavo to its end."""
    return Command(words, folder, notes, how).wait(limit_s, how.signal, how.after_s)


def call(work: Callable[[], int], folder: Path, notes: Path, limit_s: float = 60.0) -> Ended:
    """Run a function in a fork; what it returns is the exit code."""
    command = Command.__new__(Command)
    command.words, command.log, command.started = [], Path(f"{notes}.out"), time.monotonic()
    command.code, command.orphans = None, ()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        command.pid = os.fork()
    if command.pid == 0:
        _become(work, folder, command.log, notes, UNDISTURBED)
    return command.wait(limit_s)


def _run_octavo(words: list[str]) -> int:
    from octavo.cli import main

    sys.argv = ["octavo", *words]
    code = 128 + signal.SIGINT  # where the signal comes before octavo has begun
    with suppress(KeyboardInterrupt):  # or after it has ended: the interpreter's moments, not octavo's
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SENT)
        code = main(words)
        signal.pthread_sigmask(signal.SIG_BLOCK, SENT)
    atexit._run_exitfuncs()
    return code


def _become(work: Callable[[], int], folder: Path, log: Path, notes: Path, how: Circumstances) -> None:
    """What a fork does; it never returns."""
    code = 70
    try:
        os.setsid()
        signal.pthread_sigmask(signal.SIG_BLOCK, SENT)  # until octavo itself runs
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(output, stream)
        os.chdir(folder)
        if how.memory_bytes:
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + how.memory_bytes,) * 2)
        if how.jump is not None:
            jump_clock(how.jump)
        if how.fault is not None:
            arm(how.fault, folder, notes)
        code = work()
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


# ---------------------------------------------------------------------- processes that are left


def session_processes(session: int) -> dict[int, str]:
    """The living processes of a session and their command lines."""
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(OSError, ValueError, IndexError):
                fields = Path(f"/proc/{entry}/stat").read_text().rsplit(")", 1)[1].split()
                if int(fields[3]) == session and fields[0] != "Z":
                    words = Path(f"/proc/{entry}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    found[int(entry)] = words.strip()[:200]
    _reap(session)
    return found


def _reap(session: int) -> None:
    """Wait for dead processes that were inherited, so that they do not pile up; never for the worker's own forks."""
    with suppress(ChildProcessError):
        while True:
            pid, _ = os.waitpid(-session, os.WNOHANG)
            if not pid:
                return


def end_session(session: int) -> None:
    for pid in session_processes(session):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
