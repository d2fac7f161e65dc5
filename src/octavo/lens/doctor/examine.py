"""All examinations of one run, in order."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from octavo.errors import UserError
from octavo.lens.doctor.context import context
from octavo.lens.doctor.curve import Curve, Training, bytes_per_token
from octavo.lens.doctor.finding import Diagnosis, Finding, not_applicable
from octavo.lens.doctor.floors import Floors, against_floors, measure_floors
from octavo.lens.doctor.history import events, gradient_lengths, learning_rate, overfitting, start
from octavo.lens.doctor.sight import softmax, through_time
from octavo.run import METRICS, Run
from octavo.text import Split, tokenize
from octavo.training.checkpoint import Checkpoint, check_shapes
from octavo.training.fit import held_out
from octavo.training.watch import read_rows

QUICK = "left out by --quick"
READ = 2_000_000  # bytes of the validation part that the model is looked at with


def examine(run: Run, quick: bool = False) -> Diagnosis:
    """Examine a run; `quick` leaves the floors out. An unfinished one is looked at with its best weights so far."""
    training = Training.of(run)
    if training is not None and not training.finished:
        _take_latest(run)
    curve = _curve(run)
    name = str(run.path or run.name)
    valid, why_not = _validation(run)
    overfits = overfitting(curve, training)
    longer = training.longer() if training is not None and overfits.verdict != "warning" else ""
    floors, floor_finding = _floors(run, curve, valid, why_not if not quick else QUICK, longer)
    bag, bigram = (floors.for_curve(floors.find(order)) if floors else None for order in (1, 2))
    return Diagnosis(name, (
        start(curve, run.model.vocab),
        floor_finding,
        overfits,
        learning_rate(curve, training, run.model.vocab, bag, bigram),
        *_looked_at(run, valid, why_not, gradient_lengths(curve, training)),
        events(curve, training, name),
    ))  # fmt: skip


def _curve(run: Run) -> Curve:
    path = run.path / METRICS if run.path is not None else None
    rows = read_rows(path.read_bytes()) if path is not None and path.is_file() else []
    return Curve.of(rows, bytes_per_token(run))


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


def _floors(
    run: Run, curve: Curve, valid: Split | None, why_not: str, longer: str
) -> tuple[Floors | None, Finding]:  # fmt: skip
    """The floors, unless there is a reason why not."""
    if valid is None or why_not:
        return None, not_applicable("floors", why_not)
    floors = measure_floors(run, valid)
    return floors, against_floors(floors, curve, run.model, longer)


def _looked_at(run: Run, valid: Split | None, why_not: str, lengths: Finding) -> list[Finding]:
    """What the model does with the validation text."""
    if valid is None:
        softmax_, time_, context_ = (
            not_applicable(name, why_not) for name in ("softmax", "gradients in time", "context")
        )
        return [softmax_, lengths, time_, context_]
    x_N = _tokens(run, valid)
    return [
        softmax(run.model, x_N), lengths, through_time(run.model, x_N), context(run.model, run.tokenizer, x_N)
    ]  # fmt: skip


def _tokens(run: Run, valid: Split) -> Tensor:
    """The beginning of the text, without the begin token in front of it."""
    part = Split(valid.text, valid.start, valid.start + min(valid.size, READ))
    return torch.from_numpy(tokenize(part, run.tokenizer).tokens[1:].astype(np.int64))
