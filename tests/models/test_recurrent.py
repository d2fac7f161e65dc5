"""Recurrent layers against PyTorch's own, against autograd and against each other.

T time, B batch, I inputs, D hidden units, G = gates × D.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lstm_by_hand import lstm_layer
from octavo.core import seeded_generator
from octavo.costs import Shape, cost_of
from octavo.errors import UserError
from octavo.models.recurrent import GRU, LSTM, RNN, Recurrent, RecurrentConfig
from octavo.ops.backprop_through_time import BY_HAND, tanh_
from octavo.ops.recurrent import GATES, Cell, Path, Weights, choose, layer
from octavo.ops.tracing import trace

B, I, D, VOCAB = 3, 4, 5, 11
CELLS: tuple[Cell, ...] = ("rnn", "gru", "lstm")
MODELS: dict[Cell, type[Recurrent]] = {"rnn": RNN, "gru": GRU, "lstm": LSTM}
PYTORCH: dict[Cell, Any] = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
EXACT = {"rtol": 1e-10, "atol": 1e-12}
FAST: list[tuple[Cell, Path]] = [*((cell, "fused") for cell in CELLS), ("rnn", "by_hand"), ("gru", "by_hand")]


def leaf(*shape: int, seed: int, device: str = "cpu") -> Tensor:
    return (
        (torch.randn(*shape, dtype=torch.float64, generator=seeded_generator(seed)) * 0.5).to(device).requires_grad_()
    )


def case(cell: Cell, length: int, device: str = "cpu", width: int = D) -> tuple[Tensor, tuple[Tensor, ...], Weights]:
    """Random inputs, a start that is not zero, and weights."""
    G = GATES[cell] * width
    shapes = ((G, I), (G, width), (G,), (G,))
    weights = Weights(*(leaf(*shape, seed=i, device=device) for i, shape in enumerate(shapes)))
    start = tuple(leaf(B, width, seed=8 + i, device=device) for i in range(2 if cell == "lstm" else 1))
    return leaf(length, B, I, seed=7, device=device), start, weights


def states(cell: Cell, state: Any) -> tuple[Tensor, ...]:
    return state if cell == "lstm" else (state,)


def values_and_gradients(cell: Cell, path: Path, x: Tensor, start: tuple[Tensor, ...], w: Weights) -> list[Tensor]:
    """All that comes out, then the gradients of all that went in, from a loss of every output and the last state."""
    h_TBD, last = layer(cell, x, start if cell == "lstm" else start[0], w, path)
    out = (h_TBD, *states(cell, last))
    weight = torch.linspace(-1, 1, h_TBD.numel(), dtype=h_TBD.dtype, device=x.device).view_as(h_TBD)
    loss = (h_TBD * weight).sum() + sum((1 + i) * part.sin().sum() for i, part in enumerate(out[1:]))
    return [*out, *torch.autograd.grad(loss, [x, *start, *w])]


@pytest.mark.parametrize("length", [1, 2, 13])
@pytest.mark.parametrize(("cell", "path"), FAST)
def test_every_path_equals_the_plain_steps_in_value_and_gradient(cell: Cell, path: Path, length: int) -> None:
    x, start, w = case(cell, length)
    plain = values_and_gradients(cell, "plain", x, start, w)
    for ours, expected in zip(values_and_gradients(cell, path, x, start, w), plain, strict=True):
        torch.testing.assert_close(ours, expected, **EXACT)


@pytest.mark.parametrize("length", [1, 2, 13])
def test_the_lstm_that_costs_are_counted_with_equals_the_plain_steps(length: int) -> None:
    x, start, w = case("lstm", length)
    h_TBD, (h_BD, c_BD) = lstm_layer(x, (start[0], start[1]), w)
    plain_TBD, (plain_BD, plain_c_BD) = layer("lstm", x, start, w, "plain")
    leaves = [x, *start, *w]
    ours, theirs = (
        torch.autograd.grad((h.cos().sum() + c.sin().sum()), leaves)
        for h, c in ((h_TBD, c_BD), (plain_TBD, plain_c_BD))
    )
    for one, other in zip((h_TBD, h_BD, c_BD, *ours), (plain_TBD, plain_BD, plain_c_BD, *theirs), strict=True):
        torch.testing.assert_close(one, other, **EXACT)


@pytest.mark.parametrize("cell", BY_HAND)
def test_the_gradient_by_hand_is_that_of_finite_differences(cell: Cell) -> None:
    x, start, w = case(cell, 3, width=2)
    assert torch.autograd.gradcheck(BY_HAND[cell].apply, (None, x, *start, *w))


@pytest.mark.parametrize("cell", CELLS)
def test_going_back_twice_gives_the_same_gradient(cell: Cell) -> None:
    x, start, w = case(cell, 4)
    h_TBD, _ = layer(cell, x, start if cell == "lstm" else start[0], w)
    first, second = (torch.autograd.grad(h_TBD.sum(), [x, *start, *w], retain_graph=True) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize(("cell", "path"), [*FAST, *((cell, "plain") for cell in CELLS)])
def test_two_layers_equal_pytorchs_module_with_the_same_weights(cell: Cell, path: Path) -> None:
    module = PYTORCH[cell](I, D, 2).double()
    x, start, _ = case(cell, 7)
    start = tuple(torch.stack([part, 0.3 * part]).detach().requires_grad_() for part in start)  # for two layers
    expected, last = module(x, start if cell == "lstm" else start[0])
    y, lasts = x, []
    for i in range(2):
        weights = Weights(*(getattr(module, f"{n}_l{i}") for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")))
        before = tuple(part[i] for part in start)
        y, after = layer(cell, y, before if cell == "lstm" else before[0], weights, path)
        lasts.append(states(cell, after))
    torch.testing.assert_close(y, expected, **EXACT)
    for ours, theirs in zip(zip(*lasts, strict=True), states(cell, last), strict=True):
        torch.testing.assert_close(torch.stack(ours), theirs, **EXACT)
    inputs = [x, *start, *module.parameters()]
    for ours, theirs in zip(
        torch.autograd.grad(y.square().sum(), inputs), torch.autograd.grad(expected.square().sum(), inputs), strict=True
    ):
        torch.testing.assert_close(ours, theirs, **EXACT)


@pytest.mark.parametrize("cell", BY_HAND)
def test_low_precision_is_close_and_touches_only_products(cell: Cell) -> None:
    x, start, w = case(cell, 9, width=32)
    x, start, w = x.float(), tuple(part.float() for part in start), Weights(*(tensor.float() * 0.3 for tensor in w))
    full = values_and_gradients(cell, "by_hand", x, start, w)
    with torch.autocast("cpu", torch.bfloat16):
        low = values_and_gradients(cell, "by_hand", x, start, w)
    for ours, expected in zip(low, full, strict=True):
        assert ours.dtype == torch.float32
        off = float(((ours - expected).norm() / expected.norm()).detach())
        assert 0 < off < 0.02  # bfloat16 keeps 8 bits: 0.4 % a number; and it must really have been used


@pytest.mark.parametrize("cell", CELLS)
def test_every_value_of_a_step_can_be_seen(cell: Cell) -> None:
    x, start, w = case(cell, 3)
    with trace() as seen:
        h_TBD, _ = layer(cell, x, start if cell == "lstm" else start[0], w)
    names = {
        "rnn": {"hidden"},
        "gru": {"reset", "update", "candidate", "hidden"},
        "lstm": {"input", "forget", "candidate", "output", "cell", "hidden"},
    }
    assert set(seen) == names[cell]
    torch.testing.assert_close(torch.stack(seen["hidden"]), h_TBD)


def test_the_path_follows_what_is_asked_for() -> None:
    x = torch.zeros(1, 1, 1)
    assert choose("gru", x) == "by_hand"
    with torch.no_grad():
        assert choose("gru", x) == "fused"
    with trace():
        assert choose("gru", x) == "plain"


def test_tanh_by_a_sigmoid_is_tanh() -> None:
    x = torch.linspace(-30, 30, 10_001, dtype=torch.float64)
    torch.testing.assert_close(tanh_(x.clone()), x.tanh(), rtol=0, atol=4e-16)


def model(cell: Cell, **config: Any) -> Recurrent:
    made = MODELS[cell](RecurrentConfig(**{"width": 8, "layers": 2} | config), VOCAB)
    made.initialise(seeded_generator(3))
    return made


@pytest.mark.parametrize("cell", CELLS)
def test_a_model_without_gradients_answers_as_with_them(cell: Cell) -> None:
    one = model(cell).double()
    x_BT = torch.randint(0, VOCAB, (2, 17), generator=seeded_generator(1))
    with torch.no_grad():
        quick = one(x_BT)
    torch.testing.assert_close(quick, one(x_BT), **EXACT)


@pytest.mark.parametrize("cell", CELLS)
def test_every_weight_of_a_model_gets_a_gradient(cell: Cell) -> None:
    one = model(cell, tied=False)
    one(torch.arange(VOCAB)[None]).log_softmax(-1)[0, :-1].diagonal(1).sum().backward()
    assert all(p.grad is not None and bool(p.grad.abs().sum() > 0) for p in one.parameters())


@pytest.mark.parametrize("cell", CELLS)
def test_recurrent_matrices_start_orthogonal_gate_by_gate(cell: Cell) -> None:
    for one in model(cell, width=32).layers:
        for gate in one.weight_hh.detach().chunk(GATES[cell]):
            torch.testing.assert_close(gate @ gate.T, torch.eye(32), rtol=0, atol=1e-5)


@pytest.mark.parametrize(("init", "variance"), [("xavier", 2 / (256 + 256)), ("he", 2 / 256)])
def test_xavier_and_he_have_their_variances(init: str, variance: float) -> None:
    [one] = model("gru", width=256, layers=1, init=init).layers
    for weight in (one.weight_ih, one.weight_hh):
        for gate in weight.detach().chunk(3):
            assert math.isclose(float(gate.var()), variance, rel_tol=0.03)


def test_the_forget_gate_starts_open_and_the_other_biases_at_zero() -> None:
    [one] = model("lstm", layers=1, forget_bias=1.5).layers
    i, f, g, o = (one.bias_ih + one.bias_hh).detach().chunk(4)
    assert bool((f == 1.5).all())
    assert not torch.cat([i, g, o]).any()


@pytest.mark.parametrize("cell", CELLS)
def test_the_same_seed_gives_the_same_weights_and_another_seed_others(cell: Cell) -> None:
    first, again, other = (MODELS[cell](RecurrentConfig(width=8), VOCAB) for _ in range(3))
    for one, seed in ((first, 1), (again, 1), (other, 2)):
        torch.manual_seed(torch.seed() % 1000)  # the global generator must not matter
        one.initialise(seeded_generator(seed))
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    assert not torch.equal(first.embedding_VD, other.embedding_VD)


def test_dropout_works_only_while_training() -> None:
    one = model("gru", dropout=0.5)
    x_BT = torch.zeros(1, 6, dtype=torch.long)
    assert not torch.equal(one.train()(x_BT), one(x_BT))
    assert torch.equal(one.eval()(x_BT), one(x_BT))


def test_flops_are_two_for_each_weight_of_a_product() -> None:
    def flops(name: str, **settings: Any) -> int:
        return cost_of(model(name, **settings), Shape()).total("forward")

    assert flops("gru", layers=1) == 2 * (3 * 8 * 8 + 3 * 8 * 8 + VOCAB * 8)
    assert flops("lstm", tied=False) == 2 * (2 * 2 * 4 * 8 * 8 + VOCAB * 8)


@pytest.mark.parametrize(
    ("config", "rule"),
    [
        ({"width": 0}, "width must be at least 1: width=0"),
        ({"layers": 0}, "layers must be at least 1: layers=0"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1: dropout=1.0"),
        ({"dropout": -0.1}, "dropout must be at least 0"),
        ({"init": "zeros"}, "init must be one of orthogonal, xavier, he"),
        ({"forget_bias": math.inf}, "forget_bias must be at least -1000 and at most 1000"),
    ],
)
def test_wrong_configs_are_refused(config: dict[str, Any], rule: str) -> None:
    with pytest.raises(UserError, match=rule):
        RecurrentConfig(**config)


@pytest.mark.gpu
@pytest.mark.parametrize("cell", CELLS)
def test_a_gpu_gives_what_the_plain_steps_give(cell: Cell) -> None:
    x, start, w = case(cell, 13, "cuda")
    assert choose(cell, x) == "fused"
    plain = values_and_gradients(cell, "plain", x, start, w)
    for ours, expected in zip(values_and_gradients(cell, "auto", x, start, w), plain, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-8, atol=1e-10)
