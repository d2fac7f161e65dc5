"""N-gram tables from DuckDB against those of the in-memory program, to the last bit."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_models import check_equality, duckdb, every_config, random_tokens
from octavo.engines import EngineSettings, open_engine
from octavo.engines.duckdb_engine import SPILL
from octavo.errors import UserError
from octavo.models.ngram import NGramConfig, level_files, relational
from octavo.models.ngram.packed_keys import KeyLayout
from octavo.text import token_shards


@pytest.mark.parametrize(
    ("vocab", "tokens", "order", "sentences"),
    [(5, 300, 3, True), (5, 300, 4, False), (300, 2000, 5, True), (257, 600, 9, False), (4, 60, 1, True)],
)
def test_duckdb_gives_the_tables_of_the_in_memory_program_for_every_estimator_and_pruning(
    tmp_path: Path, vocab: int, tokens: int, order: int, sentences: bool
) -> None:
    with duckdb(tmp_path) as engine:
        check_equality(engine, tmp_path, random_tokens(vocab, tokens), vocab, every_config(order, sentences))


@settings(max_examples=12, deadline=None)
@given(
    words=st.lists(st.integers(0, 4), min_size=1, max_size=40),
    order=st.integers(1, 4),
    sentences=st.booleans(),
)
def test_duckdb_gives_the_same_tables_for_any_text(words: list[int], order: int, sentences: bool) -> None:
    configs = [NGramConfig(order=order, sentences=sentences, prune=prune) for prune in ((), (0, 1)[:order])]
    with tempfile.TemporaryDirectory() as folder, duckdb(Path(folder)) as engine:
        check_equality(engine, Path(folder), np.array([4, *words], "<u2"), 5, configs)


def test_parts_and_batches_may_be_cut_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows reach over the ends of parts; contexts stay whole in what the estimators get."""
    for module, name, value in (
        (token_shards, "PART_TOKENS", 97), (relational, "WINDOWS_BATCH", 31), (level_files, "ROWS", 53),
        (level_files, "PART_NGRAMS", 10),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, value)
    with duckdb(tmp_path) as engine:
        check_equality(engine, tmp_path, random_tokens(6, 500), 6, every_config(4, True))


@pytest.mark.parametrize("vocab", [2, 257, 65_536, 612_000, (1 << 31) - 2])
def test_a_packed_key_gives_its_words_back_and_sorts_like_them(vocab: int) -> None:
    generator, layout, order = np.random.default_rng(0), KeyLayout(vocab), 7
    word_kN = generator.integers(0, vocab, (order, 200)) + 1
    columns = layout.pack(list(word_kN))
    assert [name.startswith("key") for name in layout.columns(order)] == [True] * len(columns)
    for i in range(order):
        assert (layout.words(columns, i) == word_kN[i] - 1).all()
    by_key = np.lexsort(columns[::-1])
    assert (word_kN[:, by_key] == word_kN[:, np.lexsort(word_kN[::-1])]).all()


def test_a_limit_below_the_counts_only_makes_duckdb_use_its_disk(tmp_path: Path) -> None:
    x_N = random_tokens(60_000, 1_000_000)
    with duckdb(tmp_path, 100 << 20) as engine:
        check_equality(engine, tmp_path, x_N, 60_000, [NGramConfig(order=4)])
        assert (tmp_path / SPILL).is_dir(), "all of it had room in memory"


def test_an_engine_that_there_is_not_or_too_little_memory_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no engine 'dukdb'; did you mean duckdb"):
        open_engine("dukdb", EngineSettings(tmp_path, 1 << 30))
    with pytest.raises(UserError, match="memory limit of at least 67,108,864 bytes: 1,000 given; try --memory-limit"):
        open_engine("duckdb", EngineSettings(tmp_path, 1000))
