"""octavo doctor on runs that are no language models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import octavo
from octavo.cli import main
from octavo.core import seeded_generator
from octavo.inspection.doctor.inner_workings import gates
from octavo.models.rnn_attention import RNNAttention, RNNAttentionConfig
from old_runs import write_texts


@pytest.mark.parametrize(("model", "source", "settings"), [
    ("bert", "text.txt", {"width": 16, "layers": 1, "heads": 2, "context": 32, "batch_size": 4, "vocab_size": 120}),
    ("seq2seq", "pairs.tsv", {"width": 16, "layers": 1, "heads": 2, "vocab_size": 300, "batch_size": 128}),
    ("vit", "images", {"width": 16, "layers": 1, "heads": 2, "patch": 4, "batch_size": 8}),
    ("dan", "moods.tsv", {"width": 8, "batch_size": 8}),
])  # fmt: skip
def test_the_history_of_a_run_of_every_task_is_examined(
    model: str, source: str, settings: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_texts(tmp_path)
    usual = {"budget": "30steps", "evaluations": 3, "device": "cpu", "out": tmp_path / "run", "measure": False}
    octavo.train(model, tmp_path / source, **usual, **settings)
    assert main(["doctor", str(tmp_path / "run"), "--json"]) == 0
    found = {one["name"]: one for one in json.loads(capsys.readouterr().out)["findings"]}
    history = {"start", "overfitting", "stability", "progress", "gradient lengths", "events"}
    assert history | {"weights", "units", "evaluation"} <= set(found)
    assert found["start"]["verdict"] in ("ok", "note")  # its first loss is about that of chance
    assert found["start"]["values"]["expected"] == pytest.approx(found["start"]["values"]["loss"], rel=0.01)
    assert found["progress"]["values"]["first"] == pytest.approx(found["start"]["values"]["loss"])
    assert found["gradient lengths"]["values"]["median"] > 0
    assert found["events"]["values"]["finished"] is True
    assert found["overfitting"]["verdict"] != "not applicable"


def test_attention_over_a_cell_without_gates_has_no_gates_to_examine() -> None:
    model = RNNAttention(RNNAttentionConfig(cell="rnn", width=6), 13)
    model.initialise(seeded_generator(1))
    assert gates(model, list(range(12))).verdict == "not applicable"
