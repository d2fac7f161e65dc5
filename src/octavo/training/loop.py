"""The loop that trains every neural model: read a window, change the weights, now and then check and save.

B rows, T tokens of a window.

Everything a step depends on is in the weights, the optimizers, the carried state and the Position, so a run that was
killed goes on from its last checkpoint as if nothing had happened. Random numbers are drawn from the step's own seed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from octavo.core import LanguageModel, eval_mode, map_state, select, state_from, tensors_of
from octavo.errors import Stopped, UserError
from octavo.training.checkpoint import (
    Checkpoint,
    Position,
    any_not_finite,
    carried_state,
    check_shapes,
    copies,
    write_weights,
)
from octavo.training.distributed import Team, joined, placed_like, unsharded, whole
from octavo.training.loop_config import LoopConfig
from octavo.training.loss import NextToken
from octavo.training.metrics_log import Log, Screen, TensorBoard, clock, worth_logging
from octavo.training.optimizer import OptimizerConfig, Optimizers, gradient_norm
from octavo.training.precision import Precision
from octavo.training.schedule import Budget
from octavo.training.signals import Stopping
from octavo.training.streams import Lanes, Window

PATIENCE = 3  # bad steps in a row before training goes back, and times it goes back before it gives up
EXPLODED = 3.0  # a loss so many times its running average is a bad step
SMALL_STEP = 2e13  # operations: a GPU is done with them before Python has started all of its kernels
SMOOTH = 0.95  # of the running average, kept at each step


@dataclass(frozen=True)
class Text:
    """What the loop knows of the text: its lanes, the pieces held out, and how many bytes a token stands for."""

    lanes: Lanes
    pieces_PL: Tensor  # begin in front of each; empty where the text was too short
    piece_bytes: int
    bytes_per_token: float


class Loop:
    """One training run, from wherever its position says it is."""

    def __init__(
        self, model: LanguageModel[Any], text: Text, config: LoopConfig, optim: OptimizerConfig, team: Team, seed: int,
        folder: Path | None = None, sample: Callable[[LanguageModel[Any]], str] | None = None, quiet: bool = False,
    ) -> None:  # fmt: skip
        self.model, self.text, self.config, self.optim, self.team = model, text, config, optim, team
        self.seed, self.folder, self.sample = seed, folder if team.leads else None, sample
        self.budget, self.position = Budget.parse(config.budget), Position()
        self.first = copies(dict(model.named_parameters()))  # whole, before they may be sharded
        small = 3 * model.flops_per_token() * text.lanes.batch * text.lanes.window < SMALL_STEP
        recordable = small and team.size == config.accumulate == 1
        self.precision = Precision(config.precision, config.compile, model, team.device, recordable)
        objective = self.precision.compiled(NextToken(model, optim.label_smoothing), model)
        self.objective = team.wrap(objective, config.shard)
        self.optimizers = Optimizers(model, optim)
        self.named = dict(model.named_parameters())
        self.average = copies_on_device(self.named) if optim.ema else {}
        self.best: dict[str, Tensor] = {}
        self.rows = team.rows(text.lanes.batch)
        self.state: Any = None
        self.screen = Screen(quiet or not team.leads)
        self.log = Log(None)
        self.board: TensorBoard | None = None
        self.began = self.saved = 0.0  # when, by the clock
        self.told_unsaved = False

    def learn(self, window: Window) -> tuple[float, float]:
        """Read a window and put its gradient on the weights: the loss in nats a token, the gradient's length."""
        x_BT = window.x_BT[self.rows].to(self.team.device, non_blocking=True)
        charged = int((window.x_BT[:, 1:] != self.model.begin).sum())
        anew = window.fresh or self.state is None or not self.model.carries_state
        before = self._start(len(x_BT)) if anew else self.state
        pieces, states, nats = self.config.accumulate, [], torch.zeros((), device=self.team.device)
        for rows in torch.arange(len(x_BT), device=x_BT.device).chunk(pieces):
            part = select(before, rows) if pieces > 1 else before
            with self.precision.lowered():
                paid, after = self.objective(part, x_BT[rows])
            (paid * (self.team.size / max(1, charged))).backward()  # processes' gradients are averaged, not summed
            nats += paid.detach()
            states.append(map_state(after, self._carried) if self.model.carries_state else ())
        self.state = states[0] if len(states) == 1 else joined(states)
        norm = gradient_norm(self.model, self.optim.clip)
        return float(self.team.total(nats)) / max(1, charged), float(norm)

    def _start(self, rows: int) -> Any:
        return map_state(self.model.start(rows), whole)  # where the weights are sharded, what is made from them is too

    def _carried(self, tensor: Tensor) -> Tensor:
        """As the next window gets it, or one after a checkpoint: in the weights' precision, no view of a larger one."""
        tensor = tensor.contiguous()
        return tensor.to(next(iter(self.named.values())).dtype) if tensor.is_floating_point() else tensor

    def step(self, spent: float) -> None:
        """One window: learn from it, unless it is bad."""
        torch.manual_seed(((self.seed * 1_000_003 + self.position.step) * 1009 + self.team.rank) % (1 << 63))
        window = self.text.lanes.at(self.position.step)
        self.optimizers.zero()
        loss, norm = self.learn(window)
        at = self.position
        at.step += 1
        at.tokens += window.x_BT[:, 1:].numel()
        if why := self._bad(loss, norm, window.fresh):
            self._skip(why, loss, norm)
            return
        at.skipped = 0
        at.smooth = loss if at.smooth is None else SMOOTH * at.smooth + (1 - SMOOTH) * loss
        rate = self.optimizers.step(spent, at.lowered)
        if self.average:
            with torch.no_grad():
                for name, tensor in self.average.items():
                    tensor.lerp_(self.named[name].detach(), 1 - self.optim.ema)
        if worth_logging(at.step):
            self._add({"loss": loss, "bits_per_byte": self._bits(loss), "rate": rate, "norm": norm})

    def _bad(self, loss: float, norm: float, fresh: bool) -> str:
        """Why the step must be left out, if it must; a window without a past may well cost more."""
        if not math.isfinite(loss) or not math.isfinite(norm):
            return "the loss or its gradient is not a number"
        if self.position.smooth is not None and not fresh and loss > EXPLODED * self.position.smooth + 1:
            return "the loss has exploded"
        return ""

    def _skip(self, why: str, loss: float, norm: float) -> None:
        """Leave the step out; after several in a row, go back to good weights at half the rate."""
        at = self.position
        at.skipped += 1
        spoilt = torch.tensor(float(any_not_finite(tensors_of(self.state))), device=self.team.device)
        self.state = None if float(self.team.total(spoilt)) else self.state  # of all processes, or of none
        told = {"loss": loss, "norm": norm}
        self._add({"event": "skipped", "why": why} | {k: v for k, v in told.items() if math.isfinite(v)})
        if at.skipped < PATIENCE:
            return
        self._go_back()
        if at.restored == PATIENCE:
            at.ended = f"{why}; these are the last good weights"
            return
        at.skipped, at.smooth, at.lowered, at.restored = 0, None, at.lowered / 2, at.restored + 1
        self._add({"event": "went back", "why": why, "rate": at.lowered})
        self.screen.show(f"{why} at step {at.step}: back to good weights, at {at.lowered:g} of the rate", keep=True)

    @torch.no_grad()
    def _go_back(self) -> None:
        """To the weights of the best check, or the first ones, with nothing remembered of what came after."""
        for name, parameter in self.named.items():
            for tensor in (parameter, *((self.average[name],) if self.average else ())):
                tensor.copy_(placed_like(parameter, (self.best or self.first)[name]))
        self.optimizers.take({})
        self.state = None

    # ------------------------------------------------------------------ now and then

    @torch.no_grad()
    def check(self) -> float | None:
        """Measure the pieces held out, keep the weights if they are the best so far, write a sample."""
        at = self.position
        candidate = self.average or self.named
        weights = {name: whole(t) for name, t in candidate.items()}
        sound = not any_not_finite(weights.values())
        with swapped(self.named, self.average), eval_mode(self.model), unsharded(self.objective):
            bits = self._held_out_bits()
            text = self.sample(self.model) if sound and self.sample and self.team.leads else ""
        better = bits is None or at.best_bits is None or bits < at.best_bits
        if sound and better and (bits is None or math.isfinite(bits)):
            at.best_bits, at.stale = bits, 0
            self.best = copies(weights)
            self._write(lambda folder: write_weights(self.best, folder))
        else:
            at.stale += 1
        if self.config.patience and at.stale >= self.config.patience:
            at.ended = f"{at.stale} checks without a better one"
        row: dict[str, Any] = {"held_out_bits_per_byte": bits} if bits is not None and math.isfinite(bits) else {}
        self._add(row | ({"sample": text} if text else {}))
        return bits

    def _held_out_bits(self) -> float | None:
        """Bits per byte of the pieces, each read from its own beginning."""
        if not self.text.pieces_PL.numel():
            return None
        x_PL = self.text.pieces_PL.to(self.team.device)
        state, nats, objective = self.model.start(len(x_PL)), 0.0, NextToken(self.model)
        for start in range(0, x_PL.shape[1] - 1, 256):
            paid, state = objective(state, x_PL[:, start : start + 257])
            nats += float(paid)
        (agreed,) = self.team.agree(nats)
        return agreed / math.log(2) / max(1, self.text.piece_bytes)

    def _bits(self, loss: float) -> float:
        return loss / math.log(2) / self.text.bytes_per_token

    def _add(self, row: dict[str, Any]) -> None:
        at = self.position
        told = {"step": at.step, "tokens": at.tokens, "seconds": round(at.seconds, 3), **row}
        self.log.add(told)
        if self.board is not None:
            self.board.add(told)

    def capture(self) -> Checkpoint:
        """Everything needed to go on from here, copied; every process must ask at once."""
        at = Position(**asdict(self.position))
        at.log_bytes = self.log.length()
        rows = [self.team.all_rows(t) for t in tensors_of(self.state)]
        return Checkpoint(at, {
            "weights": copies({name: whole(t) for name, t in self.named.items()}),
            "optimizer": copies(self.optimizers.tensors()),
            "average": copies({name: whole(t) for name, t in self.average.items()}),
            "best": dict(self.best),
            "state": copies({str(i): t for i, t in enumerate(rows)}),
        })  # fmt: skip

    def take(self, saved: Checkpoint) -> None:
        """Go on from a checkpoint, whatever the number of processes that made it."""
        found = {kind: saved.tensors.get(kind, {}) for kind in ("weights", "optimizer", "average", "best", "state")}
        for kind in ("weights", *(("average",) if self.average else ()), *(("best",) if found["best"] else ())):
            check_shapes(found[kind], self.named, kind)
        with torch.no_grad():
            for name, parameter in self.named.items():
                parameter.copy_(placed_like(parameter, found["weights"][name]))
                if self.average:
                    self.average[name].copy_(placed_like(parameter, found["average"][name]))
        self.optimizers.take(found["optimizer"])
        self.best, self.position = dict(found["best"]), Position(**asdict(saved.position))
        start, self.state = self._start(1), None
        if found["state"]:
            tensors = carried_state(found["state"], tensors_of(start), self.text.lanes.batch)
            self.state = state_from(start, [t[self.rows].to(self.team.device, copy=True) for t in tensors])

    # ------------------------------------------------------------------ the run

    def run(self, stopping: Stopping) -> str:
        """Train until the budget is spent; returns why it ended."""
        self.began, self.saved = time.perf_counter() - self.position.seconds, time.perf_counter()
        if not self.position.step:
            self.team.wait()  # once there is a checkpoint, every process heeds signals
            self._save()  # killed before the first checkpoint, it can be taken up again all the same
        spent, stop, due = self._agree(stopping)
        while spent < 1 and not self.position.ended:
            if stop:
                self._leave(int(stop))
            if due:
                self._save()
            self.step(min(spent + self._half_a_step(), 1.0))
            spent, stop, due = self._agree(stopping)
            bits = None
            if spent >= 1 or int(spent * self.config.evaluations) > self.position.checked:
                self.position.checked = int(spent * self.config.evaluations)
                bits = self.check()
            self._tell(spent, bits)
        if stop:  # since the last step began
            self._leave(int(stop))
        return self.position.ended or "the budget is spent"

    def _agree(self, stopping: Stopping) -> list[float]:
        """By the leader's clock: how much of the budget is spent, whether to stop, whether to save."""
        now = time.perf_counter()
        self.position.seconds = now - self.began
        return self.team.agree(
            self._spent(), float(stopping.asked), float(now - self.saved > self.config.checkpoint_seconds)
        )

    def _spent(self) -> float:
        return self.budget.spent(self.position.seconds, self.position.step, self.position.tokens)

    def _half_a_step(self) -> float:
        """The rate is that of a step's middle: neither its first step nor its last is then for nothing."""
        tokens = self.text.lanes.batch * self.text.lanes.window
        return {"seconds": 0.0, "steps": 0.5, "tokens": tokens / 2}[self.budget.kind] / self.budget.amount

    def _save(self) -> None:
        """Write a checkpoint; on a full disk the last one stays and training goes on."""
        self.saved = time.perf_counter()
        self._write(self.capture().save)

    def _write(self, write: Callable[[Path], None]) -> None:
        if self.folder is None:
            return
        try:
            write(self.folder)
            self.told_unsaved = False
        except (UserError, OSError) as error:
            if not self.told_unsaved:  # once is enough, until it works again
                self.screen.show(f"not saved at step {self.position.step}, training goes on: {error}", keep=True)
            self.told_unsaved = True

    def _leave(self, signal: int) -> None:
        captured = self.capture()
        where = "nothing was saved, because there is no folder to save to"
        try:
            if self.folder is not None:
                captured.save(self.folder)
                where = f"go on with: octavo resume {self.folder}"
        finally:
            self.team.wait()  # when one process has left, torchrun ends the others
        if not self.team.leads:
            raise SystemExit(128 + signal)  # the leader tells
        raise Stopped(f"stopped at step {self.position.step:,}; {where}", signal)

    def _tell(self, spent: float, bits: float | None) -> None:
        at = self.position
        speed = at.tokens / max(at.seconds, 1e-9)
        busy = 3 * self.model.flops_per_token() * speed / self.precision.peak / self.team.size
        left = at.seconds / max(spent, 1e-9) * (1 - spent)
        held = f", held out {at.best_bits if bits is None else bits:.4f}" if at.best_bits is not None else ""
        loss = at.smooth or math.nan
        self.screen.show(
            f"{spent:4.0%}  step {at.step:,}  loss {loss:.4f}  bits/byte {self._bits(loss):.4f}{held}  "
            f"{speed:,.0f} tokens/s, {busy:.0%} of peak  {clock(left)} left",
            keep=bits is not None,
        )


def copies_on_device(named: dict[str, Any]) -> dict[str, Tensor]:
    return {name: t.detach().clone() for name, t in named.items()}


@contextmanager
def swapped(named: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> Iterator[None]:
    """Within it the parameters hold other values, where there are any."""

    def swap() -> None:
        for name, value in values.items():  # in place, because sharded weights are gathered from where they lie
            kept = value.clone()
            value.copy_(named[name])
            named[name].copy_(kept)

    swap()
    try:
        yield
    finally:
        swap()
