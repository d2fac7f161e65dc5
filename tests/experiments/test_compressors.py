"""General compressors: each is given the training text honestly, and is there only where it can be used."""

from __future__ import annotations

import importlib
import io
import json
import math
import os
import random
import shutil
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import pytest

import octavo
from html_pages import sentences
from octavo.errors import UserError
from octavo.experiments.cell import Cell
from octavo.experiments.compare import CompareConfig, Comparison, programs, read_comparison
from octavo.experiments.compare import compressors as all_compressors
from octavo.experiments.compare.compressors import COMPRESSORS, best_way, describe_ways, why_missing
from octavo.experiments.compare.config import candidates, choose
from octavo.experiments.compare.forecast import expected_seconds
from octavo.experiments.compare.programs import archive_size, zpaq_words
from octavo.experiments.progress import Progress
from octavo.text import open_corpus

PACKAGES = {"brotli": "brotli", "ppmd": "pyppmd"}
STAND_IN = f"""#!{sys.executable}
import sys, zlib
words = sys.argv[1:]
open("{{log}}", "a").write(repr(words) + "\\n")
data = open("text", "rb").read()
{{body}}
"""
DEFLATE = 'open("{archive}", "wb").write(b"HEADER" + zlib.compress(data, 9))'
needs_packages = pytest.mark.skipif(
    any(importlib.util.find_spec(package) is None for package in PACKAGES.values()),
    reason="needs brotli and pyppmd: pip install 'octavo[compressors]'",
)


@pytest.fixture
def texts() -> tuple[bytes, bytes]:
    text = sentences(400).encode()
    return text[: -len(text) // 10], text[-len(text) // 10 :]


def stand_in(folder: Path, name: str, body: str) -> Path:
    """A program of that name, written by the test, in a folder for the path; it notes how it was called."""
    path, log = folder / name, folder / f"{name}.log"
    path.write_text(STAND_IN.format(log=log, body=body), encoding="utf-8")
    path.chmod(0o755)
    return log


@pytest.fixture
def bin_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is the whole path."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def quiet(text: Path, out: Path, models: str) -> Comparison:
    return octavo.compare(text, models=models, out=out, prove=False, progress=Progress(io.StringIO()))


# ---------------------------------------------------------------------- packages


@needs_packages
@pytest.mark.parametrize("name", PACKAGES)
def test_the_number_is_the_size_of_both_texts_minus_the_size_of_the_first(
    name: str, texts: tuple[bytes, bytes]
) -> None:
    known, data = texts
    module: Any = importlib.import_module(PACKAGES[name])

    def size(text: bytes) -> int:
        if name == "brotli":
            return len(module.compress(text, mode=module.MODE_TEXT, quality=11, lgwin=24))
        encoder = module.Ppmd7Encoder(6, 1 << 24)
        return len(encoder.encode(text) + encoder.flush(endmark=False))

    assert best_way(name, known, data)(data) == size(known + data) - size(known)


@needs_packages
@pytest.mark.parametrize("name", PACKAGES)
def test_a_text_after_itself_costs_little_and_one_after_nothing_its_own_size(
    name: str, texts: tuple[bytes, bytes]
) -> None:
    _, data = texts
    alone = best_way(name, b"", data)(data)
    assert best_way(name, data, data)(data) < alone / 2
    assert best_way(name, data, b"")(b"") == best_way(name, b"", b"")(b"") > 0  # an empty text has a stream, too


@needs_packages
@pytest.mark.parametrize("kind", ["text", "random bytes", "one byte", "pairs"])
def test_ppmd_has_so_much_memory_that_it_never_begins_anew(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that began anew would do so later with twice the memory, and so give another size."""
    draw, size = random.Random(1), 300_000
    data = {
        "text": lambda: (sentences(9000).encode())[:size], "random bytes": lambda: draw.randbytes(size),
        "one byte": lambda: bytes(size), "pairs": lambda: bytes(draw.choices(b"ab", k=size)),
    }[kind]()  # fmt: skip
    monkeypatch.setattr(all_compressors, "MIN_PPMD_BYTES", 0)
    usual = best_way("ppmd", data[:200_000], data[200_000:])(data[200_000:])
    monkeypatch.setattr(all_compressors, "PPMD_BYTES_PER_BYTE", 2 * all_compressors.PPMD_BYTES_PER_BYTE)
    assert best_way("ppmd", data[:200_000], data[200_000:])(data[200_000:]) == usual
    if kind == "random bytes":  # and with little memory it does begin anew, which this test would notice
        monkeypatch.setattr(all_compressors, "PPMD_BYTES_PER_BYTE", 4)
        assert best_way("ppmd", data[:200_000], data[200_000:])(data[200_000:]) != usual


@needs_packages
def test_what_ppmd_writes_gives_the_text_back(texts: tuple[bytes, bytes]) -> None:
    pyppmd: Any = importlib.import_module("pyppmd")
    text = b"".join(texts)
    encoder, decoder = pyppmd.Ppmd7Encoder(6, 1 << 24), pyppmd.Ppmd7Decoder(6, 1 << 24)
    archive = encoder.encode(text) + encoder.flush(endmark=False)
    assert len(archive) == best_way("ppmd", b"", text)(text)  # a raw stream: nothing in front of it or behind
    assert decoder.decode(archive, len(text)) == text


@needs_packages
@pytest.mark.data("shakespeare")
def test_ppmd_given_the_training_text_needs_what_7_zip_needs_on_tiny_shakespeare(data_root: Path) -> None:
    corpus = open_corpus("shakespeare")
    known, data = corpus.train.read(), corpus.valid.read()
    assert (len(known), len(data)) == (1_003_854, 111_540)
    bits = 8 * best_way("ppmd", known, data)(data) / len(data)
    assert bits == pytest.approx(2.029, abs=0.001)  # of the held-out text; 7-Zip's files differ by 2.046


# ---------------------------------------------------------------------- programs


def test_a_program_gets_the_same_command_for_both_sizes_and_its_archives_are_subtracted(
    bin_folder: Path, texts: tuple[bytes, bytes]
) -> None:
    known, data = texts
    for name, archive in (("zpaq", "archive.zpaq"), ("paq8px", "text.paq8px999")):
        log = stand_in(bin_folder, name, DEFLATE.format(archive=archive))
        found = best_way(name, known, data)(data)
        assert found == len(zlib.compress(known + data, 9)) - len(zlib.compress(known, 9))
        first, second = log.read_text().splitlines()
        assert first == second
    assert "-8" in second


def test_zpaq_gets_one_block_for_every_size_that_holds_both_texts() -> None:
    for size, block in ((0, 4), (1_115_394, 4), (11_000_000, 4), ((1 << 24) - 8192, 4), ((1 << 24) - 8191, 5)):
        words = zpaq_words(size)
        assert words[words.index("-method") + 1].startswith(f"s{block},0w2c0,1010,255i1c256ci1")
        assert size + 4096 <= (1 << 20 + block) - 4096  # zpaq's manual: a block is 4 KiB less, and reads are of 4 KiB


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('print("not enough memory: \\x1b[31m17 GB"); sys.exit(3)',
         "zpaq ended with exit code 3: not enough memory: ?[31m17 GB; leave it out of --models, or install another"),
        ("pass", "zpaq wrote no archive: it said nothing; "),
        ('open("archive.zpaq", "wb")', "zpaq wrote no archive"),
        ("import time; time.sleep(60)", "zpaq was ended: it took longer than 1 s; give less text"),
        ('open("archive.zpaq", "wb").write(bytes(1 << 27))', "zpaq ended with exit code 1: OSError: "),
    ],
)  # fmt: skip
def test_a_program_that_fails_is_a_failed_row_with_its_reason(
    body: str, said: str, bin_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "sleep" in body:
        monkeypatch.setattr(programs, "START_SECONDS", 0.9)
    stand_in(bin_folder, "zpaq", body)
    (tmp_path / "text.txt").write_text(sentences(40), encoding="utf-8")
    (tmp_path / "temp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temp"))
    found = quiet(tmp_path / "text.txt", tmp_path / "out", "bag,zpaq")
    assert said in str(found["zpaq"].error)
    assert found["bag"].error is None
    assert found.advice[-1] == "zpaq failed, so it is not judged."
    assert not found["zpaq"].adaptive  # it has no number
    assert list((tmp_path / "temp").iterdir()) == []  # nothing is left of it


def test_a_program_that_cannot_be_started_says_so(bin_folder: Path) -> None:
    path = bin_folder / "zpaq"
    path.write_bytes(b"\x00 no program")
    path.chmod(0o755)
    with pytest.raises(UserError, match=r"^zpaq ended with exit code 3: .*zpaq cannot be run: "):
        archive_size("zpaq", b"text", 4)
    path.unlink()
    with pytest.raises(UserError, match="needs the program zpaq, which is no longer on the path"):
        archive_size("zpaq", b"text", 4)


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: elsewhere a program is not ended with its parent")
def test_a_program_ends_when_the_process_that_started_it_is_killed(bin_folder: Path, tmp_path: Path) -> None:
    stand_in(bin_folder, "zpaq", f'import os, time; open("{tmp_path}/id", "w").write(str(os.getpid())); time.sleep(60)')
    code = "from octavo.experiments.compare.programs import archive_size; archive_size('zpaq', b'text', 4)"
    with subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "TMPDIR": str(tmp_path)}) as parent:
        until = time.monotonic() + 60
        while not (tmp_path / "id").is_file() or not (tmp_path / "id").read_text():
            assert parent.poll() is None
            assert time.monotonic() < until
            time.sleep(0.05)
        parent.kill()
    number = int((tmp_path / "id").read_text())
    while is_running(number):
        assert time.monotonic() < until
        time.sleep(0.05)


def is_running(number: int) -> bool:
    """Whether a process of that id is there and has not ended."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(shutil.which("zpaq") is None, reason="needs zpaq: apt install zpaq")
def test_zpaq_itself_learns_from_the_training_text_and_has_one_block_for_both(texts: tuple[bytes, bytes]) -> None:
    known, data = texts
    alone, after = (best_way("zpaq", before, data)(data) for before in (b"", known))
    assert 0 < after < alone
    assert after == archive_size("zpaq", known + data, 1) - archive_size(
        "zpaq", known, 1
    )  # no date or name changes a size


@pytest.mark.skipif(shutil.which("zpaq") is None, reason="needs zpaq: apt install zpaq")
@pytest.mark.data("shakespeare")
def test_zpaq_needs_on_tiny_shakespeare_what_its_level_5_needs_with_the_same_memory_for_both_sizes(
    data_root: Path,
) -> None:
    corpus = open_corpus("shakespeare")
    data = corpus.valid.read()
    bits = 8 * best_way("zpaq", corpus.train.read(), data)(data) / len(data)
    assert bits == pytest.approx(1.862, abs=0.001)


# ---------------------------------------------------------------------- where they are rows


def test_without_package_or_program_a_compressor_is_no_candidate_and_named_it_is_refused_with_the_remedy(
    bin_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name, *rest: None if name in PACKAGES.values() else find_spec(name, *rest)
    )
    names = [one.name for one in choose((), candidates()) if one.family == "compressor"]
    assert names == ["zlib", "bz2", "xz", "zstd"]
    assert [one.name for one in choose(("compressor",), candidates())] == names
    for name, package in PACKAGES.items():
        remedy = rf"{name} needs the package {package}, which is not installed; pip install 'octavo\[compressors\]'"
        with pytest.raises(UserError, match=remedy):
            CompareConfig(models=("kn3", name))
    for name in ("zpaq", "paq8px", "zpa*"):
        with pytest.raises(UserError, match=r"needs the program \w+, which is not on the path; install it, or leave"):
            CompareConfig(models=(name,))
    stand_in(bin_folder, "zpaq", "")
    assert why_missing("zpaq") == ""
    assert [one.name for one in choose((), candidates()) if one.family == "compressor"] == [*names, "zpaq"]


def test_every_compressor_is_a_marked_adaptive_row_with_its_reading_speed(bin_folder: Path, tmp_path: Path) -> None:
    stand_in(bin_folder, "zpaq", DEFLATE.format(archive="archive.zpaq"))
    (tmp_path / "text.txt").write_text(sentences(200), encoding="utf-8")
    quiet(tmp_path / "text.txt", tmp_path / "out", "bag,compressor")
    found = read_comparison(tmp_path / "out")
    there = [name for name in COMPRESSORS if not why_missing(name)]
    assert {row.model for row in found if row.adaptive} == set(there) >= {"zlib", "bz2", "xz", "zstd", "zpaq"}
    assert all((row.score_rate or 0) > 0 for row in found)
    assert not found["bag"].adaptive
    assert found["zpaq"].title == "zpaq, given the training text"
    record = json.loads((tmp_path / "out" / "comparison.json").read_text(encoding="utf-8"))
    assert {row["model"]: row["adaptive"] for row in record["rows"]} == {
        name: name != "bag" for name in ("bag", *there)
    }
    lines = (tmp_path / "out" / "comparison.csv").read_text(encoding="utf-8").splitlines()
    assert "adaptive" in lines[0].split(",")


def test_the_page_says_of_each_compressor_in_the_table_how_it_was_given_the_training_text() -> None:
    said = describe_ways(["xz", "zpaq"])
    assert said.endswith("unless said otherwise: xz; zpaq (the method of its level 5, one block).")
    assert "zstd" not in said


def test_slow_programs_are_given_less_of_the_training_text_and_are_expected_to_take_longer() -> None:
    data = {"train_bytes": 1 << 24, "scored_bytes": 1 << 18}
    seconds = {name: expected_seconds(Cell(name, "compressor", name, data=data)) for name in COMPRESSORS}
    assert seconds["paq8px"] > seconds["zpaq"] > seconds["ppmd"]
    assert COMPRESSORS["paq8px"].max_known_bytes < COMPRESSORS["zpaq"].max_known_bytes
    assert all(map(math.isfinite, seconds.values()))
