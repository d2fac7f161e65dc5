"""Several processes, on one node or two, train as one does: the same losses, and runs any number can resume."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import octavo
from octavo.errors import UserError
from octavo.io.run_folder import CONFIG, METRICS, STATE, TENSORS, read_record
from octavo.training.checkpoint import FILE, Checkpoint
from octavo.training.distributed import Team
from two_processes import GPT, SETTINGS, cut_off

TESTS = Path(__file__).parents[1]
LAUNCH = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
NODE = [*LAUNCH[:3], "--nnodes", "2", "--nproc-per-node", "1", "--rdzv-backend", "c10d", "--local-addr", "127.0.0.1"]
CLOSE = 1e-4
CLOSE_IN_BFLOAT16 = 1e-3  # torch's Muon orthogonalises in bfloat16, and shards add its products up in another order


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("".join(f"{n} times {n} is {n * n}, and so on; " for n in range(200)))
    return path


@pytest.fixture(scope="module")
def folder(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs by one process, by two, and by one after the other; the two are on two nodes of this machine."""
    folder = tmp_path_factory.mktemp("runs")
    octavo.train("gru", text, out=folder / "one", **SETTINGS)
    octavo.train("gru", text, out=folder / "one-dropped", **SETTINGS, dropout=0.3)
    octavo.train("lstm", text, out=folder / "even", **SETTINGS)
    octavo.train("gpt", text, out=folder / "one-gpt", **SETTINGS, **GPT)
    for optimizer in ("adamw", "muon"):
        octavo.train("gru", text, out=folder / f"one-{optimizer}", **SETTINGS, optimizer=optimizer, ema=0.5)
    cut_off(11, octavo.train, "gru", text, out=folder / "one-then-two", **SETTINGS)
    cut_off(11, octavo.train, "gru", text, out=folder / "one-then-shards", **SETTINGS)
    config = folder / "one-then-shards" / CONFIG
    record = json.loads(config.read_text())
    record["training"]["loop"]["shard"] = True
    config.write_text(json.dumps(record))
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]),
        "PYTHONWARNINGS": "error::UserWarning,error::FutureWarning",
    }
    run_on_two_nodes([str(TESTS / "two_processes.py"), str(text), str(folder)], environment)
    return folder


def run_on_two_nodes(words: list[str], environment: dict[str, str]) -> None:
    """What each of two nodes starts: an agent of torchrun with one process, which finds the other at an address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [*NODE, "--rdzv-endpoint", address, *words]
    agents = [
        subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    try:
        for agent in agents:
            _, said = agent.communicate(timeout=180)
            assert agent.returncode == 0, said[-3000:]
    finally:
        for agent in agents:
            agent.kill()
            agent.wait()


def losses(run: Path) -> list[float]:
    rows = [json.loads(line) for line in (run / METRICS).read_text().splitlines()]
    return [row["loss"] for row in rows if "loss" in row]


def gradient_norms(run: Path) -> list[float]:
    rows = [json.loads(line) for line in (run / METRICS).read_text().splitlines()]
    return [row["gradient_norm"] for row in rows if "gradient_norm" in row]


def held_out(run: Path) -> list[float]:
    rows = [json.loads(line) for line in (run / METRICS).read_text().splitlines()]
    return [row["held_out_bits_per_byte"] for row in rows if "held_out_bits_per_byte" in row]


@pytest.mark.parametrize(
    ("several", "one", "close"),
    [("two", "one", CLOSE), ("pieces", "even", CLOSE), ("shards-adamw", "one-adamw", CLOSE),
     ("shards-muon", "one-muon", CLOSE_IN_BFLOAT16), ("two-gpt", "one-gpt", CLOSE),
     ("shards-gpt", "one-gpt", CLOSE_IN_BFLOAT16)],
)  # fmt: skip
def test_two_processes_on_two_nodes_have_the_losses_of_one_at_the_same_batch(
    several: str, one: str, close: float, folder: Path
) -> None:
    assert read_record(folder / several)["training"]["processes"] == 2
    assert len(losses(folder / several)) == 20
    assert losses(folder / several) == pytest.approx(losses(folder / one), rel=close)
    assert held_out(folder / several) == pytest.approx(held_out(folder / one), rel=close)
    # Adam and Muon hide the gradient's scale, its norm and so the clipping do not.
    assert gradient_norms(folder / several)[0] == pytest.approx(gradient_norms(folder / one)[0], rel=1e-5)
    assert gradient_norms(folder / several) == pytest.approx(gradient_norms(folder / one), rel=20 * close)


def test_with_dropout_every_process_draws_for_its_own_rows(folder: Path) -> None:
    one, two = losses(folder / "one-dropped"), losses(folder / "two-dropped")
    assert two[0] != pytest.approx(one[0], rel=1e-6)  # docs/training.md says so
    assert two == pytest.approx(one, rel=0.1)
    assert losses(folder / "two-dropped-again") == two


@pytest.mark.parametrize("name", ["two", "pieces", "shards-adamw", "shards-muon", "two-gpt", "shards-gpt"])
def test_one_process_reads_what_several_wrote(name: str, folder: Path, text: Path) -> None:
    run = octavo.load(folder / name)
    assert run.record["training"]["finished"] is True
    best = run.record["training"]["held_out_bits_per_byte"]
    assert octavo.evaluate(run, text.read_bytes()[:500]).bits_per_byte == pytest.approx(best, abs=0.5)
    assert {path.name for path in (folder / name).iterdir()} == {CONFIG, METRICS, TENSORS, STATE, "tokenizer.json"}


@pytest.mark.parametrize(("name", "close"), [("two-then-one", CLOSE), ("shards-then-one", CLOSE_IN_BFLOAT16)])
def test_one_process_goes_on_with_what_two_began(name: str, close: float, folder: Path) -> None:
    begun = Checkpoint.load(folder / name)
    assert begun.position.step == 11
    assert all(len(tensor) == SETTINGS["batch_size"] for tensor in begun.tensors["state"].values())  # of all processes
    octavo.resume(folder / name, measure=False)
    assert losses(folder / name) == pytest.approx(losses(folder / "one"), rel=close)


@pytest.mark.parametrize(("name", "close"), [("one-then-two", CLOSE), ("one-then-shards", CLOSE_IN_BFLOAT16)])
def test_two_processes_go_on_with_what_one_began(name: str, close: float, folder: Path) -> None:
    assert read_record(folder / name)["training"]["processes"] == 2
    assert losses(folder / name) == pytest.approx(losses(folder / "one"), rel=close)
    assert losses(folder / name)[:11] == losses(folder / "one")[:11]


def test_a_signal_to_torchrun_saves_and_only_the_first_process_tells(text: Path, tmp_path: Path) -> None:
    run, flat = tmp_path / "run", {"decay": "none", "warmup": 0.0}  # without a schedule the budget changes no step
    settings = {**SETTINGS, **flat, "budget": "100ksteps"}
    flags = [part for key, value in settings.items() if key != "measure"
             for part in (f"--{key.replace('_', '-')}", str(value))]  # fmt: skip
    command = [*LAUNCH, "-m", "octavo.cli", "train", "gru", str(text), "--out", str(run), *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: (run / STATE / FILE).is_file())
    process.send_signal(signal.SIGTERM)
    out, messages = process.communicate(timeout=300)
    assert out == ""
    assert messages.count("octavo: stopped at step") == messages.count(f"go on with: octavo resume {run}") == 1
    assert "nothing was saved" not in messages
    step = Checkpoint.load(run).position.step
    assert f"stopped at step {step:,};" in messages
    octavo.resume(run, budget=f"{step + 5}steps", measure=False)
    octavo.train("gru", text, out=tmp_path / "one", **{**SETTINGS, **flat, "budget": f"{step + 5}steps"})
    assert losses(run) == pytest.approx(losses(tmp_path / "one"), rel=1e-3)


def wait_until(happens: Callable[[], bool]) -> None:
    until = time.monotonic() + 300  # a busy machine takes its time
    while time.monotonic() < until:
        if happens():
            return
        time.sleep(0.01)
    raise AssertionError("nothing happened for five minutes")


def test_a_batch_that_the_processes_do_not_divide_is_refused_by_all_of_them(text: Path, tmp_path: Path) -> None:
    command = [
        *LAUNCH,
        "-m",
        "octavo.cli",
        "train",
        "gru",
        str(text),
        "--out",
        str(tmp_path / "run"),
        "--batch-size",
        "5",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode != 0
    assert "octavo: the processes must divide the batch: batch_size=5, processes=2; try --batch-size 4" in done.stderr
    assert "exitcode  : 2 " in done.stderr
    assert not (tmp_path / "run").exists()


def test_dropout_draws_other_numbers_in_every_step_and_process() -> None:
    teams = [Team(rank, 4, torch.device("cpu")) for rank in range(4)]
    seeds = {(seed, step, team.rank): team.step_seed(seed, step) for team in teams for seed in (0, 1, 7)
             for step in range(300)}  # fmt: skip
    assert len(set(seeds.values())) == len(seeds)
    assert all(0 <= value < 1 << 63 for value in (*seeds.values(), teams[3].step_seed(1 << 62, 5)))


def test_rows_are_shared_out_in_order_and_each_once() -> None:
    for size in (1, 2, 3, 6):
        teams = [Team(rank, size, torch.device("cpu")) for rank in range(size)]
        assert torch.cat([torch.arange(12)[team.rows(12)] for team in teams]).tolist() == list(range(12))
    with pytest.raises(UserError, match="processes must divide the batch"):
        replace(teams[0], size=5).rows(12)
