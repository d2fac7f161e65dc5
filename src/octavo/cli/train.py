"""octavo train."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import Any

from octavo.cli.flags import Corpora, RunPath, run_command
from octavo.cli.output import note, print_json
from octavo.models import MODELS, find_spec, preset
from octavo.models.mix import MixConfig
from octavo.tasks import api
from octavo.tasks.count_training import TextConfig
from octavo.tasks.run import Run
from octavo.training.loop_config import LoopConfig
from octavo.training.optimizer import OptimizerConfig

FACTS = "a gpt that learns facts from a text and answers questions; see also answer"
OTHERS = {  # that are no language models: what takes their flags
    "vit": "images.run_train_images", "davit": "images.run_train_images",
    "seq2seq": "translate.run_train_translator", "seq2seq-recurrent": "translate.run_train_translator",
    "bert": "masked.run_train_bert", "facts": "answer.run_train_facts",
}  # fmt: skip


def run_train(argv: list[str]) -> None:
    """train takes the model's name first; its config decides the other flags."""
    if not argv or argv[0] in ("-h", "--help"):
        print("usage: octavo train MODEL CORPUS [flags]       octavo train MODEL --help shows the model's flags\n")
        described = descriptions()
        width = max(map(len, described))
        print("".join(f"  {name:<{width}}  {line}\n" for name, line in described.items()))
        print("example: octavo train ngram shakespeare --order 7 --tokenizer byte --out runs/kn7")
        print("example: octavo train gpt shakespeare --budget 3min --out runs/gpt")
        return
    if argv[0] in OTHERS:
        module, name = OTHERS[argv[0]].split(".")
        getattr(import_module(f"octavo.cli.{module}"), name)(argv[0], argv[1:])
        return
    spec = find_spec(preset(argv[0])[0])
    make = _train_neural if spec.trained_by_gradient else _train_counts
    function = train_mixture if spec.fitting == "mixture" else make(argv[0])
    run_command(function, f"octavo train {argv[0]}", argv[1:])


def descriptions() -> dict[str, str]:
    """Everything that can be trained, each with its line."""
    lines = {}
    for spec in MODELS.values():
        if spec.task == "language" or spec.name in OTHERS:
            lines[spec.name] = spec.description
            lines |= {name: preset.description for name, preset in spec.presets.items()}
    return lines | {"facts": FACTS}


def _train_counts(model: str) -> Callable[..., None]:
    config_class = MODELS[model].config
    example = "--order 7 --tokenizer byte " if model == "ngram" else ""

    def train(
        corpus: Corpora,
        config: Any = config_class(),  # noqa: B008
        text: TextConfig = TextConfig(),  # noqa: B008
        out: str = f"runs/{model}",
        measure: bool = True,
        seed: int = 0,
        device: str = "auto",
        json: bool = False,
    ) -> None:
        run = api.train_with_page(model, list(corpus), text, config, out, (), seed, device, measure)
        _tell_trained(run, json)

    train.__annotations__["config"] = config_class  # the flags come from its fields
    train.__doc__ = f"""Train a model on the first nine tenths of a text and measure it on the rest.

    Example: octavo train {model} shakespeare {example}--out runs/{model}

    Args:
        corpus: A named source (octavo data list), a file, several, a folder, or - for standard input.
        config: The model.
        text: The text and its tokens.
        out: The folder the run is written to.
        measure: --no-measure ends when the model is saved, without scoring the held-out text or writing a sample.
        seed: For the sample, and for the first weights of a bigram.
        device: auto, cpu or cuda.
        json: Print JSON.
    """
    return train


def _train_neural(name: str) -> Callable[..., None]:
    model, usual = preset(name)

    def train(
        corpus: Corpora,
        config: Any = usual,
        loop: LoopConfig = LoopConfig(),  # noqa: B008
        optim: OptimizerConfig = OptimizerConfig(),  # noqa: B008
        text: TextConfig = TextConfig(),  # noqa: B008
        out: str = f"runs/{name}",
        measure: bool = True,
        seed: int = 0,
        device: str = "auto",
        json: bool = False,
    ) -> None:
        run = api.train_with_page(model, list(corpus), text, config, out, (), seed, device, measure, (loop, optim))
        _tell_trained(run, json)

    train.__annotations__["config"] = type(usual)  # the flags come from its fields
    train.__doc__ = f"""Train a model on the first nine tenths of a text and measure it on the rest.

    Example: octavo train {name} shakespeare --budget 3min --out runs/{name}

    Stopped (Ctrl-C) or killed, it goes on with: octavo resume runs/{name}

    Several processes: torchrun --nproc-per-node 2 -m octavo.cli train {name} shakespeare

    Args:
        corpus: A named source (octavo data list), a file, several, a folder, or - for standard input.
        config: The model.
        loop: How long, and in what pieces.
        optim: How the weights are changed.
        text: The text and its tokens.
        out: The folder the run is written to.
        measure: --no-measure ends when the model is saved, without scoring the held-out text or writing a sample.
        seed: For the first weights, the order of the text, dropout and the samples.
        device: auto, cpu or cuda.
        json: Print JSON.
    """
    return train


def resume(run: RunPath, budget: str | None = None, measure: bool = True, json: bool = False) -> None:
    """Go on with training that was stopped or killed, as if it had not been; or, with a larger budget, with any
    neural run.

    Example: octavo resume runs/gru --budget 10min

    Args:
        run: A run folder.
        budget: How long to train in all, what is done included; without it, as it was.
        measure: --no-measure ends when the model is saved, without scoring the held-out text or writing a sample.
        json: Print JSON.
    """
    _tell_trained(api.resume(run, budget=budget, measure=measure), json)


def train_mixture(
    corpus: Corpora,
    parts: tuple[str, ...],
    config: MixConfig = MixConfig(),  # noqa: B008
    valid: tuple[str, ...] = (),
    field: str = "text",
    out: str = "runs/mix",
    seed: int = 0,
    json: bool = False,
) -> None:
    """Mix trained runs; the weights are learnt on pieces of the training part that no part has learnt from (count
    models are fitted again without them).

    Example: octavo train mix shakespeare --parts runs/kn7 runs/bag --out runs/mix

    Args:
        corpus: The text the parts were trained on.
        parts: Two or more run folders with the same tokenizer.
        config: The mixture.
        valid: Text to measure on; without it, as the first part has it.
        field: JSON lines, parquet: where the text is; without it, as the first part has it.
        out: The folder the run is written to.
        seed: For the sample.
        json: Print JSON.
    """
    text = TextConfig(valid=valid, field=field)
    _tell_trained(api.train_with_page("mix", list(corpus), text, config, out, parts, seed), json)


def _tell_trained(run: Run, json: bool) -> None:
    if int(os.environ.get("RANK", "0")):
        return  # of several processes, the first one tells
    result = run.record.get("result")
    for line in run.record["notes"]:
        note(line)
    if json:
        print_json({"run": str(run.path), "train_seconds": run.record["train_seconds"], **(result or {})})
        return
    print(f"{run.summary()}")
    tokens, seconds = run.record["train_tokens"], run.record["train_seconds"]
    print(f"trained on {tokens:,} tokens in {seconds:.2f} s" + _why(run.record.get("training", {}), tokens, seconds))
    if result and result["bits_per_byte"] is None:
        print(
            f"{result['impossible']:,} of {result['tokens']:,} held-out tokens have probability zero; smooth the model"
        )
    print(f"the run is in {run.path}; next:")
    print(f"  octavo eval {run.path} FILE\n  octavo generate {run.path} --max-tokens 200\n  octavo inspect {run.path}")


def _why(training: dict[str, Any], tokens: int, seconds: float) -> str:
    """How fast a neural model was trained, and why it ended."""
    if not training:
        return ""
    return f", {training['steps']:,} steps, {tokens / max(seconds, 1e-9):,.0f} tokens/s: {training['why']}"
