"""The opening of a text, and what each token of it costs, for the pages that colour it."""

from __future__ import annotations

import codecs
from typing import Any

from octavo.core import LanguageModel
from octavo.pages.surprisal import Piece
from octavo.scoring.token_costs import token_costs
from octavo.text import Split
from octavo.text.tokenizers.base import Tokenizer

OPENING = 600  # bytes


def opening(split: Split, limit: int = OPENING) -> bytes:
    """The first bytes of the first document, up to the end of a line, a word or at least a character."""
    first = next(split.chunks(), None)
    if first is None:
        return b""
    later = first.starts[first.starts > 0]
    data = first.data[: int(later[0]) if len(later) else None]
    if len(data) <= limit:
        return data
    for mark in (b"\n", b" "):
        end = data.rfind(mark, limit // 2, limit) + 1
        if end:
            return data[:end]
    end = limit
    while end > limit - 4 and data[end] & 0xC0 == 0x80:  # inside a character
        end -= 1
    return data[:end]


def pieces(model: LanguageModel[Any], tokenizer: Tokenizer, data: bytes) -> list[Piece]:
    """The text and its price, in parts that are whole characters; charged from the begin token on."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    found, size, bits = [], 0, 0.0
    for tokens_W, bits_W in token_costs(model, [tokenizer.encode(data)]):
        for token, cost in zip(tokens_W.tolist(), bits_W.tolist(), strict=True):
            spelt = tokenizer.token_bytes(token)
            size, bits = size + len(spelt), bits + cost
            if text := decoder.decode(spelt):
                found.append(Piece(text, size, bits))
                size, bits = 0, 0.0
    rest = decoder.decode(b"", final=True)
    return [*found, Piece(rest, size, bits)] if size else found
