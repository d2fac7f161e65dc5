"""A closed vocabulary: the words of an ARPA file, one sentence a line, and `<unk>` for every other word.

This is how KenLM and SRILM read text: words stand between white space, a line's end is `</s>`. Unknown words and the
amount of white space are lost, so figures of such a model are not comparable with those of lossless tokenizers.
The end of a last line without a line feed is not charged: the text does not say that the sentence ends there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any

import numpy as np

from octavo.errors import UserError
from octavo.text.tokenizers.protocol import Tokens
from octavo.text.tokenizers.spelling import Offsets, Spellings, as_tokens, each_document

BEGIN, END, UNKNOWN = "<s>", "</s>", "<unk>"
UNKNOWNS = (UNKNOWN, "<UNK>")  # some tools write the second
WHITE = b" \t\n\r\v\f"  # where bytes.split splits


class Closed:
    """Token i is words[i]: `</s>` and `<unk>` somewhere, `<s>` last. A mark that stands in the text is unknown too."""

    name = "closed"
    lossless = False

    def __init__(self, words: Sequence[str]) -> None:
        _check(words)
        self.words = list(words)
        self.newline: int | None = self.words.index(END)
        self.unknown = next(self.words.index(name) for name in UNKNOWNS if name in words)
        spelt = [word.encode() + b" " for word in self.words]
        spelt[self.newline], spelt[-1] = b"\n", b""
        self._spellings = Spellings(spelt)
        self._ids = {word.encode(): i for i, word in enumerate(self.words) if word not in (BEGIN, END)}

    @property
    def vocab(self) -> int:
        return len(self.words)

    @property
    def begin(self) -> int:
        return self.vocab - 1

    def encode(self, data: bytes) -> Tokens:
        tokens: list[int] = []
        for line in data.split(b"\n"):
            tokens.extend(map(self._ids.get, line.split(), repeat(self.unknown)))
            tokens.append(self.newline)  # type: ignore[arg-type]
        return np.array(tokens[:-1], np.int32)  # no line feed ends the last part

    def encode_documents(self, data: bytes, starts: Offsets) -> Tokens:
        return each_document(self.encode, data, starts, self.begin)

    def unknown_pieces(self, data: bytes) -> tuple[int, int]:
        """How many words are not in the vocabulary, and how many there are."""
        tokens = self.encode(data)
        words = tokens[tokens != self.newline]
        return int((words == self.unknown).sum()), len(words)

    def unknown_rate(self, data: bytes) -> float:
        """The share of the words that are not in the vocabulary."""
        unknown, words = self.unknown_pieces(data)
        return unknown / words if words else 0.0

    def decode(self, tokens: Iterable[int] | Tokens) -> bytes:
        """The words, a space after each that does not end a line."""
        ids = as_tokens(tokens)
        return self._spellings.join(ids).replace(b" \n", b"\n")

    def spelling(self, token: int) -> bytes:
        return self._spellings[token]

    def cut(self, block: bytes) -> int:
        return max(block.rfind(white) for white in WHITE) + 1

    def to_json(self) -> dict[str, Any]:
        return {"octavo_tokenizer": self.name, "words": self.words}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Closed:
        words = values.get("words")
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise UserError("a closed tokenizer's 'words' must be a list of strings")
        return cls(words)


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
