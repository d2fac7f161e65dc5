"""Words as tokens, found and counted in one pass; rare and unknown ones are spelt out in bytes.

The spelling keeps the tokenizer lossless, puts word models on the scale of all others (bits per byte), and teaches
the model to spell, because the rare words of the training text are spelt too.
"""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import pairwise
from typing import IO, Any, cast, get_args

import numpy as np
from numpy.typing import NDArray

from octavo.errors import UserError
from octavo.text.blocks import BLOCK, Block, in_order, no_starts, recut
from octavo.text.tokenizers.lexicon import Lexicon
from octavo.text.tokenizers.protocol import Tokens
from octavo.text.tokenizers.spelling import (
    BYTES,
    Offsets,
    Spellings,
    as_bytes,
    as_text,
    continues_a_character,
    each_document,
    spell_out,
    with_begins,
)
from octavo.text.tokenizers.word_splitting import LONGEST, Pieces, Split, cut_pieces, listed, pieces_of

SPOOLED = 1 << 22  # bytes of numbers read back from the spool at a time
BEGIN = -1  # a document's begin in the spool, where the vocabulary, and so the id of `begin`, is not known yet


class Word:
    """Tokens 0 to 255 are bytes (pieces of one byte among them), then come the known pieces, most frequent first."""

    name = "word"
    lossless = True

    def __init__(self, spellings: list[bytes], split: Split = "words", **learnt_with: int | None) -> None:
        self.split = split
        self.learnt_with = learnt_with  # min_count and size, for the record
        self._spellings = Spellings([*(bytes([b]) for b in range(BYTES)), *spellings, b""])
        self._lexicon = Lexicon()
        numbers = self._lexicon.add(listed(spellings))
        self._ids = np.full(len(self._lexicon) + 1, -1, np.int32)  # by lexicon number; the last is for -1, unknown
        self._ids[numbers] = BYTES + np.arange(len(spellings), dtype=np.int32)

    @classmethod
    def learn(
        cls, blocks: Iterable[Block], split: Split = "words", min_count: int = 2, size: int | None = None
    ) -> Word:
        """Know the pieces that occur at least `min_count` times, at most `size` of them."""
        _check_options(split, min_count, size)
        lexicon, counts = _count(blocks, split, None)
        return _vocabulary(lexicon, counts, split, min_count, size)[0]

    @property
    def vocab(self) -> int:
        return len(self._spellings)

    @property
    def begin(self) -> int:
        return self.vocab - 1

    @property
    def newline(self) -> int | None:
        return ord("\n")

    def encode(self, data: bytes) -> Tokens:
        if len(data) <= BLOCK:
            return self.encode_documents(data, no_starts())
        blocks = recut((Block(data[i : i + BLOCK]) for i in range(0, len(data), BLOCK)), self.cut)
        return np.concatenate(list(in_order(lambda block: self.encode_documents(block.data, no_starts()), blocks)))

    def encode_documents(self, data: bytes, starts: Offsets) -> Tokens:
        if continues_a_character(data, starts):
            return each_document(self.encode, data, starts, self.begin)
        pieces = pieces_of(data, self.split, starts)
        ids = self._ids[self._lexicon.find(pieces)]  # -1 finds the last
        unknown = np.flatnonzero(ids < 0)
        tokens, begins = spell_out(ids, pieces.text, pieces.starts[unknown], pieces.lengths[unknown])
        firsts = np.searchsorted(pieces.starts, starts)
        return with_begins(tokens, np.append(begins, len(tokens))[firsts], self.begin)

    def unknown_pieces(self, data: bytes) -> tuple[int, int]:
        """How many pieces are longer than a byte and not in the vocabulary, and how many there are."""
        pieces = pieces_of(data, self.split, no_starts())
        unknown = (self._lexicon.find(pieces) < 0) & (pieces.lengths > 1)
        return int(unknown.sum()), len(unknown)

    def unknown_rate(self, data: bytes) -> float:
        """The share of the pieces that are longer than a byte and not in the vocabulary."""
        unknown, pieces = self.unknown_pieces(data)
        return unknown / pieces if pieces else 0.0

    def decode(self, tokens: Iterable[int] | Tokens) -> bytes:
        return self._spellings.join(tokens)

    def spelling(self, token: int) -> bytes:
        return self._spellings[token]

    def cut(self, block: bytes) -> int:
        return cut_pieces(block, self.split)

    def to_json(self) -> dict[str, Any]:
        words = [as_text(spelling) for spelling in self._spellings][BYTES : self.begin]
        return {"octavo_tokenizer": self.name, "split": self.split, **self.learnt_with, "words": words}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Word:
        split, words = values.get("split"), values.get("words")
        if split not in get_args(Split):
            raise UserError(f"a word tokenizer's 'split' must be 'words' or 'space': got {split!r}")
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise UserError("a word tokenizer's 'words' must be a list of strings")
        spellings = [as_bytes(word) for word in words]
        if len(set(spellings)) < len(spellings) or not all(2 <= len(s) <= LONGEST for s in spellings):
            raise UserError(f"a word tokenizer's 'words' must be all different and of 2 to {LONGEST} bytes")
        learnt_with = {name: values[name] for name in ("min_count", "size") if name in values}
        return cls(spellings, cast(Split, split), **learnt_with)


def learn_and_encode(
    blocks: Iterable[Block], split: Split = "words", min_count: int = 2, size: int | None = None
) -> tuple[Word, Iterator[Tokens]]:
    """Learn the words of a text and encode it, reading it once; the tokens come block by block.

    The pieces are numbered as they come; their numbers wait in a temporary file until all is counted and the
    vocabulary chosen, and are then turned into tokens.
    """
    _check_options(split, min_count, size)
    with ExitStack() as stack:
        spool = stack.enter_context(tempfile.TemporaryFile())
        lexicon, counts = _count(blocks, split, spool)
        word, ids = _vocabulary(lexicon, counts, split, min_count, size)
        tokens = _from_spool(spool, ids, lexicon)
        weakref.finalize(tokens, spool.close)
        stack.pop_all()  # from here on the spool is the tokens' to close
    return word, tokens


def _count(blocks: Iterable[Block], split: Split, spool: IO[bytes] | None) -> tuple[Lexicon, NDArray[np.int64]]:
    """Number the pieces, count them, and write their numbers to the spool."""
    lexicon, counts = Lexicon(), np.zeros(0, np.int64)

    def split_up(block: Block) -> list[tuple[Pieces, Offsets]]:
        parts = _apart(block) if continues_a_character(block.data, block.starts) else [block]
        return [(pieces_of(part.data, split, part.starts), part.starts) for part in parts]

    for parts in in_order(split_up, recut(blocks, lambda block: cut_pieces(block, split))):
        for pieces, starts in parts:
            numbers = lexicon.add(pieces)
            counts = np.concatenate([counts, np.zeros(len(lexicon) - len(counts), np.int64)])
            counts += np.bincount(numbers, minlength=len(lexicon))
            if spool is not None:
                spool.write(with_begins(numbers, np.searchsorted(pieces.starts, starts), BEGIN).data)
    return lexicon, counts


def _vocabulary(
    lexicon: Lexicon, counts: NDArray[np.int64], split: Split, min_count: int, size: int | None
) -> tuple[Word, Tokens]:
    """The tokenizer, and the id of every number in the lexicon: -1 for a piece to spell, the last for BEGIN."""
    chosen, spellings = _choose(lexicon, counts, min_count, size)
    word = Word(spellings, split, min_count=min_count, size=size)
    ids = np.full(len(lexicon) + 1, -1, np.int32)
    ids[chosen] = BYTES + np.arange(len(chosen), dtype=np.int32)
    ids[BEGIN] = word.begin
    return word, ids


def _choose(
    lexicon: Lexicon, counts: NDArray[np.int64], min_count: int, size: int | None
) -> tuple[NDArray[np.int64], list[bytes]]:
    """The numbers and spellings of the pieces to know: by falling count, equals by spelling."""
    known = np.flatnonzero((counts >= min_count) & (lexicon.lengths > 1) & (lexicon.lengths <= LONGEST))
    if size is not None and len(known) > size:
        least = np.partition(counts[known], len(known) - size)[len(known) - size]
        known = known[counts[known] >= least]
    pool = lexicon.pool.tobytes()
    ends = lexicon.offsets[known] + lexicon.lengths[known]
    spelt = [pool[a:b] for a, b in zip(lexicon.offsets[known].tolist(), ends.tolist(), strict=True)]
    by_spelling = np.array(sorted(range(len(spelt)), key=spelt.__getitem__), np.int64)
    order = by_spelling[np.argsort(-counts[known[by_spelling]], kind="stable")][:size]
    return known[order], [spelt[i] for i in order.tolist()]


def _from_spool(spool: IO[bytes], ids: Tokens, lexicon: Lexicon) -> Iterator[Tokens]:
    def tokens_of(numbers: Tokens) -> Tokens:
        found = ids[numbers]  # BEGIN finds the last
        unknown = numbers[found < 0]
        return spell_out(found, lexicon.pool, lexicon.offsets[unknown], lexicon.lengths[unknown])[0]

    def spooled() -> Iterator[Tokens]:
        while data := spool.read(SPOOLED):
            yield np.frombuffer(data, np.int32)

    with spool:
        spool.seek(0)
        yield from in_order(tokens_of, spooled())


def _apart(block: Block) -> list[Block]:
    """The block's documents, each in a block of its own."""
    bounds = [0, *block.starts.tolist(), len(block.data)]
    parts = [Block(block.data[a:b], np.zeros(1, np.int64)) for a, b in pairwise(bounds)]
    return [Block(parts[0].data), *parts[1:]]


def _check_options(split: str, min_count: int, size: int | None) -> None:
    if split not in get_args(Split):
        raise UserError(f"split must be 'words' or 'space': got {split!r}")
    if min_count < 1:
        raise UserError(f"min_count must be at least 1: got {min_count}")
    if size is not None and size < 1:
        raise UserError(f"size must be at least 1 word: got {size}; leave it out to keep all words")
