"""Interactive exercises agree with the exercises they belong to, are fast, and refuse invalid inputs."""

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
from octavo.exercises.framework.playground import PLAYGROUND, InteractiveExercise, Option, Parameter, Table
from octavo.exercises.framework.registry import select_exercises
from octavo.exercises.topics import greedy_decoding, noisy_keys, softmax, vanishing_gradients
from octavo.ops.attention import FULL, Axial, Block, Global, Local, Neighbourhood, Pattern

MAX_SECONDS = 0.020  # for one result


def extreme_inputs(play: InteractiveExercise) -> list[dict[str, Any]]:
    """The default inputs, and each input at either end of its range."""
    inputs: list[dict[str, Any]] = [{}]
    for one in play.parameters:
        if isinstance(one, Parameter):
            inputs += [{one.name: one.low}, {one.name: one.high}]
        if isinstance(one, Option):
            inputs += [{one.name: name} for name in one.options]
        if isinstance(one, Table):
            inputs += [{one.name: [[1, 0, 0], [0, 0, 0], [0, 0, 2.5]]}]
    return inputs


@pytest.mark.parametrize("name", PLAYGROUND)
def test_a_result_is_json_in_the_common_format_within_milliseconds(name: str) -> None:
    play = PLAYGROUND[name]
    assert [one.id for one in select_exercises([play.exercise_id])] == [play.exercise_id]
    assert json.loads(json.dumps(play.describe(), allow_nan=False))["title"] == play.title
    for values in extreme_inputs(play):
        result = play.function(**values)
        assert json.loads(json.dumps(result, allow_nan=False)) == result
        assert {"series", "axes", "log", "summary"} <= set(result)
        assert result["summary"].endswith(".")
        assert len(result["axes"]) == len(result["log"]) == 2
        assert all(len(point) == 2 for one in result["series"] for point in one["points"])
        assert all(y > 0 for one in result["series"] for _, y in one["points"] if result["log"][1])
        assert any(one["points"] for one in result["series"])
        if "rows" in result:
            assert len({len(row) for row in result["rows"]}) == 1
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        play.function()
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < MAX_SECONDS


def test_the_variance_under_noise_is_that_of_the_exercise() -> None:
    lengths = np.array([b for b, _ in noisy_keys.VARIANCES])
    for (b, s), exact in zip(noisy_keys.VARIANCES, noisy_keys.exact_variances().value, strict=True):
        one, _, _ = playground.head_variances(np.array([b]), s, 10)
        assert one[0] == pytest.approx(exact, rel=1e-6)
    one, _, _ = playground.head_variances(lengths, noisy_keys.NOISE, 10)
    assert one == pytest.approx([noisy_keys.single_variance(b) for b in lengths], rel=1e-6)


def test_the_variance_of_two_heads_is_that_of_the_exercise() -> None:
    part = {one.id: one for one in noisy_keys.TWO_HEADS.parts}
    _, two_heads, not_flipped = playground.head_variances(np.array([1e5]), noisy_keys.NOISE, 10)
    assert two_heads[0] == pytest.approx(part["variance"].answer.right, rel=1e-4)
    assert not_flipped[0] < 1e-5
    for b in (1.0, 10.0):
        weights = noisy_keys.two_head_weight(noisy_keys.lengths(), b)
        squares = (weights - weights.mean()) ** 2
        standard_error = squares.std() / math.sqrt(len(squares))
        found = playground.head_variances(np.array([b]), noisy_keys.NOISE, 10)[1][0]
        assert abs(found - squares.mean()) <= 5 * standard_error


@pytest.mark.parametrize("scale", [0.1, 1.0, 8.0, 95.0])
def test_saturation_agrees_with_the_exact_jacobian(scale: float) -> None:
    z = scale * playground.normal_scores(7)
    [largest], [norm] = playground.softmax_saturation(z[None])
    exact = math.sqrt(math.fsum(one**2 for row in softmax.jacobian(z.tolist()) for one in row))
    assert norm == pytest.approx(exact, rel=1e-12)
    assert largest == pytest.approx(torch.from_numpy(z).softmax(-1).max().item(), rel=1e-12)
    assert z.std() == pytest.approx(scale)


@pytest.mark.parametrize(("singular", "steps"), [(0.9, 100), (1.1, 100), (1.1, 7), (1.0, 300)])
def test_a_gradient_grows_as_in_the_exercise(singular: float, steps: int) -> None:
    result = PLAYGROUND["gradient-growth"].function(singular=singular, steps=steps)
    [points] = [one["points"] for one in result["series"] if one["name"] == f"{steps} steps"]
    [at] = [y for x, y in points if math.isclose(x, singular)]
    assert at == pytest.approx(vanishing_gradients.linear_flow(singular, steps), rel=1e-9)
    assert f"{at:.4g}" in result["summary"]


def patterns(side: int, window: int) -> dict[str, tuple[Pattern, int]]:
    patches = side * side
    return {
        "full": (FULL, patches), "local": (Local(window + 1), patches), "block": (Block(window), patches),
        "neighbourhood": (Neighbourhood(side, side, window), patches), "axial": (Axial(side, side), patches),
        "global": (Global(window), patches + window),
    }  # fmt: skip


@pytest.mark.parametrize(("side", "window"), [(16, 4), (16, 1), (5, 3), (7, 7), (3, 32), (9, 16)])
def test_pattern_costs_are_the_pairs_that_octavo_counts_one_by_one(side: int, window: int) -> None:
    result = PLAYGROUND["pattern-cost"].function(side=side, window=window)
    counted = {name: f"{pattern.pairs(size, size):,}" for name, (pattern, size) in patterns(side, window).items()}
    assert {row[0]: row[2] for row in result["rows"][1:]} == counted


@pytest.mark.parametrize("texts", [greedy_decoding.GREEDY_FAILS, greedy_decoding.GREEDY_SUCCEEDS])
def test_greedy_and_best_are_the_texts_of_octavos_decoders(texts: dict[str, int]) -> None:
    result = PLAYGROUND["greedy"].function(table=[[texts.get(f"{i}{j}", 0) for j in (0, 1)] for i in (0, 1)])
    assert tuple("".join(map(str, result[name]["path"])) for name in ("greedy", "best")) == greedy_decoding.decode_both(
        texts
    )
    assert result["failed"] == (texts is greedy_decoding.GREEDY_FAILS)
    assert result["best"]["probability"] == pytest.approx(max(texts.values()) / 9)


def test_greedy_fails_on_random_tables_as_often_as_the_exercise_says() -> None:
    tables = np.random.default_rng(0).dirichlet(np.ones(4), 4000).reshape(-1, 2, 2)
    failed = np.mean([PLAYGROUND["greedy"].function(table=one.tolist())["failed"] for one in tables])
    assert abs(failed - 1 / 12) < 4 * math.sqrt(1 / 12 * 11 / 12 / len(tables))


def test_a_tie_is_not_a_failure_of_greedy() -> None:
    result = PLAYGROUND["greedy"].function(table=[[1, 2], [2, 2]])
    assert (result["failed"], result["best"]["path"]) == (False, [1, 0])
    assert PLAYGROUND["greedy"].function(table=[[2, 0], [0, 2]])["failed"] is False


def test_the_documented_call_gives_the_documented_result() -> None:
    text = (Path(__file__).parents[2] / "docs" / "exercises.md").read_text(encoding="utf-8")
    [code] = re.findall(r"```pycon\n(.*?)```", text, re.DOTALL)
    test = doctest.DocTestParser().get_doctest(code, {}, "docs/exercises.md", None, 0)
    assert doctest.DocTestRunner(verbose=False).run(test) == (0, 2)


@pytest.mark.parametrize(
    ("name", "values", "why"),
    [("key-noise", {"noise": 0}, "from 0.05 to 2"), ("key-noise", {"keys": 2.5}, "whole number"),
     ("key-noise", {"length": "10"}, "must be a number"), ("key-noise", {"length": math.nan}, "must be a number"),
     ("key-noise", {"width": 1}, "no input 'width'"), ("saturation", {"count": True}, "must be a number"),
     ("gradient-growth", {"steps": 10**9}, "from 1 to 300"), ("pattern-cost", {"pattern": "sparse"}, "one of full"),
     ("pattern-cost", {"pattern": ["full"]}, "one of full"), ("greedy", {"table": [[1, 2]]}, "2 to 3 rows"),
     ("greedy", {"table": [[1, 2], [3]]}, "equally many"), ("greedy", {"table": "1 2 3 4"}, "2 to 3 rows"),
     ("greedy", {"table": [[1] * 4] * 4}, "2 to 3 rows"), ("greedy", {"table": [[0, 0], [0, 0]]}, "more than 0"),
     ("greedy", {"table": [[1, -1], [0, 2]]}, "not negative"), ("greedy", {"table": [[1, "2"], [0, 2]]}, "write 0"),
     ("greedy", {"table": [[1e308, 1e308], [1e308, 1e308]]}, "add up"), ("greedy", {"table": 7}, "2 to 3 rows")],
)  # fmt: skip
def test_invalid_inputs_are_refused_with_a_reason(name: str, values: dict[str, Any], why: str) -> None:
    with pytest.raises(UserError, match=why):
        PLAYGROUND[name].function(**values)
