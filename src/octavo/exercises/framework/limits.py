"""Students' formulas and answer files, handled in a separate process with limited time and memory."""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from octavo.errors import UserError

MAX_REPLY_BYTES = 1 << 22
POLL_SECONDS = 0.1  # between two measurements of a process's memory, and two calls of `poll`
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
START_SECONDS = 60.0  # until the worker must be ready
WORKER_CPU_SECONDS = 600  # after which the system ends the worker; a new one is then started


class Limits(NamedTuple):
    """The time and memory that one answer may use."""

    seconds: float = 10.0
    memory: int = 1 << 30  # bytes


class JsonProcess:
    """Client of a Python module that runs in a process of its own and answers each line of JSON with one line."""

    def __init__(self, module: str, *arguments: object, environment: Mapping[str, str] = MappingProxyType({})) -> None:
        self.command = [sys.executable, "-P", "-m", module, *map(str, arguments)]
        self.environment = {**os.environ, **environment}
        self.process: subprocess.Popen[bytes] | None = None
        self._end_process: Callable[[], object] = lambda: None

    def is_running(self) -> bool:
        """Whether the process has been started and has not ended."""
        return self.process is not None and self.process.poll() is None

    def start(self) -> subprocess.Popen[bytes]:
        """The process, which is started if it does not run."""
        if self.process is None or not self.is_running():
            self.end()
            self.process = start_process(self.command, self.environment)
            self._end_process = weakref.finalize(self, end_process, self.process)
        return self.process

    def request(
        self, request: dict[str, Any], seconds: float = math.inf, memory: float = math.inf,
        poll: Callable[[], None] = lambda: None,
    ) -> dict[str, Any]:  # fmt: skip
        """The reply to a request; `poll` is called while waiting, and may raise to stop."""
        process = self.start()
        assert process.stdin is not None
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()
        reply: dict[str, Any] = json.loads(read_reply(process, time.monotonic() + seconds, memory, b"\n", poll))
        return reply

    def end(self) -> None:
        """End the process, if there is one."""
        self._end_process()
        self.process = None


class Worker(JsonProcess):
    """Client of a process that reads files and compares answers; a request over its limits ends the process."""

    def __init__(self, limits: Limits = Limits()) -> None:  # noqa: B008
        alarm = math.ceil(max(limits.seconds, START_SECONDS)) + 5  # later than the client's deadline
        super().__init__("octavo.exercises.framework.worker", WORKER_CPU_SECONDS, limits.memory, alarm)
        self.limits = limits

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def ask(self, request: dict[str, Any]) -> Any:
        """The reply to a request; a UserError says why there is none."""
        if not self.is_running():  # the time to start does not count against the answer
            self._reply({"do": "number", "as": {"right": 0}, "given": 0}, START_SECONDS)
        reply = self._reply(request, self.limits.seconds)
        if "refused" in reply:
            raise UserError(reply["refused"])
        return reply["ok"]

    def _reply(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        try:
            with explain_stop(seconds, "it needed more than the limits allow and was stopped"):
                return self.request(request, seconds, self.limits.memory)
        except UserError:
            self.end()
            raise


@contextlib.contextmanager
def explain_stop(seconds: float, otherwise: str) -> Iterator[None]:
    """Say in a UserError why a process that exceeded its limits gave no reply."""
    try:
        yield
    except TimeoutError:
        raise UserError(f"it took more than {seconds:g} s and was stopped") from None
    except MemoryError:
        raise UserError("it needs more memory than the limit") from None
    except (ValueError, OSError, RecursionError):
        raise UserError(otherwise) from None


def check_can_limit() -> None:
    """Refuse to run students' answers where their time and memory cannot be limited."""
    if not hasattr(os, "killpg"):
        raise UserError("answers are graded in processes with limits, which need Linux or macOS; on Windows use WSL")


def start_process(
    command: list[str], environment: dict[str, str], folder: str | None = None
) -> subprocess.Popen[bytes]:
    """Start a process in its own session, so that its children can be ended with it."""
    check_can_limit()
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, cwd=folder,
        start_new_session=True,
    )  # fmt: skip


def read_reply(
    process: subprocess.Popen[bytes], deadline: float, memory: float, until: bytes = b"",
    poll: Callable[[], None] = lambda: None,
) -> bytes:  # fmt: skip
    """What a process writes until it ends, or until the marker, within limits on time, size and the process's memory.

    Where the system enforces the memory limit, the process fails by itself; macOS does not, so memory is polled here.
    """
    assert process.stdout is not None
    reply = b""
    while not (until and reply.endswith(until)):
        poll()
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError
        if not select.select([process.stdout], [], [], min(remaining, POLL_SECONDS))[0]:
            if memory < math.inf and resident_bytes(process.pid) > memory:
                raise MemoryError
            continue
        chunk = os.read(process.stdout.fileno(), 1 << 16)
        if not chunk:
            break
        reply += chunk
        if len(reply) > MAX_REPLY_BYTES:
            raise ValueError("the reply is too long")
    return reply


def resident_bytes(pid: int) -> int:
    """The resident memory of a process; 0 if it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * PAGE_BYTES
    except (OSError, IndexError):  # not Linux, or no such process
        return resident_bytes_by_ps(pid)


def resident_bytes_by_ps(pid: int) -> int:
    """The same, asked of the program ps."""
    try:
        command = ["ps", "-o", "rss=", "-p", str(pid)]
        output = subprocess.run(command, capture_output=True, timeout=5, check=False).stdout
        return int(output or 0) << 10
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return 0


def end_process(process: subprocess.Popen[bytes]) -> None:
    """End a process and its children."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
