"""The tokenizer of a model that came without one: token ids are all there is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

from octavo.errors import UserError
from octavo.text.chunks import Chunk
from octavo.text.tokenizers.base import Tokenizer
from octavo.text.tokenizers.token_bytes import Tokens


class TokenIds(Tokenizer):
    """Knows how many ids there are and which one opens a sequence; whatever needs text is refused."""

    name = "ids"
    unit = "token ids"
    lossless = False

    def __init__(self, vocab: int, begin: int, why: str) -> None:
        super().__init__([b""] * vocab, begin)
        self._why = why

    @classmethod
    def learn(cls, chunks: Iterable[Chunk], settings: Any = None) -> NoReturn:
        raise UserError("token ids without a text have no tokenizer to learn; name another tokenizer")

    @property
    def newline(self) -> None:
        return None

    def _refuse(self) -> NoReturn:
        raise UserError(self._why)

    def encode(self, data: bytes) -> Tokens:
        self._refuse()

    def decode(self, tokens: Iterable[int] | Tokens) -> bytes:
        self._refuse()

    def token_bytes(self, token: int) -> bytes:
        self._refuse()

    def split_point(self, data: bytes) -> int:
        self._refuse()

    def to_json(self) -> dict[str, Any]:
        self._refuse()

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> NoReturn:
        raise UserError("token ids without a text have no tokenizer to load; name another tokenizer")
