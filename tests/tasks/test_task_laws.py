"""What holds of every task: killed and resumed equals undisturbed, saved equals loaded, two processes equal one, a
foreign or damaged folder is refused, and an old run stays until the new one is complete.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors
import safetensors.torch
import torch

import octavo
from cli_processes import start_cli, start_two
from octavo.cli import main
from octavo.errors import Stopped, UserError
from octavo.io.integrity import check_hashes
from octavo.io.lock import lock_file
from octavo.io.run_folder import CONFIG, STATE, TENSORS, TOKENIZER, read_record
from octavo.io.tensors import write_tensors
from octavo.tasks.task import TASKS, find_task
from octavo.training.checkpoint import FILE, Checkpoint
from octavo.training.loop import Loop
from old_runs import write_texts
from run_equality import assert_same, rows
from task_commands import SETTINGS, STEPS, command, train

CLOSE = 1e-3  # relative: processes add gradients up in another order, and Muon computes in bfloat16


class KilledError(BaseException):
    """Stands for the end of the process: nobody may catch it."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write_texts(folder)
    return folder


@pytest.fixture(scope="module")
def undisturbed(data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A finished run of each task that nothing happened to."""
    folder = tmp_path_factory.mktemp("undisturbed")
    for task in SETTINGS:
        train(task, data, folder / task)
    return {task: folder / task for task in SETTINGS}


def test_every_task_is_here() -> None:
    assert set(SETTINGS) == set(TASKS)


@pytest.mark.parametrize("task", SETTINGS)
def test_killed_again_and_again_and_resumed_equals_undisturbed_to_the_bit(
    task: str, data: Path, tmp_path: Path, undisturbed: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, step, save = tmp_path / "run", Loop.step, Loop._save
    for n, where in enumerate((2, 5, 6)):

        def dies(loop: Loop, spent: float, where: int = where) -> None:
            if loop.position.step == where and loop.position.stage == 0:
                raise KilledError
            step(loop, spent)

        monkeypatch.setattr(Loop, "step", dies)
        monkeypatch.setattr(Loop, "_save", lambda loop: None if loop.position.step % 3 else save(loop))
        with pytest.raises(KilledError):
            octavo.resume(run) if n else train(task, data, run)
        monkeypatch.undo()
        check_hashes(run, read_record(run))  # its weights are whole at any time, and its own
    octavo.resume(run)
    assert_same(run, undisturbed[task])


@pytest.mark.parametrize("task", SETTINGS)
def test_sigkill_while_it_trains_changes_nothing(task: str, data: Path, tmp_path: Path) -> None:
    run, rng = tmp_path / "run", random.Random(7)
    longer = {"budget": "60steps"} if task != "facts" else {"budget": "30steps", "pretrain_epochs": 20}
    words = command(task, data, run, **longer)
    for _ in range(2):
        process = start_cli(words)
        before = position(run)
        until = time.monotonic() + 120
        while position(run) == before and process.is_alive() and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(rng.random() * 0.05)
        process.kill()
        process.join()
        words = ["resume", str(run)]
    if not json.loads((run / CONFIG).read_text())["training"]["finished"]:
        octavo.resume(run)
    train(task, data, tmp_path / "whole", **longer)
    assert_same(run, tmp_path / "whole")


def position(run: Path) -> tuple[int, int]:
    """Stage and step of the last checkpoint."""
    if not (run / STATE / FILE).is_file():
        return (-1, 0)
    at = Checkpoint.load(run).position
    return at.stage, at.step


@pytest.mark.parametrize("task", SETTINGS)
def test_saved_equals_loaded(task: str, undisturbed: dict[str, Path], tmp_path: Path) -> None:
    run = octavo.load(undisturbed[task])
    assert not run.unfinished
    run.save(tmp_path / "again")
    again = octavo.load(tmp_path / "again")
    torch.testing.assert_close(again.model.state_dict(), run.model.state_dict(), rtol=0, atol=0)
    assert again.record == run.record


@pytest.mark.parametrize("task", SETTINGS)
def test_two_processes_have_the_losses_of_one(task: str, data: Path, tmp_path: Path) -> None:
    calm = {"dropout": 0.0} if task != "classification" else {"word_dropout": 0.0, "dropout": 0.0}
    train(task, data, tmp_path / "one", **calm)
    words = command(task, data, tmp_path / "two", **calm)
    for process in start_two(words):
        process.join(200)
        assert process.exitcode == 0
    one, two = ([row["loss"] for row in rows(tmp_path / name) if "loss" in row] for name in ("one", "two"))
    assert two == pytest.approx(one, rel=CLOSE)
    assert octavo.load(tmp_path / "two").record["training"]["processes"] == 2


DAMAGE = {
    "a truncated model": lambda run: (run / TENSORS).write_bytes((run / TENSORS).read_bytes()[:-9]),
    "no model": lambda run: (run / TENSORS).unlink(),
    "another model's config": lambda run: change(run, config={"layers": 7}),
    "a config that is no object": lambda run: change(run, config=[1]),
    "a task that nobody knows": lambda run: change(run, task="juggling"),
    "a format of the future": lambda run: change(run, format=99),
    "somebody else's config": lambda run: (run / CONFIG).write_text('{"name": "x"}'),
    "no JSON": lambda run: (run / CONFIG).write_text("{"),
    "a flipped bit": lambda run: flip_bit(run / TENSORS),
    "another run's weights": lambda run: rewrite(run, lambda tensor: -tensor),
    "weights that are no numbers": lambda run: rewrite(run, lambda tensor: tensor * torch.nan, forge=True),
    "infinite weights": lambda run: rewrite(run, lambda tensor: tensor.abs().add(1) * torch.inf, forge=True),
}


def change(run: Path, **values: Any) -> None:
    (run / CONFIG).write_text(json.dumps(json.loads((run / CONFIG).read_text()) | values))


def flip_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-7] ^= 4
    path.write_bytes(data)


def rewrite(run: Path, new: Callable[[torch.Tensor], torch.Tensor], forge: bool = False) -> None:
    """Other weights of the same shapes, in a whole file; `forge`: with their hash in config.json."""
    tensors = safetensors.torch.load_file(run / TENSORS)
    digest = write_tensors(
        {k: new(t) if t.is_floating_point() else t.clone() for k, t in tensors.items()}, run / TENSORS
    )
    if forge:
        change(run, sha256={"tensors": digest})


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("task", SETTINGS)
def test_a_foreign_or_damaged_folder_is_refused(
    task: str, damage: str, undisturbed: dict[str, Path], tmp_path: Path
) -> None:
    run = Path(shutil.copytree(undisturbed[task], tmp_path / "run"))
    DAMAGE[damage](run)
    with pytest.raises(UserError):
        octavo.load(run)


USES = {  # verbs that compute with a run's weights
    "language": ("eval {run} {data}/text.txt", "compress {run} {data}/text.txt {out}", "generate {run} --max-tokens 5",
                 "generate {run} --max-tokens 5 --method beam", "inspect {run} --text abc --json"),
    "masked": ("fill {run} a-[MASK]-day", "fill {run} a-[MASK]-day --json", "embed {run} {data}/text.txt"),
    "translation": ("translate {run} --text ab", "eval {run} --json"),
    "classification": ("classify predict {run} {data}/text.txt", "eval {run}",
                       "classify explain {run} {data}/moods.tsv"),
    "tagging": ("tag predict {run} {data}/tags.tsv", "tag predict {run} {data}/tags.tsv --json", "eval {run}",
                "tag eval {run} {data}/tags.tsv"),
    "images": ("eval {run} --json", "inspect {run} --image {data}/images/light/025.png"),
    "facts": ("answer {run} Where?", "eval {run} {data}/text.txt"),
}  # fmt: skip


@pytest.mark.parametrize("size", [1e30, torch.inf], ids=["huge", "largest"])
@pytest.mark.parametrize("task", SETTINGS)
def test_weights_too_large_to_compute_with_are_one_line_or_give_numbers(
    task: str, size: float, data: Path, undisturbed: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Finite weights, with their hash put right, whose products are not finite."""
    run = Path(shutil.copytree(undisturbed[task], tmp_path / "run"))
    rewrite(run, lambda tensor: (tensor * size).nan_to_num(), forge=True)
    about = safetensors.safe_open(run / STATE / FILE, "pt").metadata()
    state = {k: v.mul(size).nan_to_num() if v.is_floating_point() else v.clone()
             for k, v in safetensors.torch.load_file(run / STATE / FILE).items()}  # fmt: skip
    write_tensors(state, run / STATE / FILE, {k: v for k, v in about.items() if k != "sha256"})
    for words in (*USES[task], f"resume {{run}} --budget {STEPS + 2}steps --quiet"):
        code = main(words.format(run=run, data=data, out=tmp_path / "out").split())
        said = capsys.readouterr()
        assert code in (0, 2), said.err
        assert "nan" not in said.out.lower().split()
        assert not code or len(said.err.splitlines()) == 1, said.err


@pytest.mark.parametrize("task", sorted(SETTINGS.keys() - {"images"}))  # which have no tokenizer
def test_another_tokenizer_is_refused(task: str, undisturbed: dict[str, Path], tmp_path: Path) -> None:
    run = Path(shutil.copytree(undisturbed[task], tmp_path / "run"))
    (run / TOKENIZER).write_text((run / TOKENIZER).read_text() + "\n")
    with pytest.raises(UserError, match=r"tokenizer\.json is not the file that was saved with this run"):
        octavo.load(run)


@pytest.mark.parametrize("task", SETTINGS)
def test_a_damaged_checkpoint_and_that_of_another_run_are_refused(
    task: str, data: Path, undisturbed: dict[str, Path], tmp_path: Path
) -> None:
    run = Path(shutil.copytree(undisturbed[task], tmp_path / "run"))
    flip_bit(run / STATE / FILE)
    with pytest.raises(UserError, match="do not match the hash in it"):
        octavo.resume(run, budget=f"{STEPS + 2}steps")
    about = safetensors.safe_open(undisturbed[task] / STATE / FILE, "pt").metadata()
    tensors = safetensors.torch.load_file(undisturbed[task] / STATE / FILE)
    write_tensors(tensors, run / STATE / FILE, {k: v for k, v in about.items() if k != "sha256"} | {"run": "0" * 64})
    with pytest.raises(UserError, match="the checkpoint of another run"):
        octavo.resume(run, budget=f"{STEPS + 2}steps")


@pytest.mark.parametrize("task", sorted(SETTINGS.keys() - {"facts"}))  # whose people are made up: nothing can change
def test_data_that_have_changed_are_refused(task: str, data: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(data, tmp_path / "data"))
    train(task, other, tmp_path / "run")
    for file in (other / "text.txt", other / "pairs.tsv", other / "moods.tsv", other / "tags.tsv"):
        file.write_text(file.read_text().replace("a", "u"))
    shutil.copy(other / "images" / "dark" / "000.png", other / "images" / "light" / "new.png")
    with pytest.raises(UserError, match="has changed since"):
        octavo.resume(tmp_path / "run", budget=f"{STEPS + 2}steps")


@pytest.mark.parametrize("task", SETTINGS)
def test_a_finished_run_stays_until_the_one_in_its_place_is_finished(
    task: str, data: Path, undisturbed: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Path(shutil.copytree(undisturbed[task], tmp_path / "run"))
    weights, step = octavo.load(run).model.state_dict(), Loop.step

    def fails(loop: Loop, spent: float, where: int, error: BaseException) -> None:
        if loop.position.step == where:
            raise error
        step(loop, spent)

    monkeypatch.setattr(Loop, "step", lambda loop, spent: fails(loop, spent, 0, RuntimeError("a broken model")))
    with pytest.raises(RuntimeError):
        train(task, data, run, seed=5, force=True)
    torch.testing.assert_close(octavo.load(run).model.state_dict(), weights, rtol=0, atol=0)  # nothing was learnt
    monkeypatch.setattr(Loop, "step", lambda loop, spent: fails(loop, spent, 3, KilledError()))
    with pytest.raises(KilledError):
        train(task, data, run, seed=5, force=True)
    monkeypatch.undo()
    torch.testing.assert_close(octavo.load(run).model.state_dict(), weights, rtol=0, atol=0)  # as long as it trains
    octavo.resume(run)
    assert json.loads((run / CONFIG).read_text())["seed"] == 5
    assert os.listdir(tmp_path) == ["run"]


@pytest.mark.parametrize(
    ("task", "number"), [("language", signal.SIGINT), *((one, signal.SIGTERM) for one in SETTINGS)]
)
def test_a_signal_at_any_time_says_how_to_go_on(
    task: str, number: int, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, kind, step = tmp_path / "run", type(find_task(task)), Loop.step

    def asked(*_: object) -> None:
        signal.raise_signal(number)
        time.sleep(5)  # the signal comes before that

    def asked_while_it_trains(loop: Loop, spent: float) -> None:
        if loop.position.step == 2:
            signal.raise_signal(number)
        step(loop, spent)

    changes: dict[str, tuple[Any, str, Any]] = {
        "nothing was learnt yet": (kind, "create", asked),
        "stopped at step 3; go on with: octavo resume": (Loop, "step", asked_while_it_trains),
        "stopped; go on with: octavo resume": (kind, "measure", asked),
    }
    for message, change in changes.items():
        monkeypatch.setattr(*change)
        with pytest.raises(Stopped, match=message) as stopped:
            train(task, data, run)
        monkeypatch.undo()
        assert stopped.value.code == 128 + number
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert octavo.resume(run).record["training"]["finished"]
    assert os.listdir(tmp_path) == ["run"]


@pytest.mark.parametrize("task", SETTINGS)
def test_two_at_a_time_are_refused_with_the_process_that_holds_the_folder(
    task: str, data: Path, tmp_path: Path
) -> None:
    run, longer = tmp_path / "run", {"budget": "100000steps"}
    longer |= {"pretrain_epochs": 100000} if task == "facts" else {}
    process = start_cli(command(task, data, run, **longer))
    try:
        until = time.monotonic() + 120
        while not (run / STATE / FILE).is_file() and time.monotonic() < until:
            time.sleep(0.02)
        for work in (lambda: octavo.resume(run), lambda: train(task, data, run)):
            with pytest.raises(UserError, match=f"process {process.pid} on"):
                work()
    finally:
        process.kill()
        process.join()
    assert lock_file(run).exists()  # nobody was there to delete it
    at = Checkpoint.load(run).position
    if task != "facts":
        octavo.resume(run, budget=f"{at.step + 1}steps")
        assert not lock_file(run).exists()
