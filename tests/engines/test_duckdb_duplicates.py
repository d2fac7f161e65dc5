"""Duplicates from DuckDB against brute force over all pairs."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duplicates import brute_force, engine_rows, jaccard, made_up_lines, shingle_set, write_documents
from engine_models import duckdb
from octavo.text.duplicates import Bands, DuplicatesConfig, config, relational, units

CERTAIN = Bands(128, 1)  # a pair of similarity 0.2 is missed once in 10^12
EVERY_CONFIG = [
    DuplicatesConfig(),
    DuplicatesConfig(near=True),
    DuplicatesConfig(near=True, similarity=0.5, shingle=3),
    DuplicatesConfig(near=True, similarity=1.0, shingle=1),
    DuplicatesConfig(near=True, similarity=0.25, shingle=1, shingle_unit="word"),
]


@pytest.fixture
def certain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bands that miss nothing: what is left is the program."""
    monkeypatch.setattr(config, "choose_bands", lambda similarity: CERTAIN)


@pytest.mark.usefixtures("certain")
@pytest.mark.parametrize("settings_", EVERY_CONFIG, ids=str)
def test_duckdb_removes_what_brute_force_removes(tmp_path: Path, settings_: DuplicatesConfig) -> None:
    lines = made_up_lines(250)
    expected = brute_force(lines, settings_)
    assert len(expected) > 20
    (tmp_path / "text.txt").write_bytes(b"\n".join(lines) + b"\n")
    with duckdb(tmp_path) as engine:
        assert engine_rows(engine, tmp_path / "text.txt", settings_) == expected


@settings(max_examples=15, deadline=None)
@given(st.lists(st.text("ab \n", max_size=12).map(str.encode), min_size=1, max_size=12), st.integers(1, 3))
def test_duckdb_removes_what_brute_force_removes_from_any_text(parts: list[bytes], shingle: int) -> None:
    text = b"\n".join([b"x", *parts])
    wanted = DuplicatesConfig(near=True, similarity=0.4, shingle=shingle)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr(config, "choose_bands", lambda similarity: Bands(48, 1))
        Path(folder, "text.txt").write_bytes(text)
        with duckdb(Path(folder)) as engine:
            assert engine_rows(engine, Path(folder, "text.txt"), wanted) == brute_force(text.split(b"\n"), wanted)


@pytest.mark.usefixtures("certain")
def test_documents_are_compared_whole(tmp_path: Path) -> None:
    documents = [b"a b c d\ne f g", b"other\nthing", b"a b c d\ne f g", b"a b c d\ne f  h", b"other\nthings\n"]
    write_documents(tmp_path / "documents.jsonl", documents)
    wanted = DuplicatesConfig(unit="document", near=True, similarity=0.6, shingle=3)
    with duckdb(tmp_path) as engine:
        found = engine_rows(engine, tmp_path / "documents.jsonl", wanted)
    assert found == brute_force(documents, wanted)
    assert [row[:2] for row in found] == [(2, 0), (3, 0), (4, 1)]


@pytest.mark.usefixtures("certain")
def test_parts_and_batches_may_be_cut_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "PART_BYTES", 997)
    monkeypatch.setattr(relational, "BATCH_BYTES", 101)
    lines, wanted = made_up_lines(200, seed=1), DuplicatesConfig(near=True, similarity=0.7)
    (tmp_path / "text.txt").write_bytes(b"\n".join(lines))
    with duckdb(tmp_path) as engine:
        assert engine_rows(engine, tmp_path / "text.txt", wanted) == brute_force(lines, wanted)


def test_a_long_chain_of_similar_lines_is_one_component(tmp_path: Path) -> None:
    """Each is similar to its neighbours alone; the first stays, and rounds are few."""
    words = [f"w{i}x" for i in range(400)]
    lines = [" ".join(words[i : i + 20]).encode() for i in range(380)]
    (tmp_path / "text.txt").write_bytes(b"\n".join(lines))
    wanted = DuplicatesConfig(near=True, similarity=0.9, shingle=1, shingle_unit="word")
    with duckdb(tmp_path) as engine, pytest.MonkeyPatch.context() as patched:
        patched.setattr(config, "choose_bands", lambda similarity: CERTAIN)
        found = engine_rows(engine, tmp_path / "text.txt", wanted)
    assert found == brute_force(lines, wanted)
    assert {row[1] for row in found} == {0}


def test_many_variants_of_one_line_are_compared_in_blocks_and_found(tmp_path: Path) -> None:
    lines = [f"this page was last changed by somebody in the year {i}".encode() for i in range(1000, 3000)]
    (tmp_path / "text.txt").write_bytes(b"\n".join(lines))
    with duckdb(tmp_path) as engine:
        found = engine_rows(engine, tmp_path / "text.txt", DuplicatesConfig(near=True))
    assert [row[:2] for row in found] == [(i, 0) for i in range(1, 2000)]


def test_within_a_memory_limit_duplicates_of_a_large_text_are_found_and_nothing_else(tmp_path: Path) -> None:
    lines = made_up_lines(1000, seed=2)
    whole = [b"%d %s" % (i * 7919 % 1_000_003, line) for i in range(250) for line in lines]
    (tmp_path / "text.txt").write_bytes(b"\n".join(whole))
    wanted = DuplicatesConfig(near=True, similarity=0.9)
    with duckdb(tmp_path, 100 << 20) as engine:
        found = engine_rows(engine, tmp_path / "text.txt", wanted)
    sets = {}
    for line, kept, closest, millionths, near in found[:: max(1, len(found) // 2000)]:
        for i in (line, closest):
            sets[i] = sets.get(i) or shingle_set(whole[i], 5, "character")
        assert kept < line
        similarity = jaccard(sets[line], sets[closest])
        assert similarity >= 0.9
        assert int(similarity * 1_000_000) == millionths
        assert near == (whole[line] != whole[closest])
    exact = {i for i, row in enumerate(brute_force(whole, DuplicatesConfig()))}
    assert sum(1 - row[4] for row in found) == len(exact)
