"""What the history of a run says: its start, its stability, overfitting, progress, gradients' lengths, and events.

Nothing here reads the text or the model: the page of a run and `octavo doctor` both show these findings, word for word.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any

from octavo.training.diagnosis.curve import FAR, Training, TrainingCurve, as_number, bytes_per_token, lowest_tenth
from octavo.training.diagnosis.finding import GATES, Finding, Verdict, not_applicable, percent

START_NOTE = 0.05  # of ln(vocabulary): logits of spread s cost s²/2 nats, so for 257 tokens a spread of about 0.75
START_WARNING = 0.5  # the first steps then only take back what the initialisation put in
RISE = 0.02  # of held-out bits over their best: the same chunks are measured each time, so less would still be noise
GAP, WIDE_GAP = 0.15, 0.4  # of held-out over training bits: another text of the same kind differs by a few per cent
FEW_POINTS = 20  # logged steps: with fewer there is no beginning, middle and end to compare
WORSE = 0.05  # of the loss: the end over the best tenth
DAMPED = 0.10  # of training over held-out bits: dropout noises the one and not the other
HIGH_DROPOUT = 0.3
VANISHED = 1e-6  # over ten thousand weights that is 1e-8 each, the epsilon that Adam adds to it
SPIKE, OUTBURST = 10.0, 100.0  # times the median length
MANY_SPIKES, BURSTS = 0.01, 0.1  # of the steps
MOSTLY, ALWAYS = 0.5, 0.9  # of the steps: clipping is then the rule and no longer the exception
FAR_OVER_CLIP = 10.0  # times the clip: then it is the clip that is wrong, not the gradient

SMALLER = (
    "smaller initial weights: --init gpt2", "smaller initial weights: --init orthogonal",
    "smaller initial weights: --init xavier", "a greater --width, where embeddings are tied",
    "output weights that are not the embeddings: --no-tied",
)  # fmt: skip


def examine_history(run: Any, rows: Sequence[Mapping[str, Any]], name: str) -> list[Finding]:
    """All that a run's metrics.jsonl shows by itself, of several stages the last; `name` is what messages call the run.

    A language model's held-out text is judged by bits per byte, held-out examples of another task by their measure:
    accuracy, BLEU.
    """
    training, last = Training.of(run), next((row.get("stage") for row in reversed(rows) if "step" in row), None)
    of_stage = [row for row in rows if row.get("stage") == last]
    if run.task == "language":
        curve = TrainingCurve.of(of_stage, bytes_per_token(run))
        overfits = overfitting(curve, training)
        damped = too_much_dropout(curve, training, getattr(run.model.config, "dropout", 0.0))
        overfits = damped if damped is not None and overfits.verdict != "warning" else overfits
    else:
        curve = TrainingCurve.of(of_stage, 1.0)
        overfits = falling_measure(curve, of_stage, training)
    return [events(curve, training, name), stability(curve, training), gradient_lengths(curve, training), overfits]


def start(
    curve: TrainingCurve, choices: int, expected: float | None = None, expects_itself: bool = False, what: str = "token"
) -> Finding:
    """The first loss against that of a model which is made again from the same settings and seed, and against ln V.

    `expected` is the new model's loss on the first batch; None where it could not be had. ln V is the cost of a model
    that knows nothing, and knows it. A transformer whose parts add nothing at first, and whose output weights are its
    embeddings, expects each token once more, and costs more than that.
    """
    name, even = "start", math.log(max(2, choices))
    if not curve.points or curve.points[0].step != 1:
        return not_applicable(name, "there is no loss of a first step: the model was counted, or not logged from it")
    first = curve.points[0].loss
    wanted = even if expected is None else expected
    off, over = first / wanted - 1, first / even - 1
    unit = f"{'a' if what == 'token' else 'an'} {what}"
    measured = f"{first:.3f} nats {unit}"
    about = f"ln {choices:,} = {even:.3f}"
    shown = f"{about}, within {percent(START_NOTE, 0)}" if expected is None else (
        f"{expected:.3f}, as these settings and seed start; {about}")  # fmt: skip
    values = {"loss": first, "expected": expected, "ln_vocab": even, "bits_per_token": first / math.log(2), "off": off}
    bad = "bad initialisation"
    if expected is not None and abs(off) > START_NOTE:
        why = (
            f"a new model of the same settings and seed starts at {expected:.3f} nats {unit}, this one started at "
            f"{first:.3f}: its first weights, or its first batch, were others than octavo's."
        )
        anew = "train it again from new weights, with the same command: octavo train ... --force"
        return Finding(name, "warning", measured, shown, why, (anew, *SMALLER), values, bad)
    agrees = "" if expected is None else f"a new model of the same settings and seed starts at {expected:.3f} too; "
    if over > START_NOTE and expects_itself:
        why = f"{agrees}above ln V because its embeddings are its output weights too: at first it expects each token "
        return Finding(name, "ok", measured, shown, f"{why}once more.", (), values)
    if over > START_NOTE:
        verdict: Verdict = "note" if over <= START_WARNING else "warning"
        why = f"{agrees}the untrained model is sure of wrong things, because its first logits are too large."
        return Finding(name, verdict, measured, shown, why, SMALLER, values, bad)
    if over < -START_NOTE and expected is None:
        why = "an untrained model cannot do better than chance, so it has seen the answer, or was trained before."
        see = "see that the model cannot look at the token it predicts, and that training began from new weights"
        verdict = "note" if over >= -START_WARNING else "warning"
        return Finding(name, verdict, measured, shown, why, (see,), values, "start below chance")
    why = f"{agrees}before it learns, the model gives every one of the {choices:,} {what}s about the same chance."
    return Finding(name, "ok", measured, shown, why, (), values)


UNSTABLE = ("a longer --sequence-length", *GATES)


def stability(curve: TrainingCurve, training: Training | None) -> Finding:
    """A training loss that rises again, or held-out text that gets worse without anything being learnt by heart."""
    name, n = "stability", len(curve.points)
    if n < FEW_POINTS:
        return not_applicable(name, f"it takes {FEW_POINTS} logged steps to judge the curve, and there are {n}")
    first, end = curve.points[0].loss, curve.mean(0.9, 1)
    lowest = lowest_tenth([point.loss for point in curve.points])
    over = end / lowest - 1
    values = {"first": first, "end": end, "over_lowest": over}
    measured, expected = f"loss {percent(over, sign=True)} over its lowest", f"at most {percent(WORSE, 0, sign=True)}"
    lower = (training.lower_rate(), training.warmup()) if training else ("a lower --learning-rate",)
    if end > (1 + WORSE) * lowest or end > (1 + WORSE) * first:
        why = f"the training loss rose again, from {lowest:.3f} to {end:.3f} nats: the steps are too large."
        return Finding(name, "warning", measured, expected, why, lower, values, "learning rate too high")
    held = _held_out_rise(curve, training)
    if held is not None and held["rise"] > RISE and not held["by_heart"]:
        why = (
            f"held-out text got worse, {held['best_held_out']:.3f} to {held['last_held_out']:.3f} bits per byte since "
            f"step {held['best_step']:,}, and it is not overfitting: "
        ) + (
            f"the training text did not get better ({held['train_at_best']:.3f} to {held['train_bits_per_byte']:.3f})."
            if held["train_bits_per_byte"] >= held["train_at_best"] else
            "nothing was read twice. The steps are too large, the model is wrong on texts longer than a window, or "
            "training is shown other targets than the next token."
        )  # fmt: skip
        measured = f"held out {percent(held['rise'], sign=True)} since its best"
        expected = f"at most {percent(RISE, 0, sign=True)}"
        return Finding(name, "warning", measured, expected, why, (*lower, *UNSTABLE), values | held, "instability")
    why = "neither the training loss nor that of held-out text rose again."
    return Finding(name, "ok", measured, expected, why, (), values)


def _held_out_rise(curve: TrainingCurve, training: Training | None) -> dict[str, Any] | None:
    """How held-out text fared since its best, and the training text meanwhile; None where too little was measured."""
    if len(curve.checks) < 3 or not curve.points:
        return None
    best, last = min(curve.checks, key=lambda check: check.bits), curve.checks[-1]
    learnt, at_best = (curve.bits(loss) for loss in (curve.mean(0.9, 1), curve.near(best.step)))
    epochs = last.step / training.steps_per_epoch if training and training.steps_per_epoch else None
    return {
        "best_step": best.step, "best_held_out": best.bits, "last_held_out": last.bits,
        "rise": last.bits / best.bits - 1, "train_at_best": at_best, "train_bits_per_byte": learnt, "epochs": epochs,
        "by_heart": learnt < at_best and (epochs is None or epochs >= 1),
    }  # fmt: skip


def overfitting(curve: TrainingCurve, training: Training | None) -> Finding:
    """Held-out text that gets worse while the training text gets better; or the other way round, too much dropout."""
    name, held = "overfitting", _held_out_rise(curve, training)
    if held is None:
        count = len(curve.checks)
        return not_applicable(name, f"it takes three checks on held-out text to see, and there are {count}")
    smoothed = training is not None and training.optim.label_smoothing > 0  # which is part of the logged loss
    epochs, learnt, last = held["epochs"], held["train_bits_per_byte"], held["last_held_out"]
    gap = last / learnt - 1 if learnt > 0 and not smoothed else None
    values = held | {"gap": gap}
    read = "" if epochs is None else f" The text was read {epochs:,.{0 if epochs >= 10 else 1}f} times."
    measured = f"held out {percent(held['rise'], sign=True)} since its best at step {held['best_step']:,}"
    expected = f"at most {percent(RISE, 0, sign=True)}, and {percent(GAP, 0)} over training"
    if held["rise"] > RISE and held["by_heart"]:
        why = (
            f"held-out text got worse ({held['best_held_out']:.3f} to {last:.3f} bits per byte) while the training "
            f"text got better ({held['train_at_best']:.3f} to {learnt:.3f}): the model learns it by heart.{read} "
            "The best weights were saved."
        )
        return Finding(name, "warning", measured, expected, why, OVERFITTING, values, "overfitting")
    if held["rise"] > RISE:
        why = "held-out text got worse, but not by learning the training text by heart: see what stability says."
        return Finding(name, "ok", "nothing learnt by heart", expected, why, (), values)
    if gap is not None and gap > GAP and (epochs is None or epochs >= 1):
        why = f"held-out text costs {percent(gap, 0)} more than the training text, {last:.3f} to {learnt:.3f}.{read}"
        verdict: Verdict = "warning" if gap > WIDE_GAP and (epochs or 0) >= 2 else "note"
        measured = f"held out {percent(gap, 0, sign=True)} over training"
        return Finding(name, verdict, measured, expected, why, OVERFITTING, values, "overfitting")
    return Finding(name, "ok", measured, expected, f"held-out text keeps up with the training text.{read}", (), values)


def too_much_dropout(curve: TrainingCurve, training: Training | None, dropout: float) -> Finding | None:
    """Where training text, with dropout, costs far more than held-out text, without it; None where it does not."""
    smoothed = training is not None and training.optim.label_smoothing > 0
    if dropout < HIGH_DROPOUT or smoothed or not curve.checks or len(curve.points) < FEW_POINTS:
        return None
    learnt, last = curve.bits(curve.mean(0.9, 1)), fmean(check.bits for check in curve.checks[-2:])
    over = learnt / last - 1
    if over <= DAMPED:
        return None
    why = (
        f"with dropout {dropout:g} the training text costs {learnt:.3f} bits per byte, held-out text without it "
        f"{last:.3f}: so much is dropped that the model cannot learn what it could."
    )
    measured, expected = f"training {percent(over, sign=True)} over held out", f"at most {percent(DAMPED, 0, True)}"
    values = {"dropout": dropout, "train_bits_per_byte": learnt, "held_out": last, "over": over}
    return Finding("overfitting", "warning", measured, expected, why, ("less dropout: --dropout 0.1",), values,
                   "too much dropout")  # fmt: skip


def falling_measure(curve: TrainingCurve, rows: Sequence[Mapping[str, Any]], training: Training | None) -> Finding:
    """A measure of held-out examples (accuracy, BLEU) that falls while the training loss still falls."""
    name, key = "overfitting", (training.best_measure if training else "") or "accuracy"
    measured = [(row["step"], row[key]) for row in rows if type(row.get("step")) is int
                and as_number(row.get(key)) is not None]  # fmt: skip
    if len(measured) < 3 or not curve.points:
        why = f"it takes three evaluations on held-out examples to see, and there are {len(measured)}"
        return not_applicable(name, why)
    (best_step, best), last = max(measured, key=lambda one: one[1]), measured[-1][1]
    fall, at_best, end = 1 - last / best if best > 0 else 0.0, curve.near(best_step), curve.mean(0.9, 1)
    values = {"measure": key, "best_step": best_step, "best": best, "last": last, "fall": fall, "train_loss": end}
    called = key.replace("_", " ")
    shown, expected = f"{called} {percent(-fall, sign=True)} since step {best_step:,}", f"at least {percent(-GAP, 0)}"
    if fall > GAP and end < at_best:
        why = (
            f"the {called} of held-out examples fell ({best:.3f} to {last:.3f}) while the training loss fell "
            f"({at_best:.3f} to {end:.3f}): the model learns the training examples by heart."
        )
        return Finding(name, "warning", shown, expected, why, OVERFITTING, values, "overfitting")
    return Finding(name, "ok", shown, expected, "held-out examples keep up with the training examples.", (), values)


OVERFITTING = (
    "stop in time: --patience 3", "more dropout: --dropout 0.2", "a higher --weight-decay", "a smaller --width",
    "fewer --layers", "a smaller --hidden", "a smaller --dim", "more text, which helps most",
)  # fmt: skip


def gradient_lengths(curve: TrainingCurve, training: Training | None) -> Finding:
    """The lengths of the gradients over the run: vanished, bursting, or clipped as a rule."""
    name = "gradient lengths"
    norms = [point.norm for point in curve.points if point.norm is not None]
    if not norms or training is None:
        return not_applicable(name, "the run logged no gradients")
    if len(norms) < FEW_POINTS:
        return not_applicable(name, f"it takes {FEW_POINTS} logged steps to judge them, and there are {len(norms)}")
    usual, late, most = median(norms), median(norms[len(norms) // 2 :]), max(norms)
    clip, settled = training.optim.clip, norms[len(norms) // 10 :]  # the first tenth holds the warm-up
    clipped = sum(norm > clip for norm in settled) / len(settled) if clip else 0.0
    spikes = sum(norm > SPIKE * usual for norm in norms) / len(norms)
    values = {"median": usual, "late": late, "most": most, "clipped": clipped, "spikes": spikes}
    measured = f"median {usual:.2g}, most {most:.2g}, {percent(clipped, 0)} clipped"
    expected = f"above {VANISHED:g}, no bursts, mostly below the clip of {clip:g}" if clip else f"above {VANISHED:g}"
    lower = (training.lower_rate(), training.warmup())
    advice: tuple[str, ...]
    if late < VANISHED:
        why = "the gradients have vanished: the weights no longer change by them."
        advice = ("--init orthogonal", *GATES, "fewer --layers", training.higher_rate())
        return Finding(name, "warning", measured, expected, why, advice, values, "vanishing gradients")
    if most > OUTBURST * usual or spikes > BURSTS:
        times = f"{percent(spikes)} are over {SPIKE:g} times the median, one {most / usual:.0f} times"
        why = f"the gradients exploded: {times}."
        advice = (*lower, *(() if clip else ("--clip 1",)))
        return Finding(name, "warning", measured, expected, why, advice, values, "exploding gradients")
    if clipped > MOSTLY:
        always = clipped > ALWAYS and usual > FAR_OVER_CLIP * clip
        why = f"{percent(clipped, 0)} of the steps were clipped, so that the clip sets the length of a step."
        advice = (f"a higher --clip {max(2 * clip, usual):.3g}", training.lower_rate())
        verdict: Verdict = "warning" if always else "note"
        return Finding(name, verdict, measured, expected, why, advice, values, "clipping")
    if spikes > MANY_SPIKES and training.raised > FAR:
        why = (
            f"{percent(spikes)} of the gradients are over {SPIKE:g} times the median, and the learning rate is "
            f"{training.raised:.3g} times the usual one."
        )
        return Finding(name, "warning", measured, expected, why, lower, values, "learning rate too high")
    if spikes > MANY_SPIKES:
        why = f"{percent(spikes)} of the gradients are over {SPIKE:g} times the median: spikes."
        advice = (f"a larger batch: --batch-size {2 * training.loop.batch_size}", training.lower_rate())
        return Finding(name, "note", measured, expected, why, advice, values, "gradient spikes")
    return Finding(name, "ok", measured, expected, "the gradient norm was steady.", (), values)


def events(curve: TrainingCurve, training: Training | None, name_of_run: str) -> Finding:
    """What went wrong on the way, and why training ended."""
    name = "events"
    if training is None:
        return not_applicable(name, "the model was not trained by the loop that records them")
    skipped, back = (sum(event.get("event") == kind for event in curve.events) for kind in ("skipped", "went back"))
    reasons = sorted({str(event.get("why", "")) for event in curve.events})
    ended = training.why or ("it has not finished" if not training.finished else "")
    values = {"skipped": skipped, "went_back": back, "finished": training.finished, "why": ended, "reasons": reasons}
    measured = f"{skipped} skipped, went back {back} times, {'finished' if training.finished else 'not finished'}"
    lower = (training.lower_rate(), training.warmup())
    if skipped or back or "last good weights" in ended:
        restored = f", and training went back to earlier weights {back} times" if back else ""
        why = f"{skipped} steps were left out ({'; '.join(reasons) or ended}){restored}; it ended: {ended}."
        exploded = any("exploded" in reason for reason in (*reasons, ended))
        found = "learning rate too high" if exploded else "steps that are not numbers"
        return Finding(name, "warning", measured, "none", why, lower, values, found)
    if not training.finished:
        resume = (f"resume it with: octavo resume {name_of_run}",)
        why = "training was stopped, or still runs."
        return Finding(name, "note", measured, "finished", why, resume, values, "not finished")
    return Finding(name, "ok", measured, "none", f"nothing went wrong; it ended: {ended or 'unknown'}.", (), values)
