"""What word vectors know: nearest words, analogies, and a check on small lists made for octavo.

W words, D dimensions, K words shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.errors import UserError
from octavo.text.word_vectors import Vectors

# Written for octavo, and small: enough to see whether vectors are sound, not to rank methods that are close.
ANALOGIES: dict[str, tuple[str, ...]] = {
    "family": ("man woman", "king queen", "father mother", "son daughter", "brother sister", "husband wife", "he she"),
    "plural": ("day days", "year years", "house houses", "hand hands", "friend friends", "word words", "book books"),
    "past": ("go went", "come came", "take took", "give gave", "make made", "know knew", "see saw"),
    "degree": ("good better", "great greater", "high higher", "old older", "young younger", "long longer"),
    "capital": ("france paris", "italy rome", "germany berlin", "spain madrid", "russia moscow", "japan tokyo"),
}
SIMILARITIES: tuple[tuple[str, str, float], ...] = (  # from 0, nothing in common, to 10, the same; our own judgement
    ("king", "prince", 8.0), ("king", "queen", 8.0), ("day", "night", 6.5), ("day", "week", 7.0), ("man", "woman", 7.5),
    ("house", "home", 9.0), ("house", "river", 2.0), ("war", "battle", 8.5), ("war", "music", 1.0),
    ("father", "mother", 8.0), ("father", "stone", 1.0), ("death", "life", 6.0), ("great", "large", 8.0),
    ("great", "seven", 0.5), ("two", "three", 8.5), ("two", "love", 0.5), ("sea", "ship", 6.0), ("sea", "water", 7.5),
    ("city", "town", 9.0), ("city", "finger", 0.5), ("hand", "arm", 7.5), ("hand", "law", 1.0), ("good", "bad", 6.0),
    ("good", "better", 7.5), ("north", "south", 7.5), ("north", "tears", 0.5), ("eye", "ear", 7.0),
    ("eye", "year", 0.5),
    ("word", "speech", 7.5), ("word", "horse", 1.0), ("horse", "dog", 6.0), ("friend", "enemy", 5.5),
    ("friend", "brother", 6.5), ("blood", "heart", 5.5), ("blood", "paper", 1.0), ("month", "year", 8.0),
)  # fmt: skip


class Compass:
    """Vectors of length one: products between them are the cosines of their angles."""

    def __init__(self, vectors: Vectors) -> None:
        self.vectors = vectors
        self.place = {word: row for row, word in reversed(list(enumerate(vectors.words)))}
        length_W1 = np.linalg.norm(vectors.rows_WD, axis=1, keepdims=True)
        self.unit_WD: NDArray[np.float32] = vectors.rows_WD / np.maximum(length_W1, np.float32(1e-30))

    def row(self, word: str) -> int:
        """The word's row; in lower case if it is there only so."""
        for form in (word, word.lower()):
            if form in self.place:
                return self.place[form]
        raise UserError(f"there is no vector for {word!r} among {len(self.place):,} words; try another word")

    def knows(self, *words: str) -> bool:
        return all(word in self.place or word.lower() in self.place for word in words)

    def cosine(self, one: str, other: str) -> float:
        return float(self.unit_WD[self.row(one)] @ self.unit_WD[self.row(other)])

    def nearest(self, word: str, count: int = 10) -> list[tuple[str, float]]:
        """The words at the smallest angles, and the cosines."""
        row = self.row(word)
        return self._best(self.unit_WD[row], {row}, count)

    def analogy(self, a: str, b: str, c: str, count: int = 10) -> list[tuple[str, float]]:
        """a is to b as c is to what: the words nearest to b - a + c, those three left out."""
        at = [self.row(word) for word in (a, b, c)]
        a_D, b_D, c_D = self.unit_WD[at]
        wanted_D = b_D - a_D + c_D
        return self._best(wanted_D / max(float(np.linalg.norm(wanted_D)), 1e-30), set(at), count)

    def _best(self, direction_D: NDArray[np.float32], without: set[int], count: int) -> list[tuple[str, float]]:
        cosine_W = self.unit_WD @ direction_D
        cosine_W[list(without)] = -np.inf
        count = min(count, len(cosine_W) - len(without))
        best_K = np.argpartition(-cosine_W, max(0, count - 1))[:count] if count > 0 else np.zeros(0, np.int64)
        best_K = best_K[np.argsort(-cosine_W[best_K], kind="stable")]
        return [(self.vectors.words[row], float(cosine_W[row])) for row in best_K]


def check(compass: Compass) -> dict[str, Any]:
    """How many analogies of our list come out right, and how far cosines agree with our similarities (Spearman's rho).

    Only words that have vectors are asked; the result says how many they are.
    """
    analogies = {kind: _analogies(compass, [pair.split() for pair in pairs]) for kind, pairs in ANALOGIES.items()}
    known = [(one, other, value) for one, other, value in SIMILARITIES if compass.knows(one, other)]
    cosines = [compass.cosine(one, other) for one, other, _ in known]
    agreement = spearman(cosines, [value for _, _, value in known]) if len(known) > 2 else None
    similarity = {"pairs": len(known), "of": len(SIMILARITIES), "spearman": agreement}
    size = {"words": len(compass.place), "dim": compass.vectors.rows_WD.shape[1]}
    return {**size, "analogies": analogies, "similarity": similarity}


def _analogies(compass: Compass, pairs: list[list[str]]) -> dict[str, int]:
    asked = [(a, b, c, d) for a, b in pairs for c, d in pairs if a != c]
    known = [four for four in asked if compass.knows(*four)]
    right = sum(compass.row(compass.analogy(a, b, c, 1)[0][0]) == compass.row(d) for a, b, c, d in known)
    return {"right": right, "asked": len(known), "of": len(asked)}


def spearman(a: Sequence[float], b: Sequence[float]) -> float:
    """The correlation of ranks; equal values share the mean of their ranks."""
    ranks = []
    for values in (np.asarray(a), np.asarray(b)):
        _, group, size = np.unique(values, return_inverse=True, return_counts=True)
        ranks.append((np.cumsum(size) - (size - 1) / 2)[group])
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1]) if all(np.ptp(rank) > 0 for rank in ranks) else 0.0
