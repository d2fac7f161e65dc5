"""Text classification against fastText, in one run: accuracy, seconds from file to saved model, sentences a second.

    python benchmarks/bench_classify.py             the fixed split: the last tenth of each class
    python benchmarks/bench_classify.py --folds     10-fold cross-validation of octavo's models too (minutes)

fastText is asked for with `pip install fasttext-wheel`; without it, octavo stands alone. The two take turns, so that
what else the machine does hits both.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from measure import middle
from octavo.datasets.labels import Labelled, read_labelled
from octavo.tasks.classification import TASK, cross_validate, measure
from octavo.tasks.classifier import Classifier, load_classifier
from octavo.tasks.task import Recipe
from octavo.tasks.training_run import train_run

THREADS = 2
AT_LEAST = 200_000  # sentences whose labels are asked for at once
PLANS = {
    "linear": TASK.recipe("linear", {}),
    "linear, words only": TASK.recipe("linear", {"ngrams": 1}),
    "dan, GloVe 50d": TASK.recipe("dan", {"vectors": "glove-6b-50d"}),
}
FASTTEXT: dict[str, dict[str, Any]] = {
    "fastText, its defaults": {},
    "fastText, pairs of words": {"wordNgrams": 2, "epoch": 10, "lr": 0.5, "bucket": 100_000},
}


def write_fasttext(path: Path, data: Labelled) -> None:
    """Shuffled, because fastText learns line by line and would forget the class that comes first."""
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(0)).tolist()
    lines = [f"__label__{data.classes[data.y_N[n]]} {data.texts[n]}\n" for n in order]
    path.write_text("".join(lines), encoding="utf-8")


def train_octavo(recipe: Recipe, folder: Path) -> Classifier:
    recipe = recipe.replace(settings=replace(recipe.settings, test=(str(folder / "test.txt"),)))
    made: Classifier = train_run(
        TASK, recipe, [str(folder / "train.txt")], folder / "octavo", measure=False, quiet=True
    )
    return made


def train_fasttext(settings: dict[str, Any], folder: Path) -> Any:
    import fasttext

    model = fasttext.train_supervised(str(folder / "train.txt"), thread=THREADS, verbose=0, **settings)
    model.save_model(str(folder / "fasttext.bin"))
    return model


def timed(function: Callable[[], Any]) -> tuple[float, float, Any]:
    """Seconds, seconds of processors (which other work on the machine does not lengthen), and what came of it."""
    began, worked = time.perf_counter(), time.process_time()
    result = function()
    return time.perf_counter() - began, time.process_time() - worked, result


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--folds", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(THREADS)
    whole = read_labelled("sentence-polarity")
    learn, test = whole.last_tenth()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_fasttext(folder / "train.txt", learn)
        write_fasttext(folder / "test.txt", test)
        compare(folder, test, arguments.repeats)
    if arguments.folds:
        for title, plan in PLANS.items():
            plan = plan.replace(settings=replace(plan.settings, calibrate=plan.model == "linear"))
            result, accuracies = cross_validate(plan, whole, 10)
            spread = f"{min(accuracies):.4f} to {max(accuracies):.4f}"
            print(f"10 folds, {title}: {result.accuracy:.4f} ({spread})", flush=True)


def compare(folder: Path, test: Labelled, repeats: int) -> None:
    try:
        import fasttext  # noqa: F401

        peers = FASTTEXT
    except ImportError:
        print("fastText is not installed (pip install fasttext-wheel): octavo alone")
        peers = {}
    seconds: dict[str, list[float]] = {title: [] for title in (*PLANS, *peers)}
    accuracy: dict[str, float] = {}
    speed: dict[str, list[float]] = {title: [] for title in seconds}
    thrift: dict[str, list[float]] = {title: [] for title in seconds}
    many = test.texts * (AT_LEAST // len(test) + 1)
    for turn in range(repeats):
        for title, plan in PLANS.items():
            if plan.model == "dan" and turn:
                continue  # once is enough: it takes most of the time
            took, _, _ = timed(lambda plan=plan: train_octavo(plan, folder))
            seconds[title].append(took)
            made = load_classifier(folder / "octavo")
            accuracy[title] = measure(made, test).accuracy
            took, worked, _ = timed(lambda made=made: made.logits(many).argmax(1))
            speed[title].append(len(many) / took)
            thrift[title].append(len(many) / worked)
        for title, settings in peers.items():
            took, _, model = timed(lambda settings=settings: train_fasttext(settings, folder))
            seconds[title].append(took)
            accuracy[title] = model.test(str(folder / "test.txt"))[1]
            few = [f"{text}\n" for text in many[: len(many) // 10]]
            took, worked, _ = timed(lambda model=model, few=few: model.f.multilinePredict(few, 1, 0.0, "strict"))
            speed[title].append(len(few) / took)
            thrift[title].append(len(few) / worked)
    print(f"sentence polarity, last tenth of each class ({len(test)} sentences), {THREADS} threads, {repeats} turns")
    print(f"{'':28}{'accuracy':>9}  {'seconds, file to saved model':32}{'sentences/s':22}a processor's second")
    for title in seconds:
        per_second = f"{min(speed[title]):,.0f} to {max(speed[title]):,.0f}"
        print(f"{title:28}{accuracy[title]:9.4f}  {middle(seconds[title]):32}{per_second:22}{max(thrift[title]):,.0f}")


if __name__ == "__main__":
    main()
