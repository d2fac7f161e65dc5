"""The experiment runner: any number of processes gives the same rows, and a stop or a failure costs little."""

from __future__ import annotations

import contextlib
import contextvars
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import pytest
from rich.console import Console

import octavo
from cli_processes import Command
from comparing import quiet, untimed
from html_pages import sentences
from octavo.cli import main
from octavo.config import plain_json
from octavo.errors import Stopped, UserError
from octavo.experiments import executor
from octavo.experiments.cell import Cell, Outcome, describe_texts, execute
from octavo.experiments.compare import CompareRow, read_comparison
from octavo.experiments.progress import LiveProgress, Progress, time_left
from octavo.experiments.runner import Runner, Store, failures, locked_folder
from octavo.experiments.scale import ScalePlan, ScalePoint
from octavo.experiments.table import Column, columns_of, keys_of, table_text, to_csv
from octavo.io.lock import locked
from octavo.io.progress import show_left
from octavo.text import open_corpus

PLAN = ScalePlan((0.25, 0.5, 1.0))
linux = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc to find the processes of a run")
WORKER = [sys.executable, "-c", executor.LAUNCH]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "rain.txt"
    path.write_text(sentences(300), encoding="utf-8")
    return path


def wait_until(condition: Callable[[], bool], seconds: float = 300.0) -> None:  # a busy machine takes its time
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it took too long"
        time.sleep(0.02)


def has_metrics(run: Path) -> bool:
    path = run / "metrics.jsonl"
    return path.is_file() and path.stat().st_size > 0


# ---------------------------------------------------------------------- processes


def test_two_jobs_give_the_rows_of_one_to_the_bit(corpus: Path, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"models": ["bag", "kn3", "rnn", "mix", "xz"], "budget": "3steps"}
    one = octavo.compare(corpus, **settings, out=tmp_path / "one", progress=quiet())
    two = octavo.compare(corpus, **settings, out=tmp_path / "two", jobs=2, progress=quiet())
    assert untimed(one) == untimed(two)
    assert [row.error for row in two] == [None] * 5
    assert two.command.endswith(f"--jobs 2 --out {tmp_path / 'two'}")


@linux
def test_a_killed_worker_costs_only_its_cell_which_the_next_command_resumes(corpus: Path, tmp_path: Path) -> None:
    def kill_the_one_that_trains() -> None:
        wait_until(lambda: has_metrics(tmp_path / "rnn") and bool(workers_in(tmp_path / "rnn")))
        os.kill(workers_in(tmp_path / "rnn")[0], signal.SIGKILL)

    killer = threading.Thread(target=kill_the_one_that_trains)
    killer.start()
    settings: dict[str, Any] = {"models": ["rnn", "bag"], "budget": "30steps", "out": tmp_path}
    found = octavo.compare(corpus, **settings, jobs=2, progress=quiet())
    killer.join()
    assert found["bag"].error is None
    assert "signal 9 killed the process that worked on it" in str(found["rnn"].error)
    assert json.loads((tmp_path / "cells" / "rnn.json").read_text())["status"] == "failed"
    again = octavo.compare(corpus, **settings, progress=quiet())
    assert again["rnn"].error is None
    assert again["bag"].seconds == found["bag"].seconds  # it was not trained again
    undisturbed = octavo.compare(corpus, **(settings | {"out": tmp_path / "other"}), progress=quiet())
    assert again["rnn"].bits_per_byte == undisturbed["rnn"].bits_per_byte


def start_compare(corpus: Path, out: Path) -> Command:
    words = ["compare", str(corpus), "--models", "rnn,gru", "--budget", "500steps", "--jobs", "2", "--out", str(out)]
    return Command(words)


def workers_in(folder: Path) -> list[int]:
    """The processes that hold a file below the folder open."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if any(os.readlink(link).startswith(str(folder)) for link in (process / "fd").iterdir()):
                found.append(int(process.name))
    return found


@linux
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_stopping_the_command_stops_its_workers_and_leaves_checkpoints(
    number: signal.Signals, corpus: Path, tmp_path: Path
) -> None:
    with start_compare(corpus, tmp_path) as process:
        wait_until(lambda: all(has_metrics(tmp_path / name) for name in ("rnn", "gru")))
        assert len(set(workers_in(tmp_path)) - {process.pid}) == 2  # the command itself holds the lock
        process.send_signal(number)
        _, said = process.communicate(timeout=300)
    wait_until(lambda: workers_in(tmp_path) == [])
    if number != signal.SIGKILL:
        assert process.returncode == 128 + number
        assert "stopped; 0 of 3 are finished and stored; resume with: octavo compare " in said
        assert "Traceback" not in said
    for name in ("rnn", "gru"):
        assert octavo.load(tmp_path / name).record["training"]["finished"] is False
        assert (tmp_path / name / "state").is_dir()


def test_a_worker_takes_cells_as_json_and_answers_with_json(corpus: Path, tmp_path: Path) -> None:
    opened = open_corpus(corpus, errors="raw")
    cell = Cell("zip", "compressor", "zlib", data=describe_texts(opened, opened.train, opened.valid, (), "text"))
    bad = replace(cell, key="none", model="no-such-compressor")
    with subprocess.Popen(WORKER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        for one in (cell, bad):
            print(json.dumps({"cell": asdict(one), "folder": str(tmp_path)}), file=worker.stdin, flush=True)
        first, second = (Outcome.of(json.loads(worker.stdout.readline())) for _ in range(2))
        worker.stdin.close()
        assert worker.wait(60) == 0
    here = execute(cell, tmp_path)
    assert first.value["row"].pop("score_rate") > 0  # a time, as the seconds are
    assert here.value["row"].pop("score_rate") > 0
    assert first == replace(here, seconds=first.seconds)
    assert second.error == "KeyError: 'no-such-compressor'"
    assert "Traceback" in str(second.traceback)


# ---------------------------------------------------------------------- the runner and its store


class Counting:
    """An executor that is not of octavo: it sees only JSON."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def execute(self, cells: Iterable[Cell], folder: Path, progress: Progress) -> Iterator[Outcome]:
        for cell in cells:
            sent = json.loads(json.dumps(asdict(cell)))
            self.done.append(sent["key"])
            if sent["model"] == "stop":
                raise KeyboardInterrupt
            error = "it is broken; mend it" if sent["model"] == "broken" else None
            yield Outcome(cell, {} if error else {"doubled": 2 * sent["seed"]}, error, seconds=5.0)


def run(folder: Path, *cells: Cell) -> tuple[Runner, list[str], str]:
    where, screen = Counting(), io.StringIO()
    runner = Runner(Store.open(folder, "test", {}), Progress(screen), lambda outcomes: [], len(cells), executor=where)
    with contextlib.suppress(Stopped):
        runner.run(cells)
    return runner, where.done, screen.getvalue()


def test_finished_cells_are_not_repeated_changed_and_failed_ones_are(tmp_path: Path) -> None:
    a, b, broken = Cell("a", "x", "m", seed=1), Cell("b", "x", "m", seed=2), Cell("c", "x", "broken")
    runner, done, said = run(tmp_path, a, b, broken)
    assert done == ["a", "b", "c"]
    assert {key: one.value.get("doubled") for key, one in runner.outcomes.items()} == {"a": 2, "b": 4, "c": None}
    assert failures(runner.outcomes) == {"c": "it is broken; mend it"}
    assert "c failed: it is broken; mend it" in said
    _, done, said = run(tmp_path, a, replace(b, seed=3), broken)
    assert done == ["b", "c"]
    assert said.startswith(f"finished in {tmp_path} already: a\n2 of 3: b")


def test_what_was_finished_before_a_stop_is_found_again(tmp_path: Path) -> None:
    cells = [Cell("a", "x", "m"), Cell("b", "x", "stop"), Cell("c", "x", "m")]
    runner, done, _ = run(tmp_path, *cells)
    assert done == ["a", "b"]
    assert list(runner.outcomes) == ["a"]
    _, done, _ = run(tmp_path, *(replace(cell, model="m") for cell in cells))
    assert done == ["b", "c"]


def test_a_finished_cell_whose_files_are_gone_or_whose_record_is_torn_is_repeated(tmp_path: Path) -> None:
    store, cell = Store.open(tmp_path, "test", {}), Cell("a", "x", "m")
    (tmp_path / "weights").write_text("1")
    store.save(Outcome(cell, {"files": ["weights"]}))
    assert store.find(cell) is not None
    (tmp_path / "weights").unlink()
    assert store.find(cell) is None
    store.save(Outcome(cell))
    path = tmp_path / "cells" / "a.json"
    for content in (path.read_text()[:40], "[]", '{"status": "finished"}'):
        path.write_text(content)
        assert store.find(cell) is None


def test_a_run_that_was_trained_in_another_way_is_removed_and_one_trained_elsewhere_never(tmp_path: Path) -> None:
    store, cell = Store.open(tmp_path, "test", {}), Cell("a", "x", "m")
    for changed, stays in ((replace(cell, title="A"), True), (replace(cell, data={"identity": "1"}), True),
                           (replace(cell, seed=1), False)):  # fmt: skip
        (tmp_path / "a").mkdir(exist_ok=True)
        (tmp_path / "a" / "config.json").write_text("{}")
        store.save(Outcome(cell))
        store.start(changed)
        assert (tmp_path / "a").is_dir() == stays


def test_a_second_command_in_the_same_folder_is_refused_while_the_first_is_at_work(tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text(sentences(300), encoding="utf-8")
    out = tmp_path / "out"
    verbs = {
        "compare": lambda: octavo.compare(tmp_path / "book.txt", models=["bag"], prove=False, out=out),
        "scale": lambda: octavo.scale("ngram", tmp_path / "book.txt", order=2, plan=PLAN, out=out),
        "domains": lambda: octavo.domains([], texts=[str(tmp_path / "book.txt"), str(tmp_path / "two.txt")], out=out),
    }
    shutil.copy(tmp_path / "book.txt", tmp_path / "two.txt")
    (tmp_path / "two.txt").write_text("another text, " * 500, encoding="utf-8")
    for verb in verbs.values():
        said = rf"process {os.getpid()} on \S+ runs an experiment there; wait for it, or stop it"
        with locked_folder(out), pytest.raises(UserError, match=said):
            contextvars.Context().run(verb)  # as somebody else, who does not hold the lock
        assert not out.exists()


def test_locks_and_parts_of_killed_trainings_are_swept_and_those_of_living_ones_are_not(tmp_path: Path) -> None:
    (tmp_path / ".gru.lock").write_text("{}")
    (tmp_path / ".gru.abcd1234.part").mkdir()

    def sweep() -> None:
        with locked_folder(tmp_path):
            assert [path.name for path in tmp_path.iterdir()] == [".gpt.lock"]

    with locked(tmp_path / "gpt"):
        contextvars.Context().run(sweep)  # as somebody else


def test_a_folder_whose_first_save_was_killed_is_its_own(tmp_path: Path) -> None:
    (tmp_path / ".experiment.json.ab12_xyz.part").write_bytes(b"{")
    Store.open(tmp_path, "test", {})
    (tmp_path / "experiment.json").unlink()
    (tmp_path / ".notes.part").write_bytes(b"mine")
    with pytest.raises(UserError, match="is there already and is not a test"):
        Store.open(tmp_path, "test", {})


@pytest.mark.parametrize(
    "change",
    [
        lambda record: record["value"].update(bits=None),
        lambda record: record["value"].update(bits="many"),
        lambda record: record["value"].update(bits=1e308),
        lambda record: record.update(seconds=[1.0]),
        lambda record: record["value"].update(files=3),
    ],
)
@pytest.mark.parametrize("signed", [True, False])
def test_a_cell_whose_record_was_changed_is_executed_again(
    change: Callable[[dict[str, Any]], None], signed: bool, tmp_path: Path
) -> None:
    def check(outcome: Outcome) -> None:
        assert isinstance(outcome.seconds + outcome.value["bits"], float)

    store, cell = Store.open(tmp_path, "test", {}), Cell("a", "x", "m")
    store.save(Outcome(cell, {"bits": 2.0}, seconds=1.0))
    assert store.find(cell, check) is not None
    path = tmp_path / "cells" / "a.json"
    record = json.loads(path.read_text())
    change(record)
    if not signed:  # as older versions wrote it
        del record["sha256"]
    path.write_text(json.dumps(record))
    assert store.find(cell, check) is None


def test_the_time_left_is_of_budgets_and_of_what_such_cells_took_beside_them(tmp_path: Path) -> None:
    runner = Runner(Store.open(tmp_path, "test", {}), quiet(), lambda outcomes: [], 4, jobs=2, executor=Counting())
    left = [Cell("a", "x", "gru", budget="30s"), Cell("b", "x", "gpt", budget="10s")]
    assert runner.time_left(left) == 20.0
    assert runner.time_left([*left, Cell("c", "x", "bag")]) is None
    runner.finish(Outcome(Cell("d", "x", "gru", budget="30s"), seconds=34.0))
    assert runner.time_left(left) == (30 + 4 + 10 + 4) / 2


def test_the_time_left_is_known_from_the_start_and_corrected_by_what_cells_take(tmp_path: Path) -> None:
    store = Store.open(tmp_path, "test", {})
    runner = Runner(store, quiet(), lambda outcomes: [], 4, executor=Counting(), expected=lambda cell: 3.0)
    runner.later, runner.last_seconds = [Cell("mix", "x", "mix")], 2.0
    left = [Cell("a", "x", "gru", budget="30s"), Cell("b", "x", "bag")]
    assert runner.time_left(left) == 30 + 3 + 3 + 3 + 2
    runner.finish(Outcome(Cell("c", "x", "gpt", budget="30s"), seconds=42.0))  # four times as long as expected
    assert runner.time_left(left) == 30 + 12 + 3 + 3 + 2
    runner.finish(Outcome(Cell("d", "x", "gru", budget="30s"), error="broken", seconds=1.0))  # which says nothing
    assert runner.time_left(left) == 30 + 12 + 3 + 3 + 2


def test_the_time_left_is_never_nothing_while_there_is_work() -> None:
    assert (show_left(0.0), show_left(75.2)) == ("a few seconds left", "1:15 left")
    assert (time_left(0.2), time_left(12.0), time_left(None)) == ("; a few seconds left", "; about 12 s left", "")
    live = LiveProgress(io.StringIO())
    live.start_cell(Cell("a", "x", "gru", budget="30s"), 1, 2, 40.0, 9.0)
    live.since -= 3600  # it takes longer than was expected
    screen = Console(file=io.StringIO(), width=120)
    screen.print(live.live.get_renderable())
    assert "measuring; about 9 s left" in screen.file.getvalue()  # type: ignore[attr-defined]


def test_folders_of_other_things_and_no_jobs_are_refused(tmp_path: Path) -> None:
    Store.open(tmp_path / "a", "comparison", {})
    with pytest.raises(UserError, match="it is a comparison of format 2"):
        Store.open(tmp_path / "a", "scaling experiment", {})
    Store.open(tmp_path / "b", "test", {})
    with pytest.raises(UserError, match="is a test of tea, not coffee; choose another --out, or delete "):
        Store.open(tmp_path / "b", "test", {}, lambda common: "of tea, not coffee")
    for name, kind in (("scaling.json", "scaling series"), ("trained.json", "domains table")):
        (tmp_path / name).write_text("{}")
        with pytest.raises(UserError, match=f"is a {kind} made by octavo 0.1, which this version cannot resume"):
            Store.open(tmp_path, "test", {})
        (tmp_path / name).unlink()
    with pytest.raises(UserError, match="jobs must be at least 1: jobs=0; try --jobs 2"):
        Runner(Store.open(tmp_path / "c", "test", {}), quiet(), lambda outcomes: [], 1, jobs=0)


# ---------------------------------------------------------------------- the table


@dataclass(frozen=True)
class Fruit:
    name: Annotated[str, Column("fruit", align="left")]
    grams: Annotated[float | None, Column("weight", lambda grams: f"{grams:.0f} g", rank=1)] = None
    sort: Annotated[str, Column("sort", if_varies=True)] = "common"
    ripe: Annotated[bool, Column("", lambda row: "!" if row.ripe else "", of_row=True, outputs=("terminal",))] = False
    note: str = ""


def test_one_definition_serves_terminal_page_csv_and_json() -> None:
    fruits = [Fruit("apple", 150.4, ripe=True), Fruit("pear")]
    assert [column.title for column in columns_of(Fruit, "page")] == ["fruit", "weight", "sort"]
    assert [column.key for column in columns_of(Fruit, "terminal", fruits)] == ["name", "grams", "ripe"]
    assert [line.split() for line in table_text(fruits, io.StringIO()).splitlines()[2:]] == [
        ["apple", "150", "g", "!"], ["pear"],
    ]  # fmt: skip
    assert to_csv(Fruit, fruits).splitlines()[:2] == ["name,grams,sort,ripe,note", "apple,150.4,common,True,"]
    assert plain_json(Fruit("melon", float("inf")))["grams"] is None
    mixed = [Fruit("apple", sort="Cox"), Fruit("pear")]
    assert [column.key for column in columns_of(Fruit, "terminal", mixed)] == ["name", "sort"]


@pytest.mark.parametrize("row", [CompareRow, ScalePoint])
def test_every_shown_column_has_a_title_or_a_reason_and_is_in_csv_and_json(row: type) -> None:
    columns = columns_of(row, "page")
    assert {column.key for column in columns} <= set(keys_of(row))
    assert all(column.title for column in columns)
    assert len({column.title for column in columns}) == len(columns)


# ---------------------------------------------------------------------- one number


def test_a_models_result_is_the_same_in_compare_eval_prove_and_on_pages(corpus: Path, tmp_path: Path) -> None:
    models = ["kn3", "gru", "gpt", "mix"]
    found = octavo.compare(corpus, models=models, budget="2steps", out=tmp_path / "out", progress=quiet())
    held_out = tmp_path / "held-out.txt"
    held_out.write_bytes(corpus.read_bytes()[found.corpus["train"]["bytes"] :])
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert read_comparison(tmp_path / "out")["gru"] == found["gru"]
    for model in models:
        run, bits = octavo.load(tmp_path / "out" / model), found[model].bits_per_byte
        assert octavo.evaluate(run, held_out).bits_per_byte == bits
        assert run.record["result"]["bits_per_byte"] == bits
        with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.redirect_stderr(io.StringIO()):
            assert main(["eval", str(tmp_path / "out" / model), str(held_out), "--prove", "--json"]) == 0
        proof = json.loads(printed.getvalue())
        assert proof["bits_per_byte"] == bits
        assert proof["proof"][0]["claimed_bytes"] == pytest.approx(bits * held_out.stat().st_size / 8, rel=1e-12)
        assert f"{bits:.4f}" in page
        assert f"{bits:.4f}" in (tmp_path / "out" / model / "report.html").read_text(encoding="utf-8")
