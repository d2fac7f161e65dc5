"""Examples with answers (classes of texts or images, translations): whether the answers have to do with the questions,
whether the model always says the same, and whether held-out examples were learnt from.

N examples, B of a batch, C classes.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from octavo.datasets.images import Images
from octavo.datasets.pairs import Pairs
from octavo.inspection.doctor.expectation import Expectation
from octavo.inspection.doctor.fresh_model import CPU, Bench
from octavo.tasks.classification import ClassificationData
from octavo.training.diagnosis.finding import Finding, not_applicable, percent
from octavo.training.stage import RowBatch

ERRORS = 3.0  # standard errors that an accuracy must be above that of the commonest class
LEAKED = 0.3  # of the held-out examples: short ones are the same by chance now and then
RARE = 0.02  # of the examples: a class above it should be said now and then
IGNORED = 0.02  # of the loss: so much worse must an answer be to another's question
LEAST = 20  # examples, or rows of a batch
UNRELATED, LEAK, ONE_CLASS = "labels unrelated to inputs", "data leak", "one class only"


class Examples(NamedTuple):
    """What is learnt from and measured on, each example as something that can be compared, and the answers' shares."""

    learnt: Sequence[Hashable]
    held_out: Sequence[Hashable]
    shares: Mapping[str, float] = {}


def examples_of(data: Any) -> Examples | None:
    """The examples of a task's data; None of a task that has none."""
    if isinstance(data, ClassificationData):
        counts = data.learn.counts()
        total = max(1, sum(counts.values()))
        return Examples(data.learn.texts, data.test.texts, {name: n / total for name, n in counts.items()})
    if isinstance(data, Images):
        count_C = torch.bincount(data.train_N, minlength=len(data.labels)).double()
        shares = dict(zip(data.labels, (count_C / count_C.sum()).tolist(), strict=True))
        return Examples(_hashes(data.train_NCHW), _hashes(data.test_NCHW), shares)
    if isinstance(data, Pairs):
        learnt, held = ([*zip(part.sources, *part.targets, strict=True)] for part in (data.train, data.test))
        return Examples(learnt, held)
    return None


def _hashes(x_NCHW: Tensor) -> list[bytes]:
    return [x_CHW.numpy().tobytes() for x_CHW in x_NCHW]


def label_entropy(examples: Examples | None) -> Expectation:
    """The cost of an answer that is only as frequent as it is, in bits."""
    if examples is None or not examples.shares:
        return Expectation(what="answers")
    bits = -sum(share * math.log2(share) for share in examples.shares.values() if share > 0)
    return Expectation(bits or None, None, "classes")


def examine_examples(examples: Examples, result: Mapping[str, Any], bench: Bench | None, steps: int) -> Finding:
    """Held-out examples that were learnt from, one class for all, or answers that do not depend on the inputs."""
    name, held = "examples", len(examples.held_out)
    if held < LEAST and examples.shares:
        return not_applicable(name, f"it takes {LEAST} held-out examples, and there are {held}")
    known = set(examples.learnt)
    leaked = sum(one in known for one in examples.held_out) / max(1, held)
    values: dict[str, Any] = {"leaked": leaked, "held_out": held}
    expected = "held-out examples not learnt from, answers better than chance"
    if leaked > LEAKED and held >= LEAST:
        why = f"{percent(leaked, 0)} of the held-out examples stand in the training part too, and were learnt."
        advice = ("keep one copy of each example", "name others to measure on: --test FILE")
        return Finding(name, "warning", f"{percent(leaked, 0)} seen in training", expected, why, advice, values, LEAK)
    if examples.shares and isinstance(result.get("accuracy"), float):
        return _judge_classes(examples, result, values, expected)
    rise = None if bench is None or not steps else rise_with_others(bench)
    if rise is None:
        return not_applicable(name, "its inputs and answers cannot be separated")
    values["rise"] = rise
    measured = f"loss {percent(rise, sign=True)} with another's source"
    if rise < IGNORED:
        why = f"with other pairs' sources the loss is only {percent(rise, sign=True)} higher: they are not used."
        advice = ("see that sources and targets stand line by line beside each other", "train longer: --budget 10min")
        return Finding(
            name, "warning", measured, f"{percent(IGNORED, 0, True)} or more", why, advice, values, UNRELATED
        )
    return Finding(
        name, "ok", measured, f"{percent(IGNORED, 0, True)} or more", "answers depend on the inputs.", (), values
    )


def _judge_classes(examples: Examples, result: Mapping[str, Any], values: dict[str, Any], expected: str) -> Finding:
    confusion_CC, names = np.array(result["confusion"]), result["classes"]
    held, accuracy = int(confusion_CC.sum()), float(result["accuracy"])
    common = max(examples.shares, key=lambda one: examples.shares[one])
    chance = float(confusion_CC.sum(1).max() / max(1, held))  # by always saying the commonest held-out class
    error = math.sqrt(chance * (1 - chance) / max(1, held))
    said = {one for one, count in zip(names, confusion_CC.sum(0).tolist(), strict=True) if count}
    missed = [one for one, share in examples.shares.items() if share > RARE and one not in said]
    values |= {"accuracy": accuracy, "chance": chance, "error": error, "never_said": missed}
    measured = f"{percent(accuracy)} right, {percent(chance)} by chance"
    if len(said) == 1:
        why = (
            f"it answers {next(iter(said))!r} to every held-out example, and never {', '.join(map(repr, missed[:3]))}."
        )
        advice = ("let every class count the same: --balance", "more epochs: --epochs 30")
        return Finding("examples", "warning", measured, expected, why, advice, values, ONE_CLASS)
    if accuracy < chance + ERRORS * error and chance < 1:
        why = (
            f"{percent(accuracy)} of the held-out answers are right, and {percent(chance)} would be by always saying "
            f"{common!r} (standard error {percent(error)}): what was learnt says nothing about other examples."
        )
        advice = ("see that every label stands beside its own example", "more examples")
        return Finding("examples", "warning", measured, expected, why, advice, values, UNRELATED)
    return Finding("examples", "ok", measured, expected, "better than chance on examples not seen.", (), values)


@torch.no_grad()
def rise_with_others(bench: Bench) -> float | None:
    """How much higher the loss is when each answer is asked of the next row's input; None where rows are too few."""
    stage = bench.trained
    batch = max((stage.batch(number) for number in range(4)), key=lambda one: one.rows)
    tensors: tuple[Tensor, ...] = getattr(batch, "tensors", ())
    if len(tensors) != 4 or batch.rows < LEAST:
        return None
    order_B = torch.arange(batch.rows).roll(1)
    swapped = RowBatch((tensors[0][order_B], tensors[1][order_B], *tensors[2:]), batch.targets)
    stage.model.eval()
    own, other = (
        float(stage.objective(stage.start(one.rows), one.part(0, one.rows, CPU))[0]) for one in (batch, swapped)
    )
    return other / max(own, 1e-9) - 1
