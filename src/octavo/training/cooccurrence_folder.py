"""A folder of co-occurrences: `pairs/*.parquet` with w1, w2, weight and total, sorted; `words.parquet` with every word
that was counted; `tokenizer.json` for what the ids are; and `cooccurrences.json`, which says of what they are.

`total` is an integer and `weight` is total / scale, correctly rounded. For Stanford's GloVe there are two more files:
`vocab.txt`, a word and its count a line by falling count, and `cooccurrence.bin`, whose ids are the lines' numbers.

M rows, V vocabulary, W words that occur.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.engines.engine import Engine
from octavo.errors import UserError
from octavo.exchange.arpa import token_names
from octavo.io.files import whole_folder
from octavo.models.ngram.counts_record import check_addable, check_files, read_counts_record, write_counts_record
from octavo.models.ngram.level_files import read_batches
from octavo.models.ngram.packed_keys import KeyLayout
from octavo.text.tokenizers.base import Tokenizer
from octavo.training.cooccurrences import EXACT, CooccurrenceConfig

RECORD, PAIRS, WORDS = "cooccurrences.json", "pairs", "words.parquet"
GLOVE_VOCAB, GLOVE_RECORDS = "vocab.txt", "cooccurrence.bin"
GLOVE_RECORD = np.dtype([("w1", "<i4"), ("w2", "<i4"), ("weight", "<f8")])  # 16 bytes, as GloVe's programs read them
NUMBERS = ("int32", "int64", "double")  # the types of the columns


@dataclass(frozen=True)
class CooccurrenceRecord:
    """What co-occurrences are of."""

    window: int
    symmetric: bool
    distance_weighting: bool
    sentences: bool
    scale: int
    tokens: int
    """Words that took a place in the window."""
    pairs: int
    """Rows of the table."""
    vocab: int
    """Ids of the tokenizer."""
    sources: tuple[str, ...]
    sha256: str = ""
    """The hash of the text; empty where counts of several were added."""

    @property
    def config(self) -> CooccurrenceConfig:
        return CooccurrenceConfig(self.window, self.symmetric, self.distance_weighting)


@dataclass(frozen=True)
class CooccurrenceFolder:
    """Co-occurrences that were read: checked, but for their rows."""

    path: Path
    record: CooccurrenceRecord
    tokenizer: Tokenizer

    @property
    def rows(self) -> Path:
        return self.path / PAIRS

    def counts(self) -> NDArray[np.int64]:
        """How often each token took a place."""
        count_V = np.zeros(self.record.vocab, np.int64)
        for id_M, count_M in self._columns(self.path, ["id", "count"]):
            self._check(_within(id_M, self.record.vocab) and bool((count_M > 0).all()))
            count_V[id_M] = count_M
        return count_V

    def pairs(self) -> Iterator[list[NDArray[Any]]]:
        """The rows, many at a time: w1_M, w2_M, weight_M."""
        for w1_M, w2_M, weight_M in self._columns(self.rows, ["w1", "w2", "weight"]):
            is_sound = _within(w1_M, self.record.vocab) and _within(w2_M, self.record.vocab)
            self._check(is_sound and bool((np.isfinite(weight_M) & (weight_M > 0)).all()))
            yield [w1_M, w2_M, weight_M]

    def _columns(self, folder: Path, names: Sequence[str]) -> Iterator[list[NDArray[Any]]]:
        for batch in read_batches(folder, names):
            self._check(all(column.null_count == 0 and str(column.type) in NUMBERS for column in batch.columns))
            yield [column.to_numpy() for column in batch.columns]

    def _check(self, is_sound: bool) -> None:
        if not is_sound:
            raise UserError(f"{self.path} is damaged: its ids, counts or weights are outside their range; count again")


def _within(id_M: NDArray[Any], vocab: int) -> bool:
    return not len(id_M) or bool(id_M.min() >= 0 and id_M.max() < vocab)


def is_cooccurrence_folder(path: Path) -> bool:
    """Whether octavo wrote co-occurrences there."""
    return (path / RECORD).is_file()


def read_cooccurrence_folder(path: Path) -> CooccurrenceFolder:
    """The folder's record and tokenizer; what is foreign or damaged is refused."""
    what = f"co-occurrences: it has no {RECORD}; octavo count cooccurrences {{}}"
    record, tokenizer = read_counts_record(path, RECORD, CooccurrenceRecord, PAIRS, what)
    check_files(path, (path / WORDS).is_file() and record.scale == record.config.scale)
    return CooccurrenceFolder(path, record, tokenizer)


def write_cooccurrence_folder(
    rows: Path, count_V: NDArray[np.int64], record: CooccurrenceRecord, tokenizer: Tokenizer, path: Path,
    binary: bool = False,
) -> CooccurrenceFolder:  # fmt: skip
    """Write the sorted rows (key0, count) with their weights; `binary` adds the files of Stanford's GloVe."""
    import pyarrow
    import pyarrow.parquet

    layout, names = KeyLayout(record.vocab), token_names(tokenizer)
    word_W = np.flatnonzero(count_V)
    schema = pyarrow.schema([("w1", pyarrow.int32()), ("w2", pyarrow.int32()), ("weight", pyarrow.float64()),
                             ("total", pyarrow.int64())])  # fmt: skip
    with whole_folder(path) as folder:
        (folder / PAIRS).mkdir()
        with pyarrow.parquet.ParquetWriter(folder / PAIRS / "part-00000.parquet", schema) as writer:
            pairs = 0
            for batch in read_batches(rows, ["key0", "count"]):
                key_M, total_M = (column.to_numpy() for column in batch.columns)
                w1_M, w2_M = (layout.words([key_M], i).astype(np.int32) for i in range(2))
                writer.write_batch(pyarrow.record_batch([w1_M, w2_M, weights(total_M, record.scale), total_M], schema))
                pairs += len(key_M)
        words = {"id": word_W.astype(np.int32), "word": [names[word] for word in word_W], "count": count_V[word_W]}
        pyarrow.parquet.write_table(pyarrow.table(words), folder / WORDS)
        write_counts_record(folder, RECORD, replace(record, pairs=pairs), tokenizer)
        if binary:
            write_glove_files(folder, count_V, names)
    return read_cooccurrence_folder(path)


def weights(total_M: NDArray[np.int64], scale: int) -> NDArray[np.float64]:
    """total / scale, correctly rounded: both are exact as floats, or Python divides the integers."""
    weight_M = total_M / np.float64(scale)
    for row in np.flatnonzero(total_M > EXACT):
        weight_M[row] = int(total_M[row]) / scale
    return weight_M


def by_falling_count(count_V: NDArray[np.int64], names: Sequence[str]) -> list[int]:
    """The ids that occur, most frequent first, equal counts in the order of their names' bytes."""
    occurring = np.flatnonzero(count_V).tolist()
    return sorted(occurring, key=lambda token: (-int(count_V[token]), names[token].encode()))


def write_glove_files(folder: Path, count_V: NDArray[np.int64], names: Sequence[str]) -> None:
    """Write the folder's rows as Stanford's `cooccur` writes them, and the vocabulary as its `vocab_count` does."""
    place_V = np.zeros(len(count_V), np.int32)
    with open(folder / GLOVE_VOCAB, "wb") as vocab:
        for place, token in enumerate(by_falling_count(count_V, names), 1):
            vocab.write(f"{names[token]} {count_V[token]}\n".encode())
            place_V[token] = place
    with open(folder / GLOVE_RECORDS, "wb") as records:
        for batch in read_batches(folder / PAIRS, ["w1", "w2", "weight"]):
            w1_M, w2_M, weight_M = (column.to_numpy() for column in batch.columns)
            record_M = np.empty(len(weight_M), GLOVE_RECORD)
            record_M["w1"], record_M["w2"], record_M["weight"] = place_V[w1_M], place_V[w2_M], weight_M
            records.write(record_M.data)


def packed_pairs_sql(table: str, layout: KeyLayout) -> str:
    """The rows of a folder's table as pairs with their integers."""
    first, second = (f"((CAST(w{i + 1} AS BIGINT) + 1) << {layout.shift(i)})" for i in range(2))
    return f"SELECT ({first} | {second}) AS key0, CAST(total AS BIGINT) AS count FROM {table}"


def check_rows(engine: Engine, table: str, folder: CooccurrenceFolder) -> None:
    """Refuse totals that are none, and ids that the tokenizer does not have."""
    row: tuple[Any, ...] = engine.rows(f"SELECT count(*), min(total), min(w1), min(w2), max(w1), max(w2) FROM {table}")[
        0
    ]
    if row[0] != folder.record.pairs or (
        row[0] and not (row[1] > 0 and min(row[2:]) >= 0 and max(row[2:]) < folder.record.vocab)
    ):
        raise UserError(f"{folder.path} is damaged: its rows are not those of its record; count again")


def check_same_kind(folders: Sequence[CooccurrenceFolder]) -> None:
    """Refuse to add counts of different things."""
    check_addable(folders, ("window", "symmetric", "distance_weighting", "sentences"))
