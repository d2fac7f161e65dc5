"""The sizes of networks in a comparison: chosen by injected step timings, never by a clock."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch

from comparing import quiet
from html_pages import sentences
from octavo.errors import UserError
from octavo.experiments.compare import CompareConfig, sizing
from octavo.experiments.compare.config import Candidate, candidates
from octavo.experiments.compare.run import Comparing, open_comparison
from octavo.experiments.compare.sizing import (
    DROPOUT,
    Choice,
    SizeTimer,
    StepTimer,
    StoredSizes,
    choose_size,
    predicted_bits,
    sized,
)
from octavo.models.gpt import SIZES
from octavo.models.spec import ScalingLaw, Sizes

SHAKESPEARE = 1_003_854  # bytes of its training part
TWO_CORES = 1.6e10  # weights times tokens a second: 20,000 tokens of the usual transformer, on two idle cores
LADDER = Sizes(({"width": 2}, {"width": 4}, {"width": 8}), ScalingLaw(1.0, 1.0, 1.0, 1.0))
CPU = torch.device("cpu")


class AtSpeed(StepTimer):
    """A device that does so many products of a weight and a token a second, but at most so many tokens."""

    def __init__(self, candidate: Candidate, speed: float, most: float = math.inf) -> None:
        super().__init__(candidate, CPU)
        self.speed, self.most = speed, most
        self.efficiency = self.efficiency if most == math.inf else math.inf
        self.products = math.inf

    def tokens_per_second(self, settings: Mapping[str, Any]) -> float:
        return min(self.most, self.speed / self.parameters(settings))


def at_speed(speed: float, most: float = math.inf) -> Callable[[Candidate, torch.device], SizeTimer]:
    return lambda candidate, _: AtSpeed(candidate, speed, most)


class Table:
    """A device of which a table says what sizes take: weights and tokens a second of each width; 1 is the usual one."""

    def __init__(
        self, rates: Mapping[int, tuple[int, float | None]], efficiency: float = math.inf, products: float = math.inf
    ) -> None:
        self.rates, self.efficiency, self.products = rates, efficiency, products
        self.timed: list[int] = []

    def parameters(self, settings: Mapping[str, Any]) -> int:
        return self.rates[settings.get("width", 1)][0]

    def tokens_per_second(self, settings: Mapping[str, Any]) -> float | None:
        self.timed.append(settings.get("width", 1))
        return self.rates[self.timed[-1]][1]


@pytest.mark.parametrize("seconds", [14, 20, 60, 180])
@pytest.mark.parametrize("name", ["gpt", "local", "gru", "lstm"])
def test_two_cores_train_the_usual_sizes_at_the_usual_budgets(name: str, seconds: float, tmp_path: Path) -> None:
    config = CompareConfig(models=(name,), budget=f"{seconds}s")
    [usual] = config.candidates
    assert sized([usual], config, SHAKESPEARE, StoredSizes(tmp_path), at_speed(TWO_CORES)) == (usual,)


@pytest.mark.parametrize(("times", "width"), [(1, None), (100, 256), (500, 384)])
def test_a_faster_device_trains_a_larger_transformer(times: float, width: int | None, tmp_path: Path) -> None:
    config, stored = CompareConfig(models=("gpt",), budget="60s"), StoredSizes(tmp_path)
    [chosen] = sized(config.candidates, config, SHAKESPEARE, stored, at_speed(times * TWO_CORES))
    assert chosen.settings.get("width") == width
    if width == 384:  # the baby GPT of nanoGPT
        baby = {"layers": 6, "heads": 6, "context": 256, "batch_size": 64, "sequence_length": 256, "dropout": 0.2}
        assert baby.items() <= chosen.settings.items()
        assert chosen.title == "transformer, full attention, width 384"


def test_a_device_that_small_steps_leave_idle_trains_a_large_transformer_in_seconds(tmp_path: Path) -> None:
    """As a GPU, on which steps of small networks are all as fast: 800,000 tokens a second up to 11 million weights."""
    config, stored = CompareConfig(models=("gpt",), budget="8s"), StoredSizes(tmp_path)
    [chosen] = sized(config.candidates, config, SHAKESPEARE, stored, at_speed(8.8e12, 8e5))
    choice = stored.choices["gpt"]
    assert (chosen.settings["width"], chosen.settings["dropout"]) == (384, DROPOUT)
    assert (choice.parameters, choice.tokens, choice.usual_tokens) == (10_720_512, 6.4e6, 6.4e6)
    assert chosen.chosen == (
        "width 384, layers 6, heads 6, context 256, batch size 64, sequence length 256, dropout 0.2: "
        "800,000 tokens/s make 6,400,000 in the budget for 10,720,512 weights; the usual 217,728 would see 6,400,000"
    )


def test_a_transformer_is_narrow_where_the_budget_is_a_quarter_of_a_minute() -> None:
    widths = [candidates(seconds)["gpt"].settings.get("width") for seconds in (14.0, 20.0, 30.0, 60.0, None)]
    assert widths == [64, 64, None, None, None]


def test_predictions_are_the_law_by_hand() -> None:
    law = ScalingLaw(2.0, 0.5, 3.0, 0.25)
    assert predicted_bits(law, 100, 16.0, 1000) == pytest.approx(2 / 10 + 3 / 2)
    seen_thrice = 1000 * (1 + 15 * (1 - math.exp(-2 / 15)))
    assert predicted_bits(law, 100, 3000.0, 1000) == pytest.approx(0.2 + 3 * seen_thrice**-0.25)
    assert predicted_bits(law, 100, math.inf, 1000) == pytest.approx(0.2 + 3 * 16000**-0.25)


def test_the_size_with_the_least_prediction_is_taken_and_no_larger_one_is_timed() -> None:
    table = Table({1: (10, 100.0), 2: (20, 100.0), 4: (40, 20.0), 8: (80, 1e9)})  # 0.11, 0.06 and 0.075 bits
    choice = choose_size(LADDER, table, 1.0, 10**6)
    assert choice == Choice({"width": 2}, 20, 100.0, 100.0, 10, 100.0)
    assert table.timed == [1, 2, 4]
    longer = choose_size(LADDER, Table({**table.rates, 8: (80, None)}), 10.0, 10**6)  # 0.101, 0.051, 0.03; no room
    assert longer.settings == {"width": 4}
    assert choose_size(LADDER, Table({**table.rates, 1: (10, None)}), 1.0, 10**6) == Choice()


def test_a_size_that_would_be_no_better_at_the_devices_efficiency_is_not_timed() -> None:
    rates = {1: (10, 100.0), 2: (20, 100.0), 4: (40, 100.0), 8: (80, 100.0)}
    hopeless = Table(rates, efficiency=0.3)  # 20 weights see 15 tokens at most: 0.117 bits
    assert choose_size(LADDER, hopeless, 1.0, 10**6).settings == {}
    assert hopeless.timed == [1]


def test_nothing_is_timed_on_a_device_that_is_too_slow_at_its_best() -> None:
    rates = {1: (10, 4.0), 2: (20, 1e9), 4: (40, 1e9), 8: (80, 1e9)}
    slow = Table(rates, efficiency=1.0, products=199.0)  # 10 weights see 19.9 tokens, 20 weights 9.95: 0.150, 0.151
    assert choose_size(LADDER, slow, 1.0, 10**6) == Choice()
    assert slow.timed == []
    assert choose_size(LADDER, Table(rates, 1.0, 201.0), 1.0, 10**6) == Choice({}, 10, 4.0, 4.0, 10, 4.0)
    with (
        patch("os.cpu_count", return_value=2),
        patch.object(StepTimer, "tokens_per_second", side_effect=AssertionError),
    ):
        two_cores = StepTimer(candidates(180.0)["gpt"], CPU)
        assert choose_size(SIZES, two_cores, 180.0, SHAKESPEARE) == Choice()


def test_a_size_has_at_most_sixteen_weights_for_each_token_of_the_text() -> None:
    rates = {1: (100, 1e6), 2: (200, 1e6), 4: (1600, 1e6), 8: (1617, 1e6)}
    assert choose_size(LADDER, Table(rates), 1.0, 101).settings["width"] == 4


def test_dropout_begins_with_the_fourth_time_that_the_text_is_read() -> None:
    for tokens, settings in ((3000.0, {"width": 2}), (3001.0, {"width": 2, "dropout": DROPOUT})):
        table = Table({1: (100, 10.0), 2: (200, tokens), 4: (400, None)})
        assert choose_size(LADDER, table, 1.0, 1000).settings == settings


def test_models_of_one_spec_share_a_choice_which_is_made_once(tmp_path: Path) -> None:
    config = CompareConfig(models=("gpt", "local", "gpt-bpe", "gru", "kn3"), budget="60s")
    fast = sized(config.candidates, config, SHAKESPEARE, StoredSizes(tmp_path), at_speed(1e15, 1e6))
    widths = {one.name: one.settings.get("width") for one in fast}
    assert widths == {"kn3": None, "gru": 1024, "gpt": 384, "gpt-bpe": 384, "local": 384}
    assert fast == sized(config.candidates, config, SHAKESPEARE, StoredSizes(tmp_path), at_speed(TWO_CORES))


@pytest.mark.parametrize("settings", [{"sizes": False, "budget": "60s"}, {"budget": "50steps"}, {"budget": "5Mtokens"}])
def test_no_size_is_chosen_where_none_is_asked_for_or_the_budget_is_no_time(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    config = CompareConfig(models=("gpt",), **settings)
    fast = at_speed(1e15, 1e6)
    assert sized(config.candidates, config, SHAKESPEARE, StoredSizes(tmp_path), fast) == config.candidates
    assert not (tmp_path / sizing.FILE).exists()


@pytest.mark.parametrize("damaged", ["[]", '{"gpt": 3}', '{"gpt": {"tokens": "many"}}', "{"])
def test_damaged_choices_are_refused(damaged: str, tmp_path: Path) -> None:
    (tmp_path / sizing.FILE).write_text(damaged)
    with pytest.raises(UserError, match=r"choose another --out"):
        StoredSizes(tmp_path)


def test_every_size_is_larger_than_the_one_before_and_can_be_trained() -> None:
    for one in candidates(60.0).values():
        if one.sizes is not None:
            timer = StepTimer(one, CPU)
            sizes = [timer.parameters(settings) for settings in ({}, *one.sizes.settings)]
            assert sizes == sorted(set(sizes)), one.name
    timer = StepTimer(candidates()["gpt"], CPU)
    assert [round(timer.parameters(one) / 1e6, 1) for one in SIZES.settings] == [4.8, 10.7, 25.3]


def test_a_size_is_timed_by_steps_of_training() -> None:
    settings = {"width": 8, "layers": 1, "batch_size": 2, "sequence_length": 4}
    one = Candidate("gru", "GRU", "recurrent", "gru", by_gradient=True)
    assert (StepTimer(one, CPU).tokens_per_second(settings) or 0) > 0
    assert StepTimer(one, torch.device("mps")).tokens_per_second(settings) is None
    assert StepTimer(one, torch.device("cuda")).efficiency == math.inf


# ---------------------------------------------------------------------- in a comparison


@pytest.fixture
def comparing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Opens a comparison with a small larger size on a device of some speed."""
    (tmp_path / "rain.txt").write_text(sentences(60))
    larger = {"width": 16, "layers": 1, "batch_size": 4, "sequence_length": 8}
    usual = {"width": 8, "layers": 1, "batch_size": 4, "sequence_length": 8}

    def small(seconds: float | None = None, device: str = "cpu") -> dict[str, Candidate]:
        sizes = Sizes((larger,), ScalingLaw(1.0, 1.0, 1e-9, 1.0))
        return {"gru": Candidate("gru", "GRU", "recurrent", "gru", usual, True, True, sizes=sizes),
                "kn2": Candidate("kn2", "2-gram", "counts", "ngram", {"order": 2})}  # fmt: skip

    def opened(rate: float, cell: str = "") -> Comparing:
        monkeypatch.setattr("octavo.experiments.compare.config.candidates", small)
        rates = {1: (1000, rate), 16: (2000, rate if rate > 1 else None)}
        monkeypatch.setattr(sizing, "StepTimer", lambda *_: Table(rates))
        return open_comparison(tmp_path / "rain.txt", out=tmp_path / "out", budget="1s", prove=False, device="cpu",
                               cell=cell, progress=quiet())  # fmt: skip

    return opened


def test_a_resumed_comparison_trains_the_size_that_was_chosen_first(comparing: Any, tmp_path: Path) -> None:
    first = comparing(20000.0)
    commands = first.commands()  # as --cells does
    assert [one.key for one in commands] == ["gru", "kn2"]
    stored = StoredSizes(tmp_path / "out")
    stored.add("gru", replace(stored.choices["gru"], timed_seconds=2.5))
    alone = comparing(1.0, "gru")  # as --run-cell does, on a slower machine
    alone.run_cell("gru")
    comparison = comparing(1.0).run()
    row = comparison["gru"]
    assert row.title == "GRU, width 16"
    assert row.chosen == (
        "width 16, layers 1, batch size 4, sequence length 8, dropout 0.2: 20,000 tokens/s make 20,000 in the budget "
        "for 2,000 weights; the usual 1,000 would see 20,000"
    )
    config = json.loads((tmp_path / "out" / "gru" / "config.json").read_text())["config"]
    assert (config["width"], config["dropout"]) == (16, DROPOUT)
    assert comparison["kn2"].chosen == ""
    page = (tmp_path / "out" / "report.html").read_text()
    assert "gru was given a size for this device and budget: width 16" in page
    assert comparison.seconds["sizes"] == 2.5


def test_a_slow_device_trains_the_usual_size(comparing: Any) -> None:
    opened = comparing(1e-9)
    with opened.lock:
        [gru, _] = opened.plan()
    assert gru.settings["width"] == 8
    assert "chosen" not in gru.options
