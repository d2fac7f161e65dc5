"""What is trained: every length of text with every size, and the whole model on the whole text with smaller budgets."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from octavo.errors import UserError
from octavo.models import find_spec, preset
from octavo.training.loop_config import LoopConfig
from octavo.training.schedule import Budget

LENGTHS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
SIZES = (1 / 4, 1 / 2, 1.0)
BUDGETS = (1 / 8, 1 / 4, 1 / 2, 1.0)
BUDGET = "30s"
QUICK_BUDGET = "3s"
CHECKS = 4  # of a training: with budgets this short, more would take much of them
SHORTEST = 2_000  # bytes; a shorter text says nothing about longer ones
STEP = 8  # widths are a multiple of it, where heads do not ask for another


@dataclass(frozen=True)
class Plan:
    """Multiples of the training part, of the width and of the budget; and how many seeds."""

    lengths: tuple[float, ...] = LENGTHS
    sizes: tuple[float, ...] = SIZES
    budgets: tuple[float, ...] = BUDGETS
    seeds: int = 1

    def __post_init__(self) -> None:
        for name, values in (("lengths", self.lengths), ("sizes", self.sizes), ("budgets", self.budgets)):
            if 1.0 not in values or any(not 0 < value <= 1 for value in values) or len(set(values)) < len(values):
                raise UserError(
                    f"{name} are different shares of the whole, above 0 and at most 1, with 1 among them: "
                    f"{name}={' '.join(f'{value:g}' for value in values)}; try --{name} 0.25 0.5 1"
                )
        if len(self.lengths) < 3:
            raise UserError(f"a law needs at least 3 lengths: {len(self.lengths)}; try --lengths 0.25 0.5 1")
        if self.seeds < 1:
            raise UserError(f"seeds must be at least 1: seeds={self.seeds}; try --seeds 1")


QUICK = Plan((1 / 8, 1 / 4, 1 / 2, 1.0), (1 / 2, 1.0), (1 / 4, 1 / 2, 1.0))


@dataclass(frozen=True)
class Task:
    """One training: a model with its settings, on a share of the text."""

    model: str
    share: float
    settings: tuple[tuple[str, Any], ...]
    size: float = 1.0
    budget: float = 1.0  # of the whole budget
    seed: int = 0
    search_order: bool = False  # an n-gram whose order is to be found

    @property
    def neural(self) -> bool:
        return find_spec(self.model).trained_by_gradient


def tasks(model: str, settings: Mapping[str, Any], plan: Plan, seed: int, search_order: bool = False) -> list[Task]:
    """Every training of one model; what has no width or no budget has no series of them."""
    kind, usual = preset(model)
    if kind == "mix":
        raise UserError("a mixture is made of trained runs and has no series of its own; scale one of its parts")
    told = dict(settings)
    if search_order:
        return [Task(model, share, _frozen(told), search_order=True) for share in sorted(plan.lengths)]
    neural = find_spec(kind).trained_by_gradient
    seeds = range(seed, seed + plan.seeds) if neural or kind == "bigram" else [seed]
    sizes = sorted(plan.sizes) if neural else [1.0]
    given = {key: value for key, value in told.items() if key in _names(find_spec(kind).config)}
    config = dataclasses.replace(usual, **given)
    widths = {size: width_of(config, size) for size in sizes} if neural else {}
    if len(set(widths.values())) < len(widths):
        raise UserError(f"the sizes must give different widths: {widths}; leave some out, or take a wider model")
    grid = [(share, size, 1.0) for share in sorted(plan.lengths) for size in sizes]
    grid += [(1.0, 1.0, part) for part in sorted(plan.budgets) if part < 1] if neural else []
    made = []
    for share, size, part in grid:
        own = told | ({"width": widths[size]} if size < 1 else {})
        own |= {"budget": budget_part(str(told.get("budget", BUDGET)), part)} if neural else {}
        made += [Task(model, share, _frozen(own), size, part, one) for one in seeds]
    return made


def width_of(config: Any, size: float) -> int:
    """The width of a smaller model: whole heads, of an even size where they are turned."""
    whole: int = config.width
    if size == 1:
        return whole
    step = 2 * config.heads if hasattr(config, "heads") else STEP
    return max(step, round(whole * size / step) * step)


def budget_part(budget: str, part: float) -> str:
    """A share of a budget, as a budget is written."""
    whole = Budget.parse(budget)
    if part == 1:
        return budget
    amount = whole.amount * part
    unit = {"seconds": "s", "steps": "steps", "tokens": "tokens"}[whole.kind]
    return f"{amount:.3f}{unit}" if whole.kind == "seconds" else f"{max(1, round(amount))}{unit}"


def seconds_of(task: Task) -> float | None:
    """How long it is asked to train; None where that is not said in seconds."""
    budget = Budget.parse(str(dict(task.settings).get("budget", LoopConfig().budget)))
    return budget.amount if task.neural and budget.kind == "seconds" else None


def _names(config: type) -> list[str]:
    return [field.name for field in dataclasses.fields(config)]


def _frozen(settings: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted((key, _hashable(value)) for key, value in settings.items()))


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def check_lengths(plan: Plan, size: int) -> None:
    """Refuse a text that is too short for the series."""
    shortest = min(plan.lengths) * size
    if shortest < SHORTEST:
        enough = [f"{share:g}" for share in LENGTHS if share * size >= SHORTEST]
        remedy = f"try --lengths {' '.join(enough)}" if len(enough) >= 3 else "give a longer text"
        raise UserError(
            f"the shortest piece of text must have {SHORTEST:,} bytes: {min(plan.lengths):g} of {size:,} bytes is "
            f"{shortest:,.0f}; {remedy}"
        )


def check_settings(settings: Mapping[str, Any], sources: Sequence[str]) -> None:
    """What would make the figures incomparable, or the text unreadable a second time."""
    if settings.get("preprocess") or settings.get("errors") == "replace":
        raise UserError("a law is of the text as it is; leave preprocess and errors=replace out")
    if "-" in sources:
        raise UserError("the text is read several times, and standard input can be read once; name a file")
