"""The time that training is predicted to take: what is timed is what training does, and lines extend it."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from command_line import json_output
from flop_counter import flop_counter
from lstm_by_hand import show_products
from octavo.cli import main
from octavo.costs import Machine, Shape, cost_of_config, on_meta, predict_training
from octavo.models import language_models, preset
from octavo.models.parts.config import GPTConfig
from octavo.tasks import api
from octavo.training import step_timing as timing
from octavo.training.language_stage import RESTARTS
from octavo.training.loop import Loop
from octavo.training.loop_config import LoopConfig
from octavo.training.optimizer import OptimizerConfig
from octavo.training.step_timing import MIDDLE, Piece, StepTiming, Timed, sizes_of, time_steps, timed_loop, usual_past

CPU = torch.device("cpu")
TRAINED = [name for spec in language_models() if spec.trained_by_gradient for name in (spec.name, *spec.presets)]
MUCH = 1e18


def small(name: str) -> dict[str, int]:
    """What makes a model small: a hidden Markov model has states, the others a width."""
    return {"states": 32} if name == "hmm" else {"width": 32}


def piece_of(name: str, precision: Any = "float32", optimizer: Any = "muon", batch: int = 3, **settings: Any) -> Piece:
    model, usual = preset(name)
    config = replace(usual, **small(name) | settings)
    loop = LoopConfig(batch_size=batch, precision=precision).suiting(on_meta(model, config, 257))
    return Piece(model, config, 257, loop, OptimizerConfig(optimizer=optimizer))


# ---------------------------------------------------------------------- what is timed


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
@pytest.mark.parametrize("name", TRAINED)
def test_a_step_has_the_operations_that_are_counted(name: str, optimizer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    show_products(monkeypatch)
    piece = piece_of(name, optimizer=optimizer)
    loop = timed_loop(piece, CPU)
    with torch.random.fork_rng(), flop_counter() as step:
        loop.step(MIDDLE)
    assert step.get_total_flops() == piece.operations()


class Kinds(TorchDispatchMode):
    """Counts operations by their kind."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen[str(func)] += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", TRAINED)
def test_a_timed_step_does_what_a_step_of_training_does(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text").write_text("to be or not to be, that is the question. " * 200)
    steps: list[Counter[str]] = []
    plain = Loop.step

    def counted(loop: Loop, spent: float) -> None:
        with Kinds() as kinds:
            plain(loop, spent)
        steps.append(kinds.seen)

    monkeypatch.setattr(Loop, "step", counted)
    settings: Any = small(name)
    api.train(name, str(tmp_path / "text"), tokenizer="byte", batch_size=3, budget="4steps", measure=False, **settings)
    real, steps[:] = steps[-1], []
    loop = timed_loop(piece_of(name, precision="auto"), CPU)
    for _ in range(2):  # the first one makes what the optimizer remembers
        with torch.random.fork_rng():
            loop.step(MIDDLE)
    assert steps[-1] == real


def test_a_window_remembers_what_it_does_on_average() -> None:
    def past(window: int = 64, **settings: Any) -> int:
        return usual_past(on_meta("gpt", GPTConfig(**settings), 257), window)

    assert past() == 64
    assert past(attention="local", attention_window=32) == 32
    assert past(attention="dense") == past(attention="linear") == past(positions="learned") == 0
    starts_N = np.random.default_rng(0).random(200_000) < RESTARTS
    since_N = np.arange(200_000) - np.maximum.accumulate(np.where(starts_N, np.arange(200_000), 0))
    for context in (256, 1024, 4096):
        really = float(np.minimum(64 * since_N, context).mean())
        assert 0 <= past(context=context) - really < 80
    endless = on_meta("rnn-attention", replace(preset("rnn-attention")[1], memory=0), 257)
    assert usual_past(endless, 32) == pytest.approx(32 * 31, abs=32)


def test_step_timing_leaves_random_numbers_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "SECONDS", 1e-9)
    torch.manual_seed(3)
    first = torch.rand(1)
    torch.manual_seed(3)
    found = time_steps(piece_of("gru"), MUCH, CPU)
    assert found is not None
    assert torch.rand(1) == first
    assert [(one.layers, one.rows, one.window) for one in found.timed] == [(2, 3, 32)]
    assert all(0 < one.quickest <= one.seconds <= one.slowest for one in found.timed)
    assert found.precision == "float32"
    assert found.tokens_per_second * found.seconds_per_step == pytest.approx(3 * 32)


# ---------------------------------------------------------------------- parts for the whole


def test_lines_give_the_whole() -> None:
    def seconds(layers: int, tokens: int) -> float:
        return 0.3 + 0.2 * layers + 0.01 * tokens + 0.005 * layers * tokens

    def from_sizes(*sizes: tuple[int, int]) -> float:
        timed = tuple(Timed(L, B, 64, 3, seconds(L, 64 * B), 0.0, 9.0) for L, B in sizes)
        return StepTiming(12, 32, 64, "float32", timed, 1.0).seconds_per_step

    whole = seconds(12, 32 * 64)
    assert from_sizes((12, 32)) == whole
    assert from_sizes((1, 32), (2, 32)) == pytest.approx(whole)
    assert from_sizes((12, 4), (12, 8)) == pytest.approx(whole)
    assert from_sizes((1, 4), (1, 8), (2, 4), (2, 8)) == pytest.approx(whole)


def test_the_whole_is_never_quicker_than_its_part() -> None:
    timed = (Timed(1, 32, 64, 3, 0.5, 0.5, 0.5), Timed(2, 32, 64, 3, 0.4, 0.4, 0.4))
    assert StepTiming(12, 32, 64, "float32", timed, 1.0).seconds_per_step == 0.5


def test_what_is_small_is_timed_whole() -> None:
    for name in TRAINED:
        piece = piece_of(name)
        assert sizes_of(piece, piece.operations(), MUCH) == [(piece.layers, 3, piece.window)]


def test_layers_are_cut_first_then_rows_of_transformers_and_time_of_recurrent_networks() -> None:
    gpt = piece_of("gpt", layers=12, batch=32)
    half = gpt.cut(6, 32, 64).operations()
    assert sizes_of(gpt, half, MUCH) == [(3, 32, 64), (6, 32, 64)]
    least = gpt.cut(2, 8, 64).operations()
    assert sizes_of(gpt, least, MUCH) == [(1, 4, 64), (1, 8, 64), (2, 4, 64), (2, 8, 64)]
    gru = piece_of("gru", layers=2, batch=128)
    assert sizes_of(gru, gru.cut(2, 128, 8).operations(), MUCH) == [(2, 128, 4), (2, 128, 8)]


def test_what_cannot_be_cut_enough_is_not_timed() -> None:
    gpt = piece_of("gpt", layers=12, batch=32)
    least = gpt.cut(2, 4, 64).operations() / 2
    assert sizes_of(gpt, least, MUCH) == [(1, 2, 64), (1, 4, 64), (2, 2, 64), (2, 4, 64)]
    assert not sizes_of(gpt, least - 1, MUCH)
    assert not sizes_of(gpt, MUCH, 1000)
    assert time_steps(gpt, 1.0, CPU) is None


# ---------------------------------------------------------------------- what is said


def test_at_best_is_the_machine_and_the_share_an_assumption() -> None:
    cost = cost_of_config("gpt", GPTConfig(), 257, Shape(32, 64))
    slow, quick = (predict_training(cost, Machine("made up", f, 1e12, 1e9), 0.5) for f in (1e9, 2e9))
    assert slow.tokens_per_second_at_best == pytest.approx(1e9 / slow.flops_per_token)
    assert quick.tokens_per_second_at_best == pytest.approx(2 * slow.tokens_per_second_at_best)
    assert slow.predicted_tokens_per_second == slow.tokens_per_second_at_best / 2
    assert slow.predicted_seconds_per_step == 32 * 64 / slow.predicted_tokens_per_second
    assert slow.how == "assumed"


def test_the_command_tells_how_long_a_step_takes(capsys: pytest.CaptureFixture[str]) -> None:
    found = json_output(capsys, "cost", "gru", "--width", "32", "--tokens", "1000000")
    assert (found["batch"], found["window"]) == (128, 32)  # as octavo train takes it
    mine, gpu = found["predictions"][:2]
    assert (mine["how"], gpu["how"]) == ("timed", "assumed")
    seconds = found["predicted_seconds_per_step"]
    assert seconds == mine["predicted_seconds_per_step"] == pytest.approx(found["timing"]["timed"][0]["seconds"])
    assert found["predicted_tokens_per_second"] == pytest.approx(128 * 32 / seconds)
    assert mine["seconds"] == pytest.approx(1e6 / found["predicted_tokens_per_second"])
    assert gpu["predicted_tokens_per_second"] == pytest.approx(0.4 * gpu["tokens_per_second_at_best"])


def test_without_measuring_nothing_is_said_of_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    found = json_output(capsys, "cost", "gpt", "--no-measure")
    assert found["timing"] is None
    assert found["predicted_seconds_per_step"] is None
    assert {one["machine"] for one in found["predictions"]} == {"H100 SXM"}
    assert found["past"] == 64
    assert found["flops_per_token"]["training_with_past"] > found["flops_per_token"]["training"]


@pytest.mark.parametrize(("name", "why"), [("llama-7b", "too large"), ("bert-base", "no language model")])
def test_what_is_not_timed_is_assumed_and_said_so(capsys: pytest.CaptureFixture[str], name: str, why: str) -> None:
    assert main(["cost", "--like", name]) == 0
    out = capsys.readouterr().out
    assert why in out
    assert "training timed" not in out


def test_a_trained_run_is_timed_as_it_was_trained(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "text").write_text("to be or not to be, that is the question. " * 50)
    api.train("gpt", str(tmp_path / "text"), out=str(tmp_path / "run"), tokenizer="byte", width=32, layers=1,
              batch_size=4, sequence_length=16, budget="2steps", measure=False)  # fmt: skip
    trained = json.loads((tmp_path / "run" / "config.json").read_text())["training"]
    found = json_output(capsys, "cost", str(tmp_path / "run"))
    assert (found["batch"], found["window"]) == (trained["streams"], trained["sequence_length"]) == (4, 16)
    assert math.isfinite(found["predicted_tokens_per_second"])
