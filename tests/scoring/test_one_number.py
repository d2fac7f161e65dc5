"""One model and one text have one score: wherever it is asked for, it is the same to the last digit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import octavo
from octavo.cli import main
from octavo.inspection.surprisal import read
from octavo.scoring.bits_per_byte import score_bytes
from octavo.tasks.corpus import held_out
from octavo.tasks.language_page import annotate

TEXT = "".join(f"{i} goes up the hill, {i * i % 97} comes down again, {i % 7} stays.\n" for i in range(700))
SMALL: dict[str, Any] = {"width": 16, "layers": 2, "budget": "3steps", "device": "cpu"}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "bag": ("bag", {}), "7-gram": ("ngram", {"order": 7}), "gru": ("gru", SMALL),
    "transformer": ("gpt", SMALL | {"heads": 2, "context": 16}),
    "absolute positions": ("gpt", SMALL | {"heads": 2, "context": 16, "positions": "learned"}),
    "linear attention": ("gpt", SMALL | {"heads": 2, "attention": "linear"}),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_training_evaluation_proof_bytes_and_reading_agree(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "text.txt"
    source.write_text(TEXT, encoding="utf-8")
    model, settings = MODELS[name]
    run = octavo.train(model, source, out=tmp_path / "run", **settings)
    trained = run.record["result"]["bits_per_byte"]
    loaded = octavo.load(tmp_path / "run")
    capsys.readouterr()
    assert main(["eval", str(tmp_path / "run"), "--prove", "--json"]) == 0
    proved = json.loads(capsys.readouterr().out)
    _, text = held_out(loaded)
    score, bits_N = score_bytes(loaded.model, loaded.tokenizer, text, "text")
    assert trained == proved["bits_per_byte"] == score.bits_per_byte
    assert proved["proof"][0]["claimed_bytes"] == score.bits / 8
    assert proved["proof"][0]["restored"]
    assert float(bits_N.sum()) / text.size == pytest.approx(trained, rel=1e-12)
    data = text.read()
    coloured = sum(piece.bits for piece in annotate(loaded.model, loaded.tokenizer, data))
    assert coloured / len(data) == pytest.approx(trained, rel=1e-12)
    distributions = read(loaded.model, loaded.tokenizer.encode(data).tolist()).bits_N.sum().item()
    assert f"{distributions / len(data):.4f}" == f"{trained:.4f}"  # these are of single precision, the others' sums not
    assert distributions / len(data) == pytest.approx(trained, rel=1e-6)
