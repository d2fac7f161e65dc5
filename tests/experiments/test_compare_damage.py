"""A comparison with a model that claims too much, and comparisons whose record somebody has changed."""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

import octavo
from html_pages import sentences
from octavo.cli import main
from octavo.errors import UserError
from octavo.experiments.compare import read_comparison
from octavo.experiments.progress import Progress
from octavo.io.run_folder import find_run
from octavo.models import GRU, MODELS, ModelSpec
from octavo.models.recurrent import RecurrentConfig
from octavo.scoring.proof import is_proved, largest_archive


class Liar(GRU):
    """A model whose score is a tenth of what its probabilities cost."""

    def token_log_probs(self, state: Any, x_BT: Tensor) -> tuple[Tensor, Any]:
        logp, state = super().token_log_probs(state, x_BT)
        return logp / 10, state


SPEC = ModelSpec("liar", "a liar", "for this test", "recurrent", Liar, RecurrentConfig)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "rain.txt"
    path.write_text(sentences(300), encoding="utf-8")
    return path


def run_cli(*words: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(["compare", *words])
    return code, out.getvalue(), err.getvalue()


def test_a_model_whose_proof_fails_is_out_the_next_is_proved_and_the_command_exits_with_1(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MODELS, "liar", SPEC)
    words = [str(corpus), "--models", "liar,kn3,xz", "--budget", "2steps", "--out", str(tmp_path)]
    code, printed, _ = run_cli(*words)
    found, printed = read_comparison(tmp_path), " ".join(printed.split())
    assert code == 1
    assert found.best is not None
    assert (found.best.model, found["liar"].bits_per_byte) == ("kn3", None)
    assert found.proof is not None
    assert (found.proof["model"], is_proved(found.proof)) == ("kn3", True)
    assert str(found["liar"].error).startswith("not proved: claims ")
    assert "without a result: liar" in repr(found)
    assert f"liar is {found['liar'].error}" in printed
    assert "liar is not proved, so it is not judged." in printed
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert str(found["liar"].error) in page
    assert "liar is not proved, so it is not judged." in page
    assert str(found["liar"].error) in (tmp_path / "comparison.csv").read_text(encoding="utf-8")

    code, again, said = run_cli(*words)  # which knows it from the start
    assert code == 1
    assert "table and the page are corrected" not in again
    assert "finished in" in said
    assert read_comparison(tmp_path).rows == found.rows


def test_evaluating_a_model_whose_proof_fails_exits_with_1(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(MODELS, "liar", SPEC)
    octavo.train("liar", corpus, budget="2steps", out=tmp_path / "run")
    (tmp_path / "some.txt").write_text("the rain in the hills " * 40, encoding="utf-8")
    capsys.readouterr()
    for words in ([], ["--json"]):
        assert main(["eval", str(tmp_path / "run"), str(tmp_path / "some.txt"), "--prove", *words]) == 1
    assert "not proved: claims" in capsys.readouterr().err


def test_an_archive_may_be_larger_than_the_claim_by_what_coding_costs_and_no_more() -> None:
    assert largest_archive(1000.0, 8000) == pytest.approx(1000 + 20 + 160 + 2)
    assert is_proved({"restored": True})  # as earlier versions wrote it
    assert not is_proved({"restored": True, "proved": False})


# ---------------------------------------------------------------------- records that somebody has changed


@pytest.fixture(scope="module")
def record(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What comparison.json holds."""
    out = tmp_path_factory.mktemp("compared")
    octavo.compare(corpus, models=["bag", "kn3", "xz"], out=out, progress=Progress(io.StringIO()))
    found: dict[str, Any] = json.loads((out / "comparison.json").read_text(encoding="utf-8"))
    return found


def first_row(key: str, value: Any) -> Callable[[dict[str, Any]], object]:
    return lambda record: record["rows"][0].update({key: value})


@pytest.mark.parametrize(
    "change",
    [
        *(first_row(key, value) for key in ("bits_per_byte", "seconds", "impossible", "bytes", "flops")
          for value in ("many", 1e308, float("nan"), [1], -1 if key == "bits_per_byte" else {})),
        first_row("model", None), first_row("best", "yes"), first_row("no such", 1), first_row("tie", None),
        lambda record: record.update(rows=None), lambda record: record.update(rows={"a": 1}),
        lambda record: record.update(rows=[None]), lambda record: record.update(corpus=[]),
        lambda record: record["corpus"].update(train=None),
        lambda record: record["corpus"]["scored"].update(bytes="all"),
        lambda record: record["corpus"]["valid"].update(bytes=1e308),
        lambda record: record.update(seconds={"training": None}), lambda record: record.update(advice=None),
        lambda record: record.update(advice=[1]), lambda record: record["proof"].update(archive_bytes="few"),
        lambda record: record["proof"].update(claimed_bytes=float("inf")), lambda record: record.pop("format"),
        lambda record: record.update(settings=3), lambda record: record["settings"].update(seeds=None),
    ],
)  # fmt: skip
def test_a_changed_comparison_is_refused_in_one_line(
    change: Callable[[dict[str, Any]], object], record: dict[str, Any], tmp_path: Path
) -> None:
    changed = json.loads(json.dumps(record))
    change(changed)
    (tmp_path / "comparison.json").write_text(json.dumps(changed), encoding="utf-8")
    with pytest.raises(UserError, match=r"comparison.json is no comparison, or damaged: .*; run octavo compare again"):
        read_comparison(tmp_path)
    found = find_run(tmp_path / "no such run")  # which any command asks
    assert found == tmp_path / "no such run"


def test_an_unchanged_comparison_is_read_as_it_was_written(record: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "comparison.json").write_text(json.dumps(record), encoding="utf-8")
    found = read_comparison(tmp_path)
    assert {**found.to_json(), "folder": record["folder"]} == record
    assert found._repr_html_()


def test_the_name_of_a_row_leads_to_a_run_in_the_same_folder_and_nowhere_else(
    record: dict[str, Any], tmp_path: Path
) -> None:
    for run, leads_to in (("kn3", "kn3"), ("../../elsewhere", "the one"), (5, "the one"), (None, "the one")):
        row = {"model": "x", "title": "the one", "run": run}
        (tmp_path / "comparison.json").write_text(json.dumps({"rows": [row]}), encoding="utf-8")
        assert find_run(tmp_path / "the one") == tmp_path / leads_to


@pytest.mark.skipif(os.name == "nt", reason="there are no named pipes in folders")
def test_a_cell_whose_number_was_changed_is_measured_again(corpus: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"models": ["bag", "xz"], "prove": False, "out": tmp_path}
    first = octavo.compare(corpus, **options, progress=Progress(io.StringIO()))
    path = tmp_path / "cells" / "bag.json"
    for key, value in (("bits_per_byte", None), ("seconds", "many"), ("flops", 1e308), ("bytes", [])):
        stored = json.loads(path.read_text(encoding="utf-8"))
        del stored["sha256"]  # as older versions wrote it
        stored["value"]["row"][key] = value
        path.write_text(json.dumps(stored), encoding="utf-8")
        said = io.StringIO()
        again = octavo.compare(corpus, **options, progress=Progress(said))
        assert again["bag"].bits_per_byte == first["bag"].bits_per_byte
        assert said.getvalue().splitlines()[0] == f"finished in {tmp_path} already: xz"
    costs = tmp_path / "byte_costs" / "bag.npy"
    whole = costs.read_bytes()
    costs.write_bytes(whole[:-1] + b"?")
    octavo.compare(corpus, **options, progress=Progress(io.StringIO()))
    assert costs.read_bytes() == whole
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(UserError, match=r"bag.json must be a file, which it is not; delete it"):
        octavo.compare(corpus, **options, progress=Progress(io.StringIO()))


def test_a_candidate_that_was_killed_while_it_was_deleted_or_measured_ends_as_if_it_had_not_been(
    corpus: Path, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"models": ["bag"], "prove": False, "out": tmp_path}
    first = octavo.compare(corpus, **options, progress=Progress(io.StringIO()))
    metrics = (tmp_path / "bag" / "metrics.jsonl").read_text(encoding="utf-8").count("\n")
    (tmp_path / "cells" / "bag.json").unlink()  # killed when everything was measured, and before that was stored
    octavo.compare(corpus, **options, progress=Progress(io.StringIO()))
    assert (tmp_path / "bag" / "metrics.jsonl").read_text(encoding="utf-8").count("\n") == metrics
    (tmp_path / "cells" / "bag.json").unlink()
    (tmp_path / "bag" / "config.json").unlink()  # killed while the folder was deleted
    (tmp_path / "bag" / ".model.safetensors.abcd1234.part").write_bytes(b"half")
    again = octavo.compare(corpus, **options, progress=Progress(io.StringIO()))
    assert again["bag"].bits_per_byte == first["bag"].bits_per_byte
    assert sorted(path.name for path in (tmp_path / "bag").iterdir()) == [
        "config.json", "metrics.jsonl", "model.safetensors", "report.html", "samples.txt", "tokenizer.json",
    ]  # fmt: skip
