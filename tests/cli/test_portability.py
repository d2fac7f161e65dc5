"""octavo starts and works where POSIX's own modules and calls are missing, as on Windows."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from octavo.io import system
from octavo.io.files import write_text

MODULES = ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog", "readline", "curses")
OS_CALLS = (
    "fork", "getuid", "geteuid", "getegid", "pread", "pwrite", "fchmod", "fchown", "sysconf", "sched_getaffinity",
    "killpg", "setsid", "setpriority", "PRIO_PROCESS", "statvfs", "uname", "getloadavg", "mkfifo", "O_CLOEXEC",
    "O_NOFOLLOW", "O_NONBLOCK", "O_DIRECTORY",
)  # fmt: skip
SIGNALS = ("SIGHUP", "SIGALRM", "SIGKILL", "SIGUSR1", "SIGUSR2", "SIGQUIT", "SIGCHLD", "alarm", "setitimer")
NOT_IMPORTED = {
    "octavo.exercises.framework.isolation.launcher": "a program of its own that only Linux's namespaces run",
}
PROGRAM = """
import importlib, json, os, pkgutil, signal, sys
# Other packages see to themselves; and what they have imported by now, they keep.
import torch, numpy, scipy.stats, tokenizers, safetensors.torch, sympy, fastapi, uvicorn, rich.progress
import tyro, jinja2, multiprocessing.connection, platform, asyncio, http.server, socketserver, webbrowser, sklearn.base
modules, os_calls, signals, not_imported, commands = json.loads(sys.argv[1])
for name in modules:
    sys.modules[name] = None
for name in os_calls:
    if hasattr(os, name): delattr(os, name)
for name in signals:
    if hasattr(signal, name): delattr(signal, name)
import octavo
from octavo.cli import main
for one in pkgutil.walk_packages(octavo.__path__, "octavo."):
    if one.name not in not_imported and not one.name.endswith("__main__"):
        try:
            importlib.import_module(one.name)
        except ModuleNotFoundError as error:
            if error.name not in ("triton", "pyspark"):  # with PyTorch for GPUs, and an extra of 450 MB
                raise
from octavo.io import system
assert system.fcntl is None
for words in commands:
    if code := main(words):
        sys.exit(f"{words} exited with {code}")
print("all well")
"""


def test_every_module_imports_and_the_verbs_work_without_posix_only_modules_and_calls(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the owl and the pussycat went to sea\n" * 40)
    gru = ["train", "gru", "text.txt", "--budget", "2steps", "--width", "8", "--layers", "1", "--out", "gru"]
    commands = [
        ["--help"], ["train", "ngram", "text.txt", "--order", "2", "--out", "kn"], gru, ["eval", "kn", "text.txt"],
        ["list", "."], ["resume", "gru", "--budget", "3steps"], ["exercises", "list"], ["data", "list"],
        ["compare", "text.txt", "--models", "kn3,xz", "--out", "compared"], ["generate", "kn", "--max-tokens", "3"],
    ]  # fmt: skip
    words = json.dumps([MODULES, OS_CALLS, SIGNALS, list(NOT_IMPORTED), commands])
    done = subprocess.run([sys.executable, "-c", PROGRAM, words], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("all well\n")


class WindowsLocks:
    """What msvcrt promises: a byte that is locked through one handle cannot be locked through another."""

    LK_NBLCK = 2

    def __init__(self) -> None:
        self.held: dict[tuple[int, int], int] = {}

    def locking(self, handle: int, mode: int, count: int) -> None:
        import os

        place = os.fstat(handle).st_ino, os.lseek(handle, 0, os.SEEK_CUR)
        assert (mode, count) == (self.LK_NBLCK, 1)
        if self.held.setdefault(place, handle) != handle:
            raise OSError(36, "Resource deadlock avoided")


def test_where_only_windows_locks_are_to_be_had_they_are_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(system, "fcntl", None)
    monkeypatch.setattr(system, "msvcrt", WindowsLocks())
    (tmp_path / "file").write_bytes(b"text")
    with open(tmp_path / "file", "rb") as one, open(tmp_path / "file", "rb") as other:
        system.lock(one.fileno())
        with pytest.raises(BlockingIOError):
            system.lock(other.fileno())
        assert system.read_at(other.fileno(), 4, 0) == b"text"  # which a locked byte of the text would prevent


def test_where_only_windows_locks_are_to_be_had_files_begin_at_their_first_byte(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(system, "fcntl", None)
    monkeypatch.setattr(system, "msvcrt", WindowsLocks())
    write_text(tmp_path / "file", "text")
    assert (tmp_path / "file").stat().st_size == 4


def test_a_system_without_locks_says_so_and_reads_at_a_place_without_pread(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(system, "fcntl", None)
    monkeypatch.setattr(system, "msvcrt", None)
    monkeypatch.delattr("os.pread")
    (tmp_path / "file").write_bytes(b"0123456789")
    with open(tmp_path / "file", "r+b") as file:
        with pytest.raises(OSError, match="no file locks"):
            system.lock(file.fileno())
        assert system.read_at(file.fileno(), 3, 4) == b"456"
        system.write_whole(file.fileno(), b"ab")
    assert (tmp_path / "file").read_bytes() == b"ab"
