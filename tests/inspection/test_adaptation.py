"""Models that learn while they read, read twice: against steps by hand, in numbers, on the page and by the verb.

N tokens of a text, I experts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import octavo
from command_line import verb_caller
from examples import VOCAB, adaptive_ngram, adaptively_mixed, gpt, ngram, recurrent, text
from html_pages import Page
from octavo.core import LanguageModel
from octavo.errors import UserError
from octavo.inspection import adaptation
from octavo.inspection.adaptation import Adaptation, TwoReadings, fixed_readings, read_adaptation, read_twice
from octavo.inspection.adaptation_page import readings_table
from octavo.inspection.api import inspections_json
from octavo.inspection.inspection import inspect_run
from octavo.inspection.page import inspect_page
from octavo.inspection.token_tables import part_summaries, summary_table
from octavo.models import Bag, NGram
from octavo.models.adaptive_mix import AdaptiveMix, AdaptiveMixConfig
from octavo.models.adaptive_mix_views import expert_costs, expert_table
from octavo.models.bag import BagConfig
from octavo.models.dynamic_evaluation import AdaptiveConfig, DynamicEvaluation
from octavo.models.ngram import AdaptiveNGram, AdaptiveNGramConfig, NGramConfig
from octavo.models.recurrent import GRU
from octavo.tasks.run import Run
from octavo.text import Byte

BEGIN = VOCAB - 1
READ = [3, 1, 4, 1, 5, 0, 2, 6, 5, 3, 5, 0, 1, 4]
ADAPTIVE: dict[str, LanguageModel[Any]] = {
    "adaptive-ngram": adaptive_ngram(order=3),
    "adaptive-mix": adaptively_mixed(adaptive_ngram(order=3), recurrent(GRU)),
    "gru": DynamicEvaluation(recurrent(GRU), AdaptiveConfig(learning_rate=0.02, segment=5)),
    "gpt": DynamicEvaluation(gpt(), AdaptiveConfig(learning_rate=0.02, segment=5)),
}
CASES = [pytest.param(model, id=name) for name, model in ADAPTIVE.items()]


def by_steps(model: LanguageModel[Any], x_N: list[int]) -> tuple[list[float], list[float]]:
    """Both readings with `start` and `step` alone."""
    bits, state = [], model.start(1)
    for x, after in zip([BEGIN, *x_N, BEGIN, *x_N], [*x_N, BEGIN, *x_N, None], strict=True):
        logits_1V, state = model.step(state, torch.tensor([x]))
        if after is not None:
            bits.append(float(-logits_1V[0].log_softmax(-1)[after]) / math.log(2))
    return bits[: len(x_N)], bits[len(x_N) + 1 :]


@pytest.mark.parametrize("model", CASES)
@pytest.mark.parametrize("x_N", [READ, READ[:1], []], ids=["a text", "one token", "nothing"])
def test_both_readings_are_those_of_steps(
    model: LanguageModel[Any], x_N: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adaptation, "WINDOW", 4)  # windows that end inside both readings and between them
    seen: list[float] = []
    found = read_twice(model, torch.tensor(x_N, dtype=torch.long), advance=seen.append)
    first, second = by_steps(model, x_N)
    np.testing.assert_allclose(found.first_N, first, rtol=1e-9)
    np.testing.assert_allclose(found.second_N, second, rtol=1e-9)
    assert sum(seen) == 2 * len(x_N) + 1  # the begin token between is one of those read


@pytest.mark.parametrize("model", CASES)
def test_what_was_read_costs_less_the_second_time(model: LanguageModel[Any]) -> None:
    first, second = read_twice(model, torch.tensor(READ * 4)).bits
    assert second < first
    score = float(model.score(torch.tensor([READ * 4])).sum()) / -math.log(2)
    assert first == pytest.approx(score, rel=1e-9)  # the first reading is the one that is scored


@pytest.mark.parametrize("name", ["gru", "gpt"])
def test_the_fixed_form_of_a_network_is_the_network_as_it_was_trained(name: str) -> None:
    model: Any = ADAPTIVE[name]
    [fixed] = fixed_readings(model, torch.tensor(READ))
    first, second = by_steps(model.base, READ)
    np.testing.assert_allclose(fixed.first_N, first, rtol=1e-9)
    np.testing.assert_allclose(fixed.second_N, second, rtol=1e-9)


def test_counts_of_the_training_text_alone_give_the_same_at_both_readings() -> None:
    model: Any = ADAPTIVE["adaptive-ngram"]
    [fixed] = fixed_readings(model, torch.tensor(READ))
    np.testing.assert_array_equal(fixed.first_N, fixed.second_N)
    np.testing.assert_allclose(fixed.first_N, -model.fixed_log_probs(torch.tensor(READ)).numpy() / math.log(2))


def test_the_fixed_forms_of_a_mixture_are_its_parts_as_they_were_trained() -> None:
    parts = [adaptive_ngram(order=3), recurrent(GRU), ngram(order=2), recurrent(GRU)]
    found = fixed_readings(adaptively_mixed(*parts), torch.tensor(READ))
    assert [one.name for one in found] == ["fixed: 3-gram", "fixed: gru 1", "fixed: 2-gram", "fixed: gru 2"]
    for part, one in zip(parts[1:], found[1:], strict=True):
        score_N = part.score(torch.tensor([READ]))[0].numpy() / -math.log(2)
        np.testing.assert_allclose(one.first_N, score_N, rtol=1e-9)


class ForeignAdaptive(Bag):
    """A model of somebody else's that learns, and says nothing of a fixed form."""

    adaptive = True


@pytest.mark.parametrize("base", [recurrent(GRU), gpt(), gpt(positions="learned", norm="layer", bias=True)])
def test_windows_of_fixed_models_do_not_change_their_costs(
    base: LanguageModel[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adaptation, "FIXED_WINDOW", 3)
    for model in (DynamicEvaluation(base, AdaptiveConfig(segment=5)), adaptively_mixed(base, adaptive_ngram(order=2))):
        fixed = fixed_readings(model, torch.tensor(READ))[0]
        first, second = by_steps(base, READ)
        np.testing.assert_allclose(fixed.first_N, first, rtol=1e-9)
        np.testing.assert_allclose(fixed.second_N, second, rtol=1e-9)


def test_a_model_that_does_not_learn_is_its_own_fixed_form_and_an_adaptive_one_may_have_none() -> None:
    plain = recurrent(GRU).fixed_log_probs(torch.tensor(READ))
    assert plain is not None
    assert torch.equal(plain, recurrent(GRU).score(torch.tensor([READ]))[0])
    learns = DynamicEvaluation(recurrent(GRU), AdaptiveConfig(segment=5)).fixed_log_probs(torch.tensor(READ))
    assert learns is not None
    assert torch.equal(learns, plain)
    bag = Bag.fit(text(), BagConfig(), VOCAB)
    foreign = ForeignAdaptive(bag.config, VOCAB)
    assert foreign.fixed_log_probs(torch.tensor(READ)) is None


def found_by_hand(first: list[float], second: list[float], sizes: list[int], **fixed: list[float]) -> Adaptation:
    return Adaptation(
        tuple(range(len(sizes))), tuple(sizes), TwoReadings("it learns", np.array(first), np.array(second)),
        tuple(TwoReadings(name, np.array(bits), np.array(bits)) for name, bits in fixed.items()), False, "by hand",
    )  # fmt: skip


def test_the_curve_ends_at_the_bits_per_byte_of_the_text() -> None:
    found = found_by_hand([8.0, 4.0, 6.0], [2.0, 1.0, 3.0], [1, 2, 1], a=[9.0, 9.0, 9.0], b=[8.0, 8.0, 8.0])
    assert found.bytes_read == (1, 3, 4)
    assert found.curve(found.learning.first_N) == (8.0, 4.0, 4.5)
    assert found.per_byte(found.learning.bits[0]) == 4.5
    assert found.best_fixed is found.fixed[1]
    assert readings_table(found)[1] == [
        ("it learns", "4.5000", "1.5000", "66.7%"), ("a", "6.7500", "6.7500", "0.0%"), ("b", "6.0000", "6.0000", "0.0%")
    ]  # fmt: skip


@pytest.mark.parametrize("length", [1, 59, 60, 61, 1000])
def test_the_curve_has_few_points_and_the_last_is_at_the_end(length: int) -> None:
    found = found_by_hand([1.0] * length, [1.0] * length, [1] * length)
    assert len(found.places) == min(length, 60)
    assert (found.places[-1], found.bytes_read[-1]) == (length, length)
    assert found.curve(found.learning.first_N) == pytest.approx([1.0] * len(found.places))


def test_a_begin_token_in_the_text_costs_nothing_and_what_is_impossible_is_infinite() -> None:
    model = DynamicEvaluation(recurrent(GRU), AdaptiveConfig(segment=5))
    found = read_twice(model, torch.tensor([1, BEGIN, 2]))
    assert found.first_N[1] == found.second_N[1] == 0
    mixed = adaptively_mixed(ngram(order=3, estimator="mle"), adaptive_ngram(order=3))
    fixed = fixed_readings(mixed, torch.tensor(READ))
    assert fixed[0].bits[0] == math.inf
    never = Adaptation((0,), (1,), fixed[1], fixed, False, "by hand")
    assert readings_table(never)[1][1][1:] == ("infinite", "infinite", "–")
    assert never.best_fixed is fixed[1]


def test_a_long_text_is_read_up_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adaptation, "MAX_TOKENS", 5)
    found = read_adaptation(ADAPTIVE["adaptive-ngram"], READ, lambda token: 2)
    assert (len(found.x_N), found.bytes, found.truncated) == (5, 10, True)


# ---------------------------------------------------------------------- the experts of a mixture


def test_each_expert_costs_what_its_distribution_says() -> None:
    counts, network = adaptive_ngram(order=3), recurrent(GRU)
    mix = adaptively_mixed(counts, network)
    found = expert_costs(mix, READ)
    assert found.names == ("1-gram", "2-gram", "3-gram", "gru")
    learns: Any = mix.experts[1]
    np.testing.assert_allclose(found.bits_NI[:, 2], counts.score(torch.tensor([READ]))[0].numpy() / -math.log(2))
    np.testing.assert_allclose(found.bits_NI[:, 3], learns.score(torch.tensor([READ]))[0].numpy() / -math.log(2))
    np.testing.assert_allclose(found.bits_N, by_steps(mix, READ)[0], rtol=1e-9)
    for n in range(len(READ)):  # each order by itself, after the prefix
        p_1TKV, _, _ = counts.order_distributions(counts.start(1), torch.tensor([[BEGIN, *READ[:n]]]))
        np.testing.assert_allclose(2 ** -found.bits_NI[n, :3], p_1TKV[0, -1, :, READ[n]], rtol=1e-9)


def test_pieces_of_a_text_give_the_same_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    from octavo.models import adaptive_mix_views

    mix = adaptively_mixed(adaptive_ngram(order=3), recurrent(GRU))
    whole = expert_costs(mix, READ * 10)
    monkeypatch.setattr(adaptive_mix_views, "PIECE_NUMBERS", 0)
    np.testing.assert_allclose(expert_costs(mix, READ * 10).bits_NI, whole.bits_NI, rtol=1e-9)


def test_the_expert_that_gave_most_wins_and_of_equals_the_shortest() -> None:
    mix = adaptively_mixed(adaptive_ngram(order=5), recurrent(GRU))
    costs, table = expert_costs(mix, READ * 3), expert_table(mix, READ * 3)
    for n, (detail, bits_I) in enumerate(zip(table.details, costs.bits_NI.tolist(), strict=True)):
        assert detail.shade == bits_I.index(min(bits_I))
        assert [row[2] for row in detail.rows] == [f"{bits:.2f}" for bits in (*bits_I, costs.bits_N[n])]
        assert max(detail.shares) == 1
        assert detail.shares[0] == pytest.approx(2 ** (min(*bits_I, costs.bits_N[n]) - bits_I[0]))
    # A context that nobody has continued says what the shorter one says, to the last bit.
    assert any(row[1] == row[2] for row in costs.bits_NI.tolist())
    rows = part_summaries(table)
    assert [one.name for one in rows] == ["1-gram", "2-gram", "3-gram", "4-gram", "5-gram", "gru", "mixture"]
    assert sum(one.won or 0 for one in rows[:-1]) == pytest.approx(1)
    assert rows[-1].won is None
    np.testing.assert_allclose([one.bits for one in rows], [*costs.bits_NI.mean(0), costs.bits_N.mean()])
    shown = summary_table(table)
    assert shown is not None
    assert shown.rows[-1] == ("mixture", "", f"{costs.bits_N.mean():.3f}")


def test_an_empty_text_has_no_experts_to_rank() -> None:
    mix = adaptively_mixed(adaptive_ngram(order=2), recurrent(GRU))
    assert part_summaries(expert_table(mix, [])) == ()
    assert summary_table(expert_table(mix, [])) is None


# ---------------------------------------------------------------------- runs, pages and the verb

TEXT = "the cat sat on the mat, and the cat sat on the hat.\n" * 6


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of each kind that is adaptive, and a network."""
    root = tmp_path_factory.mktemp("adaptive")
    (root / "text.txt").write_text(TEXT * 20)
    data = str(root / "text.txt")
    octavo.train("ngram", data, adaptive=True, order=3, out=root / "counts")
    small = {"width": 8, "budget": "6steps", "batch_size": 4, "sequence_length": 16, "evaluations": 1}
    octavo.train("gru", data, device="cpu", out=root / "gru", **small)
    octavo.train("mix", data, adaptive=True, parts=[root / "counts", root / "gru"], out=root / "mix")
    octavo.train("ngram", data, order=3, out=root / "kn")
    return root


def test_python_inspects_a_network_that_learns(runs: Path) -> None:
    seen = octavo.inspect(runs / "gru", TEXT, adaptive=True, adaptive_learning_rate=0.01, adaptive_segment=16)
    score = octavo.evaluate(runs / "gru", TEXT, adaptive=True, adaptive_learning_rate=0.01, adaptive_segment=16)
    record = seen.to_json()["runs"][0]
    assert record["adaptive"]
    assert "gates" in record  # there are none, since its weights change
    learning, fixed = record["adaptation"]["readings"]
    assert learning["bits_per_byte"][0] == pytest.approx(score.bits_per_byte, abs=1e-4)
    assert fixed["bits_per_byte"][0] == pytest.approx(octavo.evaluate(runs / "gru", TEXT).bits_per_byte, abs=1e-4)
    assert learning["curve"][-1] == learning["bits_per_byte"][0]
    assert record["adaptation"]["curve_bytes"][-1] == len(TEXT)
    assert "learns while it reads" in seen._repr_html_()


def test_the_page_of_a_mixture_names_its_experts(runs: Path) -> None:
    run = octavo.load(runs / "mix")
    one = inspect_run(run, TEXT)
    page = Page(inspect_page([one], TEXT, "octavo inspect mix"))
    assert "mix learns while it reads" in page.text
    assert "Which expert knew best" in page.text
    assert page.text.count("second reading") >= 3
    assert one.experts is not None
    assert len(one.experts.details) == len(TEXT)
    record = octavo.inspect(runs / "mix", TEXT).to_json()["runs"][0]["experts"]
    assert [part["name"] for part in record["parts"]] == ["1-gram", "2-gram", "3-gram", "gru", "mixture"]
    assert len(record["bits"]) == len(record["best"]) == len(TEXT)


Verb = Callable[..., tuple[int, str, str]]


@pytest.fixture
def inspect(capsys: pytest.CaptureFixture[str]) -> Verb:
    return verb_caller("inspect", capsys)


def test_the_verb_shows_both_readings(inspect: Verb, runs: Path, tmp_path: Path) -> None:
    gru, counts = str(runs / "gru"), str(runs / "counts")
    shown = inspect(counts, "--text", "the cat")[1]
    assert "first reading" in shown
    assert "fixed: as trained" in shown
    assert "second reading" in inspect(gru, "--text", "t", "--adaptive")[1]  # one token
    assert inspect(counts, "--text", "")[2] == "there is nothing to learn from: the text is empty\n"
    record = json.loads(inspect(gru, "--text", TEXT, "--adaptive", "--adaptive-segment", "16", "--json")[1])
    assert "every 16 tokens" in record["runs"][0]["adaptation"]["policy"]
    assert len(record["surprisal"]) == len(TEXT)
    assert inspect(gru, counts, "--text", TEXT, "--adaptive", "--out", str(tmp_path / "lens.html"))[0] == 0
    page = Page((tmp_path / "lens.html").read_text())
    assert "gru learns while it reads" in page.text
    assert "counts learns while it reads" in page.text
    assert "--adaptive" in page.verbatim[-1]


def test_of_a_text_shorter_than_a_segment_it_says_that_nothing_was_learnt(
    inspect: Verb, runs: Path, tmp_path: Path
) -> None:
    words = (str(runs / "gru"), "--adaptive", "--adaptive-segment", "16", "--adaptive-learning-rate", "0.5", "--text")
    code, out, err = inspect(*words, TEXT[:15], "--out", str(tmp_path / "short.html"))
    assert code == 0
    assert "nothing learnt" in out
    assert "The text has 15 tokens, fewer than the 16 of a segment, so nothing was learnt" in err
    assert "fewer than the 16 of a segment" in Page((tmp_path / "short.html").read_text()).text
    record = json.loads(inspect(*words, TEXT[:15], "--json")[1])["runs"][0]["adaptation"]
    learning, fixed = record["readings"]
    assert learning["first"] == pytest.approx(fixed["first"])  # indeed nothing
    code, out, err = inspect(*words, TEXT[:16])
    assert (code, "nothing learnt" in out, err) == (0, False, "")
    record = json.loads(inspect(*words, TEXT[:16], "--json")[1])["runs"][0]["adaptation"]
    learning, fixed = record["readings"]
    assert learning["first"] == pytest.approx(fixed["first"])
    assert learning["second"] != pytest.approx(fixed["second"])  # learnt when the second reading begins


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("gru", "--adaptive"), "there must be a text with --adaptive"),
        (("gru", "--adaptive-segment", "16", "--text", "a"), "belongs to scoring with --adaptive"),
        (("gru", "--adaptive", "--text", "abc", "--back", "2"), "learns while it reads: back=2"),
        (("kn", "--adaptive", "--text", "abc"), "ngram was fitted; train it with --adaptive"),
        (("mix", "--adaptive", "--adaptive-segment", "16", "--text", "abc"), "leave them out"),
        (("counts", "--text", "", "--out", "OUT"), "the text is empty"),
    ],
)
def test_what_cannot_learn_is_refused(
    inspect: Verb, runs: Path, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    name, *given = (str(tmp_path / "a.html") if one == "OUT" else one for one in arguments)
    code, _, err = inspect(str(runs / name), *given)
    assert code == 2
    assert message in err


def test_python_refuses_to_adapt_without_a_text(runs: Path) -> None:
    with pytest.raises(UserError, match="there is no text"):
        octavo.inspect(runs / "gru", adaptive=True)


def test_an_empty_text_says_nothing_of_learning(runs: Path) -> None:
    assert octavo.inspect(runs / "counts", "").to_json() == {"runs": [], "surprisal": []}


def test_one_token_makes_no_curve(runs: Path) -> None:
    run = octavo.load(runs / "counts")
    assert "so far" not in Page(inspect_page([inspect_run(run, "t")], "t", "")).text
    assert "so far" in Page(inspect_page([inspect_run(run, "th")], "th", "")).text


def run_of_bytes(model: LanguageModel[Any]) -> Run:
    return Run(model, Byte(), {}, None)


def bytes_to_count() -> tuple[torch.Tensor, int, int | None]:
    return torch.tensor([Byte().begin, *"ab ä".encode()], dtype=torch.int32), Byte().vocab, Byte().newline


def test_half_a_character_is_coloured_with_the_next() -> None:
    x_N, vocab, newline = bytes_to_count()
    model = AdaptiveNGram.fit(x_N, AdaptiveNGramConfig(order=2), vocab, newline)
    page = Page(inspect_page([inspect_run(run_of_bytes(model), "ö" * 3)], "ö", ""))
    assert [one for one in page.verbatim if "ööö" in one] == ["\nööö", "\nööö"]


def test_a_part_to_which_a_token_is_impossible_costs_infinitely_much(monkeypatch: pytest.MonkeyPatch) -> None:
    x_N, vocab, newline = bytes_to_count()
    sure = NGram.fit(x_N, NGramConfig(order=2, estimator="mle"), vocab, newline)
    counts = AdaptiveNGram.fit(x_N, AdaptiveNGramConfig(order=2), vocab, newline)
    one = inspect_run(run_of_bytes(AdaptiveMix(AdaptiveMixConfig(calibration_bits=4), [sure, counts])), "abz")
    assert one.adaptation is not None
    assert one.adaptation.best_fixed is one.adaptation.fixed[1]
    assert "infinite" in Page(inspect_page([one], "abz", "")).text
    record = inspections_json([one], "abz")["runs"][0]
    assert record["adaptation"]["readings"][1]["first"][2] is None
    assert record["experts"]["bits"][2][0] is None
    json.dumps(record, allow_nan=False)
