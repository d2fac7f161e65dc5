"""Runs a student's functions: a standalone program that imports nothing of octavo and knows no expected value.

It reads one JSON object from standard input (see `calls.py`) and writes one line of JSON for each step:
{"ready": true} when the limits are set, or {"failed": why}; {"loaded": true} when the student's file has been executed,
or {"error": [type, line, message]}; and {"at": [function, case], "value": ...} or {"at": ..., "error": ...} for each
call. What the student's file prints is discarded.
"""

from __future__ import annotations

import base64
import contextlib
import importlib
import importlib.util
import json
import math
import os
import sys
from typing import Any

REPLY = 3  # the file descriptor of the replies; 0, 1 and 2 lead nowhere
MAX_RESULT_NUMBERS = 100_000
MAX_MESSAGE_CHARACTERS = 200
CAPABILITY_VERSION = 0x20080522
PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, SECCOMP_MODE_FILTER = 4, 22, 38, 2


def take_streams() -> None:
    """Move standard output to REPLY, and close or discard everything else."""
    os.dup2(1, REPLY, inheritable=False)
    devnull = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(devnull, stream)
    os.closerange(REPLY + 1, 1024)


def become(users: list[int]) -> None:
    """Become the first of these users that exists here; called only where the program was started by root."""
    os.setgroups([])
    for user in users:
        try:
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
            return
        except OSError:  # in a container only some numbers are users
            continue
    raise PermissionError("root cannot become another user here")


def set_limits(limits: dict[str, int]) -> None:
    """Set limits of the system, such as {"RLIMIT_CPU": 11}; those that it does not support are skipped."""
    import resource  # here: the module's constants are read on systems without it too

    for name, limit in limits.items():
        try:
            resource.setrlimit(getattr(resource, name), (limit, limit))
        except (AttributeError, ValueError, OSError):  # macOS does not limit the address space
            continue


def install_filter(program: bytes) -> None:
    """Give up all capabilities, forbid core dumps, and install a seccomp filter, which cannot be removed again."""
    import ctypes

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))

    libc = ctypes.CDLL(None, use_errno=True)
    header, none = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0), (ctypes.c_uint32 * 6)()
    if libc.capset(ctypes.byref(header), ctypes.byref(none)):  # what another user may still inherit from root
        raise OSError(ctypes.get_errno(), "capset failed")
    filter = Program(len(program) // 8, program)
    for arguments in (
        (PR_SET_DUMPABLE, 0),
        (PR_SET_NO_NEW_PRIVS, 1),
        (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(filter)),
    ):
        rest = [ctypes.c_ulong(0)] * (5 - len(arguments))
        if libc.prctl(*(ctypes.c_ulong(one) if isinstance(one, int) else one for one in arguments), *rest):
            raise OSError(ctypes.get_errno(), f"prctl {arguments[0]} failed")


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
        return {"float": str(float(value))}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a result must be a number, a string, true, false or a list of them, not {type(value).__name__}")


def describe(error: BaseException, file: str) -> list[Any]:
    """The type of an exception, the line of the student's file, and the start of the message."""
    line = error.lineno if isinstance(error, SyntaxError) and error.filename == file else None
    step = error.__traceback__
    while step is not None:
        if step.tb_frame.f_code.co_filename == file:
            line = step.tb_lineno
        step = step.tb_next
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    return [type(error).__name__, line, message[:MAX_MESSAGE_CHARACTERS]]


def send(**message: Any) -> None:
    data = json.dumps(message).encode() + b"\n"
    while data:
        data = data[os.write(REPLY, data) :]


def run(request: dict[str, Any], folder: str) -> None:
    """Execute the file, then call each function with each of its cases."""
    file = os.path.join(folder, request["file"])
    sys.path.insert(0, folder)
    try:
        spec = importlib.util.spec_from_file_location("answers", file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except BaseException as error:  # SystemExit included: a student's exit() must be reported too
        send(error=describe(error, file))
        return
    send(loaded=True)
    for i, (name, cases) in enumerate(request["functions"]):
        for j, case in enumerate(cases):
            if not callable(getattr(module, name, None)):
                send(at=[i, j], error=["", None, ""])
                continue
            try:
                message = {"value": plain(getattr(module, name)(*case), [MAX_RESULT_NUMBERS])}
            except BaseException as error:
                message = {"error": describe(error, file)}
            send(at=[i, j], **message)


def prepare(request: dict[str, Any], folder: str) -> None:
    """Write the student's files, then give up every right that this process still has."""
    if request["users"]:
        become(request["users"])
    for name, source in request["sources"].items():
        with open(os.path.join(folder, name), "wb") as file:
            file.write(base64.b64decode(source))
    sys.path[:0] = request["packages"]  # the student's folder follows when all is done: it may have a file ctypes.py
    if request["forbidden"] and importlib.util.find_spec(request["forbidden"]) is not None:
        raise OSError(f"the package {request['forbidden']} can be read; use a Python or an image without it")
    for path in request["unreadable"]:
        if os.access(path, os.R_OK) or os.access(path, os.X_OK):
            raise OSError(f"{path} can be read by other users; close it: chmod go-rwx {path}")
    set_limits(request["limits"])
    if request["filter"]:
        install_filter(base64.b64decode(request["filter"]))
    for name in request["preload"]:  # before the student's time begins
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def main() -> None:
    request, folder = json.load(sys.stdin), os.getcwd()
    take_streams()
    try:
        prepare(request, folder)
    except Exception as error:
        send(failed=f"{type(error).__name__}: {error}")
        return
    send(ready=True)
    run(request, folder)
    os._exit(0)  # without running exit handlers or waiting for threads that the student's file may have started


if __name__ == "__main__":
    main()
