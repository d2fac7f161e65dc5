"""Attacks that write: to the grader's disk, to the runtime that others will use, and more than fits."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sqlite3
import sys
from pathlib import Path
from typing import Any

World = dict[str, Any]
ACHIEVED = "achieved"


def write_a_file(world: World) -> str:
    """Must not write a file outside its own folder."""
    Path(world["folder"], "written").write_text("x")
    return ACHIEVED


def make_a_database(world: World) -> str:
    """Must not write a file through SQLite, which does not use Python's open."""
    with sqlite3.connect(f"{world['folder']}/data.db") as connection:
        connection.execute("create table t (x)")
    return ACHIEVED


def truncate_a_classmates_file(world: World) -> str:
    """Must not change another student's file."""
    with contextlib.suppress(OSError):
        os.truncate(world["secret"], 0)
        return ACHIEVED
    os.remove(world["secret"])
    return ACHIEVED


def write_to_the_home(world: World) -> str:
    """Must not write to the home of whoever grades, such as a shell's start file."""
    for home in (world["home"], os.path.expanduser("~root"), "/root", "/home"):
        with contextlib.suppress(OSError):
            Path(home, ".bashrc").write_text("x")
            return ACHIEVED
    return ""


def change_the_runtime(world: World) -> str:
    """Must not change Python, the libraries or the packages, which the next student's program will use."""
    places = ["/", "/usr/lib", "/packages", "/packages/numpy", "/dev", "/etc", "/root", "/tmp", "/var/tmp", "/run",
              *world["hidden"], *world["runtime"], os.path.dirname(os.__file__), *sys.path]  # fmt: skip
    for place in places:
        if Path(place).resolve() != Path.cwd():
            with contextlib.suppress(OSError):
                Path(place, "written.py").write_text("x")
                return f"{ACHIEVED}: {place}"
            with contextlib.suppress(OSError):
                os.chmod(place, 0o777)
                return f"{ACHIEVED}: {place}"
    return ""


def change_a_module(world: World) -> str:
    """Must not change a module's file in place."""
    for name in (os.__file__, sys.executable, "/packages/numpy/__init__.py", "/etc/ld.so.cache"):
        with contextlib.suppress(OSError), open(name, "r+b"):
            return f"{ACHIEVED}: {name}"
    return ""


def write_to_shared_memory(world: World) -> str:
    """Must not leave something in shared memory."""
    Path("/dev/shm/octavo").write_text("x")
    return ACHIEVED


def change_through_the_working_folder(world: World) -> str:
    """Must not reach another folder by renaming or moving."""
    Path("mine").write_text("x")
    shutil.move("mine", f"{world['folder']}/written")
    return ACHIEVED


def fill_the_disk(world: World) -> str:
    """Must not fill more than its small folder."""
    written = 0
    with contextlib.suppress(OSError):
        for i in range(100):
            with open(f"part{i}", "wb", buffering=0) as file:
                for _ in range(16):
                    written += file.write(bytes(1 << 18))
    return ACHIEVED if written > 20 << 20 else ""


def fill_by_allocating(world: World) -> str:
    """Must not reserve more than its small folder."""
    for i in range(4):
        with open(f"part{i}", "wb") as file:
            os.posix_fallocate(file.fileno(), 0, 10 << 20)
    return ACHIEVED


def create_many_files(world: World) -> str:
    """Must not fill the kernel's memory with empty files.

    Reported: files|No space left
    """
    for i in range(10_000_000):
        os.close(os.open(f"file{i}", os.O_CREAT | os.O_WRONLY))
    return ACHIEVED


def delete_itself(world: World) -> str:
    """Must not delete the file that was handed in: what it sees is a copy."""
    for name in os.listdir("."):
        os.remove(name)
    return ""


def lock_a_file_of_the_runtime(world: World) -> str:
    """Must not lock a file that others can see: two students could send each other signs."""
    with open(os.__file__, "rb") as file:
        for lock in (lambda: fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB),
                     lambda: fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB),
                     lambda: fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)):  # fmt: skip
            with contextlib.suppress(OSError):
                lock()
                return ACHIEVED
    return ""


def set_attributes(world: World) -> str:
    """Must not store data in attributes of files."""
    Path("mine").write_text("x")
    os.setxattr("mine", "user.x", b"x" * 1000)
    return ACHIEVED
