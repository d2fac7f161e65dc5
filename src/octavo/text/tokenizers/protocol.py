"""What every tokenizer promises: bytes become tokens, and the tokens give the same bytes back.

A token has a fixed spelling, and a text is the concatenation of its tokens' spellings; so what a token costs
can be laid over the bytes it stands for, and streaming needs no look-ahead.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.int32]


class Tokenizer(Protocol):
    """Bytes to tokens and back. Ids run from 0 to `vocab` - 1.

    `begin` is one of them: the last in a vocabulary that was made here, any in one that came with a pretrained model.
    """

    name: str
    lossless: bool  # decode(encode(data)) == data for all data that encode does not refuse

    @property
    def vocab(self) -> int:
        """How many ids there are, `begin` included."""

    @property
    def begin(self) -> int:
        """The id that opens every sequence and stands for no bytes; `encode` never gives it."""

    def encode(self, data: bytes) -> Tokens:
        """The tokens of any bytes, valid UTF-8 or not; what a foreign vocabulary has no token for is refused."""

    def encode_documents(self, data: bytes, starts: NDArray[np.int64]) -> Tokens:
        """The tokens of documents that lie end to end in `data`, with `begin` before each that starts in it.

        Equal to encoding every document alone; `starts` are in order, and what lies before the first is the rest
        of an earlier document.
        """

    def decode(self, tokens: Iterable[int] | Tokens) -> bytes:
        """The bytes of any tokens; `begin` stands for none."""

    def spelling(self, token: int) -> bytes:
        """The bytes of one token."""

    def cut(self, block: bytes) -> int:
        """The longest length (0: none) at which `block` can be cut, more text following, without changing a token."""

    @property
    def newline(self) -> int | None:
        """The id of the token that is a line feed, where there is one."""

    def to_json(self) -> dict[str, Any]:
        """Everything `load_tokenizer` needs, as plain JSON values."""
