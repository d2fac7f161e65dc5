"""N-gram models whose counts an engine made, beside those of the in-memory program."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from octavo.engines import EngineSettings, open_engine
from octavo.engines.engine import Engine
from octavo.engines.stages import Stages
from octavo.models.ngram import NGram, NGramConfig
from octavo.models.ngram.counting import Vocabulary
from octavo.models.ngram.level_files import read_orders
from octavo.models.ngram.relational import count_levels, count_windows
from octavo.models.ngram.table_files import fit_tables, takes_whole_orders
from octavo.text.token_shards import TokenShards, finish_shards, write_shard

TABLES = ("first_C", "word_M", "alpha_M", "gamma_C")
PRUNINGS: tuple[tuple[int, ...], ...] = ((), (0, 1), (1, 1, 2))


def every_config(order: int, sentences: bool) -> list[NGramConfig]:
    """Every estimator with every pruning that it takes."""
    return [
        NGramConfig(order=order, estimator=estimator, prune=prune, sentences=sentences)  # type: ignore[arg-type, unused-ignore]
        for estimator in ("kneser-ney", "mle", "add-k", "stupid", "ppm")
        for prune in PRUNINGS
        if len(prune) <= order and not (estimator == "ppm" and prune)
    ]


def settings(folder: Path, memory_limit: int = 1 << 30) -> EngineSettings:
    return EngineSettings(folder, memory_limit, threads=2, master="local[2]")


def random_tokens(vocab: int, tokens: int, seed: int = 0) -> NDArray[np.uint16]:
    """Token ids of several documents."""
    generator = np.random.default_rng(seed)
    x_N = generator.integers(0, vocab - 1, tokens).astype("<u2")
    x_N[generator.random(tokens) < 0.02] = vocab - 1
    x_N[:1] = vocab - 1
    return x_N


def count(engine: Engine, folder: Path, x_N: NDArray[np.uint16], order: int, vocabulary: Vocabulary) -> Stages:
    """The counts of the tokens."""
    folder.mkdir(exist_ok=True)
    shards = np.array_split(x_N, 3)  # so that windows reach over the ends of files
    sizes = [write_shard(folder, number, [shard], x_N.dtype.str) for number, shard in enumerate(shards)]
    finish_shards(folder, sizes)
    stages = Stages(folder / "stages", {"test": 1})
    source = TokenShards(str(folder), x_N.dtype.str)
    count_windows(engine, stages, source, order, vocabulary, lambda amount: None)
    count_levels(engine, stages, order, vocabulary, lambda amount: None)
    return stages


def fit(stages: Stages, config: NGramConfig, vocabulary: Vocabulary, folder: Path) -> NGram:
    """The model of counts."""
    model = NGram(config, vocabulary.size, vocabulary.end)
    fit_tables(model, read_orders(stages, config.order, vocabulary, folder, takes_whole_orders(config)), folder)
    return model


def assert_same_tables(one: NGram, other: NGram) -> None:
    """To the last bit."""
    for name in TABLES:
        ours, theirs = getattr(one, name), getattr(other, name)
        assert ours.dtype == theirs.dtype
        assert torch.equal(ours, theirs), f"{name}: {ours} against {theirs}, {one.config}"


def check_equality(
    engine: Engine, folder: Path, x_N: NDArray[np.uint16], vocab: int, configs: Sequence[NGramConfig], newline: int = 2
) -> None:
    """The engine's model of every config equals the in-memory program's; all have one order."""
    config = configs[0]
    vocabulary = Vocabulary(vocab, vocab - 1, newline if config.sentences else None)
    stages = count(engine, folder, x_N, config.order, vocabulary)
    for one in configs:
        expected = NGram.fit(torch.from_numpy(x_N.astype(np.int32)), one, vocab, newline)
        assert_same_tables(fit(stages, one, vocabulary, folder), expected)


def duckdb(folder: Path, memory_limit: int = 1 << 30) -> Engine:
    return open_engine("duckdb", settings(folder, memory_limit))
