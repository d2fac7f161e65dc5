"""octavo compare: every model on one text, stored, ranked and proved."""

from __future__ import annotations

import contextlib
import html
import io
import json
import math
import os
import pty
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import octavo
from cli_processes import Command
from html_pages import Page, sentences
from octavo.cli import main
from octavo.errors import UserError
from octavo.experiments.cell import Cell
from octavo.experiments.compare import CompareConfig, CompareRow, Comparison, read_comparison
from octavo.experiments.compare.compressors import COMPRESSORS, best_way, why_missing
from octavo.experiments.compare.config import candidates, choose, parts_of_mixture, place_of
from octavo.experiments.compare.intervals import block_count
from octavo.experiments.compare.measure import score_run
from octavo.experiments.compare.proof import describe_proof, prove_best
from octavo.experiments.progress import Progress, Stream, without_escapes
from octavo.experiments.table import keys_of, table_text
from octavo.models import GRU, MODELS, ModelSpec, find_spec, preset
from octavo.models.recurrent import RecurrentConfig
from octavo.scoring.bits_per_byte import ByteCosts
from octavo.studio import ModelCache, Studio
from octavo.studio.routes.runs import RunRows
from octavo.studio.server.scheduler import FairLock, Ticket
from octavo.tasks import api
from octavo.text import Word, open_corpus, text_in_memory
from octavo.text.tokenizers.token_bytes import Tokens

STEPS = "2steps"
SOME = ("bag", "kn3", "kn7", "words3", "bigram", "rnn", "gru", "gpt", "mix", "zlib", "bz2", "xz", "zstd")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "rain.txt"
    path.write_text(sentences(300), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def whole(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Comparison, str, str]:
    """Most of the candidates, compared once from the command line, and what that printed."""
    folder = tmp_path_factory.mktemp("compare") / "out"
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        assert main(["compare", str(corpus), "--models", ",".join(SOME), "--budget", STEPS, "--out", str(folder)]) == 0
    return read_comparison(folder), out.getvalue(), err.getvalue()


def run_cli(*words: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(["compare", *words])
    return code, out.getvalue(), err.getvalue()


# ---------------------------------------------------------------------- all candidates


def test_every_candidate_has_a_row_and_none_failed(whole: tuple[Comparison, str, str]) -> None:
    comparison, _, errors = whole
    assert {row.model for row in comparison} == set(SOME)
    assert [row.model for row in comparison if row.error] == []
    cells = len(SOME) + 1  # and the proof
    assert errors.count(f" of {cells}: ") == cells
    assert "step" not in errors.replace("steps", "")  # the loop's own lines are not passed on


def test_rows_are_sorted_and_the_best_model_is_marked_once(whole: tuple[Comparison, str, str]) -> None:
    comparison, printed, _ = whole
    bits = comparison.column("bits_per_byte")
    assert bits == sorted(bits)
    assert [row.model for row in comparison if row.best] == [
        next(row.model for row in comparison if row.family != "compressor")
    ]
    (marked,) = [line for line in printed.splitlines() if re.search(r"\d   \*", line)]
    assert comparison.best is not None
    assert marked.startswith(comparison.best.model)


def test_all_are_scored_on_the_same_bytes(whole: tuple[Comparison, str, str]) -> None:
    comparison, _, _ = whole
    assert comparison.folder is not None
    size = comparison.corpus["scored"]["bytes"]
    for row in comparison:
        if row.family == "compressor":
            continue
        assert row.byte_costs is not None
        bits_N = np.load(comparison.folder / row.byte_costs)
        assert len(bits_N) == size
        assert float(bits_N.sum(dtype=np.float64)) / size == pytest.approx(row.bits_per_byte, rel=1e-3)


def test_the_rows_tell_what_the_runs_cost(whole: tuple[Comparison, str, str]) -> None:
    comparison, _, _ = whole
    assert comparison.folder is not None
    for row in (row for row in comparison if row.trained):
        run = octavo.load(comparison.folder / str(row.run))
        assert run.record["result"]["bits_per_byte"] == pytest.approx(row.bits_per_byte)
        assert row.seconds == run.record["train_seconds"]
        assert row.bytes == sum((comparison.folder / str(row.run) / name).stat().st_size
                                for name in ("model.safetensors", "tokenizer.json"))  # fmt: skip
        assert (comparison.folder / str(row.run) / "report.html").is_file()
        assert (row.score_rate or 0) > 0
        assert (row.generation_rate or 0) > 0
    rnn = octavo.load(comparison.folder / "rnn")
    weights = 2 * 2 * 256 * 256 + 257 * 256  # two matrices in each of two layers, and the table of the vocabulary
    assert comparison["rnn"].flops == 3 * 2 * weights * rnn.record["train_tokens"]
    assert comparison["kn3"].flops == comparison["bag"].flops == 0
    assert comparison["kn3"].parameters == sum(octavo.load(comparison.folder / "kn3").model.sizes())
    assert comparison["gru"].parameters == sum(
        p.numel() for p in octavo.load(comparison.folder / "gru").model.parameters()
    )
    if sys.platform == "linux":
        assert (comparison["gru"].memory or 0) > 4 * (comparison["gru"].parameters or 0)


def test_the_winner_is_proved_by_compression(whole: tuple[Comparison, str, str]) -> None:
    comparison, printed, _ = whole
    proof, best = comparison.proof, comparison.best
    assert proof is not None
    assert best is not None
    assert proof["model"] == best.model
    assert proof["restored"] is True
    assert proof["claimed_bytes"] == pytest.approx(best.bits_per_byte * comparison.corpus["scored"]["bytes"] / 8)
    assert proof["archive_bytes"] <= proof["claimed_bytes"] * 1.05 + 64
    assert (proof["bytes"], proof["held_out_bytes"]) == (comparison.corpus["scored"]["bytes"],) * 2
    assert "decompressing gave back every byte." in " ".join(printed.split())


class Killed(Progress):
    """Is killed when the proof begins."""

    def start_cell(self, cell: Any, number: int, count: int, left: float | None, rest: float = 0.0) -> None:
        if cell.work == "proof":
            raise SystemExit(137)


def test_killed_during_the_proof_the_user_has_the_table_and_the_page(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = (str(corpus), "--models", "bag,kn3", "--out", str(tmp_path / "out"))
    monkeypatch.setattr("octavo.experiments.compare.run.default_progress", lambda: Killed(io.StringIO()))
    code, printed, _ = run_cli(*words)
    assert code == 137
    assert "kn3" in printed
    assert str(tmp_path / "out" / "report.html") in printed
    before = read_comparison(tmp_path / "out")
    assert before.proof is None
    assert before.advice
    assert "not proved by compression yet" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    monkeypatch.undo()
    code, printed, _ = run_cli(*words)
    assert code == 0
    after = read_comparison(tmp_path / "out")
    assert after.rows == before.rows
    assert after.proof is not None
    assert "Proof: By its score kn3 needs" in printed
    assert "gave back every byte" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


def test_the_proof_of_a_few_bytes_says_how_many_more_they_became_and_gives_no_percentage() -> None:
    proof = {"model": "kn3", "claimed_bytes": 2.4, "archive_bytes": 32, "difference": 12.3, "restored": True}
    assert "needs 2 bytes for the held-out text. octavo compressed it into 32 bytes (+30, header included)" in (
        describe_proof(proof)
    )
    longer = describe_proof(proof | {"claimed_bytes": 2923.2, "archive_bytes": 2970, "difference": 0.016})
    assert "into 2,970 bytes (+47, +1.60%, header included), and decompressing gave back every byte." in longer


def test_a_mixture_of_too_little_text_says_so_and_not_that_models_are_missing(tmp_path: Path) -> None:
    (tmp_path / "line.txt").write_text("hello world\n", encoding="utf-8")
    settings = {"models": ["kn3", "gru", "mix"], "budget": "1steps", "prove": False}
    found = octavo.compare(tmp_path / "line.txt", out=tmp_path / "out", **settings)
    error = found["mix"].error or ""
    assert "the training text is too short: gru could not be measured; give more text" in error
    assert "--models" not in error


def test_rows_of_a_comparison_are_explained_where_they_are_behind(corpus: Path, tmp_path: Path) -> None:
    words = (str(corpus), "--models", "bag,kn3", "--no-prove", "--out", str(tmp_path / "out"))
    assert "behind: bits per byte more than the row above." in " ".join(run_cli(*words)[1].split())


def test_the_proof_can_be_left_out(corpus: Path, tmp_path: Path) -> None:
    words = (str(corpus), "--models", "bag", "--no-prove", "--out", str(tmp_path / "out"))
    code, printed, errors = run_cli(*words)
    assert (code, "Proof" in printed) == (0, False)
    assert "1 of 1: bag" in errors
    assert "(--no-prove)" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert read_comparison(tmp_path / "out").command.endswith(f"--no-prove --out {tmp_path / 'out'}")


def test_the_proof_of_a_long_text_is_bounded_and_says_what_it_covers(tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text(sentences(8000), encoding="utf-8")
    progress = Progress(io.StringIO())
    found = octavo.compare(tmp_path / "long.txt", models="bag", out=tmp_path / "out", progress=progress)
    cell = json.loads((tmp_path / "out" / "cells" / "proof-bag.json").read_text())["cell"]
    before = sum(seconds for stage, seconds in found.seconds.items() if stage != "proof")
    assert cell["options"]["seconds"] == pytest.approx(0.1 * before, rel=0.5, abs=0.06)  # of tenths
    hurried = Cell(**cell | {"options": cell["options"] | {"seconds": 0.0}})
    proof = prove_best(hurried, tmp_path / "out")["proof"]
    assert (proof["bytes"], proof["held_out_bytes"]) == (10_000, found.corpus["valid"]["bytes"])
    assert proof["bytes"] < proof["held_out_bytes"]
    assert proof["restored"]
    assert proof["archive_bytes"] == pytest.approx(proof["claimed_bytes"], rel=1e-3, abs=64)
    words = describe_proof(proof)
    assert f"for the first 10,000 of the {proof['held_out_bytes']:,} bytes of the held-out text" in words
    assert "10 % of the comparison's time, here 0 s, and covers at least 10,000 bytes" in words


def test_every_output_gives_one_count_of_parameters(
    whole: tuple[Comparison, str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    comparison, printed, _ = whole
    folder = comparison.folder
    assert folder is not None

    def said(*words: str) -> str:
        assert main(list(words)) == 0
        return capsys.readouterr().out

    listed = {Path(one["run"]).name: one["parameters"] for one in json.loads(said("list", str(folder), "--json"))}
    table, page = said("list", str(folder)), (folder / "report.html").read_text(encoding="utf-8")
    studio = Studio(ModelCache(folder, device="cpu"))
    rows = {row["run"]: row["parameters"] for row in RunRows(studio).all(Ticket(FairLock()))}
    studio.close()
    for row in (row for row in comparison if row.trained):
        path, count = str(folder / str(row.run)), row.parameters
        words = f"{count:,}"
        assert listed[row.model] == rows[row.model] == count
        assert json.loads(said("eval", path, "--json"))["parameters"] == count
        assert json.loads(said("inspect", path, "--json"))["parameters"] == count
        assert json.loads(said("cost", path, "--no-measure", "--json"))["parameters"] == count
        assert all(words in text for text in (printed, table, page))
        assert f"model: {words} parameters" in said("eval", path)
        assert f"parameters     {words}\n" in said("inspect", path)
        assert f"It has {words} parameters: " in (Path(path) / "report.html").read_text(encoding="utf-8")
        assert f": {words} parameters, " in said("cost", path, "--no-measure")
    mix = comparison["mix"]
    parts = sum(comparison[name].parameters or 0 for name in ("kn7", "rnn", "gru", "gpt") if name in mix.title)
    weights = octavo.load(folder / "mix").model.logw_GI.numel()
    assert mix.parameters == parts + weights  # of a mixture, its parts and its own weights


def test_the_page_tells_settings_and_its_command_to_train_longer_works_when_pasted(
    whole: tuple[Comparison, str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    comparison, _, _ = whole
    assert comparison.folder is not None
    page = html.unescape((comparison.folder / "report.html").read_text(encoding="utf-8"))
    settings = page[page.index(">Settings<") : page.index("To train one of them 10 times as long")]
    rnn = octavo.load(comparison.folder / "rnn")
    for words in (
        "2 layers of 256",
        "byte, 257",
        "the last 6 tokens",
        f"{rnn.record['train_tokens']:,}, ",
        f"matrices {rnn.record['training']['optimizer']['muon_learning_rate']:g} (muon)",
    ):
        assert words in settings
    (command,) = re.findall(r"^octavo train rnn .*$", page, re.MULTILINE)
    assert main(shlex.split(command)[1:]) == 0
    assert "bits per byte" in capsys.readouterr().out
    longer = octavo.load(f"{comparison.folder}-longer/rnn")
    assert longer.record["training"]["steps"] == 20  # ten times two
    assert longer.model.config == rnn.model.config
    assert longer.record["corpus"] == rnn.record["corpus"]


def test_training_tells_the_count_too(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (("bag",), ("ngram", "--order", "3"), ("rnn", "--width", "8", "--budget", "1steps")):
        flags = ["train", words[0], str(corpus), *words[1:], "--tokenizer", "byte", "--out", str(tmp_path / words[0])]
        assert main([*flags, "--json"]) == 0
        count = json.loads(capsys.readouterr().out)["parameters"]
        assert main(["inspect", str(tmp_path / words[0]), "--json"]) == 0
        assert count == json.loads(capsys.readouterr().out)["parameters"]
    assert main(["train", "bag", str(corpus), "--tokenizer", "byte", "--out", str(tmp_path / "again")]) == 0
    assert "\n257 parameters, trained on " in capsys.readouterr().out


def test_it_says_where_the_page_is_with_the_figures_beside_it(whole: tuple[Comparison, str, str]) -> None:
    comparison, printed, _ = whole
    assert comparison.folder is not None
    (line,) = (line for line in printed.splitlines() if line.startswith("The page with figures"))
    page = Path(line.split(": ")[-1])
    assert page == comparison.folder / "report.html"
    Page(page.read_text(encoding="utf-8"))
    assert (comparison.folder / "comparison.csv").read_text(encoding="utf-8") == comparison.to_csv()
    for sentence in comparison.advice:
        assert sentence in " ".join(printed.split())


def test_every_stage_is_timed(whole: tuple[Comparison, str, str]) -> None:
    seconds = whole[0].seconds
    assert set(seconds) == {"training", "scoring", "generation", "compressors", "proof", "page"}
    assert all(value > 0 for value in seconds.values())


def test_the_parts_of_the_mixture_are_named_and_were_chosen_by_validation_chunks(
    whole: tuple[Comparison, str, str],
) -> None:
    comparison, _, _ = whole
    assert comparison.folder is not None

    neural = [row.model for row in comparison if row.family in ("recurrent", "attention")]
    training = {name: octavo.load(comparison.folder / name).record["training"] for name in neural}
    first, second = sorted(training, key=lambda name: training[name]["held_out_bits_per_byte"])[:2]
    assert comparison["mix"].title == f"mixture of kn7, {first} and {second}"
    mixed = octavo.load(comparison.folder / "mix").record["mixed"]
    assert [part["run"] for part in mixed] == ["kn7", first, second]


def test_what_it_says_to_type_next_works(whole: tuple[Comparison, str, str], corpus: Path) -> None:
    commands = [line.split() for line in whole[1].splitlines() if line.startswith("  octavo ")]
    assert len(commands) == 2
    for command in commands:
        words = [str(corpus) if word == "FILE" else "5" if word == "300" else word for word in command[1:]]
        with contextlib.redirect_stdout(io.StringIO()) as out:
            assert main([word for word in words if word != "--prove"]) == 0
        assert out.getvalue()


def test_without_names_all_candidates_are_compared_and_octavo_can_train_each_of_them() -> None:
    families: dict[str, list[str]] = {}
    for one in choose((), candidates()):
        families.setdefault(one.family, []).append(one.name)
    assert families == {
        "counts": ["bag", "kn3", "kn5", "kn7", "words3", "kn8-adaptive", "bigram"],
        "recurrent": ["rnn", "gru", "lstm", "rnn-attention", "mingru"],
        "attention": ["gpt", "local", "linear", "synthesizer"],
        "mixture": ["mix", "cm-adaptive", "mix-adaptive"],
        "compressor": [name for name in COMPRESSORS if not why_missing(name)],
    }  # fmt: skip
    for one in (one for one in candidates().values() if one.family != "compressor"):
        model, usual = preset(one.model)
        assert set(one.settings) <= {*(field.name for field in fields(usual)), "tokenizer"}
        assert one.by_gradient == find_spec(model).trained_by_gradient


class Foreign(GRU):
    """A model of another package."""


def test_a_model_of_another_package_is_compared_without_a_change_here(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = ModelSpec("foreign", "a foreign network", "for this test", "wavelet", Foreign, RecurrentConfig)
    monkeypatch.setitem(MODELS, "foreign", spec)
    quiet = Progress(io.StringIO())
    found = octavo.compare(corpus, models=["kn3", "wavelet", "mix"], budget=STEPS, out=tmp_path, progress=quiet)
    assert found.failed == []
    assert (found["foreign"].title, found["foreign"].family) == ("a foreign network", "wavelet")
    assert found["mix"].title == "mixture of kn3 and foreign"
    assert "wavelet" in (tmp_path / "report.html").read_text(encoding="utf-8")


# ---------------------------------------------------------------------- a frame


def test_the_result_is_like_a_frame(whole: tuple[Comparison, str, str]) -> None:
    comparison, _, _ = whole
    assert len(comparison) == len(list(comparison)) == len(SOME)
    assert comparison["gru"].title == "GRU"
    assert "gru" in comparison
    assert comparison.column("model")[0] == comparison.rows[0].model
    lines = comparison.to_csv().splitlines()
    assert lines[0] == ",".join(keys_of(CompareRow))
    assert len(lines) == len(comparison) + 1
    assert "<table" in comparison._repr_html_()
    with pytest.raises(UserError, match="there is no row 'gruu'; rows are "):
        comparison["gruu"]
    with pytest.raises(UserError, match="there is no column 'bits'; columns are model, title"):
        comparison.column("bits")


def test_pandas_gets_the_same_rows(whole: tuple[Comparison, str, str]) -> None:
    pytest.importorskip("pandas", reason="needs pandas to make a data frame: pip install pandas")
    frame = whole[0].to_pandas()
    assert list(frame.columns) == list(keys_of(CompareRow))
    assert frame["bits_per_byte"].tolist() == whole[0].column("bits_per_byte")


def test_rows_and_comparisons_survive_json() -> None:
    rows = (CompareRow("a", "A", "counts", 2.0, adaptive=True, low=1.9, high=2.1, interval="over 3 seeds", seconds=1.5,
                       bytes=7),
            CompareRow("b", "B", "counts", math.inf, impossible=3),
            CompareRow("c", "C", "attention", error="no"))  # fmt: skip
    one = Comparison(rows, {"name": "x"}, advice=("Take a.",))
    record = json.loads(json.dumps(one.to_json(), allow_nan=False))
    assert [row["bits_per_byte"] for row in record["rows"]] == [2.0, None, None]
    assert Comparison.of(record) == one


def test_rows_that_were_stored_before_they_said_whether_they_are_adaptive_are_read_as_fixed() -> None:
    record = Comparison((CompareRow("a", "A", "counts", 2.0),), {"name": "x"}).to_json()
    del record["rows"][0]["adaptive"]
    assert not Comparison.of(record)["a"].adaptive


def test_a_model_that_goes_on_learning_is_a_marked_row_and_the_terminal_explains_the_mark(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Foreign, "adaptive", True)  # what it scores is not changed by this
    monkeypatch.setitem(MODELS, "foreign", ModelSpec(
        "foreign", "a foreign network", "for this test", "convolution", Foreign, RecurrentConfig
    ))  # fmt: skip
    words = (str(corpus), "--budget", STEPS, "--no-prove", "--out", str(tmp_path / "out"))
    assert "†" not in run_cli(*words, "--models", "bag")[1]
    code, printed, _ = run_cli(*words, "--models", "bag,foreign")
    found = read_comparison(tmp_path / "out")
    assert (code, found["foreign"].adaptive, found["bag"].adaptive) == (0, True, False)
    assert "†: adaptive, a model that goes on learning from the held-out text while it" in " ".join(printed.split())
    assert [line.split()[0] for line in printed.splitlines() if re.match(r"\w+ .*\d   [*-]?†", line)] == ["foreign"]
    assert sorted(found.column("adaptive")) == [False, True]


def test_json_holds_one_object_with_the_rows(corpus: Path, tmp_path: Path) -> None:
    code, out, _ = run_cli(str(corpus), "--models", "bag,kn3,zlib", "--out", str(tmp_path / "out"), "--json")
    record = json.loads(out)
    assert code == 0
    assert {row["model"] for row in record["rows"]} == {"bag", "kn3", "zlib"}
    for row in record["rows"]:
        assert set(row) == set(keys_of(CompareRow))
        assert row["bits_per_byte"] > 0
    assert record["page"] == str(tmp_path / "out" / "report.html")
    assert {"corpus", "proof", "settings", "machine", "versions", "seconds", "command", "advice"} <= set(record)


# ---------------------------------------------------------------------- stopped and resumed


def wait_for(condition: Any, process: Command, seconds: float = 300.0) -> None:  # a busy machine takes its time
    until = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until, "it took too long"
        time.sleep(0.02)


def test_killed_and_stopped_it_is_resumed_and_ends_as_if_it_had_not_been(corpus: Path, tmp_path: Path) -> None:
    words = (str(corpus), "--models", "bag,kn3,rnn", "--budget", "25steps", "--out", str(tmp_path / "out"))
    metrics = tmp_path / "out" / "rnn" / "metrics.jsonl"
    with Command(["compare", *words]) as killed:
        wait_for(lambda: metrics.is_file() and metrics.stat().st_size > 0, killed)
        killed.kill()
        killed.communicate()
    assert {row.model for row in read_comparison(tmp_path / "out")} == {"bag", "kn3"}
    first = (tmp_path / "out" / "kn3" / "model.safetensors").stat().st_mtime_ns
    with Command(["compare", *words]) as stopped:
        wait_for(lambda: metrics.read_bytes().count(b"\n") > 3, stopped)
        stopped.send_signal(signal.SIGINT)
        _, said = stopped.communicate()
    assert stopped.returncode == 130
    assert "stopped; 2 of 4 are finished and stored; resume with: octavo compare " in said
    assert not octavo.load(tmp_path / "out" / "rnn").record["training"]["finished"]
    code, _, _ = run_cli(*words)
    assert code == 0
    assert (tmp_path / "out" / "kn3" / "model.safetensors").stat().st_mtime_ns == first
    again = octavo.compare(
        corpus, models="rnn", budget="25steps", out=tmp_path / "other", progress=Progress(io.StringIO())
    )
    resumed = read_comparison(tmp_path / "out")["rnn"]
    assert resumed.bits_per_byte == pytest.approx(again["rnn"].bits_per_byte, rel=1e-4)
    assert octavo.load(tmp_path / "out" / "rnn").record["training"]["steps"] == 25


def test_finished_rows_are_not_repeated_and_new_ones_added(corpus: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"out": tmp_path / "out", "progress": Progress(io.StringIO())}
    before = octavo.compare(corpus, models=["bag", "kn3"], **options)
    after = octavo.compare(corpus, models=["bag", "kn5"], **options)
    other = {"behind": None, "behind_low": None, "behind_high": None}  # the row above is another
    assert replace(after["bag"], **other) == replace(before["bag"], **other)
    assert {row.model for row in after} == {"bag", "kn5"}
    both = octavo.compare(corpus, models=["bag", "kn3", "kn5"], **options)
    assert both["kn3"].seconds == before["kn3"].seconds  # it was not trained again


def test_a_run_that_was_trained_but_not_measured_is_only_measured(corpus: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"out": tmp_path / "out", "progress": Progress(io.StringIO()), "models": "kn3"}
    before = octavo.compare(corpus, **options)
    path = tmp_path / "out" / "cells" / "kn3.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"status": "started"}))
    after = octavo.compare(corpus, **options)
    assert after["kn3"].bits_per_byte == before["kn3"].bits_per_byte
    assert after["kn3"].seconds == before["kn3"].seconds


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"seed": 1}, "is a comparison with other settings: seed 0, not 1; choose another --out, or delete "),
        ({"budget": "9steps"}, "with other settings: budget 60s, not 9steps; choose"),
        ({"tokenizer": "char"}, "with other settings: tokenizer byte, not char"),
    ],
)
def test_other_settings_in_the_same_folder_are_refused(
    change: dict[str, Any], said: str, corpus: Path, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"out": tmp_path / "out", "models": "bag", "progress": Progress(io.StringIO())}
    octavo.compare(corpus, **options)
    with pytest.raises(UserError, match=said):
        octavo.compare(corpus, **(options | change))


def test_another_text_in_the_same_folder_is_refused(corpus: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"out": tmp_path / "out", "models": "bag", "progress": Progress(io.StringIO())}
    own = tmp_path / "own.txt"
    shutil.copy(corpus, own)
    octavo.compare(own, **options)
    own.write_text(sentences(40, seed=5), encoding="utf-8")
    with pytest.raises(UserError, match="comparison of another text, own, or it has changed; choose another --out"):
        octavo.compare(own, **options)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": 2}', '{"format": 7}'])
def test_a_damaged_comparison_is_refused(content: str, corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "experiment.json").write_text(content)
    code, _, said = run_cli(str(corpus), "--models", "bag", "--out", str(tmp_path / "out"))
    assert code == 2
    assert "experiment.json is damaged or foreign" in said
    assert len(said.strip().splitlines()) == 1


def test_a_comparison_of_the_first_version_is_refused_by_name(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "comparison.json").write_text('{"format": 1, "rows": []}')
    code, _, said = run_cli(str(corpus), "--models", "bag", "--out", str(tmp_path / "out"))
    assert code == 2
    assert "is a comparison made by octavo 0.1, which this version cannot resume; choose another --out" in said
    with pytest.raises(UserError, match="it is of format 1, this octavo reads 2"):
        read_comparison(tmp_path / "out")


# ---------------------------------------------------------------------- what fails, and what is refused


def test_what_fails_becomes_a_row_the_rest_goes_on_and_the_command_exits_with_1(corpus: Path, tmp_path: Path) -> None:
    lossy, away = tmp_path / "lossy", str(tmp_path / "no-such-run")
    api.train("bag", corpus, preprocess=("lower",), out=lossy, measure=False)
    code, printed, said = run_cli(
        str(corpus), "--models", "mix", "bag", "--pretrained", str(lossy), away, "--out", str(tmp_path / "out")
    )
    comparison = read_comparison(tmp_path / "out")
    assert code == 1
    assert [row.model for row in comparison if row.error is None] == ["bag"]
    assert "a mixture needs an n-gram and a network" in str(comparison["mix"].error)
    assert "only models that can restore every byte are compared" in str(comparison["lossy"].error)
    assert "is not a run" in str(comparison["no-such-run"].error)
    page, table = ((tmp_path / "out" / name).read_text(encoding="utf-8") for name in ("report.html", "comparison.csv"))
    for name in ("mix", "lossy", "no-such-run"):
        assert f"{name} failed: " in " ".join(printed.split())
        assert f"{name} failed: " in said
        assert f"failed: {comparison[name].error}" in html.unescape(page)
        assert str(comparison[name].error)[:40] in table
    judged = "mix, lossy and no-such-run failed, so they are not judged."
    assert judged in " ".join(printed.split())
    assert judged in page
    assert comparison.advice[-1] == judged


def test_a_failed_row_is_tried_again(corpus: Path, tmp_path: Path) -> None:
    pretrained_run = tmp_path / "pretrained_run"
    options: dict[str, Any] = {"out": tmp_path / "out", "models": "bag", "pretrained": str(pretrained_run),
                               "progress": Progress(io.StringIO())}  # fmt: skip
    assert octavo.compare(corpus, **options)["pretrained_run"].error is not None
    other = tmp_path / "other.txt"
    other.write_text(sentences(200, seed=3), encoding="utf-8")
    api.train("ngram", other, order=4, out=pretrained_run, measure=False)
    found = octavo.compare(corpus, **options)["pretrained_run"]
    assert found.error is None
    assert found.family == "pretrained"
    assert (tmp_path / "out" / "pretrained_run" / "samples.txt").read_text(encoding="utf-8")


def test_a_pretrained_run_that_has_seen_the_held_out_text_is_refused(corpus: Path, tmp_path: Path) -> None:
    api.train("bag", corpus, valid=(str(corpus),), out=tmp_path / "knows", measure=False)
    found = octavo.compare(corpus, models="bag", pretrained=tmp_path / "knows", out=tmp_path / "out",
                           progress=Progress(io.StringIO()))  # fmt: skip
    assert "of the held-out text stands in the training text of knows" in str(found["knows"].error)


def test_when_everything_fails_it_is_the_users_turn(corpus: Path, tmp_path: Path) -> None:
    code, _, said = run_cli(str(corpus), "--models", "mix", "--out", str(tmp_path / "out"))
    assert code == 2
    assert "no model could be trained and measured: mix: a mixture needs" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-"], "standard input can be read once; name a file"),
        ([], "name a text to compare models on"),
        (["no-such-text"], "no file or folder no-such-text"),
        (["TEXT", "--models", "gruu"], "there is no model 'gruu' to compare; did you mean gru?"),
        (["TEXT", "--models", ","], "models must name at least one"),
        (["TEXT", "--budget", "soon"], "a budget is a positive number with a unit"),
        (["TEXT", "--quick", "--budget", "5s"], "--budget and --quick were given; choose one"),
        (["TEXT", "--seeds", "0"], "seeds must be at least 1"),
        (["TEXT", "--device", "tpu"], "device"),
    ],
)
def test_mistakes_are_refused_before_any_work(words: list[str], said: str, corpus: Path, tmp_path: Path) -> None:
    code, _, errors = run_cli(
        *(str(corpus) if word == "TEXT" else word for word in words), "--out", str(tmp_path / "o")
    )
    assert code == 2
    assert said in errors
    assert len(errors.strip().splitlines()) == 1
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize("text", [b"", b"a"])
def test_a_text_without_two_bytes_is_refused(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_bytes(text)
    code, _, said = run_cli(str(tmp_path / "text.txt"), "--out", str(tmp_path / "out"))
    assert code == 2
    assert len(said.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_a_very_short_text_gets_what_can_be_had(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("To be, or not to be: that is it.")
    code, _, _ = run_cli(str(tmp_path / "text.txt"), "--models", "counts,xz", "--out", str(tmp_path / "out"))
    assert code == 0
    best = read_comparison(tmp_path / "out").best
    assert best is not None
    assert best.low is None  # four bytes make no blocks


@pytest.mark.parametrize("what", ["file", "folder", "run"])
def test_what_is_no_comparison_is_left_alone(what: str, corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    if what == "file":
        out.write_text("mine")
    elif what == "folder":
        out.mkdir()
        (out / "mine").write_text("mine")
    else:
        api.train("bag", corpus, out=out, measure=False)
    code, _, said = run_cli(str(corpus), "--models", "bag", "--out", str(out))
    assert code == 2
    assert "is there already and is not a comparison; choose another --out" in said


# ---------------------------------------------------------------------- the text


def test_bytes_and_long_strings_are_the_text_itself_and_short_ones_its_name(corpus: Path, tmp_path: Path) -> None:
    text = corpus.read_text(encoding="utf-8")
    for given, data in ((text, text.encode()), (b"one", b"one")):
        place = place_of(given, tmp_path / "b")
        place.save_text()
        assert Path(place.sources[0]).read_bytes() == data
        shutil.rmtree(tmp_path / "b")
    place.save_text()
    assert place_of("shakespeare", None).sources == ["shakespeare"]
    assert place_of("shakespeare", None).folder == Path("runs/compare-shakespeare")
    assert place_of([corpus, "x"], "out").sources == [str(corpus), "x"]
    with pytest.raises(UserError, match="is a comparison of another text; choose another out"):
        place_of(b"two", tmp_path / "b").save_text()


def test_a_text_in_memory_is_compared_like_a_file(corpus: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"models": "kn3", "progress": Progress(io.StringIO())}
    by_text = octavo.compare(corpus.read_bytes(), out=tmp_path / "a", **options)
    by_file = octavo.compare(corpus, out=tmp_path / "b", **options)
    assert by_text["kn3"].bits_per_byte == by_file["kn3"].bits_per_byte


def test_of_a_large_text_only_the_beginning_of_the_held_out_part_is_measured(tmp_path: Path) -> None:
    path = tmp_path / "large.txt"
    path.write_text("é" * 4_000_000, encoding="utf-8")
    corpus = open_corpus(path)
    part = CompareConfig(budget="1s").scored_part(corpus)
    assert part.size == (1 << 18) + (1 << 12)
    assert part.start == corpus.valid.start
    odd = CompareConfig(bytes=1001).scored_part(corpus)
    assert odd.size == 1000  # no character is cut in two
    assert CompareConfig(bytes=1 << 30).scored_part(corpus).size == corpus.valid.size


def test_a_run_that_was_measured_on_a_part_says_so_wherever_its_result_stands(corpus: Path, tmp_path: Path) -> None:
    code, printed, _ = run_cli(str(corpus), "--models", "bag", "--bytes", "500", "--no-prove", "--out", str(tmp_path))
    found = read_comparison(tmp_path)
    scored, whole = (found.corpus[part]["bytes"] for part in ("scored", "valid"))
    assert (code, scored < whole) == (0, True)
    said = f"the first {scored:,} of the {whole:,} bytes"
    assert f"Measured on {said}." in " ".join(printed.split())
    assert said in (tmp_path / "report.html").read_text(encoding="utf-8")
    run = octavo.load(tmp_path / "bag")
    assert run.record["result"]["label"] == f"first {scored:,} of {whole:,} bytes"
    assert run.record["result"]["label"] in run.summary()


def test_one_text_has_one_number_in_compare_and_train(corpus: Path, tmp_path: Path) -> None:
    found = octavo.compare(corpus, models="kn3", prove=False, out=tmp_path / "out", progress=Progress(io.StringIO()))
    trained = octavo.train("ngram", corpus, order=3, tokenizer="byte")
    assert found["kn3"].bits_per_byte == trained.record["result"]["bits_per_byte"]
    assert octavo.load(tmp_path / "out" / "kn3").record["result"]["label"] == ""


# ---------------------------------------------------------------------- budgets, seeds, names


def test_a_total_is_shared_by_the_neural_models() -> None:
    assert CompareConfig(total="90s").each == "10s"
    assert CompareConfig(total="10min", models=("gru", "gpt", "kn7")).each == "300s"
    assert CompareConfig(total="12ktokens", models=("gru", "gpt"), seeds=3).each == "2000tokens"
    assert CompareConfig().each == "60s"
    assert CompareConfig(quick=True).seconds_each == 14


def test_a_short_budget_is_spent_on_few_evaluations_and_small_steps() -> None:
    quick, none = candidates(21.0), {}
    assert quick["gru"].settings == {"evaluations": 4, "batch_size": 32, "width": 192, "muon_learning_rate": 0.05}
    assert quick["rnn"].settings == {"evaluations": 4, "batch_size": 32}
    assert quick["gpt"].settings == {"evaluations": 4, "width": 64, "heads": 2}
    assert candidates(30.0)["gpt"].settings == {"evaluations": 4}
    assert quick["kn7"].settings == {"order": 7}
    assert candidates(60.0)["gru"].settings == candidates(None)["gru"].settings == none
    (gru,) = CompareConfig(quick=True, models=("gru",)).candidates
    assert gru == quick["gru"]


def test_names_families_and_patterns_choose_candidates_in_the_tables_order() -> None:
    def names(*words: str) -> list[str]:
        return [one.name for one in choose(words, candidates())]

    assert names("kn*", "bag") == ["bag", "kn3", "kn5", "kn7", "kn8-adaptive"]
    assert names("recurrent") == ["rnn", "gru", "lstm", "rnn-attention", "mingru", "minlstm", "lru", "rglru"]
    assert names("gru,xz") == ["gru", "xz"]
    assert names("linear-attention") == ["retention", "gla", "mamba2", "deltanet", "gated-deltanet", "mlstm"]
    usual = [name for name, one in candidates().items() if not (one.variant_of or one.missing or one.only_if_named)]
    assert names() == usual


def test_the_stored_command_says_the_same_again() -> None:
    config = CompareConfig(models=("gru", "kn7"), quick=True, seeds=3, pretrained=("smollm2",), seed=4)
    words = place_of("shakespeare", "runs/x").command(config)
    assert words == ("octavo compare shakespeare --models gru kn7 --quick --seeds 3 --pretrained smollm2 --seed 4 "
                     "--out runs/x")  # fmt: skip


def test_seeds_are_averaged_with_an_interval_and_each_run_is_kept(corpus: Path, tmp_path: Path) -> None:
    found = octavo.compare(
        corpus, models=["bigram", "bag"], seeds=3, out=tmp_path / "out", progress=Progress(io.StringIO())
    )
    names = ["bigram", "bigram-seed1", "bigram-seed2"]
    bits = [octavo.load(tmp_path / "out" / name).record["result"]["bits_per_byte"] for name in names]
    assert len(set(bits)) == 3
    assert found["bigram"].bits_per_byte == pytest.approx(np.mean(bits))
    low, high = stats.t.interval(0.95, 2, loc=np.mean(bits), scale=stats.sem(bits))
    assert (found["bigram"].low, found["bigram"].high) == pytest.approx((low, high), rel=1e-6)
    assert found["bigram"].interval == "over 3 seeds"
    assert (
        found["bag"].interval == f"over {block_count(found.corpus['scored']['bytes'])} blocks of the text"
    )  # no seed changes it
    assert not (tmp_path / "out" / "bag-seed1").exists()


def test_a_candidate_can_wait_to_be_named() -> None:
    """By its name, its family or a pattern."""
    known = candidates()
    known |= {"gru": replace(known["gru"], only_if_named=True)}
    assert "gru" not in [one.name for one in choose((), known)]
    for words in (("gru",), ("recurrent",), ("g*",)):
        assert "gru" in [one.name for one in choose(words, known)]


def test_parts_of_a_mixture_share_a_tokenizer_and_are_the_best_of_their_kind() -> None:
    some = choose(("kn5", "kn7", "words3", "rnn", "gru", "gpt"), candidates())
    tokens = {"kn5": "byte", "kn7": "byte", "words3": "word", "rnn": "byte", "gru": "byte", "gpt": "byte"}
    assert parts_of_mixture(some, tokens, {"rnn": 2.5, "gru": 2.4, "gpt": 2.6}) == ["kn7", "gru", "rnn"]
    assert parts_of_mixture(some, tokens, {"rnn": 2.3, "gru": 2.4}) == ["kn7", "rnn", "gru"]
    three = choose(("lstm", "rnn", "gru"), candidates())
    assert parts_of_mixture(three, dict.fromkeys(("lstm", "rnn", "gru"), "byte"), {"lstm": 3, "rnn": 1, "gru": 2}) == [
        "rnn",
        "gru",
    ]
    assert parts_of_mixture(some, {"words3": "word", "gru": "byte"}, {"gru": 2.0}) == ["gru"]
    assert parts_of_mixture(some, {}, {}) == []


# ---------------------------------------------------------------------- bits of bytes


def test_a_tokens_bits_lie_evenly_on_its_bytes_and_those_of_tokens_without_bytes_on_the_next() -> None:
    word = Word.learn(text_in_memory("the cat the cat the cat").chunks())
    spelt = [token for token in range(word.vocab) if token != word.begin]
    longest = max(spelt, key=lambda token: len(word.token_bytes(token)))
    empty = next((token for token in spelt if not word.token_bytes(token)), word.begin)
    by_bytes = ByteCosts(word)
    tokens: Tokens = np.array([empty, longest, empty], np.int32)
    by_bytes(tokens, np.array([1.0, 6.0, 0.5]))
    length = len(word.token_bytes(longest))
    laid = by_bytes.bits_of_bytes()
    assert laid.sum() == pytest.approx(7.5)
    assert len(laid) == length
    assert laid[0] == pytest.approx(7.0 / length)


def test_words_are_scored_on_every_byte_of_the_text(corpus: Path) -> None:
    run = api.train("ngram", corpus, order=2, tokenizer="word", measure=False)
    valid = open_corpus(corpus).valid
    score, bits_N = score_run(run, valid, "text")
    assert len(bits_N) == valid.size == score.bytes
    assert float(bits_N.sum(dtype=np.float64)) == pytest.approx(score.bits, rel=1e-6)


# ---------------------------------------------------------------------- compressors


def test_compressors_are_given_what_stands_just_before(whole: tuple[Comparison, str, str]) -> None:
    comparison, _, _ = whole
    text = Path(comparison.corpus["source"][0]).read_bytes()
    train, valid = text[: comparison.corpus["train"]["bytes"]], text[comparison.corpus["train"]["bytes"] :]
    for name in ("zlib", "bz2", "xz", "zstd"):
        assert comparison[name].bits_per_byte == 8 * best_way(name, train, valid)(valid) / len(valid)
        assert comparison[name].title == f"{name}, given the training text"


# ---------------------------------------------------------------------- on the terminal


def test_a_narrow_table_keeps_what_matters_and_a_wide_one_has_everything(whole: tuple[Comparison, str, str]) -> None:
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    for columns, there, missing in (("80", ("bits/byte", "train s", "size"), ("memory",)),
                                    ("170", ("FLOPs", "memory", "write/s", "95 %", "Kneser-Ney"), ())):  # fmt: skip
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("COLUMNS", columns)
            drawn = table_text(whole[0].rows, Screen())
        plain = "\n".join(map(without_escapes, drawn.splitlines()))
        assert max(map(len, plain.splitlines())) <= int(columns)
        assert [title for title in there if title not in plain] == []
        assert [title for title in missing if title in plain] == []


def test_on_a_terminal_the_table_is_live_and_gone_at_the_end(corpus: Path, tmp_path: Path) -> None:
    leader, follower = pty.openpty()
    words = ["compare", str(corpus), "--models", "bag,kn3", "--out", str(tmp_path / "out")]
    with subprocess.Popen([sys.executable, "-m", "octavo.cli", *words], stdout=subprocess.PIPE, stderr=follower,
                          text=True, env={**os.environ, "TERM": "xterm", "COLUMNS": "100"}) as process:  # fmt: skip
        os.close(follower)
        seen = b""
        with contextlib.suppress(OSError):  # which is how a terminal says that nobody writes to it any more
            while part := os.read(leader, 4096):
                seen += part
        assert process.stdout is not None
        printed = process.stdout.read()
    os.close(leader)
    assert process.returncode == 0
    assert b"bits/byte" in seen
    assert b"2 of 3: " in seen
    assert "bits/byte" in printed


def test_lines_of_the_loop_are_swallowed_and_warnings_are_not() -> None:
    said: list[str] = []
    stream = Stream(said.append)
    stream.write(" 10%  step 4  loss 1.0\nnot saved at step 4\r\x1b[K 20%  step 8")
    stream.write("  loss 0.9\n")
    assert said == ["not saved at step 4"]
    assert stream.last == " 20%  step 8  loss 0.9"
