"""octavo scale: how a model gets better with more text, and where it passes another."""

from __future__ import annotations

import dataclasses
import shlex
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

from octavo.cli.cells import output_of_part
from octavo.cli.flags import TEXTS, Corpora, command, run_command
from octavo.cli.output import Output, note
from octavo.config import DEVICE_NAMES
from octavo.experiments.division import Division
from octavo.experiments.execution import Execution
from octavo.experiments.scale.page import failure_lines, summary
from octavo.experiments.scale.power_law import CONFIDENCE
from octavo.experiments.scale.result import Scaling
from octavo.experiments.scale.run import (
    BUDGET,
    EVALUATIONS,
    HELD_OUT_BYTES,
    QUICK,
    QUICK_BUDGET,
    ScaleExperiment,
    ScalePlan,
    ScaleRequest,
)
from octavo.experiments.table import adaptive_note, table_text
from octavo.io.run_folder import REPORT
from octavo.models import find_spec, preset
from octavo.tasks.corpus import TextConfig
from octavo.training.loop_config import LoopConfig
from octavo.training.optimizer import OptimizerConfig

MAX_LINE_CHARACTERS = 79
ABOUT = {
    "config": "The model; of a network, the largest one.", "text": "The text and its tokens.",
    "loop": "How long each training lasts, and in what pieces.", "optim": "How the weights are changed.",
}  # fmt: skip


def run_scale(argv: list[str]) -> None:
    """scale takes the model's name first; its config decides the other flags."""
    if not argv or argv[0] in ("-h", "--help"):
        print("usage: octavo scale MODEL CORPUS [flags]       octavo scale MODEL --help shows the model's flags\n")
        print("Trains MODEL and an n-gram at several lengths of text, fits power laws with their intervals, and says")
        print("where the two cross. Stopped, the same command resumes it.\n")
        print("example: octavo scale gpt shakespeare --quick --out runs/scale-quick")
        print("example: octavo scale gpt shakespeare --budget 20s --out runs/scale")
        return
    run_command(_scale(argv[0], argv), f"octavo scale {argv[0]}", argv[1:])


def _scale(model: str, argv: list[str]) -> Callable[..., Output]:
    """The verb with the flags of a model."""
    kind, usual = preset(model)
    usual_plan, budget = (QUICK, QUICK_BUDGET) if "--quick" in argv else (ScalePlan(), BUDGET)
    order_given = any(word.split("=")[0] == "--order" for word in argv)  # also where it is the usual one
    loop = LoopConfig(budget=budget, evaluations=EVALUATIONS)
    steps = {"loop": loop, "optim": OptimizerConfig()} if find_spec(kind).trained_by_gradient else {}
    usual_configs = {"config": usual, **steps, "text": TextConfig()}
    flags = {key: (config, ABOUT[key]) for key, config in usual_configs.items()} | {
        "plan": (usual_plan, "What is varied."),
        "against": (
            "auto", "The model to compare with. auto: an n-gram whose order is chosen for each length; none: nothing."),
        "seed": (0, "The first of the seeds."),
        "held_out": (HELD_OUT_BYTES, "Score at most so many bytes of the held-out text."),
        "device": ("auto", f"Where networks are trained: {DEVICE_NAMES}."),
        "quick": (False, "Fewer and shorter trainings, 3 s each: done in about a minute."),
        "execution": (Execution(), "Where the models are trained."),
        "division": (Division(), "One job for each training."),
        "out": (f"runs/scale-{model}", "The folder for the results and the page."),
    }  # fmt: skip

    def verb(
        corpus: tuple[str, ...], plan: ScalePlan, quick: bool, out: str, execution: Execution, division: Division,
        **given: Any,
    ) -> Output:  # fmt: skip
        configs = {name: given.pop(name) for name in usual_configs}
        settings = {key: value for name, one in configs.items() for key, value in _changed(one, usual_configs[name])}
        settings.pop("budget", None)
        if order_given and not steps:
            settings["order"] = configs["config"].order
        given |= {"budget": configs["loop"].budget} if steps else {}
        command = shlex.join(["octavo", "scale", *argv])
        request = ScaleRequest(model, list(corpus), plan=plan, out=out, command=command, settings=settings, **given)
        return _run(ScaleExperiment(request, execution, cell=division.run_cell), division)

    about = f"""Train at several lengths of text, fit power laws, and say where the model passes an n-gram.

    Example: octavo scale {model} shakespeare --quick --out runs/scale-quick

    Stopped (Ctrl-C) or killed, the same command resumes it."""
    return command(verb, about, flags, {"corpus": (Corpora, TEXTS)})


def _run(experiment: ScaleExperiment, division: Division) -> Output:
    if (divided := output_of_part(experiment, division)) is not None:
        return divided
    found = experiment.run(division.collect)
    note(*found.notes)
    note(*failure_lines(found))
    page = experiment.runner.store.folder / REPORT
    return Output(found.to_json, lambda: _print_result(found, page), failed=bool(found.failed))


def _changed(config: Any, usual: Any) -> list[tuple[str, Any]]:
    """The settings that are not the usual ones."""
    values = [(one.name, getattr(config, one.name)) for one in dataclasses.fields(config)]
    return [(name, value) for name, value in values if value != getattr(usual, name)]


def _print_result(found: Scaling, page: Path) -> None:
    print(f"All are measured on the same {found.held_out_bytes:,} bytes that none of them learnt from.\n")
    sys.stdout.write(table_text(found.rows, sys.stdout))
    if explained := adaptive_note(found.rows):
        print(f"\n{textwrap.fill(explained, MAX_LINE_CHARACTERS)}")
    networks = any(point.flops for point in found.points)
    print("\n*: the size that was best on validation chunks of the training text\n" if networks else "")
    for line in summary(found):
        print(textwrap.fill(line, MAX_LINE_CHARACTERS, subsequent_indent="  "))
    if any(curve.fit is not None for curve in found.curves):
        print(f"\nIn brackets, and of floor and exponent: intervals of {CONFIDENCE:.0%}.")
    print(f"The page with the figures: {page}")
