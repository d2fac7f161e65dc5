"""Text classification against fastText, in one run: accuracy, seconds from file to saved model, sentences a second.

    python benchmarks/bench_classify.py             the fixed split: the last tenth of each class
    python benchmarks/bench_classify.py --folds     10-fold cross-validation of octavo's models too (minutes)

fastText comes with `pip install fasttext-wheel`; without it, octavo is measured alone. The rounds of the two alternate.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from measure import median_spread, parser, print_header, print_machine, print_row
from octavo.datasets.labels import Labelled, read_labelled
from octavo.tasks.classification import TASK, cross_validate, measure
from octavo.tasks.classifier import Classifier
from octavo.tasks.task import Recipe
from octavo.tasks.training_run import train_run

THREADS = 2
PREDICTED_SENTENCES = 200_000  # at least so many are classified in one call
RECIPES = {
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
    classifier: Classifier = train_run(
        TASK, recipe, [str(folder / "train.txt")], folder / "octavo", measure=False, quiet=True
    )
    return classifier


def train_fasttext(settings: dict[str, Any], folder: Path) -> Any:
    fasttext: Any = import_module("fasttext")
    model = fasttext.train_supervised(str(folder / "train.txt"), thread=THREADS, verbose=0, **settings)
    model.save_model(str(folder / "fasttext.bin"))
    return model


def time_work(function: Callable[[], Any]) -> tuple[float, float, Any]:
    """Wall-clock seconds, processor seconds (which other work on the machine does not lengthen), and the result."""
    began, worked = time.perf_counter(), time.process_time()
    result = function()
    return time.perf_counter() - began, time.process_time() - worked, result


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--repeats", type=int, default=5)
    options.add_argument("--folds", action="store_true")
    arguments = options.parse_args()
    print_machine()
    torch.set_num_threads(THREADS)
    whole = read_labelled("sentence-polarity")
    learn, test = whole.last_tenth()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_fasttext(folder / "train.txt", learn)
        write_fasttext(folder / "test.txt", test)
        compare(folder, test, arguments.repeats)
    if arguments.folds:
        print("\n10 folds: accuracy over all sentences, and of the folds\n")
        print_header("", "accuracy", "of a fold")
        for title, recipe in RECIPES.items():
            recipe = recipe.replace(settings=replace(recipe.settings, calibrate=recipe.model == "linear"))
            result, accuracies = cross_validate(recipe, whole, 10)
            print_row(title, f"{result.accuracy:.4f}", median_spread(accuracies, 4))


def compare(folder: Path, test: Labelled, repeats: int) -> None:
    peers = FASTTEXT if find_spec("fasttext") else {}
    if not peers:
        print("fastText is not installed (pip install fasttext-wheel): octavo alone")
    seconds: dict[str, list[float]] = {title: [] for title in (*RECIPES, *peers)}
    accuracy: dict[str, float] = {}
    speed: dict[str, list[float]] = {title: [] for title in seconds}
    processor_speed: dict[str, list[float]] = {title: [] for title in seconds}

    def predict(title: str, sentences: list[str], work: Callable[[], Any]) -> None:
        took, processor, _ = time_work(work)
        speed[title].append(len(sentences) / took)
        processor_speed[title].append(len(sentences) / processor)

    many = test.texts * (PREDICTED_SENTENCES // len(test) + 1)
    few = [f"{text}\n" for text in many[: len(many) // 10]]
    for number in range(repeats):
        for title, recipe in RECIPES.items():
            if recipe.model == "dan" and number:
                continue  # once is enough: it takes most of the time
            seconds[title].append(time_work(partial(train_octavo, recipe, folder))[0])
            classifier = Classifier.load(folder / "octavo")
            accuracy[title] = measure(classifier, test).accuracy
            predict(title, many, lambda classifier=classifier: classifier.logits(many).argmax(1))  # type: ignore[misc]
        for title, settings in peers.items():
            took, _, model = time_work(partial(train_fasttext, settings, folder))
            seconds[title].append(took)
            accuracy[title] = model.test(str(folder / "test.txt"))[1]
            predict(title, few, partial(model.f.multilinePredict, few, 1, 0.0, "strict"))
    print(f"sentence polarity, last tenth of each class ({len(test)} sentences), {THREADS} threads, {repeats} rounds\n")
    print_header("", "accuracy", "seconds, file to saved model", "sentences/s", "sentences per processor second")
    for title in seconds:
        print_row(title, f"{accuracy[title]:.4f}", median_spread(seconds[title]), median_spread(speed[title], 0),
                  median_spread(processor_speed[title], 0))  # fmt: skip


if __name__ == "__main__":
    main()
