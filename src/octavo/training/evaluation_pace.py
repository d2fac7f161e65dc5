"""How often a model is evaluated while it trains, and on how much of the validation data.

Where the budget is a time, evaluations may take a tenth of it: they are made on a part of the validation data, the same
one from the first to the last, and if need be more rarely. The best weights are measured on all of it in the end. Other
budgets are spent on training alone, and depend on no clock.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from time import perf_counter
from typing import Any

from octavo.errors import NotNumbersError
from octavo.training.checkpoint import Position
from octavo.training.distributed import Team
from octavo.training.schedule import Budget
from octavo.training.stage import Stage

MAX_EVALUATION_SHARE = 0.1  # of a budget that is a time
SAMPLE_SHARE = 0.25  # of the time of an evaluation that its sample may take
LEAST_SAMPLE_SECONDS = 0.05  # that a sample is expected to take before one was written
SMALLEST_PART = 1 / 32  # of the validation data


class EvaluationPace:
    """Decides by what evaluations have taken so far."""

    def __init__(self, budget: Budget, evaluations: int) -> None:
        self.evaluations = evaluations
        self.allowed = MAX_EVALUATION_SHARE * budget.amount if budget.kind == "seconds" else math.inf
        self.last_seconds = self.sample_seconds = 0.0  # of the last evaluation, and of the sample in it

    def is_due(self, spent: float, at: Position) -> bool:
        """Whether to evaluate now that so much of the budget is spent, which is not all of it."""
        affordable = at.evaluation_seconds + self.last_seconds <= self.allowed
        return affordable and int(spent * self.evaluations) > at.evaluations

    def is_sampled(self, at: Position) -> bool:
        """Whether there is time for a sample; after the budget is spent, there always is."""
        is_after, each = MAX_EVALUATION_SHARE * at.seconds >= self.allowed, self.allowed / self.evaluations
        return is_after or max(self.sample_seconds, LEAST_SAMPLE_SECONDS) <= SAMPLE_SHARE * each

    def add(self, at: Position, team: Team, began: float, validated: float, is_sampled: bool) -> None:
        """Count an evaluation that began, and ended its validation, at these times; by the leader's clock."""
        if not math.isfinite(self.allowed):
            return
        now = perf_counter()
        self.last_seconds, sample = team.agree(now - began, now - validated)
        self.sample_seconds = sample if is_sampled else self.sample_seconds
        at.evaluation_seconds += self.last_seconds

    def validate_whole(self, stage: Stage, at: Position, team: Team) -> None:
        """Measure the present weights, the best ones, on all validation data."""
        if stage.validate is not None and stage.best:
            (at.final_value,) = team.agree(stage.validate()[stage.best])

    def validate(self, stage: Stage, at: Position, team: Team) -> dict[str, float]:
        """The measures of the present weights, on which all processes agree."""
        if stage.validate is None:
            return {}
        on_part = stage.validate_part
        if not at.validation_part:
            (at.validation_part,) = team.agree(1.0 if on_part is None else self.choose_part(on_part, at))
        try:
            measured = stage.validate() if on_part is None or at.validation_part == 1 else on_part(at.validation_part)
        except NotNumbersError:  # the weights are worse than any others; training may still recover
            measured = {stage.best: math.nan} if stage.best else {}
        return dict(zip(measured, team.agree(*measured.values()), strict=True))

    def choose_part(self, measure: Callable[[float], Any], at: Position) -> float:
        """The part of the validation data that all evaluations of a run are made on; the smallest one is timed."""
        if not math.isfinite(self.allowed) or at.best_value is not None:  # a run that was evaluated on all of it
            return 1.0
        began = perf_counter()
        measure(SMALLEST_PART)
        whole = (perf_counter() - began) / SMALLEST_PART
        each = (1 - SAMPLE_SHARE) * (self.allowed - whole * SMALLEST_PART) / self.evaluations
        return min(1.0, max(SMALLEST_PART, each / max(whole, 1e-9)))
