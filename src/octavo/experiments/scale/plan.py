"""What is trained: every length of text with every size, and the whole model on the whole text with smaller budgets."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from octavo.errors import UserError
from octavo.experiments.cell import Cell
from octavo.models import find_spec, preset
from octavo.training.schedule import Budget

LENGTHS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
SIZES = (1 / 4, 1 / 2, 1.0)
BUDGETS = (1 / 8, 1 / 4, 1 / 2, 1.0)
BUDGET = "30s"
QUICK_BUDGET = "3s"
EVALUATIONS = 4  # of a training: with budgets this short, more would take much of them
SHORTEST_BYTES = 2_000  # a shorter text says nothing about longer ones
WIDTH_STEP = 8  # widths are a multiple of it, where heads do not ask for another


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


def plan_cells(
    model: str, settings: Mapping[str, Any], plan: Plan, seed: int, search_order: bool = False
) -> list[Cell]:
    """Every training of one model; what has no width or no budget is not varied in them."""
    kind, usual = preset(model)
    if find_spec(kind).fitting == "mixture":
        raise UserError("a mixture is made of trained runs and not trained on lengths of text; scale one of its parts")
    lengths, given = sorted(plan.lengths), dict(settings)
    if search_order:
        return [_cell(model, given, seed, share=share, search_order=True) for share in lengths]
    spec = find_spec(kind)
    neural = spec.trained_by_gradient
    known = [one.name for one in dataclasses.fields(spec.config)]
    config = dataclasses.replace(usual, **{key: value for key, value in given.items() if key in known})
    sizes = sorted(plan.sizes) if neural and hasattr(config, "width") else [1.0]
    widths = {size: width_of(config, size) for size in sizes if size < 1}
    if len({*widths.values(), getattr(config, "width", None)}) <= len(widths):
        raise UserError(f"the sizes must give different widths: {widths}; leave some out, or take a wider model")
    seeds = range(seed, seed + plan.seeds) if neural or spec.uses_seed else [seed]
    grid = [(share, size, 1.0) for share in lengths for size in sizes]
    grid += [(1.0, 1.0, part) for part in sorted(plan.budgets) if part < 1] if neural else []
    budget = str(given.pop("budget", BUDGET)) if neural else ""
    return [
        _cell(model, given | ({"width": widths[size]} if size < 1 else {}), one, budget_part(budget, part) if neural
              else "", share=share, size=size, part=part)
        for share, size, part in grid for one in seeds
    ]  # fmt: skip


def _cell(model: str, settings: Mapping[str, Any], seed: int, budget: str = "", **options: Any) -> Cell:
    """A training; its key tells it from those with other settings in the same folder."""
    options = {"size": 1.0, "part": 1.0, "search_order": False} | options
    digest = hashlib.sha256(json.dumps([dict(settings), budget, options], sort_keys=True).encode()).hexdigest()[:8]
    key = f"{model}-{options['share']:g}-{digest}-seed{seed}"
    return Cell(key, "scale", model, dict(settings), {}, seed, budget, options)


def with_text(cell: Cell, data: dict[str, Any], device: str) -> Cell:
    """The cell with the text that it is of, and its title."""
    words = [cell.model, f"{data['train_bytes']:,} bytes of text"]
    words += [f"width {cell.settings['width']}"] if "width" in cell.settings else []
    words += [f"for {cell.budget}"] if cell.budget else []
    words += [f"seed {cell.seed}"] if cell.seed else []
    return dataclasses.replace(cell, data=data, options=cell.options | {"device": device}, title=", ".join(words))


def width_of(config: Any, size: float) -> int:
    """The width of a smaller model: whole heads, of an even size where they are rotated."""
    whole: int = config.width
    if size == 1:
        return whole
    step = 2 * config.heads if hasattr(config, "heads") else WIDTH_STEP
    return max(step, round(whole * size / step) * step)


def budget_part(budget: str, part: float) -> str:
    """A share of a budget, as a budget is written."""
    whole = Budget.parse(budget)
    if part == 1:
        return budget
    amount = whole.amount * part
    unit = {"seconds": "s", "steps": "steps", "tokens": "tokens"}[whole.kind]
    return f"{amount:.3f}{unit}" if whole.kind == "seconds" else f"{max(1, round(amount))}{unit}"


def check_lengths(plan: Plan, size: int) -> None:
    """Refuse a text that is too short for the plan."""
    shortest = min(plan.lengths) * size
    if shortest < SHORTEST_BYTES:
        enough = [f"{share:g}" for share in LENGTHS if share * size >= SHORTEST_BYTES]
        remedy = f"try --lengths {' '.join(enough)}" if len(enough) >= 3 else "give a longer text"
        raise UserError(
            f"the shortest part of the text must have {SHORTEST_BYTES:,} bytes: {min(plan.lengths):g} of {size:,} "
            f"bytes is {shortest:,.0f}; {remedy}"
        )


def check_settings(settings: Mapping[str, Any], sources: Sequence[str]) -> None:
    """What would make the results incomparable, or the text unreadable a second time."""
    if settings.get("preprocess") or settings.get("errors") == "replace":
        raise UserError("a law is of the text as it is; leave preprocess and errors=replace out")
    if "-" in sources:
        raise UserError("the text is read several times, and standard input can be read once; name a file")
