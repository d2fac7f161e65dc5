"""Foreign formulas, files and functions, each handled in a process of its own with a limit on time and memory."""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from octavo.errors import UserError

LONGEST_REPLY = 1 << 22  # bytes
DEEPEST = 10  # lists within lists of a result
LOOK = 0.1  # seconds between two looks at how much memory a process has
PAGE = os.sysconf("SC_PAGE_SIZE")
STARTING = 60.0  # seconds that the worker may need until it is ready
LIFETIME = 600  # seconds of computing after which the worker's own limit ends it; it is then started anew


class Limits(NamedTuple):
    """What one answer may take."""

    seconds: float = 10.0
    memory: int = 1 << 30  # bytes


class Worker:
    """Reads files and compares answers; where one takes too long its process is ended, and the next gets a new one."""

    def __init__(self, limits: Limits = Limits()) -> None:  # noqa: B008
        self.limits = limits
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.end()

    def ask(self, what: dict[str, Any]) -> Any:
        """The reply; a UserError says why there is none."""
        if self.process is None or self.process.poll() is not None:
            self.end()
            longest = math.ceil(max(self.limits.seconds, STARTING)) + 5  # the clock here comes first
            module = "octavo.exercises.framework.worker"
            command = [sys.executable, "-P", "-m", module, str(LIFETIME), str(self.limits.memory),
                       str(longest)]  # fmt: skip
            self.process = start_process(command, dict(os.environ))
            self._reply(
                {"do": "number", "as": {"right": 0}, "given": 0}, STARTING
            )  # starting is not the answer's fault
        reply = self._reply(what, self.limits.seconds)
        if "refused" in reply:
            raise UserError(reply["refused"])
        return reply["ok"]

    def _reply(self, what: dict[str, Any], seconds: float) -> dict[str, Any]:
        assert self.process is not None
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(what).encode() + b"\n")
            self.process.stdin.flush()
            line = _read(self.process, time.monotonic() + seconds, self.limits.memory, b"\n")
            reply: dict[str, Any] = json.loads(line)
            return reply
        except TimeoutError:
            self.end()
            raise UserError(f"it took more than {seconds:g} s and was stopped") from None
        except MemoryError:
            self.end()
            raise UserError("it needs more memory than the limit") from None
        except (ValueError, OSError):
            self.end()
            raise UserError("it needed more than the limits allow and was stopped") from None

    def end(self) -> None:
        """End the process, if there is one."""
        if self.process is not None:
            end_process(self.process)
            self.process = None


def call_function(file: Path, function: str, cases: Any, limits: Limits) -> list[Any]:
    """The results of a function in a student's file; a UserError says what went wrong."""
    processor = math.ceil(limits.seconds) + 1  # more than the clock allows, so that it is the clock that is told of
    command = [sys.executable, "-B", "-P", str(Path(__file__).with_name("function_runner.py")),
               str(processor), str(limits.memory)]  # fmt: skip
    quiet = {"PATH": os.defpath, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as empty:
        process = start_process(command, quiet, empty)
        assert process.stdin is not None
        try:
            with contextlib.suppress(BrokenPipeError):
                asked = {"file": str(file.resolve()), "function": function, "cases": cases}
                process.stdin.write(json.dumps(asked).encode())
                process.stdin.close()
            reply = json.loads(_read(process, time.monotonic() + limits.seconds, limits.memory))
        except TimeoutError:
            raise UserError(f"it took more than {limits.seconds:g} s and was stopped") from None
        except MemoryError:
            raise UserError("it needs more memory than the limit") from None
        except (ValueError, RecursionError):
            raise UserError("it ended without an answer, or needed more than the limits allow") from None
        finally:
            end_process(process)
    return _results(reply, len(cases))


def _results(reply: Any, count: int) -> list[Any]:
    """The file could have written the line itself, so nothing about it is taken for granted."""
    if isinstance(reply, dict) and isinstance(reply.get("problem"), str):
        raise UserError(reply["problem"][:300])
    results = reply.get("results") if isinstance(reply, dict) else None
    if not isinstance(results, list) or len(results) != count:
        raise UserError("it ended without an answer")
    if not _shallow(results, DEEPEST):
        raise UserError(f"a result may be a list of lists {DEEPEST} deep; return less")
    return [_with_infinities(one) for one in results]


def _with_infinities(value: Any) -> Any:
    """JSON has no numbers that are not finite, so they came as words."""
    if isinstance(value, list):
        return [_with_infinities(one) for one in value]
    return float(value) if value in ("inf", "-inf", "nan") else value


def _shallow(value: Any, depth: int) -> bool:
    return not isinstance(value, list) or (depth > 0 and all(_shallow(one, depth - 1) for one in value))


def start_process(
    command: list[str], environment: dict[str, str], folder: str | None = None
) -> subprocess.Popen[bytes]:
    """A process in a session of its own, so that what it starts can be ended with it."""
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, cwd=folder,
        start_new_session=True,
    )  # fmt: skip


def _read(process: subprocess.Popen[bytes], deadline: float, memory: int, until: bytes = b"") -> bytes:
    """What a process writes until its end or a sign, within a time, a size, and the memory that it may take.

    Where the system limits memory itself, the process notices first; macOS does not, so it is looked at from outside.
    """
    assert process.stdout is not None
    said = b""
    while not (until and said.endswith(until)):
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        if not select.select([process.stdout], [], [], min(left, LOOK))[0]:
            if resident(process.pid) > memory:
                raise MemoryError
            continue
        piece = os.read(process.stdout.fileno(), 1 << 16)
        if not piece:
            break
        said += piece
        if len(said) > LONGEST_REPLY:
            raise ValueError("too long a reply")
    return said


def resident(pid: int) -> int:
    """The bytes of memory that a process has now; 0 where it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * PAGE
    except (OSError, IndexError):  # no Linux, or no such process
        return _resident_by_ps(pid)


def _resident_by_ps(pid: int) -> int:
    try:
        told = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, timeout=5, check=False).stdout
        return int(told or 0) << 10
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return 0


def end_process(process: subprocess.Popen[bytes]) -> None:
    """End a process and whatever it has started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
