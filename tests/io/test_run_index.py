"""The index of a folder's runs says what a walk over the folder says, whatever happened in between, and reads only what
changed."""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from octavo.io import run_index
from octavo.io.run_folder import CONFIG, STATE, TENSORS, find_runs
from octavo.io.run_index import RunIndex, Version

LONG_AGO = 1_600_000_000
AT_FDCWD, RENAME_EXCHANGE = -100, 2


def make_run(path: Path, text: str = "{}") -> Path:
    (path / STATE).mkdir(parents=True)
    (path / CONFIG).write_text(text)
    (path / TENSORS).write_bytes(b"tensors")
    return path


def make_folder(path: Path) -> Path:
    path.mkdir()
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make_run(tmp_path / "runs" / "gru")
    make_run(tmp_path / "runs" / "kn")
    make_run(tmp_path / "runs" / "demo" / "kn")
    return tmp_path / "runs"


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes show at once, as they do two seconds later."""
    monkeypatch.setattr(run_index, "SETTLED_NS", -(1 << 62))


def names(index: RunIndex) -> list[str]:
    return [run.name for run in index.runs()]


def exchange(first: Path, second: Path) -> None:
    """Exchange two folders at one stroke, where the system can; else one after the other."""
    if sys.platform.startswith("linux"):
        paths = (os.fsencode(first), os.fsencode(second))
        if ctypes.CDLL(None).renameat2(AT_FDCWD, paths[0], AT_FDCWD, paths[1], RENAME_EXCHANGE) == 0:
            return
    spare = first.with_name("spare")
    for source, target in ((first, spare), (second, first), (spare, second)):
        source.rename(target)


CHANGES: dict[str, Callable[[Path], object]] = {
    "nothing": lambda root: None,
    "a new run": lambda root: make_run(root / "new"),
    "a new run one below": lambda root: make_run(root / "demo" / "new"),
    "a new folder of runs": lambda root: make_run(root / "other" / "one"),
    "a run vanished": lambda root: shutil.rmtree(root / "gru"),
    "a run one below vanished": lambda root: shutil.rmtree(root / "demo" / "kn"),
    "a record vanished": lambda root: (root / "gru" / CONFIG).unlink(),
    "a run was renamed": lambda root: (root / "gru").rename(root / "renamed"),
    "a run was hidden": lambda root: (root / "gru").rename(root / ".gru"),
    "a folder of runs was renamed": lambda root: (root / "demo").rename(root / "other"),
    "runs were exchanged": lambda root: exchange(root / "gru", root / "demo"),
    "a run in a run": lambda root: make_run(root / "gru" / "inner"),
    "the folder became a run": lambda root: (root / CONFIG).write_text("{}"),
    "a link to a run": lambda root: (root / "link").symlink_to(root / "gru"),
    "a record that is a link": lambda root: os.symlink(root / "gru" / CONFIG, make_folder(root / "linked") / CONFIG),
}


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("what", CHANGES)
def test_an_index_that_saw_a_change_is_like_one_that_begins_after_it(root: Path, what: str) -> None:
    index = RunIndex(root)
    index.runs()
    CHANGES[what](root)
    walked = [path.relative_to(root).as_posix() for path in find_runs(root)]
    expected = [root.name] if what == "the folder became a run" else walked
    assert names(index) == names(RunIndex(root)) == expected
    for name in {*walked, "gru", "demo/kn", "renamed", ".gru", "demo", "gru/inner", root.name}:
        assert (index.find(name) is not None) == (name in expected), name


@pytest.mark.usefixtures("settled")
def test_only_what_changed_has_a_new_version(root: Path) -> None:
    index = RunIndex(root)
    before = {run.name: run for run in index.runs()}
    changes: list[Callable[[], object]] = [
        lambda: (root / "gru" / CONFIG).write_text('{"in": "place"}'),
        lambda: (root / "gru" / TENSORS).write_bytes(b"other tensors"),
        lambda: (root / "gru" / "report.html").write_text("a page"),
        lambda: (root / "gru" / STATE / "checkpoint").write_text("a state"),
        lambda: os.replace(make_run(root.parent / "other") / CONFIG, root / "gru" / CONFIG),
        lambda: os.utime(root / "gru" / CONFIG, (LONG_AGO, LONG_AGO)),
    ]
    for change in changes:
        change()
        after = {run.name: run for run in index.runs()}
        assert after["gru"].version != before["gru"].version
        assert after["kn"] is before["kn"]
        assert after["demo/kn"] is before["demo/kn"]
        before = after


@pytest.mark.usefixtures("settled")
def test_folders_that_did_not_change_are_not_listed_again(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index, scandir = RunIndex(root), os.scandir
    listed: list[str] = []

    def scan(path: str) -> Any:
        listed.append(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", scan)
    index.runs()
    assert len(listed) == len(set(listed)) > 3
    listed.clear()
    index.runs()
    assert listed == []
    make_run(root / "demo" / "new")
    index.runs()
    assert sorted(listed) == [str(root / "demo"), str(root / "demo" / "new"), str(root / "demo" / "new" / STATE)]
    listed.clear()
    assert index.find("gru") == root / "gru"
    assert listed == []  # one run is found without looking at the others


def test_what_changed_just_now_is_checked_again(root: Path) -> None:
    index = RunIndex(root)
    assert [run.version for run in index.runs()] == [None] * 3  # a second change could leave the same times
    config = root / "gru" / CONFIG
    for text in ("{1}", "{2}"):
        config.write_text(text)
        assert {run.name: run.version for run in index.runs()}["gru"] is None


def test_a_folder_whose_times_never_change_is_listed_again_after_a_while(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    same = Version(1, 1, LONG_AGO, LONG_AGO, 1)
    monkeypatch.setattr(run_index, "version_of", lambda path: same if os.path.exists(path) else None)
    index = RunIndex(root)
    index.runs()
    make_run(root / "new")
    assert "new" not in names(index)
    later = time.time_ns() + run_index.MAX_AGE_NS
    monkeypatch.setattr(time, "time_ns", lambda: later)
    assert "new" in names(index)


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege there")
def test_links_that_lead_out_are_no_runs_even_where_they_are_turned_later(root: Path, tmp_path: Path) -> None:
    outside, link = make_run(tmp_path / "outside"), root / "link"
    index = RunIndex(root)
    link.symlink_to(root / "gru")
    assert "link" in names(index)
    assert index.find("link") == link
    link.unlink()
    link.symlink_to(outside)
    (root / "loop").symlink_to(root / "loop")
    (root / "part").mkdir()
    (root / "part" / CONFIG).symlink_to(outside / CONFIG)
    assert names(index) == ["demo/kn", "gru", "kn"]
    assert [index.find(name) for name in ("link", "loop", "part")] == [None] * 3


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../runs/gru", "gru/..", "gru/", "/etc", "gru\0", ".gru", "demo", "demo//kn",
             "demo/kn/state", "x" * 5000, "\ud800"],
)  # fmt: skip
def test_a_name_that_is_no_run_is_not_found(root: Path, name: str) -> None:
    (root / ".gru").mkdir()
    (root / ".gru" / CONFIG).write_text("{}")
    assert RunIndex(root).find(name) is None


def test_a_folder_that_vanished_holds_nothing(root: Path) -> None:
    index = RunIndex(root)
    assert len(index.runs()) == 3
    shutil.rmtree(root)
    assert index.runs() == []
    assert index.find("gru") is None
