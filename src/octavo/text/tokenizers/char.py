"""Characters as tokens: those of the training text, and bytes for all others."""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.config import Count, check_ranges
from octavo.errors import UserError
from octavo.text.chunks import Chunk, Starts, rechunk
from octavo.text.tokenizers.base import KIND, Tokenizer
from octavo.text.tokenizers.token_bytes import (
    BYTES,
    Offsets,
    Tokens,
    byte_fallback,
    starts_inside_character,
    with_begins,
)

CODE_POINTS = 0x110000
ESCAPED = 0xDC00  # Python's surrogateescape decodes an undecodable byte b to code point ESCAPED + b, b >= 128


@dataclass(frozen=True)
class CharSettings:
    """Which characters become tokens."""

    min_count: Count = 1
    """Characters that occur less often are written as bytes."""

    def __post_init__(self) -> None:
        check_ranges(self)


class Char(Tokenizer):
    """Tokens 0 to 255 are bytes, then come the known characters in the order of their code points."""

    name = "char"
    unit = "characters"
    Settings = CharSettings
    splits_locally = learns_words = True

    def __init__(self, characters: str) -> None:
        super().__init__([*(bytes([b]) for b in range(BYTES)), *(c.encode() for c in characters), b""])
        self.characters = characters
        self._ids = np.full(CODE_POINTS, -1, np.int32)
        self._ids[ESCAPED + 128 : ESCAPED + 256] = np.arange(128, 256)
        self._ids[[ord(c) for c in characters]] = BYTES + np.arange(len(characters))

    @classmethod
    def learn(cls, chunks: Iterable[Chunk], settings: CharSettings | None = None) -> Char:
        """Know every character that occurs at least `min_count` times."""
        counts = _count(chunks)
        return cls("".join(map(chr, np.flatnonzero(counts >= (settings or CharSettings()).min_count).tolist())))

    @classmethod
    def count_words(cls, chunks: Iterable[Chunk], settings: CharSettings) -> tuple[list[bytes], NDArray[np.int64]]:
        counts = _count(chunks)
        points = np.flatnonzero(counts)
        return [chr(point).encode() for point in points.tolist()], counts[points]

    @classmethod
    def from_words(cls, words: list[bytes], settings: CharSettings) -> Char:
        return cls("".join(sorted(word.decode() for word in words)))

    def encode(self, data: bytes) -> Tokens:
        return self._tokens(_code_points(data))[0]

    def encode_documents(self, data: bytes, starts: Starts) -> Tokens:
        parts = [_code_points(document) for document in Chunk(data, starts).documents()]
        tokens, begins = self._tokens(np.concatenate(parts))
        firsts = np.cumsum([len(part) for part in parts], dtype=np.int64)[:-1]
        return with_begins(tokens, np.append(begins, len(tokens))[firsts], self.begin)

    def _tokens(self, points: NDArray[np.uint32]) -> tuple[Tokens, Offsets]:
        ids = self._ids.take(points)
        unknown = points[ids < 0]
        if not len(unknown):
            return ids, np.arange(len(ids))
        kinds, kind = np.unique(unknown, return_inverse=True)
        encoded = [chr(point).encode() for point in kinds.tolist()]
        lengths = np.array([len(s) for s in encoded], np.int64)
        offsets = np.cumsum(lengths) - lengths
        return byte_fallback(ids, np.frombuffer(b"".join(encoded), np.uint8), offsets[kind], lengths[kind])

    def split_point(self, data: bytes) -> int:
        return character_boundary(data)

    def huggingface_json(self) -> dict[str, Any]:
        """Characters without merges, and byte fallback for unknown ones."""
        vocab = {f"<0x{byte:02X}>": byte for byte in range(BYTES)}
        vocab |= {character: BYTES + i for i, character in enumerate(self.characters)}
        # Without this split the library would put the whole text into the memory of its cache, as one word.
        split = {"type": "Split", "pattern": {"Regex": r"[\s\S]"}, "behavior": "Isolated", "invert": False}
        decoder = {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]}
        model = {"type": "BPE", "vocab": vocab, "merges": [], "byte_fallback": True}
        return {"pre_tokenizer": split, "decoder": decoder, "model": model}

    def to_json(self) -> dict[str, Any]:
        return {KIND: self.name, "characters": self.characters}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Char:
        characters = values.get("characters")
        if not isinstance(characters, str) or list(characters) != sorted(set(characters)):
            raise UserError("a char tokenizer's 'characters' must be one string, sorted, no character twice")
        if any("\ud800" <= c <= "\udfff" for c in characters):
            raise UserError("a char tokenizer's 'characters' must not hold surrogates: they are not characters")
        return cls(characters)


def character_boundary(data: bytes) -> int:
    """The length of `data` without the unfinished UTF-8 character at its end, if there is one."""
    tail = data[-3:]  # the longest unfinished character; beginning inside another one does no harm
    return len(data) - len(tail) + codecs.utf_8_decode(tail, "surrogateescape", False)[1]


def _count(chunks: Iterable[Chunk]) -> NDArray[np.int64]:
    """How often each code point occurs."""
    counts = np.zeros(CODE_POINTS, np.int64)
    for chunk in rechunk(chunks, character_boundary):
        # Bytes that two documents have at their border are no character, though they look like one when joined.
        apart = starts_inside_character(chunk.data, chunk.starts)
        for data in chunk.documents() if apart else [chunk.data]:
            counts += np.bincount(_code_points(data), minlength=CODE_POINTS)
    counts[0xD800:0xE000] = 0  # what surrogateescape made of bytes that are no characters
    return counts


def _code_points(data: bytes) -> NDArray[np.uint32]:
    if data.isascii():
        return np.frombuffer(data, np.uint8).astype(np.uint32)
    text = data.decode("utf-8", "surrogateescape")
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
