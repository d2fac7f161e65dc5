"""octavo train and octavo resume, for every task: flags come from the configs of the model, the task and the loop."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from octavo.cli.flags import RunPath, Sources, command, run_command
from octavo.cli.output import note, print_json
from octavo.cli.verbs import verb_function
from octavo.models import MODELS
from octavo.tasks.task import Task, find_task, task_for
from octavo.tasks.training_run import resume_run, train_run

FACTS = "a gpt that learns facts from a text and answers questions; see also answer"
REPORTS = {  # what reports on a trained run, by task: report(run, json)
    "language": "train.report_language", "facts": "answer.report", "images": "images.report",
    "translation": "translate.report", "masked": "masked.report", "classification": "classify.report",
}  # fmt: skip
ABOUT = {"config": "The model.", "settings": "The data, and how they are shown to the model.",
         "loop": "How long, and in what batches.", "optimizer": "How the weights are changed."}  # fmt: skip


def run_train(argv: list[str]) -> None:
    """train takes the model's name first; its config decides the other flags."""
    if not argv or argv[0] in ("-h", "--help"):
        print("usage: octavo train MODEL DATA [flags]       octavo train MODEL --help shows the model's flags\n")
        models: dict[str, str] = {}
        for name, spec in MODELS.items():
            models |= {name: spec.description} | {one: preset.description for one, preset in spec.presets.items()}
        models["facts"] = FACTS
        width = max(map(len, models))
        print("".join(f"  {name:<{width}}  {about}\n" for name, about in models.items()))
        print("example: octavo train ngram shakespeare --order 7 --tokenizer byte --out runs/kn7")
        print("example: octavo train gpt shakespeare --budget 3min --out runs/gpt")
        return
    run_command(train_command(task_for(argv[0]), argv[0]), f"octavo train {argv[0]}", argv[1:])


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

    Stopped (Ctrl-C) or killed, resume it: octavo resume runs/{name}

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
    """Resume training that was stopped or killed, as if it had not been; or, with a larger budget, any run that was
    trained step by step.

    Example: octavo resume runs/gru --budget 10min

    Args:
        run: A run folder.
        budget: How long to train in all, what is done included; without it, as it was.
        measure: --no-measure ends when the model is saved, without measuring it.
        json: Print JSON.
    """
    trained = resume_run(run, budget, measure)
    report(find_task(trained.task), trained, json)


def report(task: Task[Any, Any], run: Any, json: bool) -> None:
    """Report on a trained run, as its task does; of several processes, the first one reports."""
    if int(os.environ.get("RANK", "0")):
        return
    for line in run.record.get("notes", ()):
        note(line)
    verb_function(REPORTS[task.name])(run, json)


def report_language(run: Any, json: bool) -> None:
    """How it was trained and what it scores."""
    result = run.record.get("result")
    if json:
        print_json({"run": str(run.path), "train_seconds": run.record["train_seconds"], **(result or {})})
        return
    print(run.summary())
    tokens, seconds = run.record["train_tokens"], run.record["train_seconds"]
    training, speed = run.record.get("training"), tokens / max(seconds, 1e-9)
    why = f", {training['steps']:,} steps, {speed:,.0f} tokens/s: {training['why']}" if training else ""
    print(f"trained on {tokens:,} tokens in {seconds:.2f} s{why}")
    if result and result["bits_per_byte"] is None:
        print(
            f"{result['impossible']:,} of {result['tokens']:,} held-out tokens have probability zero; smooth the model"
        )
    print(f"the run is in {run.path}; next:")
    print(f"  octavo eval {run.path} FILE\n  octavo generate {run.path} --max-tokens 200\n  octavo inspect {run.path}")
