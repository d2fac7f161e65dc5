"""The studio's runs page: rows, curves, comparisons, pages of runs; training that is started, stopped and resumed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from octavo.cli import main
from octavo.costs import Shape, cost_of
from octavo.errors import UserError
from octavo.io.run_folder import METRICS, STATE, read_record
from octavo.models import parameter_count
from octavo.studio import ModelCache, Studio, make_app
from octavo.studio.server.request_guard import REPORT_POLICY
from octavo.studio.server.text_store import TEXTS_FOLDER, TextStore, safe_name
from octavo.studio.server.training_forms import field_descriptions, form_of, forms
from octavo.studio.server.training_process import LOCK, LOG, TrainingManager
from octavo.tasks.run import load
from octavo.tasks.run_rows import figures_of, numbers_in, operations_of, settings_of
from octavo.tasks.task import Task, find_task
from octavo.training.checkpoint import FILE
from octavo.training.metrics_log import read_rows
from studio_place import MADE, TEXT, client, make_runs, opened, served, write_texts

PLAY = "ROMEO: But soft, what light through yonder window breaks?\n" * 200
TINY = {"width": 16, "layers": 1, "batch_size": 4, "sequence_length": 16, "evaluations": 1}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_runs(tmp_path_factory.mktemp("runs"), "kn", "gru", "gpt", "moods")


@pytest.fixture(scope="module")
def asking(runs: Path) -> TestClient:
    return client(runs)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Studio]:
    """A studio of an empty folder with one text; whatever it trains ends with the test."""
    (tmp_path / "runs").mkdir()
    studio = Studio(ModelCache(tmp_path / "runs", device="cpu"))
    studio.training.texts.store("play.txt", PLAY.encode())
    yield studio
    studio.close()


def until(reply: Any, seconds: float = 60) -> Any:
    """What `reply()` gives as soon as it is true."""
    ends = time.monotonic() + seconds
    while not (found := reply()):
        assert time.monotonic() < ends, "it took too long"
        time.sleep(0.2)
    return found


def rows_of(asking: TestClient) -> dict[str, dict[str, Any]]:
    return {row["run"]: row for row in asking.get("/api/runs").json()}


# ---------------------------------------------------------------------- rows


def test_a_row_has_the_score_of_its_task_and_what_it_cost(runs: Path, asking: TestClient) -> None:
    rows = rows_of(asking)
    assert set(rows) == {"kn", "gru", "gpt", "moods"}
    for name in ("kn", "gru", "gpt"):
        record = read_record(runs / name)
        assert rows[name]["score"] == record["result"]["bits_per_byte"]
        assert (rows[name]["unit"], rows[name]["lower_is_better"]) == ("bits per byte", True)
        assert rows[name]["pages"] == ["read", "inspect", "write"]
        assert rows[name]["parameters"] == parameter_count(load(runs / name).model)
        assert rows[name]["text"].startswith(f"text.txt, {record['result']['bytes']:,} bytes measured (")
        assert rows[name]["bytes"] == (runs / name / "model.safetensors").stat().st_size
        assert rows[name]["seconds"] == record["train_seconds"]
        assert rows[name]["corpus"] == "text.txt"  # no folder of this machine
    accuracy = read_record(runs / "moods")["result"]["accuracy"]
    assert (rows["moods"]["score"], rows["moods"]["unit"]) == (100 * accuracy, "% right")
    assert rows["moods"]["pages"] == ["classify"]
    assert not rows["moods"]["lower_is_better"]


def test_operations_are_those_of_the_loaded_model(runs: Path, asking: TestClient) -> None:
    rows = rows_of(asking)
    gpt, gru = load(runs / "gpt").model, load(runs / "gru").model
    assert rows["gpt"]["flops"] == cost_of(gpt, Shape(1, 1, 63)).per_token("forward")  # its context is 64
    assert rows["gru"]["flops"] == cost_of(gru, Shape(1, 1, 0)).per_token("forward")
    assert rows["kn"]["flops"] is None  # an n-gram model does none: it reads its counts


def test_scores_of_every_task() -> None:
    assert figures_of({"result": {"languages": {"de": {"bleu": 31.5}, "fr": {"bleu": 40}}}}) == [
        ("de BLEU", 31.5),
        ("fr BLEU", 40.0),
    ]
    assert figures_of({"result": {"exact_match": 0.25, "questions": 4}}) == [("answers exact", 0.25)]
    assert figures_of({"result": {"words_accuracy": 0.5}}) == [("masked words right", 0.5)]
    assert figures_of({"result": {"bits_per_byte": None, "impossible": 3}}) == []
    assert figures_of({"result": [1]}) == figures_of({}) == []


def test_a_forged_record_costs_no_time_and_no_memory(tmp_path: Path) -> None:
    forged = {"model": "gpt", "vocab": 300, "config": {"layers": 10**9, "width": 4, "heads": 2, "context": 1 << 20}}
    assert operations_of(forged) is None
    assert operations_of({**forged, "config": {**forged["config"], "layers": 2}})  # type: ignore[dict-item]
    (tmp_path / "model.safetensors").write_bytes((1 << 60).to_bytes(8, "little") + b"{}")
    assert numbers_in(tmp_path) in (0, None)


def test_a_folder_that_is_no_run_is_reported_in_its_row(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "config.json").write_text("{}")
    (row,) = client(tmp_path).get("/api/runs").json()
    assert row["run"] == "bad"
    assert "not a run" in row["error"]
    assert str(tmp_path) not in row["error"]


def test_a_row_is_read_anew_when_its_run_changes(tmp_path: Path) -> None:
    root = make_runs(tmp_path / "runs", "bag")
    asking = client(root)
    assert rows_of(asking)["bag"]["seconds"] is not None
    reply = read_record(root / "bag") | {"train_seconds": 77.0}
    (root / "bag" / "config.json").write_text(json.dumps(reply))
    assert rows_of(asking)["bag"]["seconds"] == 77.0


# ---------------------------------------------------------------------- curves, comparisons, pages


def test_a_curve_is_metrics_jsonl_column_by_column(runs: Path, asking: TestClient) -> None:
    reply = asking.get("/api/curve", params={"run": "gru"}).json()
    rows = [row for row in read_rows((runs / "gru" / METRICS).read_bytes()) if "step" in row]
    assert reply["columns"]["step"] == [row["step"] for row in rows]
    assert reply["columns"]["bits_per_byte"] == [row.get("bits_per_byte") for row in rows]
    assert reply["columns"]["held_out_bits_per_byte"] == [row.get("held_out_bits_per_byte") for row in rows]
    assert reply["offset"] == (runs / "gru" / METRICS).stat().st_size
    assert not reply["restarted"]
    assert not reply["more"]
    assert reply["result"] == read_record(runs / "gru")["result"]["bits_per_byte"]
    assert asking.get("/api/curve", params={"run": "kn"}).json()["columns"] == {}  # its one row is the result


def test_a_curve_is_read_on_from_where_it_was(tmp_path: Path) -> None:
    root = make_runs(tmp_path / "runs", "bag")
    asking, path = client(root), root / "bag" / METRICS
    path.write_bytes(b'{"step": 1, "loss": 3.0}\n{"step": 2, "lo')

    def ask(offset: int) -> dict[str, Any]:
        reply: dict[str, Any] = asking.get("/api/curve", params={"run": "bag", "offset": offset}).json()
        return reply

    first = ask(0)
    assert first["columns"] == {"step": [1], "loss": [3.0]}  # half a row waits
    with open(path, "ab") as file:
        file.write(b'ss": 2.5}\n{"step": 3, "event": "skipped", "why": "the loss has exploded"}\n')
    then = ask(first["offset"])
    assert then["columns"] == {"step": [2], "loss": [2.5]}
    assert then["events"] == [[3, "skipped: the loss has exploded"]]
    path.write_bytes(b'{"step": 1, "loss": 9.0}\n')  # it was resumed from an earlier checkpoint
    assert ask(then["offset"])["restarted"]
    assert ask(then["offset"])["columns"]["loss"] == [9.0]


def test_two_runs_differ_in_these_settings(runs: Path, asking: TestClient) -> None:
    reply = asking.get("/api/compare", params={"run": ["gru", "gpt"]}).json()
    a, b = settings_of(read_record(runs / "gru")), settings_of(read_record(runs / "gpt"))
    expected = {name: [a.get(name), b.get(name)] for name in {*a, *b} if a.get(name) != b.get(name)}
    assert {line["name"]: line["values"] for line in reply["settings"]} == expected
    assert expected["model"] == ["gru", "gpt"]
    assert expected["heads"] == [None, 2]
    assert reply["same_settings"] == len({*a, *b}) - len(expected)
    figures = {line["name"]: line["values"] for line in reply["results"]}
    assert figures["bits per byte"] == [read_record(runs / name)["result"]["bits_per_byte"] for name in ("gru", "gpt")]
    one = asking.get("/api/compare", params={"run": "gru"}).json()
    assert {line["name"] for line in one["settings"]} == set(a)
    assert one["same_settings"] == 0
    assert asking.get("/api/compare", params={"run": ["gru"] * 3}).status_code == 422
    assert asking.get("/api/compare", params={"run": "nobody"}).status_code == 404


def test_a_report_is_served_without_scripts(runs: Path, asking: TestClient) -> None:
    answer = asking.get("/api/report", params={"run": "gru"})
    assert answer.headers["content-security-policy"] == REPORT_POLICY
    assert answer.text == (runs / "gru" / "report.html").read_text(encoding="utf-8")
    assert asking.get("/api/report", params={"run": "../gru"}).status_code == 404


def test_a_link_that_leads_out_is_not_followed(tmp_path: Path) -> None:
    root, secret = make_runs(tmp_path / "runs", "bag"), tmp_path / "secret"
    secret.write_text('{"step": 1, "loss": 1}\n')
    asking = client(root)
    for name in ("report.html", METRICS):
        (root / "bag" / name).unlink()
        (root / "bag" / name).symlink_to(secret)
    assert asking.get("/api/report", params={"run": "bag"}).status_code == 404
    assert asking.get("/api/curve", params={"run": "bag"}).json()["columns"] == {}
    assert not rows_of(asking)["bag"]["has_report"]


# ---------------------------------------------------------------------- texts and forms


@pytest.mark.parametrize(
    ("sent", "kept"),
    [("My play.txt", "My-play.txt"), ("../../etc/passwd", "passwd.txt"), ("a\\b\\c.md", "c.md.txt"), ("..", "text.txt"),
     (".hidden", "hidden.txt"), ("x" * 300, "x" * 76 + ".txt"), ("名前.txt", "text.txt"), ("-rf.txt", "rf.txt")],
)  # fmt: skip
def test_a_text_is_stored_under_a_safe_name(sent: str, kept: str) -> None:
    assert safe_name(sent) == kept


def test_texts_are_stored_below_the_runs_and_never_overwritten(tmp_path: Path) -> None:
    asking = client(tmp_path)
    for text, kept in (("one " * 20, "play.txt"), ("two " * 20, "play-2.txt"), ("one " * 20, "play.txt")):
        answer = asking.post("/api/texts", params={"name": "../play.txt"}, content=text.encode())
        assert answer.json()["name"] == kept
        assert (tmp_path / TEXTS_FOLDER / kept).read_text() == text
    assert sorted(path.name for path in (tmp_path / TEXTS_FOLDER).iterdir()) == ["play-2.txt", "play.txt"]
    names = [one["name"] for one in asking.get("/api/forms").json()["texts"]]
    assert names[:2] == ["play-2.txt", "play.txt"]
    assert asking.get("/api/runs").json() == []  # texts are no runs


@pytest.mark.parametrize(
    ("data", "why"), [(b"\xff" * 50, "not UTF-8"), (b"a\0" * 50, "zero bytes"), (b"short", "at least")]
)
def test_what_is_no_text_is_not_stored(tmp_path: Path, data: bytes, why: str) -> None:
    answer = client(tmp_path).post("/api/texts", params={"name": "x.txt"}, content=data)
    assert answer.status_code == 400
    assert why in answer.json()["error"]
    assert not list(tmp_path.rglob("*.txt"))


def test_too_long_a_text_is_refused(tmp_path: Path) -> None:
    answer = client(tmp_path).post("/api/texts", params={"name": "x.txt"}, content=b"a" * ((4 << 20) + 1))
    assert answer.status_code == 413


def test_a_folder_of_texts_that_is_a_link_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").write_text(PLAY)
    (tmp_path / "runs" / TEXTS_FOLDER).symlink_to(tmp_path / "other")
    texts = TextStore(tmp_path / "runs")
    assert "letter.txt" not in [text.name for text in texts.all()]
    with pytest.raises(UserError, match="taken by something else"):
        texts.store("a.txt", PLAY.encode())


def test_forms_offer_the_settings_of_the_configs() -> None:
    for name, form in forms().items():
        assert form.flags({one.name: one.default for one in form.settings if one.default is not None}) == [], name
        assert all(one.description for one in form.settings), name
    assert form_of("gpt").flags({"width": 64, "learning_rate": 0.01}) == ["--width", "64", "--learning-rate", "0.01"]
    from octavo.models.parts.config import GPTConfig

    assert field_descriptions(GPTConfig)["context"].startswith("Context length")


@pytest.mark.parametrize(
    ("model", "settings", "why"),
    [("gpt", {"width": 4096}, "from 2 to 1024"), ("gpt", {"heads": 3}, "heads must divide width"),
     ("gpt", {"out": "/tmp/x"}, "no setting 'out'"), ("ngram", {"estimator": "arpa"}, "one of kneser-ney"),
     ("gru", {"width": 1.5}, "whole number"), ("gru", {"vocab_size": 500}, "word and bpe"),
     ("gru", {"width": 1024, "layers": 12, "batch_size": 1024, "sequence_length": 2048}, "are available"),
     ("vit", {}, "no text 'play.txt'"), ("mix", {}, "no model"), ("head", {}, "no model"),
     ("gru", {"tokenizer": "/etc/passwd"}, "one of byte")],
)  # fmt: skip
def test_settings_beyond_the_form_are_refused(place: Studio, model: str, settings: dict[str, Any], why: str) -> None:
    with pytest.raises(UserError, match=why):
        place.training.start(model, "play.txt", "new", 5, settings)
    assert place.training.current() is None


@pytest.mark.parametrize("name", ["../out", "a/b", "", ".hidden", "-x", "x" * 65, "texts", "a b", "a\n"])
def test_a_run_is_named_plainly(place: Studio, name: str) -> None:
    with pytest.raises(UserError, match="name"):
        place.training.start("bag", "play.txt", name, 5, {})


@pytest.mark.parametrize("text", ["/etc/passwd", "../play.txt", "-", "digits", "nothing"])
def test_only_listed_texts_are_trained_on(place: Studio, text: str) -> None:
    with pytest.raises(UserError, match="no text"):
        place.training.start("bag", text, "new", 5, {})


def test_a_run_is_not_written_over(place: Studio) -> None:
    (place.root / "there").mkdir()
    with pytest.raises(UserError, match="not overwritten"):
        place.training.start("bag", "play.txt", "there", 5, {})


# ---------------------------------------------------------------------- training


def test_a_run_is_trained_stopped_and_resumed_one_at_a_time(place: Studio) -> None:
    asking = TestClient(make_app(place), base_url="http://localhost")
    second = client(place.root)  # another studio on the same folder

    def state() -> Any:
        return asking.get("/api/training").json()

    start = {"model": "gru", "corpus": "play.txt", "run": "mine", "seconds": 600, "settings": TINY}
    began = asking.post("/api/training", json=start).json()
    assert began["command"].startswith("octavo train gru ")
    assert "--budget 600s" in began["command"]
    assert "at a time" in asking.post("/api/training", json=start | {"run": "b"}).json()["error"]
    assert "at a time" in second.post("/api/training", json=start | {"run": "b"}).json()["error"]
    seen = second.get("/api/training").json()
    assert (seen["run"], seen["state"]) == ("mine", "elsewhere")
    assert "kill -INT" in second.post("/api/training/stop", json={}).json()["error"]

    reply = until(lambda: (now := state())["trained_seconds"] and now)
    assert reply["status"] == "training"
    assert 0 < reply["remaining_seconds"] < 600
    assert reply["has_curve"]
    assert rows_of(asking)["mine"]["state"] == rows_of(second)["mine"]["state"] == "training"
    os.utime(place.root / "mine" / METRICS, (0, 0))  # a long pause between two rows is no end
    assert rows_of(second)["mine"]["state"] == "training"
    first = asking.get("/api/curve", params={"run": "mine"}).json()
    until(lambda: asking.get("/api/curve", params={"run": "mine", "offset": first["offset"]}).json()["columns"])

    assert asking.post("/api/training/stop", json={}).json()["state"] in ("stopping", "ended")
    reply = until(lambda: (now := state())["state"] == "ended" and now)
    assert reply["status"] == "stopped; its checkpoint is saved"
    assert reply["exit_code"] == 130
    assert "go on with: octavo resume" in reply["log"][-1]
    assert (place.root / "mine" / STATE / FILE).is_file()
    for row in (rows_of(asking)["mine"], rows_of(second)["mine"]):  # at once, because nobody holds its lock
        assert (row["state"], row["resumable"]) == ("stopped", True)
    steps = asking.get("/api/curve", params={"run": "mine"}).json()["columns"]["step"]

    spent = reply["trained_seconds"]
    resumed = asking.post("/api/training/resume", json={"run": "mine", "seconds": spent + 1}).json()
    assert resumed["command"].startswith("octavo resume ")
    assert resumed["state"] == "running"
    reply = until(lambda: (now := state())["state"] == "ended" and now)
    assert (reply["exit_code"], reply["status"]) == (0, "finished")
    row = rows_of(asking)["mine"]
    assert row["state"] == ""
    assert row["score"] == read_record(place.root / "mine")["result"]["bits_per_byte"]
    after = asking.get("/api/curve", params={"run": "mine"}).json()["columns"]["step"]
    assert after[: len(steps)] == steps
    assert len(after) > len(steps)
    assert second.get("/api/training").json() is None  # the lock went with the process


MOODS = "".join(f"{mood}\ta {word} day\n" for mood, word in (("good", "fine"), ("bad", "grim")) for _ in range(20))
WORDS = "".join(f"{a}{b}\t{b}{a}\n" for a in "abcdefgh" for b in "abcdefgh")
SMALL_TRANSFORMER = {"width": 16, "layers": 1, "heads": 2, "evaluations": 1}


@pytest.mark.parametrize(
    ("model", "text", "settings"),
    [("dan", MOODS, {"format": "tsv", "epochs": 1, "width": 8, "hidden": 8}),
     ("linear-classifier", MOODS, {"bits": 8, "format": "tsv"}),
     ("seq2seq", WORDS, {**SMALL_TRANSFORMER, "tokenizer": "char"}),
     ("bert", PLAY, {**SMALL_TRANSFORMER, "vocab_size": 100})],
)  # fmt: skip
def test_models_of_every_task_that_takes_a_file_are_trained(
    place: Studio, model: str, text: str, settings: dict[str, Any]
) -> None:
    name = place.training.texts.store("data.txt", text.encode()).name
    training = place.training.start(model, name, "new", 2, settings)
    assert training.ended.wait(100)
    assert training.process is not None
    assert training.process.returncode == 0, place.training.log_tail()
    assert form_of(model).task == read_record(place.root / "new")["task"]


@pytest.mark.parametrize(("model", "data"), [("vit", "digits"), ("facts", "people-160")])
def test_named_data_of_a_task_can_be_chosen(
    place: Studio, model: str, data: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Any] = []
    monkeypatch.setattr(Task, "named_data", lambda self: {"digits": ""} if self.data_kind == "images" else {})
    monkeypatch.setattr(type(find_task("facts")), "named_data", lambda self: {"people-160": ""})
    monkeypatch.setattr(place.training, "start_process", lambda run, words, seconds: begun.append(words))
    place.training.start(model, data, "new", 5, {})
    assert begun[0][:3] == ["train", model, data]
    with pytest.raises(UserError, match="no text"):
        place.training.start("gru", data, "new", 5, {})


def test_a_mistake_in_training_is_reported_and_a_lock_whose_process_is_gone_is_no_lock(place: Studio) -> None:
    (place.root / LOCK).write_text(json.dumps({"pid": 1, "run": "old", "started": 0}))
    assert place.training.current() is None
    asked = place.training.start_process("mine", ["nonsense"], 5)  # a process that ends by a mistake at once
    until(lambda: asked.state == "ended")
    assert asked.process is not None
    assert asked.process.returncode == 2
    assert "there is no verb 'nonsense'" in place.training.log_tail()[-1]
    reply = TestClient(make_app(place), base_url="http://localhost").get("/api/training").json()
    assert (reply["state"], reply["exit_code"], reply["has_curve"]) == ("ended", 2, False)
    assert reply["status"] == "failed; the end of its log says why"


def test_a_training_that_was_killed_is_reported_as_killed(place: Studio) -> None:
    asked = place.training.start_process("mine", ["studio", str(place.root), "--no-browser", "--port", "0"], 5)
    assert asked.process is not None
    asked.process.kill()
    until(lambda: asked.state == "ended")
    reply = TestClient(make_app(place), base_url="http://localhost").get("/api/training").json()
    assert (reply["state"], reply["exit_code"]) == ("ended", -signal.SIGKILL)
    assert reply["status"].startswith("killed by signal 9 (SIGKILL), by the system for lack of memory if nobody did it")
    assert str(place.root.parent) not in json.dumps(reply)


def test_a_studio_that_ends_starts_nothing(place: Studio) -> None:
    place.close()
    with pytest.raises(UserError, match="shutting down"):
        place.training.start("gru", "play.txt", "more", 600, TINY)


def test_who_does_not_stop_when_asked_is_ended(tmp_path: Path) -> None:
    deaf = (
        "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", deaf], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"deaf\n"
        TrainingManager(tmp_path, checkpoint_seconds=0.1).terminate(process)
        assert process.returncode == -signal.SIGTERM


def test_log_and_lock_are_not_written_through_links(place: Studio, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    for name in (LOG, LOCK):
        (place.root / name).unlink(missing_ok=True)
        (place.root / name).symlink_to(tmp_path / "precious")
        with pytest.raises(UserError, match="link"):
            place.training.start("bag", "play.txt", "bag", 5, {})
        (place.root / name).unlink()
    assert (tmp_path / "precious").read_text() == "mine"
    assert place.training.log_tail() == []


def test_a_run_whose_text_lies_elsewhere_is_resumed_by_hand(runs: Path) -> None:
    studio = Studio(ModelCache(runs, device="cpu"))
    path, record = runs / "gru", read_record(runs / "gru")
    assert "neither a named source" in studio.training.why_not_resumable(path, record)
    with pytest.raises(UserError, match=f"type: octavo resume {path}"):
        studio.training.resume("gru", path, record)
    inside = record | {"corpus": record["corpus"] | {"source": [str(runs / "gru" / "samples.txt")]}}
    assert studio.training.why_not_resumable(path, inside) == ""
    escaping = record | {"corpus": record["corpus"] | {"source": [f"{runs}/../secret"]}}
    assert "neither" in studio.training.why_not_resumable(path, escaping)
    assert "step by step" in studio.training.why_not_resumable(runs / "kn", read_record(runs / "kn"))
    (path / "extra").symlink_to("/etc")
    try:
        assert "link" in studio.training.why_not_resumable(path, inside)
    finally:
        (path / "extra").unlink()


@pytest.mark.parametrize(
    ("name", "measure"), [("averaged", "loss"), ("stripes", "accuracy"), ("reverse", "right"), ("masked", "loss")]
)
def test_runs_of_every_task_have_a_curve_and_are_resumed(tmp_path: Path, name: str, measure: str) -> None:
    root = tmp_path / "runs"
    root.mkdir()
    write_texts(root / "data")  # below the runs, so that the studio may read it
    words = MADE[name].format(t=root / "data", r=root).split()
    assert main([*words, "--out", str(root / name)]) == 0
    studio = Studio(ModelCache(root, device="cpu"))
    asking = TestClient(make_app(studio), base_url="http://localhost")
    columns = asking.get("/api/curve", params={"run": name}).json()["columns"]
    assert {"step", "seconds", measure} <= set(columns)
    record = read_record(root / name)
    assert studio.training.why_not_resumable(root / name, record) == ""
    assert rows_of(asking)[name]["resumable"]
    settings = record["training"]["settings"] | {"valid": ["/etc/passwd"]}
    foreign = record | {"training": record["training"] | {"settings": settings}}
    assert "not below this folder" in studio.training.why_not_resumable(root / name, foreign)
    before = record["training"]["steps"]
    resumed = asking.post("/api/training/resume", json={"run": name, "seconds": 2 + record["train_seconds"]}).json()
    assert resumed["command"].startswith("octavo resume "), resumed
    status = until(lambda: (now := asking.get("/api/training").json())["state"] == "ended" and now)
    assert (status["exit_code"], status["status"]) == (0, "finished"), status["log"]
    assert read_record(root / name)["training"]["steps"] > before
    assert max(asking.get("/api/curve", params={"run": name}).json()["columns"]["step"]) > before
    studio.close()


def test_stopping_nothing_is_refused(asking: TestClient) -> None:
    assert "nothing is being trained" in asking.post("/api/training/stop", json={}).json()["error"]
    assert asking.post("/api/training/resume", json={"run": "nobody"}).status_code == 404
    wrong = {"model": "gru", "corpus": "x", "run": "a", "seconds": 1e9}
    assert asking.post("/api/training", json=wrong).status_code == 422


@contextlib.contextmanager
def studio_process(root: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    words = [sys.executable, "-m", "octavo.cli", "studio", str(root), "--no-browser", "--port", "0", "--device", "cpu"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().split()[-1]
        finally:
            process.kill()


def test_a_studio_that_is_terminated_leaves_no_training_behind(place: Studio) -> None:
    import httpx2 as httpx

    with studio_process(place.root) as (process, address), httpx.Client(base_url=address, timeout=30) as asking:
        start = {"model": "gru", "corpus": "play.txt", "run": "mine", "seconds": 600, "settings": TINY}
        until(lambda: _answers(asking))
        assert asking.post("/api/training", json=start).status_code == 200
        until(lambda: asking.get("/api/training").json()["trained_seconds"])
        process.send_signal(signal.SIGTERM)
        _, reply = process.communicate(timeout=60)
    assert "stopping the training of mine" in reply
    assert (place.root / "mine" / STATE / FILE).is_file()
    assert place.training.current() is None  # nobody holds the lock
    assert "stopped at step" in place.training.log_tail()[-1]
    assert not place.training.why_not_resumable(place.root / "mine", read_record(place.root / "mine"))


def _answers(asking: Any) -> bool:
    import httpx2 as httpx

    try:
        return bool(asking.get("/api/models").status_code == 200)
    except httpx.TransportError:  # it listens, and is not up yet
        return False


# ---------------------------------------------------------------------- in the browser


@pytest.fixture(scope="module")
def page(runs: Path) -> Iterator[Any]:
    with served(runs) as address, opened(address) as page:
        page.address = address
        yield page


def shown(page: Any) -> list[str]:
    found = [str(row.get_attribute("data-run")) for row in page.locator("tbody tr[data-run]").all()]
    return [run for run in found if run != "mine"]  # which another test trains


@pytest.mark.browser
def test_runs_are_sorted_by_pointer_and_by_key_and_the_address_keeps_it(page: Any, runs: Path) -> None:
    page.goto(f"{page.address}/#/runs")
    page.reload()
    page.wait_for_selector("table.runs")
    best = sorted(("kn", "gru", "gpt"), key=lambda name: read_record(runs / name)["result"]["bits_per_byte"])
    assert shown(page) == [*best, "moods"]
    page.click("button[data-key=run]")
    assert shown(page) == ["gpt", "gru", "kn", "moods"]
    page.keyboard.press("Enter")  # the focus has stayed on the heading
    assert shown(page) == ["moods", "kn", "gru", "gpt"]
    assert page.locator("th[aria-sort=descending]").inner_text().startswith("Run")
    assert "sort=-run" in page.url
    page.fill("input[type=search]", "gRu text")
    page.wait_for_function("() => document.querySelectorAll('tbody tr[data-run]').length === 1")
    assert shown(page) == ["gru"]
    page.reload()
    page.wait_for_selector("table.runs")
    assert shown(page) == ["gru"]
    assert page.input_value("input[type=search]") == "gRu text"


@pytest.mark.browser
def test_two_runs_are_compared_with_their_curves_in_one_chart(page: Any) -> None:
    page.goto(f"{page.address}/#/runs")
    page.reload()
    page.check("input[aria-label='Select gru']")
    page.wait_for_selector("text=All settings")
    page.check("input[aria-label='Select gpt']")
    page.wait_for_selector("text=Settings that differ")
    assert "a=gru&b=gpt" in page.url
    key = page.locator(".chart-key").last.inner_text()
    assert all(f"{run}, {what}" in key for run in ("gru", "gpt") for what in ("training", "held out", "result"))
    chart = page.locator("svg.chart").last
    chart.focus()
    page.keyboard.press("Home")
    first = page.locator(".chart-readout").last.inner_text()
    assert first.startswith("step 1: gru, training")
    assert "gpt, training" in first
    assert chart.get_attribute("aria-valuetext") == first
    page.keyboard.press("End")
    assert page.locator(".chart-readout").last.inner_text().startswith("step 12:")
    box = chart.bounding_box()
    page.mouse.move(box["x"] + 60, box["y"] + 50)
    assert page.locator(".chart-readout").last.inner_text() == first
    page.get_by_label("logarithmic y").last.check()
    assert "log=xy" in page.url
    page.reload()
    page.wait_for_selector("text=Settings that differ")
    assert page.get_by_label("logarithmic y").last.is_checked()


@pytest.mark.browser
def test_a_report_opens_in_a_page_of_its_own_and_links_lead_to_the_other_pages(page: Any) -> None:
    page.goto(f"{page.address}/#/runs")
    page.reload()
    link = page.locator("a[aria-label='Read gru']")
    assert link.get_attribute("href") == "#/read?run=gru"
    with page.context.expect_page() as opening:
        page.click("a[aria-label='Report of gru']")
    report = opening.value
    report.wait_for_load_state()
    assert "gru" in report.title().lower()
    assert report.url.endswith("/api/report?run=gru")
    report.close()


@pytest.mark.browser
def test_a_phone_shows_runs_and_form_without_sideways_scrolling(page: Any) -> None:
    page.set_viewport_size({"width": 360, "height": 700})
    page.goto(f"{page.address}/#/runs?train=gpt&a=gru&b=gpt")
    page.reload()
    page.wait_for_selector("form.train")
    page.wait_for_selector("text=Settings that differ")
    wide = page.evaluate("document.documentElement.scrollWidth")
    page.set_viewport_size({"width": 1100, "height": 900})
    assert wide <= 360
    assert page.input_value("[name=model]") == "gpt"


@pytest.mark.browser
def test_training_is_started_watched_stopped_and_resumed_in_the_page(
    page: Any, runs: Path, tmp_path: Path
) -> None:  # fmt: skip
    (tmp_path / "A play.txt").write_text(TEXT + PLAY)
    page.goto(f"{page.address}/#/runs")
    page.reload()
    page.click("summary:has-text('Train a model')")
    page.set_input_files("input[type=file]", str(tmp_path / "A play.txt"))
    page.wait_for_selector("text=A-play.txt is stored and selected")
    page.select_option("[name=model]", "gru")
    assert "train=gru" in page.url
    for name, value in {"width": "16", "layers": "1", "seconds": "600", "run": "mine"}.items():
        page.fill(f"form.train [name={name}]", value)
    page.click("text=Start training")
    page.wait_for_selector("h2:has-text('Training mine')")
    page.wait_for_selector(".live svg.chart path.stroke.series0", timeout=60_000)
    before = page.locator(".live svg.chart").get_attribute("aria-valuemax")
    page.wait_for_function(
        "before => +document.querySelector('.live svg.chart').getAttribute('aria-valuemax') > before",
        arg=int(before),
    )
    page.wait_for_selector("tr[data-run=mine] >> text=being trained")
    page.click(".live button:has-text('Stop')")
    page.wait_for_selector("text=Stopped; its checkpoint is saved.", timeout=60_000)
    page.click("button[aria-label='Resume mine']", timeout=20_000)
    page.wait_for_selector(".live >> text=Preparing")
    page.click(".live button:has-text('Stop')")
    page.wait_for_selector("text=Stopped; its checkpoint is saved.", timeout=60_000)
    assert os.path.isfile(runs / TEXTS_FOLDER / "A-play.txt")
