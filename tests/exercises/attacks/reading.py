"""Attacks that read what a student must not see: the answers, other students' files, this machine, the grader."""

from __future__ import annotations

import ctypes
import gc
import importlib
import importlib.metadata
import importlib.util
import os
import sys
from pathlib import Path
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


def import_the_answers(world: World) -> str:
    """Must not import the package with the answers."""
    importlib.import_module("octavo.exercises.topics.softmax")
    return ACHIEVED


def import_the_answers_again(world: World) -> str:
    """Must not import the answers after clearing what the runner may have put into sys.modules."""
    for name in [name for name in sys.modules if name.startswith("octavo")]:
        sys.modules.pop(name)
    importlib.invalidate_caches()
    importlib.import_module("octavo.exercises")
    return ACHIEVED


def import_from_the_package_folder(world: World) -> str:
    """Must not import the answers from where they are installed.

    Unisolated: achieved
    """
    sys.path.append(str(Path(world["package"]).parent))
    importlib.import_module("octavo.errors")
    return ACHIEVED


def load_the_file_of_an_exercise(world: World) -> str:
    """Must not execute an exercise's own file.

    Unisolated: achieved
    """
    spec = importlib.util.spec_from_file_location("errors", f"{world['package']}/errors.py")
    assert spec is not None
    assert spec.loader is not None
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    return ACHIEVED


def open_the_file_of_an_exercise(world: World) -> str:
    """Must not read an exercise's text.

    Unisolated: achieved
    """
    return ACHIEVED if "EXERCISES" in Path(world["package"], "exercises/topics/softmax.py").read_text() else ""


def search_the_disk(world: World) -> str:
    """Must not find the package, an editable install of it, or its metadata anywhere."""
    for folder, folders, files in os.walk("/"):
        if any("octavo" in name.lower() for name in (*folders, *files)):
            return f"{ACHIEVED}: {folder}"
    return ""


def ask_for_the_metadata(world: World) -> str:
    """Must not learn where the package is installed."""
    for path in importlib.metadata.distribution("octavo").files or ():
        return f"{ACHIEVED}: {path}"
    return ACHIEVED


def read_a_classmates_file(world: World) -> str:
    """Must not read another student's file.

    Unisolated: achieved
    """
    return ACHIEVED if Path(world["secret"]).read_text() else ""


def execute_a_classmates_file(world: World) -> str:
    """Must not run another student's function as its own.

    Unisolated: achieved
    """
    names: dict[str, Any] = {}
    exec(Path(world["secret"]).read_text(), names)
    return str(names["double"](world["word"]))


def list_the_class(world: World) -> str:
    """Must not learn who else has handed in.

    Unisolated: achieved
    """
    return ACHIEVED if os.listdir(Path(world["secret"]).parent.parent) else ""


def link_to_a_classmates_file(world: World) -> str:
    """Must not reach another student's file through a link.

    Unisolated: achieved
    """
    os.symlink(world["secret"], "link")
    return ACHIEVED if Path("link").read_text() else ""


def link_hard_to_a_classmates_file(world: World) -> str:
    """Must not make a second name for another student's file."""
    os.link(world["secret"], "hard-link")
    return ACHIEVED if Path("hard-link").read_text() else ""


def leave_the_root_by_relative_names(world: World) -> str:
    """Must not leave its root by .. and relative names."""
    return ACHIEVED if Path("../" * 40 + world["secret"]).read_text() else ""


def enter_the_graders_root(world: World) -> str:
    """Must not see the grader's files through /proc.

    Unisolated: achieved
    """
    return ACHIEVED if Path(f"/proc/{world['grader']}/root{world['secret']}").read_text() else ""


def enter_the_first_process_root(world: World) -> str:
    """Must not see the machine's files through process 1 of its namespace."""
    return ACHIEVED if Path(f"/proc/1/root{world['secret']}").read_text() else ""


def read_environments(world: World) -> str:
    """Must not read a secret from its own or another process's environment."""
    texts = [f"{name}={value}" for name, value in os.environ.items()]
    for file in Path("/proc").glob("[0-9]*/environ"):
        texts.append(file.read_text(errors="replace"))
    return ACHIEVED if any(world["word"] in text for text in texts) else ""


def list_processes(world: World) -> str:
    """Must not see other processes.

    Unisolated: achieved
    """
    return ACHIEVED if Path(f"/proc/{world['grader']}/cmdline").read_bytes() else ""


def read_the_machines_files(world: World) -> str:
    """Must not read the machine's own configuration.

    Unisolated: achieved
    """
    return ACHIEVED if Path("/etc/passwd").read_text() else ""


def list_homes(world: World) -> str:
    """Must not list the home folders, or what lies in that of whoever grades."""
    found = [path for home in ("/home", world["home"]) if os.path.isdir(home) for path in os.listdir(home)]
    allowed = [Path(name).relative_to(world["home"]).parts[0] for name in world["runtime"]
               if Path(name).is_relative_to(world["home"])]  # fmt: skip
    return ACHIEVED if set(found) - set(allowed) else ""


def read_open_files(world: World) -> str:
    """Must not find an open file with the request, with bubblewrap's settings or with another student's answers."""
    for stream in range(1024):
        try:
            os.lseek(stream, 0, os.SEEK_SET)
            if os.read(stream, 1 << 20):
                return f"{ACHIEVED}: {stream}"
        except OSError:
            continue
    return ""


def search_memory(world: World) -> list[str]:
    """Must not find what it is expected to return anywhere in its memory."""
    return sorted({text for text in gc.get_objects() if isinstance(text, str)})[:1000] + [
        repr(value) for holder in gc.get_objects() if isinstance(holder, dict) for value in holder.values()
        if isinstance(value, int | float)
    ][:5000]  # fmt: skip


def trace_the_parent(world: World) -> str:
    """Must not attach to another process as a debugger does."""
    for pid in (1, os.getppid(), world["grader"]):
        try:
            system_call(world, "ptrace", 16, pid, 0, 0)
            return ACHIEVED
        except OSError:
            continue
    return ""


def read_memory_of_others(world: World) -> str:
    """Must not read another process's memory."""
    buffer = ctypes.create_string_buffer(64)
    vector = (ctypes.c_void_p * 2)(ctypes.addressof(buffer), 64)
    for pid in (1, os.getpid(), world["grader"]):
        try:
            system_call(world, "process_vm_readv", pid, ctypes.byref(vector), 1, ctypes.byref(vector), 1, 0)
            return ACHIEVED
        except OSError:
            continue
    return ""


def steal_an_open_file(world: World) -> str:
    """Must not take an open file from another process."""
    handle = system_call(world, "pidfd_open", world["grader"], 0)
    system_call(world, "pidfd_getfd", handle, 0, 0)
    return ACHIEVED


def open_by_handle(world: World) -> str:
    """Must not open a file by its number on the disk, past all folders."""
    handle = (ctypes.c_uint32 * 4)(8, 1, 2, 0)
    system_call(world, "open_by_handle_at", 3, ctypes.byref(handle), 0)
    return ACHIEVED


def read_kernel_messages(world: World) -> str:
    """Must not read the kernel's messages."""
    buffer = ctypes.create_string_buffer(4096)
    system_call(world, "syslog", 3, buffer, 4096)
    return ACHIEVED
