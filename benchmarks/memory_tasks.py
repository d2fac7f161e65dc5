"""Made-up sequences that ask what a model remembers: associative recall and copying. Used by bench_memory.py.

    recall    .. a K  b M  c K  .. noise ..  b M  c K  a K      pairs of a key and a value, then keys in any order
    copying   .. c a d b  .. noise ..  > c a d b                symbols, then a mark, then the same symbols

What follows a queried key, and what follows the mark, are the answers: only they are learnt and counted. Nothing else
in a sequence can be predicted, and every sequence draws its pairs and symbols anew, so that no answer can be learnt by
heart.

B sequences, L tokens of each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

KEYS, VALUES, NOISE = 32, 16, 8  # symbols of each kind; copying copies keys
MARK = KEYS + VALUES + NOISE
VOCAB = MARK + 2  # the last one opens a sequence
CHANCE = {"recall": 1 / VALUES, "copying": 1 / KEYS}  # right, by an answer of the right kind


class Sequences(NamedTuple):
    """Tokens, without the one that opens a sequence, and which of them are answers."""

    x_BL: NDArray[np.int64]
    answer_BL: NDArray[np.bool_]


Row = tuple[list[int], list[bool]]
MakeRow = Callable[[np.random.Generator, int, int, int], Row]


def recall_row(rng: np.random.Generator, items: int, before: int, gap: int, queries: int = 0) -> Row:
    """Noise, pairs, noise, the keys again with their values: each once in a new order, or so many at random."""
    keys = rng.choice(KEYS, items, replace=False)
    values = KEYS + rng.integers(VALUES, size=items)
    asked = rng.integers(items, size=queries) if queries else rng.permutation(items)
    shown, answers = np.stack([keys, values], 1), np.stack([keys, values], 1)[asked]
    tokens = [*noise(rng, before), *shown.flatten().tolist(), *noise(rng, gap), *answers.flatten().tolist()]
    return tokens, [False] * (before + 2 * items + gap) + [False, True] * len(asked)


def copying_row(rng: np.random.Generator, items: int, before: int, gap: int) -> Row:
    """Noise, symbols, none of them twice, noise, the mark, and the symbols once more."""
    symbols = rng.choice(KEYS, items, replace=False).tolist()
    tokens = [*noise(rng, before), *symbols, *noise(rng, gap), MARK, *symbols]
    return tokens, [False] * (before + items + gap + 1) + [True] * items


def noise(rng: np.random.Generator, length: int) -> list[int]:
    """Tokens that mean nothing."""
    tokens: list[int] = (KEYS + VALUES + rng.integers(NOISE, size=length)).tolist()
    return tokens


def evaluation_sequences(task: str, rows: int, items: int, gap: int, seed: int) -> Sequences:
    """Sequences of so many items, with so much noise between what is shown and what is asked."""
    rng = np.random.default_rng((seed, rows, items, gap))
    make = recall_row if task == "recall" else copying_row
    return stacked([make(rng, items, 0, gap) for _ in range(rows)])


def length_of(task: str, items: int, gap: int) -> int:
    """Tokens of such a sequence."""
    return 4 * items + gap if task == "recall" else 2 * items + 1 + gap


def training_sequences(task: str, rows: int, length: int, most: int, seed: int, step: int) -> Sequences:
    """A batch: 1 to `most` items in each sequence, and the noise divided at random before and between."""
    rng = np.random.default_rng((seed, step))
    made = []
    for items in rng.integers(1, most + 1, size=rows).tolist():
        if task == "recall":  # few pairs are asked for again and again, so that a sequence teaches as much
            queries = int(rng.integers(1, (length - 2 * items) // 2 + 1))
            spare = length - 2 * items - 2 * queries
        else:
            queries, spare = 0, length - length_of(task, items, 0)
        gap = int(rng.integers(spare + 1))
        before = spare - gap
        made.append(recall_row(rng, items, before, gap, queries) if queries else copying_row(rng, items, before, gap))
    return stacked(made)


def stacked(rows: list[Row]) -> Sequences:
    return Sequences(np.array([tokens for tokens, _ in rows]), np.array([answers for _, answers in rows]))
