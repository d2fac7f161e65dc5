"""A text as sentences of tokens, in their order and by document.

N tokens, S sentences, A places where a pair can begin.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.errors import UserError
from octavo.text.chunks import rechunk
from octavo.text.loading import Split
from octavo.text.tokenizers.wordpiece import WordPiece

SENTENCES_PER_CALL = 4096  # sentences handed to the tokenizer
LONGEST = 2000  # characters of a sentence: what has no end is cut at a space
HELD_OUT = 40  # one sentence of so many, all at the end, is for choosing the best weights
# A full stop ends a sentence if a capital, a digit or an opening mark follows, and no title or initial stands before.
ENDS = re.compile(
    r"(?<!\bMr)(?<!\bMrs)(?<!\bMs)(?<!\bDr)(?<!\bSt)(?<!\bNo)(?<!\bvs)(?<!\b[A-Z])"
    r"[.!?](?:\s?[\"'”’)\]])*\s+(?=[\"'“‘(\[]?\s?[A-Z0-9])|[:;.!?]\s*\n|\n\s*\n"
)


def split_sentences(text: str) -> Iterator[str]:
    """The sentences of a text: up to a full stop before a capital, an empty line, or a line that ends in a mark."""
    at = 0
    for end in ENDS.finditer(text):
        yield from _cut(text[at : end.end()])
        at = end.end()
    yield from _cut(text[at:])


def _cut(sentence: str) -> Iterator[str]:
    """The sentence on one line, in parts where it is endless; nothing of an empty one."""
    sentence = " ".join(sentence.split())
    while len(sentence) > LONGEST:
        space = sentence.rfind(" ", 1, LONGEST)
        space = space if space > 0 else LONGEST
        yield sentence[:space]
        sentence = sentence[space:].lstrip()
    if sentence:
        yield sentence


def documents(split: Split) -> Iterator[tuple[int, str]]:
    """The documents of a split, each with its number; a long one comes in pieces, cut at the end of a line."""
    number = 0
    for block in rechunk(split.chunks(), lambda data: data.rfind(b"\n") + 1):
        for i, document in enumerate(block.documents()):
            number += i > 0
            if document:
                yield number, document.decode("utf-8", "replace")


@dataclass(frozen=True)
class Sentences:
    """Sentences end to end, where each begins, and of which document it is."""

    tokens_N: NDArray[Any]
    start_S: NDArray[np.int64]  # and one more: the end of the last
    document_S: NDArray[np.int64]

    @classmethod
    def of(cls, texts: Iterable[tuple[int, str]], tokenizer: WordPiece) -> Sentences:
        """Texts, each with the number of its document."""
        tokens, lengths, owners = [np.zeros(0, np.int32)], [], []
        for number, text in texts:
            found = list(split_sentences(text))
            for i in range(0, len(found), SENTENCES_PER_CALL):
                some = [one for one in tokenizer.encode_texts(found[i : i + SENTENCES_PER_CALL]) if len(one)]
                tokens += some
                lengths += [len(one) for one in some]
                owners += [number] * len(some)
        start_S = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        return cls(np.concatenate(tokens), start_S, np.array(owners, np.int64))

    def __len__(self) -> int:
        return len(self.document_S)

    @cached_property
    def anchors_A(self) -> NDArray[np.int64]:  # noqa: N802
        """Sentences after which another one of the same document comes."""
        return np.flatnonzero(self.document_S[:-1] == self.document_S[1:])

    @cached_property
    def last_S(self) -> NDArray[np.int64]:  # noqa: N802
        """For each sentence, that behind the last one of its document."""
        return np.searchsorted(self.document_S, self.document_S, side="right")

    def parted(self) -> tuple[Sentences, Sentences]:
        """What is learnt from, and the end of it, which is held out for choices."""
        cut = len(self) - len(self) // HELD_OUT
        return self._slice(0, cut), self._slice(cut, len(self))

    def _slice(self, a: int, b: int) -> Sentences:
        start_S = self.start_S[a : b + 1]
        return Sentences(self.tokens_N[start_S[0] : start_S[-1]], start_S - start_S[0], self.document_S[a:b])

    def check(self, what: str) -> None:
        """Refuse a text that no pair of sentences can be drawn from."""
        if len(self) < 4 or not len(self.anchors_A):
            raise UserError(
                f"pairs are drawn from sentences that follow each other: {what} has {len(self)} sentences, "
                f"{len(self.anchors_A)} with a next one in the same document; give a longer text"
            )
