"""The public function cost: what a model costs before it is trained; a model by its settings, a run, or a known one."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

from octavo.config import configs_from
from octavo.costs import Shape, cost_like, cost_of, cost_of_config, one_token
from octavo.costs.published import PUBLISHED, find_published
from octavo.errors import UserError
from octavo.models import MODELS, find_spec, names, preset, spec_of
from octavo.models.bert import BertConfig
from octavo.models.encoder_decoder import Sizes
from octavo.models.parts.checks import check_positive
from octavo.tasks.api import open_run
from octavo.tasks.cost_record import CostReport, CostSettings, Counted, piece_of, report_cost
from octavo.tasks.run import Run, load

COUNTED_TASKS = ("images", "translation", "masked", "tagging", "classification")
RUNS_COUNTED = ("images", "translation", "tagging")  # besides those of language models
OTHER_TASKS = [spec.name for spec in MODELS.values() if spec.task in COUNTED_TASKS and spec.cost is not None]
BERT_MILLIONS = {"bert-base": 110, "bert-large": 340}  # of parameters, as published: Devlin et al. 2018
ROWS = 8  # of a step, where training does not say
PICTURE = re.compile(r"([1-9]\d{0,5})x([1-9]\d{0,5})(?:x([1-9]\d{0,3}))?")
SIZES: dict[str, dict[str, tuple[Any, str]]] = {  # beside the model's own flags, by task
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
SIZES["tagging"] = {
    "features": (30_000, "Features of words that are known."),
    "tags": (17, "How many tags there are."),
    "batch": (32, "Sentences of a training step."),
    "window": (24, "Words of a sentence."),
}
SIZES["classification"] = {
    "words": (10_000, "Words that are known."),
    "classes": (2, "How many classes there are."),
    "batch": (64, "Texts of a training step."),
    "window": (24, "Words of a text."),
}
SIZES_OF_RUN = ("batch", "window", "source", "target")  # which a trained model leaves open


def cost(model: Any, *, measure: bool = False, **settings: Any) -> CostReport:
    """Count what a model costs before it is trained: parameters, operations, memory, and the time it will take.

    Args:
        model: The name of a model, whose settings follow; a well-known one such as gpt2-xl or bert-large; or a run, or
            the path of its folder.
        measure: Also time steps of training on this machine, which takes a few seconds.
        **settings: Those of the model (width, layers, ...); vocab, batch and window of a step, or image and classes,
            source and target; and gpu, optimizer, utilisation, precision and tokens, for which time is predicted.

    Returns:
        A report with `parameters`, `training_flops` for each token, `memory` and `predictions`; a notebook shows its
        parts, and `to_json()` has everything.

    Raises:
        UserError: There is no such model or setting.

    Examples:
        >>> octavo.cost("gpt2").parameters
        124439808
        >>> octavo.cost("gru", width=64, layers=1)
        <octavo cost of gru: ... parameters, ... FLOPs of training for each token, ... held>
        >>> octavo.cost("runs/gru").parameters > 1000
        True
    """
    names_of_fields = [one.name for one in dataclasses.fields(CostSettings)]
    given = {key: settings.pop(key) for key in list(settings) if key in names_of_fields}
    (asked,) = configs_from("cost", [CostSettings(measure=measure)], given)
    if isinstance(model, str) and model in (*names(), *OTHER_TASKS):
        sizes = {key: settings.pop(key, default) for key, (default, _) in sizes_of(model).items()}
        (config,) = configs_from(model, [usual_config(model)], settings, list(sizes))
        return report_cost(count_model(model, config, asked, **sizes), asked)
    if isinstance(model, str) and model in PUBLISHED:
        check_sizes(model, settings, ("batch", "window"))
        return report_cost(count_like(asked, model, **{"batch": ROWS, "window": 0, **settings}), asked)
    if isinstance(model, str) and not ("/" in model or Path(model).exists()):
        find_spec(model)  # which says that there is none, and the nearest one
    run = open_run(model)
    of_task = run.task in RUNS_COUNTED
    if not (of_task or isinstance(run, Run)):
        raise UserError(
            f"the cost of a run is counted for language models, {', '.join(RUNS_COUNTED)}: {run.name} is a run of "
            f"{run.task}; name a model and its settings instead"
        )
    known = SIZES[run.task if of_task else "language"]
    sizes = {key: default for key, (default, _) in known.items() if key in SIZES_OF_RUN}
    check_sizes(run.name, settings, tuple(sizes))
    count = count_task_run if of_task else count_run
    return report_cost(count(asked, run, **{**sizes, **settings}), asked)


def check_sizes(name: str, given: dict[str, Any], known: tuple[str, ...]) -> None:
    """Refuse a setting that a finished model leaves no choice about."""
    for key in given:
        if key not in known:
            raise UserError(f"{name} has its settings already: {key}={given[key]!r}; only {', '.join(known)} are open")


def usual_config(name: str) -> Any:
    """The settings of a model where nothing else is said."""
    return find_spec(name).config() if name in OTHER_TASKS else preset(name)[1]


def sizes_of(name: str) -> dict[str, tuple[Any, str]]:
    """What must be known beside a model's settings: its default, and what it is."""
    own = hasattr(usual_config(name), "batch")  # then the batch is the settings' own
    return {key: size for key, size in SIZES[find_spec(name).task].items() if not (own and key == "batch")}


def count_model(name: str, config: Any, asked: CostSettings, **given: Any) -> Counted:
    """A model by its settings."""
    task, model = find_spec(name).task, name if name in OTHER_TASKS else preset(name)[0]
    if task == "language":
        rows = given.get("batch", getattr(config, "batch", 0))
        return count_language(model, model, config, given["vocab"], rows, given["window"], asked)
    if task == "masked":
        return count_bert(config, **given)
    if task == "images":
        return Counted(name, cost_of_config(name, config, image_sizes(**given), Shape(given["batch"])))
    if task == "tagging":
        sizes = {"features": given["features"], "tags": given["tags"]}
        return Counted(name, cost_of_config(name, config, sizes, Shape(given["batch"], given["window"])))
    if task == "classification":
        sizes = {"words": given["words"], "classes": given["classes"]}
        return Counted(name, cost_of_config(name, config, sizes, Shape(given["batch"], given["window"])))
    pair = Sizes(given["source_vocab"] or given["vocab"], given["vocab"], given["languages"])
    pair.check(config.tied)
    return Counted(name, cost_of_config(name, config, pair, pair_shape(pair, **given)))


def count_language(
    title: str, name: str, config: Any, vocab: int, batch: int, window: int, asked: CostSettings
) -> Counted:
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


def count_run(asked: CostSettings, run: Run | str, batch: int, window: int) -> Counted:
    """A trained language model."""
    found = run if isinstance(run, Run) else load(run)
    title = str(found.path or found.name)
    model, trained = found.model, found.record.get("training", {})
    batch, window = batch or trained.get("streams", 0), window or trained.get("sequence_length", 0)
    if (spec := spec_of(model)).trained_by_gradient:
        return count_language(title, spec.name, model.config, model.vocab, batch, window, asked)
    window = window or model.default_batch_shape[1]
    return Counted(title, cost_of(model, Shape(batch or ROWS, window)), cost_of(model, Shape(1, 1, window - 1)))


def count_task_run(asked: CostSettings, run: Any, batch: int, **lengths: int) -> Counted:
    """A trained model for images, translation or tagging."""
    loaded: Any = open_run(run)
    sizes = loaded.model.sizes
    shape = pair_shape(sizes, batch, **lengths) if "source" in lengths else Shape(batch, lengths.get("window", 1))
    return Counted(
        str(loaded.path or loaded.name), cost_of_config(loaded.model_name, loaded.model.config, sizes, shape)
    )


def count_like(asked: CostSettings, like: str, batch: int, window: int) -> Counted:
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
