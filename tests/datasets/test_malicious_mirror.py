"""A mirror that lies, drips, loops or sends bombs: a line within a bounded time, nothing written, no process left."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import json
import signal
import sqlite3
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from malicious_mirror import TEXT, MaliciousMirror, attacks
from octavo.datasets import bounded_process
from octavo.datasets.bounded_process import LimitError, run_bounded
from octavo.datasets.download import download, temporary_folder
from octavo.datasets.unpack import convert, make_file, read_members
from octavo.errors import UserError

SECONDS = 3.0  # after which a download is given up here
SLOWEST_SECONDS = 60.0  # that any of them may take on a busy machine, where it is given up
PACKAGE_ATTACKS = ("wrong-bytes", "zip-bomb", "endless", "slow", "many-links", "traversal")  # each starts pip
TRIED = [(attack, way) for attack, way in attacks() if way == "url" or attack in PACKAGE_ATTACKS]
linux = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc to find the processes of a download")

Answer = tuple[str, float, list[str]]  # what was said, in how many seconds, and what was left behind


@pytest.fixture(scope="module")
def mirror() -> Iterator[MaliciousMirror]:
    with MaliciousMirror() as found:
        yield found


@pytest.fixture(scope="module")
def answers(mirror: MaliciousMirror, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Answer]:
    """What came of every attack, all of which are tried at the same time."""
    place = tmp_path_factory.mktemp("cache")

    def attacked(pair: tuple[str, str]) -> Answer:
        source, began = mirror.source(*pair), time.monotonic()
        folder = place / source.name / "octavo" / source.name
        try:
            download(source, folder)
            said = "nothing"
        except UserError as error:
            said = str(error)
        left = [str(path.relative_to(folder.parent)) for path in folder.parent.rglob("*")]
        return said, time.monotonic() - began, left

    with pytest.MonkeyPatch.context() as patch:
        for name, value in mirror.environment.items():
            patch.setenv(name, value)
        patch.setattr(bounded_process, "ANSWER_SECONDS", SECONDS)
        with ThreadPoolExecutor(4) as pool:
            return dict(zip(TRIED, pool.map(attacked, TRIED), strict=True))


@pytest.mark.parametrize(("attack", "way"), TRIED)
def test_every_attack_ends_soon_with_one_line_and_leaves_nothing(
    attack: str, way: str, answers: dict[tuple[str, str], Answer]
) -> None:
    said, seconds, left = answers[attack, way]
    assert said.startswith(("cannot get ", "what arrived as "))
    assert "\n" not in said
    assert seconds < SLOWEST_SECONDS
    assert left == []


def test_the_same_downloads_work_from_an_honest_mirror(
    mirror: MaliciousMirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in mirror.environment.items():
        monkeypatch.setenv(name, value)
    for way in ("package", "url"):
        download(mirror.source("honest", way), tmp_path / way)
        assert [path.name for path in tmp_path.iterdir()] == [way]
        assert (tmp_path / way / "a.txt").read_bytes() == TEXT
        (tmp_path / way / "a.txt").unlink()
        (tmp_path / way).rmdir()


def test_the_command_says_it_in_one_line_and_exits_with_2(mirror: MaliciousMirror, tmp_path: Path) -> None:
    words, environment = mirror.command("wrong-bytes", "url", tmp_path)
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=SLOWEST_SECONDS)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("octavo: what arrived as wrong-bytes-url/a.txt is not the file it should be")
    assert done.stderr.count("\n") == 1


# ---------------------------------------------------------------------- killed


def processes_in(folder: Path) -> list[int]:
    """The processes that were started with a path below the folder among their words."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str(folder).encode() in (process / "cmdline").read_bytes():
                found.append(int(process.name))
        except OSError:  # it has ended meanwhile
            continue
    return found


def wait_for(is_so: bool, folder: Path) -> None:
    until = time.monotonic() + SLOWEST_SECONDS
    while bool(processes_in(folder)) != is_so:
        assert time.monotonic() < until, "it took too long"
        time.sleep(0.02)


@linux
@pytest.mark.parametrize(
    ("way", "number"), [("package", signal.SIGTERM), ("url", signal.SIGINT), ("package", signal.SIGKILL)]
)
def test_a_killed_download_leaves_no_process_and_what_it_wrote_is_swept(
    way: str, number: signal.Signals, mirror: MaliciousMirror, tmp_path: Path
) -> None:
    words, environment = mirror.command("slow", way, tmp_path, seconds=500.0)
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        wait_for(True, tmp_path)
        process.send_signal(number)
        _, said = process.communicate(timeout=SLOWEST_SECONDS)
    wait_for(False, tmp_path)
    left = [path.name for path in (tmp_path / "octavo").iterdir()]
    if number == signal.SIGKILL:
        assert len(left) == 1
        with temporary_folder(tmp_path / "octavo") as scratch:
            assert [path.name for path in (tmp_path / "octavo").iterdir()] == [scratch.name]
    else:
        assert (process.returncode, left) == (128 + number, [])
        assert said.startswith("octavo: ")
        assert said.count("\n") == 1


def test_the_folder_of_a_living_download_is_not_swept(tmp_path: Path) -> None:
    with temporary_folder(tmp_path) as first, temporary_folder(tmp_path) as second:
        assert first != second
        assert first.is_dir()
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------------- bombs, had they the right hash


def test_what_unpacks_to_more_than_it_should_is_refused_before_it_is_all_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("octavo.datasets.unpack.MAX_BYTES", 1000)
    for how, bomb in (("gunzip", gzip.compress(bytes(2000))), ("wikipedia", bz2.compress(bytes(2000)))):
        with pytest.raises(ValueError, match="longer than 1,000 bytes"):
            convert(how, [bomb])
    with zipfile.ZipFile(tmp_path / "a.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr("a.txt", bytes(2000))
    with pytest.raises(ValueError, match=r"a.txt is longer than 1,000 bytes"):
        read_members(tmp_path / "a.whl", ["a.txt"])
    with pytest.raises(ValueError, match="has 35 bytes, more than the 34 that were expected"):
        convert("copy", [bytes(35)], 34)


def test_entities_of_xml_are_not_expanded() -> None:
    bomb = '<!DOCTYPE a [<!ENTITY b "bbbbbbbbbb"><!ENTITY c "&b;&b;&b;">]><a>&c;</a>'
    for encoding in ("utf-8", "utf-16"):
        with pytest.raises(ValueError, match="document type"):
            convert("wikipedia", [bz2.compress(bomb.encode(encoding))])


def test_a_view_that_never_ends_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("octavo.datasets.unpack.MAX_DATABASE_STEPS", 100)
    connection = sqlite3.connect(tmp_path / "a.sqlite")
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i, i, i, 'a' FROM n"
    connection.execute(f"CREATE VIEW verses (book_id, chapter_number, verse_number, text) AS {endless}")
    connection.commit()
    connection.close()
    with pytest.raises(ValueError, match="interrupted"):
        convert("verses", [(tmp_path / "a.sqlite").read_bytes()])


def unpacking(arrived: Path, how: str) -> str:
    """The words that let a process make something of a file."""
    out = str(arrived.with_name("made"))
    return json.dumps({"archive": str(arrived), "members": [], "how": how, "most": 100, "out": out})


def test_markup_that_takes_for_ever_is_given_up_in_time(tmp_path: Path) -> None:
    markup = "&lt;!--" * 400_000  # comments without an end: each is searched for one to the end of the text
    page = f"<page><title>A</title><ns>0</ns><revision><text>{markup}</text></revision></page>"
    dump = f'<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.10/">{page}</mediawiki>'
    (tmp_path / "dump").write_bytes(bz2.compress(dump.encode()))
    how = unpacking(tmp_path / "dump", "wikipedia")
    with pytest.raises(LimitError, match="it took longer than 1 s"):
        run_bounded(["unpack", how], tmp_path, 10_000, 1.0)


def test_a_child_that_takes_more_memory_than_it_may_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_process, "MEMORY_BYTES", 1 << 27)
    (tmp_path / "packed").write_bytes(gzip.compress(bytes(1 << 27), 1))
    how = unpacking(tmp_path / "packed", "gunzip")
    done = run_bounded(["unpack", how], tmp_path, 1 << 20, SLOWEST_SECONDS)
    assert (done.code, done.output) == (3, "it takes more memory than it should\n")


def test_a_file_of_the_known_hash_is_made_in_a_process_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "packed").write_bytes(gzip.compress(TEXT))
    out = tmp_path / "made"
    make_file(str(tmp_path / "packed"), [], "gunzip", len(TEXT), str(out))
    assert hashlib.sha256(out.read_bytes()).digest() == hashlib.sha256(TEXT).digest()
