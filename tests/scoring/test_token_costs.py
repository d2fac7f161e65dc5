"""Parallel scoring: which models are read in streams, and that it makes no difference (`laws.py`: for every model)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from examples import VOCAB, gpt, mixed, ngram, recurrent, text
from octavo.core import LanguageModel
from octavo.errors import UserError
from octavo.models import GRU
from octavo.scoring import token_costs as module
from octavo.scoring.bits_per_byte import Score
from octavo.scoring.token_costs import StreamShape, stream_shape, token_costs
from tiny_models import Recurrent

BEGIN = VOCAB - 1


def bits_of(model: LanguageModel[Any], tokens: NDArray[Any], shape: StreamShape | None = None) -> NDArray[Any]:
    """The bits of every token but the begin tokens."""
    scored = list(token_costs(model, [tokens], shape))
    x_N, bits_N = (np.concatenate(parts) for parts in zip(*scored, strict=True))
    found: NDArray[Any] = bits_N[x_N != model.begin]
    return found


def read_through(model: LanguageModel[Any], tokens: NDArray[Any]) -> NDArray[Any]:
    """The same, each document by one call."""
    documents = np.split(tokens, np.flatnonzero(tokens == model.begin))
    rows = [torch.from_numpy(x[1:].astype(np.int64))[None] for x in documents if len(x) > 1]
    found: NDArray[Any] = np.concatenate([-model.score(x)[0].double().numpy() / math.log(2) for x in rows])
    return found


@pytest.mark.parametrize("order", [1, 2, 5])
def test_streams_cost_an_ngram_the_same_to_the_last_bit(order: int) -> None:
    model, tokens = ngram(order=order), text(5000, seed=5).numpy()
    assert stream_shape(model) == StreamShape(2048, 2048, max(1, order - 1))
    assert np.array_equal(bits_of(model, tokens), read_through(model, tokens))
    for length in (order, order + 3, 100):
        shape = StreamShape(length, length, max(1, order - 1))
        assert np.array_equal(bits_of(model, tokens, shape), read_through(model, tokens))


def test_windows_that_restart_are_scored_side_by_side() -> None:
    model, tokens = gpt(positions="learned", stride=4), text(400, seed=5).numpy()
    assert stream_shape(model) == StreamShape(11, 4, 8)  # each window is 11 tokens, read from its first
    np.testing.assert_allclose(bits_of(model, tokens), read_through(model, tokens), rtol=1e-12)


def test_layers_add_up_to_the_receptive_field(monkeypatch: pytest.MonkeyPatch) -> None:
    model = gpt(layers=3, attention="local")
    assert model.receptive_field == 3 * (4 - 1) + 1
    monkeypatch.setattr(type(model), "max_scored_tokens", 1 << 15)
    assert stream_shape(model) == StreamShape(2048, 2048, 10)
    tokens = text(5000, seed=6).numpy()
    np.testing.assert_allclose(bits_of(model, tokens), read_through(model, tokens), rtol=1e-12)
    too_few = bits_of(model, tokens, StreamShape(20, 20, 7))
    assert np.abs(too_few - read_through(model, tokens)).max() > 1e-6  # or the field would be smaller


@pytest.mark.parametrize(
    "model",
    [recurrent(GRU), gpt(attention="linear"), mixed(ngram(order=4), recurrent(GRU)), mixed(gpt(stride=3), ngram())],
    ids=["gru", "linear", "mix with gru", "mix with windows"],
)
def test_what_may_depend_on_the_whole_past_is_read_from_the_first_token(model: LanguageModel[Any]) -> None:
    assert stream_shape(model) is None


def test_a_long_document_among_short_ones_is_read_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_DOCUMENT_TOKENS", 50)
    monkeypatch.setattr(Recurrent, "max_scored_tokens", 16)
    model = Recurrent(VOCAB)
    documents = [text(n, seed=n).numpy() for n in (3, 200, 1, 49, 50, 51, 7, 300)]
    tokens = np.concatenate(documents)
    for blocks in ([tokens], np.array_split(tokens, 11), documents, [tokens[1:]]):  # without begin too
        scored = list(token_costs(model, blocks))
        x_N, bits_N = (np.concatenate(parts) for parts in zip(*scored, strict=True))
        assert np.array_equal(x_N, tokens[tokens != BEGIN])
        np.testing.assert_allclose(bits_N, read_through(model, tokens), rtol=1e-12)


def test_a_text_without_tokens_costs_nothing() -> None:
    for model in (ngram(), recurrent(GRU), gpt(positions="learned")):
        for blocks in ([], [np.zeros(0, np.int32)], [np.array([BEGIN], np.int32)], [np.array([BEGIN] * 3, np.int32)]):
            assert sum(float(bits.sum()) for _, bits in token_costs(model, blocks)) == 0


class Wrong(Recurrent):
    """Gives tokens a fixed log-probability, whatever they are."""

    logp = 0.0

    def token_log_probs(self, state: Any, x_BT: Tensor) -> tuple[Tensor, Any]:
        logp_BT, state = super().token_log_probs(state, x_BT)
        return torch.full_like(logp_BT, self.logp), state


@pytest.mark.parametrize("logp", [math.nan, math.inf, 0.5])
def test_a_cost_that_is_no_cost_is_refused_for_every_model(logp: float) -> None:
    model = Wrong(VOCAB)
    model.logp = logp
    with pytest.raises(UserError, match="a token must cost at least 0 bits"):
        bits_of(model, text(50).numpy())


def test_an_impossible_token_costs_infinitely_many_bits_and_rounding_costs_nothing() -> None:
    model = Wrong(VOCAB)
    model.logp = -math.inf
    assert np.isposinf(bits_of(model, text(50).numpy())).all()
    model.logp = 1e-9
    assert not bits_of(model, text(50).numpy()).any()


@pytest.mark.parametrize("bits", [math.nan, -1.0, -math.inf])
def test_no_score_is_below_zero_or_not_a_number(bits: float) -> None:
    with pytest.raises(UserError, match="must be 0 or more"):
        Score("a text", bits, 10, 10, 0.0)
