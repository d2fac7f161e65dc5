"""A recurrent network with attention: its equations by hand, its memory's bound. B batch, T time, D width."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from octavo.core import scan, seeded_generator
from octavo.errors import UserError
from octavo.models.rnn_attention import RNNAttention, RNNAttentionConfig
from octavo.ops.tracing import trace

VOCAB = 9


def model(**config: Any) -> RNNAttention:
    made = RNNAttention(RNNAttentionConfig(**{"width": 4} | config), VOCAB)
    made.initialise(seeded_generator(5))
    return made.double()


@torch.no_grad()
def by_hand(one: RNNAttention, x: list[int]) -> torch.Tensor:
    """h_TD of three tokens by the equations, number by number."""
    w, D, score = one.recurrent.weights, one.config.width, one.config.score

    def rnn(token: int, h: torch.Tensor) -> torch.Tensor:
        return torch.tanh(w.ih_GI @ (math.sqrt(D) * one.embedding_VD[token]) + w.bias_ih_G + w.hh_GD @ h + w.bias_hh_G)

    def e(s: torch.Tensor, h: torch.Tensor) -> float:
        if score == "additive":
            return float(one.score_D @ torch.tanh(one.query_DD @ s + one.key_DD @ h))
        return float(s @ h) / (math.sqrt(D) if score == "scaled" else 1)

    def scaled(h: torch.Tensor) -> torch.Tensor:
        return h / math.sqrt(float(h.square().mean()) + torch.finfo(h.dtype).eps) if one.config.norm else h

    h1 = scaled(rnn(x[0], torch.zeros(D, dtype=torch.float64)))
    s2 = rnn(x[1], h1)
    h2 = scaled(s2 + h1)  # one state to look at has all the weight
    s3 = rnn(x[2], h2)
    e1, e2 = math.exp(e(s3, h1)), math.exp(e(s3, h2))
    h3 = scaled(s3 + (e1 * h1 + e2 * h2) / (e1 + e2))
    return torch.stack([h1, h2, h3])


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("score", ["dot", "scaled", "additive"])
@torch.no_grad()
def test_three_steps_are_those_of_the_equations(score: str, norm: bool) -> None:
    one, x = model(score=score, norm=norm), [2, 7, 1]
    logits, (h_BD, memory) = one.absorb(one.start(1), torch.tensor([x]))
    expected = by_hand(one, x)
    torch.testing.assert_close(memory[0], expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(h_BD[0], expected[-1], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(logits[0], expected @ one.embedding_VD.T + one.output_bias_V, rtol=1e-12, atol=1e-12)


def test_the_first_state_looks_at_nothing() -> None:
    one = model(norm=False)
    with trace() as seen:
        _, (h_BD, _) = one.step(one.start(2), torch.tensor([1, 2]))
    assert seen["attention"][0].shape == (2, 0)
    torch.testing.assert_close(h_BD, seen["hidden"][0], rtol=0, atol=0)


@pytest.mark.parametrize("score", ["dot", "scaled", "additive"])
def test_weights_are_shown_and_sum_to_one(score: str) -> None:
    one = model(score=score, memory=3)
    with trace() as seen:
        one(torch.randint(0, VOCAB, (2, 7), generator=seeded_generator(1)))
    assert [w.shape[1] for w in seen["attention"]] == [0, 1, 2, 3, 3, 3, 3]
    for w_BM in seen["attention"][1:]:
        torch.testing.assert_close(w_BM.sum(1), torch.ones(2, dtype=torch.float64))


@torch.no_grad()
def test_what_left_the_memory_is_not_attended_to() -> None:
    one = model(memory=2)
    _, (h_BD, memory) = one.absorb(one.start(1), torch.tensor([[1, 2, 3, 4]]))
    assert memory.shape == (1, 2, 4)
    _, (_, all_of_it) = model(memory=0).absorb(one.start(1), torch.tensor([[1, 2, 3, 4]]))
    assert all_of_it.shape == (1, 4, 4)
    assert torch.equal(memory[:, -1], h_BD)
    torch.testing.assert_close(all_of_it[:, :3], scan_memory(one, [1, 2, 3]), rtol=1e-12, atol=1e-12)
    assert not torch.allclose(all_of_it[:, 3], memory[:, -1])  # the fourth state is the first to miss one


def scan_memory(one: RNNAttention, x: list[int]) -> torch.Tensor:
    """Every state, gathered step by step."""
    state, found = one.start(1), []
    for token in x:
        _, state = one.step(state, torch.tensor([token]))
        found.append(state[0])
    return torch.stack(found, 1)


@pytest.mark.parametrize("cell", ["rnn", "gru"])
@torch.no_grad()
def test_states_grow_step_by_step_unless_they_are_scaled(cell: str) -> None:
    x_BT = torch.randint(0, VOCAB, (1, 60), generator=seeded_generator(1))
    length = {}
    for norm in (False, True):
        one = model(cell=cell, score="dot", norm=norm, memory=0)
        _, (_, memory) = one.absorb(one.start(1), x_BT)
        length[norm] = memory[0].square().mean(1).sqrt()
    assert float(length[False][-1]) > 10 * float(length[False][0])
    torch.testing.assert_close(length[True], torch.ones_like(length[True]), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("cell", ["rnn", "gru"])
@pytest.mark.parametrize("score", ["dot", "scaled", "additive"])
def test_every_weight_gets_the_gradient_of_the_steps(cell: str, score: str) -> None:
    one = model(cell=cell, score=score, memory=3, tied=False)
    x_BT = torch.randint(0, VOCAB, (2, 7), generator=seeded_generator(1))
    at_once = torch.autograd.grad(one(x_BT).square().sum(), list(one.parameters()))
    by_step = torch.autograd.grad(scan(one, one.start(2), x_BT)[0].square().sum(), list(one.parameters()))
    for ours, expected in zip(at_once, by_step, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-10, atol=1e-10)
        assert bool(ours.abs().sum() > 0)


@pytest.mark.parametrize(
    ("config", "rule"),
    [
        ({"cell": "lstm"}, "cell must be one of rnn, gru: cell='lstm'"),
        ({"width": 0}, "width must be at least 1"),
        ({"dropout": 1.5}, "dropout must be at least 0 and below 1"),
        ({"score": "cosine"}, "score must be one of dot, scaled, additive"),
        ({"memory": -1}, "memory must be at least 0: memory=-1"),
        ({"init": "ones"}, "init must be one of"),
    ],
)
def test_wrong_configs_are_refused(config: dict[str, Any], rule: str) -> None:
    with pytest.raises(UserError, match=rule):
        RNNAttentionConfig(**config)
