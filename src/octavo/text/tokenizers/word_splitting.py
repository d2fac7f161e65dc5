"""Text to words, and words to 64-bit keys: whole arrays at a time, because a loop over 45 million words is a minute.

A word is, with split 'words', an optional space and a run of word characters (letters, marks, digits, underscore),
or an optional space and one other visible character, or one white-space character; with split 'space', an optional
space and a run of characters that are not white space, or one white-space character. Bytes that are not UTF-8 count
as word characters.
"""

from __future__ import annotations

import unicodedata
from functools import cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from octavo.text.tokenizers.char import character_boundary
from octavo.text.tokenizers.token_bytes import Offsets, Pool

Split = Literal["words", "space"]
Keys = NDArray[np.uint64]

MAX_WORD_BYTES = 64  # bytes; longer words are always written as bytes, so that a key takes at most 8 loads
KEY_BYTES = 7  # bytes that fit into a key together with their number

# A byte's class is two sets of 4 bits: what it is to its right neighbour (high) and what it joins on its left (low).
# A word begins where the two have nothing in common.
WORD, SYMBOL, SPACE, BLANK, REST = 0b1001_0011, 0b1000_0010, 0b1010_0000, 0b1000_0000, 0b1000_1000
OPEN = 0b0011_0000  # the classes that the next character may still join

JOINERS = frozenset("\u00ad\u200c\u200d")  # soft hyphen and zero-width (non-)joiners stand inside words
TABLED = 0x20000  # all higher code points are ideographs, tags and private characters: word characters

MIX = np.uint64(0x9E3779B97F4A7C15)  # odd, bits well spread: 2**64 over the golden ratio
LONG_KEY = np.uint64(0xFE << 56)  # the key of words longer than MAX_WORD_BYTES; no table holds it
MASKS = np.array([(1 << 8 * n) - 1 for n in range(9)], np.uint64)


class WordSpans(NamedTuple):
    """Where the words of a text lie, and their keys; those longer than MAX_WORD_BYTES share LONG_KEY."""

    text: Pool  # the text and 8 more bytes, so that 8 can be loaded anywhere in it
    starts: Offsets
    lengths: Offsets
    keys: Keys


def find_words(data: bytes, split: Split, breaks: Offsets) -> WordSpans:
    """The words of a text; `breaks` are the places where one must begin."""
    text, starts, lengths = word_offsets(data, split, breaks)
    return WordSpans(text, starts, lengths, word_keys(text, starts, lengths))


def word_offsets(data: bytes, split: Split, breaks: Offsets) -> tuple[Pool, Offsets, Offsets]:
    """The text with 8 bytes of padding, and the starts and lengths of its words."""
    text = padded(np.frombuffer(data, np.uint8))
    begins = _word_starts(_classes(data, text, split))
    begins[breaks[breaks < len(data)]] = True
    starts = np.flatnonzero(begins)
    return text, starts, np.diff(starts, append=len(data))


def spans_of(words: list[bytes]) -> WordSpans:
    """Words that are given one by one."""
    lengths = np.fromiter(map(len, words), np.int64, len(words))
    text = padded(np.frombuffer(b"".join(words), np.uint8))
    starts = np.cumsum(lengths) - lengths
    return WordSpans(text, starts, lengths, word_keys(text, starts, lengths))


def padded(text: Pool) -> Pool:
    """The text with padding, so that 8 bytes can be loaded at every place."""
    return np.concatenate([text, np.zeros(8, np.uint8)])


def word_boundary(data: bytes, split: Split) -> int:
    """The longest length at which `data` can be split without changing a word."""
    whole = character_boundary(data)
    size = 4096
    while True:  # from the end, in growing steps: the last word is nearly always a short one
        first = max(0, whole - size)
        tail = data[first:whole]
        if not tail:
            return 0
        classes = _classes(tail, padded(np.frombuffer(tail, np.uint8)), split)
        if not classes[-1] & OPEN and (first == 0 or len(tail) > 4):
            return whole
        begins = np.flatnonzero(_word_starts(classes))
        begins = begins[begins > (4 if first else 0)]  # the tail may begin inside a character
        if len(begins):
            return first + int(begins[-1])
        if first == 0:
            return 0
        size *= 4


def word_keys(text: Pool, starts: Offsets, lengths: Offsets) -> Keys:
    """A key for every word: short words have one that no other word has, long ones a hash of 56 bits.

    A short key is the bytes themselves and, in the top byte, their number. A long key has 255 in the top byte, so it
    never equals a short one; two long words may share a key, and whoever looks one up compares their bytes.
    """
    words = load(text, starts)
    keys = words & MASKS[np.minimum(lengths, KEY_BYTES)] | (lengths.astype(np.uint64) << np.uint64(56))
    long = np.flatnonzero(lengths > KEY_BYTES)
    mixed = words[long] * MIX + lengths[long].astype(np.uint64)
    rest = np.flatnonzero(lengths[long] > 8)
    for done in range(8, MAX_WORD_BYTES, 8):
        at = long[rest]
        word = load(text, starts[at] + done) & MASKS[np.minimum(lengths[at] - done, 8)]
        mixed[rest] = _stir(mixed[rest]) + word
        rest = rest[lengths[at] > done + 8]
        if not len(rest):
            break
    keys[long] = _stir(mixed) >> np.uint64(8) | np.uint64(0xFF << 56)
    keys[lengths > MAX_WORD_BYTES] = LONG_KEY
    return keys


def load(text: Pool, starts: Offsets) -> Keys:
    """The 8 bytes from each of the starts, the first one lowest."""
    # A void type may lie at any address, so one view of overlapping elements serves all starts.
    every = np.ndarray((len(text) - 7,), "V8", text, strides=(1,))
    return every[starts].view("<u8").astype(np.uint64, copy=False)


def equal(text: Pool, starts: Offsets, pool: Pool, offsets: Offsets, lengths: Offsets) -> NDArray[np.bool_]:
    """Whether the words in the text are, byte for byte, those of the same lengths in the pool."""
    same = np.ones(len(starts), np.bool_)
    rest = np.arange(len(starts))
    done = 0
    while len(rest):
        mask = MASKS[np.minimum(lengths[rest] - done, 8)]
        differ = (load(text, starts[rest] + done) ^ load(pool, offsets[rest] + done)) & mask
        same[rest] &= differ == 0
        done += 8
        rest = rest[lengths[rest] > done]
    return same


def _stir(mixed: Keys) -> Keys:
    return (mixed ^ (mixed >> np.uint64(29))) * MIX


def _word_starts(classes: Pool) -> NDArray[np.bool_]:
    """Whether a word begins at each byte."""
    begins = np.ones(len(classes), np.bool_)
    np.equal((classes[:-1] >> 4) & classes[1:], 0, out=begins[1:])
    return begins


def _classes(data: bytes, text: Pool, split: Split) -> Pool:
    """The class of every byte: a table for ASCII, and a look-up of the rare others by code point."""
    table, ascii_table = _class_table(split)
    classes = np.frombuffer(data.translate(ascii_table), np.uint8)
    if data.isascii():
        return classes
    classes = classes.copy()
    leads = np.flatnonzero(text[:-8] >= 0xC2)
    first = text[leads]
    for size, low, high, least in ((2, 0xC2, 0xE0, 0x80), (3, 0xE0, 0xF0, 0x800), (4, 0xF0, 0xF5, 0x10000)):
        at = leads[(first >= low) & (first < high)]
        points = (text[at] & (0xFF >> (size + 1))).astype(np.int64)
        valid = np.ones(len(at), np.bool_)
        for i in range(1, size):
            byte = text[at + i]
            valid &= (byte & 0xC0) == 0x80
            points = points << 6 | (byte & 0x3F)
        kinds = table[np.minimum(points, TABLED)]
        other = np.flatnonzero(valid & (points >= least) & (kinds != WORD))
        classes[at[other]] = kinds[other]
        for i in range(1, size):
            classes[at[other] + i] = REST
    return classes


@cache
def _class_table(split: Split) -> tuple[Pool, bytes]:
    table = np.array([_class(chr(point), split) for point in range(TABLED)] + [WORD], np.uint8)
    return table, table[:128].tobytes() + bytes([WORD]) * 128


def _class(character: str, split: Split) -> int:
    if character == " ":
        return SPACE
    if character.isspace():
        return BLANK
    category = unicodedata.category(character)
    # A lone surrogate is not UTF-8, and bytes that are not UTF-8 are word characters.
    if split == "space" or category[0] in "LMN" or category == "Cs" or character == "_" or character in JOINERS:
        return WORD
    return SYMBOL


@cache
def word_pattern(split: Split) -> str:
    """The same words as a regular expression of the tokenizers library, every match a word."""
    kinds = _class_table(split)[0]
    word, blank = (_character_set(np.isin(kinds[:TABLED], which)) for which in ([WORD], [SPACE, BLANK]))
    word += f"\\x{{{TABLED:X}}}-\\x{{10FFFF}}"
    return f" ?[{word}]+| ?[^{word}{blank}]|[{blank}]"


def _character_set(members: NDArray[np.bool_]) -> str:
    """The code points whose entry is true, as the ranges of a character set."""
    edges = np.flatnonzero(np.diff(members, prepend=False, append=False))
    return "".join(f"\\x{{{first:X}}}-\\x{{{past - 1:X}}}" for first, past in edges.reshape(-1, 2).tolist())
