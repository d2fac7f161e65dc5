"""octavo train and octavo resume, for every task: flags come from the configs of the model, the task and the loop."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import Any

from octavo.cli.flags import RunPath, Sources, command, run_command
from octavo.cli.output import note
from octavo.models import MODELS
from octavo.tasks.task import Task, find_task, task_for
from octavo.tasks.training_run import resume_run, train_run

FACTS = "a gpt that learns facts from a text and answers questions; see also answer"
REPORTS = {  # what tells of a trained run, by task: report(run, json)
    "language": "language", "facts": "answer", "images": "images", "translation": "translate", "masked": "masked",
    "classification": "classify",
}  # fmt: skip
ABOUT = {"config": "The model.", "settings": "The data, and how they are shown to the model.",
         "loop": "How long, and in what batches.", "optimizer": "How the weights are changed."}  # fmt: skip


def run_train(argv: list[str]) -> None:
    """train takes the model's name first; its config decides the other flags."""
    if not argv or argv[0] in ("-h", "--help"):
        print("usage: octavo train MODEL DATA [flags]       octavo train MODEL --help shows the model's flags\n")
        told = {name: about for spec in MODELS.values() for name, about in _described(spec)} | {"facts": FACTS}
        width = max(map(len, told))
        print("".join(f"  {name:<{width}}  {about}\n" for name, about in told.items()))
        print("example: octavo train ngram shakespeare --order 7 --tokenizer byte --out runs/kn7")
        print("example: octavo train gpt shakespeare --budget 3min --out runs/gpt")
        return
    run_command(train_command(task_for(argv[0]), argv[0]), f"octavo train {argv[0]}", argv[1:])


def _described(spec: Any) -> list[tuple[str, str]]:
    return [(spec.name, spec.description), *((name, preset.description) for name, preset in spec.presets.items())]


def train_command(task: Task[Any, Any], name: str) -> Callable[..., None]:
    """A function whose signature is the flags of a model."""
    model, usual = task.configs(name)

    def train(data: Sources, out: str, measure: bool, seed: int, device: str, json: bool, **configs: Any) -> None:
        recipe = task.made_recipe(model, configs, seed, device)
        report(task, train_run(task, recipe, list(data), out, measure), json)

    plain = {"out": f"runs/{name}", "measure": True, "seed": 0, "device": "auto", "json": False}
    return command(train, _help(task, name, usual), {**usual, **plain}, {"data": Sources})


def _help(task: Task[Any, Any], name: str, usual: dict[str, Any]) -> str:
    verb = f"classify train {name}" if task.name == "classification" else f"train {name}"
    example = task.example if "loop" in usual else task.example.split()[0]
    more = {"ngram": " --order 7 --tokenizer byte", "mix": " --parts runs/kn7 runs/bag", "head": " --base runs/gru"}
    steps = f"""

    Stopped (Ctrl-C) or killed, it goes on with: octavo resume runs/{name}

    Several processes: torchrun --nproc-per-node 2 -m octavo.cli {verb} {task.example.split()[0]}"""
    configs = "\n".join(f"        {key}: {ABOUT[key]}" for key in usual)
    return f"""Train a model to {task.purpose}, and measure it on data that are held out.

    Example: octavo {verb} {example}{more.get(name, "")} --out runs/{name}{steps if "loop" in usual else ""}

    Args:
        data: {task.data_help}
{configs}
        out: The folder the run is written to.
        measure: --no-measure ends when the model is saved, without measuring it.
        seed: For everything that is drawn at random: the first weights, the order of the data, dropout, samples.
        device: auto, cpu or cuda.
        json: Print JSON.
    """


def resume(run: RunPath, budget: str | None = None, measure: bool = True, json: bool = False) -> None:
    """Go on with training that was stopped or killed, as if it had not been; or, with a larger budget, with any run
    that was trained step by step.

    Example: octavo resume runs/gru --budget 10min

    Args:
        run: A run folder.
        budget: How long to train in all, what is done included; without it, as it was.
        measure: --no-measure ends when the model is saved, without measuring it.
        json: Print JSON.
    """
    trained = resume_run(run, budget, measure)
    report(find_task(trained.record.get("task", trained.task)), trained, json)


def report(task: Task[Any, Any], run: Any, json: bool) -> None:
    """Tell of a trained run, as its task does; of several processes, the first one tells."""
    if int(os.environ.get("RANK", "0")):
        return
    for line in run.record.get("notes", ()):
        note(line)
    import_module(f"octavo.cli.{REPORTS[task.name]}").report(run, json)
