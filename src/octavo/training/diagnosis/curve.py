"""The history of a run as numbers: its losses, its checks on held-out text, its events, and how it was trained."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean
from typing import Any, NamedTuple

from octavo.config import from_json
from octavo.training.loop_config import LoopConfig
from octavo.training.optimizer import OptimizerConfig
from octavo.training.schedule import Budget

MOST_STEPS = 1 << 53  # whole numbers up to it are exact as real ones; a damaged file may hold any
LEAST_LOSS = 1e-9  # nats: a classifier's may be 0, and losses are compared by their ratios
NEAR = 0.05  # of the run: points so close to a step speak for it
FASTER, SLOWER = 3.0, 0.25  # times a rate that is not unusual; rates matter by factors, not by percents
FEW_STEPS = 200  # fewer have hardly taught a model anything: ten times as many are what to try
STILL_FALLING = 0.01  # of the bits, in the last third of the budget: then more training may help
LEAST_CHECKS = 4  # evaluations on held-out text that make a curve of their own
UNUSUAL = 2.0  # times more or less than the default: then the default is what to try first
FAR = UNUSUAL**2  # times more or less than the default: then what goes wrong is put down to it


class LoggedStep(NamedTuple):
    """One logged step."""

    step: int
    loss: float  # nats a token
    norm: float | None  # of the gradient, before it was clipped


class Check(NamedTuple):
    """One evaluation on the validation chunks."""

    step: int
    bits: float  # per byte
    seconds: float = 0.0  # since training began, where the log says it


def fall_at_the_end(curve: Sequence[tuple[float, float]]) -> float:
    """By how much of its value a curve (share of the budget, bits) fell in the last third; below zero where it rose."""
    before = [bits for spent, bits in curve if spent <= 2 / 3] or [curve[0][1]]
    return 1 - curve[-1][1] / min(before)


@dataclass(frozen=True)
class TrainingCurve:
    """What metrics.jsonl records of training; empty for a model that was counted."""

    points: tuple[LoggedStep, ...] = ()
    checks: tuple[Check, ...] = ()
    events: tuple[Mapping[str, Any], ...] = ()
    bytes_per_token: float = 1.0

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, Any]], bytes_per_token: float) -> TrainingCurve:
        """From the rows of metrics.jsonl; what is damaged or of another kind is passed over.

        A bigram is trained twice: first to find the best number of steps, then again on all of the text for so many.
        The curve is of its first training, up to the step that the second ended with.
        """
        points, checks, events, last, again = [], [], [], 0, 0
        for row in rows:
            step = row.get("step")
            if type(step) is not int or not 0 <= step < MOST_STEPS:
                continue
            if again or step < last:
                again = max(again, step)
                continue
            last = step
            if "event" in row:
                events.append(row)
                continue
            loss, norm, held = (as_number(row.get(key)) for key in ("loss", "gradient_norm", "held_out_bits_per_byte"))
            if held is None and (nats := as_number(row.get("held_out"))) is not None:  # the neural bigram's, in nats
                held = cls(bytes_per_token=bytes_per_token).bits(nats)
            if loss is not None:
                points.append(LoggedStep(step, max(loss, LEAST_LOSS), norm))
            if held is not None:
                checks.append(Check(step, held, as_number(row.get("seconds")) or 0.0))
        end = again or last
        points = [point for point in points if point.step <= end]
        checks = [check for check in checks if check.step <= end]
        return cls(tuple(points), tuple(checks), tuple(events), bytes_per_token)

    @property
    def steps(self) -> int:
        """How many steps were taken."""
        return self.points[-1].step if self.points else 0

    def mean(self, first: float, last: float) -> float:
        """The mean loss of the points from one share of the run to another, at least one of them."""
        n = len(self.points)
        low = min(int(first * n), n - 1)
        return fmean(point.loss for point in self.points[low : max(low + 1, round(last * n))])

    def near(self, step: int) -> float:
        """The mean loss around a step."""
        width = max(1.0, NEAR * self.points[-1].step)
        around = [point.loss for point in self.points if abs(point.step - step) <= width]
        return fmean(around) if around else min(self.points, key=lambda point: abs(point.step - step)).loss

    def bits(self, loss: float) -> float:
        """Nats a token as bits per byte."""
        return loss / math.log(2) / self.bytes_per_token

    def fall_at_the_end(self, by_time: bool = False) -> float:
        """By how much of its value the held-out loss, or of few evaluations the training loss, fell in the end.

        `by_time`: the budget is one of seconds, so the shares of it are too, as `octavo compare` counts them.
        """
        if len(self.checks) < LEAST_CHECKS:
            return 1 - self.mean(0.9, 1) / self.mean(0.7, 0.8)
        places = [check.seconds if by_time else float(check.step) for check in self.checks]
        total = max(places[-1], 1e-9)
        return fall_at_the_end([(x / total, check.bits) for x, check in zip(places, self.checks, strict=True)])


@dataclass(frozen=True)
class Training:
    """How a neural run was trained, as its record says."""

    optim: OptimizerConfig = field(default_factory=OptimizerConfig)
    loop: LoopConfig = field(default_factory=LoopConfig)
    steps_per_epoch: int = 0  # 0: unknown
    finished: bool = True
    why: str = ""  # it ended
    usual: OptimizerConfig = field(default_factory=OptimizerConfig)  # the model's learning rates if nothing is said
    best_measure: str = ""  # by which the best weights were chosen
    task_settings: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, run: Any) -> Training | None:
        """None for a run that was not trained step by step."""
        record = run.record.get("training")
        if not isinstance(record, Mapping):
            return None
        epoch = record.get("steps_per_epoch")
        return cls(
            from_json(OptimizerConfig, record.get("optimizer", {})).suiting(run.model),
            from_json(LoopConfig, record.get("loop", {})),
            epoch if type(epoch) is int else 0, bool(record.get("finished")), str(record.get("why", "")),
            OptimizerConfig().suiting(run.model), str(record.get("best_measure", "")), record.get("settings", {}),
        )  # fmt: skip

    def higher_rate(self) -> str:
        """The flags of a higher learning rate."""
        return "a higher learning rate: " + self._rates(
            lambda rate, usual: usual if rate < usual / UNUSUAL else FASTER * rate
        )

    def lower_rate(self) -> str:
        """The flags of a lower learning rate."""
        return "a lower learning rate: " + self._rates(
            lambda rate, usual: usual if rate > usual * UNUSUAL else SLOWER * rate
        )

    def other_rate(self) -> tuple[str, ...]:
        """Both, the higher first; but only back to the usual where a rate is far from it."""
        ratios = [getattr(self.optim, name) / getattr(self.usual, name) for name in self._names()]
        if max(ratios) < 1 / UNUSUAL:
            return (self.higher_rate(),)
        return (self.lower_rate(),) if min(ratios) > UNUSUAL else (self.higher_rate(), self.lower_rate())

    def warmup(self) -> str:
        """A longer warm-up."""
        return f"a longer warm-up: --warmup {min(0.5, max(0.1, 2 * self.optim.warmup)):g}"

    def longer(self) -> str:
        """Twice the budget, far more of a few steps, or first of all the rest of it."""
        if not self.finished:
            return "train on to the end: octavo resume RUN"
        if not self.loop.budget:  # the task counts epochs
            return "train longer: more epochs"
        budget = Budget.parse(self.loop.budget)
        times = 10 if budget.kind == "steps" and budget.amount < FEW_STEPS else 2
        return f"train longer: --budget {times * budget.amount:.12g}{'s' if budget.kind == 'seconds' else budget.kind}"

    def is_short(self, steps: int) -> bool:
        """Whether so few steps were taken, or so little of the text was read, that little can have been learnt."""
        return steps < FEW_STEPS or steps < self.steps_per_epoch / 2

    @property
    def lowered(self) -> float:
        """How many times below the usual ones all learning rates are; 1 where they are not."""
        return max(1.0, min(float(getattr(self.usual, n) / getattr(self.optim, n)) for n in self._names()))

    @property
    def raised(self) -> float:
        """How many times above the usual ones all learning rates are; 1 where they are not."""
        return max(1.0, min(float(getattr(self.optim, n) / getattr(self.usual, n)) for n in self._names()))

    @property
    def is_timed(self) -> bool:
        """Whether the budget is one of seconds."""
        return bool(self.loop.budget) and Budget.parse(self.loop.budget).kind == "seconds"

    def _names(self) -> list[str]:
        has_muon = self.optim.optimizer == "muon" and self.usual.muon_learning_rate
        return ["learning_rate", "muon_learning_rate"] if has_muon else ["learning_rate"]

    def _rates(self, other: Callable[[float, float], float]) -> str:
        changed = {name: other(getattr(self.optim, name), getattr(self.usual, name)) for name in self._names()}
        return " ".join(f"--{name.replace('_', '-')} {value:.3g}" for name, value in changed.items())


def bytes_per_token(run: Any) -> float:
    """Of the training text, as the run's record has it; 1 where it says nothing."""
    record = run.record.get("training")
    if isinstance(record, Mapping) and (known := as_number(record.get("bytes_per_token"))):
        return known
    size, tokens = run.record.get("corpus", {}).get("train", {}).get("bytes", 0), run.record.get("train_tokens", 0)
    return size / tokens if size and tokens else 1.0


def lowest_tenth(losses: Sequence[float], tenths: int = 10) -> float:
    """The lowest mean of any tenth of the losses."""
    n = len(losses)
    cuts = [round(i * n / tenths) for i in range(tenths + 1)]
    return min(fmean(losses[a:b]) for a, b in pairwise(cuts) if b > a)


def as_number(value: Any) -> float | None:
    """The value of a log, where it is a finite number."""
    return float(value) if type(value) in (int, float) and abs(value) <= sys.float_info.max else None
