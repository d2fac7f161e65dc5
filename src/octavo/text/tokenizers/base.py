"""What every tokenizer promises: bytes become tokens, the tokens become bytes again, and it can be learnt and saved.

The tokens of a lossless tokenizer stand for fixed bytes, and a text is the concatenation of its tokens' bytes; so the
cost of a token can be laid over the bytes it stands for, and streaming needs no look-ahead.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from octavo.text.chunks import Chunk, Starts, rechunk, thread_map
from octavo.text.tokenizers.token_bytes import TokenBytes, Tokens, with_begins

KIND = "octavo_tokenizer"  # the key under which a saved tokenizer says its name


@dataclass(frozen=True)
class NoSettings:
    """The settings of a tokenizer that has none."""


class Tokenizer(ABC):
    """Bytes to token ids and back. Ids run from 0 to `vocab` - 1.

    A new tokenizer defines `name`, `unit`, `learn`, `encode`, `split_point`, `to_json` and `from_json`, hands the bytes
    of its tokens to this constructor, and is entered in `TOKENIZERS` or under the entry-point group octavo.tokenizers.
    """

    name: ClassVar[str]
    unit: ClassVar[str]  # what its tokens are, in the plural: bytes, words, ...
    Settings: ClassVar[type[Any]] = NoSettings  # a frozen dataclass: the options of `learn`
    reads_raw_bytes: ClassVar[bool] = False  # whether files need not be UTF-8
    lossless: bool = True  # decode(encode(data)) == data for all data that encode does not refuse
    # Whether the last bytes of `data` are enough for `split_point`, so that a text can be cut at any place of its file.
    splits_locally: bool = False
    # Whether `learn` is `from_words` of the words that `count_words` counts, so that parts of a text can be counted.
    learns_words: ClassVar[bool] = False

    def __init__(self, token_bytes: Sequence[bytes], begin: int | None = None) -> None:
        """`token_bytes` are the bytes of every id, none of `begin`'s; `begin` is the last id where nothing is said."""
        self._bytes = TokenBytes(token_bytes)
        self._begin = len(token_bytes) - 1 if begin is None else begin

    @classmethod
    @abstractmethod
    def learn(cls, chunks: Iterable[Chunk], settings: Any = None) -> Self:
        """Learn the vocabulary of a text; `settings` are of the class `Settings`, its defaults by default."""

    @classmethod
    def learn_and_encode(
        cls, chunks: Callable[[], Iterable[Chunk]], settings: Any = None
    ) -> tuple[Self, Iterator[Tokens]]:
        """A tokenizer and the tokens of the text it was learnt from, which `chunks` gives as often as it is called."""
        tokenizer = cls.learn(chunks(), settings)
        return tokenizer, tokenizer.encode_chunks(chunks())

    @classmethod
    def count_words(cls, chunks: Iterable[Chunk], settings: Any) -> tuple[list[bytes], NDArray[np.int64]]:
        """The words of a part of a text, each once, and how often each occurs; counts of several parts are added."""
        raise NotImplementedError(f"{cls.name} does not learn words")

    @classmethod
    def from_words(cls, words: list[bytes], settings: Any) -> Self:
        """The tokenizer that knows these words, given by falling count, equal counts in the order of their bytes."""
        raise NotImplementedError(f"{cls.name} does not learn words")

    @property
    def vocab(self) -> int:
        """The number of ids, `begin` included."""
        return len(self._bytes)

    @property
    def begin(self) -> int:
        """The id that opens every sequence and stands for no bytes; `encode` never gives it."""
        return self._begin

    @property
    def newline(self) -> int | None:
        """The id of the token that is a line feed, where there is one."""
        tokens = self.encode(b"\n").tolist()
        return tokens[0] if [self.token_bytes(token) for token in tokens] == [b"\n"] else None

    @property
    def words(self) -> Sequence[str] | None:
        """The vocabulary as words, where tokens are the words of a closed list."""
        return None

    @abstractmethod
    def encode(self, data: bytes) -> Tokens:
        """The tokens of any bytes, valid UTF-8 or not; what a foreign vocabulary has no token for is refused."""

    def encode_documents(self, data: bytes, starts: Starts) -> Tokens:
        """The tokens of documents that lie end to end in `data`, with `begin` before each that starts in it.

        Equal to encoding every document alone; `starts` are in order, and what lies before the first is the rest
        of an earlier document.
        """
        parts = [self.encode(document) for document in Chunk(data, starts).documents()]
        lengths = np.fromiter(map(len, parts), np.int64, len(parts))
        return with_begins(np.concatenate(parts), np.cumsum(lengths)[:-1], self.begin)

    def encode_chunks(self, chunks: Iterable[Chunk]) -> Iterator[Tokens]:
        """The tokens of a text of any length, `begin` before each document."""
        return thread_map(
            lambda chunk: self.encode_documents(chunk.data, chunk.starts), rechunk(chunks, self.split_point)
        )

    def decode(self, tokens: Iterable[int] | Tokens) -> bytes:
        """The bytes of any tokens; `begin` stands for none."""
        return self._bytes.join(tokens)

    def token_bytes(self, token: int) -> bytes:
        """The bytes of one token."""
        return self._bytes[token]

    @abstractmethod
    def split_point(self, data: bytes) -> int:
        """The longest length (0: none) at which `data` can be split, more text following, without changing a token."""

    def count_unknown(self, data: bytes) -> tuple[int, int]:
        """How many words of the text are not in the vocabulary, and how many there are; zeros without words."""
        return 0, 0

    def huggingface_json(self) -> dict[str, Any] | None:
        """A `tokenizer.json` of the tokenizers library that gives the same ids; None where it cannot express them."""
        return None

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Everything `from_json` needs, as plain JSON values, with the name under 'octavo_tokenizer'."""

    @classmethod
    @abstractmethod
    def from_json(cls, values: dict[str, Any]) -> Self:
        """The tokenizer that `to_json` described."""
