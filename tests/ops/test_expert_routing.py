"""Mixtures of experts: routing by hand, and fast forms that agree with the loop over each token's experts."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from octavo.ops.experts import BALANCE_SCALE, Expert, balance, mixed, mixed_by_all, mixed_reference, route

EXACT = {"rtol": 1e-10, "atol": 1e-12}
D = 5


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def layers(count: int) -> list[nn.Linear]:
    made = [nn.Linear(D, D, dtype=torch.float64) for _ in range(count)]
    for seed, layer in enumerate(made):
        layer.weight.data = normal(D, D, seed=seed)
    return made


def learning_mixed(x_ND: Tensor, chosen_NJ: Tensor, weights_NJ: Tensor, experts: Sequence[Expert]) -> Tensor:
    return mixed(x_ND, chosen_NJ, weights_NJ, experts, learning=True)


@pytest.mark.parametrize("form", [mixed, learning_mixed, mixed_by_all])
@pytest.mark.parametrize(("N", "X", "J"), [(1, 1, 1), (1, 4, 2), (7, 3, 1), (13, 5, 3), (9, 3, 3)])
def test_every_form_is_the_loop_over_tokens_in_value_and_gradient(form: object, N: int, X: int, J: int) -> None:
    experts, x_ND = layers(X), normal(N, D, seed=20).requires_grad_()
    logits_NX = normal(N, X, seed=21).requires_grad_()
    chosen_NJ, weights_NJ = route(logits_NX, torch.zeros(X), J)
    expected = mixed_reference(x_ND, chosen_NJ, weights_NJ, experts)
    found = form(x_ND, chosen_NJ, weights_NJ, experts)  # type: ignore[operator]
    torch.testing.assert_close(found, expected, **EXACT)
    learnt = [x_ND, logits_NX, *(p for one in experts for p in one.parameters())]
    drawn_ND = normal(N, D, seed=22)
    gradients = [
        torch.autograd.grad((y * drawn_ND).sum(), learnt, retain_graph=True, allow_unused=True, materialize_grads=True)
        for y in (found, expected)
    ]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, **EXACT)


def test_no_tokens_give_none() -> None:
    none = torch.zeros(0, D).double()
    chosen_NJ, weights_NJ = route(torch.zeros(0, 3).double(), torch.zeros(3), 2)
    assert mixed(none, chosen_NJ, weights_NJ, layers(3)).shape == (0, D)
    assert mixed_reference(none, chosen_NJ, weights_NJ, layers(3)).shape == (0, D)


def test_what_a_token_gets_does_not_depend_on_who_else_is_routed_to_the_bit() -> None:
    experts, x_ND = layers(3), normal(40, D, seed=1)
    chosen_NJ, weights_NJ = route(normal(40, 3, seed=2), torch.zeros(3), 2)
    with torch.no_grad():
        whole = mixed(x_ND, chosen_NJ, weights_NJ, experts)
        for N in (1, 2, 3, 6, 17):
            assert torch.equal(mixed(x_ND[:N], chosen_NJ[:N], weights_NJ[:N], experts), whole[:N])


def test_weights_by_hand() -> None:
    logits_1X = torch.tensor([[3.0, 2.0, 4.0, 0.1]], dtype=torch.float64).log()
    chosen_1J, weights_1J = route(logits_1X, torch.zeros(4), 2)
    assert chosen_1J.tolist() == [[2, 0]]
    torch.testing.assert_close(weights_1J, torch.tensor([[4 / 7, 3 / 7]], dtype=torch.float64))
    _, alone_11 = route(logits_1X, torch.zeros(4), 1)
    torch.testing.assert_close(alone_11, logits_1X.softmax(-1)[:, 2:3])


def test_a_bias_decides_who_is_chosen_and_not_what_it_counts() -> None:
    logits_1X = torch.tensor([[1.0, 0.0, -1.0]]).double()
    chosen_1J, weights_1J = route(logits_1X, torch.tensor([0.0, 0.0, 9.0]), 2)
    assert chosen_1J.tolist() == [[2, 0]]
    torch.testing.assert_close(weights_1J, logits_1X[:, [2, 0]].softmax(-1))


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_the_bias_s_gradient_is_the_excess_of_each_load_whatever_the_loss(scale: float) -> None:
    chosen_NJ = torch.tensor([[0, 1], [0, 2], [0, 1]])
    weights_NJ, bias_X = normal(3, 2, seed=3).requires_grad_(), torch.zeros(4).double().requires_grad_()
    loss = scale * balance(weights_NJ, bias_X, chosen_NJ).square().sum()
    by_weights, by_bias = torch.autograd.grad(loss, [weights_NJ, bias_X])
    torch.testing.assert_close(by_weights, 2 * scale * weights_NJ)
    excess = torch.tensor([3 / 6, 2 / 6, 1 / 6, 0], dtype=torch.float64) - 1 / 4
    torch.testing.assert_close(by_bias, BALANCE_SCALE * excess, **EXACT)
