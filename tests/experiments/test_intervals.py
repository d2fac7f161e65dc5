"""Intervals over blocks, paired differences of models, and the sizes of compressors."""

from __future__ import annotations

import bz2
import lzma
import zlib

import numpy as np
import pytest
import zstandard
from scipy import stats

from html_pages import sentences
from octavo.experiments.compare.compressors import (
    BZ2_BLOCK_BYTES,
    COMPRESSORS,
    best_way,
    bytes_before_block,
    run_length_size,
    why_missing,
)
from octavo.experiments.compare.intervals import (
    MAX_BLOCKS,
    MIN_BLOCK_BYTES,
    BlockCosts,
    block_bits,
    block_ends,
    block_interval,
    paired_difference,
    t_interval,
)

# ---------------------------------------------------------------------- one model


def test_the_interval_over_blocks_is_students() -> None:
    bits_N = np.random.default_rng(0).gamma(2.0, 1.0, 4000).astype(np.float32)
    interval, over = block_interval(bits_N)
    means = bits_N.reshape(MAX_BLOCKS, 100).mean(1, dtype=np.float64)
    assert interval == pytest.approx(stats.t.interval(0.95, 39, loc=means.mean(), scale=stats.sem(means)), rel=1e-6)
    assert over == "over 40 blocks of the text"
    assert block_interval(bits_N[: 2 * MIN_BLOCK_BYTES - 1]) == (None, "")
    bits_N[7] = np.inf
    assert block_interval(bits_N) == (None, "")


@pytest.mark.parametrize("freedom", [1, 2, 4, 39, 400])
def test_intervals_are_students(freedom: int) -> None:
    values = np.random.default_rng(freedom).normal(size=freedom + 1)
    expected = stats.t.interval(0.95, freedom, loc=values.mean(), scale=stats.sem(values))
    assert t_interval(values.tolist()) == pytest.approx(expected, rel=1e-9)
    assert t_interval([1.0, 1.0, 1.0]) == (1.0, 1.0)


@pytest.mark.parametrize("size", [0, 63, 64, 129, 2559, 2560, 2600, 4001])
def test_blocks_have_one_length_and_lose_no_bit(size: int) -> None:
    bits_N = np.random.default_rng(size).gamma(2.0, 1.0, size)
    lengths = np.diff([0, *block_ends(size)])
    assert len(lengths) == {0: 0, 63: 0, 64: 1, 129: 2, 2559: 39, 2560: 40, 2600: 40, 4001: 40}[size]
    if size >= 64:
        assert lengths.max() - lengths.min() <= 1
        assert sum(block_bits(bits_N)) == pytest.approx(bits_N.sum())


# ---------------------------------------------------------------------- two models


def made(seed: int, blocks: int = 40, seeds: int = 1, gain: float = 0.0, noise: float = 3.0) -> list[list[float]]:
    """Bits of blocks of 100 bytes: hard and easy blocks are the same for all, `noise` is of this model alone."""
    text = np.random.default_rng(99).normal(250.0, 40.0, blocks)
    own = np.random.default_rng(seed).normal(0.0, noise, (seeds, blocks))
    return (text + own - 100 * gain).tolist()


def test_a_paired_difference_is_that_of_the_paired_t_test() -> None:
    a, b = made(1), made(2, gain=0.02)
    found = paired_difference(a, b, 4000)
    assert found is not None
    rates = [np.array(one[0]) / 100 for one in (a, b)]
    expected = stats.ttest_rel(*rates).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), rel=1e-9)
    assert found.mean == pytest.approx((sum(a[0]) - sum(b[0])) / 4000)  # the difference of the two bits per byte
    assert not found.is_tie
    independent = stats.ttest_ind(*rates).confidence_interval(0.95)
    assert independent.low < 0 < independent.high  # unpaired, nobody could tell


def test_unequal_blocks_still_give_the_difference_of_the_bits_per_byte() -> None:
    rng = np.random.default_rng(5)
    a_N, b_N = rng.gamma(2.0, 1.0, (2, 4011))
    found = paired_difference([block_bits(a_N)], [block_bits(b_N)], 4011)
    assert found is not None
    assert found.mean == pytest.approx(a_N.mean() - b_N.mean())


def test_without_differences_between_blocks_seeds_give_welchs_interval() -> None:
    rng = np.random.default_rng(3)
    a_S, b_S = rng.normal(2.0, 0.05, 3), rng.normal(2.1, 0.01, 5)
    a, b = ([[100 * bits] * 40 for bits in one] for one in (a_S, b_S))
    found = paired_difference(a, b, 4000)
    expected = stats.ttest_ind(a_S, b_S, equal_var=False).confidence_interval(0.95)
    assert found is not None
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), rel=1e-6)


def test_seeds_and_blocks_add_their_variances() -> None:
    a, b = made(1, seeds=3), made(2, seeds=4, gain=0.01)
    d_k = (np.mean(a, 0) - np.mean(b, 0)) / 100
    parts = [(d_k.var(ddof=1) / 40, 39)]
    parts += [(np.var(np.sum(one, 1) / 4000, ddof=1) / len(one), len(one) - 1) for one in (a, b)]
    v = sum(part for part, _ in parts)
    freedom = v**2 / sum(part**2 / free for part, free in parts)
    found = paired_difference(a, b, 4000)
    assert found is not None
    assert (found.low, found.high) == pytest.approx(stats.t.interval(0.95, freedom, d_k.mean(), np.sqrt(v)), rel=1e-9)


def test_equal_models_are_called_a_tie_in_nearly_all_texts_and_different_ones_are_not() -> None:
    ties = sum(paired_difference(made(2 * i), made(2 * i + 1), 4000).is_tie for i in range(400))  # type: ignore[union-attr]
    assert 365 <= ties <= 394  # 380 is what 95 % says; three standard deviations are 13
    decided = sum(not paired_difference(made(2 * i), made(2 * i + 1, gain=0.03), 4000).is_tie for i in range(50))  # type: ignore[union-attr]
    assert decided == 50


def test_the_sum_of_a_compressor_is_spread_evenly() -> None:
    a, b = made(1), made(2)
    alone = paired_difference(a, [[sum(b[0])]], 4000)
    assert alone is not None
    low, high = t_interval([bits / 100 - sum(b[0]) / 4000 for bits in a[0]])
    assert (alone.low, alone.high) == pytest.approx((low, high))
    other = paired_difference([[sum(b[0])]], a, 4000)
    assert other is not None
    assert (other.low, other.high) == pytest.approx((-high, -low))


def test_what_cannot_be_compared_has_no_difference() -> None:
    a = made(1)
    assert paired_difference(a, [a[0][:7]], 4000) is None  # of other blocks
    assert paired_difference([[1.0]], [[2.0]], 64) is None
    assert paired_difference(a, [[*a[0][:39], np.inf]], 4000) is None
    costs = BlockCosts(4000, {"a": a, "none": []})
    assert costs.difference("a", "none") is None
    assert costs.difference("a", "never-run") is None
    same = costs.difference("a", "a")
    assert same is not None
    assert same.is_tie
    assert (same.mean, same.low, same.high) == (0.0, 0.0, 0.0)


# ---------------------------------------------------------------------- compressors


def test_compressors_with_a_dictionary_give_the_held_out_text_back() -> None:
    known, held_out = sentences(300).encode()[-(1 << 15) :], sentences(30, seed=1).encode()
    packer = zlib.compressobj(9, wbits=-15, memLevel=9, zdict=known)
    packed = packer.compress(held_out) + packer.flush()
    assert zlib.decompressobj(-15, zdict=known).decompress(packed) == held_out
    here = {name: one.ways for name, one in COMPRESSORS.items() if not why_missing(name)}
    by_name = {way.__name__: way(known, len(known) + len(held_out))(held_out) for ways in here.values()
               for way in ways}  # fmt: skip
    assert by_name["zlib_dictionary"] == len(packed) < len(zlib.compress(held_out, 9))
    assert by_name["bz2_difference"] == len(bz2.compress(known + held_out)) - len(bz2.compress(known))
    assert by_name["xz_difference"] < len(lzma.compress(held_out, preset=9))
    dictionary = zstandard.ZstdCompressionDict(known, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    packed = zstandard.ZstdCompressor(level=22, dict_data=dictionary).compress(held_out)
    assert zstandard.ZstdDecompressor(dict_data=dictionary).decompress(packed) == held_out
    assert by_name["zstd_dictionary"] == pytest.approx(len(packed), abs=8)  # without the length in the header
    for name, ways in here.items():
        assert best_way(name, known, held_out)(held_out) == min(by_name[way.__name__] for way in ways)


@pytest.mark.parametrize("name", [name for name in COMPRESSORS if not why_missing(name)])
def test_a_text_that_is_known_word_for_word_still_takes_a_stream(name: str) -> None:
    held_out = sentences(40).encode()
    size_of = best_way(name, 5 * held_out, held_out)
    assert 0 < size_of(held_out) < len(held_out) / 10


@pytest.mark.parametrize("data", [b"", b"a", b"aaaa", b"aaaab", b"ab" * 50, b"a" * 254 + b"b", b"a" * 255, b"a" * 256,
                                  b"a" * 1000, b"    x = 1\n" * 99])  # fmt: skip
def test_the_run_length_code_is_bzip2s(data: bytes) -> None:
    by_hand, at = 0, 0
    while at < len(data):
        run = 1
        while at + run < len(data) and data[at + run] == data[at] and run < 255:
            run += 1
        by_hand += run if run < 4 else 5
        at += run
    assert run_length_size(data) == by_hand
    for room in (0, 3, by_hand - 1, by_hand, by_hand + 9):
        at = bytes_before_block(data, room)
        assert run_length_size(data[at:]) <= max(0, room)
        assert at == 0 or run_length_size(data) > room


def test_bzip2_sorts_a_full_block_at_once_and_one_byte_more_starts_another() -> None:
    block = np.random.default_rng(0).integers(0, 256, BZ2_BLOCK_BYTES, np.uint8).tobytes()
    assert run_length_size(block) == BZ2_BLOCK_BYTES
    magic = "314159265359"  # at the start of every block, at any bit
    for data, blocks in ((block, 1), (block + b"xyz", 2)):
        bits = "".join(f"{byte:08b}" for byte in bz2.compress(data))
        assert bits.count(f"{int(magic, 16):048b}") == blocks
