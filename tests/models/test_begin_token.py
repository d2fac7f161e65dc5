"""A model opens its sequences with the token that its tokenizer opens them with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import octavo
from octavo.cli import main
from octavo.errors import UserError
from octavo.inspection.doctor import examine
from octavo.inspection.surprisal import surprises
from octavo.io.run_folder import CONFIG
from octavo.text import save_tokenizer
from octavo.text.token_display import BEGIN
from octavo.text.tokenizers.bpe import Bpe
from tokenizer_samples import pretrained_parts

SMALL = {"width": 8, "layers": 1, "heads": 2, "budget": "2steps"}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text and a tokenizer whose begin is its first token."""
    folder = tmp_path_factory.mktemp("begin")
    (folder / "text.txt").write_text("the owl and the pussycat went to sea\n" * 60)
    save_tokenizer(Bpe(pretrained_parts(), begin=0, size=340), folder / "tokenizer.json")
    return folder


@pytest.mark.parametrize("model", ["bag", "ngram", "bigram", "gru", "rnn-attention"])
def test_models_that_begin_with_the_last_token_refuse_another_begin(here: Path, tmp_path: Path, model: str) -> None:
    with pytest.raises(UserError, match=f"opens texts with token 0 of 340, and this {model} with 339; train a gpt"):
        octavo.train(model, here / "text.txt", tokenizer=here / "tokenizer.json", out=tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_a_transformer_takes_the_tokenizers_begin_and_keeps_it(here: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    octavo.train("gpt", here / "text.txt", tokenizer=here / "tokenizer.json", out=out, **SMALL)  # type: ignore[arg-type]
    run = octavo.load(out)
    assert (run.model.begin, run.tokenizer.begin) == (0, 0)
    assert main(["eval", str(out), str(here / "text.txt"), "--prove"]) == 0
    assert {one.name: one.verdict for one in examine(run).findings}["baselines"] == "not applicable"
    octavo.resume(out, budget="4steps")
    assert octavo.load(out).model.begin == 0


def test_another_begin_than_the_tokenizers_is_refused(here: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="leave --begin out"):
        octavo.train("gpt", here / "text.txt", begin=5, **SMALL)  # type: ignore[arg-type]
    run = octavo.train("gpt", here / "text.txt", out=tmp_path / "run", **SMALL)  # type: ignore[arg-type]
    record = json.loads((tmp_path / "run" / CONFIG).read_text())
    record["config"]["begin"] = 7
    (tmp_path / "run" / CONFIG).write_text(json.dumps(record))
    with pytest.raises(UserError, match="begins with token 7, the tokenizer with 256"):
        octavo.load(tmp_path / "run")
    expected = {token for one in surprises(run.model, run.tokenizer, b"x") for token, _ in one.candidates}
    assert "" not in expected
    assert BEGIN in expected  # an untrained model expects the token that it has just read
