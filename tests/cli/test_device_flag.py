"""Every verb that runs a model takes --device, and gives the same result there.

On the CPU the second device is imitated (`other_device`); the tests marked gpu have a real one.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch

import octavo
from image_files import idx_folder
from octavo.cli import main
from octavo.core import device_of
from octavo.errors import UserError
from octavo.experiments.cell import Cell
from octavo.experiments.compare import measure
from octavo.io.run_folder import read_record
from other_device import other_device
from public_api import write_folder

VERBS: dict[str, list[str]] = {  # besides --device and --json
    "eval a file": ["eval", "runs/gru", "other.txt"],
    "eval held out": ["eval", "runs/gpt"],
    "eval counts": ["eval", "runs/kn3", "other.txt"],
    "eval adaptive": ["eval", "runs/gru", "line.txt", "--adaptive"],
    "eval translator": ["eval", "runs/pairs"],
    "eval with proof": ["eval", "runs/gru", "line.txt", "--prove"],
    "generate": ["generate", "runs/gpt", "--prompt", "to be", "--max-tokens", "12"],
    "generate greedily": ["generate", "runs/gru", "--max-tokens", "12", "--method", "greedy"],
    "generate by beam": ["generate", "runs/gru", "--max-tokens", "6", "--method", "beam"],
    "generate with a draft": ["generate", "runs/gpt", "--max-tokens", "12", "--draft", "runs/gru"],
    "inspect": ["inspect", "runs/gpt", "--text", "to be or not"],
    "inspect gates": ["inspect", "runs/gru", "--text", "to be or not", "--back", "3"],
    "inspect counts": ["inspect", "runs/kn3", "--text", "to be or not"],
    "inspect translator": ["inspect", "runs/pairs", "--text", "ab"],
    "doctor": ["doctor", "runs/gru", "--quick"],
    "doctor of a transformer": ["doctor", "runs/gpt", "--quick"],
    "doctor of a translator": ["doctor", "runs/pairs", "--quick"],
    "doctor of a BERT": ["doctor", "runs/bert", "--quick"],
    "classify eval": ["classify", "eval", "runs/moods"],
    "classify predict": ["classify", "predict", "runs/moods", "other.txt"],
    "classify explain": ["classify", "explain", "runs/moods", "--text", "a fine day"],
    "explain a deep averaging network": ["classify", "explain", "runs/dan", "--text", "a fine day"],
    "classify by a head": ["classify", "eval", "runs/head"],
    "explain a head": ["classify", "explain", "runs/head", "--text", "a fine day"],
    "images": ["eval", "runs/vit"],
    "inspect an image": ["inspect", "runs/vit", "--image", "0"],
    "tag eval": ["tag", "eval", "runs/tags"],
    "tag predict": ["tag", "predict", "runs/tags", "sentences.txt"],
    "translate": ["translate", "runs/pairs", "--text", "ab"],
    "fill": ["fill", "runs/bert", "to [MASK] or not"],
    "fill without a mask": ["fill", "runs/bert", "to be or not"],
    "embed": ["embed", "runs/bert", "sentences.txt"],
    "answer": ["answer", "runs/facts", "Ada Ash", "--no-ask"],
    "domains": ["domains", "runs/gru", "--texts", "book.txt", "other.txt", "--bytes", "300"],
}
TIMES = ("seconds", "device", "page", "tokens_per_second")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Small runs of every task, in the current folder."""
    place, before = tmp_path_factory.mktemp("devices"), os.getcwd()
    os.chdir(place)
    try:
        write_folder(place)
        few = {"budget": "6steps", "evaluations": 2, "device": "cpu", "measure": False}
        octavo.train("dan", "texts/moods.tsv", out="runs/dan", width=8, batch_size=8, **few)
        octavo.train("head", "texts/moods.tsv", out="runs/head", base="runs/gru", batch_size=8, **few)
        idx_folder(place / "pictures")
        octavo.train("vit", "pictures", out="runs/vit", width=16, layers=1, heads=2, patch=4, batch_size=8, **few)
        (place / "sentences.txt").write_text("the dog sees a cat\na cat\n")
        (place / "line.txt").write_text("to be or not to be, that is the question\n" * 3)
        yield place
    finally:
        os.chdir(before)


def printed(words: list[str], device: str, capsys: pytest.CaptureFixture[str]) -> list[Any]:
    """What a verb prints as JSON on a device; one value a line."""
    extra = ["--out", f"domains-{device}"] if words[0] == "domains" else []
    capsys.readouterr()
    assert main([*words, *extra, "--device", device, "--json"]) == 0, capsys.readouterr().err
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def assert_alike(a: Any, b: Any, tolerance: float) -> None:
    """The same JSON, but for times and places, and for numbers that differ a little."""
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a.keys() - {*TIMES}:
            assert_alike(a[key], b[key], tolerance)
    elif isinstance(a, list):
        assert len(a) == len(b)
        for one, other in zip(a, b, strict=True):
            assert_alike(one, other, tolerance)
    elif isinstance(a, float) and isinstance(b, float):
        assert math.isclose(a, b, rel_tol=tolerance, abs_tol=tolerance)
    else:
        assert a == b


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_gives_the_same_on_another_device(
    name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = printed(VERBS[name], "cpu", capsys)
    with other_device():
        assert_alike(printed(VERBS[name], "mps", capsys), here, 1e-3)


@pytest.mark.gpu
@pytest.mark.parametrize("name", VERBS)
def test_every_verb_runs_on_a_gpu(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(VERBS[name], "cuda", capsys)


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_refuses_a_device_that_is_not_here(
    name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    extra = ["--out", "refused"] if name == "domains" else []
    with patch("torch.cuda.is_available", return_value=False):
        assert main([*VERBS[name], *extra, "--device", "cuda:7"]) == 2
    assert capsys.readouterr().err.startswith("octavo: device cuda:7 needs a CUDA GPU: 0 are here; try --device cpu")


@pytest.mark.parametrize("name", ["gru", "gpt", "kn3"])
def test_an_archive_is_restored_where_it_was_made_and_a_portable_one_anywhere(
    name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (folder / "other.txt").read_bytes()
    run = f"runs/{name}"
    with other_device():
        assert main(["compress", run, "other.txt", "there.oct", "--device", "mps", "--force"]) == 0
        assert main(["decompress", run, "there.oct", "out.txt", "--force"]) == 0  # auto: where it was made
        assert (folder / "out.txt").read_bytes() == text
        assert main(["decompress", run, "there.oct", "out.txt", "--device", "cpu", "--force"]) == 2
        assert "octavo: the archive was made on mps (Apple, torch" in capsys.readouterr().err
    if torch.backends.mps.is_available():
        return
    assert main(["decompress", run, "there.oct", "out.txt", "--force"]) == 2
    assert "restore it with --device mps, or compress with --portable" in capsys.readouterr().err
    assert main(["compress", run, "other.txt", "anywhere.oct", "--portable", "--force"]) == 0
    with other_device():
        assert main(["decompress", run, "anywhere.oct", "out.txt", "--device", "mps", "--force"]) == 0
        assert main(["compress", run, "other.txt", "no.oct", "--portable", "--device", "mps"]) == 2
    assert (folder / "out.txt").read_bytes() == text
    assert "a portable archive is made on the CPU: device=mps" in capsys.readouterr().err


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["gru", "gpt", "kn3"])
def test_a_gpus_archive_is_restored_there_and_a_portable_one_on_both(
    name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, run = (folder / "other.txt").read_bytes(), octavo.load(f"runs/{name}")
    archive = octavo.compress(run, data, device="cuda")
    assert octavo.decompress(run, archive) == octavo.decompress(run, archive, device="cuda:0") == data
    with pytest.raises(UserError, match="the archive was made on cuda"):
        octavo.decompress(run, archive, device="cpu")
    anywhere = octavo.compress(run, data, portable=True)
    assert octavo.decompress(run, anywhere, device="cuda") == octavo.decompress(run, anywhere, device="cpu") == data


def test_results_say_where_they_were_computed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with other_device():
        for name in ("eval a file", "generate"):
            assert printed(VERBS[name], "mps", capsys)[0]["device"].startswith("mps")
    assert printed(VERBS["eval a file"], "auto", capsys)[0]["device"] == "cpu"


def test_training_is_resumed_on_the_device_that_is_named(folder: Path) -> None:
    octavo.train("gru", "book.txt", out="runs/moved", width=8, layers=1, budget="4steps", evaluations=1, device="cpu",
                 batch_size=4, sequence_length=8, measure=False)  # fmt: skip
    with patch("octavo.tasks.training_run.pick_device", wraps=octavo.tasks.training_run.pick_device) as picked:
        octavo.resume("runs/moved", budget="6steps", measure=False, device="auto")
    assert picked.call_args.args == ("auto",)
    assert read_record(Path("runs/moved"))["training"]["device"] == "auto"
    assert main(["resume", "runs/moved", "--budget", "8steps", "--device", "cpu", "--no-measure"]) == 0
    assert read_record(Path("runs/moved"))["training"]["device"] == "cpu"


@pytest.mark.gpu
def test_training_goes_on_from_a_gpu_on_the_cpu(folder: Path) -> None:
    octavo.train("gru", "book.txt", out="runs/crossed", width=8, layers=1, budget="4steps", evaluations=1,
                 device="cuda:0", batch_size=4, sequence_length=8, measure=False)  # fmt: skip
    octavo.resume("runs/crossed", budget="8steps", measure=False, device="cpu")
    assert read_record(Path("runs/crossed"))["training"]["steps"] == 8


def test_a_comparison_measures_a_mixture_on_its_device(folder: Path) -> None:
    settings: dict[str, Any] = {"models": ["kn3", "gru", "mix"], "budget": "2steps", "prove": False}
    here = octavo.compare(Path("book.txt"), out="compared", device="cpu", **settings)["mix"]
    cell = Cell(**json.loads(Path("compared/cells/mix.json").read_text())["cell"])
    assert "device" not in cell.options
    devices, score = [], measure.score_run

    def scoring(run: Any, *rest: Any) -> Any:
        devices.append(device_of(run.model).type)
        return score(run, *rest)

    with patch.object(measure, "score_run", scoring):
        measure.measure_candidate(cell, Path("compared"))
        with other_device():
            there = replace(cell, options=cell.options | {"device": "mps"})
            row = measure.measure_candidate(there, Path("compared"))["row"]
    assert devices == ["cpu", "mps"]
    assert row["bits_per_byte"] == pytest.approx(here.bits_per_byte, rel=1e-4)
