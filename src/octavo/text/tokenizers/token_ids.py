"""The tokenizer of a model that came without one: token ids are all there is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

from octavo.errors import UserError
from octavo.text.chunks import Chunk
from octavo.text.tokenizers.base import Tokenizer


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

    def _refuse(self, *values: Any, **named: Any) -> NoReturn:
        raise UserError(self._why)

    encode = decode = token_bytes = split_point = to_json = _refuse

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> NoReturn:
        raise UserError("token ids without a text have no tokenizer to load; name another tokenizer")
