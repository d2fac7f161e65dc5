"""Synthesizers need no keys; channel attention is ordinary attention on the transposed input."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from octavo.errors import UserError
from octavo.ops import channel_attention as channel
from octavo.ops.attention import reference
from octavo.ops.attention.patterns import CAUSAL
from octavo.ops.attention.synthesizer import dense_logits, synthesize, synthesizer_weights
from octavo.ops.tracing import trace

B, H, T, K, V = 2, 3, 9, 4, 5


def drawn(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def logits_of(kind: str, S: int = T) -> Tensor:
    """The logits of the last T of S positions."""
    if kind == "dense":
        return dense_logits(drawn(B, H, T, K, seed=1), drawn(H, S, K, seed=2))
    if kind == "random":
        return drawn(H, T, S, seed=3)
    return drawn(H, T, 2, seed=4) @ drawn(H, S, 2, seed=5).mT  # a random map of rank 2


KINDS = ("dense", "random", "factorised")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("S", [T, T + 4])
def test_the_fast_path_equals_the_plain_equation_in_value_and_gradient(kind: str, S: int) -> None:
    results = []
    for path in ("auto", "plain"):
        logits, v = logits_of(kind, S).requires_grad_(), drawn(B, H, S, V, seed=6).requires_grad_()
        y = synthesize(logits, v, path=path)  # type: ignore[arg-type]
        results.append([y, *torch.autograd.grad((y * drawn(*y.shape, seed=7)).sum(), (logits, v))])
    for fast, plain in zip(*results, strict=True):
        torch.testing.assert_close(fast, plain, rtol=1e-12, atol=1e-12)


def test_a_dense_synthesizer_by_hand() -> None:
    h, places = torch.tensor([[[[-1.0, 2.0], [1.0, 0.0]]]]), torch.tensor([[[5.0, 1.0], [3.0, -1.0]]])
    assert dense_logits(h, places)[0, 0].tolist() == [[2, -2], [5, 3]]  # relu(h) is (0, 2) and (1, 0)
    a = synthesizer_weights(dense_logits(h, places))[0, 0]
    torch.testing.assert_close(a, torch.tensor([[1, 0], [torch.tensor(2.0).sigmoid(), torch.tensor(-2.0).sigmoid()]]))


@pytest.mark.parametrize("kind", KINDS)
def test_rows_sum_to_one_over_the_past(kind: str) -> None:
    for S in (T, T + 4):
        a = synthesizer_weights(logits_of(kind, S))
        torch.testing.assert_close(a.sum(-1), torch.ones_like(a[..., 0]))
        future = torch.arange(S) > torch.arange(S - T, S)[:, None]
        assert bool((a[..., future] == 0).all())
        assert bool((a[..., ~future] > 0).all())


@pytest.mark.parametrize("kind", KINDS)
def test_the_map_does_not_depend_on_the_tokens_it_looks_at(kind: str) -> None:
    with trace() as seen:
        for seed in (6, 7):
            synthesize(logits_of(kind), drawn(B, H, T, V, seed=seed))
    one, other = seen["attention"]
    assert one.shape == (B, H, T, T)
    assert torch.equal(one, other)


def test_a_dense_row_depends_on_its_own_token_alone_and_a_random_one_on_none() -> None:
    h, places, v = drawn(B, H, T, K, seed=1), drawn(H, T, K, seed=2), drawn(B, H, T, V, seed=6)
    changed = h.clone()
    changed[:, :, 4] += 1
    rows = (
        (synthesizer_weights(dense_logits(h, places)) != synthesizer_weights(dense_logits(changed, places)))
        .any(-1)
        .any(0)
        .any(0)
    )
    assert rows.tolist() == [t == 4 for t in range(T)]
    with trace() as seen:
        synthesize(logits_of("random"), v)
    assert torch.equal(seen["attention"][0][0], seen["attention"][0][1])  # both rows of the batch look alike


@pytest.mark.parametrize("kind", KINDS)
def test_the_future_cannot_change_the_past(kind: str) -> None:
    logits, v = logits_of(kind), drawn(B, H, T, V, seed=6)
    other_logits, other_v = logits.clone(), v.clone()
    other_logits[..., 6:, :], other_logits[..., :, 6:], other_v[:, :, 6:] = 9.0, -9.0, 100.0
    one, other = synthesize(logits, v), synthesize(other_logits, other_v)
    assert torch.equal(one[:, :, :6], other[:, :, :6])
    assert not torch.allclose(one[:, :, 6:], other[:, :, 6:])


def test_with_the_logits_of_queries_and_keys_it_is_softmax_attention() -> None:
    q, k, v = drawn(B, H, T, K, seed=1), drawn(B, H, T, K, seed=2), drawn(B, H, T, V, seed=3)
    ours = synthesize(q @ k.mT / K**0.5, v)
    torch.testing.assert_close(ours, F.scaled_dot_product_attention(q, k, v, is_causal=True), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(ours, reference.attend_reference(q, k, v, CAUSAL), rtol=1e-12, atol=1e-12)


def test_a_factorised_map_has_its_rank() -> None:
    assert torch.linalg.matrix_rank(logits_of("factorised")).tolist() == [2] * H


def test_low_precision_logits_give_values_of_their_own_precision() -> None:
    logits, v = logits_of("random"), drawn(B, H, T, V, seed=6)
    y = synthesize(logits.bfloat16(), v.bfloat16())
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y.double(), synthesize(logits, v), rtol=0.02, atol=0.02)


def test_shapes_that_do_not_fit_are_refused() -> None:
    v = drawn(B, H, T, V, seed=6)
    with pytest.raises(UserError, match=r"logits must be .B, H, T, S."):
        synthesize(logits_of("random")[..., :-1], v)
    with pytest.raises(UserError, match="T=9 queries, S=8 keys"):
        synthesizer_weights(logits_of("random")[..., :-1])


N, C, G = 7, 4, 3


def channels() -> list[Tensor]:
    return [channel.in_groups(drawn(B, N, G * C, seed=seed), G) for seed in (1, 2, 3)]


def test_channel_attention_is_spatial_attention_on_the_transposed_input() -> None:
    q, k, v = channels()
    ours = channel.attend_channels(q, k, v)
    torch.testing.assert_close(ours, reference.attend_reference(q.mT, k.mT, v.mT).mT, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(ours, F.scaled_dot_product_attention(q.mT, k.mT, v.mT).mT, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(
        channel.channel_weights(q, k), reference.attention_weights(q.mT, k.mT), rtol=1e-12, atol=1e-12
    )


def test_channel_attention_by_hand() -> None:
    q, k, v = channels()
    y, e = channel.attend_channels(q, k, v), torch.zeros(C, dtype=torch.float64)
    for d in range(C):
        e[d] = sum(q[1, 2, n, 0] * k[1, 2, n, d] for n in range(N)) / N**0.5
    a = e.exp() / e.exp().sum()
    torch.testing.assert_close(y[1, 2, :, 0], (v[1, 2] * a).sum(-1))
    torch.testing.assert_close(channel.channel_weights(q, k).sum(-1), torch.ones(B, G, C, dtype=torch.float64))


def test_the_order_of_the_positions_is_nothing_to_channels_and_groups_do_not_mix() -> None:
    q, k, v = channels()
    order = torch.tensor([3, 1, 6, 0, 2, 5, 4])
    shuffled = channel.attend_channels(q[:, :, order], k[:, :, order], v[:, :, order])
    torch.testing.assert_close(shuffled, channel.attend_channels(q, k, v)[:, :, order])
    other = [x.clone() for x in (q, k, v)]
    for x in other:
        x[:, 0] = 1.5
    assert torch.equal(channel.attend_channels(*other)[:, 1:], channel.attend_channels(q, k, v)[:, 1:])


def test_groups_are_cut_and_joined_without_loss() -> None:
    x = drawn(B, N, G * C, seed=1)
    assert torch.equal(torch.cat(channel.in_groups(x, G).unbind(1), -1), x)
    assert torch.equal(channel.in_groups(x, G)[:, 1], x[..., C : 2 * C])
    with pytest.raises(UserError, match="channels=12, groups=5; try groups=4"):
        channel.in_groups(x, 5)
    q, k, v = channels()
    with pytest.raises(UserError, match=r"must all have shape \(B, G, N, C\)"):
        channel.attend_channels(q, k[:, :, 1:], v)


@pytest.mark.parametrize("groups", [1, 3])
def test_the_costs_are_those_that_pytorch_counts(groups: int) -> None:
    x = [channel.in_groups(drawn(1, 32, 12, seed=seed), groups) for seed in (1, 2, 3)]
    with FlopCounterMode(display=False) as over_channels:
        channel.attend_channels(*x)
    with FlopCounterMode(display=False) as over_positions:
        reference.attend_reference(*x)
    assert over_channels.get_total_flops() == channel.channel_operations(32, 12, groups)
    assert over_positions.get_total_flops() == 4 * 32 * 32 * 12
    # N D² / G against N² D: equal at N = D / G, and cheaper beyond.
    assert channel.channel_operations(4, 12, 3) == 4 * 4 * 4 * 12
    assert channel.channel_operations(40, 12, 3) * 10 == 4 * 40 * 40 * 12
