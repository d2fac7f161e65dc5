"""The loop over any stage: resumes to the last bit, keeps the best weights, survives bad batches."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from octavo.errors import Stopped, UserError
from octavo.io.run_folder import STATE
from octavo.training.checkpoint import FILE, Checkpoint
from octavo.training.distributed import Team
from octavo.training.loop import Loop
from octavo.training.loop_config import LoopConfig
from octavo.training.optimizer import OptimizerConfig
from octavo.training.stage import RowBatch, Stage

CPU = torch.device("cpu")
OPTIM = OptimizerConfig(learning_rate=0.05, ema=0.9)


class Noisy(nn.Module):
    """Dropout, a buffer and a matrix inside: everything that a resumed run could get wrong."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(7)
        self.inner_DE = nn.Parameter(torch.randn(4, 6, generator=generator) * 0.3)
        self.out_E = nn.Parameter(torch.randn(6, generator=generator) * 0.3)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x_BD: Tensor) -> Tensor:
        if self.training:
            self.seen += 1
        hidden_BE = nn.functional.dropout((x_BD @ self.inner_DE).tanh(), 0.2, self.training)
        return hidden_BE @ self.out_E


def batch_at(step: int) -> RowBatch:
    x_BD = torch.randn(16, 4, generator=torch.Generator().manual_seed(step))
    return RowBatch((x_BD, x_BD.sum(1)), 16.0)


class SquaredError(nn.Module):
    """The objective: the error of a part of a batch, in sum."""

    def __init__(self, model: Noisy, change: Callable[[Tensor], Tensor] = lambda loss: loss) -> None:
        super().__init__()
        self.model, self.change = model, change

    def forward(self, state: Any, part: tuple[Tensor, Tensor]) -> tuple[Tensor, Any]:
        return self.change(nn.functional.mse_loss(self.model(part[0]), part[1], reduction="sum")), state


def stage_of(model: Noisy, budget: str, **settings: Any) -> Stage:
    objective = SquaredError(model, settings.pop("change", lambda loss: loss))
    return Stage(model, objective, **{"batch": batch_at, "optimizer": OPTIM, "budget": budget} | settings)


def trained(model: Noisy, budget: str, evaluations: int = 10, folder: Path | None = None, **settings: Any) -> Loop:
    """The loop after training; from a checkpoint in the folder, where there is one."""
    if folder is not None:
        (folder / STATE).mkdir(parents=True, exist_ok=True)
    config = LoopConfig(evaluations=evaluations, precision="float32")
    loop = Loop(stage_of(model, budget, **settings), config, Team(0, 1, CPU), 3, folder, quiet=True)
    if folder is not None and (folder / STATE / FILE).is_file():
        loop.take(Checkpoint.load(folder))
    loop.train()
    return loop


def error_of(model: Noisy) -> float:
    x_BD, y_B = batch_at(10_000).tensors
    return float(nn.functional.mse_loss(model(x_BD), y_B).detach())


def test_a_resumed_run_ends_with_the_same_bits_as_one_that_never_stopped(tmp_path: Path) -> None:
    checked: dict[str, Any] = {"evaluations": 4, "best": "score"}
    whole = Noisy()
    unbroken = trained(whole, "40steps", folder=tmp_path / "a", validate=lambda: {"score": -error_of(whole)}, **checked)

    def until_25(step: int) -> RowBatch:
        if step == 25:
            os.kill(os.getpid(), signal.SIGTERM)
        return batch_at(step)

    parted = Noisy()
    with pytest.raises(Stopped, match="stopped at step 26"):
        trained(parted, "40steps", folder=tmp_path / "b", batch=until_25,
                validate=lambda: {"score": -error_of(parted)}, **checked)  # fmt: skip
    again = Noisy()  # a new process would start from new weights
    resumed = trained(again, "40steps", folder=tmp_path / "b", validate=lambda: {"score": -error_of(again)}, **checked)
    assert unbroken.position.step == resumed.position.step == 40
    for name, tensor in unbroken.trained_model().state_dict().items():
        assert torch.equal(tensor, resumed.trained_model().state_dict()[name]), name
    rows = [[{k: v for k, v in row.items() if k != "seconds"} for row in one.log.rows] for one in (unbroken, resumed)]
    assert rows[0] == rows[1]
    one, other = (Checkpoint.load(tmp_path / name).tensors for name in ("a", "b"))
    assert {k: set(v) for k, v in one.items()} == {k: set(v) for k, v in other.items()}
    assert all(torch.equal(t, other[kind][name]) for kind, group in one.items() for name, t in group.items())


def test_the_best_weights_by_the_named_measure_are_the_result() -> None:
    model, scores, seen = Noisy(), iter([1.0, 9.0, 2.0, 3.0]), []

    def validate() -> dict[str, float]:
        seen.append(model.inner_DE.detach().clone())
        return {"score": next(scores)}

    optimizer = OptimizerConfig(learning_rate=0.05)
    loop = trained(model, "20steps", 4, validate=validate, best="score", optimizer=optimizer)
    assert loop.position.best_value == 9.0
    assert torch.equal(loop.trained_model().inner_DE, seen[1])
    assert not torch.equal(seen[1], seen[3])


def test_where_less_is_better_the_lowest_measure_chooses() -> None:
    model, scores = Noisy(), iter([3.0, 1.0, 2.0, 4.0])
    loop = trained(model, "20steps", 4, validate=lambda: {"error": next(scores)}, best="error", higher_is_better=False)
    assert loop.position.best_value == 1.0


def test_without_a_measure_the_last_weights_are_the_result() -> None:
    model = Noisy()
    before = error_of(model.eval())
    loop = trained(model, "200steps")
    last = loop.trained_model()
    assert error_of(last.eval()) < before / 4
    assert torch.equal(last.inner_DE, loop.average["inner_DE"])
    assert [row["step"] for row in loop.log.rows if "loss" in row] == list(range(1, 201))


def test_a_batch_whose_loss_is_no_number_is_left_out() -> None:
    calls = iter(range(100))
    loop = trained(Noisy(), "10steps", change=lambda loss: loss * float("nan") if next(calls) == 5 else loss)
    assert [row["step"] for row in loop.log.rows if row.get("event") == "skipped"] == [6]
    assert all(bool(torch.isfinite(t).all()) for t in loop.trained_model().state_dict().values())


def test_when_every_loss_is_no_number_training_ends_with_the_first_weights() -> None:
    loop = trained(Noisy(), "100steps", change=lambda loss: loss * float("nan"))
    assert "last good weights" in loop.position.ended
    assert loop.position.step == 12
    assert torch.equal(loop.trained_model().inner_DE, Noisy().inner_DE)


def test_a_budget_of_examples_ends_training_and_one_of_tokens_is_refused() -> None:
    assert trained(Noisy(), "160examples").position.step == 10
    with pytest.raises(UserError, match="counts examples, steps or seconds"):
        trained(Noisy(), "1000tokens")


def test_a_batch_in_parts_has_the_gradient_of_the_whole() -> None:
    gradients = []
    for parts in (1, 2, 3, 16):
        model = Noisy().double().eval()
        loop = Loop(stage_of(model, "1steps"), LoopConfig(accumulate=parts), Team(0, 1, CPU), 0, quiet=True)
        batch = batch_at(0)
        loop.learn(RowBatch(tuple(t.double() for t in batch.tensors), batch.targets))
        gradients.append(model.inner_DE.grad)
    for gradient in gradients[1:]:
        torch.testing.assert_close(gradient, gradients[0], rtol=1e-10, atol=1e-10)


def test_processes_share_rows_even_where_they_do_not_divide_them() -> None:
    for rows in (1, 2, 5, 16):
        shares = [Team(rank, 3, CPU).share(rows) for rank in range(3)]
        assert [n for start, end in shares for n in range(start, end)] == list(range(rows))


def test_another_models_checkpoint_is_refused(tmp_path: Path) -> None:
    trained(Noisy(), "2steps", folder=tmp_path)
    other = Noisy()
    other.out_E = nn.Parameter(torch.zeros(7))
    with pytest.raises(UserError, match="another model"):
        trained(other, "4steps", folder=tmp_path)


def test_the_callers_random_numbers_are_left_alone() -> None:
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    trained(Noisy(), "3steps")
    assert torch.equal(torch.rand(3), expected)
