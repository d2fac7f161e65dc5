"""A cluster on loopback of which one machine fails: the tables and the tokens are those of the in-memory program.

No other Spark session may be open here: the cluster's would be that one. `make test-spark` installs what they need.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from engine_models import assert_same_tables, count, fit, random_tokens
from octavo.engines import EngineSettings, open_engine
from octavo.engines.stages import Stages
from octavo.models.ngram import NGram, NGramConfig
from octavo.models.ngram.counting import Vocabulary
from octavo.text import learn_and_tokenize, open_corpus, text_parts, token_shards
from octavo.text.relational_tokens import learn_and_tokenize_parts
from octavo.text.text_parts import parts_of_sources
from spark_cluster import SPARK_MARKS, running_cluster
from tokenised_texts import write_files

pytestmark = SPARK_MARKS


@pytest.fixture(autouse=True)
def this_python_on_every_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)


def check_master(url: str) -> None:
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    assert session is not None
    assert session.sparkContext.master == url


def check_on_cluster(url: str, folder: Path, x_N: np.ndarray, kill: threading.Timer | None = None) -> None:
    config, vocabulary = NGramConfig(order=3), Vocabulary(50, 49)
    with open_engine("spark", EngineSettings(folder, 1 << 29, master=url)) as engine:
        check_master(url)
        if kill is not None:
            kill.start()
        stages = count(engine, folder, x_N, 3, vocabulary)
    expected = NGram.fit(torch.from_numpy(x_N.astype(np.int32)), config, 50)
    assert_same_tables(fit(stages, config, vocabulary, folder), expected)


def test_a_worker_that_is_killed_while_it_counts_costs_time_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two workers; one of them, and its executor, is killed while the windows are read."""
    monkeypatch.setattr(token_shards, "PART_TOKENS", 50_000)
    x_N = random_tokens(50, 1_500_000)
    (tmp_path / "cluster").mkdir()
    with running_cluster(tmp_path / "cluster", 2) as cluster:
        killed = threading.Event()

        def kill() -> None:
            cluster.kill_worker(0)
            killed.set()

        check_on_cluster(cluster.url, tmp_path / "counts", x_N, threading.Timer(4.0, kill))
        assert killed.is_set(), "the counting was over before a worker could be killed"


def test_a_worker_that_is_killed_while_it_tokenises_costs_time_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two workers; one of them, and its executor, is killed while the parts are read."""
    monkeypatch.setattr(text_parts, "PART_BYTES", 200_000)
    lines = b"".join(b"word%d and word%d\n" % (i % 997, i % 13) for i in range(600_000))
    sources = write_files(tmp_path / "text", {"a.txt": lines})
    parts = parts_of_sources(sources)
    assert parts is not None
    (tmp_path / "cluster").mkdir()
    with running_cluster(tmp_path / "cluster", 2) as cluster:
        killed = threading.Event()

        def kill() -> None:
            cluster.kill_worker(0)
            killed.set()

        with open_engine("spark", EngineSettings(tmp_path, 1 << 29, master=cluster.url)) as engine:
            check_master(cluster.url)
            threading.Timer(3.0, kill).start()
            stages = Stages(tmp_path / "stages", {})
            tokenizer, tokens = learn_and_tokenize_parts(engine, stages, parts, "word", {})
        assert killed.is_set(), "the text was tokenised before a worker could be killed"
    expected, store = learn_and_tokenize("word", open_corpus(sources, valid=sources))
    assert tokenizer.to_json() == expected.to_json()
    assert (tokens.load().tokens == store.tokens).all()
