"""A growing set of words, each with a number: an open-addressing hash table made of arrays."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from octavo.text.tokenizers.token_bytes import Offsets, Tokens, ranges
from octavo.text.tokenizers.word_splitting import KEY_BYTES, MAX_WORD_BYTES, MIX, Keys, WordSpans, equal

Array = TypeVar("Array", NDArray[np.uint8], NDArray[np.int64])


class WordTable:
    """Numbers words in the order of their coming, and never takes one word for another.

    Short words have keys of their own, so equal keys mean equal words. Long words share keys only by an accident of
    hashing, and at every look-up its bytes are compared with those of the word that has the key; those that
    differ go by their bytes through a plain dict.
    """

    def __init__(self) -> None:
        self._slots: Keys = np.zeros(1 << 16, np.uint64)  # keys; 0: free
        self._numbers = np.zeros(1 << 16, np.int32)
        self._used = 0
        self._pool = np.zeros(1 << 16, np.uint8)
        self._pool_used = 0
        self._offsets = np.zeros(1 << 12, np.int64)
        self._lengths = np.zeros(1 << 12, np.int64)
        self._size = 0
        self._clashes: dict[bytes, int] = {}

    def __len__(self) -> int:
        return self._size

    @property
    def offsets(self) -> Offsets:
        return self._offsets[: self._size]

    @property
    def lengths(self) -> Offsets:
        return self._lengths[: self._size]

    @property
    def pool(self) -> NDArray[np.uint8]:
        """The bytes of the words, one after another."""
        return self._pool

    def words(self, numbers: Offsets) -> list[bytes]:
        """The words with these numbers."""
        pool, ends = self._pool.tobytes(), self._offsets[numbers] + self._lengths[numbers]
        return [pool[a:b] for a, b in zip(self._offsets[numbers].tolist(), ends.tolist(), strict=True)]

    def find(self, spans: WordSpans) -> Tokens:
        """The number of every word; -1: not in the table."""
        numbers = self._probe(spans.keys)
        long = np.flatnonzero((spans.lengths > KEY_BYTES) & (numbers >= 0))
        at = numbers[long]
        agree = self._lengths[at] == spans.lengths[long]
        same = long[agree]
        agree[agree] = equal(
            spans.text, spans.starts[same], self._pool, self._offsets[numbers[same]], spans.lengths[same]
        )
        for i in long[~agree].tolist():
            numbers[i] = self._clashes.get(_word_at(spans, i), -1)
        return numbers

    def add(self, spans: WordSpans) -> Tokens:
        """The number of every word; those that are new get the next ones."""
        numbers = self.find(spans)
        missing = np.flatnonzero(numbers < 0)
        if not len(missing):
            return numbers
        too_long = missing[spans.lengths[missing] > MAX_WORD_BYTES]
        numbers[too_long] = self._append(spans, too_long)  # each one new: they are written as bytes anyway
        missing = missing[spans.lengths[missing] <= MAX_WORD_BYTES]
        _, first = np.unique(spans.keys[missing], return_index=True)
        first.sort()
        new = missing[first]
        new = new[self._probe(spans.keys[new]) < 0]  # a clash has its key in the table already
        self._insert(spans.keys[new], self._append(spans, new))
        rest = WordSpans(spans.text, spans.starts[missing], spans.lengths[missing], spans.keys[missing])
        numbers[missing] = self.find(rest)
        for i in missing[numbers[missing] < 0].tolist():
            word = _word_at(spans, i)
            if word not in self._clashes:
                self._clashes[word] = int(self._append(spans, np.array([i]))[0])
            numbers[i] = self._clashes[word]
        return numbers

    def _append(self, spans: WordSpans, which: Offsets) -> Tokens:
        """Copy the words to the end of the pool, and number them."""
        lengths = spans.lengths[which]
        total, size = int(lengths.sum()), self._size + len(which)
        self._pool = _grown(self._pool, self._pool_used + total + 8)
        self._offsets, self._lengths = _grown(self._offsets, size), _grown(self._lengths, size)
        self._offsets[self._size : size] = self._pool_used + np.cumsum(lengths) - lengths
        self._lengths[self._size : size] = lengths
        self._pool[self._pool_used : self._pool_used + total] = spans.text[ranges(spans.starts[which], lengths)]
        numbers = np.arange(self._size, size, dtype=np.int32)
        self._pool_used, self._size = self._pool_used + total, size
        return numbers

    def _probe(self, keys: Keys) -> Tokens:
        """What the table holds under every key, or -1; from the key's own slot on, up to a free one."""
        slots = self._home(keys)
        found = self._slots.take(slots, mode="clip")
        numbers = self._numbers.take(slots, mode="clip")
        missed = np.flatnonzero(found != keys)
        numbers[missed] = -1
        rest = missed[found[missed] != 0]
        slots = slots[rest]
        while len(rest):
            slots = (slots + 1) & (len(self._slots) - 1)
            found = self._slots.take(slots)
            hit = found == keys[rest]
            numbers[rest[hit]] = self._numbers.take(slots[hit])
            going = ~hit & (found != 0)
            rest, slots = rest[going], slots[going]
        return numbers

    def _insert(self, keys: Keys, numbers: Tokens) -> None:
        """Put keys into the table that differ from each other and from all in it."""
        self._used += len(keys)
        if 3 * self._used > len(self._slots):
            size = len(self._slots)
            while 4 * self._used > size:
                size *= 2
            taken = np.flatnonzero(self._slots)
            keys = np.concatenate([self._slots[taken], keys])
            numbers = np.concatenate([self._numbers[taken], numbers])
            self._slots, self._numbers = np.zeros(size, np.uint64), np.zeros(size, np.int32)
        slots = self._home(keys)
        while len(keys):
            free = self._slots[slots] == 0
            self._slots[slots[free]] = keys[free]  # where several want one slot, the last to write has it
            placed = self._slots[slots] == keys
            self._numbers[slots[placed]] = numbers[placed]
            keys, numbers = keys[~placed], numbers[~placed]
            slots = (slots[~placed] + 1) & (len(self._slots) - 1)

    def _home(self, keys: Keys) -> Offsets:
        shift = np.uint64(64 - (len(self._slots).bit_length() - 1))
        return ((keys ^ (keys >> np.uint64(32))) * MIX >> shift).astype(np.int64)


def _word_at(spans: WordSpans, i: int) -> bytes:
    start = int(spans.starts[i])
    return spans.text[start : start + int(spans.lengths[i])].tobytes()


def _grown(array: Array, size: int) -> Array:
    """The array, or a larger copy if it is too small for `size` elements."""
    if size <= len(array):
        return array
    larger = np.zeros(max(size, 2 * len(array)), array.dtype)
    larger[: len(array)] = array
    return larger
