"""The neural n-gram equals Bengio's equations, computed here by hand and by PyTorch's layers."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from examples import VOCAB, neural_ngram
from octavo.core import seeded_generator
from octavo.costs import cost_of
from octavo.errors import UserError
from octavo.models.cost.parts import Shape
from octavo.models.nnlm import NNLM, NNLMConfig

EXACT = {"rtol": 1e-12, "atol": 1e-12}


def test_a_trigram_by_hand() -> None:
    """Two tokens and begin, vectors of one number, one hidden unit: h = tanh(2 E[a] + 3 E[b] + 0.5)."""
    model = NNLM(NNLMConfig(order=3, width=1, hidden=1, direct=True), 3).double()
    with torch.no_grad():
        model.embedding_VD.copy_(torch.tensor([[0.1], [-0.2], [0.3]]))
        model.hidden_HC.copy_(torch.tensor([[2.0, 3.0]]))
        model.hidden_bias_H.fill_(0.5)
        model.output_VH.copy_(torch.tensor([[1.0], [-1.0], [0.0]]))
        model.output_bias_V.copy_(torch.tensor([0.0, 0.25, -9.0]))
        model.direct_VC.copy_(torch.tensor([[4.0, 0.0], [0.0, 5.0], [0.0, 0.0]]))  # type: ignore[union-attr]
    cases = {(2, 2): (0.3, 0.3), (2, 0): (0.3, 0.1), (0, 1): (0.1, -0.2)}  # the two tokens before, begin being 2
    logits_T3 = model(torch.tensor([[2, 0, 1]]))[0]
    for (a, b), found in zip(cases.values(), logits_T3.tolist(), strict=True):
        h = math.tanh(2 * a + 3 * b + 0.5)
        assert found == pytest.approx([h + 4 * a, -h + 0.25 + 5 * b, -9.0], rel=1e-6)


@pytest.mark.parametrize("direct", [False, True])
def test_it_is_pytorchs_layers_in_value_and_gradient(direct: bool) -> None:
    model = neural_ngram(order=5, direct=direct).requires_grad_()
    hidden, output = nn.Linear(4 * 3, 5).double(), nn.Linear(5, VOCAB).double()
    hidden.weight, hidden.bias, output.weight, output.bias = (
        model.hidden_HC, model.hidden_bias_H, model.output_VH, model.output_bias_V
    )  # fmt: skip
    x_BT = torch.randint(0, VOCAB - 1, (2, 11), generator=seeded_generator(1))
    opened_BT = torch.cat([torch.full((2, 4), VOCAB - 1), x_BT], 1)
    logits = []
    for t in range(4, opened_BT.shape[1] + 1):
        x_BC = model.embedding_VD[opened_BT[:, t - 4 : t]].reshape(2, -1)
        y_BV = output(hidden(x_BC).tanh())
        logits.append(y_BV if model.direct_VC is None else y_BV + x_BC @ model.direct_VC.T)
    expected_BTV, found_BTV = torch.stack(logits, 1), model(model.prepend_begin(x_BT))
    torch.testing.assert_close(found_BTV, expected_BTV, **EXACT)
    weights = list(model.parameters())
    for found, expected in zip(
        *(torch.autograd.grad(one.square().sum(), weights) for one in (found_BTV, expected_BTV)), strict=True
    ):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("order", [2, 4])
def test_nothing_before_its_last_tokens_counts_and_each_of_these_does(order: int) -> None:
    model, field = neural_ngram(order=order), order - 1
    assert model.receptive_field == field
    x_T = torch.randint(0, VOCAB - 1, (1, 12), generator=seeded_generator(1))
    expected_V = model(x_T)[0, -1]
    for back in range(1, 13):
        other_T = x_T.clone()
        other_T[0, -back] = (other_T[0, -back] + 1) % (VOCAB - 1)
        assert torch.equal(model(other_T)[0, -1], expected_V) == (back > field)


def test_how_many_parameters_it_has() -> None:
    V, n, D, H = 257, 9, 64, 512
    expected = V * D + H * (n - 1) * D + H + V * H + V
    model = NNLM(NNLMConfig(order=n, width=D, hidden=H), V)
    assert cost_of(model, Shape()).parameters == sum(p.numel() for p in model.parameters()) == expected
    direct = NNLM(NNLMConfig(order=n, width=D, hidden=H, direct=True), V)
    assert sum(p.numel() for p in direct.parameters()) == expected + V * (n - 1) * D


def test_the_direct_connection_adds_nothing_before_it_is_trained() -> None:
    models = [NNLM(NNLMConfig(order=3, width=4, hidden=5, direct=direct), VOCAB) for direct in (False, True)]
    for model in models:
        model.initialise(seeded_generator(1))
    x_BT = torch.tensor([[1, 2, 3]])
    assert torch.equal(models[0](x_BT), models[1](x_BT))


def test_an_order_that_sees_no_token_is_refused() -> None:
    with pytest.raises(UserError, match="order must be at least 2: order=1"):
        NNLMConfig(order=1)
