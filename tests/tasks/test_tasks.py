"""Runs that are no plain language models are trained, opened, listed, counted and resumed like the others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import octavo
from image_files import idx_folder
from octavo.cli import main
from octavo.costs import Shape, cost_of_config
from octavo.datasets.labels import Labelled
from octavo.errors import UserError
from octavo.io.run_folder import read_record
from octavo.models.encoder_decoder import Sizes
from octavo.studio import ModelCache, Studio
from octavo.studio.routes.runs import RunRows
from octavo.studio.server.scheduler import FairLock, Ticket
from octavo.tasks import run_rows
from octavo.tasks.classifier import Classifier
from octavo.tasks.encoder import Encoder
from octavo.tasks.images import ImageRun
from octavo.tasks.run import Run
from octavo.tasks.run import load as load_language_run
from octavo.tasks.translator import Translator

TEXT = "".join(f"The owl number {n} sat in tree {n % 7}. It sang all night. Nobody heard it.\n" for n in range(120))
SMALL: dict[str, dict[str, Any]] = {
    "vit": {"width": 8, "layers": 1, "heads": 2, "budget": "2steps"},
    "davit": {"width": 8, "layers": 2, "heads": 2, "budget": "2steps"},
    "seq2seq": {"width": 16, "layers": 1, "heads": 2, "tokenizer": "char", "budget": "2steps"},
    "seq2seq-recurrent": {"width": 8, "tokenizer": "char", "budget": "2steps"},
    "bert": {
        "width": 16,
        "layers": 1,
        "heads": 2,
        "context": 32,
        "batch_size": 4,
        "vocab_size": 300,
        "budget": "2steps",
    },
    "facts": {"width": 16, "layers": 1, "heads": 2, "pretrain_epochs": 1, "epochs": 1},
}
KINDS = {"vit": ImageRun, "davit": ImageRun, "seq2seq": Translator, "seq2seq-recurrent": Translator, "bert": Encoder,
         "facts": Run}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of each kind, trained by octavo.train for a step or two."""
    home = tmp_path_factory.mktemp("tasks")
    (home / "text.txt").write_text(TEXT, encoding="utf-8")
    (home / "pairs.tsv").write_text("".join(f"ab{n}\t{n}ba\n" for n in range(400)), encoding="utf-8")
    sources: dict[str, Any] = {"vit": idx_folder(home / "stripes"), "davit": home / "stripes",
                               "bert": home / "text.txt", "facts": "people-16"}  # fmt: skip
    for name, settings in SMALL.items():
        source = sources.get(name, home / "pairs.tsv")
        made: Any = octavo.train(name, source, out=home / "runs" / name, device="cpu", **settings)
        assert isinstance(made, KINDS[name])
    data = Labelled.of(["a fine film", "a bad film"] * 20, ["good", "bad"] * 20)
    lines = [f"{data.classes[c]}\t{text}\n" for c, text in zip(data.y_N, data.texts, strict=True)]
    (home / "films.tsv").write_text("".join(lines), encoding="utf-8")
    octavo.train("linear-classifier", home / "films.tsv", out=home / "runs" / "linear")
    return home


@pytest.mark.parametrize("name", SMALL)
def test_a_setting_that_is_not_there_names_one_that_is(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=rf"{name} has no setting 'widht'; did you mean width"):
        octavo.train(name, tmp_path, widht=3)


def test_what_only_language_models_take_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="vit has no setting 'parts'"):
        octavo.train("vit", "digits", parts=["a", "b"])
    with pytest.raises(UserError, match="facts are of one source"):
        octavo.train("facts", ["a", "b"])


@pytest.mark.parametrize("name", ["vit", "seq2seq", "bert", "linear"])
def test_load_opens_runs_of_every_task_and_what_needs_a_language_model_refuses_them(folder: Path, name: str) -> None:
    path = folder / "runs" / name
    opened = octavo.load(path)
    assert opened.path == path
    assert not opened.unfinished
    with pytest.raises(UserError, match="was not trained to predict the next token, but to"):
        load_language_run(path)


def test_a_run_that_answers_questions_is_a_language_model_too(folder: Path) -> None:
    run = load_language_run(folder / "runs" / "facts")
    assert [stage["name"] for stage in run.record["training"]["stages"]] == ["pretraining", "finetuning"]
    assert octavo.evaluate(run, "Ada Lovelace").bits_per_byte > 0


def test_list_shows_each_run_by_the_figure_of_its_task(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    octavo.train("bag", folder / "text.txt", out=folder / "runs" / "bag")
    assert main(["list", str(folder / "runs"), "--json"]) == 0
    listed = {Path(one["run"]).name: one for one in json.loads(capsys.readouterr().out)}
    accuracy = octavo.evaluate(octavo.load(folder / "runs" / "vit")).accuracy
    assert listed["vit"]["figures"] == {"right": pytest.approx(accuracy)}
    bleu = octavo.load(folder / "runs" / "seq2seq").record["result"]["languages"]["target"]["bleu"]
    assert listed["seq2seq"]["figures"] == {"target BLEU": bleu}
    assert set(listed["facts"]["figures"]) == {"answers exact"}
    assert set(listed["bert"]["figures"]) == {"masked words right"}
    assert next(iter(listed)) == "bag"  # what is measured in bits comes first
    assert main(["list", str(folder / "runs")]) == 0
    out = capsys.readouterr().out.splitlines()
    lines = {Path(line.split()[0]).name: line for line in out if line}
    assert "100.0% right" in lines["linear"]
    assert any(line.startswith("films.tsv (") for line in out)
    assert f"{listed['bag']['result']['bits_per_byte']:.4f} bits/byte" in lines["bag"]
    assert f"{bleu:.1f} target BLEU" in lines["seq2seq"]
    assert any(line.startswith("stripes (") for line in out)


def test_runs_are_listed_by_the_text_they_were_measured_on(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = folder / "other.txt"
    other.write_text(TEXT.replace("owl", "cat"), encoding="utf-8")
    names = {"bag-a": folder / "text.txt", "kn-a": folder / "text.txt", "bag-b": other, "kn-b": other}
    for name, source in names.items():
        octavo.train("bag" if "bag" in name else "ngram", source, out=folder / "texts" / name)
    assert main(["list", str(folder / "texts"), "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [Path(one["run"]).name for one in listed] == ["kn-b", "bag-b", "kn-a", "bag-a"]  # other.txt, text.txt
    texts = [one["text"] for one in listed]
    assert texts[0] == texts[1] != texts[2] == texts[3]
    assert texts[0]["sha256"] == listed[0]["corpus"]["valid"]["sha256"]
    assert texts[0]["bytes"] == listed[0]["result"]["bytes"]
    assert main(["list", str(folder / "texts")]) == 0
    out = capsys.readouterr().out
    assert out.index("other.txt, ") < out.index("kn-b") < out.index("bag-b") < out.index("text.txt, ")
    assert out.index("text.txt, ") < out.index("kn-a") < out.index("bag-a")
    shown = Studio(ModelCache(folder / "texts", device="cpu"))
    try:
        rows = {row["run"]: row["text"] for row in RunRows(shown).all(Ticket(FairLock()))}
    finally:
        shown.close()
    assert rows["kn-a"] == rows["bag-a"] != rows["kn-b"] == rows["bag-b"]


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(list(words)) == 0
    return capsys.readouterr().out


def test_every_output_gives_one_count_of_parameters(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of other tasks than language modelling, whose models the comparison's test counts."""
    for name in (*SMALL, "linear"):
        path = folder / "runs" / name
        run: Any = octavo.load(path)
        count = sum(weight.numel() for weight in run.model.parameters())
        words = f"{count:,}"
        assert run_rows.parameters_of(read_record(path), path) == count
        if name not in ("bert", "linear"):  # which show a text, or the words' weights
            assert json.loads(printed(capsys, "inspect", str(path), "--json"))["parameters"] == count
            assert f"parameters     {words}\n" in printed(capsys, "inspect", str(path))
        if name in ("vit", "davit", "seq2seq", "seq2seq-recurrent", "facts"):
            cost = json.loads(printed(capsys, "cost", str(path), "--no-measure", "--json"))
            assert cost["parameters"] == count
        if name in ("vit", "davit", "seq2seq", "seq2seq-recurrent"):
            assert f">{words}<" in (path / "report.html").read_text(encoding="utf-8")
    listed = printed(capsys, "list", str(folder / "runs"))
    assert all(f"{one['parameters']:,}" in listed for one in map(read_record, (folder / "runs").iterdir()))


@pytest.mark.parametrize("result", ["3", '{"languages": {"de": 1}}', '{"accuracy": "high"}', '{"languages": []}'])
def test_a_strange_result_does_not_hide_the_list(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], result: str
) -> None:
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "config.json").write_text(f'{{"octavo": "1", "format": 1, "result": {result}, "task": "x"}}')
    assert main(["list", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert "odd" in out + err


def test_resume_serves_every_task(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("vit", "seq2seq", "bert"):
        assert main(["resume", str(folder / "runs" / name), "--budget", "3steps", "--json"]) == 0
        capsys.readouterr()
        record = json.loads((folder / "runs" / name / "config.json").read_text(encoding="utf-8"))
        assert record["training"]["steps"] == 3
    for name, says in (("linear", "cannot be resumed"), ("facts", "is finished")):
        assert main(["resume", str(folder / "runs" / name)]) == 2
        assert says in capsys.readouterr().err
    resumed: Any = octavo.resume(folder / "runs" / "davit", budget="3steps")
    assert resumed.record["training"]["steps"] == 3


def test_eval_and_inspect_serve_a_text_classifier(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(folder / "runs" / "linear")
    assert main(["eval", run, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] == 1.0
    assert main(["inspect", run, "--text", "a fine film", "--out", str(folder / "why.html")]) == 0
    assert "good" in capsys.readouterr().out
    page = (folder / "why.html").read_text(encoding="utf-8")
    assert f"octavo classify explain {run} --text &#39;a fine film&#39;" in page
    assert Classifier.load(run).predict(["a fine film"]) == ["good"]


# ---------------------------------------------------------------------- what they cost


HELD = ("weights", "gradients", "optimizer")


def cost(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    assert main(["cost", *argv, "--no-measure", "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_cost_counts_models_for_images_and_translation(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seen: Any = octavo.load(folder / "runs" / "vit")
    found = cost(capsys, str(folder / "runs" / "vit"), "--batch", "4")
    counted = cost_of_config("vit", seen.model.config, seen.model.sizes, Shape(4))
    assert found["parameters"] == sum(p.numel() for p in seen.model.parameters())
    assert found["flops_per_image"]["training"] == counted.training_flops / 4
    side = seen.model.sizes["height"]
    flags = ("--width", "8", "--layers", "1", "--heads", "2", "--image", f"{side}x{side}", "--classes", "2")
    assert cost(capsys, "vit", *flags)["parameters"] == found["parameters"]
    run: Any = octavo.load(folder / "runs" / "seq2seq")
    found = cost(capsys, str(folder / "runs" / "seq2seq"), "--source", "5", "--target", "7", "--batch", "2")
    pairs = cost_of_config("seq2seq", run.model.config, Sizes(*run.model.sizes), Shape(2, 7, source=5))
    assert found["flops_per_source"]["forward"] == pairs.total("forward") / 2
    vocab = str(run.model.sizes.target_vocab)
    small = ("--width", "16", "--layers", "1", "--heads", "2", "--vocab", vocab)
    assert cost(capsys, "seq2seq", *small)["parameters"] == found["parameters"]


@pytest.mark.parametrize("name", ["vit", "davit", "seq2seq", "seq2seq-recurrent"])
def test_cost_prints_a_table_whose_parts_sum_to_the_whole(capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert main(["cost", name]) == 0
    out = capsys.readouterr().out
    found = cost(capsys, name)
    assert out.startswith(f"{name}: {found['parameters']:,} parameters")
    assert sum(part["parameters"] for part in found["parts"]) == found["parameters"]
    assert "this machine (" in out
    assert "in all" in out
    unit = "image" if "vit" in name else "source"
    per_one, batch = found[f"flops_per_{unit}"], found["batch"]
    assert sum(part["forward"] for part in found["parts"]) / batch == per_one["forward"]
    (gpu,) = found["predictions"]
    by_products, by_memory = 989e12 / per_one["training"], 3350e9 / gpu[f"bytes_per_{unit}"]
    assert gpu[f"{unit}s_per_second_at_best"] == pytest.approx(min(by_products, by_memory))
    assert gpu[f"predicted_{unit}s_per_second"] == pytest.approx(0.4 * min(by_products, by_memory))
    assert gpu["held"] == found["memory"]["total"] == sum(found["memory"][what] for what in HELD)
    if unit == "source":
        two = cost(capsys, name, "--languages", "2")[f"flops_per_{unit}"]["forward"]
        assert 1 < two / per_one["forward"] < 2  # the encoder's work is done once


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("vit", "--image", "28"), "an image is height x width"),
        (("vit", "--image", "0x8"), "an image is height x width"),
        (("seq2seq", "--source-vocab", "9"), "one table of embeddings needs one vocabulary"),
        (("seq2seq-recurrent", "--target", "0"), "target must be at least 1"),
        (("davit", "--gpu", "abacus"), "abacus"),
        (("vit", "--heads", "7"), "heads must divide width"),
    ],
)
def test_a_mistake_in_what_is_counted_is_one_line(
    capsys: pytest.CaptureFixture[str], argv: tuple[str, ...], says: str
) -> None:
    assert main(["cost", *argv]) == 2
    complaint = capsys.readouterr().err
    assert says in complaint
    assert len(complaint.strip().splitlines()) == 1
