"""Bits per byte: against sums done by hand, the bits of every token over the raw bytes."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from octavo.core import LanguageModel
from octavo.models import Bag, NGram
from octavo.models.bag import BagConfig
from octavo.models.ngram import NGramConfig
from octavo.scoring.bits_per_byte import (
    NOT_COMPARABLE,
    PASSAGE,
    STATE_CARRIED,
    ByteCosts,
    Passage,
    Score,
    score_text,
    total,
)
from octavo.scoring.token_costs import token_costs
from octavo.tasks import api
from octavo.tasks.run import Run
from octavo.text import Bpe, BpeSettings, Byte, Char, Split, Tokenizer, Word, WordSettings, open_text, text_in_memory
from octavo.text.chunks import Chunk
from tiny_models import Dropped, Recurrent

SEEN = "the cat sat on the mat. the dog sat on the log.\n" * 3
WORDS = SEEN + "naïve café, naïve café\n"


def learnt(name: str, text: str = WORDS) -> Tokenizer:
    blocks = [Chunk(text.encode(), np.zeros(1, np.int64))]
    if name == "word":
        return Word.learn(blocks, WordSettings(min_count=1))
    return {"byte": Byte.learn, "char": Char.learn, "bpe": lambda b: Bpe.learn(b, BpeSettings(300))}[name](blocks)


def tokens_of(tokenizer: Tokenizer, text: str) -> torch.Tensor:
    return torch.tensor([tokenizer.begin, *tokenizer.encode(text.encode()).tolist()])


def ngram(tokenizer: Tokenizer, text: str = WORDS, **config: Any) -> NGram:
    return NGram.fit(tokens_of(tokenizer, text).int(), NGramConfig(**config), tokenizer.vocab)


def score(model: LanguageModel[Any], tokenizer: Tokenizer, text: str | bytes | Split) -> Score:
    return score_text(model, tokenizer, text if isinstance(text, Split) else text_in_memory(text), "text")


class Marked(Byte):
    """Bytes, and a token 65 that stands for none."""

    def token_bytes(self, token: int) -> bytes:
        return b"" if token == 65 else b"xy" if token == 66 else super().token_bytes(token)


def test_bits_are_spread_over_the_bytes_of_a_token_and_those_without_bytes_go_to_the_next() -> None:
    costs = ByteCosts(Marked())
    costs(np.array([97, 66, 65]), np.array([3.0, 8.0, 1.0]))
    costs(np.array([65, 97, 65]), np.array([2.0, 4.0, 0.5]))
    assert costs.bits_of_bytes().tolist() == [3, 4, 4, 1 + 2 + 4 + 0.5]  # at the end there is no next: the last has it


def test_a_tiny_text_costs_what_a_hand_sum_says() -> None:
    tokenizer = Byte()
    bag = Bag.fit(tokens_of(tokenizer, "aaab"), BagConfig(k=1), tokenizer.vocab)
    # p(a) = (3 + 1) / (4 + 256), p(b) = (1 + 1) / 260, p(c) = 1 / 260
    found = score(bag, tokenizer, "abc")
    assert found.bits == pytest.approx(math.log2(260 / 4) + math.log2(260 / 2) + math.log2(260), rel=1e-14)
    assert (found.bytes, found.tokens, found.impossible) == (3, 3, 0)
    assert found.bits_per_byte == found.bits / 3
    assert found.policy == STATE_CARRIED


def test_the_first_token_is_scored_after_begin() -> None:
    tokenizer = Byte()
    model = ngram(tokenizer, "ab", order=2, estimator="mle")
    assert score(model, tokenizer, "a").bits == pytest.approx(0, abs=1e-6)  # every sequence began with a
    assert score(model, tokenizer, "b").bits == math.inf  # and none with b


@pytest.mark.parametrize("name", ["byte", "char", "word", "bpe"])
def test_the_divisor_is_the_raw_text_whatever_the_tokenizer(name: str) -> None:
    text = "the naïve cat, the zoölogist\n"
    tokenizer = learnt(name)
    found = score(ngram(tokenizer, order=2), tokenizer, text)
    tokens = tokenizer.encode(text.encode())
    assert found.bytes == len(text.encode()) == 31
    assert found.tokens == len(tokens)
    x_1T = torch.from_numpy(tokens.astype(np.int64))[None]
    by_hand = -ngram(tokenizer, order=2).score(x_1T).sum().item() / math.log(2)
    assert found.bits == pytest.approx(by_hand, rel=1e-12)
    assert found.bits_per_byte == pytest.approx(by_hand / 31, rel=1e-12)


def test_perplexity_has_no_base() -> None:
    tokenizer = Byte()
    bag = Bag.fit(tokens_of(tokenizer, SEEN), BagConfig(), tokenizer.vocab)
    nats = -bag.score(torch.tensor([list(b"the rat")])).sum().item()
    assert score(bag, tokenizer, "the rat").perplexity == pytest.approx(math.exp(nats / 7), rel=1e-12)


def test_perplexity_of_certainty_is_one_and_of_impossibility_infinite() -> None:
    assert Score("", 0.0, 5, 5, 0).perplexity == 1
    assert Score("", math.inf, 5, 5, 0).perplexity == math.inf
    assert Score("", 1e6, 5, 5, 0).perplexity == math.inf  # too large for a float
    assert math.isnan(Score("", 0.0, 0, 0, 0).perplexity)


class Narrow(NGram):
    """An n-gram model that is handed three tokens at a time."""

    max_scored_tokens = 3  # type: ignore[assignment]


class Forgetful(Narrow):
    """The same, scored as a model that must be started afresh at every begin."""

    begin_resets = False  # type: ignore[assignment]


@pytest.mark.parametrize("kind", [Narrow, Forgetful])
@pytest.mark.parametrize("name", ["byte", "word"])
def test_windows_do_not_change_the_result(tmp_path: Path, kind: type[NGram], name: str) -> None:
    tokenizer = learnt(name)
    model = ngram(tokenizer, order=4)
    texts = [
        text_in_memory("the dog sat on the naïve zebra\n" * 3),
        open_text(documents(tmp_path, ["on", "the log", "o"])),
    ]
    whole = [score(model, tokenizer, text) for text in texts]
    model.__class__ = kind
    cut = [score(model, tokenizer, text) for text in texts]
    assert [s.bits for s in cut] == pytest.approx([s.bits for s in whole], rel=1e-12)
    assert [s.tokens for s in cut] == [s.tokens for s in whole]


def test_the_state_is_carried_over_windows_by_a_model_that_never_forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Recurrent(257)
    text = bytes(range(65, 90)) * 5
    x_1T = torch.tensor([list(text)])
    by_hand = -model.score(x_1T).sum().item() / math.log(2)
    monkeypatch.setattr(Recurrent, "max_scored_tokens", 4)
    assert score(model, Byte(), text).bits == pytest.approx(by_hand, rel=1e-10)


def test_dropout_is_off_while_scoring_and_on_again_afterwards() -> None:
    model = Dropped(257)
    model.train()
    first = score(model, Byte(), b"some text").bits
    assert score(model, Byte(), b"some text").bits == first
    assert model.dropout.training


def documents(folder: Path, texts: list[str]) -> Path:
    path = folder / "documents.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", ["byte", "char", "word", "bpe"])
def test_documents_start_over(tmp_path: Path, name: str) -> None:
    texts = ["the cat", "sat on the mat", "naïve", "the dog sat", "t"]
    tokenizer = learnt(name)
    for model in (ngram(tokenizer, order=4), Recurrent(tokenizer.vocab)):
        together = score(model, tokenizer, open_text(documents(tmp_path, texts)))
        apart = [score(model, tokenizer, text) for text in texts]
        assert together.bits == pytest.approx(math.fsum(one.bits for one in apart), rel=1e-12)
        assert together.tokens == sum(one.tokens for one in apart)
        assert together.bytes == sum(len(text.encode()) for text in texts)
        joined = score(model, tokenizer, "".join(texts))
        assert abs(joined.bits - together.bits) > 0.1  # or the test would prove nothing


def test_bits_belong_to_their_tokens() -> None:
    tokenizer = Byte()
    bag = Bag.fit(tokens_of(tokenizer, SEEN), BagConfig(), tokenizer.vocab)
    tokens, bits = zip(*token_costs(bag, tokenizer.encode_chunks(text_in_memory("on the log").chunks())), strict=True)
    expected = [-bag.logp_V[b].item() / math.log(2) for b in b"on the log"]
    assert bytes(np.concatenate(tokens).tolist()) == b"on the log"
    assert np.concatenate(bits).tolist() == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("name", ["byte", "char", "word", "bpe"])
@pytest.mark.parametrize("window", [None, 50])
def test_the_offset_of_a_passage_points_to_its_bytes(name: str, window: int | None) -> None:
    data = (WORDS * 2 + "QZXJ " * 10 + WORDS * 2 + "ÄÖÜß" * 9 + WORDS).encode()
    tokenizer = learnt(name)
    model = ngram(tokenizer, order=3)
    if window:
        model.__class__ = type("Windowed", (NGram,), {"window": window})
    passages = score(model, tokenizer, data).passages
    assert len(passages) == 5
    for passage in passages:
        raw = data[passage.offset : passage.offset + len(passage.text.encode())]
        if "\ufffd" not in passage.text:  # a passage may begin or end inside a character
            assert raw.decode() == passage.text
    assert passages == sorted(passages, reverse=True)
    assert any("QZXJ" in passage.text or "Ä" in passage.text for passage in passages[:2])


def test_a_passages_figure_is_its_bits_over_its_bytes() -> None:
    tokenizer = Byte()
    bag = Bag.fit(tokens_of(tokenizer, SEEN), BagConfig(), tokenizer.vocab)
    data = b"t" * PASSAGE + b"q" * PASSAGE + b"t" * 7
    worst, *rest = score(bag, tokenizer, data).passages
    assert worst.bits_per_byte == pytest.approx(-bag.logp_V[ord("q")].item() / math.log(2), rel=1e-12)
    assert worst == Passage(worst.bits_per_byte, "q" * PASSAGE, PASSAGE, "text")
    assert sorted((p.offset, p.text) for p in rest) == [(0, "t" * PASSAGE), (2 * PASSAGE, "t" * 7)]


def test_the_unknown_rate_counts_the_words_that_were_spelt(tmp_path: Path) -> None:
    tokenizer = learnt("word", "the cat sat\n" * 2)
    model = ngram(tokenizer, "the cat sat\n" * 2, order=2)
    assert score(model, tokenizer, "the cat sat\n").unknown_rate == 0
    one = score(model, tokenizer, "the gnu sat\n")
    assert one.unknown_words == 1
    assert one.unknown_rate == 1 / one.words
    split = score(model, tokenizer, open_text(documents(tmp_path, ["the", "the", "the"])))
    assert (split.unknown_words, split.words) == (0, 3)  # 'thethethe' would be one unknown word
    assert score(ngram(Byte(), order=2), Byte(), "gnu").unknown_rate is None


def test_a_total_weighs_rates_by_words_and_keeps_rows() -> None:
    rows = [Score("a", 10.0, 4, 100, 0.5, words=1, unknown_words=1), Score("b", 30.0, 6, 2, 0.25, words=3)]
    both = total("all", rows)
    assert (both.bits, both.bytes, both.tokens, both.seconds) == (40.0, 10, 102, 0.75)
    assert both.bits_per_byte == 4
    assert both.unknown_rate == 1 / 4
    assert [row.name for row in both.rows] == ["a", "b"]
    assert total("one", rows[:1]).rows == []


def test_impossible_tokens_make_the_bits_infinite_and_null_in_json() -> None:
    tokenizer = Byte()
    bag = Bag.fit(tokens_of(tokenizer, "aab"), BagConfig(k=0), tokenizer.vocab)
    found = score(bag, tokenizer, "abcab")
    assert (found.bits, found.bits_per_byte, found.perplexity, found.impossible) == (math.inf,) * 3 + (1,)
    record = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert [record[key] for key in ("bits", "bits_per_byte", "bits_per_token", "perplexity")] == [None] * 4
    assert record["passages"][0]["bits_per_byte"] is None
    assert (record["impossible"], record["tokens"], record["bytes"]) == (1, 5, 5)


def test_html_is_escaped() -> None:
    shown = Score("<script>", 1.0, 1, 1, 0, label="<b>")._repr_html_()
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown
    assert "&lt;b&gt;" in shown


def test_lost_information_is_labelled(tmp_path: Path) -> None:
    tokenizer = Byte()
    run = Run(ngram(tokenizer, order=2), tokenizer)
    file = tmp_path / "a.txt"
    file.write_bytes(b"the cat \xff")
    assert api.evaluate(run, file).label == ""
    replaced = api.evaluate(run, file, errors="replace")
    assert (replaced.label, replaced.bytes) == (NOT_COMPARABLE, 8 + len("\ufffd".encode()))
    lowered = Run(run.model, tokenizer, {"preprocess": ["lower"]})
    assert api.evaluate(lowered, "THE CAT").label == NOT_COMPARABLE
    assert api.evaluate(lowered, "THE CAT").bits == api.evaluate(run, "the cat").bits
    assert [row.label for row in api.evaluate(lowered, [file, file]).rows] == [NOT_COMPARABLE] * 2
