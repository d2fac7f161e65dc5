"""octavo cost: what a model costs before it is trained, and what a budget is best spent on."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any

from octavo.cli.cost_report import Asked, Counted, piece_of, print_plan, report_cost
from octavo.cli.flags import Flags, RunPath, command, run_command
from octavo.cli.output import Output
from octavo.cli.verbs import task_of
from octavo.costs import Shape, cost_like, cost_of, cost_of_config, named_gpu, one_token
from octavo.costs.planning import Assumptions, parse_budget, plan_for
from octavo.costs.published import PUBLISHED, find_published
from octavo.errors import UserError
from octavo.models import MODELS, find_spec, names, preset, spec_of
from octavo.models.bert import BertConfig
from octavo.models.encoder_decoder import Sizes
from octavo.models.parts.checks import check_positive
from octavo.tasks.run import load
from octavo.tasks.task import task_of_run

OTHER_TASKS = [spec.name for spec in MODELS.values() if spec.task in ("images", "translation", "masked")]
BERT_MILLIONS = {"bert-base": 110, "bert-large": 340}  # of parameters, as published: Devlin et al. 2018
ROWS = 8  # of a step, where training does not say
PICTURE = re.compile(r"([1-9]\d{0,5})x([1-9]\d{0,5})(?:x([1-9]\d{0,3}))?")
SIZES: dict[str, Flags] = {  # beside the model's own flags, by task
    "language": {
        "vocab": (257, "Tokens of the vocabulary; 257: bytes and begin."),
        "batch": (0, "Rows of text of a training step; 0: what octavo train takes, or the run was trained with."),
        "window": (0, "Tokens of a row; 0: what octavo train takes, or the run was trained with."),
    },
    "images": {
        "image": ("28x28", "Height x width, or height x width x channels, in pixels."),
        "classes": (10, "How many classes there are."),
        "batch": (64, "Images of a training step."),
    },
    "translation": {
        "vocab": (8000, "Tokens of the targets' vocabulary."),
        "source_vocab": (0, "Tokens of the sources'; 0: the same vocabulary."),
        "source": (24, "Tokens of a source."),
        "target": (24, "Tokens of a target."),
        "languages": (1, "Targets of each source: what the encoder does is done once for all."),
        "batch": (32, "Sources of a training step."),
    },
    "masked": {
        "like": ("", "bert-base or bert-large, with both heads, instead of settings."),
        "vocab": (30522, "Tokens of the vocabulary."),
        "batch": (ROWS, "Texts of a training step."),
        "window": (0, "Tokens of a text; 0: the context."),
    },
}
SIZES_OF_RUN = ("batch", "window", "source", "target")  # which a trained model leaves open
EXAMPLES = {
    "language": "--vocab 257 --gpu h200", "images": "--image 28x28 --attention local --gpu h200",
    "translation": "--source 24 --target 24 --languages 2 --gpu h200", "masked": "--like bert-large",
}  # fmt: skip
USAGE = f"""usage: octavo cost MODEL [flags]      a model by its settings; octavo cost MODEL --help shows them
       octavo cost RUN [flags]        one that is trained
       octavo cost bert --like NAME   bert-base or bert-large: with its heads, and the published count
       octavo cost --like NAME        {", ".join(PUBLISHED)}
       octavo cost --plan BUDGET      1e21flops or 1000usd: the compute-optimal size, and the GPUs it takes

models: {", ".join(names())};
        {", ".join(OTHER_TASKS)} (images, translation, masked words)

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

    def cost(asked: Asked, **given: Any) -> Output:
        return report_cost(count(asked, **given), asked)

    about = f"""What a model costs: parameters, operations, memory, and time on this machine and on a GPU.

    Example: octavo cost {example}"""
    return command(cost, about, {**sizes, "asked": (Asked(), "What the time is predicted for.")}, required)


def model_command(name: str) -> Callable[..., Output]:
    """Of a model by its settings."""
    spec = find_spec(name)
    model, usual = (name, spec.config()) if name in OTHER_TASKS else preset(name)
    sizes = dict(SIZES[spec.task])
    if hasattr(usual, "batch"):
        del sizes["batch"]  # then it is the settings' own

    def count(asked: Asked, config: Any, **given: Any) -> Counted:
        if spec.task == "language":
            rows = given.get("batch", getattr(config, "batch", 0))
            return count_language(model, model, config, given["vocab"], rows, given["window"], asked)
        if spec.task == "masked":
            return count_bert(config, **given)
        if spec.task == "images":
            return Counted(name, cost_of_config(name, config, image_sizes(**given), Shape(given["batch"])))
        pair = Sizes(given["source_vocab"] or given["vocab"], given["vocab"], given["languages"])
        pair.check(config.tied)
        return Counted(name, cost_of_config(name, config, pair, pair_shape(pair, **given)))

    return cost_command(count, f"{name} {EXAMPLES[spec.task]}", {"config": (usual, "The model."), **sizes})


def trained_command(task: str) -> Callable[..., Output]:
    """Of a run of that task."""
    of_task = task in ("images", "translation")  # what is wrong with a run of another is said when it is loaded
    sizes = {flag: value for flag, value in SIZES[task if of_task else "language"].items() if flag in SIZES_OF_RUN}
    count = count_task_run if of_task else count_run
    return cost_command(count, "runs/kn7", sizes, {"run": (RunPath, "A run folder.")})


def like_command() -> Callable[..., Output]:
    """Of a well-known model."""
    sizes = {"batch": (ROWS, "Rows of a training step."), "window": (0, "Tokens of a row; 0: the model's context.")}
    names = f"One of {', '.join(PUBLISHED)}."
    return cost_command(count_like, "--like gpt2-xl --gpu h200", sizes, {"like": (str, names)})


# ---------------------------------------------------------------------- counting


def count_language(title: str, name: str, config: Any, vocab: int, batch: int, window: int, asked: Asked) -> Counted:
    """A language model by its settings; rows and tokens of 0 are what training would take."""
    if MODELS[name].trained_by_gradient:
        piece = piece_of(name, config, vocab, batch, window, asked)
        training = cost_of_config(name, config, vocab, Shape(piece.batch, piece.window))
        return Counted(title, training, cost_of_config(name, config, vocab, one_token(config)), piece)
    shapes = Shape(batch or ROWS, window or 1, text=asked.tokens), Shape(text=asked.tokens)
    training, decoding = (cost_of_config(name, config, vocab, shape) for shape in shapes)
    if training.tables_at_most and not asked.tokens:
        raise UserError("an n-gram's tables depend on the text: tokens=0; try --tokens 1000000, or a trained run")
    return Counted(title, training, decoding)


def count_run(asked: Asked, run: str, batch: int, window: int) -> Counted:
    """A trained language model."""
    found = load(run)
    model, trained = found.model, found.record.get("training", {})
    batch, window = batch or trained.get("streams", 0), window or trained.get("sequence_length", 0)
    if (spec := spec_of(model)).trained_by_gradient:
        return count_language(run, spec.name, model.config, model.vocab, batch, window, asked)
    window = window or model.default_batch_shape[1]
    return Counted(run, cost_of(model, Shape(batch or ROWS, window)), cost_of(model, Shape(1, 1, window - 1)))


def count_task_run(asked: Asked, run: str, batch: int, **lengths: int) -> Counted:
    """A trained model for images or translation."""
    loaded: Any = task_of_run(run).run_class.load(run)
    sizes = loaded.model.sizes
    shape = pair_shape(sizes, batch, **lengths) if lengths else Shape(batch)
    return Counted(run, cost_of_config(loaded.model_name, loaded.model.config, sizes, shape))


def count_like(asked: Asked, like: str, batch: int, window: int) -> Counted:
    """A well-known model; an encoder decodes nothing."""
    name, config, vocab = find_published(like)
    window = window or config.context
    training = cost_like(like, Shape(batch, window))
    if MODELS[name].task != "language":
        return Counted(like, training)
    piece = piece_of(name, config, vocab, batch, window, asked)
    return Counted(like, training, cost_like(like, Shape(1, 1, window - 1)), piece)


def count_bert(config: BertConfig, like: str, vocab: int, batch: int, window: int) -> Counted:
    """A BERT, and its parameters with output weights tied to the embeddings and with weights of their own."""
    if like and like not in BERT_MILLIONS:
        raise UserError(f"there is no BERT to be like {like!r}; there are {', '.join(BERT_MILLIONS)}")
    if like:
        _, config, vocab = find_published(like)
        config = dataclasses.replace(config, tasks=BertConfig.tasks)
    variants: dict[str, dict[str, Any]] = {"encoder": {"tasks": ()}, "tied": {"tied": True}, "untied": {"tied": False}}
    counts = {
        way: cost_of_config("bert", dataclasses.replace(config, **settings), vocab, Shape()).parameters
        for way, settings in variants.items()
    }
    millions, notes = BERT_MILLIONS.get(like), []
    for what, count in zip(("encoder and pooler", "with its heads, tied", "and untied"), counts.values(), strict=True):
        fits = f"; {'rounds' if round(count / 1e6, -1) == millions else 'does not round'} to the {millions} million "
        notes.append(f"{what}: {count:,} parameters" + (fits + "published" if millions else ""))
    extra = {
        "like": like or None, "published": millions and 1_000_000 * millions, "encoder": counts.pop("encoder"),
        "total": counts,
    }  # fmt: skip
    cost = cost_of_config("bert", config, vocab, Shape(batch, window or config.context))
    return Counted(like or "bert", cost, notes=tuple(notes), extra=extra)


def image_sizes(image: str, classes: int, **_: Any) -> dict[str, int]:
    """The sizes that a vision transformer is made from."""
    found = PICTURE.fullmatch(image)
    if found is None:
        raise UserError(f"an image is height x width, or height x width x channels: image={image!r}; try --image 28x28")
    height, width, channels = (int(one or 1) for one in found.groups())
    return {"height": height, "width": width, "channels": channels, "classes": classes}


def pair_shape(sizes: Sizes, batch: int, source: int, target: int, **_: Any) -> Shape:
    """The shape of sources and their targets."""
    check_positive("source", source, 24)
    check_positive("target", target, 24)
    return Shape(batch, target, source=source, languages=sizes.languages)


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
