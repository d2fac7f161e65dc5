"""Co-occurrences from Spark against those of DuckDB, to the last bit; `make test-spark` installs what Spark needs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest

from octavo.tasks.cooccurrences import count_cooccurrences, merge_cooccurrences
from octavo.tasks.engine_counting import EngineConfig
from octavo.text import token_shards
from octavo.training.cooccurrences import CooccurrenceConfig
from spark_cluster import SPARK_MARKS

pytestmark = SPARK_MARKS
ENGINES = {"duckdb": EngineConfig("duckdb", "1GB"), "spark": EngineConfig("spark", "1GB", "local[2]")}


@pytest.mark.parametrize("symmetric", [True, False])
def test_spark_gives_the_files_of_duckdb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, symmetric: bool) -> None:
    monkeypatch.setattr(token_shards, "PART_TOKENS", 999)
    generator = np.random.default_rng(0)
    lines = (" ".join(f"w{word}" for word in generator.zipf(1.3, 12) % 500) for _ in range(600))
    (tmp_path / "text.txt").write_text("\n".join(lines) + "\n")
    config = CooccurrenceConfig(7, symmetric)
    tables = []
    for name, engine in ENGINES.items():
        near = count_cooccurrences(
            [str(tmp_path / "text.txt")], tmp_path / name, config, True, counting=engine, binary=True
        )
        twice = merge_cooccurrences([near.path, near.path], tmp_path / f"{name}-twice", engine)
        tables.append([pyarrow.parquet.read_table(one.path / "pairs") for one in (near, twice)])
    assert all(ours.equals(theirs) for ours, theirs in zip(*tables, strict=True))
    assert len(tables[0][0]) > 10_000
    records = [(tmp_path / name / "cooccurrence.bin").read_bytes() for name in ENGINES]
    assert records[0] == records[1]
