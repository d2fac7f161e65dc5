"""A program of its own that calls a student's function under limits; it stands alone and imports nothing of octavo.

    python runner.py SECONDS BYTES < {"file": ..., "function": ..., "cases": [...]}

One line of JSON comes back: {"results": [...]} or {"problem": "..."}. What the student's file prints goes nowhere.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import resource
import sys
from typing import Any

MOST_NUMBERS = 100_000  # in one result
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
REFUSED = {  # what Python tells of before it happens, by how its name begins, and how a student is told
    "start programs": ("os.fork", "os.exec", "os.posix_spawn", "os.spawn", "os.system", "subprocess.", "pty."),
    "send signals": ("os.kill",),
    "change files": ("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate",
                     "os.chmod", "os.chown", "os.utime", "os.setxattr", "os.removexattr", "shutil."),
    "use the network": ("socket.",),
    "change its limits": ("resource.",),
}  # fmt: skip


def limit(seconds: int, memory: int) -> None:
    """Take away what a function has no need of; a limit that the system does not know is left out."""
    wanted = {
        "RLIMIT_CPU": seconds, "RLIMIT_AS": memory, "RLIMIT_CORE": 0, "RLIMIT_FSIZE": 0, "RLIMIT_NPROC": 0,
        "RLIMIT_NOFILE": 64,
    }  # fmt: skip
    for name, most in wanted.items():
        try:
            resource.setrlimit(getattr(resource, name), (most, most))
        except (AttributeError, ValueError, OSError):  # macOS does not limit the address space
            continue


def watch(event: str, arguments: tuple[Any, ...]) -> None:
    """Refuse what no answer needs. This stops mistakes and plain malice; it is no wall against an expert."""
    for what, beginnings in REFUSED.items():
        if event.startswith(beginnings):
            raise PermissionError(f"an answer may not {what}")
    if event == "open" and arguments[0] != os.devnull and isinstance(arguments[2], int) and arguments[2] & WRITING:
        raise PermissionError("an answer may not change files")


def plain(value: Any, room: list[int]) -> Any:
    """A result as JSON has it; arrays become lists."""
    room[0] -= 1
    if room[0] < 0:
        raise ValueError(f"a result may hold {MOST_NUMBERS:,} numbers")
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(one, room) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a result must be a number, a string, true, false or a list of them, not {type(value).__name__}")


def called(asked: dict[str, Any]) -> dict[str, Any]:
    """The results of the function, or what went wrong."""
    try:
        sys.path.insert(0, os.path.dirname(asked["file"]))
        spec = importlib.util.spec_from_file_location("answers", asked["file"])
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        function = getattr(module, asked["function"], None)
        if not callable(function):
            return {"problem": f"the file has no function {asked['function']}"}
        return {"results": [plain(function(*case), [MOST_NUMBERS]) for case in asked["cases"]]}
    except MemoryError:
        return {"problem": "it needs more memory than the limit"}
    except BaseException as error:  # a student's exit() must not end without a word either
        return {"problem": f"{type(error).__name__}: {error}"[:300]}


def main() -> None:
    asked = json.load(sys.stdin)
    answer = os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    limit(int(sys.argv[1]), int(sys.argv[2]))
    sys.modules["octavo.exercises"] = None  # type: ignore[assignment]  # to look the answer up is not to answer
    sys.addaudithook(watch)
    said = json.dumps(called(asked)).encode()
    while said:
        said = said[os.write(answer, said) :]
    os._exit(0)  # whatever the file has left behind to run at the end


if __name__ == "__main__":
    main()
