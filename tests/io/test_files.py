"""Files and folders are whole or not there, whatever goes wrong."""

from __future__ import annotations

import fcntl
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from octavo.errors import UserError
from octavo.io import partial_files, system
from octavo.io.files import filled_folder, whole_file, whole_folder
from octavo.io.partial_files import TemporaryFolder, sweep


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


def leave_part(path: Path) -> Path:
    """What a killed process left: nobody holds it, however young it is."""
    if path.name.startswith(".run.dir"):
        path.mkdir()
        (path / "a.txt").touch()
    else:
        path.touch()
    return path


def test_what_a_killed_process_left_is_deleted_at_the_next_write_whatever_its_age(tmp_path: Path) -> None:
    for name in (".run.dirabcd1.part", ".run.fileabc1.part", ".run.dirabcd2.old"):
        leave_part(tmp_path / name)
    (tmp_path / "run").mkdir()
    names = (".other.dirabcd1.part", "run.dirabcd1.part", ".run.backup.part", ".run.BACKUP01.part", ".run.abcdefgh")
    others = [leave_part(tmp_path / name) for name in names]
    fill(tmp_path / "run")
    assert sorted(os.listdir(tmp_path)) == sorted(["run", *(other.name for other in others)])


def test_what_a_living_process_writes_is_left_alone(tmp_path: Path) -> None:
    held = [leave_part(tmp_path / name) for name in (".run.dirabcd1.part", ".run.fileabc1.part")]
    handles = [os.open(part, os.O_RDONLY) for part in held]
    for handle in handles:
        fcntl.flock(handle, fcntl.LOCK_SH)
    fill(tmp_path / "run")
    assert all(part.exists() for part in held)
    for handle in handles:
        os.close(handle)
    fill(tmp_path / "run")
    assert os.listdir(tmp_path) == ["run"]


def test_a_part_that_is_made_but_not_locked_yet_is_left_alone(tmp_path: Path) -> None:
    part = leave_part(tmp_path / ".run.dirabcd1.part")
    handle = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_SH)  # which every process holds from before the name is there until it is locked
    sweep(tmp_path / "run")
    assert part.is_dir()
    os.close(handle)
    sweep(tmp_path / "run")
    assert not part.exists()


def test_a_folder_that_somebody_else_has_locked_is_written_to_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partial_files, "FOLDER_TRIES", 2)
    handle = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)  # as `flock FOLDER octavo train ...` does
    write(tmp_path / "file")
    fill(tmp_path / "run")
    os.close(handle)
    assert sorted(os.listdir(tmp_path)) == ["file", "run"]


def test_a_pipe_with_the_name_of_a_part_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".run.pipeabc1.part")
    sweep(tmp_path / "run")
    assert not os.listdir(tmp_path)


def test_where_there_are_no_locks_only_the_holder_of_the_place_sweeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "fcntl", None)
    part = leave_part(tmp_path / ".run.dirabcd1.part")
    sweep(tmp_path / "run")
    assert part.is_dir()
    sweep(tmp_path / "run", held=True)
    assert not part.exists()


def test_a_folder_being_written_is_locked_against_the_sweep(tmp_path: Path) -> None:
    with whole_folder(tmp_path / "run") as work, whole_file(tmp_path / "file") as file:
        file.write(b"x")
        fill(tmp_path / "run", "of another process")
        write(tmp_path / "file")
        write(work / "a.txt", "ours")
    assert (tmp_path / "run" / "a.txt").read_text() == "ours"
    assert (tmp_path / "file").read_text() == "x"
    assert sorted(os.listdir(tmp_path)) == ["file", "run"]


def test_a_folder_that_appears_before_the_rename_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path / "run", "of another writer")
    monkeypatch.setattr(Path, "exists", lambda path, **_: False)  # what a writer saw a moment before
    fill(tmp_path / "run", "ours")
    monkeypatch.undo()
    assert (tmp_path / "run" / "a.txt").read_text() == "ours"
    assert os.listdir(tmp_path) == ["run"]


def test_many_writers_of_one_name_never_sweep_each_others_parts(tmp_path: Path) -> None:
    def work(number: int) -> None:
        for turn in range(40):
            write(tmp_path / "file", f"{number} {turn}" * 99)
            fill(tmp_path / "run", f"{number} {turn}")

    with ThreadPoolExecutor(4) as pool:  # a lock belongs to an open file, so threads meet as processes do
        for done in [pool.submit(work, number) for number in range(4)]:
            done.result()
    assert sorted(os.listdir(tmp_path)) == ["file", "run"]


def test_a_kill_between_two_renames_gives_the_old_folder_back(tmp_path: Path) -> None:
    fill(tmp_path / ".run.abcdefgh.old", "old")
    fill(tmp_path / ".run.abcdefgh.part", "new")
    sweep(tmp_path / "run")
    assert (tmp_path / "run" / "a.txt").read_text() == "old"
    assert os.listdir(tmp_path) == ["run"]


def test_an_old_folder_comes_back_where_the_new_one_cannot_be_renamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "run", "old")
    rename = os.rename

    def refuse(source: Path, target: Path) -> None:
        if str(source).endswith(".part"):
            raise PermissionError(13, "no")
        rename(source, target)

    monkeypatch.setattr(system, "exchange", lambda one, other: False)
    monkeypatch.setattr(os, "rename", refuse)
    with pytest.raises(UserError, match="cannot write"):
        fill(tmp_path / "run", "new")
    assert (tmp_path / "run" / "a.txt").read_text() == "old"
    assert os.listdir(tmp_path) == ["run"]


def test_a_temporary_folder_goes_with_its_object_and_one_of_a_killed_process_with_the_next(tmp_path: Path) -> None:
    (tmp_path / ".octavo.abcdefgh.part").mkdir()
    one, other = TemporaryFolder(tmp_path), TemporaryFolder(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([one.path, other.path])
    for folder in (one, other):
        folder.cleanup()
    assert os.listdir(tmp_path) == []


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


def test_a_new_folder_of_files_appears_with_all_of_them(tmp_path: Path) -> None:
    for held in ((), ("one",)):  # also in place of one that holds nothing else
        for name in held:
            write(tmp_path / "out" / name, "old")
        with pytest.raises(UserError), filled_folder(tmp_path / "out", ("one", "two")) as place:
            shutil.copy(place / "missing", place / "one")
        assert [path.name for path in (tmp_path / "out").glob("*")] == [*held]
    with filled_folder(tmp_path / "out", ("one", "two")) as place:
        write(place / "two", "new")
    assert os.listdir(tmp_path / "out") == ["two"]


def test_files_of_others_in_a_folder_that_is_filled_stay(tmp_path: Path) -> None:
    write(tmp_path / "mine", "old")
    with filled_folder(tmp_path, ("one",)) as place:
        write(place / "one", "new")
    assert sorted(os.listdir(tmp_path)) == ["mine", "one"]


def test_more_files_may_be_open_where_the_system_lets_them_and_never_fewer() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        system.allow_open_files(300)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (300, hard)
        system.allow_open_files(200)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (300, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
