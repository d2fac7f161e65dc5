"""The opening of a text, and what each token of it costs, for the pages that colour it."""

from __future__ import annotations

import codecs
from typing import Any

from octavo.core import LanguageModel
from octavo.pages.surprisal import Piece
from octavo.scoring.token_costs import token_costs
from octavo.text import Split
from octavo.text.tokenizers.base import Tokenizer

OPENING_BYTES = 600


def opening(split: Split, limit: int = OPENING_BYTES) -> bytes:
    """The first bytes of the first document, up to the end of a line, a word or at least a character."""
    first = next(split.chunks(), None)
    if first is None:
        return b""
    later = first.starts[first.starts > 0]
    data = first.data[: int(later[0]) if len(later) else None]
    if len(data) <= limit:
        return data
    for separator in (b"\n", b" "):
        end = data.rfind(separator, limit // 2, limit) + 1
        if end:
            return data[:end]
    end = limit
    while end > limit - 4 and data[end] & 0xC0 == 0x80:  # inside a character
        end -= 1
    return data[:end]


def annotate(model: LanguageModel[Any], tokenizer: Tokenizer, data: bytes) -> list[Piece]:
    """The text in pieces that are whole characters, each with its cost in bits; the first follows the begin token."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    pieces, size, bits = [], 0, 0.0
    for tokens_W, bits_W in token_costs(model, [tokenizer.encode(data)]):
        for token, cost in zip(tokens_W.tolist(), bits_W.tolist(), strict=True):
            spelt = tokenizer.token_bytes(token)
            size, bits = size + len(spelt), bits + cost
            if text := decoder.decode(spelt):
                pieces.append(Piece(text, size, bits))
                size, bits = 0, 0.0
    rest = decoder.decode(b"", final=True)
    return [*pieces, Piece(rest, size, bits)] if size else pieces
