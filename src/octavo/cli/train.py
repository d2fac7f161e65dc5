"""octavo train and octavo resume, for every task: flags come from the configs of the model, the task and the loop."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from octavo.cli.flags import NewPath, RunPath, Sources, command, run_command
from octavo.cli.help import HELP_FLAGS
from octavo.cli.output import Output, note
from octavo.cli.verbs import TASK_VERBS, TaskVerbs, verb_function
from octavo.config import DEVICE_NAMES
from octavo.errors import UserError
from octavo.io.files import thousands
from octavo.io.run_folder import REPORT
from octavo.models import MODELS, adaptive_variant, find_spec, parameter_count
from octavo.tasks.engine_counting import EngineConfig
from octavo.tasks.task import TASKS, Task, find_task, task_for
from octavo.tasks.training_run import resume_run, train_run
from octavo.training.loop_config import LoopConfig
from octavo.training.optimizer import OptimizerConfig

FACTS = "a gpt that learns facts from a text and answers questions; see also answer"
ADAPTIVE = "--adaptive"
ABOUT = {"config": "The model.", "settings": "The data, and how they are shown to the model.",
         "loop": "How long, and in what batches.", "optimizer": "How the weights are changed.",
         "counting": "What counts, and with how much memory."}  # fmt: skip


def run_train(argv: list[str]) -> None:
    """train takes the model's name first; its config decides the other flags."""
    if not argv or argv[0] in ("-h", "--help"):
        print("usage: octavo train MODEL DATA [flags]       octavo train MODEL --help shows the model's flags\n")
        _print_models()
        print("example: octavo train ngram shakespeare --order 7 --tokenizer byte --out runs/kn7")
        print("example: octavo train gpt shakespeare --budget 3min --out runs/gpt")
        return
    name, flags = argv[0], argv[1:]
    if ADAPTIVE in flags:
        flags = [flag for flag in flags if flag != ADAPTIVE]
        variant = adaptive_variant(name)
        check_adaptive_flags(name, variant, flags)
        name = variant
    if any(flag.partition("=")[0] == "--counts" for flag in flags):
        run_train_counts(name, flags)
        return
    run_training(task_for(name), name, f"octavo train {name}", flags)


def run_training(task: Task[Any, Any], name: str, prog: str, flags: Sequence[str]) -> None:
    """Train the model with these flags; those of training step by step are refused where it is not trained so."""
    if "loop" not in (usual := task.configs(name)[1]):
        own = {flag for config in usual.values() for flag in config_flags(type(config))}
        for flag in sorted(named_flags(flags) & {*config_flags(LoopConfig), *config_flags(OptimizerConfig)} - own):
            raise UserError(
                f"{flag} is for models that are trained step by step, and {name} is fitted in one go; leave it out, or "
                f"see its own settings: {prog} --help"
            )
    run_command(train_command(task, name), prog, flags)


def check_adaptive_flags(name: str, variant: str, flags: Sequence[str]) -> None:
    """Refuse settings of the model that the one which goes on learning while it reads does not have."""
    foreign = {*config_flags(find_spec(name).config)} - {*config_flags(find_spec(variant).config)}
    for flag in sorted(named_flags(flags) & foreign):
        raise UserError(
            f"{name} with --adaptive is the model {variant}, which has no {flag}; leave {flag} out, or --adaptive"
        )


def config_flags(config: type) -> Iterator[str]:
    """The flags of a config's settings."""
    for setting in dataclasses.fields(config):
        name = setting.name.replace("_", "-")
        yield from (f"--{name}", f"--no-{name}")


def named_flags(words: Sequence[str]) -> set[str]:
    """The flags among the words of a command, unless it asks for help."""
    found = {word.partition("=")[0].replace("_", "-") for word in words if word.startswith("--")}
    return set() if found & {*HELP_FLAGS} else found


def run_train_counts(name: str, flags: list[str]) -> None:
    """train MODEL --counts FOLDER: what the model is fitted to was counted before."""
    from octavo.models.ngram.count_folder import read_count_folder
    from octavo.tasks.counts import train_counts

    spec = find_spec(name)
    if spec.fit_by_engine is None:
        raise UserError(f"a {name} is not fitted to counts of n-grams; leave --counts out")
    given = next((value for word, value in zip(flags, [*flags[1:], ""], strict=True) if word == "--counts"), "")
    given = given or next(flag.partition("=")[2] for flag in flags if flag.startswith("--counts"))
    known = read_count_folder(Path(given)).record

    def train(counts: str, out: NewPath, **configs: Any) -> Output:
        run = train_counts(Path(counts), configs["config"], Path(out), configs["counting"])
        sizes = {"parameters": parameter_count(run.model), "train_seconds": run.record["train_seconds"]}
        words = f"{run.summary()}\n{thousands(sizes['parameters'])} parameters, fitted to {counts}"
        return Output({"run": out, **sizes}, f"{words}\nthe run is in {out}; next:\n  octavo eval {out} FILE")

    flags_of = {
        "config": (spec.config(order=known.order, sentences=known.sentences), ABOUT["config"]),
        "counting": (EngineConfig(), ABOUT["counting"]),
    }
    required = {"counts": (str, "A folder of counts."), "out": (NewPath, "The folder the run is written to.")}
    made = command(train, f"Fit a {spec.title} model to counts that were made before.", flags_of, required)
    run_command(made, f"octavo train {name}", flags)


def _print_models() -> None:
    """Every task and the models that are trained for it, a line each."""
    tasks: dict[str, dict[str, str]] = {name: {} for name in TASKS}
    for name, spec in MODELS.items():
        presets = {one: preset.description for one, preset in spec.presets.items()}
        tasks.setdefault(spec.task, {}).update({name: spec.description} | presets)
    tasks["facts"]["facts"] = FACTS
    width = max(len(name) for models in tasks.values() for name in models)
    for task, models in tasks.items():
        print(f"{task}: to {find_task(task).purpose}")
        print("".join(f"  {name:<{width}}  {about}\n" for name, about in models.items()))


def train_command(task: Task[Any, Any], name: str) -> Callable[..., Output]:
    """A function whose signature is the flags of a model."""
    model, usual = task.configs(name)

    def train(data: Sources, out: str, force: bool, measure: bool, seed: int, device: str, **configs: Any) -> Output:
        recipe = task.made_recipe(model, configs, seed, device)
        place = out or f"runs/{name}"
        return report(train_run(task, recipe, list(data), place, measure, force=force, number=not out))

    flags = {key: (config, ABOUT[key]) for key, config in usual.items()} | {
        "out": ("", f"The folder the run is written to; by default runs/{name}, or runs/{name}-2, ... if that exists."),
        "force": (False, "Replace the run at --out when the new one is finished."),
        "measure": (True, "--no-measure ends when the model is saved, without measuring it."),
        "seed": (0, "For everything drawn at random: the first weights, the order of the data, dropout, samples."),
        "device": ("auto", f"Where it is trained: {DEVICE_NAMES}."),
    }
    return command(train, _help(task, name, "loop" in usual), flags, {"data": (Sources, task.data_help)})


def _help(task: Task[Any, Any], name: str, by_steps: bool) -> str:
    verb = f"{task.train_verb} {name}"
    data = task.example.split()[0]
    more = {"ngram": " --order 7 --tokenizer byte", "adaptive-ngram": " --order 8",
            "mix": " --parts runs/kn7 runs/bag", "head": " --base runs/gru"}  # fmt: skip
    steps = (
        f"""

    Stopped (Ctrl-C) or killed, resume it: octavo resume runs/{name}

    Several processes: torchrun --nproc-per-node 2 -m octavo.cli {verb} {data}"""
        if by_steps
        else ""
    )
    variant = MODELS[name].adaptive_variant if name in MODELS else ""
    steps += (
        f"""

    --adaptive trains a model that goes on learning while it reads: octavo train {variant} --help"""
        if variant
        else ""
    )
    return f"""Train a model to {task.purpose}, and measure it on data that are held out.

    Example: octavo {verb} {task.example if by_steps else data}{more.get(name, "")} --out runs/{name}{steps}"""


def resume(
    run: RunPath, budget: str | None = None, measure: bool = True, device: str | None = None
) -> Output:  # fmt: skip
    """Resume training that was stopped or killed, as if it had not been; or, with a larger budget, any run that was
    trained step by step.

    Example: octavo resume runs/gru --budget 10min

    Args:
        budget: How long to train in all, what is done included; without it, as it was.
        measure: --no-measure ends when the model is saved, without measuring it.
        device: Go on there: auto, cpu, cuda, cuda:N or mps; without it, where it was trained.
    """
    return report(resume_run(run, budget, measure, device=device))


def report(run: Any) -> Output:
    """How a run was trained and what it scores, whatever its task."""
    record, task = run.record, find_task(run.task)
    result, training = record.get("result") or {}, record.get("training") or {}
    note(*record.get("notes", ()))
    known = training | run.description()
    about = {key: known[key] for key in ("steps", "why", "padding", "temperature") if key in known}
    data = {"run": str(run.path), "parameters": parameter_count(run.model), "train_seconds": record["train_seconds"],
            task.data_key: record[task.data_key]}  # fmt: skip
    return Output(data | about | result, lambda: _print_report(run, TASK_VERBS[task.name], about, result))


def _print_report(run: Any, verbs: TaskVerbs, training: Mapping[str, Any], result: Mapping[str, Any]) -> None:
    seconds = run.record["train_seconds"]
    counts = {key: value for key, value in run.record.items() if key in ("train_tokens", "train_examples")}
    read = "".join(f" on {count:,} {key.removeprefix('train_')}" for key, count in counts.items())
    speed = "".join(f", {n / max(seconds, 1e-9):,.0f} {key.removeprefix('train_')}/s" for key, n in counts.items())
    why = f"{speed}, {training['steps']:,} steps: {training['why']}" if "why" in training else ""
    parameters = f"{thousands(parameter_count(run.model))} parameters"
    print(f"{run.summary()}\n{parameters}, trained{read} in {seconds:.2f} s{why}")
    if result:
        verb_function(f"{verbs.module}.print_result")(result)
    page = f", with {run.path / REPORT}" if (run.path / REPORT).is_file() else ""
    print(f"the run is in {run.path}{page}; next:")
    print("\n".join(f"  octavo {words.format(run=run.path)}" for words in verbs.next_steps))
