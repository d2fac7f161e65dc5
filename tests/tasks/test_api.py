"""Training, loading, evaluating and generating from Python."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest

import octavo
from octavo import UserError
from octavo.decode import Beam, Greedy
from octavo.scoring.bits_per_byte import NOT_COMPARABLE
from octavo.tasks.run import Run

TEXT = "the quick brown fox jumps over the lazy dog. Café, naïve, ÆØÅ!\n" * 25


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("api") / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def run(text: Path) -> Run:
    return octavo.train("ngram", text, order=3)


def test_the_public_names_are_there_and_no_others() -> None:
    assert all(getattr(octavo, name) is not None for name in octavo.__all__)
    assert dir(octavo) == sorted(octavo.__all__)
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        octavo.trian  # noqa: B018


def test_importing_octavo_does_not_import_torch() -> None:
    code = "import sys, octavo, octavo.cli; print('torch' in sys.modules, 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["False", "False"], done.stderr


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ordr": 3}, r"ngram has no setting 'ordr'; did you mean order\?"),
        ({"tokenizr": "byte"}, r"ngram has no setting 'tokenizr'; did you mean tokenizer\?"),
        ({"sede": 1}, r"ngram has no setting 'sede'; did you mean seed\?"),
        ({"zzz": 1}, "ngram has no setting 'zzz'; it has order, estimator"),
        ({"order": "3"}, "order must be a whole number: order='3'"),
        ({"order": 0}, "order must be at least 1: order=0"),
        ({"estimator": "magic"}, "estimator must be one of kneser-ney, mle"),
        ({"tokenizer": "nonsense"}, "there is no tokenizer named 'nonsense'"),
        ({"preprocess": ["upper"]}, "there is no preprocessing step named 'upper'"),
        ({"preprocess": "lower"}, "preprocess must be a list, each of it a string"),
        ({"errors": "ignore"}, "errors must be one of strict, replace, raw"),
        ({"device": "abacus"}, "there is no kind of device called 'abacus'"),
        ({"device": "meta"}, "device must be auto, cpu, cuda, cuda:N or mps"),
        ({"device": "cuda:77"}, "needs a CUDA GPU"),
        ({"vocab_size": 300}, "the tokenizer byte has no setting 'vocab_size'"),
    ],
)
def test_wrong_settings_are_refused_and_the_near_one_named(
    text: Path, settings: dict[str, object], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        octavo.train("ngram", text, **settings)  # type: ignore[arg-type]


def test_wrong_models_and_settings_of_a_mixture_are_refused(text: Path) -> None:
    with pytest.raises(
        UserError,
        match="there is no model 'transfromer'; models are bag, ngram, ppm, adaptive-ngram, ctw, bigram, nnlm, "
        "rnn, gru, lstm, rnn-attention, mingru, minlstm, lru, rglru, hmm, hmm-em, conv, gpt, local, "
        "linear, synthesizer, retention, gla, mamba2, deltanet, gated-deltanet, mlstm, mix, adaptive-mix",
    ):
        octavo.train("transfromer", text)
    with pytest.raises(UserError, match="mix has no setting 'tokenizer'"):
        octavo.train("mix", text, parts=["a", "b"], tokenizer="byte")


def test_paths_may_be_paths_or_strings(text: Path, tmp_path: Path) -> None:
    import os

    from octavo.text import Byte, save_tokenizer

    save_tokenizer(Byte(), tmp_path / "tokenizer.json")
    made = octavo.train("bag", [text], tokenizer=tmp_path / "tokenizer.json", valid=[text], out=str(tmp_path / "run"))
    assert made.record["corpus"]["valid_source"] == [str(text)]
    assert octavo.load(os.fspath(tmp_path / "run")).identity == octavo.load(tmp_path / "run").identity


def test_a_str_is_text_and_a_path_is_a_file(run: Run, text: Path) -> None:
    file = octavo.evaluate(run, text)
    assert (file.bytes, file.name) == (len(TEXT.encode()), str(text))
    assert octavo.evaluate(run, TEXT).bits == octavo.evaluate(run, TEXT.encode()).bits == file.bits
    assert octavo.evaluate(run, str(text)).bytes == len(str(text))


def test_several_files_are_rows_and_a_total(run: Run, text: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text("the dog")
    both = octavo.evaluate(run, [text, other, other])
    assert [row.name for row in both.rows] == [str(text), str(other), str(other)]
    assert both.bytes == len(TEXT.encode()) + 14
    assert both.bits == math.fsum(row.bits for row in both.rows)


def test_nothing_to_score_is_reported(run: Run, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is nothing to score"):
        octavo.evaluate(run, [])
    with pytest.raises(UserError, match="there is no file or folder"):
        octavo.evaluate(run, tmp_path / "missing.txt")
    assert octavo.evaluate(run, "").bytes == 0
    assert math.isnan(octavo.evaluate(run, "").bits_per_byte)


def test_half_a_surrogate_pair_is_refused_in_words(run: Run) -> None:
    for use in (lambda: octavo.evaluate(run, "a\ud800"), lambda: octavo.generate(run, "a\ud800")):
        with pytest.raises(UserError, match="character 1 is half a surrogate pair"):
            use()


def test_the_same_seed_writes_the_same_and_another_something_else(run: Run) -> None:
    once = octavo.generate(run, "the ", 60, seed=1)
    assert octavo.generate(run, "the ", 60, seed=1) == once
    assert octavo.generate(run, "the ", 60, seed=2) != once


@pytest.mark.parametrize("method", ["sample", "greedy", "beam", Greedy(), Beam(width=2)])
def test_every_method_continues_a_prompt(run: Run, method: object) -> None:
    assert len(octavo.generate(run, "the quick", 10, method).encode()) == 10  # type: ignore[arg-type]


def test_exact_search_is_at_least_as_probable_as_the_others(run: Run) -> None:
    def bits(method: str) -> float:
        said = octavo.generate(run, "the ", 4, method)
        return octavo.evaluate(run, "the " + said).bits

    assert bits("exact") <= min(bits("greedy"), bits("beam")) + 1e-9


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "magic"}, "there is no method 'magic'; methods are sample, greedy, beam, exact"),
        ({"temprature": 1.0}, r"Sample has no setting 'temprature'; did you mean temperature\?"),
        ({"temperature": 0.0}, "temperature must be above 0"),
        ({"temperature": "hot"}, "temperature must be a finite number"),
        ({"method": "beam", "temperature": 1.0}, "Beam has no setting 'temperature'"),
        ({"method": "exact", "max_tokens": 40, "limit": 50}, "exact search may expand at most limit=50"),
        ({"max_tokens": -1}, "max_tokens must be at least 0: max_tokens=-1"),
        ({"method": "exact", "max_tokens": -1}, "max_tokens must be at least 0"),
        ({"seed": -1}, "seed must be from 0"),
        ({"seed": 1 << 63}, "seed must be from 0"),
        ({"method": Greedy(), "width": 3}, "Greedy has its settings already: width"),
    ],
)
def test_wrong_ways_to_generate_are_refused(run: Run, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        octavo.generate(run, **arguments)  # type: ignore[arg-type]


def test_no_tokens_are_no_text(run: Run) -> None:
    assert octavo.generate(run, "the", 0) == ""
    assert octavo.generate(run, "the", 0, "beam") == ""


def test_a_prompt_of_unknown_characters_is_continued(text: Path, run: Run) -> None:
    for tokenizer in ("char", "word", "bpe"):
        size = {"vocab_size": 300} if tokenizer == "bpe" else {}
        other = octavo.train("ngram", text, order=2, tokenizer=tokenizer, measure=False, **size)
        assert octavo.generate(other, "日本 🙂", 5, seed=1)
    assert len(octavo.generate(run, "日本 🙂", 5, "greedy")) > 0


def test_a_prompt_is_preprocessed_like_the_text(text: Path) -> None:
    lowered = octavo.train("ngram", text, order=3, preprocess=["lower"])
    assert octavo.generate(lowered, "THE QU", 8, "greedy") == octavo.generate(lowered, "the qu", 8, "greedy")
    assert lowered.record["result"]["label"] == NOT_COMPARABLE
    assert NOT_COMPARABLE in lowered.summary()
    assert octavo.evaluate(lowered, "THE").label == NOT_COMPARABLE


def test_replaced_bytes_are_labelled_in_the_record(tmp_path: Path) -> None:
    (tmp_path / "junk.txt").write_bytes(b"some text \xff and more of it " * 30)
    replaced = octavo.train("ngram", tmp_path / "junk.txt", order=2, errors="replace")
    assert replaced.record["result"]["label"] == NOT_COMPARABLE
    kept = octavo.train("ngram", tmp_path / "junk.txt", order=2)
    assert kept.record["result"]["label"] == ""
    with pytest.raises(UserError, match=r"byte 10 of .*junk.txt \(0xff\) is not"):
        octavo.train("ngram", tmp_path / "junk.txt", order=2, tokenizer="char")


def test_notebooks_see_escaped_html(run: Run, tmp_path: Path) -> None:
    run = Run(run.model, run.tokenizer, {"corpus": {"name": "<img src=x onerror=alert(1)>"}}, tmp_path / "<b>run")
    shown = run._repr_html_()
    assert "<img" not in shown
    assert "&lt;img src=x" in shown
    assert "&lt;b&gt;run" in shown
    assert "<b>run" in repr(run)  # and plain text is left alone


def test_calling_a_run_gives_its_models_logits(run: Run) -> None:
    import torch

    x_1T = torch.tensor([[run.model.begin, 65, 66]])
    assert torch.equal(run(x_1T), run.model(x_1T))
