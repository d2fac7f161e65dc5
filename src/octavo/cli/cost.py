"""octavo cost: what a model costs before it is trained, and what a budget is best spent on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from octavo.cli.cost_tables import print_cost, print_plan
from octavo.cli.cost_time import Asked, costs_of, piece_of, predictions
from octavo.cli.flags import RunPath, run_command
from octavo.cli.output import print_json
from octavo.cli.verbs import task_of
from octavo.cost import (
    Assumptions,
    Cost,
    Machine,
    Plan,
    Prediction,
    Shape,
    cost_like,
    cost_of,
    cost_of_config,
    named_gpu,
    parse_budget,
    plan_for,
    training_memory,
)
from octavo.cost.memory import SIZE
from octavo.cost.published import DECODERS, NAMES, context_of
from octavo.errors import UserError
from octavo.models import MODELS, names, preset, spec_of
from octavo.tasks.run import load
from octavo.training.step_timing import Piece

TASKS = [spec.name for spec in MODELS.values() if spec.task in ("images", "translation", "masked")]
ROWS = 8  # of a step, where training does not say
USAGE = f"""usage: octavo cost MODEL [flags]      a model by its settings; octavo cost MODEL --help shows them
       octavo cost RUN [flags]        one that is trained
       octavo cost bert --like NAME   bert-base or bert-large: every parameter, and the published count
       octavo cost --like NAME        {", ".join(NAMES)}
       octavo cost --plan BUDGET      1e21flops or 1000usd: the compute-optimal size, and the GPUs it takes

models: {", ".join(names())};
        {", ".join(TASKS)} (images, translation, masked words)

example: octavo cost gpt --width 768 --layers 12 --heads 12 --context 1024 --vocab 50257 --batch 8 --gpu h200"""


def run_cost(argv: list[str]) -> None:
    """cost takes a model's name, a run, or a flag that says what else; that decides the other flags."""
    if not argv or argv[0] in ("-h", "--help"):
        print(USAGE)
        return
    if argv[0] in TASKS:
        from octavo.cli.cost_tasks import run_cost_task

        run_cost_task(argv[0], argv[1:])
        return
    flags = {arg.partition("=")[0] for arg in argv}
    if argv[0].startswith("-"):
        which = next((flag for flag in ("--plan", "--like") if flag in flags), None)
        if which is None:
            raise UserError("cost is of a model, a run, --like NAME or --plan BUDGET; see octavo cost --help")
        run_command(plan_cost if which == "--plan" else like_cost, "octavo cost", argv)
    elif argv[0] in names() or not ("/" in argv[0] or Path(argv[0]).exists()):
        run_command(_cost_by_settings(argv[0]), f"octavo cost {argv[0]}", argv[1:])
    elif task_of(argv[:1]) in ("images", "translation"):
        from octavo.cli.cost_tasks import task_run_cost

        run_command(task_run_cost, "octavo cost", argv)
    else:
        run_command(run_folder_cost, "octavo cost", argv)


def _cost_by_settings(name: str) -> Callable[..., None]:
    model, usual = preset(name)
    has_batch = any(field.name == "batch" for field in dataclasses.fields(usual))  # then it is the settings' own

    def cost(
        config: Any = usual,
        vocab: int = 257,
        window: int = 0,
        asked: Asked = Asked(),  # noqa: B008
        json: bool = False,
    ) -> None:
        print_settings_cost(model, config, vocab, config.batch if has_batch else 0, window, asked, json)

    def cost_with_batch(
        config: Any = usual, vocab: int = 257, batch: int = 0, window: int = 0, asked: Asked = Asked(),  # noqa: B008
        json: bool = False,
    ) -> None:  # fmt: skip
        print_settings_cost(model, config, vocab, batch, window, asked, json)

    function = cost if has_batch else cost_with_batch
    function.__annotations__["config"] = type(usual)  # the flags come from its fields
    rows = "" if has_batch else "\n        batch: Rows of text of a training step; 0: what octavo train takes."
    function.__doc__ = f"""What the model costs: parameters, operations, memory, and time on this machine and on a GPU.

    Example: octavo cost {name} --vocab 257 --gpu h200

    Args:
        config: The model.
        vocab: Tokens of the vocabulary; 257: bytes and begin.{rows}
        window: Tokens of a row; 0: what octavo train takes.
        asked: What the time is predicted for.
        json: Print JSON.
    """
    return function


def print_settings_cost(model: str, config: Any, vocab: int, batch: int, window: int, asked: Asked, json: bool) -> None:
    """The cost of a model by its settings."""
    if not asked.tokens and cost_of_config(model, config, vocab, Shape()).tables_at_most:
        raise UserError("an n-gram's tables depend on the text: tokens=0; try --tokens 1000000, or a trained run")
    if not MODELS[model].trained_by_gradient:
        shapes = Shape(batch or ROWS, window or 1, text=asked.tokens), Shape(text=asked.tokens)
        training, decoding = (cost_of_config(model, config, vocab, shape) for shape in shapes)
        print_everything(model, training, decoding, asked, json)
        return
    piece = piece_of(model, config, vocab, batch, window, asked)
    print_everything(model, *costs_of(piece), asked, json, piece)


def run_folder_cost(
    run: RunPath,
    batch: int = 0,
    window: int = 0,
    asked: Asked = Asked(),  # noqa: B008
    json: bool = False,
) -> None:
    """What a trained model costs.

    Example: octavo cost runs/kn7

    Args:
        run: A run folder.
        batch: Rows of text that a training step works on; 0: as it was trained.
        window: Tokens of a row; 0: as it was trained.
        asked: What the time is predicted for.
        json: Print JSON.
    """
    found = load(run)
    model, trained = found.model, found.record.get("training", {})
    batch, window = batch or trained.get("streams", 0), window or trained.get("sequence_length", 0)
    if (spec := spec_of(model)).trained_by_gradient:
        piece = piece_of(spec.name, model.config, model.vocab, batch, window, asked)
        print_everything(run, *costs_of(piece), asked, json, piece)
        return
    window = window or model.default_batch_shape[1]
    print_everything(
        run, cost_of(model, Shape(batch or ROWS, window)), cost_of(model, Shape(1, 1, window - 1)), asked, json
    )


def like_cost(
    like: str,
    batch: int = ROWS,
    window: int = 0,
    asked: Asked = Asked(),  # noqa: B008
    json: bool = False,
) -> None:
    """What a well-known model costs.

    Example: octavo cost --like gpt2-xl --gpu h200

    Args:
        like: Its name: gpt2, gpt2-xl, llama-7b, smollm2-135m, bert-large and others.
        batch: Rows of text that a training step works on.
        window: Tokens of a row; 0: the model's context.
        asked: What the time is predicted for.
        json: Print JSON.
    """
    window = window or context_of(like)
    training = cost_like(like, Shape(batch, window))
    if like not in DECODERS:
        print_everything(like, training, None, asked, json)
        return
    config, vocab = DECODERS[like]
    piece = piece_of("gpt", config, vocab, batch, window, asked)
    print_everything(like, training, cost_like(like, Shape(1, 1, window - 1)), asked, json, piece)


def plan_cost(
    plan: str, gpu: str = "h100", vocab: int = 50257, context: int = 2048,
    assumed: Assumptions = Assumptions(), json: bool = False,  # noqa: B008
) -> None:  # fmt: skip
    """The size of model and text that a budget is best spent on, and how many GPUs for how long, shared by FSDP.

    Example: octavo cost --plan 1000usd --gpu h100

    Args:
        plan: The budget: 1e21flops, or 1000usd.
        gpu: t4, l4, rtx-4090, a100-80, h100 or h200: by its datasheet.
        vocab: Tokens of the vocabulary.
        context: Tokens of a text.
        assumed: What is taken for granted.
        json: Print JSON.
    """
    machine = named_gpu(gpu)
    found = plan_for(parse_budget(plan, machine, assumed), machine, vocab, context, assumed)
    if json:
        print_json(plan_record(found, machine, assumed))
    else:
        print_plan(found, machine, assumed)


def print_everything(
    title: str, training: Cost, decoding: Cost | None, asked: Asked, json: bool, piece: Piece | None = None
) -> None:
    """Print it all; with a piece to time, its time on this machine is that of real steps."""
    found, timing = predictions(training, decoding, asked, piece)
    record = cost_record(title, training, found, asked)
    record["timing"] = timing and dataclasses.asdict(timing)
    if piece:
        carried = piece.cost()
        record["past"] = carried.shape.past
        record["flops_per_token"]["training_with_past"] = carried.training_flops / carried.shape.tokens
    if json:
        print_json(record)
    else:
        print_cost(record, found)


def cost_record(title: str, cost: Cost, found: list[Prediction], asked: Asked) -> dict[str, Any]:
    """Everything about a cost, as JSON has it."""
    memory = training_memory(cost, asked.optimizer, asked.precision)
    size, window = SIZE[asked.precision], cost.shape.window
    per_token = {what: cost.per_token(what) for what in ("forward", "needed", "backward")}
    mine = found[0] if found and asked.measure else None
    return {
        "title": title, "model": cost.model, "vocab": cost.vocab, "parameters": cost.parameters,
        "table_bytes": cost.table_bytes, "tables_at_most": cost.tables_at_most,
        "batch": cost.shape.batch, "window": window,
        "parts": [dataclasses.asdict(part) for part in cost.parts],
        "flops_per_token": per_token | {"training": cost.training_flops / cost.shape.tokens},
        "memory": dataclasses.asdict(memory) | {"total": memory.total},
        "cache": {
            "bytes_per_token": sum(c.per_token * max(size, c.least_size) for c in cost.caches),
            "constant_bytes": cost.cache_bytes(0, size), "bytes": cost.cache_bytes(window, size),
        },
        "predicted_seconds_per_step": mine and mine.predicted_seconds_per_step,
        "predicted_tokens_per_second": mine and mine.predicted_tokens_per_second,
        "predictions": [
            dataclasses.asdict(one) | {
                "bound": one.bound, "predicted_seconds_per_step": one.predicted_seconds_per_step,
                "seconds": training_seconds(one, asked.tokens),
            }
            for one in found
        ],
        "assumed": {key: value for key, value in dataclasses.asdict(asked).items() if key != "measure"},
    }  # fmt: skip


def training_seconds(one: Prediction, tokens: int) -> float | None:
    """How long training on so many tokens takes."""
    return tokens / one.predicted_tokens_per_second if tokens and one.work == "training" else None


def plan_record(plan: Plan, machine: Machine, assumed: Assumptions) -> dict[str, Any]:
    """A plan, as JSON has it."""
    return {
        "flops": plan.flops, "parameters": plan.parameters, "tokens": plan.tokens,
        "config": dataclasses.asdict(plan.config), "config_parameters": plan.cost.parameters,
        "flops_per_token": plan.cost.training_flops / plan.cost.shape.tokens, "gpu": dataclasses.asdict(machine),
        "fleets": [dataclasses.asdict(fleet) for fleet in plan.fleets], "assumed": dataclasses.asdict(assumed),
    }  # fmt: skip
