"""The hidden Markov model, by gradient and by Baum-Welch."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import pytest
import torch

import octavo
from examples import NEWLINE, VOCAB, baum_welch, hidden_markov, text
from flop_counter import flop_counter
from octavo.core import seeded_generator
from octavo.errors import UserError
from octavo.models.bag import Bag, BagConfig
from octavo.models.baum_welch import BaumWelchConfig, expectation, fit_hidden_markov, sequences
from octavo.models.hidden_markov import HMMConfig, likely_tokens, viterbi_table
from octavo.ops.hidden_markov import viterbi

SENTENCES = "the cat sat on the mat and the dog ran to the door\n" * 40


def test_one_state_is_a_bag_of_words() -> None:
    """The M step with one state gives every token its share; begin, which is never counted, gets k."""
    model = baum_welch(states=1, iterations=1, k=1e-9).double()
    bag = Bag.fit(text(), BagConfig(k=0), VOCAB)
    logits_1V, _ = model.step(model.start(1), torch.tensor([NEWLINE]))
    seen_V = bag.logp_V.isfinite()
    torch.testing.assert_close(logits_1V[0, seen_V], bag.logp_V[seen_V], rtol=1e-5, atol=1e-5)


def test_no_round_of_baum_welch_makes_the_text_less_probable() -> None:
    rows: list[float] = []
    config = BaumWelchConfig(states=6, iterations=25, tolerance=0.0, k=1e-9, sequence_length=60)
    fit_hidden_markov(text(), config, VOCAB, seeded_generator(2), lambda row: rows.append(row["loss"]))
    assert len(rows) == 25
    assert all(after <= before + 1e-9 for before, after in pairwise(rows))
    assert rows[0] - rows[-1] > 0.05


def test_the_last_reported_loss_is_that_of_the_model_before_the_last_round() -> None:
    rows: list[float] = []
    config = BaumWelchConfig(states=4, iterations=3, tolerance=0.0, sequence_length=50)
    model = fit_hidden_markov(text(), config, VOCAB, seeded_generator(1), lambda row: rows.append(row["loss"]))
    x_PT, is_token_PT = sequences(text(), VOCAB - 1, 50)
    m = model.double().requires_grad_(False).probabilities()
    loss = -expectation(m, x_PT, is_token_PT).log_likelihood / int(is_token_PT.sum())
    assert loss <= rows[-1]  # which is of the round before
    whole = [row for row in x_PT if len(row) == 50][:-1]
    scored = sum(float(model.score(row[None]).sum()) for row in whole)
    mask = is_token_PT[: len(whole)]
    assert scored == pytest.approx(expectation(m, x_PT[: len(whole)], mask).log_likelihood, rel=1e-6)


def test_rounds_stop_when_they_gain_little() -> None:
    rows: list[float] = []
    config = BaumWelchConfig(states=1, iterations=50)
    fit_hidden_markov(text(), config, VOCAB, seeded_generator(1), lambda row: rows.append(row["loss"]))
    assert len(rows) == 3  # the first gains everything, the second finds nothing more than k's


def test_texts_are_cut_at_begin_and_after_the_length() -> None:
    begin = 9
    x_PT, is_token_PT = sequences(torch.tensor([begin, 1, 2, 3, 4, 5, begin, 6]), begin, 2)
    assert [row[mask].tolist() for row, mask in zip(x_PT, is_token_PT, strict=True)] == [[1, 2], [3, 4], [5], [6]]
    with pytest.raises(UserError, match="the text has 2; give a longer one"):
        sequences(torch.tensor([begin, begin]), begin, 2)


def test_baum_welch_finds_states_that_take_turns() -> None:
    """Tokens 0 and 1 in even places, 2 and 3 in odd ones, each by a coin: no model can do better than one bit."""
    generator = seeded_generator(3)
    coin_N = torch.randint(0, 2, (2000,), generator=generator)
    x_N = torch.cat([torch.tensor([4]), coin_N + 2 * (torch.arange(2000) % 2)])
    config = BaumWelchConfig(states=2, iterations=100, tolerance=0.0)
    model = fit_hidden_markov(x_N, config, 5, seeded_generator(2))  # seed 1 ends in a worse local optimum
    model.double().requires_grad_(False)
    assert -float(model.score(x_N[None, 1:]).mean()) / math.log(2) == pytest.approx(1.0, abs=0.01)
    path_T, _ = viterbi(model.probabilities(), x_N[1:11])
    assert path_T.tolist() == [path_T[0].item(), 1 - path_T[0].item()] * 5


@pytest.mark.parametrize(("settings", "words"), [
    ({"states": 0}, "states must be at least 1"), ({"k": 0.0}, "k must be above 0"),
    ({"iterations": 0}, "iterations must be at least 1"),
])  # fmt: skip
def test_settings_that_cannot_be_are_refused(settings: dict[str, float], words: str) -> None:
    with pytest.raises(UserError, match=words):
        BaumWelchConfig(**settings)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="states must be at least 1"):
        HMMConfig(states=0)


def test_the_viterbi_view_shows_the_path_and_each_states_probability() -> None:
    model, x_N = hidden_markov(), text(30)[1:].tolist()
    table = viterbi_table(model, x_N)
    path_T, logp = viterbi(model.probabilities().double(), torch.tensor(x_N))
    assert len(table.details) == len(x_N)
    for state, detail in zip(path_T.tolist(), table.details, strict=True):
        assert detail.title.startswith(f"hidden state {state},")
        assert table.parts[int(detail.shade)] == f"state {state}"
        assert sum(detail.shares) == pytest.approx(1.0, abs=0.2)
    log_text = float(model.score(torch.tensor([x_N]))[0].sum())
    assert table.summary is not None
    joint, whole, given = (row[1] for row in table.summary.rows)
    assert joint == f"{-logp / math.log(2):.1f} bits"
    assert whole == f"{-log_text / math.log(2):.1f} bits"
    share = float(given.rstrip("%")) / (100 if "%" in given else 1)
    assert share == pytest.approx(math.exp(logp - log_text), rel=0.06)


def test_a_page_shows_what_each_state_emits() -> None:
    table = likely_tokens(baum_welch(), str)
    assert len(table.rows) == 4
    assert sum(float(row[1].rstrip("%")) for row in table.rows) == pytest.approx(100, abs=0.3)


@pytest.mark.parametrize(("name", "settings"), [
    ("hmm", {"budget": "30steps", "states": 6}), ("hmm-em", {"iterations": 4, "states": 6}),
])  # fmt: skip
def test_both_are_trained_saved_and_loaded(tmp_path: Path, name: str, settings: dict[str, object]) -> None:
    (tmp_path / "text.txt").write_text(SENTENCES)
    run = octavo.train(name, tmp_path / "text.txt", out=tmp_path / "run", **settings)  # type: ignore[arg-type]
    again = octavo.load(tmp_path / "run")
    x_BT = torch.randint(0, 256, (1, 40), generator=seeded_generator(1))
    assert torch.equal(again.model(x_BT), run.model(x_BT))
    assert 0 < run.record["result"]["bits_per_byte"] < 8


def test_a_rounds_operations_are_those_that_pytorch_counts() -> None:
    rows: list[float] = []
    config = BaumWelchConfig(states=6, iterations=1, sequence_length=60)
    with flop_counter() as counted:
        fit_hidden_markov(text(), config, VOCAB, seeded_generator(2), lambda row: rows.append(row["flops"]))
    sequence_ends = 2 * 10 * 6**2  # the products before the first and after the last token of a sequence lead nowhere
    assert counted.get_total_flops() == rows[0] - 2 * sequence_ends


def test_half_precision_changes_nothing() -> None:
    """Products of probabilities lose too many digits in it: training in it computes in single precision here."""
    model = hidden_markov().float()
    x_BT = text(40)[None, 1:].long()
    plain_BTV = model(x_BT)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(model(x_BT), plain_BTV)
        assert torch.equal(model.step(model.start(1), x_BT[:, 0])[0], model.step(model.start(1), x_BT[:, 0])[0].float())
