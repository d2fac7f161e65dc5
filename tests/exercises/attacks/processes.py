"""Attacks with processes, signals and threads: starting programs, killing the grader, outliving the grading."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

World = dict[str, Any]
ACHIEVED = "achieved"


def fork(world: World) -> str:
    """Must not start a process.

    Unisolated: achieved
    """
    if (pid := os.fork()) == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return ACHIEVED


def fork_bomb(world: World) -> str:
    """Must not fill the machine with processes."""
    for _ in range(1000):
        with contextlib.suppress(OSError):
            os.fork()
    return ""


def fork_by_vfork(world: World) -> str:
    """Must not start a program by vfork or posix_spawn."""
    os.waitpid(os.posix_spawn(sys.executable, [sys.executable, "-c", ""], {}), 0)
    return ACHIEVED


def run_a_program(world: World) -> str:
    """Must not run a program.

    Unisolated: achieved
    """
    subprocess.run([sys.executable, "-I", "-S", "-c", ""], check=True)
    return ACHIEVED


def run_a_shell(world: World) -> str:
    """Must not run a shell.

    Unisolated: achieved
    """
    return ACHIEVED if os.system("true") == 0 else ""


def become_another_program(world: World) -> str:
    """Must not replace itself by another program, which would be free of Python."""
    os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(100)"])
    return ACHIEVED


def use_multiprocessing(world: World) -> str:
    """Must not use processes through multiprocessing."""
    process = multiprocessing.get_context("fork").Process(target=int)
    process.start()
    process.join()
    return ACHIEVED


def leave_a_daemon(world: World) -> str:
    """Must not leave a process that outlives the grading."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(600)
        os._exit(0)
    return ACHIEVED


def kill_the_parent(world: World) -> str:
    """Must not end the process that started it."""
    for kind in (signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP):
        with contextlib.suppress(OSError):
            os.kill(os.getppid(), kind)
    return ""


def kill_the_grader(world: World) -> str:
    """Must not end the grader."""
    os.kill(world["grader"], signal.SIGKILL)
    return ACHIEVED


def kill_the_grader_by_handle(world: World) -> str:
    """Must not end the grader through a process handle."""
    handle = os.pidfd_open(world["grader"])
    signal.pidfd_send_signal(handle, signal.SIGKILL)
    return ACHIEVED


def kill_the_parent_by_handle(world: World) -> str:
    """Must not end its parent through a process handle."""
    handle = os.pidfd_open(os.getppid())
    signal.pidfd_send_signal(handle, signal.SIGKILL)
    return ACHIEVED


def kill_everything(world: World) -> str:
    """Must not end all processes that it may signal."""
    with contextlib.suppress(OSError):
        os.kill(-1, signal.SIGKILL)
    os.killpg(0, signal.SIGKILL)
    return ACHIEVED


def stop_the_grader(world: World) -> str:
    """Must not halt the grader."""
    os.kill(world["grader"], signal.SIGSTOP)
    return ACHIEVED


def take_priority(world: World) -> str:
    """Must not take the processor from others."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, -20)
        return ACHIEVED
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    return ACHIEVED


def start_many_threads(world: World) -> str:
    """Must not fill the machine with threads."""
    threading.stack_size(1 << 16)
    started = 0
    with contextlib.suppress(RuntimeError):
        for _ in range(500):
            threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
            started += 1
    return ACHIEVED if started > 100 else ""


def leave_a_thread(world: World) -> float:
    """Must not delay the end by a thread that goes on."""
    threading.Thread(target=time.sleep, args=(600,)).start()
    return 0.0


def leave_an_exit_handler(world: World) -> float:
    """Must not run on at the end of the program."""
    import atexit

    atexit.register(time.sleep, 600)
    return 0.0


def start_a_session(world: World) -> str:
    """Must not leave the session by which it is ended."""
    os.setsid()
    return ACHIEVED
