"""octavo cost: what a model costs before it is trained, and what a budget is best spent on."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from octavo.cli.cost_bert import cost_bert
from octavo.cli.cost_tables import cost_record, print_cost, print_plan, print_task_cost
from octavo.cli.cost_time import Asked, AskedOfTask, costs_of, piece_of, predictions
from octavo.cli.flags import RunPath, command, run_command
from octavo.cli.output import print_json
from octavo.cli.verbs import task_of
from octavo.cost import (
    Assumptions,
    Cost,
    Shape,
    cost_like,
    cost_of,
    cost_of_config,
    named_gpu,
    parse_budget,
    plan_for,
)
from octavo.cost.published import DECODERS, NAMES, context_of
from octavo.errors import UserError
from octavo.models import MODELS, find_spec, names, preset, spec_of
from octavo.models.cost.seq2seq import PairShape
from octavo.models.encoder_decoder import Sizes
from octavo.models.spec import ModelSpec
from octavo.tasks.run import load
from octavo.tasks.task import task_of_run
from octavo.training.step_timing import Piece

TASKS = [spec.name for spec in MODELS.values() if spec.task in ("images", "translation", "masked")]
ROWS = 8  # of a step, where training does not say
BATCH = {"images": 64, "translation": 32}  # of a training step, where nothing else is asked for
PICTURE = re.compile(r"([1-9]\d{0,5})x([1-9]\d{0,5})(?:x([1-9]\d{0,3}))?")
SIZES: dict[str, dict[str, tuple[Any, str]]] = {  # flags beside the model's own, by task: default and help
    "language": {
        "vocab": (257, "Tokens of the vocabulary; 257: bytes and begin."),
        "batch": (0, "Rows of text of a training step; 0: what octavo train takes."),
        "window": (0, "Tokens of a row; 0: what octavo train takes."),
    },
    "images": {
        "image": ("28x28", "Height x width, or height x width x channels, in pixels."),
        "classes": (10, "How many classes there are."),
        "batch": (BATCH["images"], "Images of a training step."),
    },
    "translation": {
        "vocab": (8000, "Tokens of the targets' vocabulary."),
        "source_vocab": (0, "Tokens of the sources'; 0: the same vocabulary."),
        "source": (24, "Tokens of a source."),
        "target": (24, "Tokens of a target."),
        "languages": (1, "Targets of each source: what the encoder does is done once for all."),
        "batch": (BATCH["translation"], "Sources of a training step."),
    },
}
SUMMARIES = {
    "language": "parameters, operations, memory, and time on this machine and on a GPU.",
    "images": "every part's parameters and operations, and the most images a second.",
    "translation": "every part's parameters and operations, and the most sources a second.",
}
EXAMPLES = {
    "language": "--vocab 257 --gpu h200", "images": "--image 28x28 --attention local --gpu h200",
    "translation": "--source 24 --target 24 --languages 2 --gpu h200",
}  # fmt: skip
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
    flags = {arg.partition("=")[0] for arg in argv}
    if argv[0] == "bert":
        run_command(cost_bert, "octavo cost bert", argv[1:])
    elif argv[0].startswith("-"):
        which = next((flag for flag in ("--plan", "--like") if flag in flags), None)
        if which is None:
            raise UserError("cost is of a model, a run, --like NAME or --plan BUDGET; see octavo cost --help")
        run_command(plan_cost if which == "--plan" else like_cost, "octavo cost", argv)
    elif argv[0] in (*names(), *TASKS) or not ("/" in argv[0] or Path(argv[0]).exists()):
        run_command(settings_cost(argv[0]), f"octavo cost {argv[0]}", argv[1:])
    else:
        of_task = task_of(argv[:1]) in BATCH
        run_command(task_run_cost if of_task else run_folder_cost, "octavo cost", argv)


def settings_cost(name: str) -> Callable[..., None]:
    """A function whose signature is the flags of a model, and which prints what the model costs."""
    spec = find_spec(name)
    model, usual = (name, spec.config()) if spec.task in BATCH else preset(name)
    sizes = dict(SIZES[spec.task])
    if any(field.name == "batch" for field in dataclasses.fields(usual)):
        del sizes["batch"]  # then it is the settings' own

    def cost(config: Any, asked: Any, json: bool, **sizes: Any) -> None:
        if spec.task == "language":
            rows = sizes.get("batch", getattr(config, "batch", 0))
            print_settings_cost(model, config, sizes["vocab"], rows, sizes["window"], asked, json)
        else:
            print_task_cost(name, spec.task, cost_of_sizes(spec, config, sizes), asked, json)

    doc = "\n".join(f"        {flag}: {help}" for flag, (_, help) in sizes.items())
    return command(cost, f"""What the model costs: {SUMMARIES[spec.task]}

    Example: octavo cost {name} {EXAMPLES[spec.task]}

    Args:
        config: The model.
{doc}
        asked: What the time is predicted for.
        json: Print JSON.
    """, {
        "config": usual, **{flag: default for flag, (default, _) in sizes.items()},
        "asked": Asked() if spec.task == "language" else AskedOfTask(), "json": False,
    })  # fmt: skip


def cost_of_sizes(spec: ModelSpec, config: Any, sizes: Mapping[str, Any]) -> Cost:
    """The cost of a model for images or translation."""
    if spec.task == "images":
        found = PICTURE.fullmatch(sizes["image"])
        if found is None:
            raise UserError(
                f"an image is height x width, or height x width x channels: image={sizes['image']!r}; try --image 28x28"
            )
        height, width, channels = (int(one or 1) for one in found.groups())
        whole = {"height": height, "width": width, "channels": channels, "classes": sizes["classes"]}
        return cost_of_config(spec.name, config, whole, sizes["batch"])
    pair = Sizes(sizes["source_vocab"] or sizes["vocab"], sizes["vocab"], sizes["languages"])
    pair.check(config.tied)
    shape = PairShape(sizes["batch"], sizes["source"], sizes["target"], sizes["languages"])
    return cost_of_config(spec.name, config, pair, shape)


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


def task_run_cost(
    run: RunPath,
    source: int = 24,
    target: int = 24,
    batch: int = 0,
    asked: AskedOfTask = AskedOfTask(),  # noqa: B008
    json: bool = False,
) -> None:
    """What a trained model for images or for translation costs.

    Example: octavo cost runs/vit

    Args:
        run: A run folder.
        source: Translation: tokens of a source.
        target: Translation: tokens of a target.
        batch: Images or sources of a training step; 0: 64 images or 32 sources.
        asked: What the time is predicted for.
        json: Print JSON.
    """
    task = task_of_run(run)
    loaded: Any = task.run_class.load(run)
    sizes, rows = loaded.model.sizes, batch or BATCH[task.name]
    shape = rows if task.name == "images" else PairShape(rows, source, target, sizes.languages)
    print_task_cost(run, task.name, cost_of_config(loaded.model_name, loaded.model.config, sizes, shape), asked, json)


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
    if not json:
        print_plan(found, machine, assumed)
        return
    print_json({
        "flops": found.flops, "parameters": found.parameters, "tokens": found.tokens,
        "config": dataclasses.asdict(found.config), "config_parameters": found.cost.parameters,
        "flops_per_token": found.cost.training_flops / found.cost.shape.tokens, "gpu": dataclasses.asdict(machine),
        "fleets": [dataclasses.asdict(fleet) for fleet in found.fleets], "assumed": dataclasses.asdict(assumed),
    })  # fmt: skip


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
