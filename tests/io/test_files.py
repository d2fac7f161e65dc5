"""Files and folders are whole or not there, whatever goes wrong."""

from __future__ import annotations

import fcntl
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from octavo.errors import UserError
from octavo.io import files, system
from octavo.io.files import whole_file, whole_folder


def write(path: Path, text: str = "new") -> None:
    with whole_file(path) as file:
        file.write(text.encode())


def fill(path: Path, text: str = "new") -> None:
    with whole_folder(path) as folder:
        (folder / "a.txt").write_text(text)


def break_off_a_file(place: Path, error: BaseException) -> None:
    with whole_file(place / "file") as file:
        file.write(b"ne")
        raise error


def break_off_a_folder(place: Path, error: BaseException) -> None:
    with whole_folder(place / "folder") as folder:
        (folder / "a.txt").write_text("ne")
        raise error


def test_a_file_and_its_folders_appear(tmp_path: Path) -> None:
    write(tmp_path / "a" / "b" / "c.txt")
    assert (tmp_path / "a" / "b" / "c.txt").read_text() == "new"
    assert [p.name for p in (tmp_path / "a" / "b").iterdir()] == ["c.txt"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_interrupted_write_leaves_what_stood_there(tmp_path: Path, error: type[BaseException]) -> None:
    write(tmp_path / "file", "old")
    fill(tmp_path / "folder", "old")
    for break_off in (break_off_a_file, break_off_a_folder):
        with pytest.raises(error):
            break_off(tmp_path, error())
    assert (tmp_path / "file").read_text() == "old"
    assert (tmp_path / "folder" / "a.txt").read_text() == "old"
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]


@pytest.mark.parametrize("exchange", [True, False])
def test_a_folder_is_replaced_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchange: bool) -> None:
    if not exchange:
        monkeypatch.setattr(system, "exchange", lambda one, other: False)
    fill(tmp_path / "folder", "old")
    (tmp_path / "folder" / "of the old one").touch()
    fill(tmp_path / "folder", "new")
    assert {p.name: p.read_text() for p in (tmp_path / "folder").iterdir()} == {"a.txt": "new"}
    assert os.listdir(tmp_path) == ["folder"]


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: other systems have no renameat2")
def test_linux_exchanges_two_folders_in_one_step(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name / name).mkdir(parents=True)
    assert system.exchange(tmp_path / "one", tmp_path / "other")
    assert os.listdir(tmp_path / "one") == ["other"]
    assert os.listdir(tmp_path / "other") == ["one"]
    assert not system.exchange(tmp_path / "one", tmp_path / "missing")


def test_a_link_is_followed_and_stays(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "link.txt").symlink_to(tmp_path / "far" / "file.txt")
    (tmp_path / "link").symlink_to(tmp_path / "far" / "folder")
    for text in ("old", "new"):
        write(tmp_path / "link.txt", text)
        fill(tmp_path / "link", text)
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "far" / "file.txt").read_text() == (tmp_path / "far" / "folder" / "a.txt").read_text() == "new"


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    write(pipe, "through")
    reader.join(10)
    assert got == [b"through"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, which only Linux has")
def test_a_full_disk_is_said_in_words() -> None:
    with pytest.raises(UserError, match=r"the disk is full: writing /dev/full failed .* free some room"):
        write(Path("/dev/full"))
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)


def test_a_place_that_cannot_be_written_is_refused_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    (tmp_path / "folder").mkdir()
    for wrong in (tmp_path / "file" / "below", tmp_path / "file" / "far" / "below", tmp_path / ("x" * 300)):
        for make in (write, fill):
            with pytest.raises(UserError, match=r"cannot write .*; choose another place"):
                make(wrong)
    with pytest.raises(UserError, match="cannot write"):
        write(tmp_path / "folder")
    assert (tmp_path / "file").read_text() == "kept"
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]


def test_a_file_over_the_limit_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    code = """
import resource, sys
from octavo.io.files import whole_file, whole_folder
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
for place in (whole_file, whole_folder):
    try:
        with place(sys.argv[1] + "/" + place.__name__) as made:
            made.write(b"x" * 5000) if place is whole_file else (made / "a").write_bytes(b"x" * 5000)
    except OSError as error:
        print(error)
"""
    names = ("whole_file", "whole_folder")
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [f"[Errno 27] File too large: '{tmp_path / name}'" for name in names]
    assert os.listdir(tmp_path) == []


def test_permissions_are_those_of_any_new_file(tmp_path: Path) -> None:
    write(tmp_path / "file")
    fill(tmp_path / "folder")
    (tmp_path / "plain").touch()
    (tmp_path / "plain folder").mkdir()
    assert (tmp_path / "file").stat().st_mode == (tmp_path / "plain").stat().st_mode
    assert (tmp_path / "folder").stat().st_mode == (tmp_path / "plain folder").stat().st_mode


def old_part(path: Path) -> Path:
    path.mkdir() if path.name.endswith("d.part") else path.touch()
    os.utime(path, (time.time() - 2 * files.STALE,) * 2)
    return path


def test_what_a_killed_process_left_is_deleted_at_the_next_write(tmp_path: Path) -> None:
    for name in (".run.d.part", ".run.f.part"):
        old_part(tmp_path / name)
    others = [old_part(tmp_path / name) for name in (".other.d.part", "run.d.part", ".run.d.old")]
    fill(tmp_path / "run")
    assert sorted(os.listdir(tmp_path)) == sorted(["run", *(other.name for other in others)])


def test_what_a_living_process_writes_is_left_alone(tmp_path: Path) -> None:
    young = tmp_path / ".run.young.part"
    young.mkdir()
    locked = old_part(tmp_path / ".run.locked-d.part")
    handle = os.open(locked, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    fill(tmp_path / "run")
    assert young.is_dir()
    assert locked.is_dir()
    os.close(handle)
    fill(tmp_path / "run")
    assert not locked.exists()


def test_a_folder_being_written_is_locked_against_the_sweep(tmp_path: Path) -> None:
    with whole_folder(tmp_path / "run") as work, whole_file(tmp_path / "file") as file:
        file.write(b"x")
        for part in (work, next(tmp_path.glob(".file.*"))):
            os.utime(part, (0, 0))
        fill(tmp_path / "run", "of another process")
        write(tmp_path / "file")
        (work / "a.txt").write_text("ours")
    assert (tmp_path / "run" / "a.txt").read_text() == "ours"
    assert (tmp_path / "file").read_text() == "x"


def test_a_kill_leaves_only_hidden_parts(tmp_path: Path) -> None:
    code = """
import os, signal, sys
from octavo.io.files import whole_file, whole_folder
with whole_folder(sys.argv[1] + "/folder") as work, whole_file(sys.argv[1] + "/file") as file:
    file.write(b"half")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    write(tmp_path / "file", "old")
    done = subprocess.run([sys.executable, "-c", code, tmp_path], timeout=60)
    assert done.returncode == -signal.SIGKILL
    hidden = [name for name in os.listdir(tmp_path) if name.startswith(".") and name.endswith(".part")]
    assert len(hidden) == 2
    assert {*os.listdir(tmp_path)} == {"file", *hidden}
    assert (tmp_path / "file").read_text() == "old"
