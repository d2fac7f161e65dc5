"""Positions: what the sinusoids, the rotations and the slopes promise. T queries, S keys, K size, D width, H heads."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from octavo.core import seeded_generator
from octavo.errors import UserError
from octavo.ops.attention import CAUSAL, attend
from octavo.ops.positions import (
    added,
    alibi_bias,
    alibi_slopes,
    concatenated,
    frequencies,
    rotary_angles,
    rotate,
    sinusoids,
)

DOUBLE = torch.float64
EXACT = {"rtol": 1e-10, "atol": 1e-12}


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=DOUBLE, generator=seeded_generator(seed))


def test_the_first_sinusoids_are_those_of_the_formula() -> None:
    p_TD = sinusoids(torch.tensor([0, 1, 7]), 4, dtype=DOUBLE)
    expected = [[math.sin(t), math.cos(t), math.sin(t / 100), math.cos(t / 100)] for t in (0, 1, 7)]
    torch.testing.assert_close(p_TD, torch.tensor(expected, dtype=DOUBLE), **EXACT)


@given(st.integers(0, 10_000), st.integers(-3000, 3000))
def test_a_shift_of_the_sinusoid_turns_each_pair_by_a_matrix_of_the_shift_alone(position: int, shift: int) -> None:
    p_D, shifted_D = sinusoids(torch.tensor([position, position + shift]), 8, dtype=DOUBLE)
    for pair, w in enumerate(frequencies(8).tolist()):
        cos, sin = math.cos(w * shift), math.sin(w * shift)
        turn = torch.tensor([[cos, sin], [-sin, cos]], dtype=DOUBLE)
        here = slice(2 * pair, 2 * pair + 2)
        torch.testing.assert_close(turn @ p_D[here], shifted_D[here], rtol=0, atol=1e-9)


def test_sinusoids_are_added_or_put_beside() -> None:
    x_BTD, p_TD = random(2, 3, 4), sinusoids(torch.arange(3), 4, dtype=DOUBLE)
    assert torch.equal(added(x_BTD, p_TD), x_BTD + p_TD)
    beside = concatenated(x_BTD, p_TD)
    assert torch.equal(beside[..., :4], x_BTD)
    assert torch.equal(beside[1, :, 4:], p_TD)


@given(st.integers(0, 1000), st.integers(0, 1000), st.integers(0, 5_000_000))
def test_scores_of_turned_queries_and_keys_depend_on_the_distance_alone(t: int, s: int, shift: int) -> None:
    q_K, k_K = random(8, seed=1), random(8, seed=2)

    def score(t: int, s: int) -> Tensor:
        turned = (rotate(x, rotary_angles(torch.tensor(p), 8, dtype=DOUBLE)) for x, p in ((q_K, t), (k_K, s)))
        return torch.dot(*turned)

    torch.testing.assert_close(score(t + shift, s + shift), score(t, s), rtol=1e-7, atol=1e-7)


def test_turning_is_a_rotation_of_pairs_by_hand() -> None:
    x_K, position, slow = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=DOUBLE), 5, 5 / 100
    angles = rotary_angles(torch.tensor(position), 4, dtype=DOUBLE)

    def turned(a: float, b: float, angle: float) -> tuple[float, float]:
        return a * math.cos(angle) - b * math.sin(angle), b * math.cos(angle) + a * math.sin(angle)

    (a, c), (b, d) = turned(1, 3, position), turned(2, 4, slow)
    torch.testing.assert_close(rotate(x_K, angles), torch.tensor([a, b, c, d], dtype=DOUBLE), **EXACT)


def test_the_paper_s_pairs_of_neighbours_differ_by_a_permutation_of_the_numbers() -> None:
    x_BHTK, angles_TK = random(2, 3, 5, 8), rotary_angles(torch.arange(5), 8, dtype=DOUBLE)
    halves = torch.cat([torch.arange(0, 8, 2), torch.arange(1, 8, 2)])
    turned = torch.view_as_complex(x_BHTK.unflatten(-1, (4, 2))) * torch.complex(*angles_TK.chunk(2, -1))
    neighbours = torch.view_as_real(turned).flatten(-2)
    torch.testing.assert_close(rotate(x_BHTK[..., halves], angles_TK), neighbours[..., halves], **EXACT)


def test_angles_at_millions_are_exact_though_they_are_given_in_single_precision() -> None:
    position = torch.tensor(7_654_321)
    expected = [math.cos(7_654_321 * 10_000 ** (-i / 32)) for i in range(32)]
    cos_K = rotary_angles(position, 64)[:32]
    torch.testing.assert_close(cos_K.double(), torch.tensor(expected, dtype=DOUBLE), rtol=0, atol=1e-7)
    single = (position.float() * frequencies(64).float()).cos()
    assert (single.double() - torch.tensor(expected, dtype=DOUBLE)).abs().max() > 0.05


def test_a_half_precision_query_is_turned_in_the_precision_of_the_angles() -> None:
    x_TK, angles_TK = random(6, 8).bfloat16(), rotary_angles(torch.arange(6), 8)
    assert torch.equal(rotate(x_TK, angles_TK), rotate(x_TK.float(), angles_TK).bfloat16())


def test_slopes_of_eight_heads_halve_from_a_half() -> None:
    assert alibi_slopes(8).tolist() == [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]
    torch.testing.assert_close(alibi_slopes(16)[:4], 2.0 ** -torch.tensor([0.5, 1, 1.5, 2], dtype=DOUBLE), **EXACT)
    assert alibi_slopes(1).tolist() == [1 / 256]


def test_slopes_of_twelve_heads_are_those_of_eight_and_every_second_of_sixteen() -> None:
    expected = [-1, -2, -3, -4, -5, -6, -7, -8, -0.5, -1.5, -2.5, -3.5]
    torch.testing.assert_close(alibi_slopes(12), 2.0 ** torch.tensor(expected, dtype=DOUBLE), **EXACT)


def test_the_bias_falls_with_the_distance_from_the_last_queries() -> None:
    assert alibi_bias(8, 2, 4)[1].tolist() == [[-0.5, -0.25, 0.0, -0.25], [-0.75, -0.5, -0.25, 0.0]]


def one_layer(x_TD: Tensor, positions: str) -> Tensor:
    """Attention of a sequence to itself, with positions of one kind."""
    T, D = x_TD.shape
    x_TD = added(x_TD, sinusoids(torch.arange(T), D, dtype=DOUBLE)) if positions == "added" else x_TD
    if positions == "concatenated":
        x_TD = concatenated(x_TD, sinusoids(torch.arange(T), D, dtype=DOUBLE))
    q_BHTK = k_BHTK = x_TD[None, None]
    if positions == "rotary":
        q_BHTK = k_BHTK = rotate(q_BHTK, rotary_angles(torch.arange(T), D, dtype=DOUBLE))
    bias_HTS = alibi_bias(8, T, T, DOUBLE)[:1] if positions == "alibi" else None
    return attend(q_BHTK, k_BHTK, x_TD[None, None], bias_HTS=bias_HTS)[0, 0]


@pytest.mark.parametrize("positions", ["none", "added", "concatenated", "rotary", "alibi"])
def test_attention_knows_the_order_of_its_tokens_only_by_positions(positions: str) -> None:
    x_TD, order = random(7, 8), torch.tensor([3, 0, 6, 2, 1, 5, 4])
    permuted_after, permuted_before = one_layer(x_TD, positions)[order], one_layer(x_TD[order], positions)
    off = float((permuted_after - permuted_before)[..., :8].abs().max())
    assert off < 1e-12 if positions == "none" else off > 0.05


def test_a_causal_pattern_tells_the_order_without_positions() -> None:
    x_BHTK, order = random(1, 1, 5, 4), torch.tensor([4, 3, 2, 1, 0])
    y, y_of_reversed = attend(x_BHTK, x_BHTK, x_BHTK, CAUSAL), attend(*[x_BHTK[:, :, order]] * 3, CAUSAL)
    assert (y[:, :, order] - y_of_reversed).abs().max() > 0.05


@pytest.mark.parametrize("size", [0, 1, 7])
def test_an_odd_size_has_a_number_without_a_pair(size: int) -> None:
    with pytest.raises(UserError, match=f"must be even: size={size}"):
        rotary_angles(torch.arange(3), size)


def test_slopes_of_no_head_are_refused() -> None:
    with pytest.raises(UserError, match="heads=0"):
        alibi_slopes(0)
