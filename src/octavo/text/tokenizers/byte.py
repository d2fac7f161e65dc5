"""Bytes as tokens: the smallest vocabulary that can say everything."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from octavo.text.blocks import Block
from octavo.text.tokenizers.protocol import Tokens
from octavo.text.tokenizers.spelling import BYTES, Offsets, Spellings, with_begins


class Byte:
    """Token b is byte b."""

    name = "byte"
    lossless = True
    vocab = BYTES + 1
    begin = BYTES
    newline: int | None = ord("\n")

    def __init__(self) -> None:
        self._spellings = Spellings([*(bytes([b]) for b in range(BYTES)), b""])

    @classmethod
    def learn(cls, blocks: Iterable[Block]) -> Byte:
        """Nothing is learnt; the text is not read."""
        return cls()

    def encode(self, data: bytes) -> Tokens:
        return np.frombuffer(data, np.uint8).astype(np.int32)

    def encode_documents(self, data: bytes, starts: Offsets) -> Tokens:
        return with_begins(self.encode(data), starts, self.begin)

    def decode(self, tokens: Iterable[int] | Tokens) -> bytes:
        return self._spellings.join(tokens)

    def spelling(self, token: int) -> bytes:
        return self._spellings[token]

    def cut(self, block: bytes) -> int:
        return len(block)

    def to_json(self) -> dict[str, Any]:
        return {"octavo_tokenizer": self.name}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Byte:
        return cls()
