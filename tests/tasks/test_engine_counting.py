"""octavo train ngram --engine: the same run, and a killed job that goes on from its finished stages."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import octavo
from octavo.cli import main
from octavo.engines.duckdb_engine import DuckDB
from octavo.errors import UserError
from octavo.io.run_folder import TENSORS
from octavo.models.ngram.config import NGramConfig
from octavo.tasks import engine_counting
from octavo.tasks.engine_counting import EngineConfig


@pytest.fixture
def text(tmp_path: Path) -> Path:
    generator = np.random.default_rng(0)
    lines = (" ".join(f"w{word}" for word in generator.integers(0, 30, 8)) for _ in range(200))
    path = tmp_path / "text.txt"
    path.write_text("\n".join(lines) + "\n")
    return path


def train(text: Path, out: Path, *flags: str) -> int:
    words = ["train", "ngram", str(text), "--order", "3", "--tokenizer", "word", "--no-measure", "--out", str(out)]
    return main([*words, *flags])


def test_a_run_of_duckdb_has_the_bytes_of_one_in_memory_and_leaves_no_stages(text: Path, tmp_path: Path) -> None:
    for engine in ("memory", "duckdb"):
        assert train(text, tmp_path / engine, "--engine", engine, "--sentences", "--prune", "0", "1") == 0
    memory, duckdb = ((tmp_path / engine / TENSORS).read_bytes() for engine in ("memory", "duckdb"))
    assert duckdb == memory
    assert octavo.load(tmp_path / "duckdb").record["engine"] == "duckdb"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["duckdb", "memory", "text.txt"]


def test_a_killed_job_goes_on_from_its_finished_stages(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, write, written = tmp_path / "run", DuckDB.write, list[str]()

    def write_or_die(engine: DuckDB, query: str, folder: Path) -> None:
        if len(written) == 3:
            raise KeyboardInterrupt
        written.append(folder.parent.name)
        write(engine, query, folder)

    with monkeypatch.context() as patched:
        patched.setattr(DuckDB, "write", write_or_die)
        assert train(text, out, "--engine", "duckdb") == 130
    assert len(written) == 3, "the vocabulary, order 3 and order 2"
    again = list[str]()
    monkeypatch.setattr(DuckDB, "write", lambda *given: (again.append("stage"), write(*given)))
    assert train(text, out, "--engine", "duckdb") == 0
    assert len(again) == 2, "order 1 and the counts of counts were left"
    assert "vocabulary, tokens, order3, order2" in " ".join(octavo.load(out).record["notes"])
    assert train(text, tmp_path / "memory", "--engine", "memory") == 0
    assert (out / TENSORS).read_bytes() == (tmp_path / "memory" / TENSORS).read_bytes()


def test_stages_of_other_settings_are_not_taken_for_ones_own(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*given: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(engine_counting.CountingJob, "fit", stop)
        assert train(text, tmp_path / "run", "--engine", "duckdb") == 130
    assert train(text, tmp_path / "run", "--engine", "duckdb", "--sentences") == 0
    assert train(text, tmp_path / "memory", "--engine", "memory", "--sentences") == 0
    assert (tmp_path / "run" / TENSORS).read_bytes() == (tmp_path / "memory" / TENSORS).read_bytes()


def test_a_folder_that_is_not_of_stages_is_left_alone(text: Path, tmp_path: Path,
                                                      capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    (tmp_path / ".run.stages").mkdir()
    (tmp_path / ".run.stages" / "letter.txt").write_text("mine")
    assert train(text, tmp_path / "run", "--engine", "duckdb") == 2
    assert "holds no stages of octavo's but something else; choose another folder" in capsys.readouterr().err
    assert (tmp_path / ".run.stages" / "letter.txt").read_text() == "mine"


def test_auto_takes_memory_as_long_as_it_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_counting, "available", lambda: 48_000)
    assert [EngineConfig().choose(tokens) for tokens in (1000, 1001)] == ["memory", "duckdb"]
    assert EngineConfig(engine="memory").choose(1001) == "memory"
    monkeypatch.setattr(engine_counting, "available", lambda: 1 << 60)
    assert EngineConfig().choose(1 << 31) == "duckdb", "the in-memory program has 32-bit places"


def test_settings_of_an_engine_are_checked() -> None:
    with pytest.raises(UserError, match="a size is a number of bytes"):
        EngineConfig(memory_limit="much")
    with pytest.raises(UserError, match="only spark has a master"):
        EngineConfig(engine="duckdb", spark_master="local[2]")


def test_thresholds_of_pruning_leave_words_alone_and_the_last_one_serves_the_rest() -> None:
    assert [NGramConfig(order=4, prune=(1, 2)).threshold(k) for k in (1, 2, 3, 4)] == [-1, 2, 2, 2]
    assert [NGramConfig(order=3).threshold(k) for k in (1, 2)] == [-1, -1]


def test_a_full_disk_is_one_line_and_the_command_goes_on_when_there_is_room(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """DuckDB's own words of a full disk; /dev/full is one that always is."""
    with monkeypatch.context() as patched:
        patched.setattr(DuckDB, "write", lambda engine, query, folder: _write_to_full_disk(engine, query))
        assert train(text, tmp_path / "run", "--engine", "duckdb") == 2
    error = capsys.readouterr().err
    assert "the disk is full: duckdb failed to write into" in error
    assert error.count("\n") == 1
    assert train(text, tmp_path / "run", "--engine", "duckdb") == 0


def _write_to_full_disk(engine: DuckDB, query: str) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    engine.write_file(query, Path("/dev/full"))
