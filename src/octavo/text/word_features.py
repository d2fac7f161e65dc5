"""The features of words: the word itself, in lower case, its first and last characters, and its shape.

N words of all sentences, F features of a word.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

ABSENT = 0  # the number of a feature that training has not seen often enough
MAX_SHAPE = 12  # characters


def word_shape(word: str) -> str:
    """A for capitals, a for other letters, 0 for digits, runs as one: São-2 is Aa-0."""
    kinds = ("A" if c.isupper() else "a" if c.isalpha() else "0" if c.isdigit() else c for c in word)
    return "".join(kind for kind, _ in groupby(kinds))[:MAX_SHAPE]


def features_of(word: str, affixes: int) -> list[str]:
    """The features, always as many; an affix that is the whole word or longer is none."""
    ends = [
        f"{side} {end}" if len(word) > k else ""
        for k in range(1, affixes + 1) for side, end in (("begins", word[:k]), ("ends", word[-k:]))
    ]  # fmt: skip
    return [f"word {word}", f"lower {word.lower()}", f"shape {word_shape(word)}", *ends]


class WordReader:
    """Words as the numbers of their features, of which those are known that training has seen often enough."""

    def __init__(self, features: Sequence[str], affixes: int) -> None:
        self.features, self.affixes = list(features), affixes
        self.number = {feature: n for n, feature in enumerate(self.features, 1)}

    @classmethod
    def learn(cls, sentences: Iterable[Sequence[str]], affixes: int, min_count: int) -> WordReader:
        """The features that occur so often, the commonest first."""
        counts: Counter[str] = Counter()
        for word, count in Counter(word for words in sentences for word in words).items():
            for feature in features_of(word, affixes):
                if feature:
                    counts[feature] += count
        kept = [(feature, count) for feature, count in counts.items() if count >= min_count]
        return cls([feature for feature, _ in sorted(kept, key=lambda one: (-one[1], one[0]))], affixes)

    @property
    def rows(self) -> int:
        """Of the table of features, absent ones included."""
        return len(self.features) + 1

    def knows(self, word: str) -> bool:
        """Whether training has seen the word often enough."""
        return f"word {word}" in self.number

    def read(self, words: Sequence[str]) -> NDArray[np.int64]:
        """x_NF."""
        rows = {word: self._row(word) for word in set(words)}
        shape = (len(words), 3 + 2 * self.affixes)
        return np.stack([rows[word] for word in words]) if words else np.zeros(shape, np.int64)

    def _row(self, word: str) -> NDArray[np.int64]:
        return np.array([self.number.get(one, ABSENT) for one in features_of(word, self.affixes)], np.int64)


def is_feature(text: object) -> bool:
    """Whether a saved feature can be one."""
    return isinstance(text, str) and re.match(r"(word|lower|shape|begins|ends) ", text) is not None
