"""The bytes of every token, and byte fallback: unknown words as tokens of single bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.errors import UserError

BYTES = 256  # in every tokenizer with byte fallback, token b is byte b
JOINED_TOKENS = 1 << 20  # decoded at a time, to bound the memory of their index arrays

Tokens = NDArray[np.int32]
Pool = NDArray[np.uint8]
Offsets = NDArray[np.int64]


class TokenBytes:
    """A table of the bytes of every token, `begin` (no bytes) included."""

    def __init__(self, token_bytes: Sequence[bytes]) -> None:
        self._pool = np.frombuffer(b"".join(token_bytes), np.uint8)
        self._lengths = np.fromiter(map(len, token_bytes), np.int64, len(token_bytes))
        self._offsets = np.cumsum(self._lengths) - self._lengths

    def __len__(self) -> int:
        return len(self._lengths)

    def __getitem__(self, token: int) -> bytes:
        if not 0 <= token < len(self):
            self._check(np.array([token]))
        offset = int(self._offsets[token])
        return self._pool[offset : offset + int(self._lengths[token])].tobytes()

    def __iter__(self) -> Iterator[bytes]:
        pool, ends = self._pool.tobytes(), self._offsets + self._lengths
        return (pool[a:b] for a, b in zip(self._offsets.tolist(), ends.tolist(), strict=True))

    def join(self, tokens: Iterable[int] | Tokens) -> bytes:
        """The bytes of the tokens, one after another."""
        array = tokens if isinstance(tokens, np.ndarray) else np.fromiter((int(token) for token in tokens), np.int64)
        self._check(array)
        parts = (array[i : i + JOINED_TOKENS] for i in range(0, len(array), JOINED_TOKENS))
        return b"".join(self._pool[ranges(self._offsets[part], self._lengths[part])].tobytes() for part in parts)

    def _check(self, tokens: NDArray[Any]) -> None:
        if tokens.size and (tokens.min() < 0 or tokens.max() >= len(self)):
            wrong = int(tokens[(tokens < 0) | (tokens >= len(self))][0])
            raise UserError(
                f"a token must be from 0 to {len(self) - 1:,}: got {wrong:,}; "
                "decode with the tokenizer that the tokens were made with"
            )


def ranges(offsets: Offsets, lengths: Offsets) -> Offsets:
    """The numbers offset, offset + 1, ..., offset + length - 1 of every pair, one after another."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(offsets - ends + lengths, lengths) + np.arange(total)


def byte_fallback(ids: Tokens, pool: Pool, offsets: Offsets, lengths: Offsets) -> tuple[Tokens, Offsets]:
    """Put byte tokens in the place of every negative id; also where each id's tokens begin.

    `offsets` and `lengths` say where in `pool` the words with a negative id lie, in their order.
    """
    unknown = np.flatnonzero(ids < 0)
    if not len(unknown):
        return ids, np.arange(len(ids))
    sizes = np.ones(len(ids), np.int64)
    sizes[unknown] = lengths
    begins = np.cumsum(sizes) - sizes
    tokens = np.repeat(ids, sizes)
    tokens[ranges(begins[unknown], lengths)] = pool[ranges(offsets, lengths)]
    return tokens, begins


def with_begins(tokens: Tokens, positions: Offsets, begin: int) -> Tokens:
    """The tokens with `begin` put before each of the positions."""
    return np.insert(tokens, positions, np.int32(begin)) if len(positions) else tokens


def starts_inside_character(data: bytes, starts: Offsets) -> bool:
    """Whether a document starts with a UTF-8 continuation byte, so that joining it to the previous could matter."""
    firsts = np.frombuffer(data, np.uint8)[starts[starts < len(data)]]
    return bool(((firsts & 0xC0) == 0x80).any())


def as_text(data: bytes) -> str:
    """Any bytes as a string that JSON can hold; bytes that are not UTF-8 become lone surrogates."""
    return data.decode("utf-8", "surrogateescape")


def as_bytes(text: str) -> bytes:
    """The bytes that `as_text` was given; what it cannot have given is refused."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise UserError(f"{text[:40]!r} spells no bytes: character {error.start} is half a surrogate pair") from error


def byte_alphabet() -> dict[str, int]:
    """The characters that stand for bytes in byte-level vocabularies: visible Latin-1 ones for themselves."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(BYTES) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {chr(BYTES + i): byte for i, byte in enumerate(others)}
