"""The demo: the first thing a newcomer sees."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
import zlib
from pathlib import Path

import pytest
import torch

from octavo import api
from octavo.cli import main
from octavo.cli.demo import MIXED, RECIPES, compressors, one_thread
from octavo.run import load
from test_report import Page, sentences


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "rain.txt"
    path.write_text(sentences(200), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def demo(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a demo that was run once; what it printed is in `stdout` and `stderr` beside it."""
    folder = tmp_path_factory.mktemp("demo")
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        assert main(["demo", "--corpus", str(corpus), "--out", str(folder / "runs")]) == 0
    (folder / "stdout").write_text(out.getvalue(), encoding="utf-8")
    (folder / "stderr").write_text(err.getvalue(), encoding="utf-8")
    return folder


@pytest.fixture
def printed(demo: Path) -> str:
    return (demo / "stdout").read_text(encoding="utf-8")


def rows_of(printed: str) -> list[tuple[str, str]]:
    """The model and the bits per byte of each row."""
    return re.findall(r"^(\S.*?)  +(\d\.\d{4}|infinite)\b", printed, re.MULTILINE)


def test_it_ends_with_the_path_of_a_whole_page(demo: Path, printed: str) -> None:
    path = printed.rstrip("\n").splitlines()[-1].split(": ")[-1]
    assert Path(path) == demo / "runs" / "report.html"
    page = Path(path).read_text(encoding="utf-8")
    parsed = Page(page)
    assert not re.search(r"https?://|<script|src=", page)
    assert len(page) < 300_000
    for link in (value for name, value in parsed.attributes if name == "href"):
        assert (demo / "runs" / link).is_file()


def test_the_table_is_sorted_and_holds_what_the_runs_measured(demo: Path, printed: str) -> None:
    rows = rows_of(printed)
    assert len(rows) == len(RECIPES) + 1 + 4  # the mixture, and the compressors
    bits = [float("inf") if number == "infinite" else float(number) for _, number in rows]
    assert bits == sorted(bits)
    told = {number for _, number in rows}
    for name in (*(recipe.name for recipe in RECIPES), "mix"):
        measured = load(demo / "runs" / name).record["result"]["bits_per_byte"]
        assert (f"{measured:.4f}" if measured is not None else "infinite") in told
    (best,) = [line for line in printed.splitlines() if " * " in line]
    assert f"{min(bits):.4f}" in best


def test_maximum_likelihood_is_shown_as_infinite_and_explained(demo: Path, printed: str) -> None:
    impossible = load(demo / "runs" / "mle3").record["result"]["impossible"]
    assert impossible > 0
    assert f"probability zero\nto {impossible:,} of " in printed
    assert rows_of(printed)[-1] == ("3-gram of bytes, maximum likelihood", "infinite")


def test_the_best_model_is_proved(printed: str) -> None:
    (figures,) = re.findall(r"^Proof: .*? claims ([\d,]+) bytes.*?([\d,]+) bytes \(", printed, re.DOTALL | re.MULTILINE)
    claimed, archive = (int(figure.replace(",", "")) for figure in figures)
    assert claimed <= archive <= claimed * 1.05 + 64
    assert "restored every byte" in printed


def test_no_line_is_wider_than_a_terminal(printed: str) -> None:
    assert [line for line in printed.splitlines() if len(line.rstrip()) > 80 and "runs/" not in line] == []


def test_what_it_says_to_type_next_works(printed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "note.txt").write_text("A dog sat by the door.", encoding="utf-8")
    commands = [line.strip() for line in printed.splitlines() if line.startswith("  octavo ")]
    assert len(commands) == 3
    for command in commands:
        words = [str(tmp_path / "note.txt") if word == "FILE" else word for word in shlex.split(command, comments=True)]
        assert main(words[1:]) == 0
        assert capsys.readouterr().out


def test_progress_goes_to_standard_error_and_results_to_standard_output(demo: Path, printed: str) -> None:
    errors = (demo / "stderr").read_text(encoding="utf-8")
    for recipe in RECIPES:
        assert f": {recipe.name}\n" in errors
    assert "training" not in printed.split("\n\n")[0]
    assert "bits/byte" not in errors


def test_json_is_one_value_with_the_same_runs(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--corpus", str(corpus), "--out", str(tmp_path / "runs"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["page"] == str(tmp_path / "runs" / "report.html")
    assert told["proof"]["restored"] is True
    assert {Path(model["run"]).name for model in told["models"]} == {*(recipe.name for recipe in RECIPES), "mix"}
    assert told["models"][-1]["bits_per_byte"] is None
    assert all(peer["bits_per_byte"] > 0 for peer in told["compressors"])


def test_the_number_of_threads_is_as_it_was() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_the_mixture_is_of_trained_runs() -> None:
    assert set(MIXED) <= {recipe.name for recipe in RECIPES}


def test_compressors_are_measured_on_the_held_out_text_and_labelled() -> None:
    train, valid = sentences(300).encode(), sentences(30, seed=0).encode()  # the one begins with the other
    peers = {peer.name: peer.bits_per_byte for peer in compressors(train, valid)}
    assert sum("without the training text" in name for name in peers) == 3
    assert 8 * len(zlib.compress(valid, 9)) / len(valid) == peers["zlib, without the training text"]
    assert peers["xz, after the training text"] < peers["xz, without the training text"] / 4


def test_a_run_is_not_turned_into_a_demo(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    api.train("bag", corpus, out=tmp_path / "bag")
    assert main(["demo", "--corpus", str(corpus), "--out", str(tmp_path / "bag")]) == 2
    assert "is itself a run" in capsys.readouterr().err
    assert not (tmp_path / "bag" / "kn7").exists()


@pytest.mark.parametrize("source", ["-", "no-such-text"])
def test_a_text_that_cannot_be_read_again_and_again_is_refused(
    source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--corpus", source, "--out", str(tmp_path / "runs")]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
    assert not (tmp_path / "runs").exists()
