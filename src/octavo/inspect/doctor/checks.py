"""All examinations of one run, in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from octavo.errors import UserError
from octavo.inspect.doctor.baselines import compare_with_baselines, measure_baselines
from octavo.inspect.doctor.curve import Training, TrainingCurve, bytes_per_token
from octavo.inspect.doctor.finding import Diagnosis, Finding, fitting, not_applicable, settings
from octavo.inspect.doctor.training_history import (
    events,
    falling_measure,
    gradient_lengths,
    learning_rate,
    overfitting,
    start,
)
from octavo.inspect.doctor.unseen_text import context, softmax, through_time
from octavo.io.run_folder import METRICS
from octavo.tasks.corpus import held_out
from octavo.tasks.run import Run
from octavo.tasks.task import find_task
from octavo.text import Split, tokenize
from octavo.training.checkpoint import Checkpoint, check_shapes
from octavo.training.metrics_log import read_rows

QUICK = "left out by --quick"
MODEL = ("softmax", "gradient flow", "context")  # found by examining the model, not its history
READ = 2_000_000  # bytes of the validation part that the model is examined with


def examine(run: Any, quick: bool = False) -> Diagnosis:
    """Examine a run of any task; of one that is no language model, the history of its training.

    `quick` leaves the baselines out. An unfinished language model is examined with its best weights so far.
    """
    training, name = Training.of(run), str(run.path or run.name)
    path = run.path / METRICS if run.path is not None else None
    rows = read_rows(path.read_bytes()) if path is not None and path.is_file() else []
    if isinstance(run, Run):
        findings = _examine_language(run, TrainingCurve.of(rows, bytes_per_token(run)), training, quick)
    else:
        curve, choices = TrainingCurve.of(rows, 1.0), find_task(run.task).choices(run)
        findings = [
            start(curve, choices, what="answer"), falling_measure(curve, rows, training),
            learning_rate(curve, training, choices), gradient_lengths(curve, training), events(curve, training, name),
        ]  # fmt: skip
    own = settings(run.model, training)
    return Diagnosis(name, tuple(replace(one, advice=fitting(one.advice, run.model, own)) for one in findings))


def _examine_language(run: Run, curve: TrainingCurve, training: Training | None, quick: bool) -> list[Finding]:
    """The findings of a language model, in the order of their report."""
    if training is not None and not training.finished:
        _take_latest(run)
    valid, why_not = _validation(run)
    overfits = overfitting(curve, training)
    baselines, why_none = None, QUICK if quick else why_not
    if valid is not None and not quick:
        try:
            baselines = measure_baselines(run, valid)
        except UserError as error:  # there are tokenizers that count models cannot have
            why_none = str(error).partition(";")[0]
    bag, bigram = (baselines.for_curve(baselines.find(order)) if baselines else None for order in (1, 2))
    config, own = run.model.config, settings(run.model, training)
    is_even = getattr(config, "tied", False) and getattr(config, "init", "") == "zero"
    first, *others = (
        start(curve, run.model.vocab, is_even), overfits,
        learning_rate(curve, training, run.model.vocab, bag, bigram),
        *_unseen_text(run, valid, why_not, gradient_lengths(curve, training)),
        events(curve, training, str(run.path or run.name)),
    )  # fmt: skip
    if baselines is None:
        return [first, not_applicable("baselines", why_none), *others]
    longer = _longer(run, curve, training) if overfits.verdict != "warning" else ""
    fitted = [replace(one, advice=fitting(one.advice, run.model, own)) for one in (first, *others)]
    is_ill = _is_ill(fitted, curve, training)
    return [first, compare_with_baselines(baselines, curve, run.model, longer, is_ill), *others]


def _longer(run: Run, curve: TrainingCurve, training: Training | None) -> str:
    """How to train for longer; a bigram only where its steps did not suffice."""
    if training is not None:
        return training.longer()
    steps = getattr(run.model.config, "steps", 0)
    return f"train longer: --steps {2 * steps}" if 0 < steps <= curve.steps else ""


def _is_ill(findings: Sequence[Finding], curve: TrainingCurve, training: Training | None) -> bool:
    """Whether the findings say what else is wrong with a run than that it was short."""
    notable = [one for one in findings if one.advice and one.verdict in ("note", "warning")]
    if training is not None and training.is_short(curve.steps):  # what the model does not do yet is no illness
        return any(one.verdict == "warning" and one.name not in MODEL for one in notable)
    return any(training is None or training.longer() not in one.advice for one in notable)


def _take_latest(run: Run) -> None:
    """The weights of the last checkpoint: the folder's own model is still the untrained one."""
    try:
        tensors = Checkpoint.load(run.path).tensors if run.path is not None else {}
    except UserError:  # stopped before the first checkpoint: there are only the weights it began with
        return
    weights = tensors.get("best") or tensors.get("weights") or {}
    check_shapes(weights, dict(run.model.named_parameters()), "weights")
    run.model.load_state_dict(weights, strict=False)


def _validation(run: Run) -> tuple[Split | None, str]:
    """The text that the run is measured on; or why it cannot be had."""
    try:
        return held_out(run)[1], ""
    except UserError as error:
        return None, f"the run's own text is needed: {str(error).partition(';')[0]}"


def _unseen_text(run: Run, valid: Split | None, why_not: str, lengths: Finding) -> list[Finding]:
    """What the model does with the validation text."""
    if valid is None:
        first, *others = (not_applicable(name, why_not) for name in MODEL)
        return [first, lengths, *others]
    part = Split(valid.text, valid.start, valid.start + min(valid.size, READ))
    x_N = torch.from_numpy(tokenize(part, run.tokenizer).tokens[1:].astype(np.int64))  # without begin in front
    return [
        softmax(run.model, x_N), lengths, through_time(run.model, x_N), context(run.model, run.tokenizer, x_N)
    ]  # fmt: skip
