"""Adaptive scores: what they cost is what their archive takes, and the word stands wherever the number does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import octavo
from octavo import UserError
from octavo.cli import main
from octavo.core import LanguageModel
from octavo.models.dynamic_evaluation import AdaptiveConfig, adapted
from octavo.scoring.bits_per_byte import Score, total
from octavo.scoring.range_coder import choose_streams, compress_bytes, read_header
from octavo.tasks.run_rows import result_label

TEXT = "".join(f"{i} goes up the hill, {i * i % 97} comes down again, {i % 7} stays.\n" for i in range(300))
OTHER = "She sells sea shells by the sea shore.\n" * 30
SMALL: dict[str, Any] = {"width": 16, "layers": 1, "budget": "3steps", "device": "cpu", "measure": False}
FLAGS = ["--adaptive", "--adaptive-learning-rate", "0.01", "--adaptive-segment", "16"]
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("adaptive")
    (folder / "text.txt").write_text(TEXT, encoding="utf-8")
    (folder / "other.txt").write_text(OTHER, encoding="utf-8")
    octavo.train("gru", folder / "text.txt", out=folder / "gru", **SMALL)
    octavo.train("gpt", folder / "text.txt", out=folder / "gpt", heads=2, context=16, **SMALL)
    octavo.train("ngram", folder / "text.txt", out=folder / "kn3", order=3, measure=False)
    return folder


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    def run(*words: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([str(word) for word in words])
        return code, *capsys.readouterr()

    return run


@pytest.mark.parametrize("name", ["gru", "gpt"])
def test_eval_gives_an_adaptive_number_that_its_archive_proves(name: str, here: Path, call: Call) -> None:
    fixed = json.loads(call("eval", here / name, here / "other.txt", "--json")[1])
    code, out, _ = call("eval", here / name, here / "other.txt", *FLAGS, "--prove", "--json")
    adaptive = json.loads(out)
    (proof,) = adaptive["proof"]
    assert code == 0
    assert (fixed["adaptive"], adaptive["adaptive"]) == (False, True)
    assert adaptive["bits_per_byte"] < fixed["bits_per_byte"]
    assert adaptive["parameters"] == fixed["parameters"]
    assert "adaptive: a step of" in adaptive["policy"]
    assert proof["proved"]
    assert proof["archive_bytes"] <= proof["claimed_bytes"] * 1.001 + 64
    run = octavo.load(here / name)
    settings = {"adaptive": True, "adaptive_learning_rate": 0.01, "adaptive_segment": 16}
    score = octavo.evaluate(run, OTHER, **settings)
    assert score.bits_per_byte == adaptive["bits_per_byte"]
    assert octavo.evaluate(run, OTHER).bits_per_byte == fixed["bits_per_byte"]  # the run has learnt nothing


def test_the_word_stands_beside_the_number(here: Path, call: Call) -> None:
    table = call("eval", here / "gru", here / "other.txt", here / "text.txt", *FLAGS)[1].splitlines()
    assert [line.count(" adaptive") for line in table[:5]].count(1) == 3  # two rows and their total
    assert " adaptive" not in call("eval", here / "gru", here / "other.txt")[1]
    score = octavo.evaluate(here / "gru", OTHER, adaptive=True)
    assert "adaptive" in repr(score)
    assert " adaptive" in score._repr_html_()


def test_without_a_text_the_held_out_part_is_scored_adaptively(here: Path, call: Call) -> None:
    score = octavo.evaluate(here / "gru", adaptive=True)
    assert score.adaptive
    assert json.loads(call("eval", here / "gru", "--adaptive", "--json")[1])["bits"] == score.bits


def test_a_total_is_adaptive_if_a_row_is() -> None:
    rows = [Score("a", 1.0, 1, 1, 0.0), Score("b", 1.0, 1, 1, 0.0, adaptive=True)]
    assert total("both", rows).adaptive
    assert not total("one", rows[:1]).adaptive


def test_results_of_earlier_versions_are_not_adaptive() -> None:
    assert result_label({"result": {"bits_per_byte": 2.0, "label": "not comparable"}}) == "not comparable"
    assert result_label({"result": {"bits_per_byte": 2.0, "label": "", "adaptive": True}}) == "adaptive"
    assert result_label({}) == ""


def test_an_archive_opens_only_with_the_settings_it_was_written_with(here: Path, call: Call, tmp_path: Path) -> None:
    archive, back = tmp_path / "a.oct", tmp_path / "back"
    assert call("compress", here / "gru", here / "other.txt", archive, *FLAGS)[0] == 0
    for wrong in ([], FLAGS[:1], [*FLAGS[:4], "17"]):
        code, _, err = call("decompress", here / "gru", archive, back, *wrong)
        assert code == 2
        assert "the --adaptive settings it was written with" in err
        assert not back.exists()
    assert call("decompress", here / "gru", archive, back, *FLAGS)[0] == 0
    assert back.read_text(encoding="utf-8") == OTHER
    assert archive.stat().st_size < len(octavo.compress(here / "gru", OTHER))


def test_python_compresses_and_restores_too(here: Path) -> None:
    archive = octavo.compress(here / "gpt", OTHER, adaptive=True, adaptive_segment=32)
    assert octavo.decompress(here / "gpt", archive, adaptive=True, adaptive_segment=32).decode() == OTHER
    with pytest.raises(UserError, match="opens only with the model that wrote it"):
        octavo.decompress(here / "gpt", archive, adaptive=True)


def test_an_adaptive_model_reads_one_stream(here: Path) -> None:
    run = octavo.load(here / "gru")
    tokens, data = torch.from_numpy(run.tokenizer.encode(TEXT.encode())).long(), TEXT.encode()
    model: LanguageModel[Any] = adapted(run.model, AdaptiveConfig(segment=512))
    assert choose_streams(run.model, tokens) > 1
    assert choose_streams(model, tokens) == 1
    assert read_header(compress_bytes(model, run.tokenizer, data[:900], run.identity))[0].streams == 1


def test_what_cannot_be_is_refused_with_the_remedy(here: Path, call: Call) -> None:
    for words, message in (
        (["eval", here / "kn3", "--adaptive"], "train it with --adaptive"),
        (["eval", here / "gru", "--adaptive-segment", "16"], "belongs to scoring with --adaptive"),
        (["eval", here / "gru", "--adaptive", "--adaptive-segment", "0"], "try --adaptive-segment"),
        (["eval", here / "gru", "--adaptive", "--adaptive-learning-rate", "-1"], "try --adaptive-learning-rate"),
    ):
        code, _, err = call(*words)
        assert code == 2
        assert message in err
        assert err.count("\n") == 1


def test_an_archive_is_restored_in_another_process_with_another_number_of_threads(here: Path) -> None:
    """Its size is the claim, but for the header and the coder's last bytes."""
    if not (here / "mixture").exists():
        octavo.train("ngram", here / "text.txt", adaptive=True, order=4, out=here / "adaptive", measure=False)
        octavo.train(
            "mix", here / "text.txt", adaptive=True, parts=[here / "adaptive", here / "gru"], calibration_bits=8,
            out=here / "mixture", measure=False,
        )  # fmt: skip
    for verb, source, target, threads in (
        ("compress", "other.txt", "other.oct", "1"), ("decompress", "other.oct", "again.txt", "2"),
    ):  # fmt: skip
        command = [sys.executable, "-m", "octavo.cli", verb, here / "mixture", here / source, here / target]
        environment = {**os.environ, "OMP_NUM_THREADS": threads}
        subprocess.run(command, env=environment, check=True, capture_output=True)
    assert (here / "again.txt").read_text() == OTHER
    claimed = octavo.evaluate(here / "mixture", here / "other.txt").bits / 8
    assert (here / "other.oct").stat().st_size == pytest.approx(claimed, rel=0.001, abs=48)
