"""N-gram tables from Spark against those of the in-memory program; `make test-spark` installs what Spark needs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine_models import check_equality, every_config, random_tokens
from octavo.engines.engine import Engine
from spark_cluster import SPARK_MARKS

pytestmark = SPARK_MARKS


@pytest.mark.parametrize(("vocab", "tokens", "order", "sentences"), [(5, 300, 3, True), (300, 2000, 4, False)])
def test_spark_gives_the_tables_of_the_in_memory_program_for_every_estimator_and_pruning(
    spark: Engine, tmp_path: Path, vocab: int, tokens: int, order: int, sentences: bool
) -> None:
    check_equality(spark, tmp_path, random_tokens(vocab, tokens), vocab, every_config(order, sentences))


def test_a_session_leaves_the_name_of_the_workers_python_to_the_next(spark: Engine) -> None:
    assert "PYSPARK_PYTHON" not in os.environ
