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
from typing import IO, Any, NamedTuple

from octavo.errors import UserError

LONGEST_REPLY = 1 << 22  # bytes
DEEPEST = 10  # lists within lists of a result
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
            command = [sys.executable, "-P", "-m", "octavo.exercises.worker", str(LIFETIME), str(self.limits.memory)]
            self.process = _started(command, dict(os.environ))
            self._reply({"do": "number", "as": {"right": 0}, "given": 0}, 60)  # starting is not the answer's fault
        reply = self._reply(what, self.limits.seconds)
        if "refused" in reply:
            raise UserError(reply["refused"])
        return reply["ok"]

    def _reply(self, what: dict[str, Any], seconds: float) -> dict[str, Any]:
        assert self.process is not None
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(what).encode() + b"\n")
            self.process.stdin.flush()
            line = _read(self.process.stdout, time.monotonic() + seconds, b"\n")
            reply: dict[str, Any] = json.loads(line)
            return reply
        except TimeoutError:
            self.end()
            raise UserError(f"it took more than {seconds:g} s and was stopped") from None
        except (ValueError, OSError):
            self.end()
            raise UserError("it needed more than the limits allow and was stopped") from None

    def end(self) -> None:
        """End the process, if there is one."""
        if self.process is not None:
            _end(self.process)
            self.process = None


def call_function(file: Path, function: str, cases: Any, limits: Limits) -> list[Any]:
    """The results of a function in a student's file; a UserError says what went wrong."""
    processor = math.ceil(limits.seconds) + 1  # more than the clock allows, so that it is the clock that is told of
    command = [sys.executable, "-B", str(Path(__file__).with_name("runner.py")),
               str(processor), str(limits.memory)]  # fmt: skip
    quiet = {"PATH": os.defpath, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as empty:
        process = _started(command, quiet, empty)
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            with contextlib.suppress(BrokenPipeError):
                asked = {"file": str(file.resolve()), "function": function, "cases": cases}
                process.stdin.write(json.dumps(asked).encode())
                process.stdin.close()
            reply = json.loads(_read(process.stdout, time.monotonic() + limits.seconds))
        except TimeoutError:
            raise UserError(f"it took more than {limits.seconds:g} s and was stopped") from None
        except (ValueError, RecursionError):
            raise UserError("it ended without an answer, or needed more than the limits allow") from None
        finally:
            _end(process)
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
    return results


def _shallow(value: Any, depth: int) -> bool:
    return not isinstance(value, list) or (depth > 0 and all(_shallow(one, depth - 1) for one in value))


def _started(command: list[str], environment: dict[str, str], folder: str | None = None) -> subprocess.Popen[bytes]:
    """A process in a session of its own, so that what it starts can be ended with it."""
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, cwd=folder,
        start_new_session=True,
    )  # fmt: skip


def _read(stream: IO[bytes], deadline: float, until: bytes = b"") -> bytes:
    """What comes until the end or a sign, within a time and a size."""
    said = b""
    while not (until and said.endswith(until)):
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([stream], [], [], left)[0]:
            raise TimeoutError
        piece = os.read(stream.fileno(), 1 << 16)
        if not piece:
            break
        said += piece
        if len(said) > LONGEST_REPLY:
            raise ValueError("too long a reply")
    return said


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
