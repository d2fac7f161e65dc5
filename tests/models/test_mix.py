"""Mixtures: their weights are chosen on text that no part has seen, and choosing them helps."""

from __future__ import annotations

import json
import math
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

import octavo
from octavo.core import LanguageModel
from octavo.errors import UserError
from octavo.models import Bag, Mix, NGram
from octavo.models.bag import BagConfig
from octavo.models.mix import MixConfig
from octavo.models.ngram import AdaptiveNGram, AdaptiveNGramConfig, NGramConfig
from octavo.text import open_corpus, tokenize
from octavo.text.validation_chunks import hold_out

VOCAB = 13


def chain(length: int, seed: int) -> torch.Tensor:
    """Tokens that mostly follow from the one before, opened by begin."""
    rng = random.Random(seed)
    x = [0]
    for _ in range(length):
        x.append((3 * x[-1] + rng.choice((0, 0, 1, 5))) % (VOCAB - 1))
    return torch.tensor([VOCAB - 1, *x[1:]])


def ngram(order: int, seed: int = 1, **config: Any) -> NGram:
    return NGram.fit(chain(400, seed).int(), NGramConfig(order=order, **config), VOCAB)


def parts() -> list[LanguageModel[Any]]:
    return [ngram(4), ngram(1), Bag.fit(chain(400, 1), BagConfig(), VOCAB)]


def observed(mix: Mix, seed: int = 9, length: int = 300) -> tuple[torch.Tensor, torch.Tensor]:
    """The log-probabilities of held-out tokens under each part, and the context class of each."""
    x_1T = chain(length, seed)[None]
    return mix.part_log_probs(mix.start(1), x_1T)[0][:, 0], mix.token_context_classes(mix.start(1), x_1T)[0]


def log_likelihood(mix: Mix, logp_IN: torch.Tensor, class_N: torch.Tensor) -> float:
    return float((mix.logw_GI[class_N].T + logp_IN).logsumexp(0).sum())


@pytest.mark.parametrize("by_class", [True, False])
def test_weights_sum_to_one_in_every_class_and_none_is_zero(by_class: bool) -> None:
    mix = Mix(MixConfig(by_class=by_class), parts())
    mix.learn(*observed(mix))
    assert mix.logw_GI.shape == (4 if by_class else 1, 3)
    torch.testing.assert_close(mix.logw_GI.exp().sum(1), torch.ones(len(mix.logw_GI), dtype=torch.float64))
    assert bool((mix.logw_GI > -math.inf).all())


@pytest.mark.parametrize("by_class", [True, False])
def test_every_round_makes_the_held_out_tokens_more_probable(by_class: bool) -> None:
    seen = []
    for rounds in range(12):
        mix = Mix(MixConfig(by_class=by_class, rounds=rounds), parts())
        logp_IN, class_N = observed(mix)
        mix.learn(logp_IN, class_N)
        prior = float(mix.logw_GI.sum() / 3)  # the token that is shared evenly in each class beforehand
        seen.append(log_likelihood(mix, logp_IN, class_N) + prior)
    assert all(after >= before - 1e-9 for before, after in pairwise(seen))
    assert seen[-1] > seen[0] + 1


def test_the_weights_are_the_best_there_are() -> None:
    mix = Mix(MixConfig(by_class=False, rounds=10_000), [ngram(4), ngram(1)])
    logp_IN, class_N = observed(mix)
    mix.learn(logp_IN, class_N)
    grid_W = torch.linspace(0.001, 0.999, 999, dtype=torch.float64)
    both_WN = torch.stack([grid_W, 1 - grid_W]).log()[:, :, None] + logp_IN[:, None]
    penalised_W = both_WN.logsumexp(0).sum(1) + (grid_W.log() + (1 - grid_W).log()) / 2
    assert float(mix.logw_GI.exp()[0, 0]) == pytest.approx(float(grid_W[penalised_W.argmax()]), abs=2e-3)


def test_a_mixture_of_a_model_with_itself_is_the_model() -> None:
    model = ngram(3)
    mix = Mix(MixConfig(), [model, model])
    mix.learn(*observed(mix))
    x_1T = chain(100, 5)[None, 1:]
    torch.testing.assert_close(mix.score(x_1T), model.score(x_1T), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(mix(x_1T).exp(), model(x_1T).exp(), rtol=1e-12, atol=1e-12)


def test_a_part_that_learns_while_it_reads_is_refused_with_fixed_weights() -> None:
    learning = AdaptiveNGram.fit(chain(400, 1).int(), AdaptiveNGramConfig(order=2), VOCAB)
    with pytest.raises(UserError, match=r"fixed weights takes fixed parts.* train the mixture with --adaptive"):
        Mix(MixConfig(), [ngram(2), learning])


def test_a_part_that_makes_a_token_impossible_does_not_spoil_the_others() -> None:
    mix = Mix(MixConfig(by_class=False), [ngram(3, estimator="mle"), Bag.fit(chain(400, 1), BagConfig(), VOCAB)])
    logp_IN, class_N = observed(mix)
    assert bool(logp_IN[0].isneginf().any())
    mix.learn(logp_IN, class_N)
    assert math.isfinite(log_likelihood(mix, logp_IN, class_N))


def test_saved_weights_that_do_not_sum_to_one_are_refused() -> None:
    with pytest.raises(UserError, match="weights must sum to one"):
        Mix(MixConfig(), parts()).load_tensors({"logw_GI": torch.zeros(4, 3, dtype=torch.float64)})


def test_parts_and_rounds_that_make_no_mixture_are_refused() -> None:
    with pytest.raises(UserError, match="two or more parts"):
        Mix(MixConfig(), parts()[:1])
    with pytest.raises(UserError, match=r"one tokenizer: vocabularies \[13, 14\]"):
        Mix(MixConfig(), [ngram(2), Bag(BagConfig(), 14)])
    with pytest.raises(UserError, match="rounds must be at least 0: rounds=-1"):
        MixConfig(rounds=-1)


def prose(words: int, seed: int) -> str:
    """Sentences of made-up words, some of them frequent."""
    rng = random.Random(seed)
    known = [
        "".join(rng.choice("aeiou" if i % 2 else "bdlmnrst") for i in range(rng.randint(2, 6))) for _ in range(150)
    ]
    chosen = rng.choices(known, [1 / (i + 1) for i in range(150)], k=words)
    return "".join(word + (".\n" if i % 9 == 8 else " ") for i, word in enumerate(chosen))


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """A folder with a text and two runs on it."""
    (tmp_path / "text.txt").write_text(prose(2500, 4))
    for order in (6, 2):
        octavo.train("ngram", tmp_path / "text.txt", order=order, out=tmp_path / f"kn{order}", measure=False)
    return tmp_path


def mixed(folder: Path, **settings: Any) -> octavo.tasks.api.Run:  # type: ignore[name-defined]
    return octavo.train("mix", folder / "text.txt", parts=[folder / "kn6", folder / "kn2"], **settings)


def test_weights_learnt_on_seen_text_would_trust_long_contexts_more(trained: Path) -> None:
    text, names = trained / "text.txt", ("mle8", "kn2")
    octavo.train("ngram", text, order=8, estimator="mle", out=trained / "mle8", measure=False)
    honest = octavo.train("mix", text, parts=[trained / name for name in names], by_class=False, measure=False)
    naive = Mix(MixConfig(by_class=False), [octavo.load(trained / name).model for name in names])
    held = hold_out(tokenize(open_corpus(text).train, honest.tokenizer).tokens, naive.begin)
    naive.learn_pieces(torch.from_numpy(held.pieces_PL.astype("int64")))
    assert float(naive.logw_GI.exp()[0, 0]) > 0.95  # what it has learnt by heart it always knows
    assert float(honest.model.logw_GI.exp()[0, 0]) < 0.8


def test_a_part_that_has_learnt_the_held_out_text_from_another_file_is_refused(trained: Path) -> None:
    (trained / "half.txt").write_bytes((trained / "text.txt").read_bytes()[:6000])
    with pytest.raises(UserError, match=r"of the held-out part of .*half\.txt stands in what kn6 was trained on"):
        octavo.train("mix", trained / "half.txt", parts=[trained / "kn6", trained / "kn2"], measure=False)


def test_the_mixture_itself_keeps_the_parts_as_they_were_trained(trained: Path) -> None:
    mix = mixed(trained, measure=False)
    for part, name in zip(mix.model.parts, ("kn6", "kn2"), strict=True):
        tables, own = part.state_dict(), octavo.load(trained / name).model.state_dict()
        assert all(torch.equal(tables[key], own[key]) for key in own)


def test_a_mixture_is_saved_and_loaded_whole(trained: Path) -> None:
    made = mixed(trained, out=trained / "mix")
    again = octavo.load(trained / "mix")
    assert octavo.evaluate(again, "some text").bits == octavo.evaluate(made, "some text").bits
    assert again.identity == made.identity
    assert [part["run"] for part in again.record["mixed"]] == ["kn6", "kn2"]


def test_parts_that_do_not_fit_together_are_refused(trained: Path) -> None:
    text = trained / "text.txt"
    octavo.train("ngram", text, order=2, tokenizer="char", out=trained / "char", measure=False)
    octavo.train("ngram", text, order=2, preprocess=["lower"], out=trained / "lower", measure=False)
    for other, message in (("char", "with the same tokenizer: kn6"), ("lower", "the same preprocessing: kn6")):
        with pytest.raises(UserError, match=message):
            octavo.train("mix", text, parts=[trained / "kn6", trained / other])
    with pytest.raises(UserError, match=r"two or more --parts .*: kn6 \(byte\)"):
        octavo.train("mix", text, parts=[trained / "kn6"])
    with pytest.raises(UserError, match=r"two or more --parts .*: none"):
        octavo.train("mix", text)


def test_a_part_that_has_seen_the_measured_text_is_refused(trained: Path) -> None:
    text, other = trained / "text.txt", trained / "other.txt"
    other.write_text(prose(300, 7))
    octavo.train("ngram", text, order=3, valid=[other], out=trained / "all", measure=False)
    with pytest.raises(UserError, match=r"all was trained on another part of .*text.txt"):
        octavo.train("mix", text, parts=[trained / "kn6", trained / "all"])


def test_a_mixture_in_a_mixture_is_refused_where_it_has_seen_the_tail(trained: Path) -> None:
    mixed(trained, out=trained / "mix", measure=False)
    with pytest.raises(UserError, match="mix has seen the text that weights are learnt on; mix its parts directly"):
        octavo.train("mix", trained / "text.txt", parts=[trained / "mix", trained / "kn6"])


def test_parts_of_another_text_are_mixed_as_they_are(trained: Path) -> None:
    (trained / "other.txt").write_text(prose(1000, 8))
    mix = octavo.train("mix", trained / "other.txt", parts=[trained / "kn6", trained / "kn2"])
    assert mix.record["corpus"]["name"].endswith("other.txt")
    assert math.isfinite(mix.record["result"]["bits_per_byte"])


def test_the_mixture_reads_and_measures_text_as_its_parts_did(tmp_path: Path) -> None:
    lines = [json.dumps({"body": line}) for line in prose(2000, 3).splitlines()]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    (tmp_path / "v.jsonl").write_text("\n".join(json.dumps({"body": line}) for line in prose(100, 6).splitlines()))
    how = {"field": "body", "valid": [tmp_path / "v.jsonl"]}
    for order in (4, 2):
        octavo.train("ngram", tmp_path / "a.jsonl", order=order, out=tmp_path / f"{order}", measure=False, **how)
    mix = octavo.train("mix", tmp_path / "a.jsonl", parts=[tmp_path / "4", tmp_path / "2"])
    part = octavo.load(tmp_path / "4")
    assert mix.record["corpus"]["valid"] == part.record["corpus"]["valid"]
    assert mix.record["corpus"]["train"] == part.record["corpus"]["train"]


@pytest.mark.data("shakespeare")
def test_a_mixture_beats_its_best_part_on_shakespeare(tmp_path: Path, data_root: Path) -> None:
    (tmp_path / "text.txt").write_bytes((data_root / "shakespeare" / "input.txt").read_bytes()[:60_000])
    runs = [
        octavo.train("ngram", tmp_path / "text.txt", order=order, out=tmp_path / f"kn{order}", seed=order)
        for order in (6, 3)
    ]
    mix = octavo.train("mix", tmp_path / "text.txt", parts=[run.path for run in runs])
    best = min(run.record["result"]["bits_per_byte"] for run in runs)
    assert mix.record["result"]["bits_per_byte"] < best - 0.005
