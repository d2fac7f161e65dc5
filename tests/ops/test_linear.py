"""Linear attention: all paths are one function, in value and in gradient; random features estimate the softmax."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from octavo.errors import UserError
from octavo.ops import linear
from octavo.ops.linear.feature_maps import HIGHEST, key_features, log_features, query_features
from octavo.ops.linear.reference import full

B, H, K, V = 2, 3, 5, 4
LENGTHS = (1, 2, 63, 64, 65, 200)
PATHS: tuple[linear.Path, ...] = ("parallel", "chunked", "recurrent")
EXACT: dict[str, Any] = {"rtol": 1e-10, "atol": 1e-11}


def drawn(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def case(T: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, linear.State]:
    q, k = linear.features("elu", drawn(B, H, T, K, seed=seed), drawn(B, H, T, K, seed=seed + 1))
    S, z = drawn(B, H, K, V, seed=seed + 3), drawn(B, H, K, seed=seed + 4).exp()
    return q, k, drawn(B, H, T, V, seed=seed + 2), (S, z)


def values_and_gradients(path: linear.Path, T: int, with_state: bool, cut: int | None = None) -> list[Tensor]:
    """y, the last state, and the gradients of q, k, v and the first state for a loss that weighs all of them."""
    q, k, v, state = case(T)
    given = [x.detach().requires_grad_() for x in (q, k, v, *(state if with_state else ()))]
    q, k, v = given[:3]
    before = (given[3], given[4]) if with_state else None
    if cut is None:
        y, after = linear.attend_linear(q, k, v, before, path=path)
    else:
        first, between = linear.attend_linear(q[:, :, :cut], k[:, :, :cut], v[:, :, :cut], before, path=path)
        second, after = linear.attend_linear(q[:, :, cut:], k[:, :, cut:], v[:, :, cut:], between, path=path)
        y = torch.cat([first, second], 2)
    loss = sum((out * drawn(*out.shape, seed=9 + i)).sum() for i, out in enumerate((y, *after)))
    return [y, *after, *torch.autograd.grad(loss, given)]  # type: ignore[arg-type]


@pytest.mark.parametrize("T", LENGTHS)
@pytest.mark.parametrize("with_state", [False, True])
def test_all_paths_are_equal_in_value_and_gradient(T: int, with_state: bool) -> None:
    expected = values_and_gradients("recurrent", T, with_state)
    for path in ("parallel", "chunked", "auto"):
        for ours, theirs in zip(values_and_gradients(path, T, with_state), expected, strict=True):  # type: ignore[arg-type]
            torch.testing.assert_close(ours, theirs, **EXACT)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("cut", [0, 1, 63, 64, 100, 129])
def test_cutting_anywhere_changes_nothing_when_the_state_is_carried(path: linear.Path, cut: int) -> None:
    whole = values_and_gradients("parallel", 130, True)
    for ours, theirs in zip(values_and_gradients(path, 130, True, cut), whole, strict=True):
        torch.testing.assert_close(ours, theirs, **EXACT)


@pytest.mark.parametrize("chunk", [1, 7, 64, 500])
def test_the_size_of_the_chunks_changes_nothing(chunk: int) -> None:
    q, k, v, state = case(65)
    expected, _ = linear.attend_linear(q, k, v, state, path="recurrent")
    torch.testing.assert_close(linear.attend_linear(q, k, v, state, path="chunked", chunk=chunk)[0], expected, **EXACT)


def test_three_tokens_by_hand() -> None:
    q, k, v = (torch.tensor(x, dtype=torch.float64).view(1, 1, 3, 1) for x in ([1, 2, 4], [3, 1, 2], [6, 2, 9]))
    for path in PATHS:
        y, (S, z) = linear.attend_linear(q, k, v, path=path)
        assert y.flatten().tolist() == pytest.approx([6, (3 * 6 + 2) / 4, (18 + 2 + 18) / 6])
        assert (S.item(), z.item()) == pytest.approx((38, 6))


@pytest.mark.parametrize("path", PATHS)
def test_the_future_cannot_change_the_past(path: linear.Path) -> None:
    q, k, v, state = case(130)
    other_k, other_v = k.clone(), v.clone()
    other_k[:, :, 70:], other_v[:, :, 70:] = 3.0, -5.0
    one, other = (linear.attend_linear(q, a, b, state, path=path)[0] for a, b in ((k, v), (other_k, other_v)))
    assert torch.equal(one[:, :, :70], other[:, :, :70])
    assert not torch.allclose(one[:, :, 70:], other[:, :, 70:])


def test_the_map_is_the_one_that_attend_applies() -> None:
    q, k, v, state = case(65)
    y, _ = linear.attend_linear(q, k, v, path="chunked")
    a, after_state = linear.linear_weights(q, k), linear.linear_weights(q, k, state)
    torch.testing.assert_close(a @ v, y, **EXACT)
    torch.testing.assert_close(a.sum(-1), torch.ones(B, H, 65, dtype=torch.float64))
    assert bool((a.triu(1) == 0).all())
    past = (q @ state[1][..., None]).squeeze(-1) / ((q @ state[1][..., None]).squeeze(-1) + (q @ k.mT).tril().sum(-1))
    torch.testing.assert_close(1 - after_state.sum(-1), past, **EXACT)


@pytest.mark.parametrize("path", PATHS)
def test_a_query_that_matches_nothing_gets_zeros_and_no_gradient(path: linear.Path) -> None:
    q, k, v, _ = case(65)
    k = k * (torch.arange(65) >= 3).double()[:, None]  # nothing to match before the fourth token
    q, k, v = (x.requires_grad_() for x in (q.detach(), k.detach(), v.detach()))
    y, _ = linear.attend_linear(q, k, v, path=path)
    y.sum().backward()
    assert bool((y[:, :, :3] == 0).all())
    for x in (q, k, v):
        assert x.grad is not None
        assert bool(x.grad.isfinite().all())
    assert q.grad is not None
    assert bool((q.grad[:, :, :3] == 0).all())
    assert bool((linear.linear_weights(q, k).detach()[:, :, :3] == 0).all())


def test_an_encoder_looks_both_ways() -> None:
    q, k, v, _ = case(17)
    a = q @ k.mT
    torch.testing.assert_close(full(q, k, v), (a / a.sum(-1, keepdim=True)) @ v, **EXACT)
    torch.testing.assert_close(linear.linear_weights(q, k, causal=False) @ v, full(q, k, v), **EXACT)
    torch.testing.assert_close(full(q[:, :, -1:], k, v), linear.attend_linear(q, k, v)[0][:, :, -1:], **EXACT)


@pytest.mark.parametrize("path", PATHS)
def test_low_precision_values_are_summed_in_single_precision(path: linear.Path) -> None:
    ones = torch.ones(1, 1, 600, 1, dtype=torch.bfloat16)  # bfloat16 itself counts no further than 256
    with torch.autocast("cpu", torch.bfloat16):
        y, (S, z) = linear.attend_linear(ones, ones, ones, path=path)
    assert y.dtype == torch.bfloat16
    assert S.dtype == torch.float32
    assert (S.item(), z.item()) == (600, 600)


@pytest.mark.parametrize("path", PATHS)
def test_a_state_of_low_precision_is_carried_on_in_single(path: linear.Path) -> None:
    ones = torch.ones(1, 1, 600, 1, dtype=torch.bfloat16)
    before = torch.zeros(1, 1, 1, 1, dtype=torch.bfloat16), torch.zeros(1, 1, 1, dtype=torch.bfloat16)
    _, (S, z) = linear.attend_linear(ones, ones, ones, before, path=path)
    assert (S.dtype, S.item(), z.item()) == (torch.float32, 600, 600)


def test_a_small_past_is_not_lost_before_a_large_key() -> None:
    # A chunk's own sum taken off the running sum again would leave nothing of the past for the chunk's first query.
    k = torch.ones(1, 1, 8, 1)
    k[0, 0, 7] = 1e12
    v = torch.arange(8.0).view(1, 1, 8, 1)
    y, _ = linear.attend_linear(torch.ones(1, 1, 8, 1), k, v, path="chunked", chunk=4)
    assert y.flatten()[:7].tolist() == pytest.approx([0, 0.5, 1, 1.5, 2, 2.5, 3])


def test_a_state_is_never_changed() -> None:
    q, k, v, (S, z) = case(70)
    before = S.clone(), z.clone()
    for path in PATHS:
        linear.attend_linear(q, k, v, (S, z), path=path)
    assert torch.equal(S, before[0])
    assert torch.equal(z, before[1])


@pytest.mark.parametrize("path", [*PATHS, "auto"])
def test_no_tokens_leave_the_state_as_it_was(path: linear.Path) -> None:
    q, k, v, (S, z) = case(0)
    y, after = linear.attend_linear(q, k, v, (S, z), path=path)
    assert y.shape == (B, H, 0, V)
    assert torch.equal(after[0], S)
    assert torch.equal(after[1], z)


def test_wrong_arguments_are_refused_with_the_rule() -> None:
    q, k, v, _ = case(3)
    with pytest.raises(UserError, match=r"q and k must have shape .B, H, T, K."):
        linear.attend_linear(q, k[:, :1], v)
    with pytest.raises(UserError, match="chunk must be at least 1: chunk=0"):
        linear.attend_linear(q, k, v, chunk=0)
    with pytest.raises(UserError, match="path must be one of"):
        linear.attend_linear(q, k, v, path="fastest")  # type: ignore[arg-type]
    with pytest.raises(UserError, match='path "kernel" cannot be taken'):
        linear.attend_linear(q, k, v, path="kernel")
    with pytest.raises(UserError, match="features must be one of"):
        linear.features("cosine", q, k)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="need their directions"):
        linear.features("random", q, k)


@pytest.mark.parametrize("kind", ["elu", "relu"])
def test_features_are_positive(kind: linear.Features) -> None:
    x = torch.linspace(-80, 80, 1001)
    for phi in linear.features(kind, x, x):
        assert bool((phi > 0).all())
        assert bool((phi.diff() >= 0).all())


def test_elu_features_are_elu_plus_one() -> None:
    x = torch.linspace(-6, 6, 13, dtype=torch.float64, requires_grad=True)  # zero is one of them
    ours, theirs = linear.features("elu", x, x)[0], F.elu(x) + 1
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(*(torch.autograd.grad(phi.square().sum(), x)[0] for phi in (ours, theirs)))


def test_directions_are_orthogonal_with_the_lengths_of_normal_vectors() -> None:
    K, M = 8, 20_000
    w_MK = linear.draw_random_features(K, M, torch.Generator().manual_seed(1), torch.float64)
    unit_NKK = F.normalize(w_MK, dim=-1).view(-1, K, K)
    torch.testing.assert_close(unit_NKK @ unit_NKK.mT, torch.eye(K, dtype=torch.float64).expand_as(unit_NKK))
    # Of M normal vectors |w|² is on average K with variance 2K, each coordinate has mean 0 and variance 1.
    squared = w_MK.square().sum(-1)
    assert squared.mean().item() == pytest.approx(K, abs=5 * math.sqrt(2 * K / M))
    assert squared.var().item() == pytest.approx(2 * K, rel=0.1)
    assert w_MK.mean(0).abs().max().item() < 5 / math.sqrt(M)
    assert linear.draw_random_features(K, 3, torch.Generator().manual_seed(1)).shape == (3, K)


def test_random_features_estimate_the_softmax_kernel_without_bias() -> None:
    # The mean of 2,000 independent draws must lie within 5 of its own standard errors of exp(q · k / sqrt(K)).
    K, M, draws = 16, 32, 2000
    generator = torch.Generator().manual_seed(2)
    q, k = drawn(6, K, seed=5) * 0.7, drawn(6, K, seed=6) * 0.7
    estimates = []
    for _ in range(draws):
        w_MK = linear.draw_random_features(K, M, generator, torch.float64)
        estimates.append((log_features(q, w_MK).exp() * log_features(k, w_MK).exp()).sum(-1))
    estimate = torch.stack(estimates)
    truth = ((q * k).sum(-1) / math.sqrt(K)).exp()
    error = estimate.std(0) / math.sqrt(draws)
    assert bool((error < 0.05 * truth).all()), "the interval is too wide to tell anything"
    assert bool(((estimate.mean(0) - truth).abs() < 5 * error).all())


def test_more_random_features_come_closer_to_softmax_attention() -> None:
    q, k, v = drawn(1, 1, 40, 8, seed=1), drawn(1, 1, 40, 8, seed=2), drawn(1, 1, 40, 4, seed=3)
    expected = F.scaled_dot_product_attention(q * 0.5, k * 0.5, v, is_causal=True)
    errors = []
    for M in (64, 1024, 16384):
        generator, squared = torch.Generator().manual_seed(4), 0.0
        for _ in range(10):
            w_MK = linear.draw_random_features(8, M, generator, torch.float64)
            y, _ = linear.attend_linear(*linear.features("random", q * 0.5, k * 0.5, w_MK), v)
            squared += (y - expected).square().mean().item()
        errors.append(math.sqrt(squared / 10))
    assert errors[0] > 3 * errors[1] > 9 * errors[2]  # it falls as 1 / sqrt(M): by 4 each time


def test_what_keeps_random_features_from_overflow_changes_neither_values_nor_gradients() -> None:
    w_MK = linear.draw_random_features(8, 16, torch.Generator().manual_seed(1), torch.float64)
    results = []
    for stabilised in (False, True):
        q, k, v = (drawn(1, 2, 20, n, seed=n + i).requires_grad_() for i, n in enumerate((8, 8, 4)))
        phi = query_features(q, w_MK), key_features(k, w_MK)
        raw = log_features(q, w_MK).exp(), log_features(k, w_MK).exp()
        y, _ = linear.attend_linear(*(phi if stabilised else raw), v)
        results.append([y, *torch.autograd.grad(y.square().sum(), (q, k, v))])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


def test_no_key_can_overflow_single_precision() -> None:
    w_MK = linear.draw_random_features(128, 512, torch.Generator().manual_seed(3))
    worst_MK = w_MK * 128**0.25  # the keys whose exponents are as high as they can get: x = w
    assert key_features(worst_MK, w_MK).amax() <= math.exp(HIGHEST)
    assert log_features(worst_MK, w_MK).amax() > HIGHEST  # without the limit they would be higher
    assert key_features(worst_MK, w_MK).sum(0).isfinite().all()
    assert query_features(worst_MK, w_MK).amax() == 1


@pytest.mark.parametrize("K", [256, 512])
def test_the_keys_of_large_heads_do_not_vanish(K: int) -> None:
    w_MK = linear.draw_random_features(K, K, torch.Generator().manual_seed(3))
    q, k = (x * K**0.5 / x.norm(dim=-1, keepdim=True) for x in (drawn(1, 1, 9, K, seed=s).float() for s in (1, 2)))
    y, _ = linear.attend_linear(*linear.features("random", q, k, w_MK), torch.ones(1, 1, 9, 1))
    torch.testing.assert_close(y, torch.ones(1, 1, 9, 1))  # a mean of ones; zero where nothing matches


def test_half_precision_features_are_stored_in_single_precision() -> None:
    w_MK = linear.draw_random_features(8, 16, torch.Generator().manual_seed(1))
    x = drawn(3, 8, seed=1)
    assert {phi.dtype for phi in linear.features("random", x.half(), x.half(), w_MK)} == {torch.float32}
    assert {phi.dtype for phi in linear.features("random", x.bfloat16(), x.bfloat16(), w_MK)} == {torch.bfloat16}


def test_auto_takes_the_recurrence_for_one_token_one_map_for_a_chunk_and_chunks_beyond() -> None:
    q, _, v, _ = case(65)
    assert [linear.choose(q[:, :, :T], v[:, :, :T]) for T in (1, 2, 64, 65)] == [
        "recurrent", "parallel", "parallel", "chunked",
    ]  # fmt: skip
