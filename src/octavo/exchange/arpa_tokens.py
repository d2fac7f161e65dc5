"""Tokens as words of an ARPA file: any bytes become a readable name without white space, and come back from it.

A space is shown as ▁. Bytes that are not UTF-8, characters that cannot be seen, a ▁ of the text's own, and a `<` that
would look like the beginning of a mark are written as <0xNN>, byte by byte. Several tokens may have one spelling (the
character 'a' and the byte 'a'): all but the last of them add their id, a<#97>, and so does one without any bytes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from octavo.text.tokenizers.base import Tokenizer
from octavo.text.tokenizers.closed_vocabulary import BEGIN
from octavo.text.tokenizers.token_bytes import as_bytes, as_text

SPACE = "▁"
# Controls, white space and what takes no room, written out instead of asked of Python, whose idea of them changes with
# every version of Unicode; surrogates are bytes that are not UTF-8.
UNSEEN = (
    r"\x00-\x1f\x7f-\xa0\xad\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f\u2000-\u200f\u2028-\u202f"
    r"\u205f-\u206f\u2581\u3000\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\uffff\U000e0000-\U000e0fff"
)
ESCAPED = re.compile(f"[{UNSEEN}]|<(?=0x|#|/?s>|unk>)", re.IGNORECASE)
ESCAPE = re.compile("<0x([0-9A-F]{2})>")
MARK = re.compile(r"<#[0-9]+>\Z")


def token_names(tokenizer: Tokenizer) -> list[str]:
    """A name for each token, no two alike, from which `spelling_of` gives its bytes; the last is `<s>`."""
    if tokenizer.words is not None:  # they came out of an ARPA file, or could
        return [*tokenizer.words]
    return [*names_of([tokenizer.token_bytes(token) for token in range(tokenizer.begin)]), BEGIN]


def names_of(spellings: Sequence[bytes]) -> list[str]:
    """A name for each spelling, no two alike."""
    last = {spelling: token for token, spelling in enumerate(spellings)}
    return [
        _shown(spelling) + (f"<#{token}>" if token < last[spelling] or not spelling else "")
        for token, spelling in enumerate(spellings)
    ]


def spelling_of(name: str) -> bytes:
    """The bytes of the token of that name."""
    parts = ESCAPE.split(MARK.sub("", name).replace(SPACE, " "))
    return b"".join(bytes([int(part, 16)]) if i % 2 else as_bytes(part) for i, part in enumerate(parts))


def _shown(spelling: bytes) -> str:
    return ESCAPED.sub(_escape, as_text(spelling)).replace(" ", SPACE)


def _escape(found: re.Match[str]) -> str:
    return "".join(f"<0x{byte:02X}>" for byte in as_bytes(found[0]))
