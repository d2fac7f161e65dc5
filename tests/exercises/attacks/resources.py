"""Attacks on time and memory, and crashes."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import mmap
import os
import re
import signal
import sys
import threading
import time
from typing import Any

World = dict[str, Any]
ACHIEVED = "achieved"
libc = ctypes.CDLL(None, use_errno=True)


def system_call(world: World, name: str, *arguments: Any) -> int:
    """Make a system call past Python; an OSError if it is refused."""
    converted = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    result = int(libc.syscall(ctypes.c_long(world["numbers"][name]), *converted))
    if result < 0:
        raise OSError(ctypes.get_errno(), name)
    return result


def spin(world: World) -> str:
    """Must not compute forever.

    Reported: was stopped
    """
    while True:
        pass


def spin_in_c(world: World) -> str:
    """Must not compute forever inside C, where Python sees no signal.

    Reported: was stopped
    """
    return str(sum(itertools.repeat(0)))


def spin_in_a_power(world: World) -> str:
    """Must not compute a huge power.

    Reported: was stopped|memory
    """
    return str(9**9**9 % 10)


def spin_in_a_pattern(world: World) -> str:
    """Must not backtrack forever.

    Reported: was stopped
    """
    return str(re.match(r"(a+)+$", "a" * 64 + "b"))


def catch_everything(world: World) -> str:
    """Must not survive by catching every exception.

    Reported: was stopped
    """
    while True:
        with contextlib.suppress(BaseException):
            while True:
                pass


def ignore_signals(world: World) -> str:
    """Must not survive by ignoring every signal.

    Reported: was stopped
    """
    for kind in signal.valid_signals():
        with contextlib.suppress(OSError, ValueError):
            signal.signal(kind, signal.SIG_IGN)
    while True:
        pass


def sleep(world: World) -> str:
    """Must not wait forever.

    Reported: was stopped
    """
    time.sleep(600)
    return ACHIEVED


def deadlock(world: World) -> str:
    """Must not wait for a lock that it holds.

    Reported: was stopped
    """
    lock = threading.Lock()
    return str(lock.acquire() and lock.acquire())


def halt_itself(world: World) -> str:
    """Must not stand still, halted by a signal.

    Reported: was stopped
    """
    signal.raise_signal(signal.SIGSTOP)
    time.sleep(600)
    return ACHIEVED


def one_large_object(world: World) -> str:
    """Must not take more memory than its limit.

    Reported: memory
    """
    return str(len(bytearray(4 << 30)))


def many_small_objects(world: World) -> str:
    """Must not take more memory than its limit, little by little.

    Reported: memory|ended without|was stopped
    """
    stored: list[bytes] = []
    while True:
        stored.append(bytes(1 << 20))


def shared_memory(world: World) -> str:
    """Must not take memory that is counted to no process."""
    mmap.mmap(-1, 1 << 20)
    return ACHIEVED


def memory_as_a_file(world: World) -> str:
    """Must not take memory as a file without a name."""
    os.memfd_create("x")
    return ACHIEVED


def memory_of_system_five(world: World) -> str:
    """Must not take shared memory that outlives it."""
    system_call(world, "shmget", 0, 1 << 20, 0o1600)
    return ACHIEVED


def memory_in_pipes(world: World) -> str:
    """Must not fill the kernel's memory with pipes."""
    opened = 0
    with contextlib.suppress(OSError):
        for _ in range(10_000):
            os.pipe()
            opened += 2
    return ACHIEVED if opened > 100 else ""


def recurse(world: World) -> str:
    """Must not bring the grader down by endless recursion.

    Reported: RecursionError|ended without|memory|was stopped
    """
    sys.setrecursionlimit(1 << 30)

    def deeper(x: int) -> int:
        return deeper(x + 1) + 1

    return str(deeper(0))


def crash(world: World) -> str:
    """Must not bring the grader down by a crash.

    Reported: ended without an answer
    """
    ctypes.string_at(0)
    return ACHIEVED


def abort_with_a_core(world: World) -> str:
    """Must not leave a core file.

    Reported: ended without an answer
    """
    os.abort()


def leave_at_once(world: World) -> str:
    """Must not count as right by ending with status 0.

    Reported: ended without an answer
    """
    os._exit(0)


def exit_politely(world: World) -> str:
    """Must not end the program by sys.exit.

    Reported: SystemExit
    """
    sys.exit(0)
