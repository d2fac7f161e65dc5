"""N-gram tables from Spark against those of the in-memory program: on one machine, on a cluster, and when one of its
machines fails. `make test-spark` installs what they need and runs them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from engine_models import assert_same_tables, check_equality, count, every_config, fit, random_tokens, settings
from octavo.engines import EngineSettings, open_engine
from octavo.engines.engine import Engine
from octavo.models.ngram import NGram, NGramConfig, relational
from octavo.models.ngram.counting import Vocabulary
from spark_cluster import missing, running_cluster

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(bool(missing()), reason=missing()),
    pytest.mark.filterwarnings("ignore"),  # of pyspark's own code
]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with open_engine("spark", settings(tmp_path_factory.mktemp("spark"))) as engine:
        yield engine


@pytest.mark.parametrize(("vocab", "tokens", "order", "sentences"), [(5, 300, 3, True), (300, 2000, 4, False)])
def test_spark_gives_the_tables_of_the_in_memory_program_for_every_estimator_and_pruning(
    spark: Engine, tmp_path: Path, vocab: int, tokens: int, order: int, sentences: bool
) -> None:
    check_equality(spark, tmp_path, random_tokens(vocab, tokens), vocab, every_config(order, sentences))


def check_on_cluster(url: str, folder: Path, x_N: np.ndarray, kill: threading.Timer | None = None) -> None:
    config, vocabulary = NGramConfig(order=3), Vocabulary(50, 49)
    with open_engine("spark", EngineSettings(folder, 1 << 29, master=url)) as engine:
        if kill is not None:
            kill.start()
        stages = count(engine, folder, x_N, 3, vocabulary)
    expected = NGram.fit(torch.from_numpy(x_N.astype(np.int32)), config, 50)
    assert_same_tables(fit(stages, config, vocabulary, folder), expected)


def test_a_worker_that_is_killed_while_it_counts_costs_time_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two workers; one of them, and its executor, is killed while the windows are read."""
    monkeypatch.setattr(relational, "PART_TOKENS", 50_000)
    x_N = random_tokens(50, 1_500_000)
    (tmp_path / "cluster").mkdir()
    with running_cluster(tmp_path / "cluster", 2) as cluster:
        killed = threading.Event()

        def kill() -> None:
            cluster.kill_worker(0)
            killed.set()

        check_on_cluster(cluster.url, tmp_path / "counts", x_N, threading.Timer(4.0, kill))
        assert killed.is_set(), "the counting was over before a worker could be killed"
