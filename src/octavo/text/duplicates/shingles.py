"""Shingles of many texts at once as 64-bit integers, their MinHash values in bands, and the similarity of pairs.

L texts, M elements (characters or words), S shingles, P pairs. A text is compared in lower case, with every run of
white space as one space. Its shingles are its runs of k elements, or all of it where it has fewer. Two different
shingles are one integer with probability 2^-64.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from octavo.text.duplicates.config import Bands, ShingleUnit

Int64s = NDArray[np.int64]
UInt64s = NDArray[np.uint64]
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio, made odd
NOTHING = np.uint64(0xFFFFFFFFFFFFFFFF)  # fills up a text that is shorter than a shingle; no character, no word's hash
SEED = b"octavo minhash"  # of the hash functions: the same in every process, whatever its numpy
SHIFT = np.uint64(32)


def is_blank(text: bytes) -> bool:
    """Whether there is nothing to compare: blank lines separate paragraphs, they repeat nothing."""
    return not text.strip() or not text.decode("utf-8", "replace").strip()


def text_hashes(texts: Sequence[bytes]) -> Int64s:
    """Two integers for each text, which are equal where the texts are: a cryptographic hash of 128 bits."""
    digests = b"".join(hashlib.blake2b(text, digest_size=16).digest() for text in texts)
    return np.frombuffer(digests, "<i8").reshape(-1, 2).astype(np.int64)


def _characters(texts: Sequence[bytes]) -> tuple[UInt64s, Int64s]:
    simple = [" ".join(text.decode("utf-8", "replace").lower().split()) for text in texts]
    length_L = np.fromiter(map(len, simple), np.int64, len(simple))
    return np.frombuffer("".join(simple).encode("utf-32-le"), "<u4").astype(np.uint64), length_L


@lru_cache(1 << 18)
def _word_hash(word: str) -> int:
    return int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little")


def _words(texts: Sequence[bytes]) -> tuple[UInt64s, Int64s]:
    split = [text.decode("utf-8", "replace").lower().split() for text in texts]
    length_L = np.fromiter(map(len, split), np.int64, len(split))
    hashes = (_word_hash(word) for words in split for word in words)
    return np.fromiter(hashes, np.uint64, int(length_L.sum())), length_L


ELEMENTS = {"character": _characters, "word": _words}


def shingles(texts: Sequence[bytes], k: int, unit: ShingleUnit) -> tuple[UInt64s, Int64s]:
    """The shingles of all texts end to end, repeated ones too, and how many each text has: at least one."""
    value_M, length_L = ELEMENTS[unit](texts)
    padded_L = np.maximum(length_L, k)
    end_L = padded_L.cumsum()
    if (padded_L != length_L).any():
        filled = np.full(int(end_L[-1]), NOTHING)
        moved_L = (end_L - padded_L) - (length_L.cumsum() - length_L)
        filled[np.arange(len(value_M)) + np.repeat(moved_L, length_L)] = value_M
        value_M = filled
    places = max(0, len(value_M) - k + 1)
    hash_S = np.zeros(places, np.uint64)
    for j in range(k):
        hash_S ^= value_M[j : j + places]
        _mix(hash_S)
    inside_S = np.ones(len(value_M), np.bool_)
    for j in range(1, k):
        inside_S[end_L - j] = False  # a run from here reaches into the next text
    return hash_S[inside_S[:places]], padded_L - (k - 1)


def _mix(hash_S: UInt64s) -> None:
    """Spread every bit over all, in place."""
    hash_S *= MULTIPLIER
    hash_S ^= hash_S >> SHIFT


def band_keys(hash_S: UInt64s, count_L: Int64s, bands: Bands) -> Int64s:
    """An integer for each band (row) and text (column): equal where all the band's MinHash values are.

    The i-th MinHash value of a text is the least of a_i x + b_i, modulo 2^32, over its shingles' hashes x.
    """
    random = hashlib.shake_128(SEED).digest(8 * bands.bands * bands.rows)
    a_H, b_H = np.frombuffer(random, "<u4").astype(np.uint32).reshape(-1, 2).T
    x_S = (hash_S >> SHIFT).astype(np.uint32)
    start_L = count_L.cumsum() - count_L
    work_S = np.empty_like(x_S)
    key_BL = np.zeros((bands.bands, len(count_L)), np.uint64)
    for i, (a, b) in enumerate(zip(a_H | np.uint32(1), b_H, strict=True)):
        np.multiply(x_S, a, out=work_S)
        work_S += b
        key_L = key_BL[i // bands.rows]
        key_L ^= np.minimum.reduceat(work_S, start_L)
        _mix(key_L)
    return key_BL.view(np.int64)


def shared_shingles(hash_S: UInt64s, count_L: Int64s, left_P: Int64s, right_P: Int64s) -> tuple[Int64s, Int64s]:
    """Of each pair of texts the number of different shingles that both have, and that either has."""
    distinct, rank_S = np.unique(hash_S, return_inverse=True)
    owner_S = np.repeat(np.arange(len(count_L)), count_L)
    key_S = np.sort(
        owner_S * len(distinct) + rank_S
    )  # each text's shingles; np.unique would hash them, ten times slower
    key_S = key_S[np.diff(key_S, prepend=-1) > 0]
    size_L = np.bincount(key_S // len(distinct), minlength=len(count_L))
    start_L = size_L.cumsum() - size_L
    size_P = size_L[left_P]
    start_P = size_P.cumsum() - size_P
    place = np.arange(size_P.sum()) + np.repeat(start_L[left_P] - start_P, size_P)
    wanted = key_S[place] + np.repeat((right_P - left_P) * len(distinct), size_P)  # the same shingle, of the other text
    found = key_S[np.minimum(np.searchsorted(key_S, wanted), len(key_S) - 1)] == wanted
    both_P = np.add.reduceat(found, start_P, dtype=np.int64) if len(left_P) else np.zeros(0, np.int64)
    return both_P, size_P + size_L[right_P] - both_P
