"""Runs that version 0.1 saved are listed, loaded, used and resumed by today's octavo."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import octavo
from octavo.cli import main
from octavo.io.run_folder import CONFIG, read_record, write_record
from octavo.io.tensors import read_tensors
from octavo.training.checkpoint import Checkpoint, write_weights
from old_runs import RUNS, STOPPED, make_old_runs, why_not

TASKS = {"bert": "masked", "seq2seq": "translation", "vit": "images", "dan": "classification",
         "linear": "classification", "facts": "facts"}  # fmt: skip
pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_old_runs(tmp_path_factory.mktemp("old"))


@pytest.fixture
def copied(old: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A run that may be written to."""
    return Path(shutil.copytree(old / request.param, tmp_path / request.param))


def test_they_are_listed_with_their_results(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", str(old), "--json"]) == 0
    listed = {Path(row["run"]).name: row for row in json.loads(capsys.readouterr().out)}
    assert set(listed) == {*RUNS, *STOPPED}
    assert all(listed[name]["figures"] for name in RUNS)
    assert main(["list", str(old)]) == 0
    unfinished = [line for line in capsys.readouterr().out.splitlines() if "not finished" in line]
    assert len(unfinished) == len(STOPPED)
    assert not any(" 0.00 " in line for line in unfinished)  # it did train


@pytest.mark.parametrize("name", RUNS)
def test_they_are_loaded_as_what_they_are_and_score_what_they_scored(old: Path, name: str) -> None:
    before = json.loads((old / name / CONFIG).read_text())
    assert before["format"] == 1
    record = read_record(old / name)
    assert record["task"] == TASKS.get(name, "language")
    run = octavo.load(old / name)
    assert not run.unfinished
    if name in ("bert", "facts"):
        return
    measured: Any = octavo.evaluate(run)
    if name == "seq2seq":
        assert measured["target"].chrf == pytest.approx(before["result"]["languages"]["target"]["chrf"])
    elif name in TASKS:
        assert measured.accuracy == pytest.approx(before["result"]["accuracy"])
    else:
        assert measured.bits_per_byte == pytest.approx(before["result"]["bits_per_byte"], abs=1e-6)


@pytest.mark.parametrize("copied", ["gru", "gpt", "bert", "seq2seq", "vit"], indirect=True)
def test_finished_ones_go_on_with_a_larger_budget(copied: Path) -> None:
    assert octavo.resume(copied, budget="8steps").record["training"]["steps"] == 8
    record = json.loads((copied / CONFIG).read_text())
    assert record["format"] == 2
    assert record["training"]["finished"] is True


@pytest.mark.parametrize("copied", ["gru"], indirect=True)
def test_one_that_is_resumed_again_can_be_loaded_while_it_trains(copied: Path) -> None:
    octavo.resume(copied, budget="8steps")
    record = read_record(copied)
    write_record(copied, {**record, "training": {**record["training"], "finished": False}})
    write_weights({name: 2 * tensor for name, tensor in read_tensors(copied).items()}, copied)
    assert octavo.load(copied).unfinished


@pytest.mark.parametrize("copied", STOPPED, indirect=True)
def test_stopped_ones_are_resumed_where_they_were(copied: Path) -> None:
    assert not read_record(copied)["training"]["finished"]
    at = Checkpoint.load(copied).position.step
    assert at > 0
    if copied.name == "stopped-facts":  # it would pretrain for hours
        record = json.loads((copied / CONFIG).read_text())
        record["facts"]["settings"]["how"]["pretrain_passes"] = at // 2 + 2
        (copied / CONFIG).write_text(json.dumps(record))
        stages = octavo.resume(copied).record["training"]["stages"]
        assert [stage["name"] for stage in stages] == ["pretraining", "finetuning"]
        assert stages[0]["steps"] > at
    else:
        run = octavo.resume(copied, budget=f"{at + 2}steps")
        assert run.record["training"]["steps"] == at + 2
    assert not octavo.load(copied).unfinished
