"""Linear attention that forgets: all forms are one function, in value and gradient. B, H, T, K, V as in the module."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from octavo.errors import UserError
from octavo.ops import linear
from octavo.ops.linear.decaying import CHANNEL_CHUNK, DecayingPath, chunk_of

B, H, K, V = 2, 3, 5, 4
LENGTHS = (1, 2, 17, 63, 65, 130)
KINDS = ("head", "channel", "delta", "gated delta")
PATHS: tuple[DecayingPath, ...] = ("recurrent", "parallel", "chunked")
EXACT: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-10}


def drawn(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def case(kind: str, T: int) -> tuple[Tensor, ...]:
    """q, k, v, the logarithms of decays, β where it is the delta rule, and a state."""
    q, k, v = drawn(B, H, T, K, seed=1), drawn(B, H, T, K, seed=2), drawn(B, H, T, V, seed=3)
    g = F.logsigmoid(drawn(B, H, T, K if kind == "channel" else 1, seed=4) + 1)
    S = drawn(B, H, K, V, seed=5)
    if "delta" not in kind:
        return q, k, v, g, S
    g = g * 0 if kind == "delta" else g
    return q, F.normalize(k, dim=-1), v, g, drawn(B, H, T, seed=6).sigmoid() * 2, S


def attend(path: DecayingPath, given: list[Tensor], **settings: Any) -> tuple[Tensor, Tensor]:
    q, k, v, g, *beta, S = given
    return linear.attend_decaying(q, k, v, g, beta[0] if beta else None, S, path=path, **settings)


def values_and_gradients(
    kind: str, path: DecayingPath, T: int, cut: int | None = None, **settings: Any
) -> list[Tensor]:
    """y, the last state, and the gradients of all that is given, for a loss that weighs both."""
    given = [x.detach().requires_grad_() for x in case(kind, T)]
    if cut is None:
        y, S = attend(path, given, **settings)
    else:
        first, S = attend(path, [*(x[:, :, :cut] for x in given[:-1]), given[-1]], **settings)
        second, S = attend(path, [*(x[:, :, cut:] for x in given[:-1]), S], **settings)
        y = torch.cat([first, second], 2)
    loss = (y * drawn(*y.shape, seed=8)).sum() + (S * drawn(*S.shape, seed=9)).sum()
    return [y, S, *torch.autograd.grad(loss, given)]


@pytest.mark.parametrize("T", LENGTHS)
@pytest.mark.parametrize("kind", KINDS)
def test_all_forms_are_equal_in_value_and_gradient(kind: str, T: int) -> None:
    expected = values_and_gradients(kind, "recurrent", T)
    for path in ("parallel", "chunked", "auto"):
        for ours, theirs in zip(values_and_gradients(kind, path, T), expected, strict=True):
            torch.testing.assert_close(ours, theirs, **EXACT)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("kind", KINDS)
def test_cutting_anywhere_changes_nothing_when_the_state_is_carried(kind: str, path: DecayingPath) -> None:
    whole = values_and_gradients(kind, "recurrent", 67)
    for cut in (0, 1, 16, 64, 67):
        for ours, theirs in zip(values_and_gradients(kind, path, 67, cut), whole, strict=True):
            torch.testing.assert_close(ours, theirs, **EXACT)


@pytest.mark.parametrize("chunk", [1, 3, 16])
@pytest.mark.parametrize("kind", KINDS)
def test_the_size_of_the_chunks_changes_nothing(kind: str, chunk: int) -> None:
    expected = values_and_gradients(kind, "recurrent", 19)
    for ours, theirs in zip(values_and_gradients(kind, "chunked", 19, chunk=chunk), expected, strict=True):
        torch.testing.assert_close(ours, theirs, **EXACT)


@pytest.mark.parametrize("path", PATHS)
def test_two_decayed_steps_by_hand(path: DecayingPath) -> None:
    q, k, v = (torch.tensor(x, dtype=torch.float64).view(1, 1, 2, 1) for x in ([1, 2], [3, 1], [6, 2]))
    g = torch.tensor([0.5, 0.25], dtype=torch.float64).log().view(1, 1, 2, 1)
    S = torch.full((1, 1, 1, 1), 4, dtype=torch.float64)
    y, S = linear.attend_decaying(q, k, v, g, None, S, path=path)
    assert y.flatten().tolist() == pytest.approx([0.5 * 4 + 18, 2 * (0.25 * 20 + 2)])  # S is 20, then 7
    assert S.item() == pytest.approx(7)


@pytest.mark.parametrize("path", PATHS)
def test_the_delta_rule_overwrites_what_a_key_holds_and_nothing_else(path: DecayingPath) -> None:
    k = torch.tensor([[1.0, 0], [0, 1], [1, 0], [0.6, 0.8]], dtype=torch.float64).view(1, 1, 4, 2)
    v = torch.tensor([[5.0], [7], [11], [3]], dtype=torch.float64).view(1, 1, 4, 1)
    beta = torch.tensor([1, 1, 1, 0.5], dtype=torch.float64).view(1, 1, 4)
    y, S = linear.attend_decaying(k, k, v, torch.zeros(1, 1, 4, 1).double(), beta, path=path)
    assert y.flatten()[:3].tolist() == pytest.approx([5, 7, 11])  # the third replaces the first: not 5 + 11
    read = 0.6 * 11 + 0.8 * 7  # 12.2; half of the difference to 3 is written along the key
    assert S.flatten().tolist() == pytest.approx([11 + 0.6 * 0.5 * (3 - read), 7 + 0.8 * 0.5 * (3 - read)])
    assert y.flatten()[3].item() == pytest.approx(0.5 * read + 0.5 * 3)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_state_is_what_its_matrices_give(kind: str, path: DecayingPath) -> None:
    """S_t = A_t S_{t-1} + k_t v_tᵀ with A_t written out as a matrix."""
    q, k, v, g, *beta, S = case(kind, 9)
    expected, identity = S.clone(), torch.eye(K, dtype=torch.float64)
    for t in range(9):
        A_BHKK = torch.diag_embed(g[:, :, t].exp().expand(B, H, K))
        b = beta[0][:, :, t, None, None] if beta else torch.ones(B, H, 1, 1, dtype=torch.float64)
        if beta:
            A_BHKK = A_BHKK @ (identity - b * k[:, :, t, :, None] * k[:, :, t, None, :])
        expected = A_BHKK @ expected + b * k[:, :, t, :, None] * v[:, :, t, None, :]
    torch.testing.assert_close(attend(path, [q, k, v, g, *beta, S])[1], expected, **EXACT)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_future_cannot_change_the_past(kind: str, path: DecayingPath) -> None:
    q, k, *rest, S = case(kind, 70)
    other = k.clone()
    other[:, :, 40:] = other[:, :, 40:].flip(-1)
    one, two = (attend(path, [q, keys, *rest, S])[0] for keys in (k, other))
    assert torch.equal(one[:, :, :40], two[:, :, :40])
    assert not torch.allclose(one[:, :, 40:], two[:, :, 40:])


@pytest.mark.parametrize("kind", KINDS)
def test_the_map_is_what_is_applied_to_the_values(kind: str) -> None:
    q, k, v, g, *beta, _ = case(kind, 21)
    a = linear.decaying_weights(q, k, g, *beta)
    torch.testing.assert_close(a @ v, linear.attend_decaying(q, k, v, g, *beta)[0], **EXACT)
    assert bool((a.triu(1) == 0).all())


def test_without_decay_and_divided_by_a_column_of_ones_it_is_plain_linear_attention() -> None:
    q, k = linear.features("elu", drawn(B, H, 70, K, seed=1), drawn(B, H, 70, K, seed=2))
    v = drawn(B, H, 70, V, seed=3)
    expected, (S, z) = linear.attend_linear(q, k, v)
    none = torch.zeros(B, H, 70, 1, dtype=torch.float64)
    y, both = linear.attend_decaying(q, k, F.pad(v, (0, 1), value=1.0), none)
    torch.testing.assert_close(y[..., :-1] / y[..., -1:], expected, **EXACT)
    torch.testing.assert_close(both, torch.cat([S, z[..., None]], -1), **EXACT)


@pytest.mark.parametrize("T", [0, 1, 9, 70])
def test_fading_sums_are_those_of_the_definition_in_value_and_gradient(T: int) -> None:
    q, k = (x.exp() for x in (drawn(B, H, T, K, seed=1), drawn(B, H, T, K, seed=2)))
    given = [q, k, drawn(B, H, T, V, seed=3), drawn(B, H, K, V, seed=4), drawn(B, H, K, seed=5).exp()]
    q, k, v, S, z = (x.requires_grad_() for x in given)
    y, after = linear.attend_fading(q, k, v, linear.fixed_decays(H), (S, z))
    keep_H1 = torch.tensor([1 / 2, 7 / 8, 31 / 32], dtype=torch.float64)[:, None]
    rows, state = [v[:, :, :0]], (S, z)
    for t in range(T):
        S_t = keep_H1[..., None] * state[0] + k[:, :, t, :, None] * v[:, :, t, None]
        state = S_t, keep_H1 * state[1] + k[:, :, t]
        rows.append((q[:, :, t, None] @ S_t) / (q[:, :, t] * state[1]).sum(-1)[..., None, None])
    for ours, theirs in zip((y, *after), (torch.cat(rows, 2), *state), strict=True):
        torch.testing.assert_close(ours, theirs, **EXACT)
    ours, theirs = (
        torch.autograd.grad(
            out.sin().sum() + S.sum() + z.square().sum(), (q, k, v), allow_unused=True, materialize_grads=True
        )
        for out, (S, z) in ((y, after), (torch.cat(rows, 2), state))
    )
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, **EXACT)


def test_one_decay_for_a_head_is_the_same_decay_for_all_its_channels() -> None:
    q, k, v, g, S = case("head", 40)
    by_channel = linear.attend_decaying(q, k, v, g.expand(-1, -1, -1, K), None, S)
    for ours, theirs in zip(by_channel, linear.attend_decaying(q, k, v, g, None, S), strict=True):
        torch.testing.assert_close(ours, theirs, **EXACT)


@pytest.mark.parametrize("decays", [1, K])
def test_the_strongest_decay_is_finite_in_single_precision_in_value_and_gradient(decays: int) -> None:
    T = 2 * chunk_of(decays) + 1
    q, k, v = (drawn(B, H, T, n, seed=i).float().requires_grad_() for i, n in enumerate((K, K, V)))
    g = torch.full((B, H, T, decays), -1000.0, requires_grad=True)
    y, S = linear.attend_decaying(q, k, v, g)
    expected, _ = linear.attend_decaying(q.double(), k.double(), v.double(), g.double(), path="recurrent")
    torch.testing.assert_close(y.double(), expected, rtol=1e-4, atol=1e-5)
    for gradient in torch.autograd.grad(y.square().sum() + S.square().sum(), (q, k, v, g)):
        assert bool(gradient.isfinite().all())


@pytest.mark.parametrize("path", PATHS)
def test_low_precision_values_are_summed_in_single_precision(path: DecayingPath) -> None:
    ones = torch.ones(1, 1, 600, 1, dtype=torch.bfloat16)  # bfloat16 itself counts no further than 256
    with torch.autocast("cpu", torch.bfloat16):
        y, S = linear.attend_decaying(ones, ones, ones, 0 * ones, path=path)
    assert (y.dtype, S.dtype, S.item()) == (torch.bfloat16, torch.float32, 600)


@pytest.mark.parametrize("path", [*PATHS, "auto"])
@pytest.mark.parametrize("kind", KINDS)
def test_no_tokens_leave_the_state_as_it_was(kind: str, path: DecayingPath) -> None:
    given = list(case(kind, 0))
    y, S = attend(path, given)
    assert y.shape == (B, H, 0, V)
    assert torch.equal(S, given[-1])


# ---------------------------------------------------------------------- exponential gates


@pytest.mark.parametrize("cut", [0, 1, 30])
def test_stabilised_gates_are_the_gates_divided_by_what_the_state_is_divided_by(cut: int) -> None:
    i, f = drawn(B, H, 30, seed=1) * 4, F.logsigmoid(drawn(B, H, 30, seed=2))
    m = torch.zeros(B, H, dtype=torch.float64)
    i1, f1, m1 = linear.stabilised(i[..., :cut], f[..., :cut], m)
    i2, f2, m2 = linear.stabilised(i[..., cut:], f[..., cut:], m1[..., -1] if cut else m)
    log_i, log_f, m_t = (torch.cat(both, -1) for both in ((i1, i2), (f1, f2), (m1, m2)))
    for t in range(30):  # the recurrence, one step at a time
        after = torch.maximum(f[..., t] + m, i[..., t])
        torch.testing.assert_close(m_t[..., t], after, **EXACT)
        torch.testing.assert_close(log_i[..., t], i[..., t] - after, **EXACT)
        torch.testing.assert_close(log_f[..., t], f[..., t] + m - after, **EXACT)
        m = after
    assert bool((log_i <= 1e-12).all() and (log_f <= 1e-12).all())


# ---------------------------------------------------------------------- a public library, and mistakes


@pytest.mark.parametrize("form", ["torch_recurrent_gated_delta_rule", "torch_chunk_gated_delta_rule"])
def test_the_gated_delta_rule_is_that_of_transformers(form: str) -> None:
    qwen = pytest.importorskip("transformers.models.qwen3_next.modeling_qwen3_next")
    q, k, v, g, beta, S = (x.float() for x in case("gated delta", 70))
    given = (x.transpose(1, 2) for x in (q * K**0.5, k, v, g[..., 0], beta))
    theirs, last = getattr(qwen, form)(*given, initial_state=S, output_final_state=True)
    ours, after = linear.attend_decaying(q, k, v, g, beta, S)
    torch.testing.assert_close(ours.transpose(1, 2), theirs, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(after, last, rtol=1e-4, atol=1e-4)


def test_wrong_arguments_are_refused_with_the_rule() -> None:
    q, k, v, g, beta, _ = case("gated delta", 3)
    with pytest.raises(UserError, match=r"q and k must have shape .B, H, T, K."):
        linear.attend_decaying(q, k[:, :1], v, g)
    with pytest.raises(UserError, match=r"decays must have shape .B, H, T, 1. or .B, H, T, K."):
        linear.attend_decaying(q, k, v, g[..., 0])
    with pytest.raises(UserError, match="the delta rule needs beta of shape"):
        linear.attend_decaying(q, k, v, g.expand(-1, -1, -1, K), beta)
    with pytest.raises(UserError, match="chunk must be at least 1: chunk=0"):
        linear.attend_decaying(q, k, v, g, chunk=0)
    with pytest.raises(UserError, match=f"chunk must be from 1 to {CHANNEL_CHUNK}"):
        linear.attend_decaying(q, k, v, g.expand(-1, -1, -1, K), chunk=64)
    with pytest.raises(UserError, match="path must be one of"):
        linear.attend_decaying(q, k, v, g, path="fastest")  # type: ignore[arg-type]
    with pytest.raises(UserError, match='path "kernel" needs one decay for a head'):
        linear.attend_decaying(q, k, v, g.expand(-1, -1, -1, K), path="kernel")
    with pytest.raises(UserError, match=r'path "kernel" cannot be taken: .*; try path="auto"'):
        linear.attend_decaying(q, k, v, g, path="kernel")
