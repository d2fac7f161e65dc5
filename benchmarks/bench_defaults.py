"""Our own defaults, chosen on held-out text of several corpora with several seeds.

python benchmarks/bench_defaults.py rates --out rates.json                      (tokens a second here, of every setting)
python benchmarks/bench_defaults.py settings TEXT... --rates rates.json [--seconds 60] [--device cuda] [--jobs 8]
python benchmarks/bench_defaults.py settings TEXT... --groups linear --tokens 1000000
python benchmarks/bench_defaults.py mixture TEXT... --rates rates.json
python benchmarks/bench_defaults.py images digits mnist5k [--seeds 3]

Only the first 90 % of each text is read, the part that `octavo train` trains on; its last tenth measures, so the text
that octavo reports on chooses nothing. Each setting is trained for as many steps as this machine makes of it in the
given seconds (`rates`), wherever it is trained, or all for the same number of tokens. Results are differences to the
default's bits per byte of the same text and seed: the mean, the least and the greatest. Images: accuracy on a tenth of
the training images. A default is changed where another setting is better on average and in three quarters of the texts
and seeds.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

import torch

import octavo
from measure import parser, print_header, print_machine, print_row
from octavo.costs import on_meta
from octavo.experiments.compare.config import candidates
from octavo.tasks.task import task_for
from octavo.training.loop_config import LoopConfig
from octavo.training.optimizer import OptimizerConfig
from octavo.training.step_timing import Piece, time_steps

TRAINING_SHARE = 0.9
MAX_BYTES = 1_000_000  # of a text's training part
BYTE_VOCABULARY = 257
PEAK = 1e11  # operations a second, of two cores: steps of these small models are timed whole anyway
ROUNDS = 3
QUICK = "quick"
FREE_SETTINGS = ("muon_learning_rate", "weight_decay")
QUICK_SECONDS = 26.0  # of training in `octavo compare --quick`

RELU2: dict[str, Any] = {"feed_forward": "relu2"}
PLAIN_RELU2: dict[str, Any] = RELU2 | {"qk_norm": False}
SETTINGS: dict[str, dict[str, dict[str, Any]]] = {
    "gpt": {
        "default": {}, "no QK norm": {"qk_norm": False},
        "Muon at 0.01": {"muon_learning_rate": 0.01}, "Muon at 0.03": {"muon_learning_rate": 0.03},
        "Muon at 0.05": {"muon_learning_rate": 0.05},
        "no QK norm, Muon at 0.03": {"qk_norm": False, "muon_learning_rate": 0.03},
        "context 32": {"context": 32}, "context 128": {"context": 128}, "context 256": {"context": 256},
        "2 heads": {"heads": 2}, "8 heads": {"heads": 8},
        "squared ReLU": RELU2,
        "squared ReLU, Muon at 0.01": RELU2 | {"muon_learning_rate": 0.01},
        "squared ReLU, 2 heads": RELU2 | {"heads": 2},
        "squared ReLU, no QK norm": PLAIN_RELU2,
        "squared ReLU, no QK norm, Muon at 0.03": PLAIN_RELU2 | {"muon_learning_rate": 0.03},
        "squared ReLU, no QK norm, 2 heads": PLAIN_RELU2 | {"heads": 2},
        "squared ReLU, no QK norm, 2 heads, Muon at 0.03": PLAIN_RELU2 | {"heads": 2, "muon_learning_rate": 0.03},
        "squared ReLU, no QK norm, 2 heads, weight decay 0.05": PLAIN_RELU2 | {"heads": 2, "weight_decay": 0.05},
        "squared ReLU, no QK norm, 2 heads, context 32": PLAIN_RELU2 | {"heads": 2, "context": 32},
        "squared ReLU, no QK norm, 2 heads, context 128": PLAIN_RELU2 | {"heads": 2, "context": 128},
    },
    "gru": {
        "default": {}, "Muon at 0.03": {"muon_learning_rate": 0.03}, "Muon at 0.05": {"muon_learning_rate": 0.05},
        "weight decay 0.02": {"weight_decay": 0.02}, "weight decay 0.05": {"weight_decay": 0.05},
        "weight decay 0.2": {"weight_decay": 0.2},
        "weight decay 0.05, Muon at 0.05": {"weight_decay": 0.05, "muon_learning_rate": 0.05},
    },
}  # fmt: skip
WITHOUT_DECAY: dict[str, Any] = {"head_decay": "none"}
SETTINGS["linear"] = {
    "default": {}, "ReLU features": {"features": "relu"}, "random features": {"features": "random"},
    "no QK norm": {"qk_norm": False}, "no positions": {"positions": "none"}, "context read again": {"stride": 32},
    "no decay": WITHOUT_DECAY, "no decay, ReLU features": WITHOUT_DECAY | {"features": "relu"},
    "no decay, random features": WITHOUT_DECAY | {"features": "random"},
    "no decay, no QK norm": WITHOUT_DECAY | {"qk_norm": False},
    "no decay, no positions": WITHOUT_DECAY | {"positions": "none"},
    "no decay, context read again": WITHOUT_DECAY | {"stride": 32},
}  # fmt: skip
IMAGE_STEPS = (500, 1000, 2000, 4000)
DEFAULT_IMAGE_STEPS = 2000
MIXTURES: dict[str, Callable[[Sequence[str]], list[str]]] = {  # of the networks, the best on validation chunks first
    "kn7 and the best 2 networks": lambda best: ["kn7", *best[:2]],
    "kn7 and the best network": lambda best: ["kn7", *best[:1]],
    "kn7 and the best 3": lambda best: ["kn7", *best[:3]],
    "kn5 and the best 2": lambda best: ["kn5", *best[:2]],
    "kn7, the best recurrent and the best attention": lambda best: [
        "kn7", next(name for name in best if name in ("rnn", "gru", "lstm")),
        next(name for name in best if name in ("gpt", "local", "linear", "synthesizer")),
    ],
}  # fmt: skip


class Cell(NamedTuple):
    """One training: which setting of what, on which text, with which seed."""

    group: str
    name: str
    text: str
    seed: int
    settings: Mapping[str, Any]
    device: str


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("what", choices=["rates", "settings", "mixture", "images"])
    arguments.add_argument("texts", nargs="*", help="text files; of images, datasets that octavo knows")
    arguments.add_argument("--groups", nargs="+", default=[*SETTINGS, QUICK], choices=[*SETTINGS, QUICK])
    arguments.add_argument("--names", nargs="+", default=["*"], help="only settings that match, beside the default")
    arguments.add_argument("--rates", type=Path, help="what `rates` wrote, here or on the machine that matters")
    arguments.add_argument("--seconds", type=float, default=60.0)
    arguments.add_argument("--tokens", type=int, help="of training, the same for all settings, instead of --seconds")
    arguments.add_argument("--seeds", type=int, default=3)
    arguments.add_argument("--device", default="cpu")
    arguments.add_argument("--jobs", type=int, default=1)
    arguments.add_argument("--out", type=Path, help="write the results, as JSON, to this file too")
    args = arguments.parse_args()
    print_machine()
    results: Any
    if args.what == "rates":
        results = measure_rates(args.groups, args.names)
        for name, rate in results.items():
            print(f"{name}: {rate:,.0f} tokens a second")
    else:
        work, cells = plan(args)
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(
            args.jobs, mp_context=context, initializer=torch.set_num_threads, initargs=(1,)
        ) as pool:
            results = [result for found in pool.map(work, cells) for result in found]
        print_results(results, better_is_less=args.what != "images")
    if args.out:
        args.out.write_text(json.dumps(results, indent=1))


def plan(args: argparse.Namespace) -> tuple[Callable[[Cell], list[dict[str, Any]]], list[Cell]]:
    """What is done with each cell, and the cells."""
    if args.what == "images":
        steps = {f"{n} steps": {"budget": f"{n}steps"} for n in IMAGE_STEPS}
        return train_images, [
            Cell("vit", name, text, seed, settings, args.device)
            for text in args.texts for seed in range(args.seeds) for name, settings in reversed(steps.items())
        ]  # fmt: skip
    rates = json.loads(args.rates.read_text()) if args.rates else {}
    if args.what == "mixture":
        cells = [Cell("mix", "", text, seed, rates, args.device) for text in args.texts for seed in range(args.seeds)]
        return train_mixtures, cells
    return train_setting, [
        Cell(group, name, text, seed, settings | budget_of(args, rates, f"{group}, {name}"), args.device)
        for group in args.groups if group != QUICK for text in args.texts for seed in range(args.seeds)
        for name, settings in SETTINGS[group].items() if asked(name, args.names)
    ]  # fmt: skip


def asked(name: str, patterns: Sequence[str]) -> bool:
    return name == "default" or any(fnmatch(name, pattern) for pattern in patterns)


def budget_of(args: argparse.Namespace, rates: Mapping[str, float], name: str) -> dict[str, Any]:
    """The tokens of a setting's training: as given, or as many as this machine reads in the time."""
    return {"budget": f"{args.tokens}tokens", "evaluations": 1} if args.tokens else steps_in(args.seconds, rates[name])


def steps_in(seconds: float, tokens_per_second: float) -> dict[str, Any]:
    return {"budget": f"{int(seconds * tokens_per_second)}tokens", "evaluations": 1}


# ---------------------------------------------------------------------- rates


def measure_rates(groups: Sequence[str], names: Sequence[str]) -> dict[str, float]:
    """Tokens a second in training, of every setting and of every network in `octavo compare --quick`.

    Medians of rounds in which every shape has its turn; rates of the optimizer change nothing about the speed.
    """
    every: dict[str, tuple[str, Mapping[str, Any]]] = {
        f"{group}, {name}": (group, {key: value for key, value in settings.items() if key not in FREE_SETTINGS})
        for group in groups if group != QUICK for name, settings in SETTINGS[group].items() if asked(name, names)
    }  # fmt: skip
    if QUICK in groups:
        every |= {f"{QUICK}, {name}": (model, settings) for name, (model, settings) in networks().items()}
    shapes = {json.dumps(shape): shape for shape in every.values()}
    rounds = [{key: rate_of(*shape) for key, shape in shapes.items()} for _ in range(ROUNDS)]
    return {name: statistics.median(one[json.dumps(shape)] for one in rounds) for name, shape in every.items()}


def networks() -> dict[str, tuple[str, Mapping[str, Any]]]:
    """The candidates of a quick comparison that are trained by gradients, over bytes."""
    quick = candidates(QUICK_SECONDS, "cpu").values()
    return {
        one.name: (one.model, one.settings) for one in quick if one.by_gradient and not one.settings.get("tokenizer")
    }


def rate_of(model: str, settings: Mapping[str, Any]) -> float:
    recipe = task_for(model).recipe(model, dict(settings), 0)
    loop, optim = recipe.loop, recipe.optimizer
    assert isinstance(loop, LoopConfig)
    assert isinstance(optim, OptimizerConfig)
    suited = loop.suiting(on_meta(recipe.model, recipe.config, BYTE_VOCABULARY))
    timing = time_steps(Piece(recipe.model, recipe.config, BYTE_VOCABULARY, suited, optim), PEAK, torch.device("cpu"))
    assert timing is not None
    return timing.tokens_per_second


# ---------------------------------------------------------------------- cells


def training_part(text: str, folder: str) -> Path:
    """The part of a text that octavo trains on, as a file of its own."""
    data = Path(text).read_bytes()
    part = data[: int(len(data) * TRAINING_SHARE)][:MAX_BYTES].decode("utf-8", "ignore")
    path = Path(folder) / "text.txt"
    path.write_text(part, encoding="utf-8")
    return path


def train_setting(cell: Cell) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        part, out = training_part(cell.text, folder), Path(folder) / "run"
        run = octavo.train(cell.group, part, out=out, seed=cell.seed, device=cell.device, **cell.settings)
    return [result_of(cell, cell.name, run.record["result"]["bits_per_byte"])]


def train_mixtures(cell: Cell) -> list[dict[str, Any]]:
    """Every mixture of one text and seed: the networks of a quick comparison are trained once."""
    with tempfile.TemporaryDirectory() as folder:
        part, runs = training_part(cell.text, folder), Path(folder)
        for order in (3, 5, 7):
            octavo.train("ngram", part, out=runs / f"kn{order}", order=order, tokenizer="byte", measure=False)
        validation = {}
        for name, (model, settings) in networks().items():
            given = {**settings, **steps_in(QUICK_SECONDS, cell.settings[f"{QUICK}, {name}"])}
            run = octavo.train(model, part, out=runs / name, seed=cell.seed, device=cell.device, measure=False, **given)
            validation[name] = run.record["training"]["held_out_bits_per_byte"]
        best = sorted(validation, key=validation.__getitem__)
        results: list[dict[str, Any]] = []
        for rule, choose in MIXTURES.items():
            parts = [runs / name for name in dict.fromkeys(choose(best))]
            mix = octavo.train("mix", part, out=runs / f"mix{len(results)}", parts=parts, seed=cell.seed)
            results.append(result_of(cell, rule, mix.record["result"]["bits_per_byte"]))
    return results


def train_images(cell: Cell) -> list[dict[str, Any]]:
    """The last accuracy on the tenth of the training images that --patience holds out; no training ends early."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        octavo.train("vit", cell.text, out=out, seed=cell.seed, device=cell.device, patience=1000, evaluations=2,
                     measure=False, **cell.settings)  # fmt: skip
        rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    last = [row["accuracy"] for row in rows if "accuracy" in row][-1]
    return [result_of(cell, cell.name, 100 * last)]


def result_of(cell: Cell, name: str, value: float) -> dict[str, Any]:
    print(f"{cell.group}, {name}, {Path(cell.text).name}, seed {cell.seed}: {value:.4f}", flush=True)
    return {"group": cell.group, "name": name, "text": Path(cell.text).name, "seed": cell.seed, "value": value}


# ---------------------------------------------------------------------- results


def print_results(results: Sequence[Mapping[str, Any]], better_is_less: bool) -> None:
    """For each group a table: the mean of every text, and the differences to the default over texts and seeds."""
    for group in dict.fromkeys(one["group"] for one in results):
        mine = [one for one in results if one["group"] == group]
        texts = list(dict.fromkeys(one["text"] for one in mine))
        values: dict[str, dict[tuple[str, int], float]] = defaultdict(dict)
        for one in mine:
            values[one["name"]][one["text"], one["seed"]] = one["value"]
        default = f"{DEFAULT_IMAGE_STEPS} steps" if not better_is_less else next(iter(values))
        print()
        print_header(group, *texts, f"minus {default}", "least to greatest", "better in")
        sign = -1 if better_is_less else 1
        for name, found in values.items():
            differences = [value - values[default][place] for place, value in found.items()]
            means = [statistics.mean(v for (t, _), v in found.items() if t == text) for text in texts]
            better = sum(sign * difference > 0 for difference in differences)
            spread = f"{min(differences):+.4f} to {max(differences):+.4f}"
            shown = [f"{mean:.4f}" for mean in means]
            print_row(name, *shown, f"{statistics.mean(differences):+.4f}", spread, f"{better} of {len(differences)}")


if __name__ == "__main__":
    main()
