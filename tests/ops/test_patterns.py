"""Patterns of attention: what each allows by hand, what they make together, and how they count. T queries, S keys."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from octavo.errors import UserError
from octavo.ops.attention import (
    CAUSAL,
    FULL,
    Axial,
    Block,
    Global,
    Local,
    Neighbourhood,
    Padding,
    Pattern,
    Strided,
    patterns,
)

LEAVES = st.one_of(
    st.just(FULL),
    st.just(CAUSAL),
    st.builds(Local, st.integers(1, 9)),
    st.builds(Global, st.integers(1, 4)),
    st.builds(Block, st.integers(1, 9)),
    st.builds(Strided, st.integers(1, 9)),
    st.builds(Axial, st.integers(1, 4), st.integers(1, 4), globals=st.integers(0, 2)),
    st.builds(Neighbourhood, st.integers(1, 4), st.integers(1, 4), st.integers(0, 2), globals=st.integers(0, 2)),
)
PATTERNS = st.recursive(
    LEAVES,
    lambda inner: st.builds(lambda a, b, both: a & b if both else a | b, inner, inner, st.booleans()),
    max_leaves=3,
)


def drawn(pattern: Pattern, T: int, S: int) -> list[str]:
    """The mask as a drawing, a line a query."""
    return ["".join("#" if seen else "." for seen in row) for row in pattern.mask(T, S).tolist()]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (FULL, ["####", "####", "####", "####"]),
        (CAUSAL, ["#...", "##..", "###.", "####"]),
        (Local(2), ["##..", "###.", ".###", "..##"]),
        (CAUSAL & Local(2), ["#...", "##..", ".##.", "..##"]),
        (Global(1), ["####", "#...", "#...", "#..."]),
        (Global(1) | Local(1), ["####", "##..", "#.#.", "#..#"]),
        (CAUSAL & (Global(1) | Local(2)), ["#...", "##..", "###.", "#.##"]),
        (Block(2), ["##..", "##..", "..##", "..##"]),
        (Strided(3), ["#..#", ".#..", "..#.", "#..#"]),
        (CAUSAL & Strided(2), ["#...", ".#..", "#.#.", ".#.#"]),
        (Axial(2, 2), ["###.", "##.#", "#.##", ".###"]),
        (Axial(1, 3, globals=1), ["####", "####", "####", "####"]),
        (Neighbourhood(1, 4), ["##..", "###.", ".###", "..##"]),
        (Neighbourhood(4, 1, radius=2), ["###.", "####", "####", ".###"]),
        (Neighbourhood(1, 3, radius=0, globals=1), ["####", "##..", "#.#.", "#..#"]),
        (Neighbourhood(1, 2, radius=0), ["#...", ".#..", "....", "...."]),
    ],
)
def test_four_tokens_see_what_the_drawing_says(pattern: Pattern, expected: list[str]) -> None:
    assert drawn(pattern, 4, 4) == expected


def test_the_rows_of_an_image_do_not_run_into_each_other() -> None:
    assert drawn(Neighbourhood(2, 3), 6, 6) == ["##.##.", "######", ".##.##", "##.##.", "######", ".##.##"]
    assert drawn(Axial(2, 3), 6, 6) == ["####..", "###.#.", "###..#", "#..###", ".#.###", "..####"]


@given(PATTERNS, st.integers(0, 12), st.integers(0, 12))
def test_the_queries_are_the_last_positions(pattern: Pattern, T: int, more: int) -> None:
    S = T + more
    assert torch.equal(pattern.mask(T, S), pattern.mask(S, S)[more:])


@given(PATTERNS, st.integers(0, 13), st.integers(0, 13), st.integers(1, 40))
def test_pairs_counted_band_by_band_are_those_that_brute_force_finds(
    pattern: Pattern, T: int, S: int, room: int
) -> None:
    positions = [(t, s) for t in range(S - T, S) for s in range(S)]
    by_hand = sum(bool(pattern.allows(torch.tensor(t), torch.tensor(s))) for t, s in positions)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(patterns, "MAX_MASK_ENTRIES", room)
        assert pattern.pairs(T, S) == by_hand


def test_256_patches_in_3_by_3_neighbourhoods_with_one_global_token_are_2629_pairs() -> None:
    """A row of 16 has 3 × 16 - 2 pairs of neighbours, an image of 16 × 16 the square of that; the global token sees
    257 and is seen by 256 others."""
    assert (3 * 16 - 2) ** 2 + 257 + 256 == 2629
    assert Neighbourhood(16, 16).pairs(256, 256) == 2116
    assert Neighbourhood(16, 16, radius=1, globals=1).pairs(257, 257) == 2629
    assert (Global(1) | Neighbourhood(16, 16, radius=1, globals=1)).pairs(257, 257) == 2629


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (FULL, 2048 * 2048),
        (CAUSAL, 2048 * 2049 // 2),
        (CAUSAL & Local(100), 2048 * 100 - 100 * 99 // 2),
        (Local(100), 2 * (2048 * 100 - 100 * 99 // 2) - 2048),
        (Global(3), 2 * 3 * 2048 - 9),
        (Block(64), 2048 * 64),
        (Strided(64), 2048 * 32),
        (Axial(32, 64), 2048 * (32 + 64 - 1)),
    ],
)
def test_pairs_of_2048_tokens_are_those_of_the_closed_form(pattern: Pattern, expected: int) -> None:
    assert pattern.pairs(2048, 2048) == expected


def test_counting_holds_no_whole_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    held = []
    allows = patterns.Causal.allows

    def watching(self: patterns.Causal, t: Tensor, s: Tensor) -> Tensor:
        held.append(allows(self, t, s))
        return held[-1]

    monkeypatch.setattr(patterns.Causal, "allows", watching)
    monkeypatch.setattr(patterns, "MAX_MASK_ENTRIES", 1000)
    assert (CAUSAL | Global(1)).pairs(100, 100) == 5050 + 99
    assert len(held) == 10
    assert max(mask.numel() for mask in held) == 1000


def test_padding_hides_the_keys_behind_each_rows_length() -> None:
    mask_B1TS = Padding(torch.tensor([3, 1, 0])).mask(2, 3)
    assert mask_B1TS.shape == (3, 1, 2, 3)
    assert mask_B1TS[:, 0].tolist() == [[[True] * 3] * 2, [[True, False, False]] * 2, [[False] * 3] * 2]


def test_padding_composes_and_counts_over_all_rows() -> None:
    pattern = CAUSAL & Padding(torch.tensor([3, 1]))
    assert pattern.mask(3, 3)[:, 0].tolist() == [
        [[True, False, False], [True, True, False], [True, True, True]],
        [[True, False, False]] * 3,
    ]
    assert pattern.pairs(3, 3) == 6 + 3
    assert (pattern.rows, CAUSAL.rows, (Global(1) | pattern).rows) == (2, None, 2)


def test_one_row_of_a_padded_pattern_is_that_row_of_its_mask() -> None:
    pattern = (CAUSAL & Padding(torch.tensor([3, 1]))) | Global(1)
    for b in range(2):
        assert torch.equal(pattern.row(torch.tensor(b)).mask(3, 4), pattern.mask(3, 4)[b, 0])


def test_patterns_are_values() -> None:
    assert CAUSAL & Local(3) == CAUSAL & Local(3)
    assert CAUSAL & Local(3) != CAUSAL & Local(4)
    assert len({Global(1) | Local(3), Global(1) | Local(3), Global(1) & Local(3)}) == 2


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: Local(0), "window=0"),
        (lambda: Global(-1), "tokens=-1"),
        (lambda: Block(0), "size=0"),
        (lambda: Strided(0), "stride=0"),
        (lambda: Axial(0, 3), "height=0"),
        (lambda: Neighbourhood(3, 0), "width=0"),
        (lambda: Neighbourhood(3, 3, radius=-1), "radius=-1"),
        (lambda: Axial(3, 3, globals=-1), "globals=-1"),
    ],
)
def test_a_pattern_of_no_size_is_refused(make: type[Pattern], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        make()
