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

from octavo.core import LanguageModel, evaluating
from octavo.data.lanes import Lanes, Window
from octavo.errors import Stopped, UserError
from octavo.loss import NextToken
from octavo.run import BOARD
from octavo.training.checkpoint import Checkpoint, Position, any_not_finite, check_shapes, copies
from octavo.training.distributed import Team, map_state, placed_like, state_from, tensors_of, whole
from octavo.training.loop_config import LoopConfig
from octavo.training.optim import OptimConfig, Optimizers, gradient_norm
from octavo.training.precision import Precision
from octavo.training.schedule import Budget
from octavo.training.stopping import Stopping
from octavo.training.watch import Log, Screen, TensorBoard, clock

PATIENCE = 3  # bad steps in a row before training goes back, and times it goes back before it gives up
EXPLODED = 2.0  # a loss so many times its running average is a bad step
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
        self, model: LanguageModel[Any], text: Text, config: LoopConfig, optim: OptimConfig, team: Team, seed: int,
        folder: Path | None = None, sample: Callable[[LanguageModel[Any]], str] | None = None, quiet: bool = False,
    ) -> None:  # fmt: skip
        self.model, self.text, self.config, self.optim, self.team = model, text, config, optim, team
        self.seed, self.folder, self.sample = seed, folder if team.leads else None, sample
        self.budget, self.position = Budget.parse(config.budget), Position()
        self.precision = Precision(config.precision, config.compile, model, team.device)
        objective = self.precision.compiled(NextToken(model, optim.label_smoothing))
        self.objective = team.wrap(objective, config.shard)
        self.optimizers = Optimizers(model, optim)
        self.named = dict(model.named_parameters())
        self.average = copies_on_device(self.named) if optim.ema else {}
        self.best: dict[str, Tensor] = {}
        self.rows = team.rows(text.lanes.batch)
        self.state: Any = None
        self.screen = Screen(quiet or not team.leads)
        self.log = Log(None)
        self.board = TensorBoard(folder / BOARD) if config.tensorboard and folder and team.leads else None
        self.began = self.saved = 0.0  # when, by the clock
        self.good: Checkpoint | None = None  # where to go back to when training goes wrong

    # ------------------------------------------------------------------ one step

    def learn(self, window: Window) -> tuple[float, float]:
        """Read a window and put its gradient on the weights: the loss in nats a token, the gradient's length."""
        x_BT = window.x_BT[self.rows].to(self.team.device, non_blocking=True)
        charged = int((window.x_BT[:, 1:] != self.model.begin).sum())
        before = self.model.start(len(x_BT)) if window.fresh or self.state is None else self.state
        pieces, states, nats = self.config.accumulate, [], torch.zeros((), device=self.team.device)
        for rows in torch.arange(len(x_BT), device=x_BT.device).chunk(pieces):
            part = map_state(before, lambda t, rows=rows: t[rows[0] : rows[-1] + 1])
            with self.precision.lowered():
                paid, after = self.objective(part, x_BT[rows])
            (paid * (self.team.size / max(1, charged))).backward()  # processes' gradients are averaged, not summed
            nats += paid.detach()
            states.append(map_state(after, lambda t: t.detach()))
        self.state = states[0] if len(states) == 1 else joined(states)
        norm = gradient_norm(self.model, self.optim.clip)
        return float(self.team.total(nats)) / max(1, charged), float(norm)

    def step(self, spent: float) -> None:
        """One window: learn from it, unless it is bad."""
        torch.manual_seed((self.seed * 1_000_003 + self.position.step) * 1009 + self.team.rank)
        window = self.text.lanes.at(self.position.step)
        self.optimizers.zero()
        loss, norm = self.learn(window)
        at = self.position
        at.step += 1
        at.tokens += window.x_BT[:, 1:].numel()
        if why := self._bad(loss, norm):
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

    def _bad(self, loss: float, norm: float) -> str:
        if not math.isfinite(loss) or not math.isfinite(norm):
            return "the loss or its gradient is not a number"
        if self.position.smooth is not None and loss > EXPLODED * self.position.smooth + 1:
            return "the loss has exploded"
        return ""

    def _skip(self, why: str, loss: float, norm: float) -> None:
        """Leave the step out; after several in a row, go back to good weights at half the rate."""
        at = self.position
        at.skipped += 1
        self.state = None if any_not_finite(dict(enumerate_tensors(self.state))) else self.state
        told = {"loss": loss, "norm": norm}
        self._add({"event": "skipped", "why": why} | {k: v for k, v in told.items() if math.isfinite(v)})
        if at.skipped < PATIENCE:
            return
        if at.restored == PATIENCE or self.good is None:
            raise DivergedError(why)
        kept = Position(**asdict(at))
        self.take(self.good)
        self.position = kept
        kept.skipped, kept.smooth, kept.lowered, kept.restored = 0, None, kept.lowered / 2, kept.restored + 1
        self._add({"event": "went back", "why": why, "rate": kept.lowered})
        self.screen.show(f"{why} at step {kept.step}: back to good weights, at {kept.lowered:g} of the rate", keep=True)

    # ------------------------------------------------------------------ now and then

    @torch.no_grad()
    def check(self) -> float | None:
        """Measure the pieces held out, keep the weights if they are the best so far, write a sample."""
        at = self.position
        candidate = self.average or self.named
        with swapped(self.named, self.average), evaluating(self.model):
            bits = self._held_out_bits()
            text = self.sample(self.model) if self.sample and self.team.leads and not self.config.shard else ""
        better = bits is None or at.best_bits is None or bits < at.best_bits
        if better and (bits is None or math.isfinite(bits)):
            at.best_bits, at.stale = bits, 0
            self.best = copies({name: whole(t) for name, t in candidate.items()})
        else:
            at.stale += 1
        row: dict[str, Any] = {"held_out_bits_per_byte": bits} if bits is not None and math.isfinite(bits) else {}
        self._add(row | ({"sample": text} if text else {}))
        self.good = self.capture()
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
        return nats / math.log(2) / max(1, self.text.piece_bytes)

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
        tensors = [found["state"][str(i)] for i in range(len(found["state"]))]
        start = self.model.start(1)
        fits = len(tensors) == len(tensors_of(start)) and all(len(t) == self.text.lanes.batch for t in tensors)
        placed = [t[self.rows].to(self.team.device, copy=True) for t in tensors]
        self.state = state_from(start, placed) if fits else None

    # ------------------------------------------------------------------ the run

    def run(self, stopping: Stopping) -> str:
        """Train until the budget is spent; returns why it ended."""
        self.began, self.saved = time.perf_counter() - self.position.seconds, time.perf_counter()
        if self.good is None:
            self.good = self.capture()
        spent, stop, due = self._agree(stopping)
        while spent < 1:
            if stop:
                self._leave(int(stop))
            if due:
                self._save()
            try:
                self.step(min(spent + self._half_a_step(), 1.0))
            except DivergedError as error:
                return f"{error}; these are the last good weights"
            spent, stop, due = self._agree(stopping)
            bits = None
            if spent >= 1 or int(spent * self.config.checks) > self.position.checked:
                self.position.checked = int(spent * self.config.checks)
                bits = self.check()
            self._tell(spent, bits)
            if self.config.patience and self.position.stale >= self.config.patience:
                return f"{self.position.stale} checks without a better one"
        return "the budget is spent"

    def _agree(self, stopping: Stopping) -> list[float]:
        """By the leader's clock: how much of the budget is spent, whether to stop, whether to save."""
        now = time.perf_counter()
        self.position.seconds = now - self.began
        return self.team.agree(self._spent(), float(stopping.asked), float(now - self.saved > self.config.save_every))

    def _spent(self) -> float:
        return self.budget.spent(self.position.seconds, self.position.step, self.position.tokens)

    def _half_a_step(self) -> float:
        """The rate is that of a step's middle: neither its first step nor its last is then for nothing."""
        lanes = self.text.lanes
        return {"seconds": 0.0, "steps": 0.5, "tokens": lanes.batch * lanes.window / 2}[
            self.budget.kind
        ] / self.budget.amount

    def _save(self) -> None:
        """Write a checkpoint; on a full disk the last one stays and training goes on."""
        self.saved = time.perf_counter()
        captured = self.capture()
        if self.folder is None:
            return
        try:
            captured.save(self.folder)
        except UserError as error:
            self.screen.show(f"not saved at step {self.position.step}: {error}", keep=True)

    def _leave(self, signal: int) -> None:
        captured = self.capture()
        where = "nothing was saved, because there is no folder to save to"
        if self.folder is not None:
            captured.save(self.folder)
            where = f"go on with: octavo resume {self.folder}"
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


class DivergedError(Exception):
    """Training went wrong more often than it could be mended."""


def worth_logging(step: int) -> bool:
    """Every step at first, then one in ten, one in a hundred: a few thousand rows whatever the length."""
    return step % (1 if step <= 2000 else 10 if step <= 20_000 else 100) == 0


def copies_on_device(named: dict[str, Any]) -> dict[str, Tensor]:
    return {name: t.detach().clone() for name, t in named.items()}


def enumerate_tensors(state: Any) -> list[tuple[str, Tensor]]:
    return [(str(i), t) for i, t in enumerate(tensors_of(state))]


def joined(states: list[Any]) -> Any:
    """The states of the pieces of a batch as one."""
    columns = zip(*(tensors_of(state) for state in states), strict=True)
    return state_from(states[0], [torch.cat(column) for column in columns])


@contextmanager
def swapped(named: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> Iterator[None]:
    """Within it the parameters hold other values, where there are any."""

    def swap() -> None:
        for name, value in values.items():
            named[name].data, value.data = value.data, named[name].data

    swap()
    try:
        yield
    finally:
        swap()
