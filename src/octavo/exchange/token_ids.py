"""The tokenizer of a model that came without one: token ids are all there is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from octavo.errors import UserError
from octavo.text.tokenizers.protocol import Tokens


class NoText:
    """Knows how many ids there are and which one opens a sequence; whatever needs text is refused."""

    name = "no"
    lossless = False
    newline: int | None = None

    def __init__(self, vocab: int, begin: int, why: str) -> None:
        self.vocab, self.begin, self._why = vocab, begin, why

    def _refuse(self) -> NoReturn:
        raise UserError(self._why)

    def encode(self, data: bytes) -> Tokens:
        self._refuse()

    def encode_documents(self, data: bytes, starts: NDArray[np.int64]) -> Tokens:
        self._refuse()

    def decode(self, tokens: Iterable[int] | Tokens) -> bytes:
        self._refuse()

    def spelling(self, token: int) -> bytes:
        self._refuse()

    def cut(self, block: bytes) -> int:
        self._refuse()

    def to_json(self) -> dict[str, Any]:
        self._refuse()
