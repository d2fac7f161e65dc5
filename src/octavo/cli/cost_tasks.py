"""octavo cost of models for images, translation and masked words: parameters and operations, part by part."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from octavo.cli.cost_tables import big, duration
from octavo.cli.cost_time import here
from octavo.cli.flags import RunPath, run_command
from octavo.cli.output import print_json, print_table, size
from octavo.cost import Cost, cost_of_config, named_gpu
from octavo.cost.memory import Optimizer, optimizer_bytes
from octavo.cost.published import ENCODERS
from octavo.errors import UserError
from octavo.io.run_folder import read_record
from octavo.models.bert import Bert, BertConfig
from octavo.models.cost.seq2seq import PairShape
from octavo.models.encoder_decoder import Sizes
from octavo.tasks.image_run import VISION, load_images
from octavo.tasks.translator import KINDS, load_translator
from octavo.training.metrics_log import matmul_rate

ROWS = {"image": 64, "source": 32}  # of a training step, where nothing else is asked for
TRIES = 3  # at the machine's peak
PICTURE = re.compile(r"([1-9]\d{0,5})x([1-9]\d{0,5})(?:x([1-9]\d{0,3}))?")
PUBLISHED = {"bert-base": 110_000_000, "bert-large": 340_000_000}  # Devlin et al. 2018
BERT_GROUPS = {  # by the first of these that stands in a parameter's name
    "words.": "masked words' head", "output_VD": "output weights", "next.": "next sentence's head",
    "order.": "sentence order's head", "replaced.": "replaced words' head", "pooler.": "pooler",
    "norm": "layer norms", "attention.": "attention", "feed_forward.": "feed-forward", "embedding_VD": "embeddings",
    "positions_CD": "positions", "segments_CD": "segments",
}  # fmt: skip
BERT_ORDER = (
    "embeddings", "positions", "segments", "layer norms", "attention", "feed-forward", "pooler", "masked words' head",
    "output weights", "next sentence's head", "sentence order's head", "replaced words' head",
)  # fmt: skip


@dataclass(frozen=True)
class AskedOfTask:
    """What the time is predicted for."""

    gpu: str = "h100"
    """t4, l4, rtx-4090, a100-80, h100 or h200: by its datasheet."""
    optimizer: Optimizer = "muon"
    """muon: one number remembered for each of a matrix, two for each other; adamw: two for each."""
    measure: bool = True
    """--no-measure leaves this machine out."""

    def __post_init__(self) -> None:
        named_gpu(self.gpu)


def run_cost_task(name: str, argv: list[str]) -> None:
    """octavo cost vit|davit|seq2seq|seq2seq-recurrent|bert."""
    if name == "bert":
        run_command(cost_bert, "octavo cost bert", argv)
        return
    made = _cost_of_images if name in VISION else _cost_of_pairs
    run_command(made(name), f"octavo cost {name}", argv)


def _cost_of_images(name: str) -> Callable[..., None]:
    config_class = VISION[name][1]

    def cost(
        config: Any = config_class(),  # noqa: B008
        image: str = "28x28",
        classes: int = 10,
        batch: int = ROWS["image"],
        asked: AskedOfTask = AskedOfTask(),  # noqa: B008
        json: bool = False,
    ) -> None:
        print_task_cost(name, cost_of_config(name, config, _sizes(image, classes), batch), "image", asked, json)

    cost.__annotations__["config"] = config_class  # the flags come from its fields
    cost.__doc__ = f"""What the model costs: every part's parameters and operations, and the most images a second.

    Example: octavo cost {name} --image 28x28 --attention local --gpu h200

    Args:
        config: The model.
        image: Height x width, or height x width x channels, in pixels.
        classes: How many classes there are.
        batch: Images of a training step.
        asked: What the time is predicted for.
        json: Print JSON.
    """
    return cost


def _cost_of_pairs(name: str) -> Callable[..., None]:
    config_class = KINDS[name][1]

    def cost(
        config: Any = config_class(),  # noqa: B008
        vocab: int = 8000,
        source_vocab: int = 0,
        source: int = 24,
        target: int = 24,
        languages: int = 1,
        batch: int = ROWS["source"],
        asked: AskedOfTask = AskedOfTask(),  # noqa: B008
        json: bool = False,
    ) -> None:
        sizes = Sizes(source_vocab or vocab, vocab, languages)
        sizes.check(config.tied)
        made = cost_of_config(name, config, sizes, PairShape(batch, source, target, languages))
        print_task_cost(name, made, "source", asked, json)

    cost.__annotations__["config"] = config_class  # the flags come from its fields
    cost.__doc__ = f"""What the model costs: every part's parameters and operations, and the most sources a second.

    Example: octavo cost {name} --source 24 --target 24 --languages 2 --gpu h200

    Args:
        config: The model.
        vocab: Tokens of the targets' vocabulary.
        source_vocab: Tokens of the sources'; 0: the same vocabulary.
        source: Tokens of a source.
        target: Tokens of a target.
        languages: Targets of each source: what the encoder does is done once for all.
        batch: Sources of a training step.
        asked: What the time is predicted for.
        json: Print JSON.
    """
    return cost


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
    if read_record(run).get("model") in VISION:
        seen = load_images(run)
        made = cost_of_config(seen.name, seen.model.config, seen.model.sizes, batch or ROWS["image"])
        print_task_cost(run, made, "image", asked, json)
        return
    loaded = load_translator(run)
    shape = PairShape(batch or ROWS["source"], source, target, loaded.model.sizes.languages)
    print_task_cost(
        run, cost_of_config(loaded.name, loaded.model.config, loaded.model.sizes, shape), "source", asked, json
    )


def _sizes(image: str, classes: int) -> dict[str, int]:
    found = PICTURE.fullmatch(image)
    if found is None:
        raise UserError(f"an image is height x width, or height x width x channels: image={image!r}; try --image 28x28")
    height, width, channels = (int(one or 1) for one in found.groups())
    return {"height": height, "width": width, "channels": channels, "classes": classes}


def print_task_cost(title: str, cost: Cost, unit: str, asked: AskedOfTask, json: bool) -> None:
    """Print it all."""
    record = task_record(title, cost, unit, asked)
    if json:
        print_json(record)
        return
    batch = record["batch"]
    print(f"{title}: {cost.parameters:,} parameters; {_of(record)}")
    print(f"\nfor each {unit}, in FLOPs of products:\n")
    rows = [
        (part["name"], f"{part['parameters']:,}", *(big(part[what] / batch) for what in FLOPS))
        for part in record["parts"]
    ]
    rows.append(("in all", f"{cost.parameters:,}", *(big(record[f"flops_per_{unit}"][what]) for what in FLOPS)))
    print_table(("part", "parameters", "forward", "of it needed", "backward"), rows)
    held = record["memory"]
    print(f"\ntraining holds {size(sum(held.values()))} ({asked.optimizer}): "
          + ", ".join(f"{what} {size(bytes_)}" for what, bytes_ in held.items())
          + "; what is saved for the backward pass comes on top and is not counted")  # fmt: skip
    print()
    cells = [(one["machine"], f"{one['at_most']:,.0f}", duration(batch / one["at_most"])) for one in record["at_best"]]
    print_table(("machine", f"{unit}s/s at most, training", f"a step of {batch:,}"), cells)
    print("\nat most: products alone at the machine's peak, measured just now (float32), or a GPU's by its datasheet "
          "(half precision); small models stay far below it")  # fmt: skip


FLOPS = ("forward", "needed", "backward")


def task_record(title: str, cost: Cost, unit: str, asked: AskedOfTask) -> dict[str, Any]:
    """Everything about a cost, as JSON has it; operations of the parts are of the whole batch."""
    batch = cost.shape.batch
    per_one = {what: cost.total(what) / batch for what in FLOPS} | {"training": cost.training_flops / batch}
    machines = {asked.gpu: named_gpu(asked.gpu).flops}
    if asked.measure:
        device = here()
        peak = max(matmul_rate(device, torch.float32) for _ in range(TRIES))
        machines = {f"this machine ({device.type})": peak} | machines
    return {
        "title": title, "model": cost.model, "parameters": cost.parameters, "batch": batch,
        f"tokens_per_{unit}": cost.shape.window,
        "parts": [dataclasses.asdict(part) for part in cost.parts if part.parameters or part.forward],
        f"flops_per_{unit}": per_one,
        "memory": {"weights": 4 * cost.parameters, "gradients": 4 * cost.parameters,
                   "optimizer": optimizer_bytes(cost, asked.optimizer)},
        "at_best": [{"machine": one, "at_most": peak / per_one["training"]} for one, peak in machines.items()],
        "assumed": dataclasses.asdict(asked),
    }  # fmt: skip


def _of(record: dict[str, Any]) -> str:
    if "tokens_per_image" in record:
        return f"an image is {record['tokens_per_image']:,} tokens"
    return f"{record['tokens_per_source']:,} tokens are written for each source"


def cost_bert(
    like: str | None = None,
    config: BertConfig = BertConfig(),  # noqa: B008
    vocab: int = 30522,
    json: bool = False,
) -> None:
    """Count every parameter of a BERT, with its output weights tied to the embeddings and with weights of their own.

    Example: octavo cost bert --like bert-large

    What it costs in operations, memory and time: octavo cost --like bert-large.

    Args:
        like: bert-base or bert-large, instead of settings.
        config: The model.
        vocab: Tokens of the vocabulary.
        json: Print JSON.
    """
    if like is not None:
        if like not in PUBLISHED:
            raise UserError(f"there is no BERT to be like {like!r}; there are {', '.join(PUBLISHED)}")
        config, vocab = ENCODERS[like]
    tied = bert_parameters(dataclasses.replace(config, tied=True), vocab)
    untied = bert_parameters(dataclasses.replace(config, tied=False), vocab)
    heads = [name for name in untied if "head" in name or name == "output weights"]
    encoder = sum(count for name, count in tied.items() if name not in heads)
    record: dict[str, Any] = {"like": like, "tied": tied, "untied": untied, "encoder": encoder}
    record |= {"total": {"tied": sum(tied.values()), "untied": sum(untied.values())}}
    record |= {"published": PUBLISHED.get(like or "")}
    if json:
        print_json(record)
        return
    rows = [(name, f"{tied.get(name, 0):,}", f"{untied[name]:,}") for name in untied]
    rows += [("encoder and pooler", f"{encoder:,}", f"{encoder:,}")]
    rows += [("in all", f"{sum(tied.values()):,}", f"{sum(untied.values()):,}")]
    print_table(("part", "tied", "untied"), rows)
    if like is not None:
        print(compare_published(like, encoder, sum(tied.values()), sum(untied.values())))


def compare_published(like: str, encoder: int, tied: int, untied: int) -> str:
    """Which of the counts the published count is, to the two digits that it has."""
    said = PUBLISHED[like]
    lines = [f"published for {like}: {said / 1e6:.0f} million"]
    for what, count in (("encoder and pooler", encoder), ("with both heads, tied", tied), ("and untied", untied)):
        fits = "rounds to it" if round(count, -7) == said else "does not"
        lines.append(f"  {what}: {count / 1e6:.1f} million {fits}")
    return "\n".join(lines)


def bert_parameters(config: BertConfig, vocab: int) -> dict[str, int]:
    """The parameters of the model itself, by what they belong to; nothing is allocated."""
    with torch.device("meta"):
        model = Bert(config, vocab)
    found = dict.fromkeys(BERT_ORDER, 0)
    for name, parameter in model.named_parameters():
        found[next(group for part, group in BERT_GROUPS.items() if part in name)] += parameter.numel()
    return {name: count for name, count in found.items() if count}
