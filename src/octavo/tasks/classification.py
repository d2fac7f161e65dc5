"""Classifying texts: fit or train, calibrate on a part held out of training, measure.

B texts of a batch, N of all, C classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor

from octavo.config import Range, check_ranges
from octavo.core import eval_mode, seeded_generator, single_thread
from octavo.datasets.labels import TENTH, Labelled, LabelledConfig, listed, read_labelled
from octavo.errors import UserError
from octavo.io.run_folder import read_record
from octavo.models.dan import Head, Linear, grown
from octavo.scoring.metrics import Classified, best_temperature, classified
from octavo.tasks.classifier import Classifier
from octavo.tasks.device import pick_device
from octavo.tasks.task import Recipe, Rows, Task
from octavo.tasks.text_batches import ClassLoss, TextBatches, shares
from octavo.tasks.text_vectors import Base, VectorReader, open_base
from octavo.tasks.trained_run import models_of
from octavo.tasks.training_run import train_in_memory
from octavo.text.bag_of_ngrams import Bags, HashedReader, KnownReader
from octavo.text.word_vectors import Vectors, read_vectors
from octavo.training.loop_config import LoopConfig
from octavo.training.naive_bayes import fit_linear
from octavo.training.optimizer import OptimizerConfig
from octavo.training.stage import Stage

MAX_ONE_THREAD_CHARACTERS = 1 << 24  # in all texts, up to which one thread is enough


@dataclass(frozen=True)
class ClassificationConfig(LabelledConfig):
    """The labelled texts, and how a classifier is made from them."""

    epochs: Annotated[int, Range(1, 1_000_000)] = 10
    """dan, sequence, head: how often to read every text, where there is no other --budget."""
    balance: bool = False
    """Every class counts the same in training, however few examples it has."""
    calibrate: bool = True
    """Set the temperature by a tenth of the training examples, held out; --no-calibrate leaves it at 1."""
    folds: Annotated[int, Range(0, 10_000)] = 0
    """Measure by cross-validation with so many folds (10, say), and learn from all examples."""
    base: str = ""
    """head: the run, or the pretrained encoder (minilm), whose vectors it stands on."""

    def __post_init__(self) -> None:
        check_ranges(self)


@dataclass
class ClassificationData:
    """What is learnt from and what is measured on; `held` sets the temperature, and with early stopping the end."""

    learn: Labelled
    test: Labelled
    base: Base | None = None
    held: Labelled | None = None
    take: Callable[[Tensor], Bags | Tensor] | None = None  # the inputs of some examples that are learnt from
    fitted: Labelled | None = None  # of which the weights are learnt
    vectors: Vectors | None = None  # pretrained ones of words


class ClassificationTask(Task[Classifier, ClassificationData]):
    """A class for every text."""

    name, purpose, data_key, data_kind = "classification", "classify text", "data", "labelled"
    train_verb = "classify train"
    run_class = Classifier
    data_help = (
        "sentence-polarity, movie-reviews, or files of labelled texts: label<TAB>text, CSV, JSON lines, or fastText's "
        "__label__ lines."
    )
    example = "sentence-polarity"
    settings = ClassificationConfig()
    loop = LoopConfig(budget="", batch_size=64, precision="float32")
    optimizer = OptimizerConfig(optimizer="adamw", learning_rate=0.003, weight_decay=0.01, warmup=0.0)

    def configs(self, model: str) -> tuple[str, dict[str, Any]]:
        name, known = model.removesuffix("-classifier"), models_of(self.name)
        if name not in known:
            raise UserError(f"there is no classifier {model!r}; classifiers are {listed(list(known))}")
        usual = {"config": known[name].config(), "settings": self.settings}
        return name, usual | ({"loop": self.loop, "optimizer": self.optimizer} if name != "linear" else {})

    def check(self, recipe: Recipe) -> None:
        if (recipe.model == "head") != bool(recipe.settings.base):
            raise UserError(
                f"a base is what a head stands on: model={recipe.model}, base={recipe.settings.base or None}; "
                "try head with --base RUN"
            )

    def open(self, recipe: Recipe, source: Sequence[str], folder: Path | None = None) -> ClassificationData:
        settings: ClassificationConfig = recipe.settings
        whole = read_labelled(list(source), settings)
        if settings.folds:
            learn, test = whole, whole.take(np.arange(0))
        elif settings.test:
            learn, test = whole, read_labelled(list(settings.test), settings, whole.classes)
        else:
            learn, test = whole.last_tenth()
        return ClassificationData(learn, test, open_base(settings.base) if settings.base else None)

    def describe(self, recipe: Recipe, source: Sequence[str], data: ClassificationData) -> dict[str, Any]:
        parts = {name: {"examples": len(part), "sha256": part.sha256}
                 for name, part in (("learnt", data.learn), ("test", data.test))}  # fmt: skip
        counts = {name: n + data.test.counts()[name] if not recipe.settings.test else n
                  for name, n in data.learn.counts().items()}  # fmt: skip
        about = {"source": list(map(str, source)), "counts": counts, **parts, "folds": recipe.settings.folds}
        return {"data": about}

    def identity(self, record: Mapping[str, Any]) -> Any:
        return [record["data"][part]["sha256"] for part in ("learnt", "test")]

    # ------------------------------------------------------------------ making a classifier

    def fits(self, recipe: Recipe) -> bool:
        return recipe.model == "linear"

    def fit(self, recipe: Recipe, data: ClassificationData) -> tuple[Classifier, Rows]:
        made = fit_classifier(recipe, data.learn)
        made.record["training"] = {**recipe.to_json(), "finished": True}  # how its data were read
        return made, ()

    def create(self, recipe: Recipe, data: ClassificationData) -> Classifier:
        _check_classes(data.learn)
        calibrate = _can_spare(recipe, data.learn)
        data.fitted, data.held = data.learn.last_tenth() if calibrate or recipe.loop.patience else (data.learn, None)
        made = (_create_head if recipe.model == "head" else _create_word_model)(recipe, data, data.fitted)
        made.model.initialise(seeded_generator(recipe.seed))
        if data.vectors is not None:
            _take_vectors(made, data.vectors)
        return made

    def recreate(self, recipe: Recipe, data: ClassificationData, path: Path) -> Classifier:
        return self.create(recipe, data).placed(path, read_record(path))

    def stage(
        self, recipe: Recipe, run: Classifier, data: ClassificationData, device: torch.device, number: int
    ) -> Stage:
        assert data.fitted is not None
        assert data.take is not None
        batch_size = recipe.loop.batch_size or self.loop.batch_size
        batches = TextBatches(data.fitted, data.take, batch_size, recipe.settings.balance, recipe.seed)
        held = data.held
        return Stage(
            run.model, ClassLoss(run.model, recipe.optimizer.label_smoothing), batches, recipe.optimizer,
            recipe.loop.budget or f"{batches.steps * recipe.settings.epochs}steps", steps_per_epoch=batches.steps,
            examples_per_step=batches.batch_size, around=single_thread, usable=False,
            validate=(lambda: {"accuracy": measure(run, held).accuracy}) if held is not None else None,
            best="accuracy" if recipe.loop.patience else "",
        )  # fmt: skip

    def complete(self, recipe: Recipe, run: Classifier, data: ClassificationData) -> Classifier:
        if data.vectors is not None:
            run = _with_spare_words(run, data.vectors, recipe.config.spare)
        if data.held is not None and _can_spare(recipe, data.learn):
            y_N = torch.from_numpy(data.held.y_N)
            run = replace(run, temperature=best_temperature(run.logits(data.held.texts), y_N))
        return run

    def choices(self, run: Classifier) -> int:
        return len(run.classes)

    def measure(self, recipe: Recipe, run: Classifier, data: ClassificationData) -> None:
        if recipe.settings.folds:
            result, accuracies = cross_validate(recipe, data.learn, recipe.settings.folds, data.base)
            run.record["result"] = result.to_json() | {"folds": accuracies}
        else:
            run.record["result"] = measure(run, data.test).to_json()

    def evaluate(self, run: Classifier, source: Any = None, **settings: Any) -> Classified:
        """How good a classifier is on labelled texts; without any, on those held out of its training."""
        return measure(run, held_out_examples(run, source or (), settings.get("reading", LabelledConfig())))


TASK = ClassificationTask()


def held_out_examples(run: Classifier, source: Sequence[str], reading: LabelledConfig) -> Labelled:
    """Labelled texts to measure a classifier on; without a source, those held out of its training."""
    if source:
        return read_labelled(list(source), reading, run.classes)
    test: Labelled = run.data("name a file of examples").test
    if not len(test):
        raise UserError(f"{run.path} has learnt from every example (it was cross-validated); name a file of others")
    return test


def fit_classifier(recipe: Recipe, learn: Labelled, base: Base | None = None) -> Classifier:
    """A classifier of these examples; a tenth of them sets the temperature, where that is asked for."""
    if recipe.model == "linear":
        _check_classes(learn)
        with single_thread() if sum(map(len, learn.texts)) < MAX_ONE_THREAD_CHARACTERS else nullcontext():
            return _fit_linear(recipe, learn, _can_spare(recipe, learn))
    data = ClassificationData(learn, learn.take(np.arange(0)), base)
    made: Classifier = train_in_memory(TASK, recipe, TASK.create(recipe, data), data, pick_device(recipe.device))
    return made


def _check_classes(data: Labelled) -> None:
    if missing := [name for name, count in data.counts().items() if not count]:
        raise UserError(f"every class needs examples to learn from: there are none of {listed(missing)}")


def _can_spare(recipe: Recipe, data: Labelled) -> bool:
    return recipe.settings.calibrate and max(data.counts().values()) >= TENTH  # of fewer none can be spared


def _fit_linear(recipe: Recipe, data: Labelled, calibrate: bool) -> Classifier:
    """All is read once. A fit takes less time than reading, so what sets the temperature is learnt from afterwards."""
    config = recipe.config
    reader, bags = HashedReader.learn(data.texts, config.ngrams, config.bits)

    def fitted(rows_N: Tensor) -> Linear:
        y_N, C = torch.from_numpy(data.y_N)[rows_N], len(data.classes)
        return fit_linear(config, bags.take(rows_N), y_N, shares(y_N, C, recipe.settings.balance), reader.rows, C)

    temperature = 1.0
    if calibrate:
        held_N = torch.from_numpy(data.last_of_each())
        with torch.no_grad():
            logits_NC = fitted((~held_N).nonzero()[:, 0])(bags.take(held_N.nonzero()[:, 0]))
        temperature = best_temperature(logits_NC, torch.from_numpy(data.y_N)[held_N])
    return Classifier(fitted(torch.arange(len(data))), reader, data.classes, temperature)


def _create_head(recipe: Recipe, data: ClassificationData, learn: Labelled) -> Classifier:
    if data.base is None:
        raise UserError("a base is what a head stands on: there is none; try head with --base RUN")
    vectors, x_ND = VectorReader.learn(data.base, learn.texts)
    data.take = lambda rows: x_ND[rows]
    return Classifier(Head(recipe.config, vectors.width, len(learn.classes)), vectors, learn.classes)


def _create_word_model(recipe: Recipe, data: ClassificationData, learn: Labelled) -> Classifier:
    config = recipe.config
    data.vectors = read_vectors(config.vectors) if config.vectors else None
    given = data.vectors or Vectors([], np.zeros((0, config.width), np.float32))
    known = KnownReader.learn(learn.texts, config.min_count, config.ngrams, config.buckets, given.words)
    data.take = known.read(learn.texts).take
    model: Any = models_of(TASK.name)[recipe.model].model
    width = given.rows_WD.shape[1]
    return Classifier(model(config, known.rows, width, len(learn.classes)), known, learn.classes)


def _take_vectors(made: Classifier, given: Vectors) -> None:
    """Start from pretrained vectors where they are known."""
    place = {word: n for n, word in enumerate(given.words)}
    with torch.no_grad():
        for row, word in enumerate(made.reader.words, 1 + made.reader.buckets):
            if word in place:
                made.model.vectors_VD[row] = torch.from_numpy(given.rows_WD[place[word]])


def _with_spare_words(made: Classifier, given: Vectors, spare: int) -> Classifier:
    """With the pretrained vectors of words that the training texts lack."""
    known, learnt = made.reader, set(made.reader.words)
    place = {word: n for n, word in enumerate(given.words)}
    further = [word for word in given.words[:spare] if word not in learnt]
    rows_UD = torch.from_numpy(given.rows_WD[[place[word] for word in further]])
    reader = KnownReader([*known.words, *further], made.model.config.ngrams, known.buckets)
    return replace(made, model=grown(made.model.cpu(), rows_UD), reader=reader)


# ---------------------------------------------------------------------- measuring


def measure(made: Classifier, data: Labelled) -> Classified:
    """How good it is on some examples."""
    with eval_mode(made.model):
        return classified(made.probabilities(data.texts), torch.from_numpy(data.y_N), made.classes)


def cross_validate(
    recipe: Recipe, data: Labelled, count: int, base: Base | None = None
) -> tuple[Classified, list[float]]:
    """Every example measured once, by a classifier that has not seen it; and the accuracy of each fold."""
    p_NC, accuracies = torch.zeros(len(data), len(data.classes)), []
    for learn, held in data.folds(count, recipe.seed):
        made = fit_classifier(recipe, data.take(learn), base)
        rows = torch.from_numpy(held)
        p_NC[rows] = made.probabilities(data.take(held).texts)
        accuracies.append(float((p_NC[rows].argmax(1) == torch.from_numpy(data.y_N[held])).float().mean()))
    return classified(p_NC, torch.from_numpy(data.y_N), data.classes), accuracies
