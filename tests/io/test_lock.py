"""One process at a time works on a run's folder; the second is refused, and a dead holder's lock is taken over."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from octavo.errors import UserError
from octavo.io import system
from octavo.io.lock import living_holder, lock_file, locked, read_holder

HOLDS = """
import sys, time
from octavo.io.lock import locked
with locked(sys.argv[1], "resumes"):
    print("held", flush=True)
    time.sleep(60)
"""


@contextmanager
def holder(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the folder's lock."""
    process = subprocess.Popen([sys.executable, "-c", HOLDS, str(folder)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def test_the_second_process_is_refused_with_the_one_that_holds_it(tmp_path: Path) -> None:
    with holder(tmp_path / "run") as process:
        message = rf"process {process.pid} on {socket.gethostname()} resumes there; wait for it, or stop it"
        with pytest.raises(UserError, match=message), locked(tmp_path / "run"):
            raise AssertionError("two hold one lock")
        assert living_holder(tmp_path / "run")["pid"] == process.pid


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_lock_of_a_process_that_died_is_taken_over(tmp_path: Path, number: int) -> None:
    with holder(tmp_path / "run") as process:
        process.send_signal(number)
        process.wait()
        assert living_holder(tmp_path / "run") == {}
        with locked(tmp_path / "run"):
            assert read_holder(lock_file(tmp_path / "run"))["pid"] == os.getpid()
    assert not lock_file(tmp_path / "run").exists()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
def test_a_foreign_lock_file_names_no_living_process_and_is_not_waited_for(tmp_path: Path) -> None:
    file, here = lock_file(tmp_path / "run"), {"host": socket.gethostname()}
    for text in ('{"pid": 1e999}', "[" * 9000, json.dumps({"pid": 1 << 70, **here}), json.dumps({"pid": -1, **here})):
        file.write_text(text)
        assert living_holder(tmp_path / "run") == {}
    file.unlink()
    os.mkfifo(file)
    assert living_holder(tmp_path / "run") == {}


@pytest.mark.parametrize("text", ["", "{", "[1]", json.dumps({"pid": 1, "host": "elsewhere"})])
def test_a_lock_file_that_nobody_holds_is_in_nobodys_way(tmp_path: Path, text: str) -> None:
    lock_file(tmp_path / "run").write_text(text)
    with locked(tmp_path / "run"):
        pass
    assert os.listdir(tmp_path) == []


def test_a_lock_is_of_the_folder_that_a_link_leads_to_and_may_be_held_again_later(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "run")

    def second() -> None:
        with locked(tmp_path / "link"):
            raise AssertionError("two hold one lock")

    for _ in range(2):
        with locked(tmp_path / "run"), ThreadPoolExecutor(1) as pool:
            with locked(tmp_path / "link"):  # what one holds, one may ask for again within
                pass
            with pytest.raises(UserError, match="one process at a time"):
                pool.submit(second).result()
    assert sorted(os.listdir(tmp_path)) == ["link", "run"]


NO_LOCKS = OSError(38, "there are no file locks on this system")


@pytest.mark.parametrize(
    ("changes", "refused"),
    [
        ({}, "wait for it, or stop it$"),
        ({"started": "an earlier process of that number"}, ""),
        ({"pid": 2**22 + 1}, ""),
        ({"host": "elsewhere"}, r"if it has died with its machine, delete .*\.run\.lock$"),
        ({"started": ""}, "wait for it"),
    ],
    ids=["alive", "its number is another's", "dead", "elsewhere", "no start known"],
)
def test_without_locks_the_process_that_is_named_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], refused: str
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise NO_LOCKS

    monkeypatch.setattr(system, "lock", fails)
    pid = os.getppid()
    holder = {"pid": pid, "host": socket.gethostname(), "doing": "trains", "started": system.process_start(pid)}
    lock_file(tmp_path / "run").write_text(json.dumps(holder | changes))
    if not refused:
        with locked(tmp_path / "run"):
            assert read_holder(lock_file(tmp_path / "run"))["pid"] == os.getpid()
        return
    with pytest.raises(UserError, match=refused), locked(tmp_path / "run"):
        raise AssertionError("two hold one lock")


def test_nothing_is_left_behind_where_nothing_came_of_it(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), locked(tmp_path / "a" / "b" / "run"):
        raise ZeroDivisionError
    assert os.listdir(tmp_path) == []


def test_without_a_folder_there_is_nothing_to_lock() -> None:
    with locked(None), locked(None):
        pass


def test_a_pipe_has_no_lock(tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "pipe")
    with locked(pipe), locked("/dev/null"):
        assert os.listdir(tmp_path) == ["pipe"]
