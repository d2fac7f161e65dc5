"""Scaling: laws checked against known numbers and SciPy, intervals that cover, crossings by algebra, resuming."""

from __future__ import annotations

import io
import json
import math
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import curve_fit, least_squares

from html_pages import elements
from octavo.cli import main
from octavo.errors import Stopped, UserError
from octavo.experiments.cell import first_part, last_part, write_part
from octavo.experiments.progress import Progress
from octavo.experiments.scale import ScalePoint, Scaling, crossing, fit_law, scale
from octavo.experiments.scale import power_law as law
from octavo.experiments.scale.measure import best_order
from octavo.experiments.scale.page import crossing_line, scaling_page, summary
from octavo.experiments.scale.power_law import MAX_TIMES, Fit, Law, constant
from octavo.experiments.scale.result import chosen
from octavo.experiments.scale.run import ScalePlan, budget_part, plan_cells, width_of
from octavo.io.run_folder import REPORT
from octavo.models import NGram
from octavo.models.gpt import GPT
from octavo.models.ngram import NGramConfig
from octavo.models.parts.config import GPTConfig
from octavo.models.recurrent import RecurrentConfig
from octavo.pages.figures.charts import FittedPoints, law_figure
from octavo.pages.figures.plot import number
from octavo.tasks import api
from octavo.tasks.corpus import TextConfig
from octavo.text import Byte, open_corpus
from octavo.text.validation_chunks import hold_out
from octavo.training.loop import Loop

LENGTHS = 1e6 / 2.0 ** np.arange(5)
WORDS = "the king and a queen sat by fire while rain fell on every roof of old Québec town".split()
SMALL: dict[str, Any] = {"width": 16, "layers": 1, "heads": 2, "context": 16, "evaluations": 1}
THREE = ScalePlan((0.25, 0.5, 1.0))
SERIES = ScalePlan((0.25, 0.5, 1.0), (0.5, 1.0), (0.25, 0.5, 1.0))
FLAGS = [
    "--width",
    "16",
    "--layers",
    "1",
    "--heads",
    "2",
    "--context",
    "16",
    "--evaluations",
    "1",
    "--budget",
    "4steps",
]


@pytest.fixture(scope="module", autouse=True)
def few_refits() -> Iterator[None]:
    """Enough for what is tested here, and quicker."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(law, "REFITS", {1: 200, 2: 60})
        yield


def falling(x: Any, floor: float = 1.6, excess: float = 0.6, exponent: float = 0.35) -> Any:
    return floor + excess * (x / 1e6) ** -exponent


def noisy(seed: int, x: Any = LENGTHS, size: float = 0.003, **known: float) -> Any:
    return falling(x, **known) * (1 + size * np.random.default_rng(seed).standard_normal(len(x)))


def fitted(x: Any, y: Any, **options: Any) -> Fit:
    return fit_law(np.asarray(x, float)[:, None], y, **options)


def prose(lines: int, seed: int = 0) -> str:
    """Sentences in which a word makes the next one likely, so that more context and more text help."""
    choose = random.Random(seed)
    made = []
    for _ in range(lines):
        at = choose.randrange(len(WORDS))
        row = []
        for _ in range(8):
            row.append(WORDS[at])
            at = (at * 3 + choose.choice((1, 1, 1, 2))) % len(WORDS)
        made.append(" ".join(row).capitalize() + ".\n")
    return "".join(made)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "rain.txt"
    path.write_text(prose(800), encoding="utf-8")
    return path


def point(model: str, length: int, bits: float | None, **more: Any) -> ScalePoint:
    values: dict[str, Any] = {"size": 1.0, "budget": 1.0, "seed": 0, "parameters": 1000, "seconds": 1.0, "passes": 1.0}
    values |= {"flops": 0.0 if model == "ngram" else 1e9}
    return ScalePoint(model=model, bytes=length, bits_per_byte=bits, **(values | more))


def made_up(first: Any, second: Any, lengths: Any = LENGTHS) -> Scaling:
    """An experiment with two models whose results are given by functions of the length."""
    points = [point("gpt", int(x), float(first(x))) for x in lengths]
    points += [point("ngram", int(x), float(second(x)), order=5) for x in lengths]
    return Scaling("gpt", "ngram", "a text", int(max(lengths)), 1000, "30s", tuple(points))


# The law


def test_known_parameters_are_found_again() -> None:
    found = fitted(LENGTHS, falling(LENGTHS)).law
    assert (found.floor, found.excess[0], found.exponent[0]) == pytest.approx((1.6, 0.6, 0.35), rel=1e-4)
    assert found.unit == (1e6,)
    assert found(1e7) == pytest.approx(falling(1e7), rel=1e-6)


def test_a_law_without_a_floor_is_found_again() -> None:
    found = fitted(LENGTHS[:4], falling(LENGTHS[:4], floor=0, excess=2.2, exponent=0.08))
    assert not found.with_floor
    assert (found.law.floor, found.law.exponent[0]) == pytest.approx((0, 0.08), rel=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_it_agrees_with_scipys_curve_fit(seed: int) -> None:
    y = noisy(seed)
    theirs = curve_fit(falling, LENGTHS, y, p0=(1.5, 0.5, 0.3), sigma=y)[0]
    ours = fitted(LENGTHS, y).law
    assert (ours.floor, ours.excess[0], ours.exponent[0]) == pytest.approx(theirs, rel=1e-3)


def test_the_joint_law_agrees_with_scipys_least_squares() -> None:
    n, d = (one.ravel() for one in np.meshgrid([1e4, 4e4, 1.6e5], LENGTHS))
    y = 1.5 + 0.2 * (n / 1.6e5) ** -0.5 + 0.6 * (d / 1e6) ** -0.3
    y *= 1 + 0.003 * np.random.default_rng(0).standard_normal(len(y))

    def misses(p: Any) -> Any:
        return (p[0] + p[1] * (n / 1.6e5) ** -p[3] + p[2] * (d / 1e6) ** -p[4] - y) / y

    theirs = least_squares(misses, [1, 0.5, 0.5, 0.3, 0.3], bounds=(0, [9, 9, 9, 4, 4]), xtol=1e-14, ftol=1e-14)
    found = fit_law(np.stack([n, d], 1), y)
    ours = [found.law.floor, *found.law.excess, *found.law.exponent]
    assert ours == pytest.approx(theirs.x, rel=1e-3)
    assert float((misses(ours) ** 2).sum()) <= 2 * theirs.cost * (1 + 1e-6)
    assert found.whole
    for variable, truth in enumerate((0.5, 0.3)):
        assert found.exponent(variable).low <= truth <= found.exponent(variable).high


def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    hits, times = [0, 0, 0], 60
    for seed in range(times):
        found = fitted(LENGTHS, noisy(seed), seed=seed)
        intervals = (found.exponent(), found.interval(1e7), found.interval(3e5))
        for i, (interval, truth) in enumerate(zip(intervals, (0.35, falling(1e7), falling(3e5)), strict=True)):
            hits[i] += interval.low <= truth <= interval.high
    assert min(hits) >= 0.88 * times  # of 60 at 95 %, fewer come once in a hundred times


def test_more_seeds_make_the_interval_narrower() -> None:
    once, often = LENGTHS, np.repeat(LENGTHS, 4)
    wide = np.median([_width(fitted(once, noisy(seed, once)), 1e7) for seed in range(5)])
    narrow = np.median([_width(fitted(often, noisy(seed, often)), 1e7) for seed in range(5)])
    assert narrow < wide / 2


def _width(found: Fit, x: float) -> float:
    interval = found.interval(x)
    return interval.high - interval.low


def test_an_interval_is_wider_the_further_it_is_extrapolated() -> None:
    found = fitted(LENGTHS, noisy(0))
    assert _width(found, 1e6) < _width(found, 1e7) < _width(found, 1e8)


def test_the_same_seed_gives_the_same_interval_and_another_another() -> None:
    one, same, other = (fitted(LENGTHS, noisy(0), seed=seed) for seed in (1, 1, 2))
    assert one.exponent() == same.exponent() != other.exponent()
    assert one.law == other.law


@pytest.mark.parametrize("y", [[2.0, 2.01, 2.0, 2.02, 2.0], [2.0, 2.02, 2.04, 2.06, 2.08], [2.0] * 5, [2.0, 2.01, 2.0]])
def test_level_or_rising_figures_are_not_called_a_fall(y: list[float]) -> None:
    found = fitted(LENGTHS[: len(y)][::-1], y)
    assert not found.falls
    assert found.law(1e8) == pytest.approx(np.mean(y), rel=0.05)


def test_falling_figures_are_called_a_fall() -> None:
    assert fitted(LENGTHS, noisy(0)).falls


def test_a_floor_is_fitted_only_from_five_different_lengths() -> None:
    assert [fitted(LENGTHS[:n], falling(LENGTHS[:n])).with_floor for n in (3, 4, 5)] == [False, False, True]
    assert not fitted(np.repeat([1e6, 5e5, 1e5], 4), [2.0] * 12).with_floor


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ([1, 2], [2, 1.9], "3 or more different places"),
        ([1, 1, 2, 2], [2, 2, 1.9, 1.9], "there are 4, at 2"),
        ([1, 2, 4], [2, 1.9, math.inf], "infinite"),
        ([0, 2, 4], [2, 1.9, 1.8], "above zero"),
        ([1, 2, 4], [2, 1.9], "each result"),
    ],
)
def test_points_that_no_law_goes_through_are_refused(x: list[float], y: list[float], message: str) -> None:
    with pytest.raises(UserError, match=message):
        fitted(x, y)


# Crossings


def sure(floor: float, excess: float, exponent: float) -> Fit:
    law = Law(floor, (excess,), (exponent,), (1e6,))
    return Fit(law, (law,), 5, True, 0.0, (1e5,))


def test_two_laws_cross_where_algebra_says() -> None:
    # 2 (x/u)^-0.3 = 1.5 (x/u)^-0.1 where (x/u)^0.2 = 4/3
    found = crossing(sure(0, 2, 0.3), sure(0, 1.5, 0.1), 1e5, 1e6)
    assert found.kind == "crosses"
    assert found.overtakes
    assert found.at == pytest.approx(1e6 * (4 / 3) ** 5, rel=1e-9)
    assert not found.measured
    back = crossing(sure(0, 1.5, 0.1), sure(0, 2, 0.3), 1e5, 1e6)
    assert (back.at, back.overtakes) == (pytest.approx(found.at), False)


def test_a_level_line_is_crossed_too() -> None:
    found = crossing(sure(1, 0.5, 0.5), constant(2.0), 1e4, 1e6)
    assert found.at == pytest.approx(1e6 * 0.25, rel=1e-9)
    assert found.measured


def test_laws_that_do_not_meet_within_reach_are_said_not_to() -> None:
    assert crossing(sure(2.0, 0.5, 0.3), constant(1.9), 1e5, 1e6).kind == "behind"
    assert crossing(sure(1.0, 0.1, 0.1), constant(2.5), 1e5, 1e6).kind == "ahead"
    far = sure(0, 2.0, 0.1)
    x = 1e6 * 2 * MAX_TIMES
    assert crossing(far, constant(far.law(x)), 1e5, 1e6).kind == "behind"
    assert crossing(far, constant(far.law(x)), 1e5, 3e6).kind == "crosses"


def test_the_interval_of_a_crossing_covers_it_and_says_where_refits_never_cross() -> None:
    truth = 1e6 * (4 / 3) ** 5
    first, second = (
        fitted(LENGTHS, noisy(seed, floor=0, excess=a, exponent=b), floor=False)
        for seed, a, b in ((0, 2.0, 0.3), (1, 1.5, 0.1))
    )
    found = crossing(first, second, LENGTHS.min(), 1e6)
    assert found.interval.low < truth < found.interval.high
    assert found.share == 1
    vague = fitted(LENGTHS, noisy(0, size=0.2, floor=0, excess=2.0, exponent=0.3), floor=False)
    unsure = crossing(vague, second, LENGTHS.min(), 1e6)
    assert unsure.interval.low == 0 or math.isinf(unsure.interval.high)
    assert unsure.share < 1


def test_refits_of_the_same_seed_are_not_paired_with_each_other() -> None:
    """Two models with the same noise draws would move together, and the crossing look surer than it is."""
    fits = [fitted(LENGTHS, noisy(3, floor=0, excess=a, exponent=b), floor=False) for a, b in ((2.0, 0.3), (1.6, 0.2))]
    shuffled = np.random.default_rng(0).permutation(len(fits[1].refits)).tolist()

    def width(second: Fit) -> float:
        interval = crossing(fits[0], second, LENGTHS.min(), 1e6).interval
        return math.log(interval.high / interval.low)

    fair = width(replace(fits[1], refits=tuple(fits[1].refits[i] for i in shuffled)))
    together = width(replace(fits[1], refits=fits[1].refits[::-1]))
    assert width(fits[1]) == pytest.approx(fair, rel=0.3)
    assert together < 0.6 * fair


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (sure(0, 2, 0.3), sure(0, 1.5, 0.1), "overtakes the n-gram at about 4.2 MB of text .* 4.2 times the most"),
        (sure(0, 1.5, 0.1), sure(0, 2, 0.3), "falls behind the n-gram at about 4.2 MB"),
        (
            sure(1, 0.5, 0.5),
            constant(2.0),
            r"the n-gram at about 250.0 kB of text \(250.0 kB to 250.0 kB\).$",
        ),
        (sure(2, 0.5, 0.3), constant(1.9), "does not catch up with the n-gram within 100 times .* a guess"),
        (sure(1, 0.1, 0.1), constant(2.5), "is ahead of the n-gram everywhere within 100 times"),
    ],
)
def test_a_crossing_is_explained_in_words(first: Fit, second: Fit, message: str) -> None:
    assert re.search(message, crossing_line(crossing(first, second, 1e5, 1e6), "text", "gpt", "the n-gram"))


# What is trained


def test_smaller_networks_have_whole_heads_and_can_be_built() -> None:
    for size in (0.1, 0.25, 0.5, 0.7, 1):
        config = GPTConfig(width=width_of(GPTConfig(), size))
        assert GPT(config, 257).config.head_size % 2 == 0
    assert [width_of(GPTConfig(), size) for size in (0.25, 0.5, 1)] == [32, 64, 128]
    assert width_of(RecurrentConfig(), 0.3) % 8 == 0


@pytest.mark.parametrize(
    ("budget", "part", "message"),
    [
        ("30s", 0.125, "3.750s"),
        ("2min", 0.5, "60.000s"),
        ("100steps", 0.25, "25steps"),
        ("2Mtokens", 0.5, "1000000tokens"),
    ],
)
def test_a_part_of_a_budget(budget: str, part: float, message: str) -> None:
    assert budget_part(budget, part) == message


def test_every_length_meets_every_size_and_budgets_are_for_the_whole() -> None:
    plan = ScalePlan((0.25, 0.5, 1.0), (0.5, 1.0), (0.25, 1.0), seeds=2)
    cells = plan_cells("gpt", {"budget": "8s"}, plan, seed=3)
    assert len(cells) == len({cell.key for cell in cells}) == 2 * (3 * 2 + 1)
    assert {cell.seed for cell in cells} == {3, 4}
    [short, _] = [cell for cell in cells if cell.options["part"] < 1]
    assert (short.options["share"], short.options["size"], short.budget) == (1.0, 1.0, "2.000s")
    assert len(plan_cells("ngram", {}, plan, 0, search_order=True)) == 3


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"lengths": (0.5, 1.0)}, "at least 3 lengths"),
        ({"lengths": (0.25, 0.5, 0.75)}, "with 1 among them"),
        ({"sizes": (1.0, 2.0)}, "at most 1"),
        ({"budgets": (0.0, 1.0)}, "above 0"),
        ({"sizes": (1.0, 1.0)}, "different"),
        ({"seeds": 0}, "seeds must be at least 1"),
    ],
)
def test_a_plan_without_enough_points_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        ScalePlan(**wrong)


def test_parts_of_a_text_begin_and_end_with_whole_characters(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("ééé€€€𝄞𝄞𝄞" * 400, encoding="utf-8")
    corpus = open_corpus(tmp_path / "text.txt")
    whole = corpus.train.read()
    for share in (0.1, 0.33, 0.5, 0.777, 1.0):
        part = last_part(corpus.train, round(len(whole) * share))
        assert whole.endswith(part.read())
        assert 0 <= round(len(whole) * share) - part.size <= 3
        assert write_part(part, tmp_path / f"part{share}").read_text(encoding="utf-8") == part.read().decode()
    for limit in (1001, 1002, 1003, 1004):
        first = first_part(corpus.valid, limit)
        assert corpus.valid.read().startswith(first.read())
        assert first.read().decode()
        assert 0 <= limit - first.size <= 3


def test_documents_stay_documents(tmp_path: Path) -> None:
    lines = [json.dumps({"text": prose(3, seed)}) for seed in range(50)]
    (tmp_path / "many.jsonl").write_text("\n".join(lines), encoding="utf-8")
    corpus = open_corpus(tmp_path / "many.jsonl")
    part = last_part(corpus.train, corpus.train.size // 2)
    again = open_corpus(write_part(part, tmp_path / "train"), valid=write_part(corpus.valid, tmp_path / "valid"))
    assert again.train.read() == part.read()
    assert again.train.documents == part.documents > 10
    assert again.valid.sha256 == corpus.valid.sha256


# The trainings


def test_the_order_is_the_best_on_pieces_held_out_of_the_training_text(corpus: Path) -> None:
    text = TextConfig(valid=(str(corpus),))
    order = best_order(corpus, text)
    x_N = np.concatenate([[256], Byte().encode(corpus.read_bytes())])
    held = hold_out(x_N, 256)

    def nats_of(n: int) -> float:
        model = NGram.fit(torch.from_numpy(held.train_N.astype(np.int32)), NGramConfig(order=n), 257, 10)
        return -float(model.score(torch.from_numpy(held.pieces_PL.astype(np.int64))).sum())

    assert order > 2
    assert nats_of(order) < min(nats_of(order - 1), nats_of(order + 1))


def test_a_point_is_what_training_on_that_piece_gives(corpus: Path, tmp_path: Path) -> None:
    found = scale("ngram", corpus, order=3, plan=THREE, out=tmp_path / "out")
    opened = open_corpus(corpus)
    for share, one in zip((0.25, 0.5, 1), found.points, strict=True):
        (tmp_path / "part.txt").write_bytes(opened.train.read()[-round(opened.train.size * share) :])
        (tmp_path / "valid.txt").write_bytes(opened.valid.read())
        run = api.train("ngram", tmp_path / "part.txt", order=3, valid=[tmp_path / "valid.txt"])
        assert one.bits_per_byte == pytest.approx(run.record["result"]["bits_per_byte"], rel=1e-12)
        assert one.bytes == round(opened.train.size * share)
    assert found.against is None
    assert found.text["ngram"].fit is not None


@pytest.fixture(scope="module")
def finished(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Scaling]:
    """A small experiment with a transformer and an n-gram."""
    out = tmp_path_factory.mktemp("series") / "out"
    lines = io.StringIO()
    found = scale("gpt", corpus, plan=SERIES, budget="8steps",
                  held_out=1000, out=out, progress=Progress(lines), **SMALL)  # fmt: skip
    (out.parent / "progress.txt").write_text(lines.getvalue(), encoding="utf-8")
    return out, found


def test_every_point_is_there_and_is_measured_on_the_same_text(finished: tuple[Path, Scaling]) -> None:
    _, found = finished
    assert len(found.points) == 3 + 3 * 2 + 2
    assert found.held_out_bytes in range(1000, 1004)
    networks = [one for one in found.points if one.model == "gpt"]
    assert {one.width for one in networks} == {8, 16}
    assert all(one.validation_bits_per_byte and one.flops > 0 and one.passes > 0 for one in networks)
    whole = next(one for one in networks if one.size == one.budget == 1 and one.bytes == found.text_bytes)
    assert whole.parameters == sum(p.numel() for p in GPT(GPTConfig(width=16, layers=1, heads=2), 257).parameters())
    short = [one.flops for one in networks if one.budget < 1]
    assert sorted(one / whole.flops for one in short) == pytest.approx([0.25, 0.5])


def test_what_is_finished_is_not_trained_again_and_gives_the_same(
    corpus: Path, finished: tuple[Path, Scaling], monkeypatch: pytest.MonkeyPatch
) -> None:
    out, found = finished
    monkeypatch.setattr(api, "train", _refuse)
    again = scale("gpt", corpus, plan=SERIES, budget="8steps",
                  held_out=1000, out=out, **SMALL)  # fmt: skip
    assert again.to_json() == found.to_json()
    assert json.loads((out / "scaling.json").read_text(encoding="utf-8")) == found.to_json()


def _refuse(*_: Any, **__: Any) -> None:
    raise AssertionError("trained again")


def test_a_stopped_experiment_is_resumed_and_other_settings_are_trained_anew(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, orders = api.train, []

    def stopping(*args: Any, **settings: Any) -> Any:
        orders.append(settings["order"])
        if len(orders) == 3:
            raise KeyboardInterrupt
        return real(*args, **settings)

    def run(order: int) -> Scaling:
        return scale("ngram", corpus, order=order, plan=THREE, out=tmp_path, progress=Progress(io.StringIO()))

    monkeypatch.setattr(api, "train", stopping)
    with pytest.raises(Stopped, match="2 of 3 are finished and stored; call it again to resume") as stop:
        run(3)
    assert stop.value.code == 130
    run(3)
    assert orders == [3] * 4
    torn = sorted((tmp_path / "cells").iterdir())[1]
    torn.write_text(torn.read_text(encoding="utf-8")[:50], encoding="utf-8")
    run(3)
    assert orders == [3] * 5  # a cell whose record was torn is trained again
    run(4)
    assert orders == [3] * 5 + [4] * 3
    run(3)
    assert len(orders) == 8


def test_a_network_that_was_stopped_half_way_is_resumed_to_the_same_result(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {
        **SMALL, "checkpoint_seconds": 0.0, "budget": "4steps", "against": "none",
        "plan": ScalePlan((0.25, 0.5, 1.0), (1.0,), (1.0,)),
    }  # fmt: skip
    step, steps = Loop.step, []

    def stopped(loop: Loop, spent: float) -> None:
        steps.append(loop.position.step)
        if len(steps) == 7:
            raise KeyboardInterrupt
        step(loop, spent)

    whole = scale("gpt", corpus, **settings, progress=Progress(io.StringIO()))
    monkeypatch.setattr(Loop, "step", stopped)
    with pytest.raises(Stopped, match="1 of 3 are finished"):
        scale("gpt", corpus, **settings, out=tmp_path, progress=Progress(io.StringIO()))
    resumed = scale("gpt", corpus, **settings, out=tmp_path, progress=Progress(io.StringIO()))
    assert [one.bits_per_byte for one in resumed.points] == [one.bits_per_byte for one in whole.points]
    assert len(steps) < 1 + 3 * 4 + 2  # the second training did not begin anew


def test_a_training_that_fails_is_a_failed_row_and_the_command_exits_with_1(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = api.train

    def failing(model: str, *args: Any, **settings: Any) -> Any:
        if model == "bag":
            raise MemoryError
        return real(model, *args, **settings)

    monkeypatch.setattr(api, "train", failing)
    words = ["scale", "ngram", str(corpus), "--against", "bag", "--lengths", "0.25", "0.5", "1"]
    assert main([*words, "--out", str(tmp_path / "out")]) == 1
    printed = capsys.readouterr()
    assert len(re.findall(r"^bag .* failed *$", printed.out, re.MULTILINE)) == 3
    assert "bytes failed: out of memory" in printed.err
    page = (tmp_path / "out" / REPORT).read_text(encoding="utf-8")
    assert len(re.findall("bag on [0-9,]+ bytes failed: out of memory", page)) == 3
    assert main([*words, "--out", str(tmp_path / "out"), "--json"]) == 1
    points = json.loads(capsys.readouterr().out)["points"]
    assert sum(point["error"] is None for point in points) == 3


def test_progress_says_what_is_trained(finished: tuple[Path, Scaling]) -> None:
    lines = (finished[0].parent / "progress.txt").read_text(encoding="utf-8").splitlines()
    begun = [line for line in lines if not line.startswith("  ")]
    assert len(begun) == 11
    assert begun[0].startswith("1 of 11: ngram, ")
    assert re.search(
        r"11 of 11: gpt, [\d,]+ bytes of text, width 16, for 4steps; (about \d+ s|a few seconds) left", begun[-1]
    )


def test_sizes_are_chosen_on_validation_chunks_never_on_the_reported_text() -> None:
    small = point("gpt", 1000, 2.5, size=0.5, validation_bits_per_byte=2.0)
    large = point("gpt", 1000, 2.4, size=1.0, validation_bits_per_byte=2.1)
    assert chosen([large, small]) == [small]
    assert chosen([point("gpt", 1000, 2.4, size=s) for s in (0.5, 1.0)])[0].size == 1.0


# In words


def test_a_series_is_explained_in_words() -> None:
    found = made_up(lambda x: falling(x, 1.2, 1.0, 0.3), lambda x: falling(x, 1.9, 0.5, 0.2))
    message = "\n".join(summary(found))
    assert "gpt, over text (30s each): bits per byte = 1.200 + 1.000 × (text / 1.0 MB)^-0.300" in message
    assert "The n-gram, over text: bits per byte = 1.900 + 0.500 × (text / 1.0 MB)^-0.200" in message
    assert f"with 10 times as much (10.0 MB) {falling(1e7, 1.2, 1.0, 0.3):.3f}" in message
    assert "As measured, gpt is ahead of the n-gram at 2 (500.0 kB, 1.0 MB) of the 5 lengths." in message
    assert re.search(r"By the laws gpt overtakes the n-gram at about 423.9 kB of text", message)


def test_a_model_that_gets_no_better_is_not_carried_on() -> None:
    level = made_up(lambda x: 4.0 + 0.01 * math.sin(x), lambda x: falling(x))
    message = "\n".join(summary(level))
    assert "these 5 points are too few, or too scattered, to be sure of a fall" in message
    assert "a law that does not surely fall cannot be extrapolated" in message


def test_what_limits_is_derived_from_both_laws() -> None:
    found = made_up(lambda x: falling(x, 2.0, 0.1, 0.3), lambda x: falling(x))
    longer = [point("gpt", 1_000_000, 2.1 * part**-0.2, budget=part, flops=part * 1e9) for part in (0.125, 0.25, 0.5)]
    first = [p for p in found.points if p.bytes < 1e6 or p.model == "ngram"]
    whole = [point("gpt", 1_000_000, 2.1)]  # the n-gram has 2.2: crossed at (2.1 / 2.2)^5 of 1e9, in 0.79 of a second
    both = Scaling("gpt", "ngram", "a text", 1_000_000, 1000, "30s", (*first, *longer, *whole))
    assert both.training is not None
    message = "\n".join(summary(both))
    assert "gpt is limited by training here" in message
    assert "A budget of 30s reads the whole text 1 times." in message
    assert f"gpt overtakes the n-gram at about {number(1e9 * (2.1 / 2.2) ** 5)} FLOPs, 1 seconds here" in message


def test_infinite_bits_are_said_and_not_fitted(corpus: Path) -> None:
    found = scale("ngram", corpus, order=6, estimator="mle", plan=THREE)
    assert found.text["ngram"].fit is None
    message = "\n".join(summary(found))
    assert "probability zero" in message
    assert "smooth it" in message
    assert found.to_json()["points"][0]["bits_per_byte"] is None
    assert "infinite" in scaling_page(found)


def test_the_figure_has_a_band_a_dashed_part_and_every_mark() -> None:
    points = [(float(x), float(y)) for x, y in zip(LENGTHS, noisy(0), strict=True)]
    fit = fitted(LENGTHS, noisy(0))
    drawn = law_figure([FittedPoints("a <b>", points, fit.law, fit.interval)], "caption", ("x", "y"), 10)
    paths = elements(drawn, "path")
    assert [one.get("fill-opacity") for one in paths].count("0.15") == 1  # the band
    assert [one.get("stroke-dasharray") for one in paths].count("5 4") == 1
    assert len([one for one in paths if "mark" in one.get("class", "").split()]) == len(points) + 1  # and the legend's
    assert "a &lt;b&gt;" in drawn
    assert "<b>" not in drawn
    assert law_figure([FittedPoints("none", [(1.0, math.inf)])], "", ("x", "y"), 10) == ""


def test_a_model_that_learns_while_it_reads_is_marked_in_table_page_and_json(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["adaptive-ngram", str(corpus), "--lengths", "0.25", "0.5", "1"]
    flags += ["--against", "none", "--order", "2", "--out", str(tmp_path / "s")]
    assert main(["scale", *flags]) == 0, capsys.readouterr().err
    printed = capsys.readouterr().out
    assert all(shown in printed for shown in ("adaptive-ngram †", "†: adaptive"))
    assert main(["scale", *flags, "--json"]) == 0
    points = json.loads(capsys.readouterr().out)["points"]
    assert {(one["model"], one["adaptive"]) for one in points} >= {("adaptive-ngram", True)}
    assert "†: adaptive" in (tmp_path / "s" / "report.html").read_text(encoding="utf-8")


def test_the_command_prints_a_table_laws_and_a_whole_page(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    words = ["scale", "gpt", str(corpus), *FLAGS, "--lengths", "0.25", "0.5", "1", "--sizes", "1", "--budgets", "1"]
    assert main([*words, "--held-out", "500", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert printed.count("width 16") == 3
    assert printed.count("order ") == 3
    assert "The n-gram, over text" in printed
    assert [line for line in printed.splitlines() if len(line.rstrip()) > 90 and str(tmp_path) not in line] == []
    page = (out / "report.html").read_text(encoding="utf-8")
    assert not re.search(r"https?://|<script|src=", page)
    assert "octavo scale gpt" in page
    assert len((out / "points.csv").read_text(encoding="utf-8").splitlines()) == 7
    assert main([*words, "--held-out", "500", "--out", str(out), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert [law["variable"] for law in record["laws"]] == ["text", "text"]
    assert record["points"][0]["model"] == "ngram"
    assert "at" in record["crossings"]["text"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["gpt", "TEXT", "--lengths", "0.001", "0.5", "1"], "2,000 bytes"),
        (["gpt", "-"], "read once"),
        (["gpt", "TEXT", "--preprocess", "lower"], "as it is"),
        (["gpt", "TEXT", "--against", "gpt"], "another one"),
        (["gpt", "TEXT", "--against", "gtp"], "did you mean"),
        (["mix", "TEXT"], "mixture"),
        (["gpt", "TEXT", "--budget", "30"], "budget is a positive number"),
        (["gpt", "TEXT", "--width", "8", "--heads", "4"], "different widths"),
        (["gpt", "TEXT", "--seeds", "0"], "seeds must be at least 1"),
        (["gpt", "TEXT", "--held-out", "0"], "held_out must be at least 1"),
        (["gpt", "TEXT", "--out", "TEXT"], "is there already and is not a scaling experiment"),
    ],
)
def test_what_cannot_be_done_is_refused_before_any_training(
    words: list[str], message: str, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(api, "train", _refuse)
    assert main(["scale", *(str(corpus) if word == "TEXT" else word for word in words)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_the_folder_of_a_run_is_refused(corpus: Path, tmp_path: Path) -> None:
    api.train("bag", corpus, out=tmp_path / "bag")
    with pytest.raises(UserError, match="is there already and is not a scaling experiment; choose another --out"):
        scale("ngram", corpus, out=tmp_path / "bag")


def test_help_without_a_model_says_how(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scale"]) == 0
    assert "octavo scale MODEL CORPUS" in capsys.readouterr().out
