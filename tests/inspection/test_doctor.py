"""octavo doctor: each finding fires on a sick run and keeps quiet on a healthy one."""

from __future__ import annotations

import math
import random
import shutil
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import octavo
from command_line import json_output
from octavo.cli import main
from octavo.cli.doctor import doctor
from octavo.core import LanguageModel
from octavo.errors import UserError
from octavo.inspection.doctor import Diagnosis, Finding, examine
from octavo.inspection.doctor.baselines import (
    Baseline,
    Baselines,
    compare_with_baselines,
    measure_baselines,
    passed,
    piece_bits,
    place,
)
from octavo.inspection.doctor.checks import CAUSES
from octavo.inspection.doctor.expectation import Expectation
from octavo.inspection.doctor.progress import progress
from octavo.inspection.doctor.text_quality import is_alphabetical
from octavo.inspection.doctor.unseen_text import (
    LENGTHS,
    SMOOTHER,
    TAMER,
    K,
    confidence,
    context,
    context_costs,
    gradient_range,
    judge,
    judged_tokens,
    required_field,
    softmax,
    spread,
    through_time,
    used,
)
from octavo.inspection.gradient_flow import Flow
from octavo.io.run_folder import METRICS
from octavo.models import GPT, GRU, MODELS, RNN, Bag, Mix, NGram, language_models
from octavo.models.bag import BagConfig
from octavo.models.bigram import BigramConfig
from octavo.models.mix import MixConfig
from octavo.models.ngram import NGramConfig
from octavo.models.parts.config import GPTConfig
from octavo.models.recurrent import RecurrentConfig
from octavo.tasks.corpus import held_out
from octavo.tasks.run import load
from octavo.text import Byte
from octavo.training.diagnosis.curve import Check, LoggedStep, Training, TrainingCurve, fall_at_the_end
from octavo.training.diagnosis.finding import FLAG, GATES, MORE_ATTENTION, fitting, settings
from octavo.training.diagnosis.history import (
    OVERFITTING,
    SMALLER,
    UNSTABLE,
    events,
    gradient_lengths,
    overfitting,
    stability,
    start,
)
from octavo.training.loop_config import LoopConfig
from octavo.training.optimizer import OptimizerConfig
from tiny_models import Markov, Recurrent, random_markov

USUAL = OptimizerConfig(muon_learning_rate=0.05)
HEALTHY = Training(USUAL, steps_per_epoch=10, why="the budget is spent", usual=USUAL)
RATES = ("learning_rate", "muon_learning_rate")
WORDS = "the owl and pussycat went to sea in a beautiful pea green boat they took some honey".split()


def some_text(words: int = 4000) -> str:
    chosen = random.Random(0)
    return "".join(chosen.choice(WORDS) + chosen.choice("    \n") for _ in range(words))


def curve(
    losses: Sequence[float] = (), norms: Sequence[float] = (), checks: Sequence[float] = (), kinds: Sequence[str] = ()
) -> TrainingCurve:
    """Losses in nats at steps 1, 2, ..., and checks spread over the same steps."""
    points = [LoggedStep(i + 1, loss, norms[i] if norms else 0.5) for i, loss in enumerate(losses)]
    every = max(1, len(losses) // max(1, len(checks)))
    measured = [Check((i + 1) * every, bits) for i, bits in enumerate(checks)]
    return TrainingCurve(
        tuple(points), tuple(measured), tuple({"step": 1, "event": kind, "why": "it burst"} for kind in kinds)
    )


def falling(first: float, last: float, steps: int = 100) -> list[float]:
    """A loss that falls fast and then levels off."""
    return [last + (first - last) * math.exp(-10 * i / steps) for i in range(steps)]


# --- the rows


def test_rows_become_points_checks_and_events() -> None:
    rows: list[dict[str, Any]] = [
        {"step": 1, "loss": 2.0, "gradient_norm": 0.5}, {"step": 2, "event": "skipped", "why": "x", "loss": 9.0},
        {"step": 2, "held_out_bits_per_byte": 3.0}, {"step": 3, "loss": math.nan}, {"step": "4", "loss": 1.0},
        {"step": 5, "loss": 10**400}, {"step": 10**400, "loss": 1.0},
        {"step": 50, "loss": 1.0, "held_out": 2 * math.log(2)}, {"name": "validation", "bits_per_byte": 2.0},
    ]  # fmt: skip
    found = TrainingCurve.of(rows, 4.0)
    assert found.points == (LoggedStep(1, 2.0, 0.5), LoggedStep(50, 1.0, None))
    assert found.checks == (Check(2, 3.0), Check(50, pytest.approx(0.5)))  # 2 bits a token of 4 bytes
    assert [event["event"] for event in found.events] == ["skipped"]
    assert found.bits(math.log(2)) == pytest.approx(0.25)


def test_the_curve_of_a_bigram_is_that_of_its_first_training_up_to_the_steps_of_its_second() -> None:
    first = [
        {"step": 50 * i, "loss": 5.0 - i, "held_out": held} for i, held in ((1, 4.0), (2, 3.0), (3, 2.0), (4, 9.0))
    ]
    again = [{"step": 50 * i, "loss": 4.9 - i} for i in (1, 2, 3)]
    found = TrainingCurve.of([*first, *again, {"name": "validation", "bits_per_byte": 2.0}], 1.0)
    assert found == TrainingCurve.of(first[:3], 1.0)
    assert overfitting(TrainingCurve.of(first, 1.0), None).verdict == "warning"
    assert overfitting(found, None).values["rise"] == 0  # the step with 9.0 is none of the model's
    assert [point.step for point in TrainingCurve.of(again, 1.0).points] == [50, 100, 150]


def test_means_are_of_shares_of_the_run_and_around_steps() -> None:
    found = curve([float(i) for i in range(100)])
    assert found.mean(0.9, 1) == pytest.approx(94.5)  # 90 .. 99
    assert found.mean(0.3, 0.4) == pytest.approx(34.5)
    assert found.near(50) == pytest.approx(49.0)  # steps 45 to 55 have losses 44 to 54
    assert curve([7.0]).mean(0.9, 1) == 7.0


# --- the start


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "ok"), (1.04, "ok"), (1.06, "note"), (1.6, "warning"),
                                                  (0.96, "ok"), (0.9, "note"), (0.4, "warning")])  # fmt: skip
def test_the_first_loss_is_compared_with_the_logarithm_of_the_vocabulary(factor: float, verdict: str) -> None:
    found = start(curve([factor * math.log(257)]), 257)
    assert found.verdict == verdict
    assert found.values["ln_vocab"] == pytest.approx(5.549076)
    assert bool(found.advice) == (verdict != "ok")


def test_too_high_and_too_low_a_start_are_distinguished() -> None:
    assert "logits are too large" in start(curve([9.0]), 257).why
    assert "seen the answer" in start(curve([3.0]), 257).why


def test_a_start_far_above_ln_v_is_well_only_where_a_new_model_of_the_same_settings_starts_there_too() -> None:
    found = start(curve([10.8]), 257, expected=10.79, expects_itself=True)
    assert (found.verdict, found.advice) == ("ok", ())
    assert "10.790 too" in found.why
    assert "expects each token once more" in found.why
    plain = start(curve([10.8]), 257, expected=10.79)
    assert (plain.verdict, plain.condition) == ("warning", "bad initialisation")
    other = start(curve([10.8]), 257, expected=5.55, expects_itself=True)
    assert (other.verdict, other.condition) == ("warning", "bad initialisation")
    assert "starts at 5.550 nats a token, this one started at 10.800" in other.why


def test_a_start_below_chance_is_well_only_where_a_new_model_starts_there_too() -> None:
    assert start(curve([3.0]), 257, expects_itself=True).condition == "start below chance"
    assert start(curve([3.0]), 257, expected=3.0).verdict == "ok"


def test_a_counted_model_has_no_start() -> None:
    assert start(curve(), 257).verdict == "not applicable"


# --- overfitting


def test_overfitting_is_held_out_text_getting_worse_while_training_gets_better() -> None:
    losses = [5.0 - 0.045 * i for i in range(100)]
    found = overfitting(curve(losses, checks=[5, 4, 3, 3.2, 3.6]), HEALTHY)
    assert found.verdict == "warning"
    assert found.values["rise"] == pytest.approx(0.2)
    assert found.values["best_step"] == 60
    assert any("--patience" in one for one in found.advice)
    assert overfitting(curve(losses, checks=[5, 4, 3, 2, 1]), HEALTHY).verdict == "ok"
    assert overfitting(curve(losses, checks=[5, 4, 1.25, 1.26, 1.265]), HEALTHY).verdict != "warning"  # 1.2 % is noise


def test_held_out_loss_that_rises_without_anything_learnt_by_heart_is_instability() -> None:
    rising = curve([2.4] * 30 + [2.41] * 70, checks=[4.1, 3.7, 3.9, 4.1, 4.3])
    found = stability(rising, HEALTHY)
    assert (found.verdict, found.condition) == ("warning", "instability")
    assert "3.700 to 4.300 bits per byte since step 40" in found.why
    assert overfitting(rising, HEALTHY).verdict == "ok"
    falling_on = curve([5.0 - 0.045 * i for i in range(100)], checks=[4.1, 3.7, 3.9, 4.1, 4.3])
    assert stability(falling_on, HEALTHY).verdict == "ok"
    assert overfitting(falling_on, HEALTHY).condition == "overfitting"


def test_worse_held_out_text_before_it_was_read_once_is_not_called_overfitting() -> None:
    found = stability(curve(falling(5, 2), checks=[4, 3, 9]), replace(HEALTHY, steps_per_epoch=1000))
    assert (found.verdict, found.condition) == ("warning", "instability")
    assert "nothing was read twice" in found.why


def test_a_gap_between_training_and_held_out_text_gets_a_note_unless_smoothing_makes_it() -> None:
    bits = math.log(2)
    found = overfitting(curve([2 * bits] * 100, checks=[2.5, 2.5, 2.5]), HEALTHY)
    assert (found.verdict, found.values["gap"]) == ("note", pytest.approx(0.25))
    assert overfitting(curve([2 * bits] * 100, checks=[3, 3, 3]), HEALTHY).verdict == "warning"  # after ten epochs
    smoothed = replace(HEALTHY, optim=OptimizerConfig(label_smoothing=0.1))
    assert overfitting(curve([2 * bits] * 100, checks=[3, 3, 3]), smoothed).verdict == "ok"
    unread = replace(HEALTHY, steps_per_epoch=1000)
    assert overfitting(curve([2 * bits] * 100, checks=[3, 3, 3]), unread).verdict == "ok"


def test_two_checks_are_too_few_to_see_overfitting() -> None:
    assert overfitting(curve([1.0] * 50, checks=[1, 2]), HEALTHY).verdict == "not applicable"


# --- the learning rate


KNOWN = Expectation(4.8, 3.5, "bytes")


def test_a_loss_that_falls_and_levels_off_is_well() -> None:
    assert progress(curve(falling(5.5, 2)), HEALTHY, 257, KNOWN).verdict == "ok"
    assert stability(curve(falling(5.5, 2)), HEALTHY).verdict == "ok"


def test_a_loss_that_does_not_move_at_a_tiny_rate_asks_for_the_usual_one() -> None:
    tiny = replace(HEALTHY, optim=OptimizerConfig(learning_rate=1e-6, muon_learning_rate=1e-6))
    found = progress(curve([5.55] * 100), tiny, 257, Expectation())
    assert (found.verdict, found.condition) == ("warning", "learning rate too low")
    assert found.advice == ("a higher learning rate: --learning-rate 0.004 --muon-learning-rate 0.05",)
    usual = progress(curve([5.55] * 300), HEALTHY, 257, KNOWN)
    assert (usual.verdict, usual.condition) == ("warning", "nothing learnt")


def test_a_text_that_has_nothing_to_learn_is_not_a_dead_rate() -> None:
    assert progress(curve([5.55] * 300), HEALTHY, 257, Expectation(8.0, 8.0)).verdict == "ok"


def test_a_loss_that_stands_still_is_named_by_what_it_came_down_to() -> None:
    high = curve([5.5 - 0.1 * min(i, 10) for i in range(300)])  # 4.5 nats are 6.49 bits
    assert progress(high, HEALTHY, 257, KNOWN).condition == "underfitting"
    assert progress(high, HEALTHY, 257, Expectation()).verdict == "ok"  # nobody knows what could be reached
    assert progress(high, HEALTHY, 257, Expectation(7.0, 6.5)).verdict == "ok"
    only = progress(high, HEALTHY, 257, Expectation(6.4, 4.0))
    assert (only.verdict, only.condition) == ("warning", "targets unrelated to inputs")
    assert progress(high, HEALTHY, 257, Expectation(6.4, 4.0), RecurrentConfig(width=2)).condition == "underfitting"


def test_a_classifier_must_do_better_than_the_frequencies_of_its_classes() -> None:
    even = Expectation(1.0, None, "classes")
    assert progress(curve([0.693] * 300), HEALTHY, 2, even).condition == "targets unrelated to inputs"
    assert progress(curve(falling(0.693, 0.1, 300)), HEALTHY, 2, even).verdict == "ok"


def test_a_loss_that_rises_again_has_too_high_a_rate() -> None:
    found = stability(curve(falling(5.5, 2, 80) + [3.0] * 20), HEALTHY)
    assert (found.verdict, found.condition) == ("warning", "learning rate too high")
    assert found.advice[0] == "a lower learning rate: --learning-rate 0.001 --muon-learning-rate 0.0125"


def test_a_loss_that_still_falls_asks_for_a_longer_budget_unless_held_out_text_has_turned() -> None:
    losses = [5.5 - 0.04 * i for i in range(100)]
    training = replace(HEALTHY, loop=LoopConfig(budget="100steps"))
    assert progress(curve(losses), training, 257, KNOWN).advice == ("train longer: --budget 1000steps",)
    assert progress(curve(losses, checks=[3, 2, 2, 2.5]), training, 257, KNOWN).verdict == "ok"
    stopped = replace(training, finished=False)
    assert progress(curve(losses), stopped, 257, KNOWN).advice == ("train on to the end: octavo resume RUN",)


def test_doctor_and_comparison_say_still_falling_of_the_same_curves() -> None:
    checks = [Check(step, bits, seconds) for step, bits, seconds in ((10, 4.0, 1.0), (20, 3.0, 2.0), (80, 2.9, 3.0),
                                                                     (90, 2.88, 4.0))]  # fmt: skip
    found = TrainingCurve(curve(falling(5.5, 2)).points, tuple(checks))
    assert found.fall_at_the_end(by_time=True) == pytest.approx(1 - 2.88 / 3.0)  # 3.0 s are beyond two thirds of 4
    assert found.fall_at_the_end() == pytest.approx(1 - 2.88 / 3.0)
    assert fall_at_the_end([(0.25, 4.0), (0.5, 3.0), (0.75, 2.9), (1.0, 2.88)]) == pytest.approx(1 - 2.88 / 3.0)


def test_too_few_steps_ask_for_a_longer_budget_and_are_a_warning_below_the_frequencies() -> None:
    training = replace(HEALTHY, loop=LoopConfig(budget="30steps"))
    found = progress(curve(falling(5.5, 4, 30)), training, 257, KNOWN)
    assert (found.verdict, found.condition) == ("warning", "stopped too early")
    assert found.advice == ("train longer: --budget 300steps",)
    assert "30 steps are too few" in found.why
    assert progress(curve(falling(5.5, 3, 30)), training, 257, KNOWN).verdict == "note"  # 4.3 bits: below the bag
    assert not HEALTHY.is_short(300)


@pytest.mark.parametrize(
    ("names", "times", "condition"),
    [
        (RATES, 30.0, "learning rate too high"), (RATES, 3.0, "underfitting"), (RATES[:1], 30.0, "underfitting"),
        (("weight_decay",), 100.0, "weight decay too strong"), (("weight_decay",), 3.0, "underfitting"),
    ],
)  # fmt: skip
def test_a_loss_behind_the_pairs_is_put_down_to_a_setting_far_above_the_usual(
    names: tuple[str, ...], times: float, condition: str
) -> None:
    high = curve([5.5, *[4.5] * 299])
    optim = replace(USUAL, **{name: times * getattr(USUAL, name) for name in names})
    behind = Expectation(7.0, 4.0)
    assert progress(high, replace(HEALTHY, optim=optim), 257, behind).condition == condition
    assert progress(high, replace(HEALTHY, optim=optim), 257, Expectation(7.0, 6.5)).verdict == "ok"


def test_dropout_of_a_half_is_blamed_where_held_out_text_is_behind_the_pairs_too() -> None:
    dropped, behind = RecurrentConfig(dropout=0.6), Expectation(7.0, 4.0)
    losses = [5.5, *[4.5] * 299]
    assert progress(curve(losses, checks=[6.5] * 4), HEALTHY, 257, behind, dropped).condition == "too much dropout"
    assert progress(curve(losses, checks=[3.9] * 4), HEALTHY, 257, behind, dropped).condition != "too much dropout"


def test_gradient_spikes_are_a_warning_where_the_learning_rate_is_far_above_the_usual() -> None:
    spiky = curve(falling(5.5, 2), norms=[20.0 if i % 30 == 0 else 1.0 for i in range(100)])
    high = {name: 5 * getattr(USUAL, name) for name in RATES}
    raised = replace(HEALTHY, optim=replace(USUAL, clip=0.0, **high))
    usual = replace(HEALTHY, optim=replace(USUAL, clip=0.0))
    assert gradient_lengths(spiky, raised).condition == "learning rate too high"
    assert gradient_lengths(spiky, usual).verdict == "note"


def test_lines_are_alphabetical_only_in_order_and_through_several_letters() -> None:
    lines = [f"{word} {number}\n".encode() for number in range(20) for word in WORDS]
    assert is_alphabetical(b"".join(sorted(lines)))
    assert is_alphabetical(b"".join(line * 3 for line in sorted(lines)))
    assert not is_alphabetical(b"".join(lines))
    assert not is_alphabetical(b"".join(b"Nov 16 16:%02d:%02d host up\n" % divmod(i, 60) for i in range(900)))


def test_a_few_steps_are_no_curve() -> None:
    assert progress(curve([3.0] * 19), HEALTHY, 257, KNOWN).verdict == "not applicable"
    assert gradient_lengths(curve([3.0] * 19, [30.0] * 19), HEALTHY).verdict == "not applicable"


def test_a_handful_of_steps_above_the_frequencies_was_stopped_too_early() -> None:
    found = progress(curve([5.0] * 5), replace(HEALTHY, loop=LoopConfig(budget="4s")), 257, KNOWN)
    assert (found.verdict, found.condition, found.advice) == (
        "warning",
        "stopped too early",
        ("train longer: --budget 8s",),
    )


def test_other_rates_go_back_to_the_usual_ones_where_they_are_unusual() -> None:
    high = Training(OptimizerConfig(optimizer="adamw", learning_rate=1.0))
    assert high.other_rate() == ("a lower learning rate: --learning-rate 0.004",)
    assert len(HEALTHY.other_rate()) == 2
    assert Training(loop=LoopConfig(budget="500steps")).longer() == "train longer: --budget 1000steps"
    assert Training(loop=LoopConfig(budget="3min")).longer() == "train longer: --budget 360s"


# --- the lengths of the gradients


def test_gradients_of_a_steady_length_are_well() -> None:
    assert gradient_lengths(curve([1.0] * 100, [0.5] * 100), HEALTHY).verdict == "ok"


@pytest.mark.parametrize(
    ("norms", "kinds", "verdict", "word"),
    [
        ([0.5] * 50 + [1e-8] * 50, (), "warning", "vanished"),
        ([0.01] * 99 + [2.0], (), "warning", "one 200 times"),
        ([0.1] * 85 + [2.0] * 15, (), "warning", "15.0 % are over 10 times the median"),
        ([20.0] * 100, (), "warning", "100 % of the steps were clipped"),
        ([2.0] * 100, (), "note", "100 % of the steps were clipped"),
        ([0.01] * 97 + [0.2] * 3, (), "note", "spikes"),
    ],
)
def test_gradients_that_vanish_explode_or_are_clipped_are_reported(
    norms: list[float], kinds: tuple[str, ...], verdict: str, word: str
) -> None:
    found = gradient_lengths(curve([1.0] * 100, norms, kinds=kinds), HEALTHY)
    assert found.verdict == verdict
    assert word in found.why
    assert found.advice


def test_a_clip_that_is_the_rule_may_be_raised() -> None:
    assert gradient_lengths(curve([1.0] * 100, [2.0] * 100), HEALTHY).advice[0] == "a higher --clip 2"


def test_nothing_is_clipped_where_no_clip_was_set() -> None:
    unclipped = replace(HEALTHY, optim=OptimizerConfig(clip=0))
    assert gradient_lengths(curve([1.0] * 100, [2.0] * 100), unclipped).verdict == "ok"


# --- events


def test_events_are_counted_and_judged() -> None:
    assert events(curve([1.0]), HEALTHY, "r").verdict == "ok"
    assert events(curve([1.0], kinds=["skipped"]), HEALTHY, "r").condition == "steps that are not numbers"
    found = events(curve([1.0], kinds=["skipped"] * 3 + ["went back"]), HEALTHY, "r")
    assert (found.verdict, found.values["skipped"], found.values["went_back"]) == ("warning", 3, 1)
    gave_up = replace(HEALTHY, why="the loss has exploded; these are the last good weights")
    assert events(curve([1.0]), gave_up, "r").verdict == "warning"
    unfinished = events(curve([1.0]), replace(HEALTHY, finished=False), "runs/a")
    assert (unfinished.verdict, unfinished.advice) == ("note", ("resume it with: octavo resume runs/a",))
    assert events(curve(), None, "r").verdict == "not applicable"


# --- the baselines

ROWS = (Baseline("bag of words", 1, 5.0, 4.9), Baseline("2-gram", 2, 4.0, 3.9), Baseline("3-gram", 3, 3.0, 2.9),
        Baseline("4-gram", 4, 2.5, 2.4), Baseline("5-gram", 5, 2.2, 2.1))  # fmt: skip


def gru(vocab: int = 257) -> GRU:
    model = GRU(RecurrentConfig(width=8, layers=1), vocab)
    model.initialise(torch.Generator().manual_seed(0))
    return model


def ngram(order: int, text: bytes = b"abcabcabdxyz" * 20) -> NGram:
    x_N = torch.tensor([Byte().begin, *text], dtype=torch.int32)
    return NGram.fit(x_N, NGramConfig(order=order), Byte().vocab, Byte().newline)


def test_a_result_is_placed_among_the_baselines() -> None:
    assert place(2.8, ROWS) == "better than the 3-gram, worse than the 4-gram"
    assert place(3.0, ROWS) == "better than the 2-gram, as good as the 3-gram, worse than the 4-gram"
    assert place(6.0, ROWS) == "worse than the bag of words"
    assert place(2.0, ROWS) == "better than the 5-gram"


@pytest.mark.parametrize(("own", "verdict"), [(6.0, "warning"), (4.5, "warning"), (3.5, "note"), (2.1, "ok")])
def test_a_network_is_warned_of_below_the_bigram_and_gets_a_note_below_the_best(own: float, verdict: str) -> None:
    assert compare_with_baselines(Baselines(ROWS, own), curve(), gru()).verdict == verdict


def test_a_count_model_need_only_reach_its_own_order() -> None:
    bag = Bag(BagConfig(), 257)
    assert compare_with_baselines(Baselines(ROWS, 5.0), curve(), bag).verdict == "ok"
    assert compare_with_baselines(Baselines(ROWS, 5.2), curve(), bag).verdict == "warning"
    assert compare_with_baselines(Baselines(ROWS, 3.0), curve(), ngram(3)).verdict == "ok"
    assert compare_with_baselines(Baselines(ROWS, 3.0), curve(), ngram(4)).verdict == "warning"
    assert compare_with_baselines(Baselines(ROWS, 2.2), curve(), ngram(7)).verdict == "ok"


def test_impossible_tokens_are_a_warning_of_their_own() -> None:
    found = compare_with_baselines(Baselines(ROWS, math.inf, impossible=3), curve(), ngram(3))
    assert (found.verdict, "3 tokens are impossible" in found.why) == ("warning", True)
    assert Diagnosis("run", (found,)).to_json()["findings"][0]["values"]["bits_per_byte"] is None


def test_the_step_is_reported_at_which_the_curve_went_below_each_baseline_on_the_same_pieces() -> None:
    found = curve([1.0] * 100, checks=[4.95, 4.0, 2.8, 2.6, 2.5])
    assert [passed(found, baseline) for baseline in (4.9, 3.9, 2.1)] == [40, 60, None]
    values = compare_with_baselines(Baselines(ROWS, 2.8), found, gru()).values["baselines"]
    assert [row["passed_at"] for row in values] == [40, 60, 60, None, None]


def test_a_curve_of_other_text_passes_no_floor_that_the_result_loses_to() -> None:
    rows = tuple(replace(row, held_out=None) for row in ROWS)
    values = compare_with_baselines(Baselines(rows, 4.2), curve([1.0] * 100, checks=[4.95, 2.0, 1.0]), gru()).values[
        "baselines"
    ]
    assert [row["passed_at"] for row in values] == [33, None, None, None, None]


def test_what_loses_to_the_bag_is_sent_to_the_other_findings_only_where_they_tell_something() -> None:
    baselines = Baselines(ROWS, 6.0)
    assert compare_with_baselines(baselines, curve(), gru(), "train longer", ill=True).advice == (
        "what the other findings say",
    )
    assert compare_with_baselines(baselines, curve(), gru(), "train longer", ill=False).advice == ("train longer",)


def test_bits_of_pieces_are_counted_by_hand() -> None:
    bag = Bag.fit(torch.tensor([256, *b"aab"]), BagConfig(k=0), 257)
    pieces_PL = np.array([[97, 97], [98, 97]])
    assert piece_bits(bag, Byte(), pieces_PL) == pytest.approx((3 * math.log2(3 / 2) + math.log2(3)) / 4)
    with_begin_PL = np.array([[97, 256]])  # a document ends: begin stands for no bytes and is free
    assert piece_bits(bag, Byte(), with_begin_PL) == pytest.approx(math.log2(3 / 2))
    assert piece_bits(bag, Byte(), np.empty((0, 0))) is None


# --- the softmax


def constant(*p: float) -> Markov:
    """A model that always answers with the same distribution; begin is impossible."""
    logits_V = torch.tensor([*p, 0.0], dtype=torch.float64).log()
    return Markov(logits_V.repeat(len(logits_V), 1))


def test_confidence_is_counted_by_hand() -> None:
    x_RS = torch.tensor([[9, 0, 0, 1, 2], [9, 0, 1, 1, 0]]).clamp(max=2)  # the first column is not judged
    found = confidence(constant(0.5, 0.25, 0.25), x_RS, 1)
    assert (found.predictions, found.top, found.right) == (8, pytest.approx(0.5), 0.5)
    assert found.entropy == pytest.approx(1.5)
    assert found.bits == pytest.approx((4 * 1 + 4 * 2) / 8)
    assert found.logits == pytest.approx(math.log(0.5) - (math.log(0.5) + 2 * math.log(0.25)) / 3)
    assert found.sure == 0


def test_a_calibrated_softmax_is_well_and_a_sure_one_that_errs_is_saturated() -> None:
    x_N = torch.tensor([0, 0, 1, 0, 2, 0, 1, 0] * 200)  # five eighths, one quarter, one eighth
    assert softmax(constant(0.625, 0.25, 0.125), x_N).verdict == "ok"
    assert softmax(constant(0.7, 0.2, 0.1), x_N).verdict == "note"
    assert softmax(constant(0.9, 0.05, 0.05), x_N).verdict == "warning"
    saturated = softmax(constant(0.998, 0.001, 0.001), x_N)
    assert (saturated.verdict, "saturated" in saturated.why) == ("warning", True)
    assert saturated.values["sure_wrong"] == pytest.approx(0.375, abs=0.02)


def test_huge_logits_of_a_network_are_warned_of() -> None:
    model, x_N = gru(), torch.tensor([*some_text(300).encode()])
    assert softmax(model, x_N).verdict == "ok"
    with torch.no_grad():
        model.output_bias_V.fill_(-200.0)[[*map(ord, sorted(set(some_text(300))))]] = 0.0
    assert "logits are huge" in softmax(model, x_N).why


def test_rows_are_spread_over_the_text_without_overlap() -> None:
    assert spread(torch.arange(10), 3, 3).tolist() == [[0, 1, 2], [3, 4, 5], [7, 8, 9]]
    assert spread(torch.arange(5), 3, 9).tolist() == [[0, 1, 2, 3, 4]]


# --- gradients through time


def test_the_reach_is_the_first_step_with_less_than_a_hundredth() -> None:
    assert gradient_range(Flow((1.0, 0.5, 0.02, 0.009, 0.001), 1)) == 3
    assert gradient_range(Flow((1.0, 0.5), 1)) is None
    assert gradient_range(Flow((0.0, 0.0), 1)) == 0  # no gradient at all


def rnn_with(factor: float) -> RNN:
    """An RNN whose recurrent matrix is a rotation times a factor, near zero, where tanh is nearly the identity."""
    model = RNN(RecurrentConfig(width=8, layers=1), 257)
    model.initialise(torch.Generator().manual_seed(0))
    with torch.no_grad():
        model.embedding_VD.mul_(1e-9)
        dict(model.named_parameters())["layers.0.weight_hh"].mul_(factor)
    return model


@pytest.mark.parametrize(("factor", "verdict", "reach"), [(1.0, "ok", None), (0.5, "note", 7), (0.2, "warning", 3),
                                                           (0.0, "warning", 0)])  # fmt: skip
def test_a_gradient_that_shrinks_too_fast_is_reported(factor: float, verdict: str, reach: int | None) -> None:
    # 0.5 ** 7 = 0.0078 and 0.2 ** 3 = 0.008 are the first powers below a hundredth
    found = through_time(rnn_with(factor), torch.tensor([*some_text(40).encode()]))
    assert (found.verdict, found.values["range"]) == (verdict, reach)


def test_a_gradient_that_grows_is_reported() -> None:
    found = through_time(rnn_with(1.2), torch.tensor([*some_text(40).encode()]))
    assert (found.verdict, "grows" in found.why) == ("warning", True)


def test_a_gradient_that_keeps_its_size_is_not_said_to_be_left_at_one_per_cent() -> None:
    x_N = torch.tensor([*some_text(40).encode()])
    for factor in (0.9999, 1.0001, 1.01):
        assert "does not shrink within 40 steps" in through_time(rnn_with(factor), x_N).measured
    assert "over 1 % left after 40 steps" in through_time(rnn_with(0.95), x_N).measured
    assert "1 % left after 7 steps" in through_time(rnn_with(0.5), x_N).measured


def test_a_text_too_short_to_follow_the_gradient_eight_steps_back_is_not_judged() -> None:
    assert through_time(rnn_with(1.0), torch.tensor([*b"fifteen letters"])).verdict == "not applicable"
    assert through_time(rnn_with(1.0), torch.tensor([*b"sixteen letters!"])).verdict == "ok"


def test_no_gradient_flows_through_counts() -> None:
    assert through_time(ngram(3), torch.arange(100)).verdict == "not applicable"


# --- the context


@pytest.mark.parametrize("model", [Recurrent(6), random_markov(6), gru(6).double()])
def test_prices_with_a_cut_context_are_those_of_a_state_that_starts_anew(model: LanguageModel[Any]) -> None:
    x_RS = torch.randint(0, 5, (2, K + 5 + K), generator=torch.Generator().manual_seed(1))
    target_M, found = context_costs(model, x_RS, K)
    assert target_M.tolist() == x_RS[:, K:-K].flatten().tolist()
    for k in LENGTHS:
        for m, (r, q) in enumerate((r, q) for r in range(2) for q in range(K, K + 5)):
            state = model.start(1)
            before = x_RS[r, q - k : q].tolist() or [model.begin]
            for x in before:
                logits_1V, state = model.step(state, torch.tensor([x]))
            assert found[k][m] == pytest.approx(
                -float(logits_1V.detach()[0].log_softmax(-1)[x_RS[r, q]]) / math.log(2), rel=1e-9
            )
    whole_RS = -model.score(x_RS) / math.log(2)
    assert torch.allclose(found[None], whole_RS[:, K:-K].flatten().detach())


def test_the_context_used_is_the_shortest_that_a_longer_one_does_not_better() -> None:
    bits: dict[int | None, float] = {
        0: 5.0,
        1: 4.0,
        2: 3.0,
        **dict.fromkeys(range(3, 9), 2.01),
        16: 2.0,
        32: 2.0,
        None: 2.0,
    }
    assert used(bits) == 3
    assert used(dict.fromkeys((*LENGTHS, None), 5.0)) == 0
    assert used(bits | {None: 1.5}) is None
    assert used({0: math.inf, **dict.fromkeys(LENGTHS[1:], 1.0), None: 1.0}) == 1


def test_models_are_expected_to_use_what_they_can_see() -> None:
    assert [required_field(model) for model in (Bag(BagConfig(), 257), ngram(4), gru())] == [0, 3, None]
    assert required_field(Mix(MixConfig(), [ngram(2), ngram(3)])) == 2
    assert required_field(Mix(MixConfig(), [ngram(2), gru()])) is None
    flat: dict[int | None, float] = dict.fromkeys((*LENGTHS, None), 5.0)
    assert judge(flat, 0, 100).verdict == "ok"
    assert judge(flat, 3, 100).verdict == "warning"
    assert "never used" in judge(flat, None, 100).why
    two = {**flat, 0: 9.0, 1: 7.0}
    assert [judge(two, field, 100).verdict for field in (None, 2)] == ["note", "ok"]


def test_a_bag_uses_no_context_and_a_trigram_two_tokens() -> None:
    data = some_text().encode()
    x_N = torch.tensor([*data])
    bag = Bag.fit(torch.tensor([256, *data]), BagConfig(), 257)
    assert (context(bag, Byte(), x_N).values["used"], context(bag, Byte(), x_N).verdict) == (0, "ok")
    found = context(ngram(3, data), Byte(), x_N)
    assert (found.values["used"], found.verdict) == (2, "ok")


def test_a_7_gram_is_never_said_to_use_more_than_its_six_tokens() -> None:
    data = some_text().encode()
    found = context(ngram(7, data), Byte(), torch.tensor([*data]))
    assert found.measured == "uses 6 of its 6 tokens" or found.values["used"] < 6
    falling_on = {k: 9.0 - 0.2 * k for k in LENGTHS}
    assert used({**falling_on, None: 1.0}, 6) == 6


def test_large_models_are_judged_on_fewer_tokens() -> None:
    assert judged_tokens(gru()) == 4096
    assert judged_tokens(GRU(RecurrentConfig(width=1024), 257)) == 256


def test_a_short_text_does_not_show_the_context() -> None:
    assert context(gru(), Byte(), torch.arange(60)).verdict == "not applicable"


# --- advice

EVERYTHING = (
    *OVERFITTING,
    *UNSTABLE,
    *TAMER,
    *SMOOTHER,
    *GATES,
    "smaller weights: --init orthogonal",
    "a lower learning rate: --learning-rate 0.001",
)


@pytest.mark.parametrize("name", sorted(spec.name for spec in language_models()))
def test_advice_has_only_flags_that_the_model_takes_and_no_value_that_it_has(name: str) -> None:
    spec = MODELS[name]
    given = [[ngram(2), gru()]] if spec.fitting == "mixture" else [257, None] if name == "ngram" else [257]
    model: LanguageModel[Any] = spec.model(spec.config(), *given)
    training = HEALTHY if MODELS[name].trained_by_gradient else None
    configs = (MODELS[name].config,) if training is None else (MODELS[name].config, LoopConfig, OptimizerConfig)
    values = {field.name.replace("_", "-"): field.default for config in configs for field in fields(config)}
    kept = fitting(EVERYTHING, model, settings(model, training))
    flags = [pair for one in kept for pair in FLAG.findall(one)]
    assert {flag for flag, _ in flags} <= values.keys()
    assert not [(flag, value) for flag, value in flags if str(values[flag]) == value]
    assert any("gru or lstm" in one for one in kept) == (name == "rnn")
    assert ("gates in the cell: --cell gru" in kept) == (name == "rnn-attention")
    assert ("a smaller --hidden" in kept) == (name in ("bigram", "nnlm"))
    assert ("more dropout: --dropout 0.2" in kept) == ("dropout" in values)


def test_a_transformer_is_advised_in_its_own_settings() -> None:
    full = GPT(GPTConfig(width=8, layers=1, heads=2), 9)
    local, offered = GPT(replace(full.config, attention="local"), 9), (*EVERYTHING, *MORE_ATTENTION, *SMALLER)
    kept = {model.config.attention: fitting(offered, model, settings(model, HEALTHY)) for model in (full, local)}
    assert "smaller initial weights: --init gpt2" in kept["full"]
    assert "output weights that are not the embeddings: --no-tied" in kept["full"]
    assert not [
        one for one in kept["full"] if "orthogonal" in one or "greater --width" in one or "--attention-window" in one
    ]
    assert {"a longer --attention-window", "attention to every token: --attention full"} <= set(kept["local"])


def test_the_usual_rate_is_the_models_own(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(some_text(300))
    run = octavo.train("gpt", tmp_path / "text.txt", width=8, layers=1, heads=2, budget="2steps", out=tmp_path / "gpt")
    training = Training.of(run)
    assert training is not None
    assert (
        training.lower_rate()
        == f"a lower learning rate: --learning-rate 0.001 --muon-learning-rate {run.model.muon_learning_rate / 4:g}"
    )
    assert len(training.other_rate()) == 2
    assert by_name(examine(run))["gradient flow"].verdict != "not applicable"


def test_what_a_transformer_cannot_see_is_not_missed() -> None:
    short = GPT(GPTConfig(width=8, layers=1, heads=2, context=3), 9)
    assert required_field(short) == 3
    assert required_field(GPT(GPTConfig(width=8, layers=2, heads=2, context=3), 9)) is None
    assert required_field(GPT(GPTConfig(width=8, layers=1, heads=2, attention="linear"), 9)) is None


def test_advice_does_not_go_back_on_what_the_run_did_already() -> None:
    model, tries = gru(), ("more dropout: --dropout 0.2", "stop in time: --patience 3", "fewer --layers", "--clip 1")
    own = {"dropout": 0.0, "patience": 0, "layers": 2, "clip": 0.0}
    assert fitting(tries, model, own) == tries
    assert fitting(tries, model, {"dropout": 0.5, "patience": 2, "layers": 1, "clip": 1.0}) == ()


# --- whole runs


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text, a healthy network, one with a dead rate, and counted models."""
    folder = tmp_path_factory.mktemp("doctor")
    text = folder / "text.txt"
    text.write_text(some_text(), encoding="utf-8")
    small = {"width": 32, "layers": 1, "batch_size": 16, "budget": "150steps"}
    octavo.train("rnn", text, **small, out=folder / "rnn")
    octavo.train(
        "gru", text, **small | {"budget": "30steps"}, learning_rate=1e-6, muon_learning_rate=1e-6, out=folder / "dead"
    )
    octavo.train("gru", text, **small | {"budget": "20steps", "width": 8, "learning_rate": 0.003}, out=folder / "short")
    octavo.train("bigram", text, dim=8, hidden=8, steps=200, out=folder / "bigram")
    octavo.train("ngram", text, order=3, out=folder / "kn3")
    return folder


def by_name(found: Diagnosis) -> dict[str, Finding]:
    return {one.name: one for one in found.findings}


def test_a_healthy_run_is_normal(here: Path) -> None:
    found = examine(load(here / "rnn"))
    assert found.count("warning") == 0, [one.why for one in found.findings if one.verdict == "warning"]
    assert found.verdict.startswith("normal")
    assert len(found.findings) == 17
    baselines = by_name(found)["baselines"].values["baselines"]
    assert baselines[0]["passed_at"] is not None  # better than the bag
    assert all(row["held_out"] is not None for row in baselines)


def test_a_dead_run_is_warned_of(here: Path) -> None:
    named = by_name(examine(load(here / "dead")))
    assert named["progress"].condition == "learning rate too low"
    assert [named[name].verdict for name in ("baselines", "progress", "context")] == ["warning"] * 3
    assert named["start"].verdict == "ok"
    assert "worse than the bag" in named["baselines"].why
    assert named["context"].values["used"] <= 1  # tokens that the random weights tell apart by chance


def test_a_run_of_a_few_steps_is_advised_to_train_longer(here: Path) -> None:
    named = by_name(examine(load(here / "short")))
    assert "worse than the bag of bytes" in named["baselines"].why
    assert named["baselines"].advice == named["progress"].advice == ("train longer: --budget 200steps",)


def test_a_bigram_is_advised_in_its_own_flags(here: Path) -> None:
    found = examine(load(here / "bigram"))
    flags = {flag for one in found.findings for advice in one.advice for flag, _ in FLAG.findall(advice)}
    assert flags <= {field.name for field in fields(BigramConfig)}
    values = by_name(found)["baselines"].values
    assert all(
        row["passed_at"] is None or values["bits_per_byte"] < row["bits_per_byte"] for row in values["baselines"]
    )


def test_a_network_without_recurrence_is_found_to_use_only_the_last_token(here: Path, tmp_path: Path) -> None:
    run = load(here / "rnn")
    with torch.no_grad():
        dict(run.model.named_parameters())["layers.0.weight_hh"].zero_()
    metrics = (here / "rnn" / METRICS).read_text()
    named = by_name(examine(run.save(tmp_path / "blind", {METRICS: metrics}), quick=True))
    assert named["context"].verdict == "warning"
    assert named["context"].values["used"] == 1
    assert named["gradient flow"].verdict == "warning"
    assert "does not read its state" in named["gradient flow"].why


def test_baselines_are_those_of_models_trained_on_the_same_text(here: Path) -> None:
    run = load(here / "kn3")
    baselines = measure_baselines(run, held_out(run)[1])
    assert baselines.find(3).bits_per_byte == pytest.approx(run.record["result"]["bits_per_byte"], rel=1e-12)
    assert baselines.own == run.record["result"]["bits_per_byte"]
    assert [row.order for row in baselines.rows] == [1, 2, 3, 4, 5]
    assert baselines.whole


def test_only_the_beginning_of_a_large_text_is_counted_and_the_run_scored_anew(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = load(here / "kn3")
    _, valid = held_out(run)
    monkeypatch.setattr("octavo.inspection.doctor.baselines.COUNTED", 1000)
    monkeypatch.setattr("octavo.inspection.doctor.baselines.SCORED", 500)
    baselines = measure_baselines(run, valid)
    assert (baselines.counted, baselines.whole) == (1000, False)
    expected = octavo.evaluate(run, valid.read()[:500]).bits_per_byte
    assert baselines.own == pytest.approx(expected, rel=1e-12)
    assert "first 0 MB" in compare_with_baselines(baselines, curve(), run.model).why


def test_a_counted_run_is_examined_as_far_as_it_makes_sense(here: Path) -> None:
    named = by_name(examine(load(here / "kn3")))
    assert {name for name, one in named.items() if one.verdict != "not applicable"} == {
        "text",
        "tokenizer",
        "baselines",
        "softmax",
        "context",
    }
    assert all(one.why for one in named.values())


def test_a_stopped_run_is_examined_with_its_last_weights(here: Path, tmp_path: Path) -> None:
    run = load(here / "rnn")
    trained = by_name(examine(run, quick=True))["softmax"].values["bits"]
    fresh = RNN(run.model.config, run.model.vocab)
    fresh.initialise(torch.Generator().manual_seed(0))
    record = {key: value for key, value in run.record.items() if key != "result"}
    record["training"] = record["training"] | {"finished": False, "why": ""}
    rows = (here / "rnn" / METRICS).read_text().splitlines(keepends=True)
    stopped = replace(run, model=fresh, record=record).save(tmp_path / "stopped", {METRICS: "".join(rows[:-1])})
    untrained = by_name(examine(load(tmp_path / "stopped"), quick=True))["softmax"].values["bits"]
    assert untrained == pytest.approx(math.log2(257), rel=0.1)  # there was no checkpoint
    shutil.copytree(here / "rnn" / "state", tmp_path / "stopped" / "state")
    found = examine(load(stopped.path or ""))
    named = by_name(found)
    assert named["softmax"].values["bits"] == pytest.approx(trained, rel=1e-6)
    assert named["events"].verdict == "note"
    assert named["baselines"].verdict in ("ok", "note")


def test_a_run_whose_text_is_gone_is_examined_by_its_history_alone(here: Path, tmp_path: Path) -> None:
    run = load(here / "rnn")
    run.record["corpus"] = run.record["corpus"] | {"source": [str(tmp_path / "gone.txt")]}
    metrics = (here / "rnn" / METRICS).read_text()
    named = by_name(examine(run.save(tmp_path / "moved", {METRICS: metrics})))
    assert named["baselines"].verdict == named["softmax"].verdict == named["context"].verdict == "not applicable"
    assert "gone.txt" in named["baselines"].why
    assert named["start"].verdict == "ok"


def test_the_command_prints_a_verdict_a_table_and_what_to_try(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", str(here / "dead")]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{here / 'dead'}: learning rate too low; 3 warnings")
    usual = load(here / "dead").model.muon_learning_rate
    assert f"try a higher learning rate: --learning-rate 0.004 --muon-learning-rate {usual:g}" in out
    assert "bag of bytes" in out
    assert main(["doctor", str(here / "kn3"), "--quick", "--all"]) == 0
    out = capsys.readouterr().out
    assert "not examined: baselines: left out by --quick" in out
    assert "normal" in out


def test_json_holds_every_finding_with_its_figures(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = json_output(capsys, "doctor", str(here / "rnn"), "--quick")
    verdicts = [one["verdict"] for one in report["findings"]]
    assert verdicts == sorted(verdicts, key=["warning", "note", "ok", "not applicable"].index)
    named = {one["name"]: one for one in report["findings"]}
    assert set(named) == set(CAUSES) - {"examples"}
    assert named["start"]["values"]["ln_vocab"] == pytest.approx(math.log(257))
    assert named["start"]["values"]["expected"] == pytest.approx(named["start"]["values"]["loss"], rel=0.01)
    assert (report["warnings"], report["condition"]) == (0, "")


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a run"):
        doctor(str(tmp_path))


@pytest.mark.parametrize("steps", [4, 300])
def test_a_loss_and_what_it_is_compared_with_have_one_unit(steps: int) -> None:
    found = progress(curve([5.55] * steps), HEALTHY, 257, Expectation(4.8, 3.7, "bytes"))
    assert found.verdict == "warning"
    assert f"{5.55 / math.log(2):.3f} bits per byte" in found.measured
    assert found.expected == "below 4.800 bits per byte" or found.condition == "nothing learnt"


def test_a_diagnosis_without_anything_to_examine_says_so() -> None:
    nothing = Finding("start", "not applicable", "", "", "why")
    assert Diagnosis("r", (nothing,)).verdict == "nothing could be examined"
    ok, bad = replace(nothing, verdict="ok"), replace(nothing, verdict="warning")
    assert Diagnosis("r", (ok, nothing)).verdict == "normal"
    assert Diagnosis("r", (ok, bad, bad)).verdict == "2 warnings"
    unjudged = (ok, replace(nothing, name="progress"), replace(nothing, name="baselines"))
    assert Diagnosis("r", unjudged).verdict == "normal as far as examined"
