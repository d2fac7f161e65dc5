"""Duplicates from Spark against brute force over all pairs. `make test-spark` installs what it needs and runs it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from duplicates import brute_force, engine_rows, made_up_lines
from engine_models import settings
from octavo.engines import open_engine
from octavo.engines.engine import Engine
from octavo.text.duplicates import Bands, DuplicatesConfig, config
from spark_cluster import missing

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(bool(missing()), reason=missing()),
    pytest.mark.filterwarnings("ignore"),  # of pyspark's own code
]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with open_engine("spark", settings(tmp_path_factory.mktemp("spark"))) as engine:
        yield engine


@pytest.mark.parametrize("near", [False, True])
def test_spark_removes_what_brute_force_removes(
    spark: Engine, tmp_path: Path, near: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "choose_bands", lambda similarity: Bands(12, 2))
    lines = made_up_lines(250)
    (tmp_path / "text.txt").write_bytes(b"\n".join(lines) + b"\n")
    wanted = DuplicatesConfig(near=near)
    assert engine_rows(spark, tmp_path / "text.txt", wanted) == brute_force(lines, wanted)
