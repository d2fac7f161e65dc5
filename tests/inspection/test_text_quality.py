"""What the doctor measures of a text, against plain counting."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from octavo.inspection.doctor.text_quality import WINDOW_BYTES, cost, encoding_problem, window_hashes

LEARNT, READ = b"the cat sat on the mat, and the dog sat by the door. " * 3, b"the dog, the cat and a zebra sat on it."


def byte_probability(byte: int) -> float:
    """Add one half to every count."""
    return (LEARNT.count(byte) + 0.5) / (len(LEARNT) + 128)


def pair_probability(before: int, byte: int) -> float:
    """Witten and Bell's interpolation of pairs with bytes, from its definition."""
    followers = Counter(LEARNT[i + 1] for i in range(len(LEARNT) - 1) if LEARNT[i] == before)
    if not followers:
        return byte_probability(byte)
    kinds, total = len(followers), followers.total()
    return (followers[byte] + kinds * byte_probability(byte)) / (total + kinds)


def test_the_cost_by_bytes_and_by_pairs_is_that_of_the_definition() -> None:
    learnt_N, read_N = (np.frombuffer(data, np.uint8) for data in (LEARNT, READ))
    single = -sum(math.log2(byte_probability(byte)) for byte in READ) / len(READ)
    pairs = -sum(math.log2(pair_probability(a, b)) for a, b in pairwise(READ)) / (len(READ) - 1)
    assert cost(learnt_N, read_N, by_pairs=False) == pytest.approx(single, rel=1e-12)
    assert cost(learnt_N, read_N, by_pairs=True) == pytest.approx(pairs, rel=1e-12)


@pytest.mark.parametrize("before", [*b"te ", ord("z")])
def test_pairs_of_bytes_are_a_distribution(before: int) -> None:
    learnt_N = np.frombuffer(LEARNT, np.uint8)
    bits = [cost(learnt_N, np.array([before, byte], np.uint8), by_pairs=True) for byte in range(256)]
    assert sum(2**-one for one in bits) == pytest.approx(1, rel=1e-12)


def test_windows_have_the_same_hash_where_their_bytes_are_the_same() -> None:
    data = np.random.default_rng(0).integers(97, 100, 500, np.uint8).tobytes() + b"x" * 90
    data += data[:200]
    windows = [data[i : i + WINDOW_BYTES] for i in range(len(data) - WINDOW_BYTES + 1)]
    hash_W = window_hashes(np.frombuffer(data, np.uint8)).tolist()
    assert len(hash_W) == len(windows)
    assert len(set(hash_W)) == len(set(windows)) == len(set(zip(hash_W, windows, strict=True))) < len(windows)
    assert len(window_hashes(np.zeros(WINDOW_BYTES - 1, np.uint8))) == 0


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ("Grüße aus Köln, où l'été est déjà là. ".encode() * 9, None),
        ("Grüße aus Köln, où l'été. ".encode().decode("latin-1").encode() * 9, "read as Latin-1"),
        ("plain words ".encode("utf-16-le") * 9, "UTF-16"),
        ("a word that was l\ufffdst ".encode() * 9, "U+FFFD"),
        (b"plain words " * 9, None),
    ],
)  # fmt: skip
def test_a_text_that_was_read_in_a_wrong_encoding_is_recognised(data: bytes, problem: str | None) -> None:
    found = encoding_problem(data)
    assert found is None if problem is None else found is not None and problem in found[0]
