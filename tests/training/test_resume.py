"""Training that was killed, stopped or out of disk goes on as if nothing had happened, to the last bit."""

from __future__ import annotations

import errno
import json
import math
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

import octavo
from cli_processes import Command
from octavo.cli import main
from octavo.errors import Stopped, UserError
from octavo.io.run_folder import CONFIG, STATE
from octavo.tasks import language
from octavo.training import checkpoint, precision
from octavo.training.checkpoint import FILE, Checkpoint
from octavo.training.loop import Loop
from octavo.training.metrics_log import Log
from octavo.training.signals import Stopping
from run_equality import assert_same, rows

SMALL: dict[str, Any] = {
    "width": 16, "layers": 1, "batch_size": 4, "sequence_length": 8, "budget": "30steps", "evaluations": 4,
    "checkpoint_seconds": 0.0, "measure": False,
}  # fmt: skip
RECIPES: dict[str, tuple[str, dict[str, Any]]] = {
    "gru, adamw, dropout, average": ("gru", {"optimizer": "adamw", "dropout": 0.3, "ema": 0.9}),
    "lstm, muon, dropout, two layers": ("lstm", {"layers": 2, "dropout": 0.3, "precision": "float32"}),
    "gru, pieces, smoothing, cosine": ("gru", {"accumulate": 2, "label_smoothing": 0.1, "decay": "cosine"}),
    "gpt, state carried": ("gpt", {"heads": 2, "context": 12, "dropout": 0.2, "ema": 0.9}),
    "gpt, contexts of their own": ("gpt", {"heads": 2, "context": 8, "positions": "learned", "accumulate": 2}),
    "gpt, experts": ("gpt", {"heads": 2, "context": 12, "experts": 4, "dropout": 0.2, "ema": 0.9}),
    "gpt, latent, pieces": ("gpt", {"heads": 2, "context": 12, "attention": "latent", "accumulate": 2}),
    "linear, adamw": ("linear", {"heads": 2, "optimizer": "adamw", "dropout": 0.1}),
    "gated-deltanet, pieces": ("gated-deltanet", {"heads": 2, "accumulate": 2, "dropout": 0.1}),
    "rnn-attention, several epochs": ("rnn-attention", {"sequence_length": 64, "memory": 5, "dropout": 0.2}),
    "lru, two layers": ("lru", {"layers": 2, "dropout": 0.2, "ema": 0.9}),
    "nnlm, adamw": ("nnlm", {"optimizer": "adamw", "dropout": 0.2, "hidden": 16}),
    "conv, state carried": ("conv", {"layers": 2, "accumulate": 2}),
    "hmm": ("hmm", {"states": 6}),
}
WITHOUT = {
    "rnn-attention": ("layers",),
    "nnlm": ("layers",),
    "hmm": ("width", "layers"),
}  # settings that a model does not have


class KilledError(BaseException):
    """Stands for the end of the process: nobody may catch it."""


@pytest.fixture(scope="module", autouse=True)
def peak_not_measured() -> Iterator[None]:
    """The machine's speed, which is only shown, takes longer to measure than these runs take."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(precision, "matmul_rate", lambda device, dtype: 1e9)
        yield


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text.txt"
    rng = random.Random(1)
    words = "to be or not that is the question whether tis nobler".split()
    path.write_text(" ".join(rng.choice(words) for _ in range(900)))
    return path


@pytest.fixture(scope="module")
def undisturbed(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The folder of a run that nothing happened to; each is made once."""
    made: dict[str, Path] = {}

    def folder(model: str = "gru", **settings: Any) -> Path:
        key = json.dumps([model, settings], sort_keys=True)
        if key not in made:
            made[key] = tmp_path_factory.mktemp("undisturbed") / "run"
            train(model, text, made[key], **settings)
        return made[key]

    return folder


def train(model: str, text: Path, out: Path, **settings: Any) -> octavo.Run:
    given = {key: value for key, value in SMALL.items() if key not in WITHOUT.get(model, ())}
    return octavo.train(model, text, out=out, **{**given, **settings})


def flags(**settings: Any) -> list[str]:
    given = {**SMALL, **settings}
    measure = given.pop("measure")
    pairs = [(f"--{key.replace('_', '-')}", str(value)) for key, value in given.items()]
    return [part for pair in pairs for part in pair] + ([] if measure else ["--no-measure"])


@pytest.fixture
def killed_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Ends the process, as it were, when training comes to a step; and saves only every third step until then."""
    step, save = Loop.step, Loop._save

    def arrange(where: int) -> None:
        def dies(loop: Loop, spent: float) -> None:
            if loop.position.step == where:
                monkeypatch.setattr(Loop, "step", step)
                monkeypatch.setattr(Loop, "_save", save)
                raise KilledError
            step(loop, spent)

        monkeypatch.setattr(Loop, "step", dies)
        monkeypatch.setattr(Loop, "_save", lambda loop: None if loop.position.step % 3 else save(loop))

    return arrange


@pytest.fixture
def stopped(text: Path, tmp_path: Path, killed_at: Callable[[int], None]) -> Path:
    """A run that was killed at step 10, with a checkpoint of step 9."""
    killed_at(10)
    with pytest.raises(KilledError):
        train("gru", text, tmp_path / "run")
    return tmp_path / "run"


# ---------------------------------------------------------------------- killed


@pytest.mark.parametrize("name", RECIPES)
def test_a_run_that_is_killed_again_and_again_ends_as_if_it_had_not_been(
    name: str, text: Path, tmp_path: Path, undisturbed: Callable[..., Path], killed_at: Callable[[int], None]
) -> None:
    model, settings = RECIPES[name]
    run = tmp_path / "run"
    killed_at(5)
    with pytest.raises(KilledError):
        train(model, text, run, **settings)
    for where in (8, 9, 17, 29):
        killed_at(where)
        with pytest.raises(KilledError):
            octavo.resume(run, measure=False)
    octavo.resume(run, measure=False)
    assert_same(run, undisturbed(model, **settings))


def test_sigkill_at_any_moment_also_while_a_checkpoint_is_written_changes_nothing(
    text: Path, tmp_path: Path, undisturbed: Callable[..., Path]
) -> None:
    run, settings = tmp_path / "run", {"budget": "200steps", "dropout": 0.2}
    command = ["train", "gru", str(text), "--out", str(run), *flags(**settings)]
    rng, kills, halfway = random.Random(7), 0, 0
    while kills < 2 or not halfway:  # at least one must come while a file is half written
        goal = resumed_at(run) + rng.randint(5, 25)
        with Command(command) as process:
            wait_for(lambda goal=goal: resumed_at(run) >= goal, process, 0.01)
            wait_for(lambda: any((run / STATE).glob(".*.part")), process, 0.0005)  # it writes just now
            process.kill()
            process.communicate()
        assert process.returncode == -signal.SIGKILL
        kills += 1
        halfway += any((run / STATE).glob(".*.part"))
        command = ["resume", str(run), "--no-measure"]
    assert 0 < resumed_at(run) < 200
    octavo.resume(run, measure=False)
    assert_same(run, undisturbed("gru", **settings))


def resumed_at(run: Path) -> int:
    return Checkpoint.load(run).position.step if (run / STATE / FILE).is_file() else 0


def wait_for(happens: Callable[[], bool], process: Command, every: float) -> None:
    """Look again and again, for five minutes at most: a busy machine takes its time."""
    until = time.monotonic() + 300
    while time.monotonic() < until:
        if happens():
            return
        assert process.poll() is None, "training ended before it could be killed"
        time.sleep(every)
    raise AssertionError("nothing happened for five minutes")


def test_a_run_that_is_killed_before_its_folder_is_finished_is_finished_by_resuming(
    text: Path, tmp_path: Path, undisturbed: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*_: Any, **__: Any) -> None:
        raise KilledError

    for settings in (
        {},
        {"learning_rate": 1.0, "muon_learning_rate": 1.0, "decay": "none", "evaluations": 30, "patience": 2},
    ):
        run = tmp_path / f"run{len(settings)}"
        with monkeypatch.context() as patch:
            patch.setattr(language.LanguageTask, "complete", dies)
            with pytest.raises(KilledError):
                train("gru", text, run, **settings)
        octavo.resume(run, measure=False)
        assert_same(run, undisturbed("gru", **settings))
        assert octavo.load(run).record["training"]["finished"] is True


def test_bad_steps_and_the_way_back_from_them_are_the_same_after_a_kill(
    text: Path, tmp_path: Path, killed_at: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    learn = Loop.learn

    def learns_badly(loop: Loop, window: Any) -> tuple[float, float]:
        loss, norm = learn(loop, window)
        return (math.nan if loop.position.step in (4, 12, 13, 14, 20, 21, 22) else loss), norm

    monkeypatch.setattr(Loop, "learn", learns_badly)
    train("gru", text, tmp_path / "whole", ema=0.5)
    killed_at(14)
    with pytest.raises(KilledError):
        train("gru", text, tmp_path / "run", ema=0.5)
    killed_at(23)
    with pytest.raises(KilledError):
        octavo.resume(tmp_path / "run", measure=False)
    octavo.resume(tmp_path / "run", measure=False)
    events = [row["event"] for row in rows(tmp_path / "run") if "event" in row]
    assert events == ["skipped"] * 4 + ["went back"] + ["skipped"] * 3 + ["went back"]
    assert_same(tmp_path / "run", tmp_path / "whole")


@pytest.mark.gpu
@pytest.mark.parametrize("model", ["gru", "lstm"])
def test_a_run_that_is_killed_on_a_gpu_ends_as_if_it_had_not_been(
    model: str, text: Path, tmp_path: Path, undisturbed: Callable[..., Path], killed_at: Callable[[int], None]
) -> None:
    settings = {"device": "cuda", "dropout": 0.3, "ema": 0.9, "layers": 2}
    killed_at(17)
    with pytest.raises(KilledError):
        train(model, text, tmp_path / "run", **settings)
    octavo.resume(tmp_path / "run", measure=False)
    assert_same(tmp_path / "run", undisturbed(model, **settings))


def test_another_number_of_threads_may_resume_a_run(stopped: Path) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        run = octavo.resume(stopped, measure=False)
    finally:
        torch.set_num_threads(threads)
    assert run.record["training"]["steps"] == 30


# ---------------------------------------------------------------------- signals


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_and_leaves_and_resuming_ends_as_if_it_had_not_come(
    number: signal.Signals, code: int, text: Path, tmp_path: Path, undisturbed: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    step, run = Loop.step, tmp_path / "run"

    def interrupted(loop: Loop, spent: float) -> None:
        step(loop, spent)
        if loop.position.step == 13:
            signal.raise_signal(number)

    handlers = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)]
    with monkeypatch.context() as patch:
        patch.setattr(Loop, "step", interrupted)
        assert main(["train", "gru", str(text), "--out", str(run), *flags(checkpoint_seconds=1e9)]) == code
    assert [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert f"octavo: stopped at step 13; go on with: octavo resume {run}\n" in capsys.readouterr().err
    assert Checkpoint.load(run).position.step == 13
    assert main(["resume", str(run), "--no-measure"]) == 0
    assert_same(run, undisturbed("gru"))


def test_a_signal_from_outside_ends_the_process_with_its_code(text: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = ["train", "gru", str(text), "--out", str(run), *flags(budget="100ksteps")]
    with Command(command) as process:
        wait_for(lambda: resumed_at(run) > 0, process, 0.01)
        process.send_signal(signal.SIGTERM)
        _, message = process.communicate(timeout=300)
    assert process.returncode == 143
    assert f"go on with: octavo resume {run}" in message
    assert "Traceback" not in message


def test_a_second_signal_leaves_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[int] = []
    monkeypatch.setattr(os, "_exit", left.append)
    with Stopping() as stopping:
        signal.raise_signal(signal.SIGINT)
        assert stopping.asked == signal.SIGINT
        assert not left
        signal.raise_signal(signal.SIGTERM)
    assert left == [143]


def test_without_a_folder_a_signal_says_that_nothing_was_saved(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = Loop.step

    def interrupted(loop: Loop, spent: float) -> None:
        step(loop, spent)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Loop, "step", interrupted)
    with pytest.raises(KeyboardInterrupt, match="nothing was saved"):
        octavo.train("gru", text, **SMALL)


# ---------------------------------------------------------------------- disks


def test_a_full_disk_is_reported_once_and_leaves_the_last_good_state(
    text: Path, tmp_path: Path, undisturbed: Callable[..., Path], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    stream, step, run, found = checkpoint.stream_tensors, Loop.step, tmp_path / "run", []

    def full(tensors: Any, file: Any, about: Any = None) -> None:
        file.write(b"half of it")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def steps(loop: Loop, spent: float) -> None:
        monkeypatch.setattr(checkpoint, "stream_tensors", full if 10 <= loop.position.step < 20 else stream)
        if loop.position.step == 18:
            found.append(Checkpoint.load(run).position.step)
            found.append(octavo.load(run).record["training"]["finished"])
        step(loop, spent)

    monkeypatch.setattr(Loop, "step", steps)
    train("gru", text, run)
    assert found == [10, False]
    assert capsys.readouterr().err.count("the disk is full") == 1
    assert [path.name for path in (run / STATE).iterdir()] == [FILE]
    assert_same(run, undisturbed("gru"))


def test_rows_that_a_full_disk_did_not_take_are_written_when_it_has_room(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    log = Log(path)
    log.add({"step": 1})
    room = log.file
    with open("/dev/full", "wb", buffering=0) as log.file:
        log.add({"step": 2})
        log.add({"step": 3})
    log.file = room
    log.add({"step": 4})
    log.close()
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [1, 2, 3, 4]


# ---------------------------------------------------------------------- what cannot be resumed


def rewritten(change: Callable[[dict[str, torch.Tensor], dict[str, str]], None]) -> Callable[[Path], None]:
    def rewrite(path: Path) -> None:
        with safetensors.safe_open(path, "pt") as opened:
            about = dict(opened.metadata())
            tensors = {key: opened.get_tensor(key).clone() for key in opened.keys()}  # noqa: SIM118
        change(tensors, about)
        safetensors.torch.save_file(tensors, path, about)

    return rewrite


def with_position(**values: Any) -> Callable[[Path], None]:
    return rewritten(lambda _, about: about.update(position=json.dumps(json.loads(about["position"]) | values)))


def first(tensors: dict[str, torch.Tensor], kind: str) -> str:
    return next(key for key in sorted(tensors) if key.startswith(kind))


DAMAGE: dict[str, Callable[[Path], Any]] = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-100]),
    "empty": lambda path: path.write_bytes(b""),
    "no safetensors": lambda path: path.write_bytes(b"\x80\x04pickled" * 50),
    "another file": lambda path: safetensors.torch.save_file({"a": torch.zeros(2)}, path),
    "gone": lambda path: path.unlink(),
    "a negative step": with_position(step=-1),
    "a step that is no number": with_position(step="12"),
    "an infinite rate": with_position(rate_factor=math.inf),
    "a position nested without bound": rewritten(lambda _, about: about.update(position="[" * 100_000)),
    "no position": rewritten(lambda _, about: about.__delitem__("position")),
    "no weights": rewritten(lambda tensors, _: tensors.__delitem__(first(tensors, "weights"))),
    "other weights": rewritten(lambda tensors, _: tensors.update({first(tensors, "weights"): torch.zeros(3)})),
    "other memories": rewritten(lambda tensors, _: tensors.update({first(tensors, "optimizer"): torch.zeros(3)})),
    "another state": rewritten(lambda tensors, _: tensors.update({"state:0": torch.zeros(4, 3)})),
    "two states": rewritten(lambda tensors, _: tensors.update({"state:x": torch.zeros(4, 16)})),
}


@pytest.fixture(scope="module")
def halfway(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped at step 10, to be copied."""
    run, step = tmp_path_factory.mktemp("halfway") / "run", Loop.step

    def dies(loop: Loop, spent: float) -> None:
        if loop.position.step == 10:
            raise KilledError
        step(loop, spent)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Loop, "step", dies)
        with pytest.raises(KilledError):
            train("gru", text, run)
    return run


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_checkpoint_that_is_damaged_or_foreign_is_refused_in_one_line(
    damage: str, halfway: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(halfway, run)
    DAMAGE[damage](run / STATE / FILE)
    assert main(["resume", str(run)]) == 2
    message = capsys.readouterr().err
    assert message.startswith("octavo: ")
    assert message.count("\n") == 1
    assert "anew" in message


def test_a_text_that_has_changed_is_refused(text: Path, tmp_path: Path) -> None:
    copy, run = tmp_path / "text.txt", tmp_path / "run"
    shutil.copy(text, copy)
    train("gru", copy, run, budget="2steps")
    copy.write_text("x" + copy.read_text()[1:])
    with pytest.raises(UserError, match="has changed since"):
        octavo.resume(run, budget="4steps")


def test_a_run_that_was_not_trained_step_by_step_is_refused(text: Path, tmp_path: Path) -> None:
    octavo.train("bag", text, out=tmp_path / "bag", measure=False)
    with pytest.raises(UserError, match="a run of bag was not trained step by step, so there is nothing to resume"):
        octavo.resume(tmp_path / "bag")
    record = json.loads((tmp_path / "bag" / CONFIG).read_text())
    (tmp_path / "bag" / CONFIG).write_text(json.dumps(record | {"training": {}}))
    with pytest.raises(UserError, match="does not say how it was trained"):
        octavo.resume(tmp_path / "bag")


def test_an_unfinished_run_is_not_written_over(text: Path, stopped: Path) -> None:
    before = Checkpoint.load(stopped).position
    with pytest.raises(UserError, match="octavo resume"):
        train("gru", text, stopped, learning_rate=0.1)
    assert Checkpoint.load(stopped).position == before


def test_the_command_of_an_unfinished_run_resumes_it_when_it_is_given_again(
    text: Path, stopped: Path, undisturbed: Callable[..., Path]
) -> None:
    train("gru", text, stopped)
    assert_same(stopped, undisturbed())


def test_an_unfinished_run_can_be_used_and_has_its_best_weights_so_far(stopped: Path, text: Path) -> None:
    begun, whole = octavo.load(stopped), text.read_bytes()
    assert begun.record["training"]["finished"] is False
    best = Checkpoint.load(stopped).tensors["best"]
    torch.testing.assert_close(dict(begun.model.state_dict()), best, rtol=0, atol=0)
    assert main(["eval", str(stopped), str(text)]) == 0
    assert octavo.evaluate(begun, whole).bits_per_byte < 7.9  # a model that knows nothing pays 8
    assert begun.unfinished
    assert begun.summary().endswith("training not finished")


def test_a_run_killed_before_its_first_checkpoint_is_taken_up_from_the_start(
    text: Path, tmp_path: Path, undisturbed: Callable[..., Path], killed_at: Callable[[int], None]
) -> None:
    killed_at(3)
    with pytest.raises(KilledError):
        train("gru", text, tmp_path / "run", checkpoint_seconds=1e9)
    octavo.resume(tmp_path / "run", measure=False)
    assert_same(tmp_path / "run", undisturbed())


def test_a_finished_run_is_lost_only_when_the_one_in_its_place_is_finished(
    text: Path, tmp_path: Path, killed_at: Callable[[int], None]
) -> None:
    run = tmp_path / "run"
    weights = train("gru", text, run, seed=1).model.state_dict()
    killed_at(5)
    with pytest.raises(KilledError):
        train("gru", text, run, seed=2, force=True)
    torch.testing.assert_close(octavo.load(run).model.state_dict(), weights, rtol=0, atol=0)
    octavo.resume(run, measure=False)
    assert octavo.load(run).record["seed"] == 2
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_interrupted_while_measuring_it_says_how_to_go_on(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(language.LanguageTask, "measure", interrupted)
        with pytest.raises(Stopped, match="stopped; go on with: octavo resume"):
            train("gru", text, tmp_path / "run", measure=True)
    assert not octavo.resume(tmp_path / "run", measure=False).unfinished


# ---------------------------------------------------------------------- more budget


def test_a_finished_run_goes_on_only_with_a_larger_budget_and_is_checked_on_the_way(text: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    train("gru", text, run)
    with pytest.raises(UserError, match=r"it has trained for 30 steps, .* to go on, give a larger --budget"):
        octavo.resume(run)
    with pytest.raises(UserError, match="give a larger --budget"):
        octavo.resume(run, budget="20steps")
    training = octavo.resume(run, budget="60steps", measure=False).record["training"]
    assert (training["steps"], training["loop"]["budget"]) == (60, "60steps")
    assert [row["step"] for row in rows(run) if "held_out_bits_per_byte" in row] == [8, 15, 23, 30, 45, 60]
    assert [row["step"] for row in rows(run) if "loss" in row] == list(range(1, 61))


def test_a_run_that_goes_on_with_a_larger_budget_keeps_it_when_it_is_killed(
    text: Path, tmp_path: Path, killed_at: Callable[[int], None]
) -> None:
    train("gru", text, tmp_path / "run")
    shutil.copytree(tmp_path / "run", tmp_path / "other")
    octavo.resume(tmp_path / "other", budget="60steps", measure=False)
    killed_at(40)
    with pytest.raises(KilledError):
        octavo.resume(tmp_path / "run", budget="60steps", measure=False)
    octavo.resume(tmp_path / "run", measure=False)
    assert_same(tmp_path / "run", tmp_path / "other")


def test_a_run_that_stopped_early_goes_on_when_it_is_given_a_budget(text: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    wild = {"learning_rate": 1.0, "muon_learning_rate": 1.0, "decay": "none", "evaluations": 30, "patience": 2}
    steps = train("gru", text, run, **wild).record["training"]["steps"]
    assert steps < 30
    with pytest.raises(UserError, match="2 evaluations without an improvement; to go on"):
        octavo.resume(run)
    assert octavo.resume(run, budget="31steps", measure=False).record["training"]["steps"] > steps
