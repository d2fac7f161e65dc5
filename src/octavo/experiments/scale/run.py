"""From a model and a text to a scaling experiment and its laws: what is trained, and what comes of it.

Every length of text is trained with every size, and the whole model on the whole text with smaller budgets.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shlex
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from octavo.config import from_json
from octavo.core import seeded_generator
from octavo.errors import UserError
from octavo.experiments.cell import Cell, Outcome, describe_texts, first_part, last_part
from octavo.experiments.division import PlannedExperiment, lock_for, without_division
from octavo.experiments.execution import LOCAL, Execution, open_executor
from octavo.experiments.progress import Progress, default_progress
from octavo.experiments.runner import Runner, Store, check_folder
from octavo.experiments.scale.measure import TEXTS, ScalePoint, point_of
from octavo.experiments.scale.result import Scaling
from octavo.models import find_spec, preset
from octavo.models.parts.checks import check_positive
from octavo.tasks.corpus import TextConfig
from octavo.tasks.device import pick_device
from octavo.text import Corpus
from octavo.training.schedule import Budget

KIND = "scaling experiment"
TEXT = ("tokenizer", "vocab_size", "size", "min_count", "split", "errors")  # settings that both models share
SOURCE = ("valid", "field", "encoding")  # and those that only say where the text is
HELD_OUT_BYTES = 1_000_000
LENGTHS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
SIZES = (1 / 4, 1 / 2, 1.0)
BUDGETS = (1 / 8, 1 / 4, 1 / 2, 1.0)
BUDGET = "30s"
QUICK_BUDGET = "3s"
EVALUATIONS = 4  # of a training: with budgets this short, more would take much of them
SHORTEST_BYTES = 2_000  # a shorter text says nothing about longer ones
WIDTH_STEP = 8  # widths are a multiple of it, where heads do not ask for another


@dataclass(frozen=True)
class ScalePlan:
    """Multiples of the training part, of the width and of the budget; and how many seeds."""

    lengths: tuple[float, ...] = LENGTHS
    """Shares of the training text to learn from."""
    sizes: tuple[float, ...] = SIZES
    """Shares of a network's width."""
    budgets: tuple[float, ...] = BUDGETS
    """Shares of the budget, for the whole network on the whole text."""
    seeds: int = 1
    """Train every network so many times, from other initial weights: narrower intervals."""

    def __post_init__(self) -> None:
        for name, values in (("lengths", self.lengths), ("sizes", self.sizes), ("budgets", self.budgets)):
            if 1.0 not in values or any(not 0 < value <= 1 for value in values) or len(set(values)) < len(values):
                raise UserError(
                    f"{name} are different shares of the whole, above 0 and at most 1, with 1 among them: "
                    f"{name}={' '.join(f'{value:g}' for value in values)}; try --{name} 0.25 0.5 1"
                )
        if len(self.lengths) < 3:
            raise UserError(f"a law needs at least 3 lengths: {len(self.lengths)}; try --lengths 0.25 0.5 1")
        check_positive("seeds", self.seeds, 1)


QUICK = ScalePlan((1 / 8, 1 / 4, 1 / 2, 1.0), (1 / 2, 1.0), (1 / 4, 1 / 2, 1.0))


def plan_cells(
    model: str, settings: Mapping[str, Any], plan: ScalePlan, seed: int, search_order: bool = False
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
    return f"{amount:.3f}s" if whole.kind == "seconds" else f"{max(1, round(amount))}{whole.kind}"


@dataclass(frozen=True)
class ScaleRequest:
    """What `scale` is asked for."""

    model: str
    sources: list[str]
    against: str = "auto"
    plan: ScalePlan = ScalePlan()
    budget: str = BUDGET
    seed: int = 0
    device: str = "auto"
    held_out: int = HELD_OUT_BYTES
    out: str | Path | None = None
    command: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)


def scale(
    model: str,
    corpus: str | Path | Sequence[str | Path],
    *,
    against: str = "auto",
    plan: ScalePlan = ScalePlan(),  # noqa: B008
    budget: str = BUDGET,
    seed: int = 0,
    device: str = "auto",
    held_out: int = HELD_OUT_BYTES,
    out: str | Path | None = None,
    jobs: int = 1,
    on: str = LOCAL,
    cores: int = 1,
    command: str = "",
    progress: Progress | None = None,
    **settings: Any,
) -> Scaling:
    """Train a model at several lengths of text, sizes and budgets, fit power laws, and say where it passes another.

    Args:
        model: The name of a language model; of a network, the largest one.
        corpus: A file, a folder or a named source, or a list of them.
        against: The other model: auto is an n-gram, whose order is chosen anew for each length, or none where the
            model is one; none is nothing.
        plan: The lengths, sizes and budgets, as shares of the training part, of the width and of `budget`, and the
            number of seeds.
        budget: How long each network is trained.
        seed: The first of the seeds.
        device: Where networks are trained: "auto", "cpu", "cuda", "cuda:1" or "mps".
        held_out: Score at most so many bytes of the held-out text.
        out: The folder for results and page; what is finished is stored there, so that the same call resumes it.
        jobs: How many trainings run at a time.
        on: "local" is this machine, "ray" and "ray://HOST" a Ray cluster.
        cores: How many cores each training asks for on Ray.
        command: What the page says to reproduce it with.
        progress: Where progress is shown; by default on standard error.
        **settings: Those of `octavo.train`.

    Returns:
        The points, their laws (`text`, `parameters`, `training`) with intervals, and where the models meet
        (`crossing`).

    Raises:
        UserError: The text is too short, or there is no such model or setting.

    Examples:
        >>> from octavo.experiments.scale import ScalePlan
        >>> octavo.scale("ngram", "book.txt", order=3, plan=ScalePlan((0.25, 0.5, 1.0)), out="runs/scale")
        <octavo scaling of ngram on book.txt: 3 points>
    """
    sources = [str(corpus)] if isinstance(corpus, str | Path) else list(map(str, corpus))
    request = ScaleRequest(model, sources, against, plan, budget, seed, device, held_out, out, command, settings)
    return ScaleExperiment(request, Execution(jobs, on, cores), progress).run()


class ScaleExperiment(PlannedExperiment):
    """One scaling experiment, from wherever its folder says that it is."""

    def __init__(
        self, request: ScaleRequest, execution: Execution = Execution(), progress: Progress | None = None,  # noqa: B008
        cell: str = "",
    ) -> None:  # fmt: skip
        """`cell`: the only one that is then run; others may work in the folder meanwhile."""
        self.request, settings, out = request, dict(request.settings), request.out
        _check(request)
        if out is not None:
            check_folder(Path(out), KIND)
        self.other = _other(request.model, request.against)
        cells = _plan(request.model, self.other, settings, request.plan, request.budget, request.seed)
        text = from_json(TextConfig, {key: settings[key] for key in (*TEXT, *SOURCE) if key in settings})
        self.corpus = text.open(request.sources)
        _check_lengths(request.plan, self.corpus.train.size)
        self.cells = _on_text(cells, self.corpus, text, request.held_out, request.device)
        with ExitStack() as stack:
            executor = stack.enter_context(open_executor(execution))
            if out is not None:
                stack.enter_context(lock_for(Path(out), cell))
            folder = Path(out) if out is not None else Path(stack.enter_context(tempfile.TemporaryDirectory()))
            self.runner = Runner(
                Store.open(folder, KIND, {}), progress or default_progress(), _points, len(cells), executor.jobs,
                request.command, executor, check=point_of,
            )  # fmt: skip
            super().__init__(without_division(shlex.split(request.command)), stack.pop_all())

    def plan(self) -> list[Cell]:
        return self.cells

    def run(self, collect: bool = False) -> Scaling:
        """All cells, then the laws and the page; with `collect`, other commands must have executed the cells."""
        with self.lock, self.runner.progress:
            points = _points((self.runner.collect if collect else self.runner.run)(self.cells))
            result = self._result(points)
            folder = self.runner.store.folder
            with self.runner.stoppable():
                shutil.rmtree(folder / TEXTS, ignore_errors=True)
                if result.points and self.request.out is not None:
                    result.save(folder)
        if not result.points:
            raise UserError(f"no training succeeded: {points[0].error}")
        return result

    def _result(self, points: Sequence[ScalePoint]) -> Scaling:
        request, corpus = self.request, self.corpus
        found = tuple(point for point in points if point.error is None)
        failed = tuple(point for point in points if point.error is not None)
        return Scaling(
            request.model, self.other, ", ".join(request.sources), corpus.train.size,
            first_part(corpus.valid, request.held_out).size, request.budget, found, request.command, request.seed,
            corpus.notes, failed,
        )  # fmt: skip


def _points(outcomes: Mapping[str, Outcome]) -> list[ScalePoint]:
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


def _plan(
    model: str, other: str | None, settings: dict[str, Any], plan: ScalePlan, budget: str, seed: int
) -> list[Cell]:
    """Every training, the cheap ones first."""
    shared = {key: value for key, value in settings.items() if key in TEXT}
    own = {key: value for key, value in settings.items() if key not in SOURCE}
    own = {"budget": budget, "evaluations": EVALUATIONS, **own} if find_spec(model).trained_by_gradient else own
    cells = plan_cells(model, own, plan, seed, search_order=model == "ngram" and "order" not in settings)
    if other is None:
        return cells
    theirs = shared | ({"budget": budget, "evaluations": EVALUATIONS} if find_spec(other).trained_by_gradient else {})
    once = ScalePlan(plan.lengths, plan.sizes, (1.0,), plan.seeds)
    return plan_cells(other, theirs, once, seed, search_order=other == "ngram") + cells


def _on_text(cells: Sequence[Cell], corpus: Corpus, text: TextConfig, held_out: int, device: str) -> list[Cell]:
    """The cells with the parts of the text that they are of, and their titles."""
    valid, texts = first_part(corpus.valid, held_out), {}
    for share in {cell.options["share"] for cell in cells}:
        part = last_part(corpus.train, max(1, round(corpus.train.size * share)))
        texts[share] = describe_texts(corpus, part, valid, text.valid, text.field)
    complete = []
    for cell in cells:
        data, options = texts[cell.options["share"]], cell.options | {"device": device}
        words = [cell.model, f"{data['train_bytes']:,} bytes of text"]
        words += [f"width {cell.settings['width']}"] if "width" in cell.settings else []
        words += [f"for {cell.budget}"] if cell.budget else []
        words += [f"seed {cell.seed}"] if cell.seed else []
        complete.append(dataclasses.replace(cell, data=data, options=options, title=", ".join(words)))
    return complete


def _check(request: ScaleRequest) -> None:
    """What would only fail after some training, or would make the results incomparable, is refused before."""
    Budget.parse(request.budget)
    seeded_generator(request.seed)
    pick_device(request.device)
    check_positive("held_out", request.held_out, 100_000)
    if request.settings.get("preprocess") or request.settings.get("errors") == "replace":
        raise UserError("a law is of the text as it is; leave preprocess and errors=replace out")
    if "-" in request.sources:
        raise UserError("the text is read several times, and standard input can be read once; name a file")


def _check_lengths(plan: ScalePlan, size: int) -> None:
    """Refuse a text that is too short for the plan."""
    shortest = min(plan.lengths) * size
    if shortest < SHORTEST_BYTES:
        enough = [f"{share:g}" for share in LENGTHS if share * size >= SHORTEST_BYTES]
        remedy = f"try --lengths {' '.join(enough)}" if len(enough) >= 3 else "give a longer text"
        raise UserError(
            f"the shortest part of the text must have {SHORTEST_BYTES:,} bytes: {min(plan.lengths):g} of {size:,} "
            f"bytes is {shortest:,.0f}; {remedy}"
        )
