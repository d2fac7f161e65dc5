"""A closed vocabulary: the words of an ARPA file, one sentence a line, and `<unk>` for every other word.

This is how KenLM and SRILM read text: words stand between white space, a line's end is `</s>`. Unknown words and the
amount of white space are lost, so scores of such a model are not comparable with those of lossless tokenizers.
The end of a last line without a line feed is not scored: the text does not say that the sentence ends there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.config import Count, Length, check_ranges
from octavo.errors import UserError
from octavo.text.chunks import Chunk, rechunk
from octavo.text.tokenizers.base import KIND, Tokenizer
from octavo.text.tokenizers.token_bytes import Tokens

BEGIN, END, UNKNOWN = "<s>", "</s>", "<unk>"
UNKNOWNS = (UNKNOWN, "<UNK>")  # some tools write the second
WHITE = b" \t\n\r\v\f"  # where bytes.split splits


@dataclass(frozen=True)
class ClosedSettings:
    """Which words are known."""

    min_count: Count = 1
    """Words that occur less often are <unk>."""
    vocab_size: Length | None = None
    """The number of words at most; the most frequent are taken."""

    def __post_init__(self) -> None:
        check_ranges(self)


class ClosedVocabulary(Tokenizer):
    """Token i is words[i]: `</s>` and `<unk>` somewhere, `<s>` last. A mark that stands in the text is unknown too."""

    name = "closed"
    unit = "words"
    Settings = ClosedSettings
    lossless = False
    splits_locally = learns_words = True

    def __init__(self, words: Sequence[str]) -> None:
        _check(words)
        self._words = list(words)
        self._end = self._words.index(END)
        self.unknown = next(self._words.index(name) for name in UNKNOWNS if name in words)
        token_bytes = [word.encode() + b" " for word in self._words]
        token_bytes[self._end], token_bytes[-1] = b"\n", b""
        super().__init__(token_bytes)
        self._ids = {word.encode(): i for i, word in enumerate(self._words) if word not in (BEGIN, END)}

    @classmethod
    def learn(cls, chunks: Iterable[Chunk], settings: ClosedSettings | None = None) -> ClosedVocabulary:
        """Know the words that are UTF-8 and occur at least `min_count` times, at most `vocab_size` of them."""
        counts, settings = _count(chunks), settings or ClosedSettings()
        known = sorted((word for word, count in counts.items() if count >= settings.min_count),
                       key=lambda word: (-counts[word], word))[: settings.vocab_size]  # fmt: skip
        return cls.from_words(known, settings)

    @classmethod
    def count_words(cls, chunks: Iterable[Chunk], settings: ClosedSettings) -> tuple[list[bytes], NDArray[np.int64]]:
        counts = _count(chunks)
        return list(counts), np.fromiter(counts.values(), np.int64, len(counts))

    @classmethod
    def from_words(cls, words: list[bytes], settings: ClosedSettings) -> ClosedVocabulary:
        known = {word.decode("utf-8", "replace") for word in words}
        return cls([*sorted(known), END, UNKNOWN, BEGIN])

    @property
    def words(self) -> list[str]:
        return self._words

    def encode(self, data: bytes) -> Tokens:
        tokens: list[int] = []
        for line in data.split(b"\n"):
            tokens.extend(map(self._ids.get, line.split(), repeat(self.unknown)))
            tokens.append(self._end)
        return np.array(tokens[:-1], np.int32)  # no line feed ends the last part

    def count_unknown(self, data: bytes) -> tuple[int, int]:
        tokens = self.encode(data)
        words = tokens[tokens != self._end]
        return int((words == self.unknown).sum()), len(words)

    def decode(self, tokens: Iterable[int] | Tokens) -> bytes:
        """The words, a space after each that does not end a line."""
        return super().decode(tokens).replace(b" \n", b"\n")

    def split_point(self, data: bytes) -> int:
        return last_space(data)

    def to_json(self) -> dict[str, Any]:
        return {KIND: self.name, "words": self._words}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> ClosedVocabulary:
        words = values.get("words")
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise UserError("a closed tokenizer's 'words' must be a list of strings")
        return cls(words)


def _count(chunks: Iterable[Chunk]) -> Counter[bytes]:
    """How often each word occurs; marks that stand in the text are none."""
    counts: Counter[bytes] = Counter()
    for chunk in rechunk(chunks, last_space):
        for document in chunk.documents():
            counts.update(document.split())
    for mark in (BEGIN, END, *UNKNOWNS):
        counts.pop(mark.encode(), None)
    return counts


def last_space(data: bytes) -> int:
    """The place behind the last white space, where no word is cut."""
    return max(data.rfind(white) for white in WHITE) + 1


def _check(words: Sequence[str]) -> None:
    try:
        apart = " ".join(words).encode().split()
    except UnicodeEncodeError as error:
        raise UserError(
            f"a closed vocabulary's words must be UTF-8: {error.object[error.start : error.end]!r}"
        ) from error
    if not len(set(words)) == len(apart) == len(words):
        raise UserError("a closed vocabulary's words must be all different, and none empty or with white space in it")
    if BEGIN not in words[-1:] or END not in words or not any(name in words for name in UNKNOWNS):
        raise UserError(f"a closed vocabulary must have {END} and {UNKNOWN}, and {BEGIN} as its last word")
