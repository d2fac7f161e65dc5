"""octavo cost: what a model costs before it is trained, and what a budget is best spent on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any

from octavo.cli.cost_report import print_cost, print_plan
from octavo.cli.flags import Flags, RunPath, command, run_command
from octavo.cli.output import Output
from octavo.cli.verbs import task_of
from octavo.costs import named_gpu
from octavo.costs.planning import Assumptions, parse_budget, plan_for
from octavo.costs.published import PUBLISHED
from octavo.errors import UserError
from octavo.models import find_spec, names
from octavo.tasks.cost_record import CostSettings, Counted, report_cost
from octavo.tasks.model_cost import (
    OTHER_TASKS,
    ROWS,
    RUNS_COUNTED,
    SIZES,
    SIZES_OF_RUN,
    count_like,
    count_model,
    count_run,
    count_task_run,
    sizes_of,
    usual_config,
)

EXAMPLES = {
    "language": "--vocab 257 --gpu h200", "images": "--image 28x28 --attention local --gpu h200",
    "translation": "--source 24 --target 24 --languages 2 --gpu h200", "masked": "--like bert-large",
    "tagging": "--encoder lstm --tags 17", "classification": "--width 100 --words 20000",
}  # fmt: skip
USAGE = f"""usage: octavo cost MODEL [flags]      a model by its settings; octavo cost MODEL --help shows them
       octavo cost RUN [flags]        one that is trained
       octavo cost bert --like NAME   bert-base or bert-large: with its heads, and the published count
       octavo cost --like NAME        {", ".join(PUBLISHED)}
       octavo cost --plan BUDGET      1e21flops or 1000usd: the compute-optimal size, and the GPUs it takes

models: {", ".join(names())};
        {", ".join(OTHER_TASKS)} (images, translation, masked words, tagging, classification)

example: octavo cost gpt --width 768 --layers 12 --heads 12 --context 1024 --vocab 50257 --batch 8 --gpu h200"""


def run_cost(argv: list[str]) -> None:
    """cost takes a model's name, a run, or a flag that says what else; that decides the other flags."""
    if not argv or argv[0] in ("-h", "--help"):
        print(USAGE)
        return
    flags = {arg.partition("=")[0] for arg in argv}
    if argv[0].startswith("-"):
        if not flags & {"--plan", "--like"}:
            raise UserError("cost is of a model, a run, --like NAME or --plan BUDGET; see octavo cost --help")
        run_command(plan_cost if "--plan" in flags else like_command(), "octavo cost", argv)
    elif argv[0] in (*names(), *OTHER_TASKS) or not ("/" in argv[0] or Path(argv[0]).exists()):
        run_command(model_command(argv[0]), f"octavo cost {argv[0]}", argv[1:])
    else:
        run_command(trained_command(task_of(argv[:1])), "octavo cost", argv)


# ---------------------------------------------------------------------- flags


def cost_command(
    count: Callable[..., Counted], example: str, sizes: Flags, required: Flags = MappingProxyType({})
) -> Callable[..., Output]:
    """A function whose flags are what is required, the sizes, and what the time is predicted for; it reports what
    `count` makes of them."""

    def cost(asked: CostSettings, **given: Any) -> Output:
        report = report_cost(count(asked, **given), asked)
        return Output(report.to_json, lambda: print_cost(report))

    about = f"""What a model costs: parameters, operations, memory, and time on this machine and on a GPU.

    Example: octavo cost {example}"""
    return command(cost, about, {**sizes, "asked": (CostSettings(), "What the time is predicted for.")}, required)


def model_command(name: str) -> Callable[..., Output]:
    """Of a model by its settings."""
    spec = find_spec(name)
    usual, sizes = usual_config(name), sizes_of(name)

    def count(asked: CostSettings, config: Any, **given: Any) -> Counted:
        return count_model(name, config, asked, **given)

    return cost_command(count, f"{name} {EXAMPLES[spec.task]}", {"config": (usual, "The model."), **sizes})


def trained_command(task: str) -> Callable[..., Output]:
    """Of a run of that task."""
    of_task = task in RUNS_COUNTED  # what is wrong with a run of another is said when it is loaded
    sizes = {flag: value for flag, value in SIZES[task if of_task else "language"].items() if flag in SIZES_OF_RUN}
    count = count_task_run if of_task else count_run
    return cost_command(count, "runs/kn7", sizes, {"run": (RunPath, "A run folder.")})


def like_command() -> Callable[..., Output]:
    """Of a well-known model."""
    sizes = {"batch": (ROWS, "Rows of a training step."), "window": (0, "Tokens of a row; 0: the model's context.")}
    names = f"One of {', '.join(PUBLISHED)}."
    return cost_command(count_like, "--like gpt2-xl --gpu h200", sizes, {"like": (str, names)})


def plan_cost(
    plan: str, gpu: str = "h100", vocab: int = 50257, context: int = 2048, assumed: Assumptions = Assumptions()  # noqa: B008
) -> Output:  # fmt: skip
    """The size of model and text that a budget is best spent on, and how many GPUs for how long, shared by FSDP.

    Example: octavo cost --plan 1000usd --gpu h100

    Args:
        plan: The budget: 1e21flops, or 1000usd.
        gpu: t4, l4, rtx-4090, a100-80, h100 or h200: by its datasheet.
        vocab: Tokens of the vocabulary.
        context: Tokens of a text.
        assumed: What is taken for granted.
    """
    machine = named_gpu(gpu)
    found = plan_for(parse_budget(plan, machine, assumed), machine, vocab, context, assumed)
    record = {
        "flops": found.flops, "parameters": found.parameters, "tokens": found.tokens,
        "config": dataclasses.asdict(found.config), "config_parameters": found.cost.parameters,
        "flops_per_token": found.cost.training_flops / found.cost.shape.tokens, "gpu": dataclasses.asdict(machine),
        "fleets": [dataclasses.asdict(fleet) for fleet in found.fleets], "assumed": dataclasses.asdict(assumed),
    }  # fmt: skip
    return Output(record, lambda: print_plan(found, machine, assumed))
