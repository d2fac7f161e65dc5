"""Word vectors, learnt or read, and what they know: nearest words, analogies, a check on small lists made for octavo.

W words, D dimensions, K words shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from octavo.config import configs_from
from octavo.errors import UserError
from octavo.io.encoding import UTF8
from octavo.pages.sections import notebook_view, paragraph, table
from octavo.text import open_corpus, open_text
from octavo.text.word_vectors import Vectors, read_vectors, write_vectors
from octavo.training.cooccurrence_folder import read_cooccurrence_folder
from octavo.training.glove import GloveConfig, train_glove, train_on_counts

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
SHOWN_WORDS, SHOWN_NEIGHBOURS = 8, 5  # in a notebook


class WordVectors:
    """Words and their vectors, and those vectors at length one: products of these are the cosines of their angles."""

    def __init__(self, vectors: Vectors, summary: dict[str, Any] | None = None) -> None:
        self.vectors = vectors
        self.summary = summary or {}
        """How they were learnt: words, pairs, tokens, seconds, the loss of every epoch, and the text."""
        self.place = {word: row for row, word in reversed(list(enumerate(vectors.words)))}
        # In double precision: the square of a large number is infinite in single.
        squares_W = np.einsum("wd,wd->w", vectors.rows_WD, vectors.rows_WD, dtype=np.float64)
        length_W1 = np.sqrt(squares_W)[:, None].clip(1e-30)
        self.unit_WD = np.divide(vectors.rows_WD, length_W1, np.empty_like(vectors.rows_WD), casting="same_kind")

    @property
    def words(self) -> list[str]:
        """The words; of vectors that were learnt, the most frequent first."""
        return self.vectors.words

    @property
    def dim(self) -> int:
        """The dimensions of a vector."""
        return int(self.vectors.rows_WD.shape[1])

    def __len__(self) -> int:
        return len(self.vectors.words)

    def __contains__(self, word: str) -> bool:
        return self.knows(word)

    def __getitem__(self, word: str) -> NDArray[np.float32]:
        vector_D: NDArray[np.float32] = self.vectors.rows_WD[self.row(word)]
        return vector_D

    def save(self, path: str | Path, header: bool = False) -> None:
        """Write them as text, GloVe's way; `header` adds word2vec's first line. Of vectors that were learnt here, a
        file beside them (PATH.json) says from which text.
        """
        text = self.summary.get("text")
        keys = {"source": "source", "part": "part", "text_sha256": "sha256"}
        write_vectors(path, self.vectors, header, {key: text[name] for key, name in keys.items()} if text else None)

    def to_json(self) -> dict[str, Any]:
        """How many there are and how they were learnt, as plain JSON values."""
        return {"words": len(self), **self.summary, "dim": self.dim}

    def __repr__(self) -> str:
        learnt = f", learnt from {self.summary['tokens']:,} words" if self.summary else ""
        return f"<octavo word vectors: {len(self):,} words of {self.dim} dimensions{learnt}>"

    def _repr_html_(self) -> str:
        words = self.words[:: max(1, len(self) // SHOWN_WORDS)][:SHOWN_WORDS]
        rows = [(word, ", ".join(near for near, _ in self.nearest(word, SHOWN_NEIGHBOURS))) for word in words]
        return notebook_view(paragraph(repr(self)[1:-1]), table(("word", "nearest words"), rows))

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


def vectors(
    corpus: str | Path | Sequence[str | Path] | None = None, *, file: str | Path | None = None, seed: int = 0,
    whole_text: bool = False, field: str = "text", errors: Literal["strict", "replace"] = "strict",
    encoding: str = UTF8, cooccurrences: str | Path | None = None, **settings: Any,
) -> WordVectors:  # fmt: skip
    """Learn word vectors from a text (GloVe), or read a file of them. Only the training part serves, so that a model
    that starts from the vectors has not seen the text it is measured on.

    Args:
        corpus: A file, a folder or a named source to learn from, or a list of them.
        file: Instead of a corpus: a file of vectors in GloVe's or word2vec's text format, or glove-6b-50d.
        seed: Of the random start and order.
        whole_text: Learn from the last tenth too, on which models are measured; runs that use the vectors say so.
        field: The field of JSON lines or Parquet that holds the text.
        errors: What is not UTF-8: "strict" refuses it, "replace" replaces it.
        encoding: The encoding of the text: "latin-1", "utf-16", ...
        cooccurrences: Instead of a corpus: a folder that `octavo count cooccurrences` wrote.
        **settings: Those of GloVe: dim, window, min_count, vocab_size, lower, epochs, learning_rate, budget.

    Returns:
        The vectors: `vectors["king"]` is one, and they have `nearest`, `analogy`, `cosine` and `save`.

    Raises:
        UserError: There is no such text, file or setting.

    Examples:
        >>> plays = octavo.vectors("book.txt", dim=8, epochs=2, min_count=1)
        >>> plays["the"].shape
        (8,)
        >>> plays.save("plays.txt")
        >>> octavo.vectors(file="plays.txt").nearest("the", 3) == plays.nearest("the", 3)
        True
    """
    if [corpus, file, cooccurrences].count(None) != 2:
        raise UserError("vectors are learnt or read: give one of a corpus, cooccurrences=FOLDER and file=PATH")
    if file is not None:
        if settings:
            raise UserError(f"a file of vectors has no settings: {', '.join(settings)}; they are for learning")
        return WordVectors(read_vectors(file))
    (config,) = configs_from("vectors", [GloveConfig()], settings)
    losses: list[float] = []
    if cooccurrences is not None:
        folder = read_cooccurrence_folder(Path(cooccurrences))
        found, summary = train_on_counts(folder, config, seed, lambda row: losses.append(row["loss"]))
        text_read = {"source": [*folder.record.sources], "part": "the whole text", "sha256": folder.record.sha256}
        return WordVectors(found, {**summary, "loss": losses, "text": text_read})
    assert corpus is not None
    sources = [corpus] if isinstance(corpus, str | Path) else list(corpus)
    names = [str(one) for one in sources]
    text = (
        open_text(names, field=field, errors=errors, encoding=encoding) if whole_text
        else open_corpus(names, field=field, errors=errors, encoding=encoding).train
    )  # fmt: skip
    found, summary = train_glove(text.chunks(), config, seed, lambda row: losses.append(row["loss"]))
    part = "the whole text" if whole_text else "the training part"
    learnt_from = {"source": names, "part": part, "bytes": text.size, "sha256": text.sha256}
    return WordVectors(found, {**summary, "loss": losses, "text": learnt_from})


def check(vectors: WordVectors) -> dict[str, Any]:
    """How many analogies of our list come out right, and how far cosines agree with our similarities (Spearman's rho).

    Only words that have vectors are asked; the result says how many they are.
    """
    analogies = {kind: _analogies(vectors, [pair.split() for pair in pairs]) for kind, pairs in ANALOGIES.items()}
    known = [(one, other, value) for one, other, value in SIMILARITIES if vectors.knows(one, other)]
    cosines = [vectors.cosine(one, other) for one, other, _ in known]
    agreement = spearman(cosines, [value for _, _, value in known]) if len(known) > 2 else None
    similarity = {"pairs": len(known), "of": len(SIMILARITIES), "spearman": agreement}
    size = {"words": len(vectors), "dim": vectors.dim}
    return {**size, "analogies": analogies, "similarity": similarity}


def _analogies(vectors: WordVectors, pairs: list[list[str]]) -> dict[str, int]:
    asked = [(a, b, c, d) for a, b in pairs for c, d in pairs if a != c]
    known = [four for four in asked if vectors.knows(*four)]
    right = sum(vectors.row(vectors.analogy(a, b, c, 1)[0][0]) == vectors.row(d) for a, b, c, d in known)
    return {"right": right, "asked": len(known), "of": len(asked)}


def spearman(a: Sequence[float], b: Sequence[float]) -> float:
    """The correlation of ranks; equal values share the mean of their ranks."""
    ranks = []
    for values in (np.asarray(a), np.asarray(b)):
        _, group, size = np.unique(values, return_inverse=True, return_counts=True)
        ranks.append((np.cumsum(size) - (size - 1) / 2)[group])
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1]) if all(np.ptp(rank) > 0 for rank in ranks) else 0.0
