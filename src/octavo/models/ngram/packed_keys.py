"""N-grams as a few 64-bit integers, so that engines compare, sort and group numbers instead of lists of words.

A key has several columns of `slots` words each, `bits` bits a word, the first word highest; word w stands there as
w + 1, and 0 means that the sequence ended before. So keys sort as the n-grams do, word by word. The same layout is
written in numpy, for what is fed in, and in SQL, for what is computed from it. N places, B words of a batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

KEY_BITS = 62  # of a column: a signed integer of 64 bits that may be shifted by a bit without a sign


@dataclass(frozen=True)
class KeyLayout:
    """How n-grams of a vocabulary are packed."""

    vocab: int

    @property
    def bits(self) -> int:
        """Bits of a word."""
        return self.vocab.bit_length()

    @property
    def slots(self) -> int:
        """Words of a column."""
        return KEY_BITS // self.bits

    def columns(self, k: int) -> list[str]:
        """The names of the columns of a k-gram."""
        return [f"key{c}" for c in range(-(-k // self.slots))]

    def shift(self, i: int) -> int:
        """Where the i-th word of an n-gram lies in its column."""
        return (self.slots - 1 - i % self.slots) * self.bits

    @property
    def mask(self) -> int:
        """The bits of one word, at the lowest place."""
        return (1 << self.bits) - 1

    def pack(self, words: list[NDArray[np.int64]]) -> list[NDArray[np.int64]]:
        """The columns of n-grams, given their first words + 1, their second words + 1, ..."""
        columns = [np.zeros(len(words[0]), np.int64) for _ in self.columns(len(words))]
        for i, word_N in enumerate(words):
            columns[i // self.slots] |= word_N << self.shift(i)
        return columns

    def words(self, columns: list[NDArray[np.int64]], i: int) -> NDArray[np.int64]:
        """The i-th word of each n-gram; -1 where the sequence ended before."""
        word_N: NDArray[np.int64] = ((columns[i // self.slots] >> self.shift(i)) & self.mask) - 1
        return word_N

    # ------------------------------------------------------------------ the same in SQL

    def word_sql(self, i: int) -> str:
        """The i-th word + 1."""
        return f"((key{i // self.slots} >> {self.shift(i)}) & {self.mask})"

    def has_sql(self, k: int) -> str:
        """Whether an n-gram has at least k words."""
        return f"({self.word_sql(k - 1)} <> 0)"

    def prefix_sql(self, k: int) -> list[str]:
        """The columns of the first k words of an n-gram of k + 1."""
        columns = self.columns(k)
        if len(columns) == len(self.columns(k + 1)):
            kept = ((1 << KEY_BITS) - 1) & ~(self.mask << self.shift(k))
            columns[-1] = f"({columns[-1]} & {kept})"
        return columns

    def suffix_sql(self, k: int) -> list[str]:
        """The columns of the last k words of an n-gram of k + 1."""
        longer, low = self.columns(k + 1), (1 << (self.slots - 1) * self.bits) - 1
        columns = []
        for c in range(len(self.columns(k))):
            moved = f"((key{c} & {low}) << {self.bits})"
            after = f" | (key{c + 1} >> {(self.slots - 1) * self.bits})" if c + 1 < len(longer) else ""
            columns.append(f"({moved}{after})")
        return columns
