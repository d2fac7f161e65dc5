"""Bytes as tokens: the smallest vocabulary that can express every text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from octavo.text.chunks import Chunk, Starts
from octavo.text.tokenizers.base import KIND, NoSettings, Tokenizer
from octavo.text.tokenizers.token_bytes import BYTES, Tokens, byte_alphabet, with_begins


class Byte(Tokenizer):
    """Token b is byte b."""

    name = "byte"
    unit = "bytes"
    reads_raw_bytes = True
    splits_locally = True

    def __init__(self) -> None:
        super().__init__([*(bytes([b]) for b in range(BYTES)), b""])

    @classmethod
    def learn(cls, chunks: Iterable[Chunk], settings: NoSettings | None = None) -> Byte:
        """Nothing is learnt; the text is not read."""
        return cls()

    def encode(self, data: bytes) -> Tokens:
        return np.frombuffer(data, np.uint8).astype(np.int32)

    def encode_documents(self, data: bytes, starts: Starts) -> Tokens:
        return with_begins(self.encode(data), starts, self.begin)

    def split_point(self, data: bytes) -> int:
        return len(data)

    def huggingface_json(self) -> dict[str, Any]:
        """A byte-level vocabulary of the 256 bytes, in their order, without merges."""
        level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
        model = {"type": "BPE", "vocab": byte_alphabet(), "merges": []}
        return {"pre_tokenizer": level, "decoder": level, "model": model}

    def to_json(self) -> dict[str, Any]:
        return {KIND: self.name}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Byte:
        return cls()
