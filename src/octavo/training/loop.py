"""The loop that trains every model by gradient descent: a batch, an update of the weights, now and then an evaluation
and a checkpoint.

Everything a step depends on is in the weights, the optimizers, the carried state and the Position, so a run that was
killed resumes from its last checkpoint to the last bit. Random numbers are drawn from the step's own seed.
"""

from __future__ import annotations

import copy
import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from octavo.core import eval_mode, map_state, select, state_from, tensors_of
from octavo.errors import Stopped, UserError
from octavo.io.run_folder import BOARD, METRICS, final_folder
from octavo.training.checkpoint import Checkpoint, Position, any_not_finite, carried_state, check_shapes, copies
from octavo.training.checkpoint import write_weights as write_best
from octavo.training.distributed import Team, joined, placed_like, swapped, unsharded, whole
from octavo.training.evaluation_pace import EvaluationPace
from octavo.training.loop_config import LoopConfig
from octavo.training.metrics_log import Log, Screen, TensorBoard, progress_line, worth_logging
from octavo.training.optimizer import Optimizers, gradient_norm
from octavo.training.precision import Precision
from octavo.training.schedule import Budget
from octavo.training.signals import Stopping
from octavo.training.stage import Batch, Stage

BAD_STEPS = 3  # in a row before the best weights are restored, and times that happens before training ends
EXPLODED = 3.0  # a loss so many times its running average is a bad step
SMALL_STEP_FLOPS = 2e13  # a GPU is done with them before Python has started all of its kernels
SMOOTHING = 0.95  # of the running average of the loss, at each step
SHOWN_LOSSES = 20  # steps whose mean loss the line of progress shows


class Loop:
    """The training of one stage, from wherever its position says it is."""

    def __init__(
        self, stage: Stage, config: LoopConfig, team: Team, seed: int, folder: Path | None = None, quiet: bool = False
    ) -> None:
        self.stage, self.config, self.team, self.seed = stage, config, team, seed
        self.model = model = stage.model
        self.folder = folder if team.leads else None
        self.budget, self.position = Budget.parse(stage.budget).in_unit(stage.unit), Position()
        if stage.carries:
            team.rows(stage.batch(0).rows)  # which refuses what cannot be divided
        self.untrained: nn.Module = copy.deepcopy(model).cpu()  # before it may be sharded or compiled
        step_flops = 3 * stage.flops_per_example * stage.examples_per_step
        recordable = 0 < step_flops < SMALL_STEP_FLOPS and team.size == config.accumulate == 1
        recordable = recordable and bool(getattr(model, "is_recordable", True))
        self.precision = Precision(config, model, team.device, stage.fixed_shapes, recordable)
        self.objective = team.wrap(self.precision.compiled(stage.objective, model), model, config.shard)
        self.optimizers = Optimizers(model, stage.optimizer)
        self.tensors: dict[str, Tensor] = dict(model.state_dict(keep_vars=True))
        learnt = {name: t for name, t in self.tensors.items() if t.requires_grad} if stage.optimizer.ema else {}
        self.average = {name: t.detach().clone() for name, t in learnt.items()}
        self.best: dict[str, Tensor] = {}
        self.state: Any = None
        self.pace = EvaluationPace(self.budget, config.evaluations)
        self.recent: deque[float] = deque(maxlen=SHOWN_LOSSES)  # losses
        self.screen = Screen(quiet or not team.leads)
        self.log = Log(None)
        self.board: TensorBoard | None = None
        self.began = self.saved = 0.0  # when, by the clock
        self.said_unsaved = False

    # ------------------------------------------------------------------ one step

    def learn(self, batch: Batch) -> tuple[float, float]:
        """Put the gradient of a batch on the weights: its mean loss, and the gradient's norm."""
        start, end = self.team.share(batch.rows)
        used = end > start  # a process that gets no row computes with any, for nothing
        start, end = (start, end) if used else (0, 1)
        scale = used * self.team.size / max(1.0, batch.targets)  # processes' gradients are averaged, not summed
        anew = batch.fresh or self.state is None or not self.stage.carries
        before = self._start(end - start) if anew else self.state
        pieces = min(self.config.accumulate, end - start)
        bounds = [(end - start) * i // pieces for i in range(pieces + 1)]
        states, total = [], torch.zeros((), device=self.team.device)
        for a, b in pairwise(bounds):
            rows = torch.arange(a, b, device=self.team.device)
            part = select(before, rows) if pieces > 1 else before
            with self.precision.lowered():
                loss, after = self.objective(part, batch.part(start + a, start + b, self.team.device))
            (loss * scale).backward()
            total += loss.detach() * used
            states.append(map_state(after, self._carried) if self.stage.carries else ())
        self.state = (states[0] if len(states) == 1 else joined(states)) if self.stage.carries else None
        norm = gradient_norm(self.model, self.stage.optimizer.clip)
        loss, norm = torch.stack([self.team.total(total).double(), norm.double()]).tolist()  # one wait for the device
        return loss / max(1.0, batch.targets), norm

    def _start(self, rows: int) -> Any:
        return map_state(self.stage.start(rows), whole)  # what is made from sharded weights is sharded too

    def _carried(self, tensor: Tensor) -> Tensor:
        """As the next batch gets it, or one after a checkpoint: in the weights' precision, no view of a larger one."""
        tensor = tensor.contiguous()
        return tensor.to(next(iter(self.tensors.values())).dtype) if tensor.is_floating_point() else tensor

    def step(self, spent: float) -> None:
        """One batch: learn from it, unless the step is bad."""
        torch.manual_seed(self.team.step_seed(self.seed, self.position.step))
        batch = self.stage.batch(self.position.step)
        self.optimizers.zero()
        loss, norm = self.learn(batch)
        at = self.position
        at.step += 1
        at.examples += batch.examples
        if why := self._bad(loss, norm, batch.fresh):
            self._skip(why, loss, norm)
            return
        at.skipped = 0
        self.recent.append(loss)
        at.loss_average = loss if at.loss_average is None else SMOOTHING * at.loss_average + (1 - SMOOTHING) * loss
        rate = self.stage.optimizer.learning_rate * self.optimizers.step(spent, at.rate_factor)
        with torch.no_grad():
            for name, tensor in self.average.items():
                tensor.lerp_(self.tensors[name].detach(), 1 - self.stage.optimizer.ema)
        if worth_logging(at.step):
            self._add({"loss": loss, **self.stage.describe_loss(loss), "learning_rate": rate, "gradient_norm": norm})

    def _bad(self, loss: float, norm: float, fresh: bool) -> str:
        """Why the step must be left out, if it must; a batch without a past may well cost more."""
        if not math.isfinite(loss) or not math.isfinite(norm):
            return "the loss or its gradient is not a number"
        average = self.position.loss_average
        if average is not None and not fresh and loss > EXPLODED * average + 1:
            return "the loss has exploded"
        return ""

    def _skip(self, why: str, loss: float, norm: float) -> None:
        """Leave the step out; after several in a row, restore good weights and halve the learning rate."""
        at = self.position
        at.skipped += 1
        spoilt = torch.tensor(float(any_not_finite(tensors_of(self.state))), device=self.team.device)
        self.state = None if float(self.team.total(spoilt)) else self.state  # of all processes, or of none
        row = {"loss": loss, "gradient_norm": norm}
        self._add({"event": "skipped", "why": why} | {k: v for k, v in row.items() if math.isfinite(v)})
        if at.skipped < BAD_STEPS:
            return
        self._restore()
        if at.restored == BAD_STEPS:
            at.ended = f"{why}; these are the last good weights"
            return
        at.skipped, at.loss_average, at.rate_factor, at.restored = 0, None, at.rate_factor / 2, at.restored + 1
        self._add({"event": "went back", "why": why, "learning_rate_factor": at.rate_factor})
        self.screen.show(
            f"{why} at step {at.step}: back to good weights, at {at.rate_factor:g} of the learning rate", keep=True
        )

    @torch.no_grad()
    def _restore(self) -> None:
        """The weights of the best evaluation, or the first ones, with nothing remembered of what came after."""
        good = self.best or self.untrained.state_dict()
        for name, tensor in self.tensors.items():
            tensor.copy_(placed_like(tensor, good[name]))
            if name in self.average:
                self.average[name].copy_(placed_like(tensor, good[name]))
        self.optimizers.take({})
        self.state = None

    # ------------------------------------------------------------------ now and then

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Validate, keep the weights if they are the best so far, write a sample; returns the measures."""
        at, stage, began = self.position, self.stage, time.perf_counter()
        weights = {name: whole(t) for name, t in (self.tensors | self.average).items()}
        sound = not any_not_finite(weights.values())
        with swapped(self.tensors, self.average), eval_mode(self.model), unsharded(self.objective):
            measured, validated = self.pace.validate(stage, at, self.team), time.perf_counter()
            text = stage.sample() if sound and stage.sample and self.team.leads and self.pace.is_sampled(at) else ""
        self.pace.add(at, self.team, began, validated, bool(text))
        value = measured.get(stage.best)
        if sound and (value is None or (math.isfinite(value) and stage.better(value, at.best_value))):
            at.best_value, at.stale = value, 0
            self.best = copies(weights)
            if stage.usable:
                self._write(lambda folder: write_best(self.best, folder))
        else:
            at.stale += 1
        if self.config.patience and at.stale >= self.config.patience:
            at.ended = f"{at.stale} evaluations without an improvement"
        row: dict[str, Any] = {name: number for name, number in measured.items() if math.isfinite(number)}
        self._add(row | ({"sample": text} if text else {}))
        return measured

    @torch.no_grad()
    def _measure_best(self) -> None:
        """Measure the best weights on all validation data, where they were chosen on a part of it."""
        best = {name: placed_like(self.tensors[name], tensor) for name, tensor in self.best.items()}
        with swapped(self.tensors, best), eval_mode(self.model), unsharded(self.objective):
            self.pace.validate_whole(self.stage, self.position, self.team)

    def _add(self, row: dict[str, Any]) -> None:
        at = self.position
        stage = {"stage": self.stage.name} if self.stage.name else {}
        row = {**stage, "step": at.step, self.stage.unit: at.examples, "seconds": round(at.seconds, 3), **row}
        self.log.add(row)
        if self.board is not None:
            self.board.add(row)

    def capture(self) -> Checkpoint:
        """Everything needed to resume from here, copied; every process must ask at once."""
        at = Position(**asdict(self.position))
        at.log_bytes = self.log.length()
        rows = [self.team.all_rows(t) for t in tensors_of(self.state)]
        return Checkpoint(at, {
            "weights": copies({name: whole(t) for name, t in self.tensors.items()}),
            "optimizer": copies(self.optimizers.tensors()),
            "average": copies({name: whole(t) for name, t in self.average.items()}),
            "best": dict(self.best),
            "state": copies({str(i): t for i, t in enumerate(rows)}),
        })  # fmt: skip

    @torch.no_grad()
    def take(self, saved: Checkpoint) -> None:
        """Resume from a checkpoint, whatever the number of processes that made it."""
        found = {kind: saved.tensors.get(kind, {}) for kind in ("weights", "optimizer", "average", "best", "state")}
        check_shapes(found["weights"], self.tensors, "weights")
        if found["best"]:
            check_shapes(found["best"], self.tensors, "best weights")
        check_shapes({name: t for name, t in found["average"].items() if name in self.average}, self.average, "average")
        for name, tensor in self.tensors.items():
            tensor.copy_(placed_like(tensor, found["weights"][name]))
        for name, tensor in self.average.items():
            tensor.copy_(placed_like(tensor, found["average"][name]))
        self.optimizers.take(found["optimizer"])
        self.best, self.position, self.state = dict(found["best"]), Position(**asdict(saved.position)), None
        if found["state"]:
            start, rows = self._start(1), self.stage.batch(0).rows
            tensors = carried_state(found["state"], tensors_of(start), rows)
            mine = self.team.rows(rows)
            self.state = state_from(start, [t[mine].to(self.team.device, copy=True) for t in tensors])

    def trained_model(self) -> nn.Module:
        """The model with the best weights, whole and as it was before training prepared it, on the CPU."""
        weights = self.best or {name: whole(t) for name, t in (self.tensors | self.average).items()}
        self.untrained.load_state_dict(copies(weights))
        return self.untrained

    # ------------------------------------------------------------------ the run

    def train(self) -> str:
        """Run to the end and save: signals stop it, the caller's random numbers stay as they are; why it ended."""
        if self.folder is not None:
            self.log = Log(self.folder / METRICS, self.position.log_bytes)
            self.board = TensorBoard(self.folder / BOARD) if self.config.tensorboard else None
        devices = [self.team.device] if self.team.device.type == "cuda" else []
        self.model.train()
        try:
            with Stopping() as stopping, torch.random.fork_rng(devices), self.stage.around():
                why = self.run(stopping)
            self._save()
        except (RuntimeError, MemoryError) as error:
            if advice := self.config.out_of_memory(error):
                raise advice from error
            raise
        finally:
            self.log.close()
            if self.board is not None:
                self.board.close()
        return why

    def run(self, stopping: Stopping) -> str:
        """Train until the budget is spent; returns why it ended."""
        self.began, self.saved = time.perf_counter() - self.position.seconds, time.perf_counter()
        if not self.position.step:
            self.team.wait()  # once there is a checkpoint, every process heeds signals
            self._save()  # killed before the first checkpoint, it can be resumed all the same
        spent, stop, due = self._agree(stopping)
        while spent < 1 and not self.position.ended:
            if stop:
                self._leave(int(stop))
            if due:
                self._save()
            self.step(min(spent + self._half_a_step(), 1.0))
            spent, stop, due = self._agree(stopping)
            measured: dict[str, float] = {}
            if spent >= 1 or self.pace.is_due(spent, self.position):
                self.position.evaluations = int(spent * self.config.evaluations)
                measured = self.evaluate()
            self._show(spent, measured)
        if stop:  # since the last step began
            self._leave(int(stop))
        if self.position.validation_part < 1 and self.best:
            self._measure_best()
        return self.position.ended or "the budget is spent"

    def _agree(self, stopping: Stopping) -> list[float]:
        """By the leader's clock: how much of the budget is spent, whether to stop, whether to save."""
        now = time.perf_counter()
        self.position.seconds = now - self.began
        due = now - self.saved > self.config.checkpoint_seconds
        return self.team.agree(self.budget.spent(self.position), float(stopping.asked), float(due))

    def _half_a_step(self) -> float:
        """Half of a step as a share of the budget: a step is trained at the learning rate of its middle."""
        size = {"seconds": 0.0, "steps": 1.0}.get(self.budget.kind, float(self.stage.examples_per_step))
        return size / 2 / self.budget.amount

    def _save(self) -> None:
        """Write a checkpoint; on a full disk the last one stays and training goes on."""
        self.saved = time.perf_counter()
        if self.folder is not None or self.team.size > 1:
            self._write(self.capture().save)

    def _write(self, write: Callable[[Path], None]) -> None:
        if self.folder is None:
            return
        try:
            write(self.folder)
            self.said_unsaved = False
        except (UserError, OSError) as error:
            if not self.said_unsaved:  # once is enough, until it works again
                self.screen.show(f"not saved at step {self.position.step}, training goes on: {error}", keep=True)
            self.said_unsaved = True

    def _leave(self, signal: int) -> None:
        captured = self.capture()
        where = "nothing was saved, because there is no folder to save to"
        try:
            if self.folder is not None:
                captured.save(self.folder)
                where = f"go on with: octavo resume {final_folder(self.folder)}"
        finally:
            self.team.wait()  # when one process has left, torchrun ends the others
        if not self.team.leads:
            raise SystemExit(128 + signal)  # the leader tells
        raise Stopped(f"stopped at step {self.position.step:,}; {where}", signal)

    def _show(self, spent: float, measured: Mapping[str, float]) -> None:
        peak = self.precision.peak * self.team.size
        line = progress_line(self.stage, self.position, spent, self.recent, measured, peak)
        self.screen.show(line, keep=bool(measured))
