"""The bag of words against sums done by hand."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch

from octavo.errors import UserError
from octavo.models.bag import Bag, BagConfig

VOCAB, BEGIN = 5, 4
TEXT = torch.tensor([BEGIN, 0, 0, 0, 1, 1, 2, BEGIN, 0, 1])  # 0 four times, 1 three times, 2 once, 3 never


def p(model: Bag) -> list[float]:
    return model.logp_V.exp().tolist()


def test_maximum_likelihood_is_the_relative_frequency() -> None:
    model = Bag.fit(TEXT, BagConfig(k=0), VOCAB)
    assert model.logp_V.tolist() == [math.log(4 / 8), math.log(3 / 8), math.log(1 / 8), -math.inf, -math.inf]


@pytest.mark.parametrize("k", [Fraction(1), Fraction(1, 2), Fraction(7, 3)])
def test_add_k_is_the_textbook_formula(k: Fraction) -> None:
    expected = [(count + k) / (8 + 4 * k) for count in (4, 3, 1, 0)]
    assert sum(expected) == 1
    assert p(Bag.fit(TEXT, BagConfig(k=float(k)), VOCAB)) == pytest.approx([*map(float, expected), 0.0], rel=1e-14)


def test_the_begin_token_is_neither_counted_nor_drawn() -> None:
    model = Bag.fit(TEXT, BagConfig(), VOCAB)
    more_documents = torch.tensor(
        [BEGIN, *(x for token in TEXT[1:].tolist() if token != BEGIN for x in (BEGIN, token))]
    )
    assert p(Bag.fit(more_documents, BagConfig(), VOCAB)) == p(model)
    assert p(model)[BEGIN] == 0


def test_nothing_that_came_before_changes_the_prediction() -> None:
    model = Bag.fit(TEXT, BagConfig(), VOCAB)
    logits_BTV = model(torch.tensor([[BEGIN, 0, 1], [BEGIN, 3, 3]]))
    assert torch.equal(logits_BTV, model.logp_V.expand(2, 3, -1))


@pytest.mark.parametrize("k", [-1.0, -1e-9, math.nan, math.inf])
def test_a_k_that_makes_no_distribution_is_refused(k: float) -> None:
    with pytest.raises(UserError, match=r"k must be at least 0 and at most 1e\+09: k=.*; try --k 1"):
        BagConfig(k=k)


def test_saved_probabilities_that_do_not_sum_to_one_are_refused() -> None:
    model = Bag.fit(TEXT, BagConfig(), VOCAB)
    with pytest.raises(UserError, match="must sum to one"):
        Bag(BagConfig(), VOCAB).load_tensors({"logp_V": model.logp_V + 1e-3})
    with pytest.raises(UserError, match="must sum to one"):
        Bag(BagConfig(), VOCAB).load_tensors({"logp_V": model.logp_V * math.nan})
