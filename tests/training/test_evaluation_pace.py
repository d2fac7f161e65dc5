"""Evaluations take at most a tenth of a time budget, and the result of training is exact all the same."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import octavo
from octavo.core import seeded_generator
from octavo.models import GRU
from octavo.models.parts.checks import check_numbers
from octavo.models.recurrent import RecurrentConfig
from octavo.text.validation_chunks import hold_out
from octavo.training.checkpoint import Position
from octavo.training.distributed import Team
from octavo.training.evaluation_pace import SMALLEST_PART, EvaluationPace
from octavo.training.language_stage import HELD_OUT, Streams, TrainingText, bits_of_chunks, language_stage
from octavo.training.loop import Loop
from octavo.training.loop_config import LoopConfig
from octavo.training.metrics_log import progress_line
from octavo.training.optimizer import OptimizerConfig
from octavo.training.schedule import Budget
from octavo.training.signals import Stopping

VOCAB, BEGIN = 12, 11
ALONE = Team(0, 1, torch.device("cpu"))


def text_of(length: int = 200_000) -> TrainingText:
    x_N = np.cumsum(np.random.default_rng(1).integers(1, 3, length)) % (VOCAB - 1)
    held = hold_out(x_N, BEGIN)
    opened_PL = torch.from_numpy(np.pad(held.pieces_PL, ((0, 0), (1, 0)), constant_values=BEGIN))
    return TrainingText(Streams.fitting(held.train_N, BEGIN, 4, 8, 0), opened_PL, held.pieces_PL.size, 1.0)


def made_loop(text: TrainingText, **settings: Any) -> Loop:
    model = GRU(RecurrentConfig(width=8, layers=1), VOCAB)
    model.initialise(seeded_generator(0))
    config = LoopConfig(batch_size=4, sequence_length=8, precision="float32", **settings)
    return Loop(language_stage(model, text, OptimizerConfig(), config.budget), config, ALONE, seed=0, quiet=True)


class Clock:
    """Time that passes only where a test says so."""

    now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock for training, by which a step takes five milliseconds."""
    clock, step = Clock(), Loop.step

    def timed(loop: Loop, spent: float) -> None:
        step(loop, spent)
        clock.sleep(0.005)

    monkeypatch.setattr(Loop, "step", timed)
    monkeypatch.setattr("octavo.training.loop.time", SimpleNamespace(perf_counter=clock))
    monkeypatch.setattr("octavo.training.evaluation_pace.perf_counter", clock)
    return clock


def slowed(loop: Loop, seconds: float, sleep: Callable[[float], None] = time.sleep) -> list[float]:
    """Let a validation on all data take so long; the parts that it was made on."""
    stage, parts = loop.stage, []
    exact = stage.validate_part
    assert exact is not None

    def validate(part: float = 1.0) -> Any:
        parts.append(part)
        sleep(part * seconds)
        return exact(part)

    stage.validate = stage.validate_part = validate
    return parts


def test_evaluations_take_a_tenth_of_a_time_budget_and_the_final_result_is_of_all_validation_data(
    clock: Clock,
) -> None:
    text = text_of()
    loop = made_loop(text, budget="1.5s")
    parts = slowed(loop, 1.0, clock.sleep)  # ten of them would take six times the budget
    took: list[float] = []
    evaluate_once = loop.evaluate

    def evaluate() -> dict[str, float]:
        began = clock()
        if loop.budget.spent(loop.position) >= 1:
            return evaluate_once()
        measured = evaluate_once()
        took.append(clock() - began)
        return measured

    loop.evaluate = evaluate  # type: ignore[method-assign]
    loop.run(Stopping())
    assert took
    assert sum(took) <= 0.15 + max(took)  # the last of them may have taken longer than expected
    assert set(parts[:-1]) <= {SMALLEST_PART, loop.position.validation_part}
    assert parts[-1] == 1.0
    model: Any = loop.model
    model.load_state_dict(loop.best)
    expected = bits_of_chunks(model, text.chunks_PL) / text.chunk_bytes
    assert loop.position.final_value == pytest.approx(expected, rel=1e-6)


def test_where_validation_takes_little_all_of_it_is_used() -> None:
    pace, at = EvaluationPace(Budget.parse("600s"), 10), Position()
    assert pace.choose_part(lambda part: time.sleep(0.001), at) == 1.0
    assert pace.is_due(0.1, at)
    assert not pace.is_due(0.05, at)
    at.evaluation_seconds = 60.1
    assert not pace.is_due(0.1, at)


def test_budgets_that_are_no_time_depend_on_no_clock() -> None:
    loop = made_loop(text_of(20_000), budget="8steps", evaluations=4)
    parts = slowed(loop, 0.02)
    loop.run(Stopping())
    assert parts == [1.0] * 4
    assert loop.position.final_value is None
    assert loop.position.evaluation_seconds == 0.0


def test_a_run_that_was_evaluated_on_all_data_before_goes_on_so() -> None:
    pace = EvaluationPace(Budget.parse("1s"), 10)
    assert pace.choose_part(lambda part: time.sleep(1), Position(best_value=2.0)) == 1.0


def test_the_record_has_the_exact_result_and_a_checkpoint_what_was_chosen(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("the rain in spain stays mainly in the plain. " * 3000, encoding="utf-8")
    run = octavo.train("gru", tmp_path / "text.txt", out=tmp_path / "run", budget="1s", width=8, layers=1)
    training = octavo.load(tmp_path / "run").record["training"]
    assert 0 < training[HELD_OUT] < 8
    held = [row for row in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines() if HELD_OUT in row]
    assert held
    assert run.record["training"][HELD_OUT] == training[HELD_OUT]


def test_the_line_of_progress_says_that_its_loss_is_a_mean_and_never_that_no_time_is_left() -> None:
    stage = made_loop(text_of(20_000), budget="8steps").stage
    at = Position(step=30, examples=960, seconds=10.0)
    line = progress_line(stage, at, 1.0, deque([2.0, 4.0]), {}, 1e12)
    assert "loss 3.0000 (mean of the last 2 steps)" in line
    assert line.endswith("a few seconds left")
    assert "loss 2.0000 (of the last step)" in progress_line(stage, at, 0.5, [2.0], {}, 1e12)
    assert progress_line(stage, at, 1.02, [2.0], {}, 1e12).startswith("100%")  # a step may end after its time
    best = Position(step=30, examples=960, seconds=10.0, best_value=1.5)
    name = f"best {stage.best}".replace("_", " ")
    assert f"  {name} 1.5000  96 tokens/s" in progress_line(stage, best, 0.5, [2.0], {}, 1e12)
    measured = progress_line(stage, best, 0.5, [2.0], {"held_out": 1.75}, 1e12)
    assert "  held out 1.7500  96 tokens/s" in measured
    assert name not in measured


def test_weights_that_give_no_numbers_are_no_better_than_others_and_training_goes_on() -> None:
    loop = made_loop(text_of(20_000), budget="8steps", evaluations=4)
    exact = loop.stage.validate
    assert exact is not None

    def validate(part: float = 1.0) -> Any:
        return exact() if loop.position.step < 4 else check_numbers(torch.tensor(math.nan), "the losses")

    loop.stage.validate = loop.stage.validate_part = validate
    assert loop.train() == "the budget is spent"
    measured = [row[HELD_OUT] for row in loop.log.rows if HELD_OUT in row]
    assert [loop.position.best_value] == measured
    assert loop.position.stale == 3
