"""Attacks on the isolation itself: removing the guard, gaining rights, and parts of the kernel that often had holes."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import resource
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


def clear_the_guard(world: World) -> str:
    """Must not write anywhere after emptying every table of the program that runs it."""
    import __main__

    for name, value in [*vars(__main__).items()]:
        if isinstance(value, dict | list) and name.isupper():
            value.clear()
        if isinstance(value, int) and name.isupper():
            setattr(__main__, name, 0)
    Path(world["folder"], "written").write_text("x")
    return ACHIEVED


def remove_the_filter(world: World) -> str:
    """Must not switch the filter of system calls off."""
    if libc.prctl(22, 0, 0, 0, 0) == 0:
        return ACHIEVED
    system_call(world, "seccomp", 1, 0, 0)
    return ACHIEVED


def allow_core_dumps(world: World) -> str:
    """Must not make the system write its memory to a file when it crashes."""
    return ACHIEVED if libc.prctl(4, 1, 0, 0, 0) == 0 and libc.prctl(3, 0, 0, 0, 0) == 1 else ""


def outlive_the_grader(world: World) -> str:
    """Must not change what ends it together with the grader."""
    return ACHIEVED if libc.prctl(1, 0, 0, 0, 0) == 0 else ""


def raise_limits(world: World) -> str:
    """Must not raise its limits on memory, time or files."""
    for kind in (resource.RLIMIT_DATA, resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE,
                 resource.RLIMIT_NPROC, resource.RLIMIT_NOFILE):  # fmt: skip
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(kind, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            return ACHIEVED
    with contextlib.suppress(OSError):
        system_call(world, "prlimit64", 0, 7, (ctypes.c_uint64 * 2)(1 << 30, 1 << 30), 0)
        return ACHIEVED
    return ""


def raise_limits_of_others(world: World) -> str:
    """Must not change the limits of the grader."""
    resource.prlimit(world["grader"], resource.RLIMIT_CPU, (0, 0))
    return ACHIEVED


def become_root(world: World) -> str:
    """Must not become root or another user."""
    for change in (lambda: os.setuid(0), lambda: os.setresuid(0, 0, 0), lambda: os.setgid(0), lambda: os.setgroups([0]),
                   lambda: os.setresuid(1, 1, 1)):  # fmt: skip
        with contextlib.suppress(OSError):
            change()
            return ACHIEVED
    return ACHIEVED if os.getuid() == 0 else ""


def gain_capabilities(world: World) -> str:
    """Must not have or gain a capability."""
    header, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)(*[0xFFFFFFFF] * 6)
    with contextlib.suppress(OSError):
        system_call(world, "capset", ctypes.byref(header), ctypes.byref(data))
        return ACHIEVED
    return ""


def make_a_user_namespace(world: World) -> str:
    """Must not make a namespace in which it is root."""
    system_call(world, "unshare", 0x10000000)
    return ACHIEVED


def make_a_namespace_by_clone(world: World) -> str:
    """Must not start a process in a namespace of its own, by the old call or the new one."""
    arguments = (ctypes.c_uint64 * 8)(0x10000000 | 0x20000, 0, 0, 0, 17, 0, 0, 0)
    for name, given in (("clone", (0x10000000 | 0x20000 | 17, 0, 0, 0, 0)), ("clone3", (ctypes.byref(arguments), 64))):
        try:
            if system_call(world, name, *given) == 0:
                os._exit(0)
            return ACHIEVED
        except OSError:
            continue
    return ""


def join_another_namespace(world: World) -> str:
    """Must not enter a namespace of another process."""
    system_call(world, "setns", 0, 0)
    return ACHIEVED


def mount_something(world: World) -> str:
    """Must not mount a file system, by the old call or the new ones."""
    os.mkdir("place")
    with contextlib.suppress(OSError):
        system_call(world, "mount", b"none", b"place", b"tmpfs", 0, 0)
        return ACHIEVED
    with contextlib.suppress(OSError):
        system_call(world, "mount", b"none", b"place", b"proc", 0, 0)
        return ACHIEVED
    with contextlib.suppress(OSError):
        system_call(world, "open_tree", -100, b"/", 1)
        return ACHIEVED
    system_call(world, "fsopen", b"tmpfs", 0)
    return ACHIEVED


def make_the_root_writable(world: World) -> str:
    """Must not remount what is read-only."""
    system_call(world, "mount", b"none", b"/", 0, 32 | 4096, 0)
    return ACHIEVED


def uncover_hidden_folders(world: World) -> str:
    """Must not unmount the empty folder that hides site-packages."""
    for folder in world["hidden"]:
        with contextlib.suppress(OSError):
            system_call(world, "umount2", folder.encode(), 2)
            return ACHIEVED
    return ""


def change_the_root(world: World) -> str:
    """Must not change its root."""
    with contextlib.suppress(OSError):
        os.chroot(".")
        return ACHIEVED
    system_call(world, "pivot_root", b".", b".")
    return ACHIEVED


def make_a_device(world: World) -> str:
    """Must not make a device file, such as the disk."""
    os.mknod("disk", 0o60600, os.makedev(254, 0))
    return ACHIEVED


def make_a_pipe_with_a_name(world: World) -> str:
    """Must not make a named pipe where the grader could read from it."""
    with contextlib.suppress(OSError):
        os.mkfifo(f"{world['folder']}/pipe")
        return ACHIEVED
    os.mkfifo("pipe")
    return ACHIEVED


def open_devices(world: World) -> str:
    """Must not open memory, disks, terminals or shared memory."""
    for name in ("mem", "kmem", "vda", "sda", "nvme0n1", "tty", "ptmx", "console", "kmsg", "fuse", "kvm", "net/tun",
                 "vsock", "zero", "shm/x"):  # fmt: skip
        with contextlib.suppress(OSError), open(f"/dev/{name}", "rb"):
            return f"{ACHIEVED}: {name}"
    return ""


def type_into_the_terminal(world: World) -> str:
    """Must not push characters into the terminal of whoever grades."""
    character = ctypes.c_char(b"x")
    for stream in range(4):
        if libc.ioctl(stream, ctypes.c_ulong(0x5412), ctypes.byref(character)) == 0:
            return ACHIEVED
        assert ctypes.get_errno() != 5, "the call reached a terminal"
    return ""


def call_by_another_interface(world: World) -> str:
    """Must not pass the filter by the numbers of x86-64's 32-bit interface, which name the same calls.

    Reported: ended without an answer
    """
    libc.syscall(ctypes.c_long(0x40000000 | 39))
    if os.uname().machine != "x86_64":
        os._exit(1)
    return ACHIEVED


def call_by_interrupt(world: World) -> str:
    """Must not pass the filter by the interrupt of 32-bit programs, whose numbers mean other calls.

    Reported: ended without an answer
    """
    if os.uname().machine != "x86_64":
        os._exit(1)
    page = mmap.mmap(-1, 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")  # mov eax, 20 (getpid); int 0x80; ret
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    ctypes.CFUNCTYPE(ctypes.c_int)(address)()
    return ACHIEVED


def start_io_uring(world: World) -> str:
    """Must not set up io_uring, which makes system calls that no filter sees."""
    system_call(world, "io_uring_setup", 8, (ctypes.c_uint32 * 30)())
    return ACHIEVED


def load_a_kernel_program(world: World) -> str:
    """Must not use bpf."""
    system_call(world, "bpf", 0, (ctypes.c_uint64 * 9)(2, 4 | 4 << 32, 1), 72)
    return ACHIEVED


def watch_page_faults(world: World) -> str:
    """Must not use userfaultfd, which helps to win races in the kernel."""
    system_call(world, "userfaultfd", 1)
    return ACHIEVED


def count_events(world: World) -> str:
    """Must not use perf_event_open, which shows what other processes do."""
    system_call(world, "perf_event_open", (ctypes.c_uint32 * 32)(1, 128), 0, -1, -1, 0)
    return ACHIEVED


def use_keyrings(world: World) -> str:
    """Must not read or store keys, which outlive a process."""
    with contextlib.suppress(OSError):
        system_call(world, "add_key", b"user", b"octavo", b"x", 1, -4)
        return ACHIEVED
    system_call(world, "keyctl", 0, -4, 0)
    return ACHIEVED


def replace_the_kernel(world: World) -> str:
    """Must not load another kernel or a module."""
    with contextlib.suppress(OSError):
        system_call(world, "kexec_load", 0, 0, 0, 0)
        return ACHIEVED
    system_call(world, "init_module", b"", 0, b"")
    return ACHIEVED


def compare_processes(world: World) -> str:
    """Must not learn about the kernel's objects by kcmp."""
    system_call(world, "kcmp", os.getpid(), os.getpid(), 1, 0, 0)
    return ACHIEVED


def change_the_clock(world: World) -> str:
    """Must not set the machine's clock or name."""
    with contextlib.suppress(OSError):
        system_call(world, "clock_settime", 0, (ctypes.c_int64 * 2)(0, 0))
        return ACHIEVED
    system_call(world, "sethostname", b"x", 1)
    return ACHIEVED


def change_the_personality(world: World) -> str:
    """Must not switch off the random layout of its memory for what it might start."""
    system_call(world, "personality", 0x0040000)
    return ACHIEVED
