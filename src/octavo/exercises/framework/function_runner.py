"""Calls a student's function under limits: a standalone program that imports nothing of octavo.

    python function_runner.py CPU-SECONDS MEMORY-BYTES < {"file": ..., "function": ..., "cases": [...]}

It prints one line of JSON: {"results": [...]} or {"problem": "..."}. What the student's file prints is discarded.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import resource
import sys
from typing import Any

MAX_RESULT_NUMBERS = 100_000
WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
FORBIDDEN_EVENTS = {  # what is forbidden -> beginnings of the names of Python's audit events
    "start programs": ("os.fork", "os.exec", "os.posix_spawn", "os.spawn", "os.system", "subprocess.", "pty."),
    "send signals": ("os.kill",),
    "change files": ("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate",
                     "os.chmod", "os.chown", "os.utime", "os.setxattr", "os.removexattr", "shutil."),
    "use the network": ("socket.",),
    "change its limits": ("resource.",),
}  # fmt: skip


def set_limits(cpu_seconds: int, memory: int) -> None:
    """Limit what this process may use; limits that the system does not support are skipped."""
    limits = {
        "RLIMIT_CPU": cpu_seconds, "RLIMIT_AS": memory, "RLIMIT_CORE": 0, "RLIMIT_FSIZE": 0, "RLIMIT_NPROC": 0,
        "RLIMIT_NOFILE": 64,
    }  # fmt: skip
    for name, limit in limits.items():
        try:
            resource.setrlimit(getattr(resource, name), (limit, limit))
        except (AttributeError, ValueError, OSError):  # macOS does not limit the address space
            continue


def forbid(event: str, arguments: tuple[Any, ...]) -> None:
    """Audit hook that refuses what no answer needs. It stops accidents and simple attacks, not an expert."""
    for action, prefixes in FORBIDDEN_EVENTS.items():
        if event.startswith(prefixes):
            raise PermissionError(f"an answer may not {action}")
    if event == "open" and arguments[0] != os.devnull and isinstance(arguments[2], int) and arguments[2] & WRITE_FLAGS:
        raise PermissionError("an answer may not change files")


def plain(value: Any, budget: list[int]) -> Any:
    """A result as JSON values; arrays become lists, and `budget` counts down the numbers it may still hold."""
    budget[0] -= 1
    if budget[0] < 0:
        raise ValueError(f"a result may hold {MAX_RESULT_NUMBERS:,} numbers")
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(item, budget) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a result must be a number, a string, true, false or a list of them, not {type(value).__name__}")


def call_function(request: dict[str, Any]) -> dict[str, Any]:
    """The results of the function, or what went wrong."""
    try:
        sys.path.insert(0, os.path.dirname(request["file"]))
        spec = importlib.util.spec_from_file_location("answers", request["file"])
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        function = getattr(module, request["function"], None)
        if not callable(function):
            return {"problem": f"the file has no function {request['function']}"}
        return {"results": [plain(function(*case), [MAX_RESULT_NUMBERS]) for case in request["cases"]]}
    except MemoryError:
        return {"problem": "it needs more memory than the limit"}
    except BaseException as error:  # SystemExit included: a student's exit() must be reported too
        return {"problem": f"{type(error).__name__}: {error}"[:300]}


def main() -> None:
    request = json.load(sys.stdin)
    output = os.dup(1)
    devnull = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(devnull, stream)
    set_limits(int(sys.argv[1]), int(sys.argv[2]))
    sys.modules["octavo.exercises"] = None  # type: ignore[assignment]  # a student must not import the answers
    sys.addaudithook(forbid)
    reply = json.dumps(call_function(request)).encode()
    while reply:
        reply = reply[os.write(output, reply) :]
    os._exit(0)  # without running exit handlers that the student's file may have registered


if __name__ == "__main__":
    main()
