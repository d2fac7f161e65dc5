"""Dynamic evaluation: every law, one step against torch.optim, and what learning is good for.

B batch, T time.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from examples import (
    VOCAB,
    attentive,
    convolutional,
    gpt,
    linear_attention,
    linear_recurrent,
    mixed,
    neural_ngram,
    ngram,
    recurrent,
)
from laws import EXACT, LAWS, logp, tokens
from octavo.core import LanguageModel, scan
from octavo.errors import UserError
from octavo.models import parameter_count, spec_of
from octavo.models.dynamic_evaluation import AdaptiveConfig, DynamicEvaluation, adapted
from octavo.models.linear_recurrent import LRU, MinLSTM
from octavo.models.recurrent import GRU, LSTM, RNN
from octavo.scoring.token_costs import token_costs

SEGMENT, RATE = 5, 0.02
LENGTHS = (1, 2, 23)  # four steps of learning; each token costs a copy of the weights
OPTIMIZERS = ("sgd", "rms", "adam")


def learning(base: LanguageModel[Any], **settings: Any) -> DynamicEvaluation:
    return DynamicEvaluation(base, AdaptiveConfig(**{"learning_rate": RATE, "segment": SEGMENT} | settings))


ADAPTIVE = {
    "gru": learning(recurrent(GRU), optimizer="rms"),
    "gru, untied, adam": learning(recurrent(GRU, tied=False, layers=1), optimizer="adam", decay=0.01),
    "lstm": learning(recurrent(LSTM), optimizer="sgd", learning_rate=0.5),
    "rnn, one by one": learning(recurrent(RNN), segment=1),
    "rnn-attention": learning(attentive(), optimizer="rms"),
    "minlstm": learning(linear_recurrent(MinLSTM), optimizer="rms"),
    "lru": learning(linear_recurrent(LRU), optimizer="adam", decay=0.01),
    "nnlm": learning(neural_ngram(direct=True), optimizer="sgd"),
    "conv": learning(convolutional(), optimizer="rms"),
    "gpt": learning(gpt(), optimizer="rms"),
    "gpt, absolute": learning(gpt(positions="learned", norm="layer", bias=True), segment=7, decay=0.1),
    "gpt, linear": learning(gpt(attention="linear"), optimizer="adam"),
    "gated-deltanet": learning(linear_attention("gated-deltanet"), optimizer="sgd"),
    "gpt, long segments": learning(gpt(kv_heads=1), segment=15),  # longer than its context
}
CASES = [pytest.param(model, id=name) for name, model in ADAPTIVE.items()]


@pytest.mark.parametrize("model", CASES)
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_a_network_that_learns_obeys_every_law(
    law: Callable[[LanguageModel[Any], int], None], model: DynamicEvaluation
) -> None:
    for length in LENGTHS:
        law(model, length)


@pytest.mark.parametrize("model", CASES)
def test_fast_paths_learn_the_weights_that_step_learns(model: DynamicEvaluation) -> None:
    x_BT = model.prepend_begin(tokens(model, 2, 44))
    _, by_step = scan(model, model.start(2), x_BT)
    _, at_once = model.absorb(model.start(2), x_BT)
    _, scored = model.token_log_probs(model.start(2), torch.cat([x_BT, x_BT[:, :1]], 1))
    session = model.session(model.start(1))
    for x_1 in x_BT[:1].unbind(1):
        session.step(x_1)
    for state in (at_once, scored):
        torch.testing.assert_close(state.learnt.weights_BP, by_step.learnt.weights_BP, **EXACT)
        assert torch.equal(state.seen_BS, by_step.seen_BS)
    torch.testing.assert_close(session.state.learnt.weights_BP, by_step.learnt.weights_BP[:1], **EXACT)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_each_step_is_that_of_torch_optim(optimizer: str) -> None:
    """By hand: a copy of the network, torch's own optimizer, the gradient cut off between segments."""
    base = recurrent(GRU)
    network = copy.deepcopy(base).requires_grad_(True)
    by_torch: Any = {
        "sgd": lambda w: torch.optim.SGD(w, RATE),
        "rms": lambda w: torch.optim.Adam(w, RATE, betas=(0.0, 0.999)),
        "adam": lambda w: torch.optim.Adam(w, RATE, betas=(0.9, 0.999)),
    }[optimizer](network.parameters())
    x_1T = base.prepend_begin(tokens(base, 1, 4 * SEGMENT))
    state, expected = network.start(1), []
    for at in range(0, x_1T.shape[1] - 1, SEGMENT):
        logits_1SV, state = network.absorb(state, x_1T[:, at : at + SEGMENT])
        y_S = x_1T[0, at + 1 : at + 1 + SEGMENT]
        loss = F.cross_entropy(logits_1SV[0], y_S)
        expected.append(logits_1SV[0].log_softmax(-1).gather(-1, y_S[:, None])[:, 0].detach())
        by_torch.zero_grad()
        loss.backward()
        by_torch.step()
        state = tuple(h_BD.detach() for h_BD in state)
    with torch.no_grad():
        scored_1T = learning(base, optimizer=optimizer).score(x_1T[:, 1:])
    torch.testing.assert_close(scored_1T[0], torch.cat(expected), **EXACT)


def test_the_first_segment_costs_what_the_fixed_model_says_and_the_next_does_not() -> None:
    base = recurrent(GRU)
    x_1T = tokens(base, 1, 3 * SEGMENT)
    fixed_T, adaptive_T = base.score(x_1T)[0], learning(base).score(x_1T)[0]
    assert torch.equal(adaptive_T[:SEGMENT], fixed_T[:SEGMENT])
    assert not torch.isclose(adaptive_T[SEGMENT:], fixed_T[SEGMENT:]).any()


@pytest.mark.parametrize("base", [recurrent(GRU), gpt()], ids=["gru", "gpt"])
def test_a_text_that_repeats_itself_costs_less_than_under_the_fixed_model(base: LanguageModel[Any]) -> None:
    x_1T = tokens(base, 1, 20).repeat(1, 20)
    fixed, adaptive = (-float(model.score(x_1T).sum()) for model in (base, learning(base, optimizer="adam")))
    assert adaptive < 0.8 * fixed


def test_decay_takes_the_weights_back_to_the_trained_ones() -> None:
    base, x_1T = recurrent(GRU), tokens(recurrent(GRU), 1, 3 * SEGMENT)
    trained_P = torch.cat([weight.flatten() for weight in base.parameters()])
    far, near = (
        float((model.absorb(model.start(1), x_1T)[1].learnt.weights_BP[0] - trained_P).norm())
        for model in (learning(base), learning(base, decay=0.5))
    )
    assert 0 < near < 0.7 * far


def test_the_trained_model_stays_as_it_was_whoever_learns() -> None:
    base = recurrent(LSTM)
    before, x_BT = copy.deepcopy(base.state_dict()), tokens(base, 2, 33)
    fixed_BTV = logp(base, x_BT)
    model = learning(base)
    assert not torch.equal(logp(model, x_BT), fixed_BTV)
    session = model.session(model.start(1))
    session.absorb(x_BT[:1])
    assert all(torch.equal(before[name], tensor) for name, tensor in base.state_dict().items())
    assert torch.equal(logp(base, x_BT), fixed_BTV)


def test_directions_that_training_does_not_learn_stay() -> None:
    base = gpt(attention="linear", features="random")
    for name, weight in base.named_parameters():
        weight.requires_grad_("features" not in name)
    model = learning(base)
    _, state = model.absorb(model.start(1), tokens(model, 1, 12))
    assert state.learnt.weights_BP.shape[1] == sum(one.numel() for one in base.parameters() if one.requires_grad)


def test_it_learns_where_the_caller_has_switched_gradients_off() -> None:
    model = ADAPTIVE["gpt"]
    x_1T = tokens(model, 1, 17)
    with torch.no_grad():
        expected_1T = model.score(x_1T)
    with torch.inference_mode():
        torch.testing.assert_close(model.score(x_1T), expected_1T, **EXACT)
        session, x_1N = model.session(model.start(1)), model.prepend_begin(x_1T)
        scored = [
            session.step(x_1).log_softmax(-1)[0, y] for x_1, y in zip(x_1N[:, :-1].unbind(1), x_1T[0], strict=True)
        ]
        torch.testing.assert_close(torch.stack(scored), expected_1T[0], **EXACT)


def test_a_session_reads_several_tokens_in_a_call_as_one_by_one() -> None:
    for model in ADAPTIVE.values():
        x_1T = model.prepend_begin(tokens(model, 1, 33))
        expected_1TV = model.absorb(model.start(1), x_1T)[0]
        with torch.no_grad():
            session = model.session(model.start(1))
            torch.testing.assert_close(session.absorb(x_1T[:, :30]), expected_1TV[:, :30], **EXACT)
            session.rewind(13)
            again_1NV = session.absorb(x_1T[:, 17:31])
        torch.testing.assert_close(again_1NV, expected_1TV[:, 17:31], **EXACT)
        with pytest.raises(UserError, match="only the last"):
            session.rewind(31)


def test_dropout_is_off_whatever_the_trained_model_is_doing() -> None:
    base = recurrent(GRU, dropout=0.5)
    base.train()
    x_1T = tokens(base, 1, 17)
    assert torch.equal(learning(base).score(x_1T), learning(base.eval()).score(x_1T))


def test_each_document_starts_with_the_trained_weights() -> None:
    model = learning(recurrent(GRU))
    x_T = tokens(model, 1, 3 * SEGMENT)[0].int()
    opened_T = torch.cat([torch.tensor([model.begin], dtype=torch.int32), x_T]).numpy()
    (once,), (first, second) = ([bits for _, bits in token_costs(model, [opened_T] * n)] for n in (1, 2))
    assert (first == once).all()
    assert (second == once).all()


def test_a_rate_that_is_too_high_is_refused_with_a_lower_one() -> None:
    model = learning(recurrent(GRU), optimizer="sgd", learning_rate=10.0)
    for weight in model.base.parameters():
        weight.data *= 1e200
    with pytest.raises(UserError, match=r"learning_rate=10 is too high; try --adaptive-learning-rate 1"):
        model.score(tokens(model, 1, 50))


def test_a_trained_network_becomes_adaptive_and_what_cannot_is_refused() -> None:
    base = recurrent(GRU)
    model = adapted(base, AdaptiveConfig(segment=9))
    assert model.adaptive
    assert not base.adaptive
    assert model.receptive_field is None
    assert "adaptive" in model.context_policy
    assert "9 tokens" in model.context_policy
    assert adapted(model) is model
    assert (spec_of(model).name, parameter_count(model)) == ("gru", parameter_count(base))
    with pytest.raises(UserError, match="train it with --adaptive"):
        adapted(ngram(order=3))
    with pytest.raises(UserError, match="one network"):
        adapted(mixed())
    with pytest.raises(UserError, match="single precision"):
        adapted(copy.deepcopy(base).bfloat16())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"learning_rate": 0.0}, "learning_rate must be above 0"),
        ({"segment": 0}, "segment must be at least 1"),
        ({"decay": 1.0}, "decay must be"),
        ({"optimizer": "muon"}, "optimizer must be one of rms, adam, sgd"),
    ],
)
def test_settings_have_limits(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        AdaptiveConfig(**settings)


def claimed(model: LanguageModel[Any], x_T: Tensor) -> float:
    return -float(model.score(x_T[None]).sum()) / math.log(2)


def test_vocabulary_and_begin_are_the_networks() -> None:
    model = learning(gpt())
    assert (model.vocab, model.begin) == (VOCAB, VOCAB - 1)
    assert claimed(model, tokens(model, 1, 9)[0]) > 0
