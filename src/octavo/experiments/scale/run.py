"""From a model and a text to a series and its laws."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from octavo.config import from_json
from octavo.core import seeded_generator
from octavo.errors import UserError
from octavo.experiments.scale.excerpts import Excerpts
from octavo.experiments.scale.plan import BUDGET, CHECKS, Plan, Task, check_lengths, check_settings, tasks
from octavo.experiments.scale.result import Scaling
from octavo.experiments.scale.series import Tell, run_series
from octavo.models import find_spec, preset
from octavo.tasks.count_training import TextConfig, pick_device
from octavo.tasks.run import CONFIG
from octavo.training.schedule import Budget

TEXT = ("tokenizer", "size", "min_count", "split", "errors")  # settings that both models share
OPENING = ("valid", "field")  # and those that only say where the text is
HELD_OUT = 1_000_000


def scale(
    model: str,
    corpus: str | Path | Sequence[str | Path],
    *,
    against: str = "auto",
    plan: Plan = Plan(),  # noqa: B008
    budget: str = BUDGET,
    seed: int = 0,
    device: str = "auto",
    held_out: int = HELD_OUT,
    out: str | Path | None = None,
    command: str = "",
    tell: Tell = lambda line: None,
    **settings: Any,
) -> Scaling:
    """Train a model at several lengths of text, sizes and budgets, fit power laws, and say where it passes another.

    `plan` has the lengths, sizes and budgets, as shares of the training part, of the width and of `budget`, and the
    number of seeds. `against` is the other model: auto is an n-gram, whose order is chosen anew for each length, or
    none where the model is one. Settings are those of `octavo.train`. What is trained is kept in `out`, and found
    again there; `command` is what the page says to make it again with.
    """
    sources = [str(corpus)] if isinstance(corpus, str | Path) else list(map(str, corpus))
    _check(budget, seed, device, held_out, out)
    check_settings(settings, sources)
    other = _other(model, against)
    todo = _todo(model, other, settings, plan, budget, seed)
    text = from_json(TextConfig, {key: settings[key] for key in (*TEXT, *OPENING) if key in settings})
    opened = text.open(sources)
    check_lengths(plan, opened.train.size)
    excerpts = Excerpts(opened, held_out)
    points = run_series(todo, excerpts, Path(out) if out is not None else None, device, tell)
    found = Scaling(
        model, other, ", ".join(sources), excerpts.bytes(1.0), excerpts.valid.size, budget, tuple(points), command,
        seed, opened.notes,
    )  # fmt: skip
    if out is not None:
        found.save(Path(out))
    return found


def _other(model: str, against: str) -> str | None:
    """The model to compare with."""
    kind, _ = preset(model)
    if against == "none" or (against == "auto" and kind == "ngram"):
        return None
    other = "ngram" if against == "auto" else against
    preset(other)  # which refuses what is not there
    if other == model:
        raise UserError(f"a model is compared with another one: both are {model}; try --against none")
    return other


def _todo(model: str, other: str | None, settings: dict[str, Any], plan: Plan, budget: str, seed: int) -> list[Task]:
    """Every training, the cheap ones first."""
    shared = {key: value for key, value in settings.items() if key in TEXT}
    own = {key: value for key, value in settings.items() if key not in OPENING}
    own = {"budget": budget, "evaluations": CHECKS, **own} if find_spec(model).trained_by_gradient else own
    todo = tasks(model, own, plan, seed, search_order=model == "ngram" and "order" not in settings)
    if other is None:
        return todo
    theirs = shared | ({"budget": budget, "evaluations": CHECKS} if find_spec(other).trained_by_gradient else {})
    once = Plan(plan.lengths, plan.sizes, (1.0,), plan.seeds)
    return tasks(other, theirs, once, seed, search_order=other == "ngram") + todo


def _check(budget: str, seed: int, device: str, held_out: int, out: str | Path | None) -> None:
    """What would only fail after some training is refused before."""
    Budget.parse(budget)
    seeded_generator(seed)
    pick_device(device)
    if held_out < 1:
        raise UserError(f"held_out must be at least 1: held_out={held_out}; try --held-out 100000")
    if out is not None and (Path(out) / CONFIG).is_file():
        raise UserError(f"{out} is itself a run; name another folder for a series")
    if out is not None and Path(out).exists() and not Path(out).is_dir():
        raise UserError(f"{out} is there already and is not a folder; choose another --out")
