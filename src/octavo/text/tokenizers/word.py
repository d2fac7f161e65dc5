"""Words as tokens, found and counted in one pass; rare and unknown ones are written as bytes (byte fallback).

Byte fallback makes the tokenizer lossless, puts word models on the scale of all others (bits per byte), and teaches
the model to spell, because the rare words of the training text are written as bytes too.
"""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import IO, Any, ClassVar, get_args

import numpy as np
from numpy.typing import NDArray

from octavo.config import Count, Length, check_ranges, from_json
from octavo.errors import UserError
from octavo.io.compressed import CHUNK_BYTES
from octavo.text.chunks import Chunk, Starts, no_starts, rechunk, thread_map
from octavo.text.tokenizers.base import KIND, Tokenizer
from octavo.text.tokenizers.token_bytes import (
    BYTES,
    Offsets,
    Tokens,
    as_bytes,
    as_text,
    byte_alphabet,
    byte_fallback,
    starts_inside_character,
    with_begins,
)
from octavo.text.tokenizers.word_splitting import (
    MAX_WORD_BYTES,
    Split,
    WordSpans,
    find_words,
    spans_of,
    word_boundary,
    word_pattern,
)
from octavo.text.tokenizers.word_table import WordTable

SPOOL_BYTES = 1 << 22  # of word numbers, read back from the temporary file at a time
BEGIN = -1  # a document's begin in the temporary file, where the vocabulary, and so the id of `begin`, is not known yet


@dataclass(frozen=True)
class WordSettings:
    """Where words begin and end, and which become tokens."""

    split: Split = "words"
    """Split at spaces and punctuation, or at spaces alone."""
    min_count: Count = 2
    """Words that occur less often are written as bytes."""
    vocab_size: Length | None = None
    """The number of words at most; the most frequent are taken."""
    RENAMED: ClassVar[dict[str, str]] = {"size": "vocab_size"}

    def __post_init__(self) -> None:
        if self.split not in get_args(Split):
            raise UserError(f"split must be 'words' or 'space': split={self.split!r}")
        check_ranges(self)


class Word(Tokenizer):
    """Tokens 0 to 255 are bytes (words of one byte among them), then come the known words, most frequent first."""

    name = "word"
    unit = "words"
    Settings = WordSettings
    splits_locally = learns_words = True

    def __init__(self, words: list[bytes], settings: WordSettings | None = None) -> None:
        super().__init__([*(bytes([b]) for b in range(BYTES)), *words, b""])
        self.settings = settings or WordSettings()
        self._table = WordTable()
        numbers = self._table.add(spans_of(words))
        self._ids = np.full(len(self._table) + 1, -1, np.int32)  # by number in the table; the last is for -1, unknown
        self._ids[numbers] = BYTES + np.arange(len(words), dtype=np.int32)

    @classmethod
    def learn(cls, chunks: Iterable[Chunk], settings: WordSettings | None = None) -> Word:
        """Know the words that occur at least `min_count` times, at most `vocab_size` of them."""
        settings = settings or WordSettings()
        return _vocabulary(*_count(chunks, settings.split, None), settings)[0]

    @classmethod
    def learn_and_encode(
        cls, chunks: Callable[[], Iterable[Chunk]], settings: WordSettings | None = None
    ) -> tuple[Word, Iterator[Tokens]]:
        """Learn the words of a text and encode it, reading it once; the tokens come chunk by chunk.

        The words are numbered as they come; their numbers wait in a temporary file until all are counted and the
        vocabulary is chosen, and are then turned into tokens.
        """
        settings = settings or WordSettings()
        with ExitStack() as stack:
            spool = stack.enter_context(tempfile.TemporaryFile())
            table, counts = _count(chunks(), settings.split, spool)
            word, ids = _vocabulary(table, counts, settings)
            tokens = _from_spool(spool, ids, table)
            weakref.finalize(tokens, spool.close)
            stack.pop_all()  # from here on the file is the tokens' to close
        return word, tokens

    @classmethod
    def count_words(cls, chunks: Iterable[Chunk], settings: WordSettings) -> tuple[list[bytes], NDArray[np.int64]]:
        table, counts = _count(chunks, settings.split, None)
        known = np.flatnonzero((table.lengths > 1) & (table.lengths <= MAX_WORD_BYTES))
        return table.words(known), counts[known]

    @classmethod
    def from_words(cls, words: list[bytes], settings: WordSettings) -> Word:
        return cls(words, settings)

    def encode(self, data: bytes) -> Tokens:
        if len(data) <= CHUNK_BYTES:
            return self.encode_documents(data, no_starts())
        chunks = (Chunk(data[i : i + CHUNK_BYTES]) for i in range(0, len(data), CHUNK_BYTES))
        return np.concatenate(list(self.encode_chunks(chunks)))

    def encode_documents(self, data: bytes, starts: Starts) -> Tokens:
        if starts_inside_character(data, starts):
            return super().encode_documents(data, starts)
        spans = find_words(data, self.settings.split, starts)
        ids = self._ids[self._table.find(spans)]  # -1 finds the last
        unknown = np.flatnonzero(ids < 0)
        tokens, begins = byte_fallback(ids, spans.text, spans.starts[unknown], spans.lengths[unknown])
        firsts = np.searchsorted(spans.starts, starts)
        return with_begins(tokens, np.append(begins, len(tokens))[firsts], self.begin)

    def count_unknown(self, data: bytes) -> tuple[int, int]:
        """How many words are longer than a byte and not in the vocabulary, and how many there are."""
        spans = find_words(data, self.settings.split, no_starts())
        unknown = (self._table.find(spans) < 0) & (spans.lengths > 1)
        return int(unknown.sum()), len(unknown)

    def split_point(self, data: bytes) -> int:
        return word_boundary(data, self.settings.split)

    def huggingface_json(self) -> dict[str, Any]:
        """Words split by a pattern, then byte pairs without merges: a word that is a token, or its bytes."""
        split = {"type": "Split", "pattern": {"Regex": word_pattern(self.settings.split)}, "behavior": "Isolated"}
        level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
        character = {byte: char for char, byte in byte_alphabet().items()}
        spelt = ["".join(character[byte] for byte in word) for word in self._bytes][: self.begin]
        return {
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split | {"invert": False}, level]},
            "decoder": level,
            "model": {"type": "BPE", "vocab": {word: i for i, word in enumerate(spelt)}, "merges": [],
                      "ignore_merges": True},
        }  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        words = [as_text(data) for data in self._bytes][BYTES : self.begin]
        return {KIND: self.name, **asdict(self.settings), "words": words}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Word:
        values = {key: value for key, value in values.items() if key != KIND}
        words = values.pop("words", None)
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words) or "split" not in values:
            raise UserError("a word tokenizer must have a 'split' and a list of strings as 'words'")
        known = [as_bytes(word) for word in words]
        if len(set(known)) < len(known) or not all(2 <= len(word) <= MAX_WORD_BYTES for word in known):
            raise UserError(f"a word tokenizer's 'words' must be all different and of 2 to {MAX_WORD_BYTES} bytes")
        return cls(known, from_json(WordSettings, values))


def _count(chunks: Iterable[Chunk], split: Split, spool: IO[bytes] | None) -> tuple[WordTable, NDArray[np.int64]]:
    """Number the words, count them, and write their numbers to the temporary file."""
    table, counts = WordTable(), np.zeros(0, np.int64)

    def split_up(chunk: Chunk) -> list[tuple[WordSpans, Offsets]]:
        parts = [chunk]
        if starts_inside_character(chunk.data, chunk.starts):  # then each document is split by itself
            rest, *documents = chunk.documents()
            parts = [Chunk(rest), *(Chunk(document, np.zeros(1, np.int64)) for document in documents)]
        return [(find_words(part.data, split, part.starts), part.starts) for part in parts]

    for parts in thread_map(split_up, rechunk(chunks, lambda data: word_boundary(data, split))):
        for spans, starts in parts:
            numbers = table.add(spans)
            counts = np.concatenate([counts, np.zeros(len(table) - len(counts), np.int64)])
            counts += np.bincount(numbers, minlength=len(table))
            if spool is not None:
                spool.write(with_begins(numbers, np.searchsorted(spans.starts, starts), BEGIN).data)
    return table, counts


def _vocabulary(table: WordTable, counts: NDArray[np.int64], settings: WordSettings) -> tuple[Word, Tokens]:
    """The tokenizer, and the id of every number in the table: -1 for an unknown word, the last for BEGIN."""
    chosen, words = _choose(table, counts, settings.min_count, settings.vocab_size)
    word = Word(words, settings)
    ids = np.full(len(table) + 1, -1, np.int32)
    ids[chosen] = BYTES + np.arange(len(chosen), dtype=np.int32)
    ids[BEGIN] = word.begin
    return word, ids


def _choose(
    table: WordTable, counts: NDArray[np.int64], min_count: int, size: int | None
) -> tuple[NDArray[np.int64], list[bytes]]:
    """The numbers and bytes of the words to know: by falling count, equal counts in the order of their bytes."""
    known = np.flatnonzero((counts >= min_count) & (table.lengths > 1) & (table.lengths <= MAX_WORD_BYTES))
    if size is not None and len(known) > size:
        least = np.partition(counts[known], len(known) - size)[len(known) - size]
        known = known[counts[known] >= least]
    words = table.words(known)
    alphabetical = np.array(sorted(range(len(words)), key=words.__getitem__), np.int64)
    order = alphabetical[np.argsort(-counts[known[alphabetical]], kind="stable")][:size]
    return known[order], [words[i] for i in order.tolist()]


def _from_spool(spool: IO[bytes], ids: Tokens, table: WordTable) -> Iterator[Tokens]:
    def tokens_of(numbers: Tokens) -> Tokens:
        found = ids[numbers]  # BEGIN finds the last
        unknown = numbers[found < 0]
        return byte_fallback(found, table.pool, table.offsets[unknown], table.lengths[unknown])[0]

    def spooled() -> Iterator[Tokens]:
        while data := spool.read(SPOOL_BYTES):
            yield np.frombuffer(data, np.int32)

    with spool:
        spool.seek(0)
        yield from thread_map(tokens_of, spooled())
