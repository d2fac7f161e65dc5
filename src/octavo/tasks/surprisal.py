"""The opening of a text, and what each token of it costs, for the pages that colour it."""

from __future__ import annotations

from typing import Any

from octavo.core import LanguageModel
from octavo.pages.surprisal import Piece, whole_characters
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
    return data[: readable_end(data, limit)]


def readable_end(data: bytes, limit: int) -> int:
    """Where to end a text of at most so many bytes: after a line, a word or at least a character."""
    if len(data) <= limit:
        return len(data)
    ends = (data.rfind(separator, limit // 2, limit) + 1 for separator in (b"\n", b" "))
    return next(filter(None, ends), character_start(data, limit))


def character_start(data: bytes, at: int) -> int:
    """The same place, or a little before it where it lies inside a character."""
    for start in range(at, max(at - 4, -1), -1):
        if start >= len(data) or data[start] & 0xC0 != 0x80:
            return start
    return at  # not UTF-8


def annotate(model: LanguageModel[Any], tokenizer: Tokenizer, data: bytes) -> list[Piece]:
    """The text in pieces that are whole characters, each with its cost in bits; the first follows the begin token."""
    return whole_characters(
        (tokenizer.token_bytes(token), cost)
        for tokens_W, bits_W in token_costs(model, [tokenizer.encode(data)])
        for token, cost in zip(tokens_W.tolist(), bits_W.tolist(), strict=True)
    )
