"""Duplicates from Spark against brute force over all pairs. `make test-spark` installs what it needs and runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from duplicates import brute_force, engine_rows, made_up_lines
from octavo.engines.engine import Engine
from octavo.text.duplicates import Bands, DuplicatesConfig, config
from spark_cluster import SPARK_MARKS

pytestmark = SPARK_MARKS


@pytest.mark.parametrize("near", [False, True])
def test_spark_removes_what_brute_force_removes(
    spark: Engine, tmp_path: Path, near: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "choose_bands", lambda similarity: Bands(12, 2))
    lines = made_up_lines(250)
    (tmp_path / "text.txt").write_bytes(b"\n".join(lines) + b"\n")
    wanted = DuplicatesConfig(near=near)
    assert engine_rows(spark, tmp_path / "text.txt", wanted) == brute_force(lines, wanted)
