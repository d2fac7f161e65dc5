"""Verdicts: which row is best, which tie, what is recommended; on comparisons whose block costs are made by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from octavo.experiments.compare import CompareConfig, CompareRow, Comparison
from octavo.experiments.compare.advice import (
    MIN_HELD_OUT_BYTES,
    Evidence,
    advice,
    fall_at_the_end,
    mark_dominated,
    rank_rows,
)
from octavo.experiments.compare.config import candidates, choose, parts_of_mixture
from octavo.experiments.compare.intervals import BlockCosts
from octavo.models import MODELS, find_spec
from octavo.text import text_in_memory

BYTES, BLOCKS = 40_000, 40


def row(model: str, bits: float | None, seconds: float | None = 10.0, size: int = 1000, rate: float = 100.0,
        **more: Any) -> CompareRow:  # fmt: skip
    return CompareRow(model, more.pop("title", model.upper()), more.pop("family", "recurrent"), bits, seconds=seconds,
               bytes=size, score_rate=rate, **more)  # fmt: skip


def compressor(name: str, bits: float) -> CompareRow:
    return row(name, bits, None, family="compressor", title=f"{name}, given the training text")


def costs(noise: float = 0.01, size: int = BYTES, blocks: int = BLOCKS, **bits: float) -> BlockCosts:
    """Bits of blocks whose mean is that of the rows: blocks are hard or easy for all, and a little different for each.

    Every other block costs a little more for every other model, so that half the interval of two neighbours is
    2 x noise x 2.02 / sqrt(40), and of models with the same parity zero.
    """
    text_K = 0.3 * np.sin(np.arange(blocks))
    text_K -= text_K.mean()
    sign_K = np.where(np.arange(blocks) % 2, 1.0, -1.0)
    made = {name: (value + text_K + noise * sign_K * (-1) ** i) * size / blocks
            for i, (name, value) in enumerate(bits.items())}  # fmt: skip
    return BlockCosts(size, {name: [bits_K.tolist()] for name, bits_K in made.items()})


def test_dominated_is_worse_in_one_and_better_in_nothing() -> None:
    rows = [
        row("a", 2.0), row("same", 2.0), row("slower", 2.0, rate=99.0), row("longer", 2.0, 11.0),
        row("larger", 2.0, size=1001), row("worse", 2.1), row("worse-but-quick", 2.1, 9.0),
        row("worse-but-small", 2.1, size=999), row("worse-but-fast", 2.1, rate=101.0),
        row("compressor", 1.0, 0.0, 0, 1e9, family="compressor"), row("impossible", math.inf, 0.0, 0, 1e9),
        row("failed", None, 0.0, 0, 1e9, error="no"), row("unknown-time", 2.5, None),
    ]  # fmt: skip
    assert [one.model for one in mark_dominated(rows) if one.dominated] == ["slower", "longer", "larger", "worse"]


def test_the_best_is_a_model_and_failed_rows_come_last() -> None:
    rows = rank_rows([row("failed", None, error="no"), row("b", 3.0), row("xz", 2.0, family="compressor"),
                   row("never", math.inf, impossible=1), row("a", 2.5)])  # fmt: skip
    assert [one.model for one in rows] == ["xz", "a", "b", "never", "failed"]
    assert [one.model for one in rows if one.best] == ["a"]


def test_a_table_without_a_row_is_ranked_too() -> None:
    """As it is after the first of several seeds of a comparison's first model."""
    assert rank_rows([]) == ()


def test_how_far_a_curve_fell_at_the_end_is_against_the_best_before() -> None:
    assert fall_at_the_end([(0.3, 4.0), (0.6, 2.0), (1.0, 1.9)]) == pytest.approx(0.05)
    assert fall_at_the_end([(0.3, 1.8), (0.6, 2.0), (1.0, 1.9)]) < 0


# ---------------------------------------------------------------------- ties


def test_rows_that_the_blocks_do_not_tell_apart_are_ties_and_the_others_have_their_difference() -> None:
    bits = {"a": 2.0, "b": 2.005, "xz": 2.2, "c": 2.4}
    rows = [row("a", 2.0), row("b", 2.005), compressor("xz", 2.2), row("c", 2.4), row("failed", None, error="no")]
    first, second, third, fourth, failed = rank_rows(rows, costs(0.01, **bits))
    assert (first.behind, first.tie) == (None, False)
    assert second.tie
    assert second.behind == pytest.approx(0.005)
    half = 2.0227 * 0.02 * math.sqrt(BLOCKS / (BLOCKS - 1)) / math.sqrt(BLOCKS)  # by hand: the differences are ± 0.02
    assert (second.behind_low, second.behind_high) == pytest.approx((0.005 - half, 0.005 + half), abs=1e-5)
    assert (third.tie, fourth.tie, failed.tie) == (False, False, False)
    assert third.behind == pytest.approx(0.195)
    assert failed.behind is None
    assert [one.shown_behind for one in (first, second, third, failed)] == ["", "tie", "+0.1950", ""]


def test_without_blocks_nothing_is_called_a_tie() -> None:
    first, second = rank_rows([row("a", 2.0), row("b", 2.0)])
    assert (first.behind, second.behind, second.behind_low, second.tie) == (None, 0.0, None, False)


# ---------------------------------------------------------------------- a dozen comparisons


def test_the_advice_says_what_the_rows_say() -> None:
    rows = [
        row("mix", 2.0, 100.0, 9_000_000, generation_rate=100.0, title="mixture", family="mixture"),
        row("kn7", 2.05, 1.0, 8_000_000, generation_rate=150.0, title="7-gram", family="counts"),
        row("gru", 2.15, 50.0, 3_000_000, generation_rate=900.0),
        row("gpt", 2.3, 50.0, generation_rate=5000.0, family="attention"), compressor("bz2", 2.4),
        compressor("xz", 2.5),
    ]  # fmt: skip
    falling = [(0.1, 3.0), (0.5, 2.6), (0.8, 2.4), (1.0, 2.3)]
    flat = [(0.1, 3.0), (0.5, 2.3), (0.8, 2.31), (1.0, 2.3)]
    blocks = costs(mix=2.0, kn7=2.05, gru=2.15, gpt=2.3, bz2=2.4, xz=2.5)
    assert advice(rows, Evidence(blocks, {"gpt": falling, "gru": flat})) == (
        "mix (mixture) is the best of these: 2.000 bits per byte, 17% less than bz2, given the training text, the "
        "strongest compressor.",
        "kn7 (7-gram) is 2.5% behind the best and trains 100 times faster, in 1.0 s: take it if you train often.",
        "gru is the smallest that is not more than 10% behind: 3.0 MB on disk instead of 9.0 MB; it is 7.5% behind the "
        "best.",
        "gru generates fastest among those near the best: 900 tokens a second instead of 100.",
        "With this budget no neural model alone is better than kn7, which only counts.",
        "gpt was still getting better when the budget was spent: a larger --budget, or a GPU (--device cuda), may "
        "change the order.",
        "gru did not get better in the last third of the budget: more of it would be wasted.",
    )  # fmt: skip


def test_where_everything_failed_nothing_is_recommended() -> None:
    assert advice([row("gru", None, error="no")]) == (
        "No model could be trained and measured, so nothing can be recommended.", "gru failed, so it is not judged.",
    )  # fmt: skip


def test_one_model_alone_is_the_best_of_these() -> None:
    assert advice([row("gru", 2.0)]) == ("gru (GRU) is the best of these: 2.000 bits per byte.",)


def test_a_text_that_repeats_itself_is_for_a_compressor_and_no_model_is_recommended() -> None:
    rows = [row("kn7", 0.82, family="counts"), row("kn3", 0.9, 0.1, 10, family="counts"), compressor("bz2", 0.64),
            compressor("xz", 0.7)]  # fmt: skip
    (only,) = advice(rows, Evidence(costs(kn7=0.82, kn3=0.9, bz2=0.64, xz=0.7), repeated=0.41))
    assert only == (
        "No model beats bz2: bz2, given the training text, needs 0.640 bits per byte, kn7, the best model, 0.820 "
        "(+0.180 bits per byte, 95 % interval 0.180 to 0.180). Your text repeats itself: 41% of the held-out text "
        "stands word for word in the training text, in stretches of 24 bytes or more, and a compressor copies "
        "those from far back."
    )


def test_where_a_compressor_wins_and_the_text_does_not_repeat_itself_the_budget_is_blamed() -> None:
    rows = [row("bag", 4.0, family="counts"), compressor("xz", 2.0)]
    (only,) = advice(rows, Evidence(costs(bag=4.0, xz=2.0), repeated=0.05))
    assert only.startswith("No model beats xz: xz, given the training text, needs 2.000 bits per byte")
    assert only.endswith("A larger --budget, or other --models, may change that.")
    assert "repeats" not in only


def test_a_compressor_just_ahead_is_a_tie_and_still_nothing_is_recommended() -> None:
    rows = [row("kn7", 2.004, 60.0, family="counts"), compressor("bz2", 2.0), row("kn3", 2.01, 0.1, family="counts")]
    (only,) = advice(rows, Evidence(costs(kn7=2.004, bz2=2.0, kn3=2.01)))
    assert only.startswith("No model beats bz2: ")
    assert "a tie (+0.004 bits per byte, 95 % interval -0.002 to 0.010)" in only


def test_a_model_just_ahead_of_a_compressor_ties_with_it() -> None:
    rows = [row("kn7", 2.0, family="counts"), compressor("bz2", 2.004)]
    (only,) = advice(rows, Evidence(costs(kn7=2.0, bz2=2.004)))
    assert only == (
        "kn7 (KN7) is the best of these: 2.000 bits per byte, a tie with bz2, given the training text, the strongest "
        "compressor (-0.004 bits per byte, 95 % interval -0.010 to 0.002)."
    )


def test_nothing_is_recommended_that_a_compressor_beats() -> None:
    rows = [
        row("mix", 2.0, 100.0, 9_000_000, generation_rate=10.0, family="mixture"), compressor("bz2", 2.05),
        row("kn3", 2.1, 0.1, 100_000, generation_rate=1000.0, family="counts"),
    ]  # fmt: skip
    (only,) = advice(rows, Evidence(costs(mix=2.0, bz2=2.05, kn3=2.1)))  # kn3 is quicker, smaller, faster, and beaten
    assert "kn3" not in only


def test_too_little_text_is_said_with_the_interval_and_nothing_else() -> None:
    rows = [row("kn3", 2.9, low=1.8, high=4.0, family="counts"), row("gru", 3.0), compressor("bz2", 2.7)]
    (only,) = advice(rows, Evidence(costs(size=200, blocks=3, kn3=2.9, gru=3.0, bz2=2.7)))
    assert only == (
        "Too little text to tell which model is best: 200 bytes were held out, and it takes 2,048. kn3 has the fewest "
        "bits per byte, 2.900, with a 95 % interval from 1.800 to 4.000. Give more text, about 20.5 kB in all, or "
        "a text to measure on (--valid FILE)."
    )
    enough = Evidence(costs(size=MIN_HELD_OUT_BYTES, blocks=30, kn3=2.9, gru=3.0, bz2=2.7))
    assert "Too little" not in advice(rows, enough)[0]


def test_models_that_tie_with_the_best_are_named_with_their_intervals_and_the_quick_one_is_advised() -> None:
    rows = [row("mix", 2.0, 100.0, family="mixture"), row("kn7", 2.004, 1.0, family="counts", title="7-gram")]
    assert advice(rows, Evidence(costs(mix=2.0, kn7=2.004))) == (
        "mix (MIX) is the best of these: 2.000 bits per byte.",
        "kn7 ties with it on the 40 blocks of this text: kn7 +0.004 bits per byte, 95 % interval -0.002 to 0.010.",
        "kn7 (7-gram) ties with the best and trains 100 times faster, in 1.0 s: take it if you train often.",
    )  # fmt: skip


def test_seeds_can_make_a_tie_of_what_blocks_alone_tell_apart() -> None:
    rows = [row("gru", 2.0), row("lstm", 2.01)]
    one = costs(0.001, gru=2.0, lstm=2.01)
    assert "ties" not in " ".join(advice(rows, Evidence(one)))
    drift = 0.03 * BYTES / BLOCKS
    several = {name: [[bits + shift for bits in bits_SK[0]] for shift in (-drift, 0.0, drift)]
               for name, bits_SK in one.bits.items()}  # fmt: skip
    assert "lstm ties with it" in " ".join(advice(rows, Evidence(BlockCosts(BYTES, several))))


@pytest.mark.parametrize(("best", "quick", "said"), [(1.5, 0.01, True), (1.0, 0.01, False), (0.9, 0.001, False),
                                                     (100.0, 99.5, False), (3.0, 2.1, False)])  # fmt: skip
def test_seconds_are_worth_a_word_from_one_second_on(best: float, quick: float, said: bool) -> None:
    sentences = advice([row("a", 2.0, best), row("b", 2.01, quick)])
    assert any("times faster" in one for one in sentences) == said


def test_bytes_are_worth_a_word_from_a_megabyte_on() -> None:
    for size, said in ((3_000_000, True), (1_000_000, False)):
        sentences = advice([row("a", 2.0, size=size), row("b", 2.01, size=10_000)])
        assert any("smallest" in one for one in sentences) == said


def test_networks_are_set_against_counts_with_ties_called_ties() -> None:
    rows = [row("gru", 2.0), row("kn7", 2.1, family="counts"), row("lstm", 2.102), row("rnn", 2.2)]
    blocks = costs(gru=2.0, kn7=2.1, lstm=2.102, rnn=2.2)
    said = "Alone, gru is better than kn7, which only counts; lstm ties with it; the other one has not got there."
    assert said in advice(rows, Evidence(blocks))
    behind = advice(rows[1:3], Evidence(blocks))
    assert "With this budget no neural model alone is better than kn7, which only counts; lstm ties with it." in behind


def test_the_advice_says_which_tokenizer_pays_and_where_two_tie() -> None:
    rows = [
        row("kn3-char", 2.0, family="counts", tokenizer="char", variant_of="kn3"),
        row("kn3-bpe", 2.2, family="counts", tokenizer="bpe", variant_of="kn3"),
        row("kn3", 2.5, family="counts", tokenizer="byte"), row("gru", 2.6, tokenizer="byte"),
        row("gru-bpe", 2.604, tokenizer="bpe", variant_of="gru"), row("words3", 2.7, tokenizer="word"),
    ]  # fmt: skip
    blocks = costs(**{one.model: one.bits_per_byte or 0.0 for one in rows})
    (said,) = [one for one in advice(rows, Evidence(blocks)) if "tokenizer" in one]
    assert said == (
        "Which tokenizer pays: char for kn3, where byte needs +0.500 bits per byte, 95 % interval 0.500 to 0.500; byte "
        "and bpe for gru (a tie)."
    )


# ---------------------------------------------------------------------- adaptive rows


def adaptive(name: str, bits: float, **more: Any) -> CompareRow:
    return row(name, bits, adaptive=True, **more)


def test_where_an_adaptive_compressor_wins_the_advice_says_what_adapting_buys_and_names_the_best_fixed_model() -> None:
    ppmd = adaptive("ppmd", 2.03, family="compressor", seconds=None, rate=1_200_000.0, title="ppmd, given the text")
    rows = [row("kn7", 2.19, rate=3_400_000.0, family="counts", title="7-gram"), row("gru", 2.3), ppmd]
    said = advice(rows, Evidence(costs(kn7=2.19, gru=2.3, ppmd=2.03)))
    assert said[:2] == (
        "No model beats ppmd: ppmd, given the text, needs 2.030 bits per byte, kn7, the best fixed model, 2.190 "
        "(+0.160 bits per byte, 95 % interval 0.160 to 0.160). A larger --budget, or other --models, may change that.",
        "ppmd is adaptive: it goes on learning from the held-out text while it scores it and models text in a way of "
        "its own; that buys 0.160 bits per byte. It costs time (ppmd reads 1.2 M bytes a second, kn7 3.4 M tokens) and "
        "state: it stores nothing of what it has learnt, reads the training text again each time, and cannot generate.",
    )
    assert all("is the best of these" not in one for one in said)


def test_where_an_adaptive_model_wins_it_is_the_best_and_the_best_fixed_one_is_named() -> None:
    rows = [adaptive("live", 1.95, title="adaptive 7-gram", family="counts", rate=4_000.0), row("gru", 2.0),
            compressor("xz", 2.5)]  # fmt: skip
    first, second, *_ = advice(rows, Evidence(costs(live=1.95, gru=2.0, xz=2.5)))
    assert first.startswith("live (adaptive 7-gram) is the best of these: 1.950 bits per byte, 22% less than xz")
    assert second.startswith("The best fixed model is gru (GRU): 2.000 bits per byte. live is adaptive: ")
    assert "which buys 0.050 bits per byte, 95 % interval " in second
    assert "(live reads 4 k tokens a second, gru 100 tokens)" in second
    assert second.endswith("must be stored to continue it, and a text is read in order, in one stream.")


def test_where_a_compressor_beats_an_adaptive_model_too_the_best_fixed_one_is_still_named() -> None:
    rows = [adaptive("live", 1.95), row("gru", 2.0), adaptive("zpaq", 1.9, family="compressor")]
    first, second, *_ = advice(rows, Evidence(costs(live=1.95, gru=2.0, zpaq=1.9)))
    assert "live, the best model, 1.950" in first
    assert second.startswith("The best fixed model is gru (GRU): 2.000 bits per byte. zpaq is adaptive: ")
    assert "that buys 0.100 bits per byte, 95 % interval " in second


def test_a_gain_that_the_blocks_do_not_confirm_is_called_a_tie() -> None:
    rows = [adaptive("live", 2.0), row("gru", 2.004)]
    said = advice(rows, Evidence(costs(live=2.0, gru=2.004)))
    assert "which buys 0.004 bits per byte, 95 % interval -0.002 to 0.010, a tie." in said[1]


@pytest.mark.parametrize("rows", [
    [row("gru", 2.0), adaptive("live", 2.1)], [adaptive("live", 2.0)], [row("gru", 2.0), row("kn7", 2.1)],
    [row("gru", 2.0), adaptive("ppmd", 2.2, family="compressor")],
])  # fmt: skip
def test_where_no_adaptive_row_beats_a_fixed_model_nothing_is_said_of_adapting(rows: list[CompareRow]) -> None:
    assert all("adaptive" not in one and "fixed" not in one for one in advice(rows))


def test_a_fixed_model_is_called_the_best_only_where_no_adaptive_row_needs_fewer_bits() -> None:
    def words(*rows: CompareRow) -> str:
        return Comparison(rank_rows(rows), {"name": "a.txt"}).best_words

    fixed, ppmd = row("kn7", 2.2, family="counts"), adaptive("ppmd", 2.0, family="compressor")
    assert words(fixed, ppmd) == "best fixed model"
    assert words(fixed, adaptive("ppmd", 2.3, family="compressor")) == words(fixed) == "best model"
    assert words(adaptive("live", 2.1), fixed, ppmd) == "best model"  # of the models; it is not called fixed
    assert words(fixed, replace(ppmd, error="no")) == "best model"
    beaten = Comparison(rank_rows([fixed, ppmd]), {"name": "a.txt"})
    assert "kn7 is the best fixed model, 2.2000 bits per byte" in repr(beaten)


# ---------------------------------------------------------------------- tokenizers as candidates

CHINESE = "人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心，并应以兄弟关系的精神相对待。\n"
RUSSIAN = "Все люди рождаются свободными и равными в своем достоинстве и правах.\n"
GERMAN = "Alle Menschen sind frei und gleich an Würde und Rechten geboren, für sich und über alle.\n"


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [("plain English\n", 1.0, 1.0), (GERMAN, 1.0, 1.1), (RUSSIAN, 1.7, 2.0), (CHINESE, 2.9, 3.0)],
)
def test_bytes_per_character_decide_whether_other_tokenizers_are_compared(text: str, low: float, high: float) -> None:
    found = text_in_memory(50 * text).bytes_per_character()
    assert low <= found <= high
    names = CompareConfig().for_text(found).models
    assert ({"kn3-char", "kn3-bpe", "kn5-char", "gru-char", "gru-bpe", "gpt-bpe"} <= set(names)) == (found >= 1.5)
    assert any("-char" in name for name in names) == (found >= 1.5)


def test_what_is_not_utf8_has_one_byte_a_character() -> None:
    assert text_in_memory(b"\xe4\xf6\xfc" * 100).bytes_per_character() == 1.0
    assert text_in_memory(b"").bytes_per_character() == 1.0


def test_a_tokenizer_of_ones_own_choice_is_not_set_beside_others_and_a_named_variant_is_always_compared() -> None:
    chosen = CompareConfig(models=("kn*",), tokenizer="char").for_text(3.0).models
    assert not any(name.endswith(("-char", "-bpe")) for name in chosen)
    assert CompareConfig(models=("kn5-char", "kn5")).for_text(1.0).models == ("kn5", "kn5-char")
    assert [one.name for one in choose(("kn*",), candidates())] == ["kn3", "kn5", "kn7", "kn8-adaptive"]
    assert [one.name for one in choose(("kn*",), candidates(), 2.0)] == [
        "kn3", "kn3-char", "kn3-bpe", "kn5", "kn5-char", "kn7", "kn8-adaptive",
    ]  # fmt: skip


def test_variants_come_from_the_specs_with_every_setting_but_the_tokenizer() -> None:
    usual, char, bpe = find_spec("gru").compared_as(20.0, "cpu", 3.0)
    assert (char.name, char.model, char.variant_of) == ("gru-char", "gru", "gru")
    assert dict(char.settings) == {**usual.settings, "tokenizer": "char"}
    assert dict(bpe.settings)["tokenizer"] == "bpe"
    assert all(len(spec.compared_as(20.0, "cpu", 1.49)) == len(spec.compared_as(20.0)) for spec in MODELS.values())


def test_a_mixture_is_of_the_tokenizer_of_the_best_network_that_has_a_partner() -> None:
    some = choose(("kn5", "kn7", "kn3-char", "kn5-char", "gru", "gru-char", "gpt-bpe"), candidates())
    tokens = {"kn5": "b", "kn7": "b", "kn3-char": "c", "kn5-char": "c", "gru": "b", "gru-char": "c", "gpt-bpe": "p"}
    validation = {"gru": 2.5, "gru-char": 2.2, "gpt-bpe": 2.1}
    assert parts_of_mixture(some, tokens, validation) == ["kn5-char", "gru-char"]  # gpt-bpe has no partner
    assert parts_of_mixture(some, tokens, {**validation, "gru": 2.0}) == ["kn7", "gru"]


def test_an_adaptive_mixture_is_of_an_adaptive_ngram_and_one_network() -> None:
    some = choose(("kn7", "kn8-adaptive", "gru", "gpt"), candidates())
    tokens, validation = dict.fromkeys(("kn7", "kn8-adaptive", "gru", "gpt"), "b"), {"gru": 2.5, "gpt": 2.2}
    assert parts_of_mixture(some, tokens, validation, adaptive=True) == ["kn8-adaptive", "gpt"]
    assert parts_of_mixture(some, tokens, validation) == ["kn7", "gpt", "gru"]
    del tokens["kn8-adaptive"]
    assert parts_of_mixture(some, tokens, validation, adaptive=True) == ["kn7", "gpt"]
    assert parts_of_mixture(some, {"gru": "b", "gpt": "b"}, validation, adaptive=True) == ["gpt", "gru"]
