"""Characters as tokens: those of the training text, and bytes for all others."""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.errors import UserError
from octavo.text.blocks import Block, recut
from octavo.text.tokenizers.protocol import Tokens
from octavo.text.tokenizers.spelling import BYTES, Offsets, Spellings, spell_out, with_begins

CODE_POINTS = 0x110000
ESCAPED = 0xDC00  # Python's surrogateescape decodes an undecodable byte b to code point ESCAPED + b, b >= 128


class Char:
    """Tokens 0 to 255 are bytes, then come the known characters in the order of their code points."""

    name = "char"
    lossless = True

    def __init__(self, characters: str) -> None:
        self.characters = characters
        self._spellings = Spellings([*(bytes([b]) for b in range(BYTES)), *(c.encode() for c in characters), b""])
        self._ids = np.full(CODE_POINTS, -1, np.int32)
        self._ids[ESCAPED + 128 : ESCAPED + 256] = np.arange(128, 256)
        self._ids[[ord(c) for c in characters]] = BYTES + np.arange(len(characters))

    @classmethod
    def learn(cls, blocks: Iterable[Block], min_count: int = 1) -> Char:
        """Know every character that occurs at least `min_count` times."""
        if min_count < 1:
            raise UserError(f"min_count must be at least 1: got {min_count}")
        counts = np.zeros(CODE_POINTS, np.int64)
        for block in recut(blocks, cut_characters):
            counts += np.bincount(_code_points(block.data), minlength=CODE_POINTS)
        counts[0xD800:0xE000] = 0  # what surrogateescape made of bytes that are no characters
        return cls("".join(map(chr, np.flatnonzero(counts >= min_count).tolist())))

    @property
    def vocab(self) -> int:
        return len(self._spellings)

    @property
    def begin(self) -> int:
        return self.vocab - 1

    @property
    def newline(self) -> int | None:
        return int(self.encode(b"\n")[0])

    def encode(self, data: bytes) -> Tokens:
        return self._tokens(_code_points(data))[0]

    def encode_documents(self, data: bytes, starts: Offsets) -> Tokens:
        bounds = [0, *starts.tolist(), len(data)]
        parts = [_code_points(data[a:b]) for a, b in pairwise(bounds)]
        tokens, begins = self._tokens(np.concatenate(parts))
        firsts = np.cumsum([len(part) for part in parts], dtype=np.int64)[:-1]
        return with_begins(tokens, np.append(begins, len(tokens))[firsts], self.begin)

    def _tokens(self, points: NDArray[np.uint32]) -> tuple[Tokens, Offsets]:
        ids = self._ids.take(points)
        unknown = points[ids < 0]
        if not len(unknown):
            return ids, np.arange(len(ids))
        kinds, kind = np.unique(unknown, return_inverse=True)
        spelt = [chr(point).encode() for point in kinds.tolist()]
        lengths = np.array([len(s) for s in spelt], np.int64)
        offsets = np.cumsum(lengths) - lengths
        return spell_out(ids, np.frombuffer(b"".join(spelt), np.uint8), offsets[kind], lengths[kind])

    def decode(self, tokens: Iterable[int] | Tokens) -> bytes:
        return self._spellings.join(tokens)

    def spelling(self, token: int) -> bytes:
        return self._spellings[token]

    def cut(self, block: bytes) -> int:
        return cut_characters(block)

    def to_json(self) -> dict[str, Any]:
        return {"octavo_tokenizer": self.name, "characters": self.characters}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Char:
        characters = values.get("characters")
        if not isinstance(characters, str) or list(characters) != sorted(set(characters)):
            raise UserError("a char tokenizer's 'characters' must be one string, sorted, no character twice")
        if any("\ud800" <= c <= "\udfff" for c in characters):
            raise UserError("a char tokenizer's 'characters' must not hold surrogates: they are not characters")
        return cls(characters)


def cut_characters(block: bytes) -> int:
    """The length of `block` without the unfinished UTF-8 character at its end, if there is one."""
    tail = block[-3:]  # the longest unfinished character; beginning inside another one does no harm
    return len(block) - len(tail) + codecs.utf_8_decode(tail, "surrogateescape", False)[1]


def _code_points(data: bytes) -> NDArray[np.uint32]:
    if data.isascii():
        return np.frombuffer(data, np.uint8).astype(np.uint32)
    text = data.decode("utf-8", "surrogateescape")
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
