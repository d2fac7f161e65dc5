"""The linear recurrent models: each mixer by its equations, token by token; views; what is refused.

B batch, T tokens, H heads, K size of a key, D width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from examples import VOCAB, linear_attention, text
from octavo.core import scan, seeded_generator, tensors_of
from octavo.errors import UserError
from octavo.inspection.attention_maps import attention_over
from octavo.inspection.views import layer_predictions, token_rows
from octavo.models import MODELS, find_spec
from octavo.models.linear_attention import SPECS
from octavo.models.linear_attention.config import GatedLinearConfig, Mamba2Config, RetentionConfig
from octavo.ops.short_convolution import short_convolution
from octavo.scoring.token_costs import token_costs

NAMES = [spec.name for spec in SPECS]
D, H = 8, 2
K = D // H
EXACT: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-10}


def drawn(*shape: int, seed: int = 7) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


# ---------------------------------------------------------------------- the equations, one token and head at a time


def unit(x_K: Tensor) -> Tensor:
    return x_K / x_K.norm()


def rms(x_K: Tensor) -> Tensor:
    return x_K / (x_K.square().mean() + 1e-5).sqrt()


def mixed(x_TE: Tensor, w_CE: Tensor, bias_E: Tensor | float = 0.0) -> Tensor:
    """silu(convolution(x)), with zeros before the first token."""
    C = len(w_CE)
    rows = []
    for t in range(len(x_TE)):
        rows.append(bias_E + sum(w_CE[C - 1 - back] * x_TE[t - back] for back in range(C) if t >= back))
    return F.silu(torch.stack(rows))  # type: ignore[arg-type]


def heads(x_TD: Tensor) -> Tensor:
    return x_TD.view(len(x_TD), H, -1)


def turned(x_K: Tensor, t: int) -> Tensor:
    """Number i of the first half is the real, number i of the second half the imaginary part of what is turned."""
    half = len(x_K) // 2
    angle = t * 10000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
    y = torch.complex(x_K[:half], x_K[half:]) * torch.polar(torch.ones_like(angle), angle)
    return torch.cat([y.real, y.imag])


def convolved(w: Any, x_TD: Tensor) -> list[Tensor]:
    """Queries, keys and values by heads."""
    qkv = mixed(torch.cat([x_TD @ m.T for m in (w.query_DD, w.key_DD, w.value_DD)], 1), w.convolution_CE)
    return [heads(one) for one in qkv.chunk(3, 1)]


def retention(w: Any, x_TD: Tensor) -> Tensor:
    q, k, v = convolved(w, x_TD)
    y = torch.zeros(len(x_TD), H, K, dtype=torch.float64)
    for h in range(H):
        S = torch.zeros(K, K, dtype=torch.float64)
        for t in range(len(x_TD)):
            S = (1 - 2.0 ** (-5 - h)) * S + torch.outer(turned(k[t, h], t) / K**0.5, v[t, h])
            y[t, h] = rms(turned(q[t, h], t) @ S)
    return (y.flatten(1) * w.norm_D * F.silu(x_TD @ w.gate_DD.T)) @ w.out_DD.T


def gla(w: Any, x_TD: Tensor) -> Tensor:
    q, k, v = convolved(w, x_TD)
    alpha = heads((x_TD @ w.decay_down_RD.T @ w.decay_up_DR.T + w.decay_bias_D).sigmoid() ** (1 / 16))
    y = torch.zeros(len(x_TD), H, K, dtype=torch.float64)
    for h in range(H):
        S = torch.zeros(K, K, dtype=torch.float64)
        for t in range(len(x_TD)):
            S = torch.diag(alpha[t, h]) @ S + torch.outer(k[t, h] / K**0.5, v[t, h])
            y[t, h] = rms(q[t, h] @ S)
    return (y.flatten(1) * w.norm_D * F.silu(x_TD @ w.gate_DD.T)) @ w.out_DD.T


def delta(w: Any, x_TD: Tensor) -> Tensor:
    q, k, v = convolved(w, x_TD)
    beta = (x_TD @ w.strength_HD.T).sigmoid()
    alpha = torch.ones_like(beta)
    if w.gate_DD is not None:
        alpha = (-w.log_pace_H.exp() * F.softplus(x_TD @ w.decay_HD.T + w.decay_bias_H)).exp()
    y = torch.zeros(len(x_TD), H, K, dtype=torch.float64)
    for h in range(H):
        S = torch.zeros(K, K, dtype=torch.float64)
        for t in range(len(x_TD)):
            key, b = unit(k[t, h]), beta[t, h]
            S = alpha[t, h] * (torch.eye(K) - b * torch.outer(key, key)) @ S + b * torch.outer(key, v[t, h])
            y[t, h] = rms(unit(q[t, h]) @ S)
    y = y.flatten(1) * w.norm_D
    return (y if w.gate_DD is None else y * F.silu(x_TD @ w.gate_DD.T)) @ w.out_DD.T


def mamba2(w: Any, x_TD: Tensor) -> Tensor:
    given = torch.cat([x_TD @ m.T for m in (w.value_ID, w.key_ND, w.query_ND)], 1)
    x, B, C = mixed(given, w.convolution_CE, w.convolution_bias_E).split([2 * D, 5, 5], 1)
    dt = F.softplus(x_TD @ w.step_HD.T + w.step_bias_H)
    y = torch.zeros(len(x_TD), H, D, dtype=torch.float64)
    for h in range(H):
        S = torch.zeros(5, D, dtype=torch.float64)
        for t in range(len(x_TD)):
            S = (-w.log_pace_H[h].exp() * dt[t, h]).exp() * S + dt[t, h] * torch.outer(B[t], heads(x)[t, h])
            y[t, h] = C[t] @ S + w.skip_H[h] * heads(x)[t, h]
    read = y.flatten(1) * F.silu(x_TD @ w.gate_ID.T)
    return torch.stack([rms(row) * w.norm_I for row in read]) @ w.out_DI.T


def mlstm(w: Any, x_TD: Tensor) -> Tensor:
    """Without a stabiliser, which double precision can do without here."""
    c = mixed(x_TD, w.convolution_CE)
    q, k, v = heads(c @ w.query_DD.T), heads(c @ w.key_DD.T) / K**0.5, heads(x_TD @ w.value_DD.T)
    i = (15 * ((x_TD @ w.input_HD.T + w.input_bias_H) / 15).tanh()).exp()
    f = (15 * ((x_TD @ w.forget_HD.T + w.forget_bias_H) / 15).tanh()).sigmoid()
    y = torch.zeros(len(x_TD), H, K, dtype=torch.float64)
    for h in range(H):
        S, n = torch.zeros(K, K, dtype=torch.float64), torch.zeros(K, dtype=torch.float64)
        for t in range(len(x_TD)):
            S = f[t, h] * S + i[t, h] * torch.outer(k[t, h], v[t, h])
            n = f[t, h] * n + i[t, h] * k[t, h]
            y[t, h] = rms(q[t, h] @ S / max(abs(float(q[t, h] @ n)), 1.0))
    return (y.flatten(1) * w.norm_D * (x_TD @ w.gate_DD.T).sigmoid()) @ w.out_DD.T


EQUATIONS: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "retention": retention, "gla": gla, "deltanet": delta, "gated-deltanet": delta, "mamba2": mamba2, "mlstm": mlstm,
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_mixer_is_its_equations(name: str) -> None:
    mixer: Any = linear_attention(name).blocks[0].mixer  # type: ignore[union-attr,index]
    x_1TD = drawn(1, 9, D)
    y_1TD, _ = mixer.absorb(x_1TD, mixer.start(1))
    torch.testing.assert_close(y_1TD[0], EQUATIONS[name](mixer, x_1TD[0]), **EXACT)


@pytest.mark.parametrize("name", NAMES)
def test_every_weight_gets_the_gradient_of_the_steps(name: str) -> None:
    model = linear_attention(name).requires_grad_(True)
    x_BT = torch.randint(0, VOCAB - 1, (2, 19), generator=seeded_generator(1))
    weights = list(model.parameters())
    at_once = torch.autograd.grad(model(x_BT).square().sum(), weights)
    by_step = torch.autograd.grad(scan(model, model.start(2), x_BT)[0].square().sum(), weights)
    for ours, expected in zip(at_once, by_step, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-8, atol=1e-8)
        assert bool(ours.abs().sum() > 0)


@pytest.mark.parametrize("name", NAMES)
def test_the_state_has_one_size_however_long_the_text(name: str) -> None:
    model = linear_attention(name)
    sizes = {tuple(one.shape for one in tensors_of(model.start(1)))}
    for length in (1, 2, 65):
        _, state = model.absorb(model.start(1), torch.zeros(1, length, dtype=torch.long))
        sizes.add(tuple(one.shape for one in tensors_of(state)))
    assert len(sizes) == 1
    assert model.receptive_field is None


@pytest.mark.parametrize("name", NAMES)
def test_a_long_text_in_single_precision_is_scored_as_in_double(name: str) -> None:
    model = linear_attention(name)
    x_N = text(3000, seed=3).numpy()
    exact = [bits_N for _, bits_N in token_costs(model, [x_N])]
    rounded = [bits_N for _, bits_N in token_costs(model.float(), [x_N])]
    assert sum(abs(float(a.sum() - b.sum())) for a, b in zip(exact, rounded, strict=True)) < 0.01 * len(x_N)


@pytest.mark.parametrize("name", NAMES)
def test_a_few_steps_of_training_learn_a_rule(name: str) -> None:
    spec = find_spec(name)
    model: Any = spec.model(spec.config(width=16, layers=1, heads=2), VOCAB)
    model.initialise(seeded_generator(1))
    x_BT = text(4 * 129).long()[: 4 * 129].view(4, 129)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for _ in range(60):
        with torch.autocast("cpu", torch.bfloat16, enabled=len(losses) % 2 == 1):
            logits_BTV = model(x_BT[:, :-1])
        loss = F.cross_entropy(logits_BTV.float().flatten(0, 1), x_BT[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        assert all(bool(weight.grad.isfinite().all()) for weight in model.parameters())
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.75 * losses[0]


# ---------------------------------------------------------------------- the mLSTM's gates, and the convolution


@pytest.mark.parametrize("bias", [-200.0, 200.0])
def test_extreme_gates_of_an_mlstm_are_finite_in_single_precision(bias: float) -> None:
    model: Any = linear_attention("mlstm").float().requires_grad_(True)
    for block in model.blocks:
        block.mixer.input_bias_H.data.fill_(bias)
        block.mixer.forget_bias_H.data.fill_(-bias)
    loss = model(torch.randint(0, VOCAB - 1, (2, 200), generator=seeded_generator(1))).square().sum()
    loss.backward()
    assert bool(loss.isfinite())
    assert all(bool(weight.grad.isfinite().all()) for weight in model.parameters())


def test_an_mlstm_cell_is_that_of_transformers() -> None:
    xlstm = pytest.importorskip("transformers.models.xlstm.modeling_xlstm")
    from octavo.ops import linear

    T, q, k, v = 12, drawn(2, H, 12, K), drawn(2, H, 12, K, seed=8), drawn(2, H, 12, K, seed=9)
    i, f = drawn(2, H, T, seed=10) * 3, drawn(2, H, T, seed=11)
    state = torch.zeros(2, H, K, K), torch.zeros(2, H, K), torch.zeros(2, H, 1)
    theirs = []
    for t in range(T):
        one = (x[:, :, t].double() for x in (q, k, v))
        y, state = xlstm.mlstm_recurrent_step_native(
            *one, i[:, :, t, None], f[:, :, t, None], *state, eps=0.0, dtype_state=torch.float64
        )
        theirs.append(y)
    log_i, log_f, m = linear.stabilised(i, F.logsigmoid(f), torch.zeros(2, H, dtype=torch.float64))
    keys, values = k * log_i.exp()[..., None], F.pad(v, (0, 1), value=1.0)
    y, S = linear.attend_decaying(q * K**-0.5, keys, values, log_f[..., None])
    ours = y[..., :-1] / torch.maximum(y[..., -1:].abs(), (-m).exp()[..., None])
    torch.testing.assert_close(ours, torch.stack(theirs, 2), **EXACT)
    torch.testing.assert_close(S, torch.cat([state[0], state[1][..., None]], -1), **EXACT)


@pytest.mark.parametrize("taps", [1, 2, 4])
def test_a_short_convolution_is_that_of_pytorch(taps: int) -> None:
    x_BTE, past_BPE, w_CE, bias_E = drawn(2, 7, 3), drawn(2, taps - 1, 3, seed=8), drawn(taps, 3, seed=9), drawn(3)
    y_BTE, after = short_convolution(x_BTE, past_BPE, w_CE, bias_E)
    both = torch.cat([past_BPE, x_BTE], 1)
    torch.testing.assert_close(y_BTE.mT, F.conv1d(both.mT, w_CE.T[:, None], bias_E, groups=3), **EXACT)
    assert torch.equal(after, both[:, 7:])


# ---------------------------------------------------------------------- views


@pytest.mark.parametrize("name", NAMES)
def test_effective_attention_is_causal_and_its_rows_sum_to_one(name: str) -> None:
    model = linear_attention(name)
    maps = attention_over(model, text(21)[1:].tolist())
    assert len(maps.layers) == 2
    for a_HTT in maps.layers:
        assert a_HTT.shape == (H, 22, 22)
        torch.testing.assert_close(a_HTT.sum(-1), torch.ones(H, 22, dtype=a_HTT.dtype))
        assert bool((a_HTT.triu(1) == 0).all() and (a_HTT >= 0).all())
    assert maps.visible_T.tolist() == list(range(1, 23))


def test_effective_attention_is_what_retention_gives_to_each_value() -> None:
    model: Any = linear_attention("retention", layers=1, convolution=0)
    tokens = [model.begin, 3, 5, 3]
    a_HTT = attention_over(model, tokens[1:]).layers[0]
    x_TD = model.blocks[0].norm1(model.embedding_VD[tokens])
    q, k = (heads(x_TD @ m.T) for m in (model.blocks[0].mixer.query_DD, model.blocks[0].mixer.key_DD))
    for h in range(H):
        row = [abs(float(turned(q[3, h], 3) @ turned(k[s, h], s))) * (1 - 2.0 ** (-5 - h)) ** (3 - s) for s in range(4)]
        assert a_HTT[h, 3].tolist() == pytest.approx([one / sum(row) for one in row])


@pytest.mark.parametrize("name", NAMES)
def test_gates_lie_between_shut_and_open_and_one_row_is_a_layers(name: str) -> None:
    rows = token_rows(linear_attention(name), text(20)[1:].tolist())
    expected = {"retention": [], "gla": ["decay"], "mamba2": ["decay"], "deltanet": ["strength"],
                "gated-deltanet": ["strength", "decay"], "mlstm": ["input", "decay", "output"]}[name]  # fmt: skip
    assert [(row.layer, row.name) for row in rows] == [(layer, gate) for layer in (1, 2) for gate in expected]
    for row in rows:
        assert len(row.value_TD) == 21
        assert bool((row.value_TD >= 0).all() and (row.value_TD <= 1).all())
        assert row.value_TD.shape[1] == {"gla": D}.get(name, D if row.name == "output" else H)


@pytest.mark.parametrize("name", NAMES)
def test_the_logit_lens_ends_with_the_models_own_prediction(name: str) -> None:
    model = linear_attention(name)
    x_N = text(12)[1:].tolist()
    layers = layer_predictions(model, x_N)
    assert len(layers) == 3
    logp_TV = model(torch.tensor([[model.begin, *x_N[:-1]]]))[0].log_softmax(-1)
    own = -logp_TV.gather(1, torch.tensor(x_N)[:, None])[:, 0] / torch.tensor(2.0).double().log()
    torch.testing.assert_close(layers[-1].bits_N, own)


# ---------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("config", "settings", "rule"),
    [
        (GatedLinearConfig, {"width": 10, "heads": 4}, "heads must divide width: width=10, heads=4; try --heads 2"),
        (Mamba2Config, {"width": 5, "heads": 4}, "heads must divide expand times width: expand=2, width=5, heads=4"),
        (RetentionConfig, {"width": 12, "heads": 4}, "width / heads must be even: 12 / 4; try --heads 3"),
        (GatedLinearConfig, {"convolution": -1}, "convolution must be at least 0"),
        (GatedLinearConfig, {"feed_forward": "big"}, "feed_forward must be one of gated"),
    ],
)
def test_wrong_configs_are_refused(config: Any, settings: dict[str, Any], rule: str) -> None:
    with pytest.raises(UserError, match=rule):
        config(**settings)


@pytest.mark.parametrize("name", NAMES)
def test_it_is_compared_only_where_it_is_named(name: str) -> None:
    (candidate,) = MODELS[name].compared_as(60.0, "cpu")
    assert (candidate.name, candidate.only_if_named) == (name, True)
