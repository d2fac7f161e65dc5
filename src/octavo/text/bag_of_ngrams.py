"""Texts to bags: the words and n-grams of each text as rows of a table, found many texts at a time.

N words of all texts together, B texts, F slots that n-grams are hashed into.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from octavo.text.chunks import no_starts, thread_map
from octavo.text.tokenizers.token_bytes import Offsets
from octavo.text.tokenizers.word_splitting import MIX, Keys, spans_of, word_keys, word_offsets
from octavo.text.tokenizers.word_splitting import WordSpans as WordPieces
from octavo.text.tokenizers.word_table import WordTable

THREAD_TEXTS = 4096  # texts handed to a thread at a time: their arrays stay in the processor's cache
SPACE, NEWLINE = 32, 10
FIRST_BLANK = 0xC2  # the lowest byte that begins a white-space character beyond ASCII
ODD = np.uint64(0xD6E8FEB86659FD93)  # another odd number with its bits well spread: "a b" is not "b a"
UNSEEN = 0  # the row of what was not there in training


@dataclass(frozen=True)
class Bags:
    """Rows of a table, text after text; text b has those from offsets_B1[b] to offsets_B1[b + 1]."""

    ids_N: Tensor
    offsets_B1: Tensor

    def __len__(self) -> int:
        return len(self.offsets_B1) - 1

    @property
    def sizes(self) -> Tensor:
        return self.offsets_B1.diff()

    def take(self, rows_B: Tensor) -> Bags:
        """The bags of some texts."""
        sizes_B = self.sizes[rows_B]
        offsets_B1 = _with_zero(sizes_B.cumsum(0))
        moved_B = self.offsets_B1[rows_B] - offsets_B1[:-1]
        places_N = torch.arange(int(offsets_B1[-1]), device=rows_B.device) + moved_B.repeat_interleave(sizes_B)
        return Bags(self.ids_N[places_N], offsets_B1)

    def __getitem__(self, rows: slice) -> Bags:
        return self.take(torch.arange(len(self))[rows])

    def to(self, device: torch.device, non_blocking: bool = False) -> Bags:
        return Bags(self.ids_N.to(device), self.offsets_B1.to(device))

    @classmethod
    def joined(cls, parts: Sequence[Bags]) -> Bags:
        sizes_B = torch.cat([part.sizes for part in parts])
        return cls(torch.cat([part.ids_N for part in parts]), _with_zero(sizes_B.cumsum(0)))


class Words(NamedTuple):
    """The words of some texts, in lower case; word n of text b for n from offsets_B1[b] on."""

    pieces: WordPieces
    offsets_B1: Offsets

    def spelt(self) -> list[list[str]]:
        """Each text's words."""
        data = self.pieces.text.tobytes()
        ends = (self.pieces.starts + self.pieces.lengths).tolist()
        words = [data[a:b].decode("utf-8", "replace") for a, b in zip(self.pieces.starts.tolist(), ends, strict=True)]
        bounds = self.offsets_B1.tolist()
        return [words[a:b] for a, b in pairwise(bounds)]


def words_of(texts: Sequence[str]) -> Words:
    """The words and other visible characters of each text."""
    joined = "\n".join([text.lower() for text in texts])  # one by one: ASCII, as most texts are, has a fast way
    if joined.count("\n") >= len(texts):  # some text has lines of its own
        joined = "\n".join([text.lower().replace("\n", " ") for text in texts])
    text, starts_N, lengths_N = word_offsets(joined.encode("utf-8", "replace"), "words", no_starts())
    first_N = text[starts_N]
    ends, spaced_N = np.flatnonzero(first_N == NEWLINE), first_N == SPACE
    starts_N, lengths_N = starts_N + spaced_N, lengths_N - spaced_N
    first_N = text[starts_N]
    visible_N = (lengths_N > 0) & (first_N >= SPACE)
    far = np.flatnonzero(first_N >= FIRST_BLANK)
    visible_N[far] &= ~np.isin(word_keys(text, starts_N[far], lengths_N[far]), _blanks())
    shown = np.flatnonzero(visible_N)
    starts_N, lengths_N = starts_N[shown], lengths_N[shown]
    offsets = np.concatenate([[0], np.searchsorted(shown, ends), [len(shown)]]) if texts else np.zeros(1, np.int64)
    return Words(WordPieces(text, starts_N, lengths_N, word_keys(text, starts_N, lengths_N)), offsets)


@cache
def _blanks() -> Keys:
    """The keys of white space beyond ASCII, such as the no-break space."""
    spaces = [chr(point) for point in range(0x80, 0x10000) if chr(point).isspace()]
    return spans_of([space.encode() for space in spaces]).keys


def ngram_keys(keys_N: Keys, offsets_B1: Offsets, longest: int) -> tuple[Keys, Offsets]:
    """Keys of the n-grams of each text, from single words to `longest` of them; each word's own follow each other."""
    N, sizes_B = len(keys_N), np.diff(offsets_B1)
    stirred_N = (keys_N ^ (keys_N >> np.uint64(32))) * MIX
    if longest == 1:
        return stirred_N, offsets_B1
    grams_NL, there_NL = np.empty((N, longest), np.uint64), np.ones((N, longest), np.bool_)
    grams_NL[:, 0] = before_N = stirred_N
    for n in range(1, longest):
        room = max(0, N - n)
        before_N = _stirred(before_N[:room] * ODD + stirred_N[n:])
        grams_NL[:room, n] = before_N
        for back in range(1, n + 1):  # so near to a text's end there is none of so many words
            there_NL[offsets_B1[1:][sizes_B >= back] - back, n] = False
    missing_B = np.zeros(len(sizes_B), np.int64)
    for n in range(1, longest):
        missing_B += np.minimum(sizes_B, n)
    return grams_NL[there_NL], np.concatenate([[0], np.cumsum(longest * sizes_B - missing_B)])


def _stirred(mixed_N: Keys) -> Keys:
    mixed_N ^= mixed_N >> np.uint64(29)
    mixed_N *= MIX
    return mixed_N


class BagReader(ABC):
    """Texts to bags of the rows of a table."""

    @property
    @abstractmethod
    def rows(self) -> int:
        """How many rows the table must have."""

    @abstractmethod
    def _read(self, texts: Sequence[str]) -> Bags: ...

    def read(self, texts: Sequence[str]) -> Bags:
        if len(texts) <= THREAD_TEXTS:
            return self._read(texts)
        return Bags.joined(list(thread_map(self._read, batches_of(texts))))


class HashedReader(BagReader):
    """Texts to bags by hashing alone: rows_F says which row of the table each slot has, 0 being none."""

    def __init__(self, ngrams: int, rows_F: NDArray[np.int32]) -> None:
        self.ngrams, self.rows_F = ngrams, rows_F

    @classmethod
    def learn(cls, texts: Sequence[str], ngrams: int, bits: int) -> tuple[HashedReader, Bags]:
        """Give every slot that these texts hit a row; returns their bags too."""
        slots = cls(ngrams, np.arange(1 << bits, dtype=np.int32)).read(texts)
        hit_F = torch.bincount(slots.ids_N, minlength=1 << bits) > 0
        rows_F = torch.where(hit_F, hit_F.cumsum(0), UNSEEN).to(torch.int32)
        return cls(ngrams, rows_F.numpy()), Bags(rows_F.long()[slots.ids_N], slots.offsets_B1)

    @property
    def rows(self) -> int:
        return int(self.rows_F.max()) + 1

    def _read(self, texts: Sequence[str]) -> Bags:
        words = words_of(texts)
        keys_N, offsets_B1 = ngram_keys(words.pieces.keys, words.offsets_B1, self.ngrams)
        slots_N = (keys_N >> np.uint64(64 - (len(self.rows_F).bit_length() - 1))).astype(np.int64)
        return Bags(torch.from_numpy(self.rows_F[slots_N].astype(np.int64)), torch.from_numpy(offsets_B1))


class KnownReader(BagReader):
    """Texts to bags of known words, and of n-grams hashed into `buckets` rows behind them; unknown words are left out.

    The first row stands for nothing, so that no text is empty to a model.
    """

    def __init__(self, words: Sequence[str], ngrams: int = 1, buckets: int = 0) -> None:
        self.words, self.ngrams, self.buckets = list(words), ngrams, buckets if ngrams > 1 else 0
        self._table = WordTable()
        numbers = self._table.add(spans_of([word.encode("utf-8", "replace") for word in self.words]))
        self._rows = np.zeros(len(self._table) + 1, np.int64)  # the last is for -1, unknown
        self._rows[numbers] = 1 + self.buckets + np.arange(len(self.words))

    @classmethod
    def learn(
        cls, texts: Sequence[str], min_count: int, ngrams: int, buckets: int, welcome: Sequence[str] = ()
    ) -> KnownReader:
        """Know the words that occur `min_count` times, and those of the `welcome` ones that occur at all."""
        table, counts = WordTable(), np.zeros(0, np.int64)
        for chunk in batches_of(texts):
            numbers = table.add(words_of(chunk).pieces)
            counts = np.append(counts, np.zeros(len(table) - len(counts), np.int64))
            counts += np.bincount(numbers, minlength=len(table))
        words = [word.decode("utf-8", "replace") for word in table.words(np.arange(len(table)))]
        known = set(welcome)
        chosen = {
            word for word, count in zip(words, counts.tolist(), strict=True) if count >= min_count or word in known
        }
        return cls(sorted(chosen), ngrams, buckets)

    @property
    def rows(self) -> int:
        return 1 + self.buckets + len(self.words)

    def _read(self, texts: Sequence[str]) -> Bags:
        words = words_of(texts)
        rows_N = self._rows[self._table.find(words.pieces)]  # -1 finds the last
        known = np.flatnonzero(rows_N)
        offsets_B1 = np.searchsorted(known, words.offsets_B1)
        rows_N = rows_N[known]
        if not self.buckets:
            return Bags(torch.from_numpy(rows_N), torch.from_numpy(offsets_B1))
        keys_N, grams_B1 = ngram_keys(words.pieces.keys[known], offsets_B1, self.ngrams)
        slots_N = 1 + (keys_N % np.uint64(self.buckets)).astype(np.int64)
        first_N = np.zeros(len(keys_N), np.bool_)
        left_N = np.repeat(offsets_B1[1:], np.diff(offsets_B1)) - np.arange(len(rows_N))
        sizes_N = np.minimum(left_N, self.ngrams)
        first_N[np.cumsum(sizes_N) - sizes_N] = True  # of each word's n-grams, the first is the word itself
        slots_N[first_N] = rows_N
        return Bags(torch.from_numpy(slots_N), torch.from_numpy(grams_B1))


def batches_of(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """The texts in batches that are worth a thread."""
    return (texts[start : start + THREAD_TEXTS] for start in range(0, len(texts), THREAD_TEXTS))


def _with_zero(ends_B: Tensor) -> Tensor:
    return torch.cat([ends_B.new_zeros(1), ends_B])
