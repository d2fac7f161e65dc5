"""Linear recurrent networks: each mixer is its equations, computed here token by token in plain loops."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from octavo.core import seeded_generator, tensors_of
from octavo.errors import UserError
from octavo.inspection.views import token_rows
from octavo.models import MODELS
from octavo.models.linear_recurrent import LRU, LRUConfig, MinGRUConfig, RGLRUConfig
from octavo.models.parts.linear_recurrence import MIXERS, LRUMixer, ShortConvolution

NAMES = ("mingru", "minlstm", "lru", "rglru")
EXACT = {"rtol": 1e-10, "atol": 1e-11}
B, T, D, E = 2, 9, 4, 3


def mixer(name: str, **config: Any) -> Any:
    """With weights that are all random, in double precision."""
    settings = MODELS[name].config(**{"width": D, "state_width": E} | config)
    made = MIXERS[name](settings)
    made.initialise(settings, seeded_generator(1))
    generator = seeded_generator(2)
    for parameter in made.parameters():
        parameter.data += 0.5 * torch.randn(parameter.shape, generator=generator)
    return made.double()


def vectors(length: int = T, seed: int = 3) -> Tensor:
    return torch.randn(B, length, D, generator=seeded_generator(seed), dtype=torch.float64)


def convolved(convolution: ShortConvolution, x_BTD: Tensor) -> Tensor:
    """By PyTorch's own convolution, one group a unit, with zeros before the text."""
    K, width = convolution.kernel_CD.shape
    kernel_D1K = convolution.kernel_CD.T[:, None]
    y_BDT: Tensor = F.conv1d(F.pad(x_BTD.mT, (K - 1, 0)), kernel_D1K, convolution.bias_D, groups=width)
    return y_BDT.mT


def in_a_loop(name: str, one: Any, x_BTD: Tensor) -> Tensor:
    """The equations of the papers, nothing else."""
    h_BE, y = torch.zeros(B, E, dtype=torch.float64), []
    branch = F.linear(x_BTD, one.branch_ED) if name == "rglru" else x_BTD
    for u, x in zip(convolved(one.convolution, branch).unbind(1), x_BTD.unbind(1), strict=True):
        if name == "mingru":
            z = torch.sigmoid(u @ one.update_ED.T + one.update_bias_E)
            h_BE = (1 - z) * h_BE + z * (u @ one.candidate_ED.T + one.candidate_bias_E)
            y.append(h_BE @ one.out_DE.T)
        elif name == "minlstm":
            f = torch.sigmoid(u @ one.forget_ED.T + one.forget_bias_E)
            i = torch.sigmoid(u @ one.input_ED.T + one.input_bias_E)
            h_BE = f / (f + i) * h_BE + i / (f + i) * (u @ one.candidate_ED.T + one.candidate_bias_E)
            y.append(h_BE @ one.out_DE.T)
        else:
            r = torch.sigmoid(u @ one.recurrence_EE.T + one.recurrence_bias_E)
            i = torch.sigmoid(u @ one.input_EE.T + one.input_bias_E)
            a = torch.sigmoid(-one.decay_E) ** (8 * r)
            h_BE = a * h_BE + torch.sqrt(1 - a**2) * (i * u)
            y.append((h_BE * F.gelu(x @ one.gate_ED.T, approximate="tanh")) @ one.out_DE.T)
    return torch.stack(y, 1)


@pytest.mark.parametrize("name", ["mingru", "minlstm", "rglru"])
def test_a_mixer_is_its_equations_in_value_and_gradient(name: str) -> None:
    one, x_BTD = mixer(name), vectors()
    expected_BTD, found_BTD = in_a_loop(name, one, x_BTD), one.absorb(x_BTD, one.start(B))[0]
    torch.testing.assert_close(found_BTD, expected_BTD, **EXACT)
    weights = list(one.parameters())
    for found, expected in zip(
        torch.autograd.grad(found_BTD.square().sum(), weights),
        torch.autograd.grad(expected_BTD.square().sum(), weights),
        strict=True,
    ):
        torch.testing.assert_close(found, expected, **EXACT)


def test_an_lru_is_its_equation_with_complex_numbers() -> None:
    one, x_BTD = mixer("lru"), vectors()
    B_ND = torch.complex(one.in_ID[0::2], one.in_ID[1::2])
    C_DN = torch.complex(one.out_DI[:, 0::2], -one.out_DI[:, 1::2])
    eigenvalue = torch.exp(torch.complex(-one.decay_N.exp(), one.phase_N.exp()))
    h, y = torch.zeros(B, E, dtype=torch.complex128), []
    for x in x_BTD.unbind(1):
        h = eigenvalue * h + one.scale_N.exp() * (x.to(torch.complex128) @ B_ND.T)
        y.append((h @ C_DN.T).real + one.skip_D * x)
    torch.testing.assert_close(one.absorb(x_BTD, one.start(B))[0], torch.stack(y, 1), **EXACT)


@pytest.mark.parametrize("length", [1, 7, 64, 101])
def test_an_lru_is_a_convolution_in_value_and_gradient(length: int) -> None:
    one, x_BTD = mixer("lru"), vectors(length)
    state = tuple(vectors(1, seed)[:, 0, :E].contiguous() for seed in (4, 5))
    (y_BTD, last), (again_BTD, last_again) = (one.absorb(x_BTD, state, path) for path in ("recurrence", "convolution"))
    torch.testing.assert_close(again_BTD, y_BTD, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(last_again, last, rtol=1e-9, atol=1e-10)
    weights = list(one.parameters())
    for found, expected in zip(
        *(torch.autograd.grad(one_BTD.square().sum(), weights) for one_BTD in (again_BTD, y_BTD)), strict=True
    ):
        torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)


def test_a_minlstm_shares_out_its_state_and_its_candidate() -> None:
    one = mixer("minlstm")
    forget, _ = one.coefficients(vectors())
    one.candidate_ED.data.zero_()
    one.candidate_bias_E.data.fill_(1)
    _, share = one.coefficients(vectors())
    torch.testing.assert_close(forget + share, torch.ones_like(forget), **EXACT)


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e4])
@pytest.mark.parametrize("name", NAMES)
def test_values_and_gradients_stay_finite_where_gates_are_shut_or_open(name: str, size: float) -> None:
    one, x_BTD = mixer(name).float(), (size * vectors()).float()
    y_BTD, state = one.absorb(x_BTD, one.start(B))
    gradients = torch.autograd.grad(y_BTD.sum(), list(one.parameters()))
    assert all(bool(value.isfinite().all()) for value in (y_BTD, *state, *gradients))


@pytest.mark.parametrize("name", [*NAMES, "conv"])
def test_an_untrained_network_passes_its_tokens_on_and_expects_each_once_more(name: str) -> None:
    """Which the doctor knows by `init`: with tied embeddings the first loss is above that of a guess."""
    spec: Any = MODELS[name]
    config = spec.config(width=32)
    model = spec.model(config, 9)
    model.initialise(seeded_generator(1))
    x_BT = torch.randint(0, 8, (2, 12), generator=seeded_generator(2))
    h_BTD = F.rms_norm(model.embedding_VD[x_BT], (32,), eps=1e-5)
    torch.testing.assert_close(model(x_BT), h_BTD @ model.embedding_VD.T)
    assert torch.equal(model(x_BT).argmax(-1), x_BT)
    assert config.init == "zero"


def test_an_lru_starts_on_its_ring() -> None:
    config = LRUConfig(width=4, state_width=3000, smallest_radius=0.6, largest_radius=0.9, largest_phase=1.0)
    one = LRUMixer(config)
    one.initialise(config, seeded_generator(1))
    radius_N, angle_N = one.eigenvalues.detach().abs(), one.eigenvalues.detach().angle()
    assert 0.6 <= float(radius_N.min()) < 0.61
    assert 0.89 < float(radius_N.max()) <= 0.9
    assert 0 < float(angle_N.min()) < 0.01
    assert 0.99 < float(angle_N.max()) <= 1
    inside = float((radius_N < 0.75).double().mean())  # by area, as a uniform draw from the ring has it
    assert math.isclose(inside, (0.75**2 - 0.6**2) / (0.9**2 - 0.6**2), abs_tol=0.03)
    torch.testing.assert_close(one.scale_N.detach().exp(), (1 - radius_N**2).sqrt())


def test_an_rglru_starts_with_the_memories_that_are_asked_for() -> None:
    config = RGLRUConfig(width=4, state_width=1000, smallest_share=0.9, largest_share=0.999)
    one = MIXERS["rglru"](config)
    one.initialise(config, seeded_generator(1))
    kept_E = torch.sigmoid(-one.decay_E.detach()) ** 8
    assert 0.9 <= float(kept_E.min()) < 0.902
    assert 0.998 < float(kept_E.max()) <= 0.9991


@pytest.mark.parametrize("name", NAMES)
def test_views_show_gates_between_0_and_1_and_the_state_of_every_layer(name: str) -> None:
    spec = MODELS[name]
    model = spec.model(spec.config(width=4, layers=2), 9)
    model.initialise(seeded_generator(1))  # type: ignore[operator]
    rows = token_rows(model, [1, 2, 3])  # type: ignore[arg-type]
    assert [(row.layer, row.name) for row in rows] == [(l, tap.name) for l in (1, 2) for tap in spec.views[0].taps]
    for row in rows:
        assert len(row.value_TD) == 4
        if not row.signed:
            assert bool(((row.value_TD >= 0) & (row.value_TD <= 1)).all())
        assert row.squashed == row.unbounded == (row.name in ("hidden", "candidate"))
    assert spec.has_gates == (name != "lru")


def test_what_a_model_holds_does_not_grow_with_the_text() -> None:
    model = LRU(LRUConfig(width=4), 9)
    model.initialise(seeded_generator(1))
    sizes = {tuple(h.shape for layer in model.absorb(model.start(1), torch.zeros(1, n, dtype=torch.long))[1]
                   for h in layer) for n in (1, 50)}  # fmt: skip
    assert len(sizes) == 1


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(UserError, match=r"smallest_radius must be below largest_radius: .*try --smallest-radius 0.25"):
        LRUConfig(smallest_radius=0.5, largest_radius=0.5)
    with pytest.raises(UserError, match=r"smallest_share must be below largest_share: .*try --smallest-share 0.4"):
        RGLRUConfig(smallest_share=0.9, largest_share=0.8)
    with pytest.raises(UserError, match="convolution must be at least 1: convolution=0"):
        MinGRUConfig(convolution=0)


@pytest.mark.parametrize("name", [*NAMES, "conv", "nnlm"])
def test_a_state_keeps_its_precision_under_autocast(name: str) -> None:
    spec: Any = MODELS[name]
    model = spec.model(spec.config(width=8), 9)
    model.initialise(seeded_generator(1))
    x_BT = torch.randint(0, 8, (2, 12), generator=seeded_generator(2))
    with torch.autocast("cpu", torch.bfloat16):
        logits_BTV, state = model.absorb(model.start(2), x_BT)
        stepped_BV, after = model.step(state, x_BT[:, 0])
    logits_BTV.float().log_softmax(-1).mean().backward()
    assert all(bool(p.grad.isfinite().all()) for p in model.parameters() if p.grad is not None)
    assert logits_BTV.dtype == stepped_BV.dtype == torch.bfloat16
    for one in (state, after):
        assert [t.dtype for t in tensors_of(one)] == [t.dtype for t in tensors_of(model.start(2))]
    exact_BTV = model(x_BT)
    torch.testing.assert_close(logits_BTV.float(), exact_BTV, rtol=0.05, atol=0.1)
