"""The loop over batches: resumes to the last bit, keeps the best weights, survives bad batches."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from octavo.errors import Stopped, UserError
from octavo.training.batch_loop import Fit, fit
from octavo.training.checkpoint import Checkpoint
from octavo.training.optimizer import OptimizerConfig

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


def batch_at(step: int) -> tuple[Tensor, Tensor]:
    x_BD = torch.randn(16, 4, generator=torch.Generator().manual_seed(step))
    return x_BD, x_BD.sum(1)


def trained(model: Noisy, budget: str, **told: Any) -> Fit:
    def objective(batch: tuple[Tensor, Tensor]) -> Tensor:
        return nn.functional.mse_loss(model(batch[0]), batch[1])

    usual: dict[str, Any] = {"optim": OPTIM, "seed": 3, "device": CPU, "quiet": True, "precision": "float32"}
    return fit(model, told.pop("objective", objective), batch_at, budget=budget, **(usual | told))


def error_of(model: Noisy) -> float:
    x_BD, y_B = batch_at(10_000)
    return float(nn.functional.mse_loss(model(x_BD), y_B).detach())


def test_a_resumed_run_ends_with_the_same_bits_as_one_that_never_stopped(tmp_path: Path) -> None:
    whole, parted = Noisy(), Noisy()
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    checked: dict[str, Any] = {"checks": 4, "keep_best": "score"}
    unbroken = trained(whole, "40steps", folder=tmp_path / "a", check=lambda: {"score": -error_of(whole)}, **checked)

    def until_25(step: int) -> tuple[Tensor, Tensor]:
        if step == 25:
            os.kill(os.getpid(), signal.SIGTERM)
        return batch_at(step)

    def objective(batch: tuple[Tensor, Tensor]) -> Tensor:
        return nn.functional.mse_loss(parted(batch[0]), batch[1])

    how: dict[str, Any] = {"optim": OPTIM, "seed": 3, "device": CPU, "quiet": True, "precision": "float32",
                           "check": lambda: {"score": -error_of(parted)}, **checked}  # fmt: skip
    with pytest.raises(Stopped, match="stopped at step 26"):
        fit(parted, objective, until_25, budget="40steps", folder=tmp_path / "b", **how)
    parted = Noisy()  # a new process would start from new weights
    resumed = fit(parted, objective, batch_at, budget="40steps", folder=tmp_path / "b", **how)
    assert unbroken.steps == resumed.steps == 40
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, parted.state_dict()[name]), name
    drop = ("seconds",)
    rows = [[{k: v for k, v in row.items() if k not in drop} for row in one.history] for one in (unbroken, resumed)]
    assert rows[0] == rows[1]
    one, other = (Checkpoint.load(tmp_path / name).tensors for name in ("a", "b"))
    assert {k: set(v) for k, v in one.items()} == {k: set(v) for k, v in other.items()}
    assert all(torch.equal(t, other[kind][name]) for kind, group in one.items() for name, t in group.items())


def test_the_best_weights_by_the_named_figure_are_kept() -> None:
    model, scores, seen = Noisy(), iter([1.0, 9.0, 2.0, 3.0]), []

    def check() -> dict[str, float]:
        seen.append(model.inner_DE.detach().clone())
        return {"score": next(scores)}

    told = trained(
        model, "20steps", check=check, checks=4, keep_best="score", optim=OptimizerConfig(learning_rate=0.05)
    )
    assert told.best == 9.0
    assert torch.equal(model.inner_DE, seen[1])
    assert not torch.equal(seen[1], seen[3])


def test_without_a_check_the_last_weights_stay_and_learn() -> None:
    model = Noisy()
    before = error_of(model.eval())
    model.train()
    told = trained(model, "200steps")
    assert error_of(model.eval()) < before / 4
    assert told.why == "the budget is spent"
    assert [row["step"] for row in told.history] == list(range(1, 201))


def test_a_batch_whose_loss_is_no_number_is_left_out() -> None:
    model = Noisy()
    calls = iter(range(100))

    def objective(batch: tuple[Tensor, Tensor]) -> Tensor:
        loss = nn.functional.mse_loss(model(batch[0]), batch[1])
        return loss * float("nan") if next(calls) == 5 else loss

    told = trained(model, "10steps", objective=objective)
    assert [row["step"] for row in told.history if row.get("event") == "skipped"] == [6]
    assert all(bool(torch.isfinite(t).all()) for t in model.state_dict().values())


def test_when_every_loss_is_no_number_training_ends_with_the_first_weights() -> None:
    model, first = Noisy(), Noisy()

    def objective(batch: tuple[Tensor, Tensor]) -> Tensor:
        return model(batch[0]).sum() * float("nan")

    told = trained(model, "100steps", objective=objective)
    assert "last good weights" in told.why
    assert told.steps == 12
    assert torch.equal(model.inner_DE, first.inner_DE)


def test_a_budget_of_tokens_is_refused() -> None:
    with pytest.raises(UserError, match="steps or seconds"):
        trained(Noisy(), "1000tokens")


def test_another_models_checkpoint_is_refused(tmp_path: Path) -> None:
    model = Noisy()
    trained(model, "2steps", folder=tmp_path)
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
