"""Interactive exercises say the same as the exercises they belong to, fast, and refuse what makes no sense."""

from __future__ import annotations

import doctest
import json
import math
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from octavo.errors import UserError
from octavo.exercises.framework import playground
from octavo.exercises.framework.inputs import Option, Parameter, Play, Table
from octavo.exercises.framework.playground import PLAYGROUND
from octavo.exercises.framework.registry import chosen
from octavo.exercises.topics import greedy, long_gradients, noisy_keys, softmax
from octavo.ops.attention import FULL, Axial, Block, Global, Local, Neighbourhood, Pattern

FASTEST = 0.020  # seconds that one answer may take


def ends(play: Play) -> list[dict[str, Any]]:
    """The settings as they come, and with each control at either end."""
    found: list[dict[str, Any]] = [{}]
    for one in play.parameters:
        if isinstance(one, Parameter):
            found += [{one.name: one.low}, {one.name: one.high}]
        if isinstance(one, Option):
            found += [{one.name: name} for name in one.options]
        if isinstance(one, Table):
            found += [{one.name: [[1, 0, 0], [0, 0, 0], [0, 0, 2.5]]}]
    return found


@pytest.mark.parametrize("name", PLAYGROUND)
def test_an_answer_is_json_of_one_form_and_comes_at_once(name: str) -> None:
    play = PLAYGROUND[name]
    assert [one.id for one in chosen([play.exercise_id])] == [play.exercise_id]
    assert json.loads(json.dumps(play.told(), allow_nan=False))["title"] == play.title
    for values in ends(play):
        told = play.function(**values)
        assert json.loads(json.dumps(told, allow_nan=False)) == told
        assert {"series", "axes", "log", "told"} <= set(told)
        assert told["told"].endswith(".")
        assert len(told["axes"]) == len(told["log"]) == 2
        assert all(len(point) == 2 for one in told["series"] for point in one["points"])
        assert all(y > 0 for one in told["series"] for _, y in one["points"] if told["log"][1])
        assert any(one["points"] for one in told["series"])
        if "rows" in told:
            assert len({len(row) for row in told["rows"]}) == 1
    took = []
    for _ in range(5):
        began = time.perf_counter()
        play.function()
        took.append(time.perf_counter() - began)
    assert min(took) < FASTEST


def test_the_variance_under_noise_is_the_exercises() -> None:
    lengths = np.array([b for b, _ in noisy_keys.VARIANCES])
    for (b, s), exact in zip(noisy_keys.VARIANCES, noisy_keys.exact_variances().value, strict=True):
        one, _, _ = playground.head_variances(np.array([b]), s, 10)
        assert one[0] == pytest.approx(exact, rel=1e-6)
    one, _, _ = playground.head_variances(lengths, noisy_keys.SPREAD, 10)
    assert one == pytest.approx([noisy_keys.single_variance(b) for b in lengths], rel=1e-6)


def test_two_heads_under_noise_are_the_exercises() -> None:
    part = {one.id: one for one in noisy_keys.TWO_HEADS.parts}
    _, every, kept = playground.head_variances(np.array([1e5]), noisy_keys.SPREAD, 10)
    assert every[0] == pytest.approx(part["variance"].answer.right, rel=1e-4)
    assert kept[0] < 1e-5
    for b in (1.0, 10.0):
        low, high = noisy_keys.variance_interval(noisy_keys.two_head_weight(noisy_keys.lengths(), b))
        assert low <= playground.head_variances(np.array([b]), noisy_keys.SPREAD, 10)[1][0] <= high


@pytest.mark.parametrize("scale", [0.1, 1.0, 8.0, 95.0])
def test_saturation_is_what_the_exact_derivatives_say(scale: float) -> None:
    z = scale * playground.spread_scores(7)
    [largest], [size] = playground.saturated(z[None])
    exact = math.sqrt(math.fsum(one**2 for row in softmax.jacobian(z.tolist()) for one in row))
    assert size == pytest.approx(exact, rel=1e-12)
    assert largest == pytest.approx(torch.from_numpy(z).softmax(-1).max().item(), rel=1e-12)
    assert z.std() == pytest.approx(scale)


@pytest.mark.parametrize(("singular", "steps"), [(0.9, 100), (1.1, 100), (1.1, 7), (1.0, 300)])
def test_a_gradient_grows_as_in_the_exercise(singular: float, steps: int) -> None:
    told = PLAYGROUND["gradient-growth"].function(singular=singular, steps=steps)
    [points] = [one["points"] for one in told["series"] if one["name"] == f"{steps} steps"]
    [at] = [y for x, y in points if math.isclose(x, singular)]
    assert at == pytest.approx(long_gradients.linear_flow(singular, steps), rel=1e-9)
    assert f"{at:.4g}" in told["told"]


def patterns(side: int, window: int) -> dict[str, tuple[Pattern, int]]:
    patches = side * side
    return {
        "full": (FULL, patches), "local": (Local(window + 1), patches), "block": (Block(window), patches),
        "neighbourhood": (Neighbourhood(side, side, window), patches), "axial": (Axial(side, side), patches),
        "global": (Global(window), patches + window),
    }  # fmt: skip


@pytest.mark.parametrize(("side", "window"), [(16, 4), (16, 1), (5, 3), (7, 7), (3, 32), (9, 16)])
def test_patterns_cost_what_octavo_counts_pair_by_pair(side: int, window: int) -> None:
    told = PLAYGROUND["pattern-cost"].function(side=side, window=window)
    counted = {name: f"{pattern.pairs(size, size):,}" for name, (pattern, size) in patterns(side, window).items()}
    assert {row[0]: row[2] for row in told["rows"][1:]} == counted


@pytest.mark.parametrize("texts", [greedy.FOOLED, greedy.SERVED])
def test_greedy_and_best_are_what_octavos_decoders_write(texts: dict[str, int]) -> None:
    told = PLAYGROUND["greedy"].function(table=[[texts.get(f"{i}{j}", 0) for j in (0, 1)] for i in (0, 1)])
    assert tuple("".join(map(str, told[name]["path"])) for name in ("greedy", "best")) == greedy.chosen(texts)
    assert told["failed"] == (texts is greedy.FOOLED)
    assert told["best"]["probability"] == pytest.approx(max(texts.values()) / 9)


def test_greedy_fails_on_random_tables_as_often_as_the_exercise_says() -> None:
    tables = np.random.default_rng(0).dirichlet(np.ones(4), 4000).reshape(-1, 2, 2)
    failed = np.mean([PLAYGROUND["greedy"].function(table=one.tolist())["failed"] for one in tables])
    assert abs(failed - 1 / 12) < 4 * math.sqrt(1 / 12 * 11 / 12 / len(tables))


def test_a_tie_is_no_failure_of_greedy() -> None:
    told = PLAYGROUND["greedy"].function(table=[[1, 2], [2, 2]])
    assert (told["failed"], told["best"]["path"]) == (False, [1, 0])
    assert PLAYGROUND["greedy"].function(table=[[2, 0], [0, 2]])["failed"] is False


def test_the_documented_call_says_what_the_document_says() -> None:
    text = (Path(__file__).parents[2] / "docs" / "exercises.md").read_text(encoding="utf-8")
    [code] = re.findall(r"```pycon\n(.*?)```", text, re.DOTALL)
    test = doctest.DocTestParser().get_doctest(code, {}, "docs/exercises.md", None, 0)
    assert doctest.DocTestRunner(verbose=False).run(test) == (0, 2)


@pytest.mark.parametrize(
    ("name", "values", "why"),
    [("key-noise", {"noise": 0}, "from 0.05 to 2"), ("key-noise", {"keys": 2.5}, "whole number"),
     ("key-noise", {"length": "10"}, "must be a number"), ("key-noise", {"length": math.nan}, "must be a number"),
     ("key-noise", {"width": 1}, "no 'width' to set"), ("saturation", {"count": True}, "must be a number"),
     ("gradient-growth", {"steps": 10**9}, "from 1 to 300"), ("pattern-cost", {"pattern": "sparse"}, "one of full"),
     ("pattern-cost", {"pattern": ["full"]}, "one of full"), ("greedy", {"table": [[1, 2]]}, "2 to 3 rows"),
     ("greedy", {"table": [[1, 2], [3]]}, "equally many"), ("greedy", {"table": "1 2 3 4"}, "2 to 3 rows"),
     ("greedy", {"table": [[1] * 4] * 4}, "2 to 3 rows"), ("greedy", {"table": [[0, 0], [0, 0]]}, "more than 0"),
     ("greedy", {"table": [[1, -1], [0, 2]]}, "not negative"), ("greedy", {"table": [[1, "2"], [0, 2]]}, "write 0"),
     ("greedy", {"table": [[1e308, 1e308], [1e308, 1e308]]}, "add up"), ("greedy", {"table": 7}, "2 to 3 rows")],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_in_words(name: str, values: dict[str, Any], why: str) -> None:
    with pytest.raises(UserError, match=why):
        PLAYGROUND[name].function(**values)
