"""A grader in a process of its own, for attacks: python attack_service.py [--as USER]; one line of JSON each way.

A request is {"backend", "file", "function", "world", "seconds", "memory"}; the reply has the case's value and problem,
why the whole file was refused, and what processes are left. With --as USER, root first becomes that user.
"""

from __future__ import annotations

import ctypes
import json
import os
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PR_SET_CHILD_SUBREAPER = 36
PATIENCE_SECONDS = 3.0
CLONE_NEWNS, MS_BIND, MS_PRIVATE_ALL = 0x20000, 4096, 16384 | 1 << 18


def reach_python() -> None:
    """Where only root can enter a folder above Python, show other users a copy of the path to it."""
    libc = ctypes.CDLL(None, use_errno=True)
    prefix = Path(os.path.realpath(sys.base_prefix))
    closed = [folder for folder in prefix.parents if not stat.S_IMODE(folder.stat().st_mode) & stat.S_IXOTH]
    if closed:
        assert libc.unshare(CLONE_NEWNS) == 0
        assert libc.mount(b"none", b"/", None, ctypes.c_ulong(MS_PRIVATE_ALL), None) == 0
        source, target = f"/proc/self/fd/{os.open(prefix, os.O_PATH)}".encode(), str(prefix).encode()
        assert libc.mount(b"tmpfs", str(closed[-1]).encode(), b"tmpfs", ctypes.c_ulong(0), b"mode=755") == 0
        prefix.mkdir(parents=True)
        assert libc.mount(source, target, None, ctypes.c_ulong(MS_BIND), None) == 0


def has_children() -> bool:
    """Whether a process is left, once those that have ended are forgotten; orphans become children of this process."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        try:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(0.01)
        except ChildProcessError:
            return False
    return True


def serve() -> None:
    from octavo.errors import UserError
    from octavo.exercises.framework.isolation.backends import Backend, Bubblewrap, Launch, Namespaces, Trusted
    from octavo.exercises.framework.isolation.calls import call_functions, explain_failure
    from octavo.exercises.framework.isolation.runtime import find_runtime
    from octavo.exercises.framework.limits import Limits

    class Unguarded(Trusted):
        """Without limits either: there an attack that can work does work."""

        @contextmanager
        def launch(self) -> Iterator[Launch]:
            with super().launch() as launch:
                yield launch._replace(limits={"RLIMIT_FSIZE": 1 << 20, "RLIMIT_NPROC": 1000})

    backends: dict[str, Backend] = {"bubblewrap": Bubblewrap(), "namespaces": Namespaces(), "none": Unguarded()}
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    runtime = find_runtime()
    for line in sys.stdin:
        request = json.loads(line)
        backend, start = backends[request["backend"]], time.monotonic()
        reply: dict[str, Any] = {"value": None, "problem": "", "refused": ""}
        if "function" not in request:
            reply["problem"] = explain_failure(backend)
        else:
            world = {**request["world"], "grader": os.getpid(), "home": os.path.expanduser("~"),
                     "hidden": runtime.hidden, "runtime": [runtime.python, *runtime.libraries]}  # fmt: skip
            try:
                source = Path(request["file"]).read_bytes()
                cases = [[world], [world]][: request.get("cases", 1)]
                [results] = call_functions(backend, {"attack.py": source}, "attack.py", [(request["function"], cases)],
                                           Limits(request["seconds"], request["memory"]))  # fmt: skip
                reply |= {**results[0]._asdict(), "value": [result.value for result in results]}
            except UserError as error:
                reply["refused"] = str(error)
        elapsed = time.monotonic() - start
        print(json.dumps({**reply, "left": has_children(), "elapsed": elapsed}), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--as"]:
        user = int(sys.argv[2])
        reach_python()
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
        os.execv(sys.executable, [sys.executable, __file__])
    serve()
