"""Duplicates from DuckDB against brute force over all pairs."""

from __future__ import annotations

import math
import random
import tempfile
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duplicates import brute_force, engine_rows, jaccard, made_up_lines, shingle_set, write_documents
from engine_models import duckdb
from octavo.text.duplicates import Bands, DuplicatesConfig, config, relational, units

EVERY_CONFIG = [
    DuplicatesConfig(),
    DuplicatesConfig(near=True),
    DuplicatesConfig(near=True, similarity=0.5, shingle=3),
    DuplicatesConfig(near=True, similarity=1.0, shingle=1),
    DuplicatesConfig(near=True, similarity=0.25, shingle=1, shingle_unit="word"),
]


def certain_bands(similarity: float) -> Bands:
    """Of one value each; a pair is missed once in 10^9."""
    return Bands(math.ceil(9 / -math.log10(max(1 - similarity, 1e-9))), 1)


@pytest.fixture
def certain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bands that miss nothing, and buckets that are compared whole."""
    monkeypatch.setattr(config, "choose_bands", certain_bands)
    monkeypatch.setattr(relational, "BLOCK_BITS", 20)


@pytest.mark.usefixtures("certain")
@pytest.mark.parametrize("settings_", EVERY_CONFIG, ids=str)
def test_duckdb_removes_what_brute_force_removes(tmp_path: Path, settings_: DuplicatesConfig) -> None:
    lines = made_up_lines(250)
    expected = brute_force(lines, settings_)
    assert len(expected) > 10
    (tmp_path / "text.txt").write_bytes(b"\n".join(lines) + b"\n")
    with duckdb(tmp_path) as engine:
        assert engine_rows(engine, tmp_path / "text.txt", settings_) == expected


@settings(max_examples=10, deadline=None)
@given(st.lists(st.text("ab \n", max_size=12).map(str.encode), min_size=1, max_size=12), st.integers(1, 3))
def test_duckdb_removes_what_brute_force_removes_from_any_text(parts: list[bytes], shingle: int) -> None:
    text = b"\n".join([b"x", *parts])
    wanted = DuplicatesConfig(near=True, similarity=0.7, shingle=shingle)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr(config, "choose_bands", certain_bands)
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
        patched.setattr(config, "choose_bands", certain_bands)
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
    generator = random.Random(0)
    lines = [f"{generator.getrandbits(160):040x}".encode() for _ in range(200_000)]
    for i in range(10, len(lines), 10):
        lines[i] = lines[generator.randrange(i)]
        lines[i + 1] = lines[generator.randrange(i)] + b"!?"
    (tmp_path / "text.txt").write_bytes(b"\n".join(lines))
    with duckdb(tmp_path, 80 << 20) as engine:
        found = engine_rows(engine, tmp_path / "text.txt", DuplicatesConfig(near=True))
    assert [row[0] for row in found] == sorted({row[0] for row in found})
    exact = {row[0] for row in brute_force(lines, DuplicatesConfig())}
    assert {row[0] for row in found if not row[4]} == exact
    near, changed = [row for row in found if row[4]], set(range(11, len(lines), 10)) - exact
    assert {row[0] for row in near} <= changed
    assert len(near) > 0.999 * len(changed)
    for line, kept, closest, millionths, _ in near[::20]:
        similarity = jaccard(*(shingle_set(lines[i], 5, "character") for i in (line, closest)))
        assert similarity >= Fraction("0.8")
        assert int(similarity * 1_000_000) == millionths
        assert kept < line
