"""Experiments on a Ray cluster of this machine: the rows of local processes, also where a worker is lost."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import octavo
from comparing import quiet, untimed
from html_pages import sentences
from octavo.cli import main
from octavo.errors import UserError
from octavo.experiments.cell import Cell
from octavo.experiments.execution import Execution
from octavo.experiments.progress import Progress
from octavo.experiments.ray_cluster import connect, execute_request, last_line, needs_of
from octavo.experiments.runner import HEADER, file_digest
from octavo.experiments.scale import ScalePlan

ray = pytest.importorskip("ray", reason="needs Ray, which `make test-ray` installs")
from ray._private import node  # noqa: E402
from ray.cluster_utils import Cluster  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own
OBJECTS = 80 << 20  # bytes of a machine's object store, the least that Ray takes
PATIENCE = {"RAY_agent_register_timeout_ms": "300000", "RAY_health_check_timeout_ms": "60000"}  # on a busy machine


class SlowClock:
    """Time as Ray sees it while it waits for a machine's processes: they may take ten times as long."""

    sleep, time = staticmethod(time.sleep), staticmethod(time.time)

    @staticmethod
    def monotonic() -> float:
        return time.monotonic() / 10


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A head and another machine, both with one worker, as processes of this machine."""
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", **PATIENCE}
    node.time = SlowClock  # type: ignore[attr-defined]  # Ray gives its processes half a minute to start
    one = {"num_cpus": 1, "object_store_memory": OBJECTS}
    made = Cluster(initialize_head=True, head_node_args={**one, "include_dashboard": False})
    made.other = made.add_node(**one)
    os.environ["RAY_ADDRESS"] = made.address
    connect("ray")
    yield made
    ray.shutdown()
    made.shutdown()
    node.time = time  # type: ignore[attr-defined]
    for name in ("RAY_ADDRESS", *PATIENCE):
        del os.environ[name]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "rain.txt"
    path.write_text(sentences(300), encoding="utf-8")
    return path


def wait_until(condition: Callable[[], bool], seconds: float = 300.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it took too long"
        time.sleep(0.02)


def writers_of(folder: Path) -> list[int]:
    """The processes but this one that hold a file below the folder open."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if any(os.readlink(link).startswith(str(folder)) for link in (process / "fd").iterdir()):
                found.append(int(process.name))
    return [pid for pid in found if pid != os.getpid()]


def once_it_trains(run: Path, do: Callable[[], object]) -> threading.Thread:
    """Do something as soon as a run has its first metrics."""

    def wait() -> None:
        wait_until(lambda: (run / "metrics.jsonl").is_file() and (run / "metrics.jsonl").stat().st_size > 0)
        do()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def test_a_comparison_on_ray_has_the_rows_of_one_here_to_the_bit_though_a_worker_is_killed(
    cluster: Cluster, corpus: Path, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"models": ["bag", "kn3", "rnn", "mix", "xz"], "budget": "30steps"}
    here = octavo.compare(corpus, **settings, out=tmp_path / "here", jobs=2, progress=quiet())
    there, screen = tmp_path / "there", io.StringIO()
    killer = once_it_trains(there / "rnn", lambda: os.kill(writers_of(there / "rnn")[0], signal.SIGKILL))
    found = octavo.compare(corpus, **settings, out=there, on="ray", progress=Progress(screen))
    killer.join()
    assert "rnn is executed again: its process has died" in screen.getvalue()
    assert [row.error for row in found] == [None] * 5
    assert untimed(found) == untimed(here)
    assert found.proof is not None
    assert found.proof["restored"] is True
    assert {path.name for path in there.iterdir()} == {path.name for path in (tmp_path / "here").iterdir()}
    assert found.command.endswith(f"--on ray --out {there}")


def test_scale_and_domains_run_there_too(cluster: Cluster, corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("another text, word for word, " * 300, encoding="utf-8")
    plan = ScalePlan((0.25, 0.5, 1.0))
    candidates = {"kn2": ("ngram", {"order": 2})}
    points, readings = [], []
    for on in ("local", "ray"):
        scaled = octavo.scale("ngram", corpus, order=2, plan=plan, out=tmp_path / f"s-{on}", on=on, progress=quiet())
        points.append([(point.bytes, point.bits_per_byte) for point in scaled.points])
        table = octavo.domains(
            [], texts=[str(corpus), str(tmp_path / "other.txt")], bytes=500, out=tmp_path / f"d-{on}", on=on,
            candidates=candidates, progress=quiet(),
        )  # fmt: skip
        readings.append([(one.name, one.home, one.away) for one in table.models])
    assert points[0] == points[1]
    assert len(points[0]) == 3
    assert readings[0] == readings[1]
    assert len(readings[0]) == 2


def test_stopping_the_command_lets_the_cells_save_checkpoints(cluster: Cluster, corpus: Path, tmp_path: Path) -> None:
    words = ["compare", str(corpus), "--models", "rnn,gru", "--budget", "5000steps", "--out", str(tmp_path)]
    command = [sys.executable, "-m", "octavo.cli", *words, "--on", "ray"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_until(lambda: all((tmp_path / name / "metrics.jsonl").is_file() for name in ("rnn", "gru")))
            process.send_signal(signal.SIGINT)
            _, message = process.communicate(timeout=300)
        finally:
            process.kill()
    assert process.returncode == 128 + signal.SIGINT, message
    assert "stopped; 0 of 3 are finished and stored; resume with: octavo compare " in message
    for name in ("rnn", "gru"):
        wait_until(lambda name=name: (tmp_path / name / "state").is_dir())
        assert octavo.load(tmp_path / name).record["training"]["finished"] is False
    assert writers_of(tmp_path) == []


def test_the_cells_of_a_machine_that_leaves_run_again_on_another(
    cluster: Cluster, corpus: Path, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"models": ["rnn", "gru"], "budget": "30steps", "prove": False}
    screen, out = io.StringIO(), tmp_path / "out"
    # The two cells are spread over the two machines, so one of them is on the one that leaves.
    remover = once_it_trains(out / "gru", lambda: cluster.remove_node(cluster.other))
    found = octavo.compare(corpus, **settings, out=out, on="ray", progress=Progress(screen))
    remover.join()
    assert "is executed again: its machine has left the cluster" in screen.getvalue()
    here = octavo.compare(corpus, **settings, out=tmp_path / "here", progress=quiet())
    assert untimed(found) == untimed(here)


def test_what_no_machine_has_is_refused_and_so_is_a_folder_that_a_machine_does_not_see(
    cluster: Cluster, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="no machine of the cluster has 99 cores: the largest has 1; try --cores 1"):
        octavo.compare(b"text " * 2000, models=["bag"], out=tmp_path / "out", on="ray", cores=99, progress=quiet())
    assert not (tmp_path / "out").exists()
    (tmp_path / HEADER).write_text("{}")
    cell = Cell("zip", "compressor", "zlib")
    request = {"cell": asdict(cell), "folder": str(tmp_path), "digest": file_digest(tmp_path / HEADER), "cores": 1,
               "working_directory": str(tmp_path), "version": octavo.__version__, "environment": {}}  # fmt: skip
    for change, message in (
        ({"folder": "/nowhere"}, "does not see /nowhere as it is"),
        ({"working_directory": "/nowhere"}, "as it is"),
        ({"digest": "0"}, "as it is"),
        ({"version": "0.1"}, f"has octavo {octavo.__version__}, not 0.1"),
    ):
        assert message in json.loads(execute_request(json.dumps(request | change)))["refused"]


def test_a_comparison_from_outside_the_cluster_goes_through_rays_server_for_clients(
    cluster: Cluster, corpus: Path, tmp_path: Path
) -> None:
    words = ["compare", str(corpus), "--models", "bag", "--no-prove", "--out", str(tmp_path / "out"), "--json"]
    port = "25001"
    server = subprocess.Popen(
        [sys.executable, "-m", "ray.util.client.server", "--address", cluster.address, "--port", port],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_until(lambda: main_refuses_nobody(int(port)))
        done = subprocess.run(
            [sys.executable, "-m", "octavo.cli", *words, "--on", f"ray://127.0.0.1:{port}"],
            capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
    finally:
        server.kill()
        server.wait()
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    here = octavo.compare(corpus, models=["bag"], prove=False, out=tmp_path / "here", progress=quiet())
    assert found["rows"][0]["bits_per_byte"] == here["bag"].bits_per_byte


def main_refuses_nobody(port: int) -> bool:
    """Whether something listens there."""
    import socket

    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def test_what_does_not_answer_is_one_line_and_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if ray.is_initialized():
        ray.shutdown()
    (tmp_path / "a.txt").write_text(sentences(50), encoding="utf-8")
    words = ["compare", str(tmp_path / "a.txt"), "--models", "bag", "--out", str(tmp_path / "out")]
    assert main([*words, "--on", "ray://127.0.0.1:9"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 1
    assert said.err.startswith("octavo: no Ray cluster answers to --on ray://127.0.0.1:9: ")
    assert not (tmp_path / "out").exists()


def test_a_cell_asks_for_its_cores_and_what_is_single_threaded_for_one() -> None:
    assert needs_of(Cell("a", "candidate", "gru", {"device": "cpu"}, budget="3s"), 4).cores == 4
    assert needs_of(Cell("a", "compressor", "xz"), 4).cores == 1
    assert needs_of(Cell("a", "candidate", "gru", {"device": "cpu"}, budget="3s"), 4).gpus == 0
    assert needs_of(Cell("a", "candidate", "ngram"), 4).gpus == 0
    with patch("torch.cuda.is_available", return_value=True), patch("torch.cuda.device_count", return_value=1):
        mixture = Cell("a", "candidate", "mix", {"parts": ["b", "c"]}, options={"device": "cuda"})
        assert (
            needs_of(mixture, 4).gpus == needs_of(Cell("a", "pretrained", "b", options={"device": "cuda"}), 4).gpus == 1
        )
        assert needs_of(Cell("a", "candidate", "mix", {"parts": ["b", "c"]}), 4).gpus == 0
    assert Execution(3, "ray://head", 2).words == ["--jobs", "3", "--on", "ray://head", "--cores", "2"]
    assert (
        last_line(RuntimeError("a stack\n  of lines\nModuleNotFoundError: octavo\n")) == "ModuleNotFoundError: octavo"
    )
