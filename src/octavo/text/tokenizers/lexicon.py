"""A growing set of pieces, each with a number: an open-addressing hash table made of arrays."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from octavo.text.tokenizers.protocol import Tokens
from octavo.text.tokenizers.spelling import Offsets, ranges
from octavo.text.tokenizers.word_splitting import LONGEST, MIX, SHORT, Keys, Pieces, equal

Array = TypeVar("Array", NDArray[np.uint8], NDArray[np.int64])


class Lexicon:
    """Numbers pieces in the order of their coming, and never takes one piece for another.

    Short pieces have keys of their own, so equal keys mean equal pieces. Long pieces share keys only by an accident of
    hashing, and every time one is looked up its bytes are compared with the spelling that has the key; those that
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
        """The spellings, one after another."""
        return self._pool

    def find(self, pieces: Pieces) -> Tokens:
        """The number of every piece; -1: not here."""
        numbers = self._probe(pieces.keys)
        long = np.flatnonzero((pieces.lengths > SHORT) & (numbers >= 0))
        at = numbers[long]
        agree = self._lengths[at] == pieces.lengths[long]
        same = long[agree]
        agree[agree] = equal(
            pieces.text, pieces.starts[same], self._pool, self._offsets[numbers[same]], pieces.lengths[same]
        )
        for i in long[~agree].tolist():
            numbers[i] = self._clashes.get(_spelling(pieces, i), -1)
        return numbers

    def add(self, pieces: Pieces) -> Tokens:
        """The number of every piece; those that are new get the next ones."""
        numbers = self.find(pieces)
        missing = np.flatnonzero(numbers < 0)
        if not len(missing):
            return numbers
        giants = missing[pieces.lengths[missing] > LONGEST]
        numbers[giants] = self._append(pieces, giants)  # each one new: they are spelt out anyway
        missing = missing[pieces.lengths[missing] <= LONGEST]
        _, first = np.unique(pieces.keys[missing], return_index=True)
        first.sort()
        new = missing[first]
        new = new[self._probe(pieces.keys[new]) < 0]  # a clash has its key in the table already
        self._insert(pieces.keys[new], self._append(pieces, new))
        rest = Pieces(pieces.text, pieces.starts[missing], pieces.lengths[missing], pieces.keys[missing])
        numbers[missing] = self.find(rest)
        for i in missing[numbers[missing] < 0].tolist():
            numbers[i] = self._add_clash(pieces, i)
        return numbers

    def _add_clash(self, pieces: Pieces, i: int) -> int:
        spelling = _spelling(pieces, i)
        if spelling not in self._clashes:
            self._clashes[spelling] = int(self._append(pieces, np.array([i]))[0])
        return self._clashes[spelling]

    def _append(self, pieces: Pieces, which: Offsets) -> Tokens:
        """Copy the pieces' spellings to the end of the pool, and number them."""
        lengths = pieces.lengths[which]
        total, size = int(lengths.sum()), self._size + len(which)
        self._pool = _room(self._pool, self._pool_used + total + 8)
        self._offsets, self._lengths = _room(self._offsets, size), _room(self._lengths, size)
        self._offsets[self._size : size] = self._pool_used + np.cumsum(lengths) - lengths
        self._lengths[self._size : size] = lengths
        self._pool[self._pool_used : self._pool_used + total] = pieces.text[ranges(pieces.starts[which], lengths)]
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


def _spelling(pieces: Pieces, i: int) -> bytes:
    start = int(pieces.starts[i])
    return pieces.text[start : start + int(pieces.lengths[i])].tobytes()


def _room(array: Array, size: int) -> Array:
    """The array, or a larger copy if it has no room for `size` elements."""
    if size <= len(array):
        return array
    larger = np.zeros(max(size, 2 * len(array)), array.dtype)
    larger[: len(array)] = array
    return larger
