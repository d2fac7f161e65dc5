"""The token-by-token view: what it says adds up to what eval says."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch

from examples import recurrent
from octavo.inspection.surprisal import CANDIDATES, surprises
from octavo.models import Bag, Mix, NGram
from octavo.models.bag import BagConfig
from octavo.models.mix import MixConfig
from octavo.models.ngram import NGramConfig
from octavo.models.recurrent import GRU
from octavo.scoring.bits_per_byte import score_text
from octavo.text import Byte, text_in_memory
from octavo.text.token_display import display_token

TEXT = "abcabcabdxyz"


def fit(text: str = TEXT, **config: Any) -> NGram:
    x_N = torch.tensor([Byte().begin, *text.encode()], dtype=torch.int32)
    return NGram.fit(x_N, NGramConfig(**config), Byte().vocab, Byte().newline)


def bag(k: float = 1) -> Bag:
    return Bag.fit(torch.tensor([Byte().begin, *TEXT.encode()]), BagConfig(k=k), Byte().vocab)


@pytest.mark.parametrize("model", [bag(), fit(order=3), fit(order=1), Mix(MixConfig(), [bag(), fit(order=4)])])
def test_the_bits_sum_to_what_eval_charges(model: Any) -> None:
    found = surprises(model, Byte(), b"abd abc?")
    assert sum(one.bits for one in found) == pytest.approx(
        score_text(model, Byte(), text_in_memory("abd abc?"), "").bits, rel=1e-12
    )
    assert "".join(one.token for one in found) == "abd␣abc?"


def test_the_context_used_is_that_of_the_longest_ngram_seen() -> None:
    found = surprises(fit(order=3), Byte(), b"abdab?c")
    # a: 'begin a' was seen, one token of context. b: 'begin a b', two. d: 'a b d', two. a: never after d. b: 'a b'
    # was seen and 'd a b' was not. ? was never seen, nor was anything after it.
    assert [one.context for one in found] == [1, 2, 2, 0, 1, 0, 0]


def test_only_ngrams_have_a_context_used() -> None:
    assert [one.context for one in surprises(bag(), Byte(), b"ab")] == [None, None]


def test_rank_and_candidates_are_those_of_the_distribution() -> None:
    first = surprises(bag(), Byte(), b"d")[0]
    assert first.rank == 4  # a, b and c are more frequent
    assert [token for token, _ in first.candidates] == ["a", "b", "c"]
    assert first.candidates[0][1] == pytest.approx((3 + 1) / (12 + 256))
    assert len(first.candidates) == CANDIDATES


def test_what_is_impossible_is_no_candidate() -> None:
    found = surprises(fit("ab", order=2, estimator="mle"), Byte(), b"b")[0]
    assert found.bits == math.inf
    assert [token for token, _ in found.candidates] == ["a"]


@pytest.mark.parametrize(
    ("byte", "text"), [(b"\n", "⏎"), (b" ", "␣"), (b"\r", "\\r"), (b"\x1b", "\\x1b"), (b"\xff", "\\xff"), (b"a", "a")]
)
def test_a_token_is_shown_on_one_line_and_never_acts_on_the_terminal(byte: bytes, text: str) -> None:
    assert display_token(Byte(), byte[0]) == text


@pytest.mark.gpu
def test_a_model_on_a_gpu_tells_the_same() -> None:
    model = recurrent(GRU, vocab=Byte().vocab)
    here = surprises(model, Byte(), b"abd abc?")
    there = surprises(copy.deepcopy(model).cuda(), Byte(), b"abd abc?")
    assert [one.bits for one in there] == pytest.approx([one.bits for one in here], rel=1e-9)
    assert [one.rank for one in there] == [one.rank for one in here]


def test_the_empty_text_has_no_tokens() -> None:
    assert surprises(bag(), Byte(), b"") == []
