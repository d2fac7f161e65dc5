"""What the history of a run says: its start, overfitting, the learning rate, gradients' lengths, what went wrong."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from octavo.inspection.doctor.curve import Training, TrainingCurve, as_number, lowest_tenth
from octavo.inspection.doctor.finding import GATES, Finding, Verdict, not_applicable, percent

START_NOTE = 0.05  # of ln(vocabulary): logits of spread s cost s²/2 nats, so for 257 tokens a spread of about 0.75
START_WARNING = 0.5  # the first steps then only take back what the initialisation put in
RISE = 0.02  # of held-out bits over their best: the same pieces are measured each time, so less would still be noise
GAP = 0.15  # of held-out over training bits: another text of the same kind differs by a few per cent
FEW_POINTS = 20  # logged steps: with fewer there is no beginning, middle and end to compare
DEAD = 0.05  # of the loss: the frequencies of the tokens alone, learnt by the output's bias, bring far more
STUCK = 0.005  # of the loss, between the run's third and its seventh tenth
WORSE = 0.05  # of the loss: the end over the best tenth
STILL = 0.02  # of the loss, between the run's eighth and its last tenth
VANISHED = 1e-6  # over ten thousand weights that is 1e-8 each, the epsilon that Adam adds to it
SPIKE, OUTBURST = 10.0, 100.0  # times the median length
MANY_SPIKES = 0.01  # of the steps
MOSTLY = 0.5  # of the steps: clipping is then the rule and no longer the exception


SMALLER = (
    "smaller initial weights: --init gpt2", "smaller initial weights: --init orthogonal",
    "smaller initial weights: --init xavier", "a greater --width, where embeddings are tied",
    "output weights that are not the embeddings: --no-tied",
)  # fmt: skip


def start(curve: TrainingCurve, vocab: int, expects_itself: bool = False, what: str = "token") -> Finding:
    """The first loss against ln V: the cost of a model that knows nothing, and knows it.

    A transformer whose parts add nothing at first, and whose output weights are its embeddings, expects each token
    once more.
    """
    name, even = "start", math.log(max(2, vocab))
    if not curve.points or curve.points[0].step != 1:
        return not_applicable(name, "there is no loss of a first step: the model was counted, or not logged from it")
    first = curve.points[0].loss
    off = first / even - 1
    verdict: Verdict = "ok" if abs(off) <= START_NOTE else "note" if abs(off) <= START_WARNING else "warning"
    why = f"before it learns, the model gives every one of the {vocab:,} {what}s about the same chance."
    advice: tuple[str, ...] = ()
    if off > START_NOTE and expects_itself:
        verdict, why = "ok", "its embeddings are its output weights too, so at first it expects each token once more."
    elif off > START_NOTE:
        why = "the untrained model is sure of wrong things: its first logits are too large."
        advice = SMALLER
    elif off < -START_NOTE:
        why = "an untrained model cannot do better than chance, so it has seen the answer, or was trained before."
        advice = ("see that the model cannot look at the token it predicts, and that training began from new weights",)
    return Finding(
        name, verdict, f"{first:.3f} nats {'a' if what == 'token' else 'an'} {what} ({percent(off, sign=True)})",
        f"ln {vocab:,} = {even:.3f}, within {percent(START_NOTE, 0)}",
        why, advice, {"loss": first, "ln_vocab": even, "bits_per_token": first / math.log(2), "off": off},
    )  # fmt: skip


def overfitting(curve: TrainingCurve, training: Training | None) -> Finding:
    """Held-out text that gets worse while the training text gets better."""
    name, checks = "overfitting", curve.checks
    if len(checks) < 3 or not curve.points:
        return not_applicable(name, f"it takes three checks on held-out text to see, and there are {len(checks)}")
    best, last = min(checks, key=lambda check: check.bits), checks[-1]
    rise = last.bits / best.bits - 1
    learnt, at_best = (curve.bits(loss) for loss in (curve.mean(0.9, 1), curve.near(best.step)))
    smoothed = training is not None and training.optim.label_smoothing > 0
    epochs = last.step / training.steps_per_epoch if training and training.steps_per_epoch else None
    gap = last.bits / learnt - 1 if learnt > 0 and not smoothed else None  # smoothing is part of the logged loss
    values = {
        "best_step": best.step, "best_held_out": best.bits, "last_held_out": last.bits, "rise": rise,
        "train_bits_per_byte": learnt, "gap": gap, "epochs": epochs,
    }  # fmt: skip
    read = "" if epochs is None else f" The text was read {epochs:,.{0 if epochs >= 10 else 1}f} times."
    measured = f"held out {percent(rise, sign=True)} since its best at step {best.step:,}"
    expected = f"at most {percent(RISE, 0, sign=True)}, and {percent(GAP, 0)} over training"
    if rise > RISE and epochs is not None and epochs < 1:
        why = (
            f"held-out text got worse ({best.bits:.3f} to {last.bits:.3f} bits per byte) before any text was read "
            "twice: not learnt by heart, but wrong on texts longer than a window, or the steps are too large."
        )
        return Finding(name, "warning", measured, expected, why, UNSTABLE, values)
    if rise > RISE and learnt < at_best:
        why = (
            f"held-out text got worse ({best.bits:.3f} to {last.bits:.3f} bits per byte) while the training text got "
            f"better ({at_best:.3f} to {learnt:.3f}): the model learns it by heart.{read} The best weights were saved."
        )
        return Finding(name, "warning", measured, expected, why, OVERFITTING, values)
    if gap is not None and gap > GAP and (epochs is None or epochs >= 1):
        why = (
            f"held-out text costs {percent(gap, 0)} more than the training text, {last.bits:.3f} to {learnt:.3f}.{read}"
        )
        return Finding(name, "note", measured, expected, why, OVERFITTING, values)
    return Finding(name, "ok", measured, expected, f"held-out text keeps up with the training text.{read}", (), values)


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
        return Finding(name, "warning", shown, expected, why, OVERFITTING, values)
    return Finding(name, "ok", shown, expected, "held-out examples keep up with the training examples.", (), values)


OVERFITTING = (
    "stop in time: --patience 3", "more dropout: --dropout 0.2", "a higher --weight-decay", "a smaller --width",
    "fewer --layers", "a smaller --hidden", "a smaller --dim", "more text, which helps most",
)  # fmt: skip

UNSTABLE = ("a lower --learning-rate", "a longer --sequence-length", *GATES)


def learning_rate(
    curve: TrainingCurve, training: Training | None, vocab: int, bag: float | None = None, bigram: float | None = None
) -> Finding:
    """Whether the loss moves as it should; `bag` and `bigram` are the baselines in bits per byte, where known."""
    name, n = "learning rate", len(curve.points)
    if n < FEW_POINTS:
        return not_applicable(name, f"it takes {FEW_POINTS} logged steps to judge the curve, and there are {n}")
    first = curve.points[0].loss if curve.points[0].step == 1 else math.log(max(2, vocab))
    end, lowest = curve.mean(0.9, 1), lowest_tenth([point.loss for point in curve.points])
    fall, late = 1 - end / first, 1 - end / curve.mean(0.7, 0.8)
    middle, over = 1 - curve.mean(0.6, 0.7) / curve.mean(0.3, 0.4), end / lowest - 1
    values = {"first": first, "end": end, "fall": fall, "middle": middle, "late": late, "over_lowest": over}
    over_bag = bag is None or curve.bits(end) > (1 + DEAD) * bag
    if end > (1 + WORSE) * lowest:
        measured, expected = f"{percent(over, sign=True)} over its lowest", f"at most {percent(WORSE, 0)}"
        why = "the loss rose again: the steps are too large."
        advice = (training.lower_rate(), training.warmup()) if training else ("a lower --learning-rate",)
        return Finding(name, "warning", measured, expected, why, advice, values)
    other = training.other_rate() if training else ("another --learning-rate",)
    measured = f"loss {percent(-fall, sign=True)}: {first:.3f} to {end:.3f}"
    if fall < DEAD and over_bag:
        why = "the loss hardly moved; not even the frequencies of the tokens were learnt."
        return Finding(name, "warning", measured, f"-{percent(DEAD, 0)} or more", why, other, values)
    if middle < STUCK and over_bag and (bigram is None or curve.bits(end) > bigram):
        why = "the loss stood still in the middle of the run" + (
            "." if bigram is None else f", above that of a 2-gram ({bigram:.3f} bits per byte)."
        )
        verdict: Verdict = "note" if bigram is None else "warning"
        measured = f"{percent(-middle, sign=True)} in the middle"
        return Finding(name, verdict, measured, f"-{percent(STUCK)} or more", why, other, values)
    best_last = not curve.checks or curve.checks[-1] == min(curve.checks, key=lambda check: check.bits)
    if late > STILL and best_last:
        why = f"the loss was still falling ({percent(-late, sign=True)} from the eighth tenth to the last)."
        advice = (training.longer() if training else "train longer: more --steps",)
        return Finding(name, "note", measured, "flat at the end", why, advice, values)
    if training and training.is_short(curve.steps) and bigram is not None and curve.bits(end) > (1 + WORSE) * bigram:
        why = f"{curve.steps:,} steps are too few: the loss is above that of a 2-gram ({bigram:.3f} bits per byte)."
        return Finding(name, "note", measured, "below the 2-gram", why, (training.longer(),), values)
    return Finding(name, "ok", measured, "falls, then flattens", "the loss fell and levelled off.", (), values)


def gradient_lengths(curve: TrainingCurve, training: Training | None) -> Finding:
    """The lengths of the gradients over the run: vanished, bursting, or clipped as a rule."""
    name = "gradient lengths"
    norms = [point.norm for point in curve.points if point.norm is not None]
    if not norms or training is None:
        return not_applicable(name, "the run logged no gradients")
    usual, late, most = median(norms), median(norms[len(norms) // 2 :]), max(norms)
    clip, settled = training.optim.clip, norms[len(norms) // 10 :]  # the first tenth holds the warm-up
    clipped = sum(norm > clip for norm in settled) / len(settled) if clip else 0.0
    spikes = sum(norm > SPIKE * usual for norm in norms) / len(norms)
    burst = sum(event.get("event") == "skipped" for event in curve.events)
    values = {"median": usual, "late": late, "most": most, "clipped": clipped, "spikes": spikes, "skipped": burst}
    measured = f"median {usual:.2g}, most {most:.2g}, {percent(clipped, 0)} clipped"
    expected = f"above {VANISHED:g}, no bursts, mostly below the clip of {clip:g}" if clip else f"above {VANISHED:g}"
    verdict: Verdict = "ok"
    why, advice = "the gradient norm was steady.", tuple[str, ...]()
    if late < VANISHED:
        verdict, why = "warning", "the gradients have vanished: the weights no longer change by them."
        advice = ("--init orthogonal", *GATES, "fewer --layers", training.higher_rate())
    elif burst or most > OUTBURST * usual:
        record = f"{burst} steps had to be left out" if burst else f"one was {most / usual:.0f} times the median"
        verdict, why = "warning", f"the gradients exploded: {record}."
        advice = (training.lower_rate(), training.warmup(), *(() if clip else ("--clip 1",)))
    elif clipped > MOSTLY:
        why = f"{percent(clipped, 0)} of the steps were clipped, so that the clip sets the length of a step."
        verdict = "note"
        advice = (training.lower_rate(), f"a higher --clip {max(2 * clip, usual):.2g}")
    elif spikes > MANY_SPIKES:
        verdict, why = "note", f"{percent(spikes)} of the gradients are over {SPIKE:g} times the median: spikes."
        advice = (f"a larger batch: --batch-size {2 * training.loop.batch_size}", training.lower_rate())
    return Finding(name, verdict, measured, expected, why, advice, values)


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
    if back or "last good weights" in ended:
        why = f"training went wrong ({'; '.join(reasons)}) and took up earlier weights {back} times; it ended: {ended}."
        return Finding(name, "warning", measured, "none", why, lower, values)
    if skipped:
        why = f"{skipped} steps were left out: {'; '.join(reasons)}; it ended: {ended}."
        return Finding(name, "note", measured, "none", why, lower, values)
    if not training.finished:
        resume = (f"resume it with: octavo resume {name_of_run}",)
        return Finding(name, "note", measured, "finished", "training was stopped, or still runs.", resume, values)
    return Finding(name, "ok", measured, "none", f"nothing went wrong; it ended: {ended or 'unknown'}.", (), values)
