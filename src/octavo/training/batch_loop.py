"""The loop for models that learn from batches of examples, whatever these are: sentences, pairs, pictures.

The n-th batch depends on n alone and each step draws its random numbers from a seed of its own, so a run that was
killed goes on from its last checkpoint as if nothing had happened, to the last bit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import torch
from torch import Tensor, nn

from octavo.core import eval_mode
from octavo.errors import Stopped, UserError
from octavo.io.run_folder import METRICS, STATE
from octavo.training.checkpoint import FILE, Checkpoint, Position, any_not_finite, check_shapes, copies
from octavo.training.loop import PATIENCE, SMOOTH, copies_on_device, swapped
from octavo.training.metrics_log import Log, Screen, clock, worth_logging
from octavo.training.optimizer import OptimizerConfig, Optimizers, gradient_norm
from octavo.training.precision import has_bfloat16
from octavo.training.schedule import Budget
from octavo.training.signals import Stopping

Batch = TypeVar("Batch")
Precision = Literal["auto", "float32", "bfloat16"]
SAVE_EVERY = 30.0  # seconds between checkpoints


@dataclass(frozen=True)
class Fit:
    """What training told: the rows of metrics.jsonl, how long it took, how many steps, and why it ended."""

    history: list[dict[str, Any]] = field(repr=False)
    seconds: float
    steps: int
    why: str
    best: float | None = None


def fit(
    model: nn.Module, objective: Callable[[Batch], Tensor], batch_at: Callable[[int], Batch], *, budget: str,
    optim: OptimizerConfig, seed: int, device: torch.device, precision: Precision = "auto",
    check: Callable[[], Mapping[str, float]] | None = None, checks: int = 10, keep_best: str | None = None,
    folder: Path | None = None, quiet: bool = False,
) -> Fit:  # fmt: skip
    """Change the model's weights until the budget is spent; afterwards it holds the best ones (`keep_best` names the
    figure of `check`, where higher is better), or the last.

    `objective` gives a batch's mean loss. `batch_at(n)` gives the n-th batch, on the device, and must depend on n
    alone. With a `folder`, which must be there, a checkpoint is kept in its state/ and metrics.jsonl beside it; where
    there is a checkpoint already, training goes on from it. A signal to stop saves, then raises Stopped.
    """
    loop = _Loop(model.to(device), objective, batch_at, Budget.parse(budget), optim, seed, device)
    loop.check, loop.checks, loop.keep_best, loop.folder = check, checks, keep_best, folder
    loop.lowered, loop.screen = _lowered(model, precision, device), Screen(quiet)
    if loop.budget.kind == "tokens":
        raise UserError(f"this training counts steps or seconds: budget={budget!r}; try 180s or 5000steps")
    if folder is not None and (folder / STATE / FILE).is_file():
        loop.take(Checkpoint.load(folder))
    loop.log = Log(folder / METRICS if folder is not None else None, loop.at.log_bytes)
    devices = [device] if device.type == "cuda" else []
    try:
        with Stopping() as stopping, torch.random.fork_rng(devices):  # each step seeds; the caller's numbers stay
            loop.run(stopping)
    finally:
        loop.log.close()
    at = loop.at
    return Fit(loop.log.rows, at.seconds, at.step, at.ended or "the budget is spent", loop.best_figure)


class _Loop(Generic[Batch]):
    """One training run, from wherever its position says it is."""

    check: Callable[[], Mapping[str, float]] | None
    checks: int
    keep_best: str | None
    folder: Path | None
    lowered: Callable[[], AbstractContextManager[Any]]
    screen: Screen
    log: Log

    def __init__(
        self, model: nn.Module, objective: Callable[[Batch], Tensor], batch_at: Callable[[int], Batch],
        budget: Budget, optim: OptimizerConfig, seed: int, device: torch.device,
    ) -> None:  # fmt: skip
        self.model, self.objective, self.batch_at, self.budget = model, objective, batch_at, budget
        self.optim, self.seed, self.device, self.at = optim, seed, device, Position()
        self.optimizers = Optimizers(model, optim)
        self.learnt = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.average = copies_on_device(self.learnt) if optim.ema else {}
        self.first = copies(model.state_dict())
        self.best: dict[str, Tensor] = {}
        self.best_figure: float | None = None
        self.began = self.saved = 0.0

    def run(self, stopping: Stopping) -> None:
        """Until the budget is spent, the weights cannot be saved from ruin, or somebody asks to stop."""
        at, now = self.at, time.perf_counter()
        self.began, self.saved = now - at.seconds, now
        if not at.step:
            self._save()  # killed before the first checkpoint, it can be taken up again all the same
        while (spent := self._spent()) < 1 and not at.ended:
            if stopping.asked:
                self._leave(stopping.asked)
            if time.perf_counter() - self.saved > SAVE_EVERY:
                self._save()
            half = 0.5 / self.budget.amount if self.budget.kind == "steps" else 0.0  # the rate of a step's middle
            self.step(min(spent + half, 1.0))
            at.seconds = time.perf_counter() - self.began
            spent = self._spent()
            due = self.check is not None and (spent >= 1 or int(spent * self.checks) > at.checked)
            at.checked = int(spent * self.checks)
            self._tell(spent, self._measure() if due else {})
        if stopping.asked:  # during the last step: what is left to do is for the one who takes it up again
            self._leave(stopping.asked)
        self._save()
        self._hold(self.best or self._candidate())

    def _leave(self, signal: int) -> None:
        self._save()
        where = f"; go on with: octavo resume {self.folder}" if self.folder else ", and nothing is saved"
        raise Stopped(f"stopped at step {self.at.step:,}{where}", signal)

    def step(self, spent: float) -> None:
        """One batch: learn from it, unless its loss or gradient is no number."""
        at = self.at
        torch.manual_seed((self.seed * 1_000_003 + at.step) % (1 << 63))
        self.optimizers.zero()
        with self.lowered():
            loss = self.objective(self.batch_at(at.step))
        loss.backward()
        norm = gradient_norm(self.model, self.optim.clip)
        told, length = torch.stack([loss.detach().double(), norm.double()]).tolist()  # one wait for the device
        at.step += 1
        if not (math.isfinite(told) and math.isfinite(length)):
            self._skip()
            return
        at.skipped, at.smooth = 0, told if at.smooth is None else SMOOTH * at.smooth + (1 - SMOOTH) * told
        rate = self.optimizers.step(spent, at.lowered)
        with torch.no_grad():
            for name, tensor in self.average.items():
                tensor.lerp_(self.learnt[name].detach(), 1 - self.optim.ema)
        if worth_logging(at.step):
            self._add({"loss": told, "rate": rate, "norm": length})

    def _skip(self) -> None:
        """Leave the step out; after several in a row, go back to good weights at half the rate, and then give up."""
        at, why = self.at, "the loss or its gradient is not a number"
        at.skipped += 1
        self._add({"event": "skipped", "why": why})
        if at.skipped < PATIENCE:
            return
        self._hold(self.best or self.first)
        for name, tensor in self.average.items():
            tensor.copy_(self.learnt[name].detach())
        self.optimizers.take({})
        if at.restored == PATIENCE:
            at.ended = f"{why}; these are the last good weights"
            return
        at.skipped, at.smooth, at.lowered, at.restored = 0, None, at.lowered / 2, at.restored + 1
        self._add({"event": "went back", "why": why, "rate": at.lowered})
        self.screen.show(f"{why} at step {at.step}: back to good weights, at {at.lowered:g} of the rate", keep=True)

    @torch.no_grad()
    def _measure(self) -> Mapping[str, float]:
        """Check, and keep the weights if they are the best so far."""
        assert self.check is not None
        with swapped(self.learnt, self.average), eval_mode(self.model):
            figures = self.check()
        if self.keep_best is not None:
            figure = figures[self.keep_best]
            if math.isfinite(figure) and (self.best_figure is None or figure > self.best_figure):
                candidate = copies(self._candidate())
                if not any_not_finite(candidate.values()):
                    self.best, self.best_figure = candidate, figure
        self._add({name: value for name, value in figures.items() if math.isfinite(value)})
        return figures

    def _candidate(self) -> dict[str, Tensor]:
        return {**self.model.state_dict(), **self.average}

    @torch.no_grad()
    def _hold(self, tensors: Mapping[str, Tensor]) -> None:
        for name, own in self.model.state_dict().items():
            own.copy_(tensors[name])

    def _save(self) -> None:
        """Write a checkpoint; on a full disk the last one stays and training goes on."""
        self.saved = time.perf_counter()
        if self.folder is None:
            return
        position = Position(**asdict(self.at))
        position.log_bytes = self.log.length()
        figure = {} if self.best_figure is None else {"best": torch.tensor(self.best_figure, dtype=torch.float64)}
        kept = {"weights": dict(self.model.state_dict()), "optimizer": self.optimizers.tensors(),
                "average": self.average, "best": self.best, "figure": figure}  # fmt: skip
        try:
            Checkpoint(position, kept).save(self.folder)
        except (OSError, UserError) as error:
            self.screen.show(f"not saved at step {self.at.step}, training goes on: {error}", keep=True)

    def take(self, saved: Checkpoint) -> None:
        """Go on from a checkpoint."""
        found = {kind: saved.tensors.get(kind, {}) for kind in ("weights", "optimizer", "average", "best", "figure")}
        check_shapes(found["weights"], self.model.state_dict(), "weights")
        check_shapes(found["average"], self.average, "average")
        if found["best"]:
            check_shapes(found["best"], self.model.state_dict(), "best weights")
        self._hold(found["weights"])
        for name, tensor in self.average.items():
            tensor.copy_(found["average"][name])
        self.optimizers.take(found["optimizer"])
        self.best, self.at = dict(found["best"]), saved.position
        self.best_figure = float(found["figure"]["best"]) if found["figure"] else None

    def _spent(self) -> float:
        return self.budget.spent(self.at.seconds, self.at.step, 0)

    def _add(self, row: Mapping[str, Any]) -> None:
        self.log.add({"step": self.at.step, "seconds": round(self.at.seconds, 3), **row})

    def _tell(self, spent: float, figures: Mapping[str, float]) -> None:
        at = self.at
        left = at.seconds / max(spent, 1e-9) * (1 - spent)
        measured = "".join(f"  {name.replace('_', ' ')} {value:.4f}" for name, value in figures.items())
        loss = math.nan if at.smooth is None else at.smooth
        self.screen.show(
            f"{spent:4.0%}  step {at.step:,}  loss {loss:.4f}{measured}  {clock(left)} left", bool(figures)
        )


def _lowered(
    model: nn.Module, precision: Precision, device: torch.device
) -> Callable[[], AbstractContextManager[Any]]:  # fmt: skip
    """What to compute a loss within: products in bfloat16, where that was asked for or the machine is made for it."""
    low = precision == "bfloat16" or (precision == "auto" and has_bfloat16(device))
    if low and next(model.parameters()).dtype == torch.float32:
        return lambda: torch.autocast(device.type, torch.bfloat16)
    return nullcontext
