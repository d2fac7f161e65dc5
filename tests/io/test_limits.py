"""What is read of files that were not made here is bounded: unpacked bytes, lines, memory; one flag raises it."""

from __future__ import annotations

import bz2
import gzip
import lzma
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import zstandard

from octavo.cli import main
from octavo.errors import UserError
from octavo.io import memory
from octavo.io.compressed import read_whole, stream
from octavo.io.json_text import parse_json, read_json_file
from octavo.io.limits import ReadLimits, lines_in, parse_size, read_limits, with_max_bytes
from octavo.text.corpus import open_text

MEGABYTE = 1 << 20
PACKERS = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".zst": zstandard.compress}
SMALL = ReadLimits(unpacked=8 * MEGABYTE, unpacked_anyway=MEGABYTE, line=1000)


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The usual rules with smaller sizes."""
    monkeypatch.setattr("octavo.io.compressed.read_limits", lambda: SMALL)
    monkeypatch.setattr("octavo.text.loading.read_limits", lambda: SMALL)
    monkeypatch.setattr("octavo.text.reading.read_limits", lambda: SMALL)
    return


@pytest.mark.parametrize("ending", PACKERS)
def test_a_small_file_that_unpacks_to_very_much_is_refused_early(
    ending: str, tmp_path: Path, small_limits: None
) -> None:
    bomb = tmp_path / f"bomb.txt{ending}"
    bomb.write_bytes(PACKERS[ending](bytes(16 * MEGABYTE)))
    taken: list[bytes] = []
    with pytest.raises(UserError, match=r"unpacks to more than .* --max-bytes"):
        taken.extend(stream(bomb))
    assert sum(map(len, taken)) <= 8 * MEGABYTE


@pytest.mark.parametrize("ending", PACKERS)
def test_repetitive_but_real_text_is_read(ending: str, tmp_path: Path, small_limits: None) -> None:
    data = b"".join(b"%d: the same line over and over, with a number\n" % n for n in range(30_000))
    path = tmp_path / f"log.txt{ending}"
    path.write_bytes(PACKERS[ending](data))
    assert len(data) > max(SMALL.unpacked_anyway, 5 * path.stat().st_size)
    assert b"".join(stream(path)) == data


def test_several_files_together_may_not_unpack_to_more_than_the_limit(tmp_path: Path, small_limits: None) -> None:
    noise = np.random.default_rng(0).integers(97, 123, 5 * MEGABYTE, np.uint8).tobytes()
    for name in "ab":
        (tmp_path / f"{name}.txt.gz").write_bytes(gzip.compress(noise, 1))
    assert open_text(tmp_path / "a.txt.gz").size == len(noise)
    with pytest.raises(UserError, match="the text unpacks to more than"):
        open_text(tmp_path)


def test_unpacking_leaves_room_in_the_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"some text\n" * 100))
    free = 900
    monkeypatch.setattr(shutil, "disk_usage", lambda place: SimpleNamespace(total=10**12, free=free))
    with pytest.raises(UserError, match="set TMPDIR"):
        open_text(tmp_path / "a.txt.gz")
    free = 1100  # little is left, and more than a small text takes
    assert open_text(tmp_path / "a.txt.gz").size == 1000


def test_a_line_that_is_too_long_is_refused_before_it_is_in_memory() -> None:
    endless = (b"x" * 1000 for _ in iter(int, 1))
    with with_max_bytes("10kB"), pytest.raises(UserError, match="line 2 of book has more than 10,000 bytes"):
        list(lines_in((block for part in ([b"first\n"], endless) for block in part), "book"))


def test_lines_are_counted_as_wc_does() -> None:
    assert list(lines_in([b"a\n", b"", b"\nb", b"c\n\n"], "")) == [b"a", b"", b"bc", b""]
    assert list(lines_in([b"a\nb"], "")) == [b"a", b"b"]
    assert not list(lines_in([], ""))


def test_one_size_takes_the_place_of_all_limits_and_is_inherited() -> None:
    assert read_limits() == ReadLimits()
    with with_max_bytes("2MiB"):
        assert read_limits() == ReadLimits(2 * MEGABYTE, None, 2 * MEGABYTE, 2 * MEGABYTE)
        asked = "from octavo.io.limits import read_limits; print(read_limits().line)"
        assert int(subprocess.check_output([sys.executable, "-c", asked])) == 2 * MEGABYTE
    assert read_limits() == ReadLimits()


@pytest.mark.parametrize(("words", "size"), [("1000", 1000), ("1.5 kB", 1500), ("40GB", 40 * 10**9), ("1KiB", 1024)])
def test_sizes_are_read_as_people_write_them(words: str, size: int) -> None:
    assert parse_size(words) == size


@pytest.mark.parametrize("words", ["", "0", "-1", "much", "1e9", "9" * 30, "1 XB", "nan"])
def test_what_is_no_size_is_refused(words: str) -> None:
    with pytest.raises(UserError, match="a size is a number of bytes"):
        parse_size(words)


def test_every_verb_takes_the_flag(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bomb = tmp_path / "zeros.txt.bz2"
    bomb.write_bytes(bz2.compress(b"a" * 300_000))
    words = ["train", "ngram", str(bomb), "--order", "2", "--tokenizer", "byte", "--out", str(tmp_path / "run")]
    assert main([*words, "--max-bytes", "100kB"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("octavo: ")
    assert said.count("\n") == 1
    assert said.endswith("--max-bytes 1GB\n")
    assert main([*words, "--max-bytes=1MB", "--quiet"]) == 0
    assert main([*words, "--max-bytes"]) == main([*words, "--max-bytes", "many"]) == 2


def test_a_file_that_memory_has_no_room_for_is_refused_before_it_is_read(tmp_path: Path) -> None:
    large = tmp_path / "large.tsv"
    with open(large, "wb") as file:
        file.truncate(1 << 40)  # a hole: it takes no room
    with pytest.raises(UserError, match=r"large\.tsv whole takes about .* bytes of memory"):
        read_whole(large)


@pytest.mark.skipif(sys.platform != "linux", reason="limits on the address space are Linux's")
def test_a_limit_on_the_address_space_counts_as_memory() -> None:
    asked = (
        "import resource; from octavo.io.memory import available; "
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 31, 1 << 31)); print(available())"
    )
    assert 0 < int(subprocess.check_output([sys.executable, "-c", asked])) < 1 << 31 <= memory.available()


@pytest.mark.parametrize(
    "data",
    [b"[" * 1_000_000, b"{" * 10, b"NaN", b"[1e999]", b"9" * 10_000_000, b"\xff", b"\x00", b"", b'{"a": Infinity}'],
)
def test_json_that_nothing_can_compute_with_is_refused_in_words(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_json(data)
    (tmp_path / "a.json").write_bytes(data)
    with pytest.raises(UserError, match=r"a\.json is missing or damaged: .*; mend it"):
        read_json_file(tmp_path / "a.json", "mend it")


def test_json_longer_than_its_reader_allows_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b'"' + b"a" * 100 + b'"')
    with pytest.raises(UserError, match="more than 50 bytes"):
        read_json_file(tmp_path / "a.json", "mend it", 50)
