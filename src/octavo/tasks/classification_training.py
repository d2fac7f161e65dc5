"""From labelled texts to a classifier: fit, calibrate on a part held out of training, measure, save.

B texts of a batch, N of all, C classes.
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from octavo.config import from_json
from octavo.core import eval_mode, seeded_generator, single_thread
from octavo.datasets.labels import TENTH, Labelled, LabelledConfig, listed, read_labelled
from octavo.errors import UserError
from octavo.io.run_folder import METRICS, REPORT, STATE, check_out, read_record
from octavo.models.classifier_head import Head
from octavo.models.dan import Dan, Linear, grown
from octavo.scoring.classification import Classified, best_temperature, classified
from octavo.tasks.classifier import CLASSIFIERS, TASK, Classifier
from octavo.tasks.count_training import pick_device
from octavo.tasks.text_vectors import Base, VectorReader, describe_base, find_base, open_base
from octavo.text.bag_of_ngrams import Bags, HashedReader, KnownReader
from octavo.text.word_vectors import Vectors, read_vectors
from octavo.training.batch_loop import fit
from octavo.training.naive_bayes import fit_linear
from octavo.training.optimizer import OptimizerConfig

SMALL = 1 << 24  # letters in all, up to which one thread is enough
OPTIM = OptimizerConfig(optimizer="adamw", learning_rate=0.003, weight_decay=0.01, warmup=0.0)
Page = Callable[[Classifier, Labelled, Labelled], str]  # the classifier, what it learnt from, what it is measured on


@dataclass(frozen=True)
class ClassifyConfig:
    """How a classifier is trained."""

    epochs: int = 10
    """dan, head: how often to read every text."""
    batch: int = 64
    """dan, head: texts between two changes of the weights."""
    balance: bool = False
    """Every class counts the same in training, however few examples it has."""
    calibrate: bool = True
    """Set the temperature of the probabilities by a tenth of the training examples, held out; else it is 1."""

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch < 1:
            raise UserError(f"epochs and batch must be at least 1: epochs={self.epochs}, batch={self.batch}")


@dataclass(frozen=True)
class Plan:
    """Everything that a classifier is made from, but the examples."""

    model: str
    config: Any
    how: ClassifyConfig = ClassifyConfig()
    optim: OptimizerConfig = OPTIM
    seed: int = 0
    device: str = "auto"
    base: Base | None = None

    @classmethod
    def of(cls, model: str, config: Any = None, base: Base | str | Path | None = None, **more: Any) -> Plan:
        """With the model's usual settings where none are given; `base` may be the folder of a run."""
        if model not in CLASSIFIERS:
            raise UserError(f"there is no classifier {model!r}; classifiers are {listed(list(CLASSIFIERS))}")
        if (model == "head") != (base is not None):
            raise UserError(f"a base is what a head stands on: model={model}, base={base}; try head with --base RUN")
        opened = open_base(base) if isinstance(base, str | Path) else base
        return cls(model, CLASSIFIERS[model].config() if config is None else config, base=opened, **more)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self.how), "optim": asdict(self.optim)}


def fit_classifier(plan: Plan, data: Labelled, folder: Path | None = None, quiet: bool = True) -> Classifier:
    """A classifier of these examples; a tenth of them sets the temperature, where that is asked for."""
    if missing := [name for name, count in data.counts().items() if not count]:
        raise UserError(f"every class needs examples to learn from: there are none of {listed(missing)}")
    calibrate = plan.how.calibrate and max(data.counts().values()) >= TENTH  # of fewer none can be spared
    if plan.model == "linear":
        with single_thread() if sum(map(len, data.texts)) < SMALL else nullcontext():
            return _fit_linear(plan, data, calibrate)
    if not calibrate:
        return _fit(plan, data, folder, quiet)
    learnt, tail = data.last_tenth()
    made = _fit(plan, learnt, folder, quiet)
    return replace(made, temperature=best_temperature(made.logits(tail.texts), torch.from_numpy(tail.y_N)))


def _fit_linear(plan: Plan, data: Labelled, calibrate: bool) -> Classifier:
    """All is read once. A fit takes less time than reading, so what sets the temperature is learnt from afterwards."""
    reader, bags = HashedReader.learn(data.texts, plan.config.ngrams, plan.config.bits)

    def fitted(rows_N: Tensor) -> Linear:
        y_N, C = torch.from_numpy(data.y_N)[rows_N], len(data.classes)
        return fit_linear(plan.config, bags.take(rows_N), y_N, shares(y_N, C, plan.how.balance), reader.rows, C)

    temperature = 1.0
    if calibrate:
        held_N = torch.from_numpy(data.last_of_each())
        with torch.no_grad():
            logits_NC = fitted((~held_N).nonzero()[:, 0])(bags.take(held_N.nonzero()[:, 0]))
        temperature = best_temperature(logits_NC, torch.from_numpy(data.y_N)[held_N])
    return Classifier("linear", fitted(torch.arange(len(data))), reader, data.classes, temperature)


def _fit(plan: Plan, data: Labelled, folder: Path | None, quiet: bool) -> Classifier:
    y_N = torch.from_numpy(data.y_N)
    share_N = shares(y_N, len(data.classes), plan.how.balance)
    if plan.model == "head":
        assert plan.base is not None
        vectors, x_ND = VectorReader.learn(plan.base, data.texts)
        head = Head(plan.config, vectors.width, len(data.classes))
        head.initialise(seeded_generator(plan.seed))
        _descend(plan, head, lambda rows: x_ND[rows], y_N, share_N, folder, quiet)
        return Classifier("head", head.cpu(), vectors, data.classes)
    return _fit_dan(plan, data, y_N, share_N, folder, quiet)


def _fit_dan(
    plan: Plan, data: Labelled, y_N: Tensor, share_N: Tensor, folder: Path | None, quiet: bool
) -> Classifier:  # fmt: skip
    config = plan.config
    given = read_vectors(config.vectors) if config.vectors else Vectors([], np.zeros((0, config.width), np.float32))
    known = KnownReader.learn(data.texts, config.min_count, config.ngrams, config.buckets, given.words)
    width = given.rows_WD.shape[1]
    dan = Dan(config, known.rows, width, len(data.classes))
    dan.initialise(seeded_generator(plan.seed))
    place = {word: n for n, word in enumerate(given.words)}
    with torch.no_grad():
        for row, word in enumerate(known.words, 1 + known.buckets):
            if word in place:
                dan.vectors_VD[row] = torch.from_numpy(given.rows_WD[place[word]])
    bags = known.read(data.texts)
    _descend(plan, dan, bags.take, y_N, share_N, folder, quiet)
    learnt = set(known.words)
    further = [word for word in given.words[: config.spare] if word not in learnt]
    rows_UD = torch.from_numpy(given.rows_WD[[place[word] for word in further]])
    reader = KnownReader([*known.words, *further], config.ngrams, config.buckets)
    return Classifier("dan", grown(dan.cpu(), rows_UD), reader, data.classes)


def shares(y_N: Tensor, classes: int, balance: bool) -> Tensor:
    """Each example's share in the loss: the same for all, or such that every class has the same."""
    count_C = torch.bincount(y_N, minlength=classes).float()
    return 1 / (classes * count_C)[y_N] if balance else torch.full((len(y_N),), 1 / max(1, len(y_N)))


def _descend(
    plan: Plan, model: nn.Module, take: Callable[[Tensor], Bags | Tensor], y_N: Tensor, share_N: Tensor,
    folder: Path | None, quiet: bool,
) -> None:  # fmt: skip
    """Step by step, each batch a piece of the epoch's own order."""
    device, count = pick_device(plan.device), len(y_N)
    batch = min(plan.how.batch, count)
    steps = count // batch
    weight_N = share_N * count

    def batch_at(step: int) -> tuple[Bags | Tensor, Tensor, Tensor]:
        epoch, place = divmod(step, steps)
        if orders.get("epoch") is None or orders["epoch"][0] != epoch:
            orders["epoch"] = (epoch, torch.randperm(count, generator=seeded_generator(plan.seed * 1009 + epoch)))
        rows = orders["epoch"][1][place * batch : (place + 1) * batch]
        return take(rows).to(device), y_N[rows].to(device), weight_N[rows].to(device)

    def objective(one: tuple[Bags | Tensor, Tensor, Tensor]) -> Tensor:
        inputs, y_B, weight_B = one
        paid_B = F.cross_entropy(
            model(inputs).float(), y_B, reduction="none", label_smoothing=plan.optim.label_smoothing
        )
        return (paid_B * weight_B).mean()

    orders: dict[str, tuple[int, Tensor]] = {}  # the last epoch's
    with single_thread():
        fit(model, objective, batch_at, budget=f"{steps * plan.how.epochs}steps", optim=plan.optim, seed=plan.seed,
            device=device, precision="float32", folder=folder, quiet=quiet)  # fmt: skip


def measure(made: Classifier, data: Labelled) -> Classified:
    """How good it is on some examples."""
    with eval_mode(made.model):
        return classified(made.probabilities(data.texts), torch.from_numpy(data.y_N), made.classes)


def cross_validate(plan: Plan, data: Labelled, count: int) -> tuple[Classified, list[float]]:
    """Every example measured once, by a classifier that has not seen it; and the accuracy of each fold."""
    p_NC, accuracies = torch.zeros(len(data), len(data.classes)), []
    for learn, held in data.folds(count, plan.seed):
        made = fit_classifier(plan, data.take(learn))
        rows = torch.from_numpy(held)
        p_NC[rows] = made.probabilities(data.take(held).texts)
        accuracies.append(float((p_NC[rows].argmax(1) == torch.from_numpy(data.y_N[held])).float().mean()))
    return classified(p_NC, torch.from_numpy(data.y_N), data.classes), accuracies


def train_classifier(
    plan: Plan, sources: Sequence[str], reading: LabelledConfig = LabelledConfig(),  # noqa: B008
    out: str | Path | None = None, folds: int = 0, measured: bool = True, page: Page | None = None,
) -> Classifier:  # fmt: skip
    """Read, train, measure and save. With `folds` it is measured by cross-validation, and learns from everything."""
    if out is not None:
        check_out(out)
    began = time.perf_counter()
    whole = read_labelled(sources, reading)
    learn, test = (whole, whole.take(np.arange(0))) if folds else parted(whole, reading)
    record: dict[str, Any] = {
        "data": {"sources": list(map(str, sources)), "reading": asdict(reading), "counts": whole.counts(),
                 "learnt": _told(learn), "test": _told(test), "folds": folds},
        "training": plan.to_json() | {"finished": False}, "seed": plan.seed,
        "made_with": {"torch": torch.__version__, "python": platform.python_version(), "machine": platform.machine()},
    }  # fmt: skip
    folder = _begin(plan, record, out) if plan.model != "linear" else None
    made = fit_classifier(plan, learn, folder, quiet=out is None)
    made.record = record | {"train_seconds": time.perf_counter() - began}
    made.record["training"] = plan.to_json() | {"finished": True}
    if folds:
        result, accuracies = cross_validate(plan, whole, folds)
        made.record["result"] = result.to_json() | {"folds": accuracies}
    elif measured:
        made.record["result"] = measure(made, test).to_json()
    if out is None:
        return made
    extra = {METRICS: json.dumps(made.record.get("result", {}), allow_nan=False) + "\n"}
    if page is not None and not folds:
        extra[REPORT] = page(made, learn, test)
    return made.save(out, extra)


def resume_classifier(path: str | Path, page_maker: Callable[..., Page] | None = None) -> Classifier:
    """Go on with training that was stopped, as the same command would."""
    told = read_record(path)
    training, data = told.get("training"), told.get("data")
    if told.get("task") != TASK or not isinstance(training, dict) or not isinstance(data, dict):
        raise UserError(f"{path} does not say how it was trained, so there is nothing to go on with; train it anew")
    if training.get("finished", True):
        raise UserError(f"{path} is finished; for longer training, give octavo classify train more --epochs")
    try:
        how = {key: value for key, value in training.items() if key not in ("optim", "finished")}
        config: Any = from_json(CLASSIFIERS[told["model"]].config, told["config"])
        plan = Plan(told["model"], config, from_json(ClassifyConfig, how),
                    from_json(OptimizerConfig, training["optim"]), told["seed"],
                    base=find_base(told["base"]) if told["model"] == "head" else None)  # fmt: skip
        sources, reading, folds = data["sources"], from_json(LabelledConfig, data["reading"]), data["folds"]
    except (KeyError, TypeError) as error:
        raise UserError(f"{path} is damaged or foreign: {error!r}; train it again") from error
    page = page_maker(plan, sources, reading, path) if page_maker else None
    return train_classifier(plan, sources, reading, path, folds, page=page)


def parted(whole: Labelled, reading: LabelledConfig) -> tuple[Labelled, Labelled]:
    """What is learnt from, and what is measured on."""
    if not reading.test:
        return whole.last_tenth()
    return whole, read_labelled(list(reading.test), reading, whole.classes)


def examples_of(made: Classifier) -> tuple[Labelled, Labelled]:
    """What a classifier has learnt from and was measured on, read again; refused where it has changed."""
    told = made.record.get("data", {})
    try:
        reading = from_json(LabelledConfig, told["reading"])
        whole = read_labelled(told["sources"], reading)
        learn, test = (whole, whole.take(np.arange(0))) if told["folds"] else parted(whole, reading)
        same = (learn.sha256, test.sha256) == (told["learnt"]["sha256"], told["test"]["sha256"])
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{made.path} does not say what it learnt from; name a file of examples") from error
    if not same:
        raise UserError(f"{listed(told['sources'])} has changed since {made.path} was trained; name a file of examples")
    return learn, test


def _told(data: Labelled) -> dict[str, Any]:
    return {"examples": len(data), "sha256": data.sha256}


def _begin(plan: Plan, record: dict[str, Any], out: str | Path | None) -> Path | None:
    """A folder that says what is being trained, so that the same command can go on after a stop."""
    if out is None:
        return None
    out = Path(out)
    if (out / STATE).is_dir():
        told = read_record(out)
        training = told.get("training", {})
        if not training.get("finished", True):
            same = told.get("task") == TASK and (told["model"], told["config"]) == (plan.model, asdict(plan.config))
            if same and (training, told["data"]["learnt"]) == (record["training"], record["data"]["learnt"]):
                return out
            raise UserError(f"{out} holds a training run that was stopped, of other settings; choose another --out")
    if plan.base is not None:
        record = record | {"base": describe_base(plan.base)}
    empty = Classifier(plan.model, nn.Module(), HashedReader(1, np.zeros(2, np.int32)), [], record=record)
    empty.model.config = plan.config
    empty.save(out)
    return out
