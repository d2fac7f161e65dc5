"""Flags that a model does not have are refused with the rule and the remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from octavo.cli import main


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("train ngram DATA --adaptive --estimator ppm",
         "ngram with --adaptive is the model adaptive-ngram, which has no --estimator; leave --estimator out, or "
         "--adaptive"),
        ("train ngram DATA --k=0.5 --adaptive", "which has no --k; leave --k out, or --adaptive"),
        ("train ctw DATA --budget 10s",
         "--budget is for models that are trained step by step, and ctw is fitted in one go; leave it out, or see its "
         "own settings: octavo train ctw --help"),
        ("train hmm-em DATA --learning_rate 0.1", "--learning-rate is for models that are trained step by step"),
        ("train bag DATA --no-nesterov --budget 3s", "--budget is for models that are trained step by step"),
        ("classify train linear-classifier DATA --budget 3s", "own settings: octavo classify train linear --help"),
    ],
)  # fmt: skip
def test_a_flag_of_other_models_is_refused_with_the_remedy(
    words: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text.txt").write_text("to be or not to be\n" * 20)
    given = words.replace("DATA", str(tmp_path / "text.txt")).split()
    assert main([*given, "--out", str(tmp_path / "run")]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("words", ["train ngram --adaptive --order 3", "train ctw --depth 2"])
def test_a_models_own_flags_are_taken(words: str, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("to be or not to be\n" * 20)
    verb, name, *flags = words.split()
    out = str(tmp_path / "run")
    assert main([verb, name, str(tmp_path / "text.txt"), *flags, "--no-measure", "--out", out]) == 0


def test_help_is_shown_beside_a_flag_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "ctw", "--budget", "10s", "--help"]) == 0
    assert "--depth" in capsys.readouterr().out
