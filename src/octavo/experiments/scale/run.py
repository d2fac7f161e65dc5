"""From a model and a text to a scaling experiment and its laws."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from octavo.config import from_json
from octavo.core import seeded_generator
from octavo.errors import UserError
from octavo.experiments.cell import Cell, Outcome
from octavo.experiments.excerpts import describe_texts, first_part, last_part
from octavo.experiments.progress import Progress, default_progress
from octavo.experiments.runner import Runner
from octavo.experiments.scale import plan as planning
from octavo.experiments.scale.measure import TEXTS, Point, point_of
from octavo.experiments.scale.plan import BUDGET, EVALUATIONS, Plan, plan_cells, with_text
from octavo.experiments.scale.result import Scaling
from octavo.experiments.store import Store, check_folder
from octavo.models import find_spec, preset
from octavo.tasks.corpus import TextConfig
from octavo.tasks.task import pick_device
from octavo.text import Corpus
from octavo.training.schedule import Budget

KIND = "scaling experiment"
TEXT = ("tokenizer", "vocab_size", "size", "min_count", "split", "errors")  # settings that both models share
SOURCE = ("valid", "field")  # and those that only say where the text is
HELD_OUT_BYTES = 1_000_000


def scale(
    model: str,
    corpus: str | Path | Sequence[str | Path],
    *,
    against: str = "auto",
    plan: Plan = Plan(),  # noqa: B008
    budget: str = BUDGET,
    seed: int = 0,
    device: str = "auto",
    held_out: int = HELD_OUT_BYTES,
    out: str | Path | None = None,
    jobs: int = 1,
    command: str = "",
    progress: Progress | None = None,
    **settings: Any,
) -> Scaling:
    """Train a model at several lengths of text, sizes and budgets, fit power laws, and say where it passes another.

    `plan` has the lengths, sizes and budgets, as shares of the training part, of the width and of `budget`, and the
    number of seeds. `against` is the other model: auto is an n-gram, whose order is chosen anew for each length, or
    none where the model is one. Settings are those of `octavo.train`. What is finished is stored in `out`, so that the
    same call resumes it; `command` is what the page says to reproduce it with.
    """
    sources = [str(corpus)] if isinstance(corpus, str | Path) else list(map(str, corpus))
    _check(budget, seed, device, held_out)
    planning.check_settings(settings, sources)
    if out is not None:
        check_folder(Path(out), KIND)
    other = _other(model, against)
    cells = _plan(model, other, settings, plan, budget, seed)
    text = from_json(TextConfig, {key: settings[key] for key in (*TEXT, *SOURCE) if key in settings})
    opened = text.open(sources)
    planning.check_lengths(plan, opened.train.size)
    cells = _on_text(cells, opened, text, held_out, device)
    with ExitStack() as stack:
        folder = Path(out) if out is not None else Path(stack.enter_context(tempfile.TemporaryDirectory()))
        shown = stack.enter_context(progress or default_progress())
        runner = Runner(Store.open(folder, KIND, {}), shown, _points, len(cells), jobs, command)
        points = _points(runner.run(cells))
        shutil.rmtree(folder / TEXTS, ignore_errors=True)
    found = [point for point in points if point.error is None]
    if not found:
        raise UserError(f"no training succeeded: {points[0].error}")
    result = Scaling(
        model, other, ", ".join(sources), opened.train.size, first_part(opened.valid, held_out).size, budget,
        tuple(found), command, seed, opened.notes, tuple(point for point in points if point.error is not None),
    )  # fmt: skip
    if out is not None:
        result.save(Path(out))
    return result


def _points(outcomes: Mapping[str, Outcome]) -> list[Point]:
    return [point_of(outcome) for outcome in outcomes.values()]


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


def _plan(model: str, other: str | None, settings: dict[str, Any], plan: Plan, budget: str, seed: int) -> list[Cell]:
    """Every training, the cheap ones first."""
    shared = {key: value for key, value in settings.items() if key in TEXT}
    own = {key: value for key, value in settings.items() if key not in SOURCE}
    own = {"budget": budget, "evaluations": EVALUATIONS, **own} if find_spec(model).trained_by_gradient else own
    cells = plan_cells(model, own, plan, seed, search_order=model == "ngram" and "order" not in settings)
    if other is None:
        return cells
    theirs = shared | ({"budget": budget, "evaluations": EVALUATIONS} if find_spec(other).trained_by_gradient else {})
    once = Plan(plan.lengths, plan.sizes, (1.0,), plan.seeds)
    return plan_cells(other, theirs, once, seed, search_order=other == "ngram") + cells


def _on_text(cells: Sequence[Cell], corpus: Corpus, text: TextConfig, held_out: int, device: str) -> list[Cell]:
    """The cells with the parts of the text that they are of."""
    valid, found = first_part(corpus.valid, held_out), {}
    for share in {cell.options["share"] for cell in cells}:
        part = last_part(corpus.train, max(1, round(corpus.train.size * share)))
        found[share] = describe_texts(corpus, part, valid, text.valid, text.field)
    return [with_text(cell, found[cell.options["share"]], device) for cell in cells]


def _check(budget: str, seed: int, device: str, held_out: int) -> None:
    """What would only fail after some training is refused before."""
    Budget.parse(budget)
    seeded_generator(seed)
    pick_device(device)
    if held_out < 1:
        raise UserError(f"held_out must be at least 1: held_out={held_out}; try --held-out 100000")
