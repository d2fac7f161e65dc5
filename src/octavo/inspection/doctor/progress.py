"""Whether the loss fell as it should have: beside what counting alone achieves, and with the learning rate it had."""

from __future__ import annotations

import math

from octavo.inspection.doctor.expectation import Expectation
from octavo.training.diagnosis.curve import STILL_FALLING, UNUSUAL, Training, TrainingCurve
from octavo.training.diagnosis.finding import Finding, Verdict, not_applicable, percent
from octavo.training.diagnosis.history import FEW_POINTS

DEAD = 0.05  # of the loss: the frequencies of the tokens alone, learnt by the output's bias, bring far more
STUCK = 0.005  # of the loss, between the run's third and its seventh tenth
SLOW = 0.05  # of held-out bits in the last third, after reading the text twice: that will not make up for it
NARROW = 8  # units: hardly more than the bits of a token
NAME = "progress"


def progress(
    curve: TrainingCurve, training: Training | None, choices: int, known: Expectation, width: int = 0
) -> Finding:
    """Too low a rate, too short a training, frequencies alone, or less than two tokens tell of the third."""
    n = len(curve.points)
    if 0 < n < FEW_POINTS and training is not None and known.is_known:
        end = curve.points[-1].loss
        if known.reached(curve, end) == 0:
            words, expected = known.goal(0)
            why = f"{curve.steps:,} steps are too few: the loss is still {words}."
            values = {"end": end, "frequencies": known.frequencies, "pairs": known.pairs}
            measured = f"{curve.bits(end):.3f} {known.unit} after {curve.steps:,} steps"
            return Finding(NAME, "warning", measured, expected, why, (training.longer(),), values, "stopped too early")
    if n < FEW_POINTS:
        return not_applicable(NAME, f"it takes {FEW_POINTS} logged steps to judge the curve, and there are {n}")
    first = curve.points[0].loss if curve.points[0].step == 1 else math.log(max(2, choices))
    end = curve.mean(0.9, 1)
    fall, late = 1 - end / first, curve.fall_at_the_end(bool(training and training.is_timed))
    middle = 1 - curve.mean(0.6, 0.7) / curve.mean(0.3, 0.4)
    values = {"first": first, "end": end, "fall": fall, "middle": middle, "late": late,
              "frequencies": known.frequencies, "pairs": known.pairs}  # fmt: skip
    measured = f"loss {percent(-fall, sign=True)}: {first:.3f} to {end:.3f} nats"
    if known.is_known:  # whose costs are in bits
        measured += f", which are {curve.bits(end):.3f} {known.unit}"
    reached = known.reached(curve, end)
    if reached < 2:
        found = _behind(curve, training, known, reached, (fall, middle, late), 0 < width < NARROW)
        if found is not None:
            verdict, condition, expected, why, advice = found
            return Finding(NAME, verdict, measured, expected, why, advice, values, condition)
    best_last = not curve.checks or curve.checks[-1].bits <= min(check.bits for check in curve.checks)
    if late > STILL_FALLING and best_last:
        why = f"the loss was still falling ({percent(-late, sign=True)} in the last third): more training may help."
        advice = (training.longer() if training else "train longer: more --steps",)
        return Finding(NAME, "note", measured, "flat at the end", why, advice, values, "still falling")
    return Finding(NAME, "ok", measured, "falls, then flattens", "the loss fell and levelled off.", (), values)


def _behind(
    curve: TrainingCurve, training: Training | None, known: Expectation, reached: int,
    falls: tuple[float, float, float], is_narrow: bool,
) -> tuple[Verdict, str, str, str, tuple[str, ...]] | None:  # fmt: skip
    """What is wrong with a run that is behind what counting achieves: verdict, condition, expected, why, advice."""
    goal, (fall, middle, late) = known.goal(reached), falls
    sure: Verdict = "warning" if known.is_known else "note"
    moves = fall >= DEAD and (late > STILL_FALLING or middle > STUCK)
    if training is not None and training.lowered > UNUSUAL**2 and (moves or 0 <= fall < DEAD):
        rate = f"{training.lowered:.3g} times below the usual one"
        why = f"the loss is still {goal[0]}, and the learning rate is {rate}."
        return sure if fall >= DEAD else "warning", "learning rate too low", goal[1], why, (training.higher_rate(),)
    if training is not None and training.is_short(curve.steps) and (moves or 0 <= fall < DEAD):
        why = f"{curve.steps:,} steps are too few: the loss is still {goal[0]}."
        verdict = sure if reached == 0 else "note"
        return verdict, "stopped too early", goal[1], why, (training.longer(),)
    other = training.other_rate() if training else ("another --learning-rate",)
    if fall < DEAD and reached == 0:
        moved = "ended above its beginning" if fall < 0 else "hardly moved"
        why = f"the loss {moved}; not even the frequencies of the {known.what} were learnt."
        return "warning", "nothing learnt", f"-{percent(DEAD, 0)} or more", why, other
    is_read = training is not None and 0 < 2 * training.steps_per_epoch <= curve.steps
    if not known.is_known or (middle >= STUCK and not (is_read and late < SLOW)):
        return None
    why = f"the loss came to stand {goal[0]}."
    if reached == 1 and known.is_near_frequencies(curve) and not is_narrow:
        why += f" Only the frequencies of the {known.what} were learnt, and nothing of what comes before them."
        see = f"see that every {known.what.rstrip('s')} stands where it belongs in what the model learns from"
        return "warning", "targets unrelated to inputs", goal[1], why, (see, *other)
    return "warning", "underfitting", goal[1], why, (*WIDER, *other)


WIDER = ("a wider model: --width 64", "more --layers 2")
