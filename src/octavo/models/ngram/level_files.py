"""The sorted tables of `relational`, read back as the parts of `Level`s that estimators take.

A part holds whole contexts, so that every sum over what follows a context is in one part, and in the order in which the
in-memory program adds. M k-grams of one order, C contexts, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from octavo.engines.stages import Stages
from octavo.errors import UserError
from octavo.models.ngram.counting import Level, Vocabulary
from octavo.models.ngram.estimators import Discounts, discounts_of
from octavo.models.ngram.packed_keys import KeyLayout
from octavo.models.ngram.relational import COUNTS_OF_COUNTS, level_name

ROWS = 1 << 20  # read at once
PART_NGRAMS = 1 << 21  # n-grams of a part, and as many contexts


@dataclass(frozen=True)
class OrderParts:
    """The k-grams of one order: their Kneser-Ney discounts, and the parts, each with its first context's rank."""

    k: int
    discounts: Discounts
    parts: Iterator[tuple[int, Level]]


def read_orders(stages: Stages, order: int, vocabulary: Vocabulary, folder: Path, whole: bool) -> Iterator[OrderParts]:
    """The orders from the words up; `whole`: each in one part, for estimators that look beyond their contexts.

    How many words follow each context is kept in a file of `folder` from one order to the next.
    """
    names = ["k", "n1", "n2", "n3", "n4"]
    batches = read_batches(stages.rows(COUNTS_OF_COUNTS), names)
    counts = {k: n_4 for batch in batches for k, *n_4 in zip(*batch.to_pydict().values(), strict=True)}
    fanout_C = np.array([vocabulary.size], np.int32)
    for k in range(1, order + 1):
        if k not in counts:
            raise UserError(f"{stages.folder} is damaged: it says nothing of the {k}-grams; delete it and count again")
        reader = _OrderReader(stages, k, order, vocabulary, folder / f"fanout{k}.bin")
        discounts = discounts_of(counts[k])
        yield OrderParts(k, discounts, reader.parts(fanout_C, whole))
        fanout_C = reader.fanouts()


class _OrderReader:
    """One order's rows, in order."""

    def __init__(self, stages: Stages, k: int, order: int, vocabulary: Vocabulary, fanout_file: Path) -> None:
        self.k, self.order, self.vocabulary = k, order, vocabulary
        self.layout, self.fanout_file = KeyLayout(vocabulary.size), fanout_file
        self._rows = self._read(stages.rows(level_name(k)))
        self._held: list[NDArray[np.int64]] = []

    def parts(self, fanout_C: NDArray[Any], whole: bool) -> Iterator[tuple[int, Level]]:
        """The order cut into parts of whole contexts."""
        with open(self.fanout_file, "wb") as file:
            for low, high in _ranges(fanout_C, len(fanout_C) if whole else PART_NGRAMS, whole):
                fanout_c = np.asarray(fanout_C[low:high], np.int64)
                word_m, count_m, extension_m, next_m = self._take(int(fanout_c.sum()))
                file.write(next_m.astype(np.int32).data)
                context_m = np.repeat(np.arange(high - low), fanout_c)
                yield low, Level(
                    high - low, _tensor(context_m, torch.int32), _tensor(word_m, torch.int32),
                    torch.from_numpy(count_m), torch.from_numpy(extension_m), self.k == self.order,
                )  # fmt: skip
        if len(self._take(1, least=0)[0]):
            raise self._damaged()

    def fanouts(self) -> NDArray[Any]:
        """How many words follow each k-gram."""
        return np.memmap(self.fanout_file, np.int32, "r") if self.fanout_file.stat().st_size else np.zeros(0, np.int32)

    def _take(self, count: int, least: int | None = None) -> list[NDArray[np.int64]]:
        """The next rows, as columns."""
        if self.k == 1:
            return self._words() if count > 1 else [np.zeros(0, np.int64)] * 4
        held = [self._held] if self._held else []
        size = sum(len(columns[0]) for columns in held)
        while size < count and (columns := next(self._rows, None)) is not None:
            held.append(columns)
            size += len(columns[0])
        if size < (count if least is None else least):
            raise self._damaged()
        whole = [np.concatenate(parts) for parts in zip(*held, strict=True)] or [np.zeros(0, np.int64)] * 4
        self._held = [column[count:] for column in whole]
        return [column[:count] for column in whole]

    def _words(self) -> list[NDArray[np.int64]]:
        """Every word of the vocabulary, seen or not."""
        word_V = np.arange(self.vocabulary.size)
        found = [np.zeros(self.vocabulary.size, np.int64) for _ in range(3)]
        for word_m, *values in self._rows:
            for value_V, value_m in zip(found, values, strict=True):
                value_V[word_m] = value_m
        for value_V in found[:2]:
            value_V[self.vocabulary.begin] = 0
        return [word_V, *found]

    def _read(self, folder: Path) -> Iterator[list[NDArray[np.int64]]]:
        """Last word, count, extension and fanout of the rows that have all k words."""
        last = self.k == self.order
        names = [*self.layout.columns(self.k), "count", *(() if last else ("extension", "fanout"))]
        for batch in read_batches(folder, names):
            columns = [column.to_numpy() for column in batch.columns]
            keys, values = columns[: len(names) - (1 if last else 3)], columns[len(names) - (1 if last else 3) :]
            word_m = self.layout.words(keys, self.k - 1)
            kept_m = word_m >= 0
            count_m = values[0]
            fanout_m = np.zeros_like(count_m) if last else values[2]
            extension_m = values[0] if last else values[1]
            begun_m = self.layout.words(keys, 0) == self.vocabulary.begin
            extension_m = np.where(begun_m, count_m, extension_m)
            yield [column[kept_m] for column in (word_m, count_m, extension_m, fanout_m)]

    def _damaged(self) -> UserError:
        return UserError(f"the counts of {self.k}-grams are damaged: they do not fit the shorter ones; count again")


def read_batches(folder: Path, names: Sequence[str]) -> Iterator[Any]:
    """The columns of a folder of Parquet files, in the order of their rows."""
    import pyarrow.parquet

    try:
        for path in sorted(folder.glob("*.parquet")):
            with pyarrow.parquet.ParquetFile(path) as file:
                yield from file.iter_batches(ROWS, columns=list(names))
    except (OSError, pyarrow.ArrowException, KeyError) as error:
        raise UserError(f"{folder} is damaged: {str(error).splitlines()[0]}; delete it and count again") from error


def _tensor(values: NDArray[Any], dtype: torch.dtype) -> torch.Tensor:
    return torch.from_numpy(values).to(dtype)


def _ranges(fanout_C: NDArray[Any], most: int, whole: bool) -> Iterator[tuple[int, int]]:
    """Ranges of contexts with about so many n-grams, and no more contexts than that."""
    if whole:
        yield 0, len(fanout_C)
        return
    low = 0
    while low < len(fanout_C):
        until_c = np.cumsum(fanout_C[low : low + most], dtype=np.int64)
        high = low + max(1, int(np.searchsorted(until_c, most, side="right")))
        yield low, high
        low = high
