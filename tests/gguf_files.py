"""A writer of GGUF files, as plain as can be, and a small tokenizer in that format."""

from __future__ import annotations

import struct
from typing import Any

import tokenizers

FORMS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9


def string(text: str | bytes) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(data)) + data


def value(kind: int, given: Any) -> bytes:
    if kind == STRING:
        return string(given)
    if kind == ARRAY:
        inner, items = given
        return struct.pack("<IQ", inner, len(items)) + b"".join(value(inner, item) for item in items)
    return struct.pack(f"<{FORMS[kind]}", given)


def pair(key: str, kind: int, given: Any) -> bytes:
    return string(key) + struct.pack("<I", kind) + value(kind, given)


def described(name: str, shape: tuple[int, ...], kind: int, offset: int) -> bytes:
    return string(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape[::-1]) + struct.pack("<IQ", kind, offset)


def gguf(pairs: list[bytes], tensors: list[bytes] = [], data: bytes = b"", version: int = 3) -> bytes:  # noqa: B006
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(pairs)) + b"".join(pairs) + b"".join(tensors)
    return head + b"\0" * (-len(head) % 32) + data


ALPHABET = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
TOKENS = ["<|endoftext|>", *ALPHABET, "Ġt", "he", "Ġthe", "<tool>"]
TOKENIZER = [
    pair("tokenizer.ggml.model", STRING, "gpt2"),
    pair("tokenizer.ggml.pre", STRING, "smollm"),
    pair("tokenizer.ggml.tokens", ARRAY, (STRING, TOKENS)),
    pair("tokenizer.ggml.token_type", ARRAY, (5, [3, *[1] * (len(TOKENS) - 2), 4])),
    pair("tokenizer.ggml.merges", ARRAY, (STRING, ["Ġ t", "h e", "Ġt he"])),
    pair("tokenizer.ggml.bos_token_id", 4, 0),
]
