"""All examinations of one run, of any task: the causes first, then what follows from them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from octavo.errors import UserError
from octavo.inspection.doctor.baselines import Baselines, compare_with_baselines, measure_baselines
from octavo.inspection.doctor.examples import examine_examples, examples_of, label_entropy
from octavo.inspection.doctor.expectation import Expectation
from octavo.inspection.doctor.fresh_model import Bench, loss_of, try_set_up
from octavo.inspection.doctor.inner_workings import attention, evaluation, gates
from octavo.inspection.doctor.progress import progress
from octavo.inspection.doctor.text_quality import examine_text, examine_tokenizer
from octavo.inspection.doctor.unseen_text import context, softmax, through_time
from octavo.inspection.doctor.weights import examine_weights
from octavo.io.compressed import read_whole
from octavo.io.run_folder import METRICS
from octavo.tasks.corpus import held_out, learnt_text
from octavo.tasks.run import Run
from octavo.tasks.task import find_task
from octavo.text import Corpus, Split, tokenize
from octavo.training.checkpoint import Checkpoint, check_shapes
from octavo.training.diagnosis.curve import Training, TrainingCurve, bytes_per_token
from octavo.training.diagnosis.finding import Diagnosis, Finding, fitting, not_applicable, settings
from octavo.training.diagnosis.history import examine_history, start
from octavo.training.metrics_log import read_rows

QUICK = "left out by --quick"
MODEL = ("softmax", "gradient flow", "context")  # found by examining the model, not its history
READ = 2_000_000  # bytes of the validation part that the model is examined with
TOKENIZED = 200_000  # bytes of each part that the tokenizer is examined with
CAUSES = (
    "evaluation", "text", "tokenizer", "start", "weights", "events", "stability", "gates", "attention", "examples",
    "gradient lengths", "units", "overfitting", "progress", "gradient flow", "softmax", "baselines", "context",
)  # fmt: skip
LEADING = {  # causes among what is measured last
    "impossible tokens": "tokenizer", "order too high": "tokenizer", "stopped too early": "gradient lengths",
    "weight decay too strong": "weights", "learning rate too high": "stability",
}  # fmt: skip


def examine(run: Any, quick: bool = False) -> Diagnosis:
    """Examine a run of any task. `quick` leaves out the baselines, which have to be counted.

    An unfinished language model is examined with its best weights so far.
    """
    training, name = Training.of(run), str(run.path or run.name)
    path = run.path / METRICS if run.path is not None else None
    rows = read_rows(read_whole(path)) if path is not None and path.is_file() else []
    is_language = isinstance(run, Run) and run.task == "language"
    if is_language and training is not None and not training.finished:
        _take_latest(run)
    bench, why_not = try_set_up(run)
    with ExitStack() as stack:
        for stage in (bench.trained, bench.fresh) if bench is not None else ():
            stack.enter_context(stage.around())
        if is_language:
            findings = _examine_language(run, rows, training, bench, why_not, quick)
        else:
            findings = _examine_examples(run, rows, training, bench, why_not)
    own = settings(run.model, training)
    fitted = [replace(one, advice=fitting(one.advice, run.model, own)) for one in findings]
    return Diagnosis.of(name, sorted(fitted, key=lambda one: CAUSES.index(LEADING.get(one.condition, one.name))))


def _examine_model(
    run: Any, curve: TrainingCurve, training: Training | None, bench: Bench | None, why_not: str, choices: int
) -> list[Finding]:
    """What the same settings and seed tell of a model of any task: its start, its weights, whether it is random."""
    what = "token" if isinstance(run, Run) and run.task == "language" else "answer"
    config = run.model.config
    expects_itself = getattr(config, "tied", False) and getattr(config, "init", "") == "zero"
    if bench is None:
        missing = [not_applicable(name, why_not) for name in ("weights", "units", "evaluation")]
        return [start(curve, choices, None, expects_itself, what), *missing]
    first = loss_of(bench.fresh, 0, True, bench.recipe.seed)
    return [
        start(curve, choices, first, expects_itself, what), *examine_weights(bench, training, curve.steps),
        evaluation(bench),
    ]  # fmt: skip


def _examine_examples(
    run: Any, rows: list[dict[str, Any]], training: Training | None, bench: Bench | None, why_not: str
) -> list[Finding]:
    """The findings of a run that is no language model; of several stages, the first starts anew."""
    first = next((row.get("stage") for row in rows if "step" in row), None)
    curve = TrainingCurve.of([row for row in rows if row.get("stage") == first], 1.0)
    choices = find_task(run.task).choices(run)
    data = bench.data if bench is not None else _data_of(run)
    examples = examples_of(data)
    findings = [
        *_examine_model(run, curve, training, bench, why_not, choices),
        *examine_history(run, rows, str(run.path or run.name)),
        progress(curve, training, choices, label_entropy(examples)),
    ]  # fmt: skip
    if isinstance(data, Corpus):
        findings.append(examine_text(data.train, data.valid))
    if examples is not None:
        findings.append(examine_examples(examples, run.record.get("result", {}), bench, curve.steps))
    return findings


def _data_of(run: Any) -> Any:
    """The data of a run that was not trained step by step; None where they cannot be had any more."""
    try:
        return run.data()
    except UserError:
        return None


def _examine_language(
    run: Run, rows: list[dict[str, Any]], training: Training | None, bench: Bench | None, why_not: str, quick: bool
) -> list[Finding]:
    curve = TrainingCurve.of(rows, bytes_per_token(run))
    valid, baselines, why_gone, why_none = _measure_text(run, quick)
    known = Expectation(what=run.tokenizer.unit)
    if baselines is not None:
        bag, pairs = (baselines.for_curve(baselines.find(order)) for order in (1, 2))
        known = Expectation(bag, pairs, run.tokenizer.unit)
    findings = [
        *_examine_model(run, curve, training, bench, why_not, run.model.vocab),
        *examine_history(run, rows, str(run.path or run.name)),
        progress(curve, training, run.model.vocab, known, run.model.config),
        *(_unseen_text(run, valid) if valid is not None else [not_applicable(name, why_gone) for name in UNSEEN]),
    ]  # fmt: skip
    if baselines is None:
        return [*findings, not_applicable("baselines", why_none)]
    overfits = any(one.name == "overfitting" and one.verdict == "warning" for one in findings)
    longer = "" if overfits else _longer(run, curve, training)
    own = settings(run.model, training)
    fitted = [replace(one, advice=fitting(one.advice, run.model, own)) for one in findings]
    is_ill = _is_ill(fitted, curve, training)
    return [*findings, compare_with_baselines(baselines, curve, run.model, longer, is_ill)]


UNSEEN = ("text", "tokenizer", "gates", "attention", "softmax", "gradient flow", "context")


def _measure_text(run: Run, quick: bool) -> tuple[Split | None, Baselines | None, str, str]:
    """The held-out text and the baselines; for each that is None, why."""
    try:
        valid = held_out(run)[1]
    except UserError as error:
        gone = f"the run's own text is needed: {str(error).partition(';')[0]}"
        return None, None, gone, QUICK if quick else gone
    if quick:
        return valid, None, "", QUICK
    try:
        return valid, measure_baselines(run, valid), "", ""
    except UserError as error:  # there are tokenizers that count models cannot have
        return valid, None, "", str(error).partition(";")[0]


def _unseen_text(run: Run, valid: Split) -> list[Finding]:
    """The text and what the model does with the validation part of it."""
    x_N = torch.from_numpy(tokenize(valid.first(READ), run.tokenizer).tokens[1:].astype(np.int64))  # without begin
    x_T = x_N[x_N != run.model.begin].tolist()
    try:
        train = learnt_text(run)
        tokens_N = tokenize(train.first(TOKENIZED), run.tokenizer).tokens.astype(np.int64)
        of_text = [examine_text(train, valid),
                   examine_tokenizer(run.tokenizer, tokens_N, valid.first(TOKENIZED).read())]  # fmt: skip
    except UserError as error:
        of_text = [not_applicable(name, str(error).partition(";")[0]) for name in ("text", "tokenizer")]
    return [
        *of_text, gates(run.model, x_T), attention(run.model, x_T), softmax(run.model, x_N),
        through_time(run.model, x_N), context(run.model, run.tokenizer, x_N),
    ]  # fmt: skip


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
        causes = [one for one in notable if one.name not in MODEL and training.longer() not in one.advice]
        return any(one.verdict == "warning" for one in causes)
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
