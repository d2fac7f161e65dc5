"""Calling a student's functions in an isolated process: what goes in, what comes out, and how it is checked.

The child gets the student's files, the names of the functions and the arguments, never an expected value. It answers
with lines of JSON through one pipe. The student's code can write into that pipe as well as the runner can, so every
line is checked: its size, its place in the order, and the types, size and depth of the values.
"""

from __future__ import annotations

import base64
import contextlib
import json
import math
import os
import re
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from octavo.errors import UserError
from octavo.exercises.framework.isolation.backends import WORK_FOLDER_BYTES, WORK_FOLDER_FILES, Backend, Launch
from octavo.exercises.framework.isolation.runner import MAX_MESSAGE_CHARACTERS, MAX_RESULT_NUMBERS
from octavo.exercises.framework.isolation.runtime import PACKAGES, WORK_FOLDER
from octavo.exercises.framework.limits import POLL_SECONDS, START_SECONDS, Limits, resident_bytes

MAX_LINE_BYTES, MAX_REPLY_BYTES = 1 << 22, 1 << 24
MAX_RESULT_DEPTH = 10  # lists within lists
MAX_TEXT_CHARACTERS = 10_000  # of a string in a result
MAX_TYPE_CHARACTERS = 60
END_SECONDS = 5.0  # until a killed process must be gone
LIBRARY_BYTES = 16 << 30  # of address space for libraries, which take no memory of their own
LIMITS = {"RLIMIT_CORE": 0, "RLIMIT_FSIZE": WORK_FOLDER_BYTES, "RLIMIT_NPROC": 16, "RLIMIT_NOFILE": 64,
          "RLIMIT_STACK": 8 << 20, "RLIMIT_MSGQUEUE": 0, "RLIMIT_MEMLOCK": 0}  # fmt: skip
REMEDIES = {
    "ModuleNotFoundError": f"an answer may import Python's standard library, {' and '.join(PACKAGES)}",
    "PermissionError": "an answer may not start programs, use the network, or write outside its own empty folder",
}
FORGED = "it wrote into the grader's channel; return the results instead"
NOT_FINITE = {"inf", "-inf", "nan"}

Cases = Sequence[Sequence[Any]]


class CaseResult(NamedTuple):
    """What a function returned for one case, or why it returned nothing."""

    value: Any = None
    problem: str = ""


class Stopped(Exception):
    """The process was stopped or ended before it answered."""


class Forged(Exception):
    """A line that the runner would not write."""


class IsolationError(UserError):
    """The isolated process could not be started: no fault of the student's file."""


def call_functions(
    backend: Backend, sources: Mapping[str, bytes], file: str, functions: Sequence[tuple[str, Cases]], limits: Limits
) -> list[list[CaseResult]]:
    """The results of some functions of one file, case by case.

    They share one process. If it is stopped, the function that ran loses its remaining cases, and those after it get a
    new process. A UserError says why nothing of the file counts.
    """
    results: list[list[CaseResult]] = []
    while len(results) < len(functions):
        try:
            results += _run_once(backend, sources, file, functions[len(results) :], limits)
        except Forged:
            raise UserError(FORGED) from None
    return results


def _run_once(
    backend: Backend, sources: Mapping[str, bytes], file: str, functions: Sequence[tuple[str, Cases]], limits: Limits
) -> list[list[CaseResult]]:
    """The results of at least one function; fewer than all if the process was stopped."""
    with backend.launch() as launch, tempfile.TemporaryFile() as request, tempfile.TemporaryFile() as errors:
        cpu_seconds = math.ceil(limits.seconds * (len(functions) + 1)) + 1
        rlimits = {**LIMITS, "RLIMIT_CPU": cpu_seconds, "RLIMIT_DATA": limits.memory,
                   "RLIMIT_AS": limits.memory + LIBRARY_BYTES, **launch.limits}  # fmt: skip
        contents = {
            "sources": {name: base64.b64encode(source).decode() for name, source in sources.items()},
            "preload": [name for name in PACKAGES if any(imports(source, name) for source in sources.values())],
            "file": file, "functions": functions, "limits": rlimits, "packages": launch.packages,
            "users": launch.users, "filter": base64.b64encode(launch.filter).decode(), "forbidden": launch.forbidden,
            "unreadable": launch.unreadable,
        }  # fmt: skip
        request.write(json.dumps(contents).encode())
        request.flush()
        request.seek(0)
        process = Process(launch, request, errors, limits.memory)
        try:
            _await_ready(process, errors, backend.name)
            return _collect(process, functions, limits.seconds)
        finally:
            process.end()


def imports(source: bytes, package: str) -> bool:
    """Whether a file seems to import a package."""
    return re.search(rb"\b(import|from)\s+" + package.encode() + rb"\b", source) is not None


class Process:
    """A started runner, whose lines are read within limits on time, size, memory and files."""

    def __init__(self, launch: Launch, request: IO[bytes], errors: IO[bytes], memory: int) -> None:
        try:
            self.process = subprocess.Popen(
                launch.command, stdin=request, stdout=subprocess.PIPE, stderr=errors, env=launch.environment,
                cwd=launch.folder, pass_fds=launch.handles, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise IsolationError(f"{launch.command[0]} cannot be started: {error.strerror}") from error
        assert self.process.stdout is not None
        self.stream = self.process.stdout
        self.poll = select.poll()
        self.poll.register(self.stream, select.POLLIN)
        self.memory, self.has_own_root = memory, launch.has_own_root
        self.buffer, self.received = b"", 0
        self.is_ready = False  # until then it may still see the machine's files

    def read(self, deadline: float) -> dict[str, Any]:
        """The next line as JSON; Stopped if none comes in time."""
        while b"\n" not in self.buffer:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise TimeoutError
            if not self.poll.poll(min(remaining, POLL_SECONDS) * 1000):
                if self.is_ready:
                    self._check_use()
                continue
            chunk = os.read(self.stream.fileno(), 1 << 16)
            if not chunk:
                raise Stopped("it ended without an answer, or needed more than the limits allow")
            self.buffer += chunk
            self.received += len(chunk)
            if len(self.buffer) > MAX_LINE_BYTES or self.received > MAX_REPLY_BYTES:
                raise Forged
        line, self.buffer = self.buffer.split(b"\n", 1)
        return parse_line(line)

    def _check_use(self) -> None:
        """Stop a program that uses more than it may of what the system itself does not limit."""
        if not self.has_own_root:  # macOS limits no memory
            if resident_bytes(self.process.pid) > self.memory + WORK_FOLDER_BYTES:
                raise Stopped("it needs more memory than the limit")
        elif _count_files(_first_child(self.process.pid)) > WORK_FOLDER_FILES:  # bubblewrap cannot limit it
            raise Stopped(f"it created more than {WORK_FOLDER_FILES:,} files")

    def end(self) -> None:
        """End the process with everything it started, and wait until all of it is gone."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        deadline = time.monotonic() + END_SECONDS
        while (remaining := deadline - time.monotonic()) > 0:  # the pipe ends with the last process that holds it
            if self.poll.poll(remaining * 1000) and not os.read(self.stream.fileno(), 1 << 16):
                break
        self.stream.close()


def _await_ready(process: Process, errors: IO[bytes], name: str) -> None:
    """Wait until the runner has set its limits; an IsolationError says why it has not."""
    try:
        first = process.read(time.monotonic() + START_SECONDS)
    except (TimeoutError, Stopped, Forged):
        first = {}
    process.is_ready = first == {"ready": True}
    if process.is_ready:
        return
    errors.seek(0)
    lines = [*errors.read(1 << 16).decode("utf-8", "replace").strip().splitlines(), str(first.get("failed", ""))]
    reason = next(filter(None, reversed(lines)), "it gave no reply")
    raise IsolationError(f"the isolation {name} cannot be started: {clean_text(reason)}")


def _collect(process: Process, functions: Sequence[tuple[str, Cases]], seconds: float) -> list[list[CaseResult]]:
    reply, problem = _read(process, time.monotonic() + seconds, seconds)
    if problem or reply != {"loaded": True}:
        problem = problem or _describe(reply.get("error"), "")
        return [[CaseResult(problem=problem)] * len(cases) for _, cases in functions]
    results: list[list[CaseResult]] = []
    for i, (name, cases) in enumerate(functions):
        deadline = time.monotonic() + seconds
        results.append([])
        for j in range(len(cases)):
            reply, problem = _read(process, deadline, seconds)
            if problem:
                results[-1] += [CaseResult(problem=problem)] * (len(cases) - j)
                return results
            if reply.get("at") != [i, j] or len(reply) != 2:
                raise Forged
            if "error" in reply:
                results[-1].append(CaseResult(problem=_describe(reply["error"], name)))
            elif "value" in reply:
                results[-1].append(check_result(reply["value"]))
            else:
                raise Forged
    return results


def _read(process: Process, deadline: float, seconds: float) -> tuple[dict[str, Any], str]:
    """The next line, or why there is none."""
    try:
        return process.read(deadline), ""
    except TimeoutError:
        return {}, f"it took more than {seconds:g} s and was stopped"
    except Stopped as stop:
        return {}, str(stop)


def parse_line(line: bytes) -> dict[str, Any]:
    """A line as a JSON object; Forged if it is anything else."""
    if line.count(b"[") + line.count(b",") + line.count(b"{") > 3 * MAX_RESULT_NUMBERS:
        raise Forged
    try:
        reply = json.loads(line, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise Forged from None
    if not isinstance(reply, dict):
        raise Forged
    return reply


def _refuse(_: str) -> None:
    raise ValueError("JSON has no such number")


def check_result(value: Any) -> CaseResult:
    """A result, all of which is checked: numbers, strings, booleans, None and lists of them."""
    budget = [MAX_RESULT_NUMBERS]
    try:
        return CaseResult(_restore(value, MAX_RESULT_DEPTH, budget))
    except UserError as error:
        return CaseResult(problem=str(error))


def _restore(value: Any, depth: int, budget: list[int]) -> Any:
    budget[0] -= 1
    if budget[0] < 0:
        raise UserError(f"a result may hold {MAX_RESULT_NUMBERS:,} numbers; return less")
    if isinstance(value, list):
        if depth == 0:
            raise UserError(f"a result may be a list of lists {MAX_RESULT_DEPTH} deep; return less")
        return [_restore(item, depth - 1, budget) for item in value]
    if isinstance(value, dict):
        if [*value] != ["float"] or value["float"] not in NOT_FINITE:
            raise Forged
        return float(value["float"])
    if isinstance(value, float) and not math.isfinite(value):  # 1e999
        raise Forged
    if isinstance(value, str) and len(value) > MAX_TEXT_CHARACTERS:
        raise UserError(f"a string in a result may have {MAX_TEXT_CHARACTERS:,} characters; return less")
    return value


def _describe(error: Any, function: str) -> str:
    """A student's exception: its type, the line of the student's file, and a short message."""
    match error:
        case [str(kind), int() | None as line, str(message)] if len(kind) <= MAX_TYPE_CHARACTERS:
            pass
        case _:
            raise Forged
    if not kind:
        return f"the file has no function {function}"
    if kind == "MemoryError":
        return "it needs more memory than the limit"
    where = f" in line {line}" if line is not None and 0 < line < 1_000_000 else ""
    remedy = f"; {REMEDIES[kind]}" if kind in REMEDIES else ""
    return f"{clean_text(kind)}{where}: {clean_text(message)}{remedy}"


def clean_text(text: str) -> str:
    """A short line of printable characters."""
    printable = "".join(character if character.isprintable() else " " for character in text)
    return " ".join(printable[:MAX_MESSAGE_CHARACTERS].split())


def _first_child(pid: int) -> int:
    """The first child of a process; 0 if it is not known."""
    try:
        return int(Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()[0])
    except (OSError, IndexError):
        return 0


def _count_files(pid: int) -> int:
    """The number of files in the writable folder of an isolated process."""
    try:
        status = os.statvfs(f"/proc/{pid}/root{WORK_FOLDER}")
        return status.f_files - status.f_ffree
    except OSError:
        return 0


def explain_failure(backend: Backend, call: Callable[..., Any] = call_functions) -> str:
    """Why a backend does not work here, found by running a function in it; empty if it works."""
    try:
        [[result]] = call(backend, {"probe.py": b"def probe(x):\n    return x + 1\n"}, "probe.py",
                          [("probe", [[1]])], Limits(START_SECONDS))  # fmt: skip
        return "" if result == CaseResult(2) else result.problem or "a function gave a wrong result"
    except UserError as error:
        return str(error)
