"""Causal convolutions equal PyTorch's own, padded on the left, in value and gradient, for every dilation."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from examples import VOCAB, convolutional
from octavo.core import seeded_generator, tensors_of
from octavo.errors import UserError
from octavo.inspection.views import token_rows
from octavo.models import MODELS
from octavo.models.conv import Conv, ConvConfig, seen_tokens
from octavo.ops.convolution import depthwise_convolution, windows

EXACT = {"rtol": 1e-10, "atol": 1e-11}
SETTINGS: list[dict[str, Any]] = [
    {}, {"kernel": 2, "layers": 4, "cycle": 3}, {"dilation": 1, "kernel": 5, "layers": 2}, {"dilation": 3},
    {"gate": "linear", "tied": False},
]  # fmt: skip


def random(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=seeded_generator(seed), dtype=torch.float64)


def test_windows_by_hand() -> None:
    x_1S1 = torch.arange(1.0, 8.0).view(1, 7, 1)
    assert windows(x_1S1, 3, 2)[0].tolist() == [[1, 3, 5], [2, 4, 6], [3, 5, 7]]
    assert windows(x_1S1, 2)[0].tolist() == [[1, 2], [2, 3], [3, 4], [4, 5], [5, 6], [6, 7]]


def test_a_depthwise_convolution_by_hand() -> None:
    x_1S1, kernel_21 = torch.tensor([[[1.0], [2.0], [5.0]]]), torch.tensor([[10.0], [1.0]])
    assert depthwise_convolution(x_1S1, kernel_21, torch.tensor([0.5])).flatten().tolist() == [12.5, 25.5]


@pytest.mark.parametrize("dilation", [1, 2, 5])
@pytest.mark.parametrize("K", [2, 3])
def test_a_product_with_windows_is_pytorchs_causal_convolution(K: int, dilation: int) -> None:
    """In value and gradient; nn.Conv1d's weight is (out, in, taps), a window has its taps outside."""
    theirs = nn.Conv1d(4, 3, K, dilation=dilation, dtype=torch.float64)
    x_BTD = random(2, 13, 4).requires_grad_()
    expected_BTO = theirs(F.pad(x_BTD.mT, ((K - 1) * dilation, 0))).mT
    weight_OC = theirs.weight.permute(0, 2, 1).flatten(1)
    found_BTO = F.linear(windows(F.pad(x_BTD, (0, 0, (K - 1) * dilation, 0)), K, dilation), weight_OC, theirs.bias)
    torch.testing.assert_close(found_BTO, expected_BTO, **EXACT)
    inputs = (x_BTD, theirs.weight)
    for found, expected in zip(
        *(torch.autograd.grad(one.square().sum(), inputs) for one in (found_BTO, expected_BTO)), strict=True
    ):
        torch.testing.assert_close(found, expected, **EXACT)


def by_pytorch(model: Conv, x_BT: Tensor) -> Tensor:
    """The whole network with PyTorch's convolutions and norms."""
    config, x_BTD = model.config, model.embedding_VD[x_BT]
    D, K = config.width, config.kernel

    def convolve(u_BTD: Tensor, weight_DC: Tensor, bias_D: Tensor, dilation: int) -> Tensor:
        weight_DDK = weight_DC.unflatten(1, (K, D)).permute(0, 2, 1)
        y_BDT: Tensor = F.conv1d(F.pad(u_BTD.mT, ((K - 1) * dilation, 0)), weight_DDK, bias_D, dilation=dilation)
        return y_BDT.mT

    for layer, dilation in zip(model.layers, config.dilations, strict=True):
        u_BTD = F.rms_norm(x_BTD, (D,), layer.norm.weight_D, 1e-5)
        z = convolve(u_BTD, layer.gate_DC, layer.gate_bias_D, dilation).sigmoid()
        c = convolve(u_BTD, layer.candidate_DC, layer.candidate_bias_D, dilation)
        x_BTD = x_BTD + (z * (c.tanh() if config.gate == "tanh" else c)) @ layer.out_DD.T
    x_BTD = F.rms_norm(x_BTD, (D,), model.norm.weight_D, 1e-5)
    output_VD = model.embedding_VD if model.output_VD is None else model.output_VD
    return x_BTD @ output_VD.T + model.output_bias_V


@pytest.mark.parametrize("settings", SETTINGS)
def test_the_network_is_pytorchs_in_value_and_gradient(settings: dict[str, Any]) -> None:
    model = convolutional(**settings).requires_grad_()
    x_BT = torch.randint(0, VOCAB, (2, 41), generator=seeded_generator(3))
    found_BTV, expected_BTV = model(x_BT), by_pytorch(model, x_BT)
    torch.testing.assert_close(found_BTV, expected_BTV, **EXACT)
    weights = list(model.parameters())
    for found, expected in zip(
        *(torch.autograd.grad(one.square().sum(), weights) for one in (found_BTV, expected_BTV)), strict=True
    ):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({}, 1 + 2 * (1 + 2 + 4)), ({"kernel": 2, "layers": 4, "cycle": 3}, 1 + 1 + 2 + 4 + 1),
        ({"dilation": 1, "kernel": 5, "layers": 2}, 9), ({"dilation": 3, "layers": 3}, 1 + 2 * 13),
    ],
)  # fmt: skip
def test_the_receptive_field_is_exactly_what_a_gradient_reaches(settings: dict[str, Any], field: int) -> None:
    model, T = convolutional(**settings).requires_grad_(), 40
    assert model.receptive_field == field
    x_1T = torch.arange(T)[None] % (VOCAB - 1)
    vectors = model.embedding_VD.detach()[x_1T].requires_grad_()
    x_BTD, state = vectors, model.start(1)
    for layer, past in zip(model.layers, state, strict=True):
        x_BTD = x_BTD + layer.absorb(x_BTD, past)[0]
    (gradient_1TD,) = torch.autograd.grad(x_BTD[0, -1].square().sum(), vectors)
    assert gradient_1TD[0].any(-1).tolist() == [False] * (T - field) + [True] * field  # taps are never zero here


def test_dilations_double_and_begin_anew_with_each_cycle() -> None:
    assert ConvConfig(layers=6).dilations == [1, 2, 4, 8, 16, 32]
    assert ConvConfig(layers=6).receptive_field == 127
    assert ConvConfig(layers=5, cycle=2, dilation=4).dilations == [1, 4, 1, 4, 1]
    assert ConvConfig(layers=20, cycle=10, kernel=2).receptive_field == 2 * 1023 + 1  # two stacks of WaveNet's
    with pytest.raises(UserError, match=r"the receptive field must be at most 1,048,576 tokens: .*try --cycle 8"):
        ConvConfig(layers=30)


def test_the_state_holds_the_inputs_that_each_layer_still_needs() -> None:
    model = convolutional(kernel=3, layers=3)
    assert [one.shape[1] for one in tensors_of(model.start(2))] == [2, 4, 8]
    assert sum(one.shape[1] for one in tensors_of(model.start(2))) == model.receptive_field - 1


def test_its_views_show_gates_and_how_far_it_sees() -> None:
    model = convolutional(kernel=2, layers=2)
    assert [(row.layer, row.name) for row in token_rows(model, [1, 2])] == [
        (1, "gate"), (1, "candidate"), (2, "gate"), (2, "candidate"),
    ]  # fmt: skip
    table = seen_tokens(model, [1, 2, 3, 4, 5])
    assert [one.title.split()[2] for one in table.details] == ["1", "2", "3", "4", "4"]
    assert table.details[0].rows == (("layer 1", "-1, 0"), ("layer 2", "-2, 0"))
    assert MODELS["conv"].has_gates
