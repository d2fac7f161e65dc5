"""Starts a program in namespaces of its own: a standalone program that imports nothing of octavo.

    python launcher.py SPECIFICATION < request

SPECIFICATION is a JSON object: `command`; `binds`, a list of [source, target]; `links`; `hidden`; `folder` (the only
writable one) with its size in bytes and files; `in_user_namespace`; `environment`; `parent`, which must be alive.
The launcher becomes a process outside (which waits), process 1 of the new namespaces (which ends everything in them
when it ends), and the program itself.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from typing import Any

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x20000, 0x4000000, 0x8000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
MNT_DETACH = 2
KEPT_FLAGS = MS_NOSUID | MS_NODEV | 8 | 1024 | 2048  # that a user namespace may not take away: noexec, noatime, ...
PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 24, 38
CAP_SETGID, CAP_SETUID, CAPABILITIES = 6, 7, 64
CAPABILITY_VERSION = 0x20080522
PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
NEW_ROOT = "/tmp"  # where the new root is mounted for a moment; every Linux has this folder
NOBODY = 65534

libc = ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: Any) -> None:
    """Call a function of the C library; an OSError if it fails."""
    converted = [ctypes.c_ulong(one) if isinstance(one, int) else one for one in arguments]
    if getattr(libc, name)(*converted) != 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")


def mount(source: str, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    texts = [one.encode() if one is not None else None for one in (source, target, kind)]
    call("mount", *texts, flags, options.encode() if options is not None else None)


def enter_namespaces(in_user_namespace: bool) -> None:
    """Leave the namespaces of this process; the next child is process 1 of the new ones."""
    user, group = os.geteuid(), os.getegid()
    flags = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS
    call("unshare", flags | (CLONE_NEWUSER if in_user_namespace else 0))
    if in_user_namespace:
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{NOBODY} {user} 1"),
            ("gid_map", f"{NOBODY} {group} 1"),
        ):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(text)


def build_root(specification: dict[str, Any]) -> None:
    """Mount a root that holds only what the specification names, and move into it."""
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    sources = [(os.open(source, os.O_PATH), target) for source, target in specification["binds"]]
    mount("tmpfs", NEW_ROOT, "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,mode=755")  # it may cover some of the sources
    for handle, target in sources:
        bind(f"/proc/self/fd/{handle}", NEW_ROOT + target, is_device=target.startswith("/dev/"))
        os.close(handle)
    for name, target in specification["links"]:
        os.symlink(target, NEW_ROOT + name)
    for folder in specification["hidden"]:
        mount("tmpfs", NEW_ROOT + folder, "tmpfs", MS_NOSUID | MS_NODEV | MS_RDONLY, "size=4k,nr_inodes=2,mode=755")
    folder, size, files = specification["folder"]
    os.makedirs(NEW_ROOT + folder)
    mount("tmpfs", NEW_ROOT + folder, "tmpfs", MS_NOSUID | MS_NODEV, f"size={size},nr_inodes={files},mode=1777")
    os.chdir(NEW_ROOT)
    number = PIVOT_ROOT[os.uname().machine]
    if libc.syscall(ctypes.c_long(number), b".", b".") != 0:
        raise OSError(ctypes.get_errno(), "pivot_root failed")
    call("umount2", b".", MNT_DETACH)  # the old root, which lies over the new one
    os.chdir("/")
    mount("none", "/", None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)
    os.chdir(folder)


def bind(source: str, target: str, is_device: bool) -> None:
    """Show a file or folder, read-only unless it is a device."""
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "wb"):
            pass
    mount(source, target, None, MS_BIND)  # not recursive: what is mounted below it stays out of sight
    flags = os.statvfs(source).f_flag & KEPT_FLAGS
    if not is_device:
        mount("none", target, None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | flags)


def drop_capabilities(kept: tuple[int, ...]) -> None:
    """Give up all capabilities but these, for good."""
    call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    for capability in set(range(CAPABILITIES)) - set(kept):
        libc.prctl(PR_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0)  # those that the kernel does not have fail
    mask = sum(1 << capability for capability in kept)
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0)
    call("capset", ctypes.byref(header), ctypes.byref((ctypes.c_uint32 * 6)(mask, mask, mask, 0, 0, 0)))


def die_with(parent: int) -> None:
    """End with the parent process, even if that is killed."""
    call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def wait_for(process: int) -> None:
    """Wait for a child, and exit as it did."""
    while True:
        ended, status = os.wait()  # as process 1 also for orphans
        if ended == process:
            os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def main() -> None:
    specification = json.loads(sys.argv[1])
    die_with(specification["parent"])
    enter_namespaces(specification["in_user_namespace"])
    if first := os.fork():
        os.close(1)  # the reader must see the end when the program ends
        wait_for(first)
    call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    build_root(specification)
    kept = () if specification["in_user_namespace"] else (CAP_SETUID, CAP_SETGID)
    if program := os.fork():
        os.close(1)
        drop_capabilities(())
        wait_for(program)
    drop_capabilities(kept)
    os.execve(specification["command"][0], specification["command"], specification["environment"])


if __name__ == "__main__":
    try:
        main()
    except OSError as problem:
        print(f"{problem}", file=sys.stderr)
        os._exit(125)
