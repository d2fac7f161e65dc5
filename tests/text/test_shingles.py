"""Shingles and MinHash values of many texts at once against loops over the texts."""

from __future__ import annotations

import hashlib
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duplicates import jaccard, shingle_set
from octavo.errors import UserError
from octavo.text.duplicates import Bands, DuplicatesConfig
from octavo.text.duplicates.config import FOUND, MOST_HASHES, choose_bands
from octavo.text.duplicates.shingles import SEED, band_keys, is_blank, shared_shingles, shingles, text_hashes

BITS32, BITS64 = (1 << 32) - 1, (1 << 64) - 1
TEXTS = [
    b"To be, or not to be",
    b"a",
    "Ünïcode  \t text\u00a0with spaces".encode(),
    b"abcd",
    b"abcde",
    b"abcdeabcde" * 9,
]
texts = st.lists(
    st.text(min_size=1, max_size=30).map(lambda t: t.encode("utf-8", "replace")).filter(lambda t: not is_blank(t)),
    min_size=1, max_size=8,
)  # fmt: skip


def mixed(value: int) -> int:
    value = value * 0x9E3779B97F4A7C15 & BITS64
    return value ^ value >> 32


def reference_hashes(text: bytes, k: int, unit: str) -> list[int]:
    """The text's shingles as integers, in order."""
    words = text.decode().lower().split()
    if unit == "word":
        values = [int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little") for word in words]
    else:
        values = [ord(character) for character in " ".join(words)]
    values += [BITS64] * (k - len(values))
    hashes = []
    for i in range(len(values) - k + 1):
        value = 0
        for one in values[i : i + k]:
            value = mixed(value ^ one)
        hashes.append(value)
    return hashes


def reference_keys(hashes: list[int], bands: Bands) -> list[int]:
    """The key of each band."""
    random_bytes = hashlib.shake_128(SEED).digest(8 * bands.bands * bands.rows)
    numbers = [int.from_bytes(random_bytes[i : i + 4], "little") for i in range(0, len(random_bytes), 4)]
    minima = [min(((a | 1) * (x >> 32) + b) & BITS32 for x in hashes)
              for a, b in zip(numbers[::2], numbers[1::2], strict=True)]  # fmt: skip
    keys = []
    for i in range(bands.bands):
        key = 0
        for value in minima[i * bands.rows : (i + 1) * bands.rows]:
            key = mixed(key ^ value)
        keys.append(key)
    return keys


@pytest.mark.parametrize("unit", ["character", "word"])
@pytest.mark.parametrize("k", [1, 2, 5, 40])
def test_shingles_of_many_texts_are_those_of_a_loop(k: int, unit: str) -> None:
    hash_S, count_L = shingles(TEXTS, k, unit)  # type: ignore[arg-type]
    expected = [reference_hashes(text, k, unit) for text in TEXTS]
    assert count_L.tolist() == [len(one) for one in expected]
    assert hash_S.tolist() == [value for one in expected for value in one]


@settings(max_examples=60, deadline=None)
@given(texts, st.integers(1, 8), st.sampled_from(["character", "word"]))
def test_shingles_of_any_texts_are_those_of_a_loop(given_texts: list[bytes], k: int, unit: str) -> None:
    hash_S, count_L = shingles(given_texts, k, unit)  # type: ignore[arg-type]
    expected = [reference_hashes(text, k, unit) for text in given_texts]
    assert count_L.tolist() == [len(one) for one in expected]
    assert hash_S.tolist() == [value for one in expected for value in one]


def test_the_keys_of_bands_are_those_of_plain_integers() -> None:
    bands = Bands(7, 3)
    keys = band_keys(*shingles(TEXTS, 5, "character"), bands)
    expected = [reference_keys(reference_hashes(text, 5, "character"), bands) for text in TEXTS]
    assert keys.astype(np.uint64).T.tolist() == expected


@settings(max_examples=60, deadline=None)
@given(texts, st.integers(1, 6), st.sampled_from(["character", "word"]))
def test_the_similarity_of_pairs_is_that_of_the_sets_of_shingles(given_texts: list[bytes], k: int, unit: str) -> None:
    pairs = [(i, j) for i in range(len(given_texts)) for j in range(len(given_texts))]
    left_P, right_P = np.array(pairs).T
    both_P, either_P = shared_shingles(*shingles(given_texts, k, unit), left_P, right_P)  # type: ignore[arg-type]
    sets = [shingle_set(text, k, unit) for text in given_texts]
    assert both_P.tolist() == [len(sets[i] & sets[j]) for i, j in pairs]
    assert either_P.tolist() == [len(sets[i] | sets[j]) for i, j in pairs]


def test_a_pair_is_found_as_often_as_the_formula_says() -> None:
    """2,000 pairs of sets of 60 words each, 48 of them shared: similarity 2/3."""
    generator, bands = random.Random(0), Bands(6, 4)
    found = 0
    for _ in range(2000):
        words = [f"{generator.getrandbits(60):x}" for _ in range(72)]
        pair = [" ".join(words[:60]).encode(), " ".join(words[12:]).encode()]
        assert float(jaccard(*(shingle_set(text, 1, "word") for text in pair))) == pytest.approx(2 / 3)
        left, right = band_keys(*shingles(pair, 1, "word"), bands).T
        found += bool((left == right).any())
    expected = bands.probability(2 / 3)
    assert expected == pytest.approx(1 - (1 - (2 / 3) ** 4) ** 6)
    deviation = (2000 * expected * (1 - expected)) ** 0.5
    assert abs(found - 2000 * expected) < 4 * deviation


def test_bands_find_what_is_at_the_threshold_and_little_below_it() -> None:
    assert choose_bands(0.8) == (16, 6)
    for similarity in np.linspace(0.2, 1.0, 81).tolist():
        bands = choose_bands(similarity)
        assert bands.bands * bands.rows <= MOST_HASHES
        assert bands.probability(similarity) >= FOUND
    assert choose_bands(0.8).probability(0.3) < 0.02


def test_equal_texts_have_equal_hashes_and_others_do_not() -> None:
    hashes = text_hashes([b"a", b"b", b"a", b""]).tolist()
    assert hashes[0] == hashes[2]
    assert len({tuple(one) for one in hashes}) == 3


def test_blank_is_what_has_only_white_space() -> None:
    assert [is_blank(text) for text in (b"", b" \t", "\u00a0\u2003".encode(), b".", b"\0")] == [True] * 3 + [False] * 2


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"near": True, "similarity": 0.1}, "similarity must be at least 0.2 and at most 1: similarity=0.1; try 0.8"),
        ({"near": True, "similarity": float("nan")}, "similarity must be at least"),
        ({"near": True, "shingle": 0}, "shingle must be 1 to 100: shingle=0; try 5"),
        ({"similarity": 0.7}, "only near duplicates have a similarity and shingles: similarity=0.7.*add --near"),
        ({"unit": "page"}, "unit must be one of line, document: got 'page'"),
    ],
)
def test_settings_are_checked(values: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        DuplicatesConfig(**values)  # type: ignore[arg-type]
