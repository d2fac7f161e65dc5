"""A folder of n-gram counts: `ngrams/*.parquet` with a column a token (w1, w2, ...) and `count`, sorted; what the ids
mean in `tokenizer.json`; and `counts.json`, which says of what they are.

A row is n tokens in a row, as they stand in the text, or fewer (then the rest is null) where a sequence ends: each
place of the text is the beginning of one row's n-gram, so shorter n-grams are counted by adding up. The end of a
sentence is also a row of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo.engines.engine import Engine
from octavo.engines.stages import Stages
from octavo.errors import UserError
from octavo.io.files import whole_folder
from octavo.models.ngram.counting import Vocabulary
from octavo.models.ngram.counts_record import check_addable, check_files, read_counts_record, write_counts_record
from octavo.models.ngram.packed_keys import KeyLayout
from octavo.models.ngram.relational import level_name, windows_sql
from octavo.text.tokenizers.base import Tokenizer

RECORD, NGRAMS = "counts.json", "ngrams"


@dataclass(frozen=True)
class CountRecord:
    """What counts are of."""

    order: int
    sentences: bool
    tokens: int
    vocab: int
    sources: tuple[str, ...]


@dataclass(frozen=True)
class CountFolder:
    """Counts that were read: checked, but for their rows."""

    path: Path
    record: CountRecord
    tokenizer: Tokenizer

    @property
    def rows(self) -> Path:
        return self.path / NGRAMS

    @property
    def vocabulary(self) -> Vocabulary:
        """The ids that mean something to counting."""
        end = self.tokenizer.newline if self.record.sentences else None
        return Vocabulary(self.tokenizer.vocab, self.tokenizer.begin, end)


def is_count_folder(path: Path) -> bool:
    """Whether octavo wrote counts there."""
    return (path / RECORD).is_file()


def read_count_folder(path: Path) -> CountFolder:
    """The folder's record and tokenizer; what is foreign or damaged is refused."""
    what = f"counts: it has no {RECORD}; octavo count {{}}"
    record, tokenizer = read_counts_record(path, RECORD, CountRecord, NGRAMS, what)
    check_files(path, record.order >= 1)
    return CountFolder(path, record, tokenizer)


def write_count_folder(engine: Engine, table: str, record: CountRecord, tokenizer: Tokenizer, path: Path) -> None:
    """Write a table of packed windows with their counts, which is sorted on the way."""
    layout = KeyLayout(record.vocab)
    words = ", ".join(
        f"CASE WHEN {layout.has_sql(k)} THEN CAST({layout.word_sql(k - 1)} - 1 AS INT) END AS w{k}"
        for k in range(1, record.order + 1)
    )
    keys = ", ".join(layout.columns(record.order))
    with whole_folder(path) as folder:
        engine.write(f"SELECT {words}, count FROM {table} ORDER BY {keys}", folder / NGRAMS)
        write_counts_record(folder, RECORD, record, tokenizer)


def packed_sql(table: str, layout: KeyLayout, order: int, given: int) -> str:
    """The rows of a folder's table as packed windows of `order` tokens; the folder has `given`."""
    columns: dict[str, list[str]] = {name: [] for name in layout.columns(order)}
    for i in range(min(order, given)):
        word = f"(coalesce(CAST(w{i + 1} AS BIGINT), CAST(-1 AS BIGINT)) + 1)"
        columns[f"key{i // layout.slots}"].append(f"({word} << {layout.shift(i)})")
    packed = ", ".join(f"{' | '.join(parts) or '0'} AS {name}" for name, parts in columns.items())
    return f"SELECT {packed}, CAST(count AS BIGINT) AS count FROM {table}"


def take_counts(engine: Engine, stages: Stages, folders: Sequence[CountFolder], order: int) -> None:
    """The first stage out of folders instead of a text: their counts added up."""
    layout = KeyLayout(folders[0].record.vocab)

    def make(rows: Path) -> None:
        for number, folder in enumerate(folders):
            engine.open_parquet(f"given{number}", folder.rows)
            check_rows(engine, f"given{number}", folder)
        parts = (packed_sql(f"given{i}", layout, order, one.record.order) for i, one in enumerate(folders))
        engine.write(windows_sql(f"({' UNION ALL '.join(parts)}) AS given", layout, order), rows)

    stages.run(level_name(order), make)


def check_rows(engine: Engine, table: str, folder: CountFolder) -> None:
    """Refuse counts that are none, and ids that the tokenizer does not have."""
    order = folder.record.order
    ids = [f"w{k}" for k in range(1, order + 1)]
    least = ", ".join(f"min({name}), max({name})" for name in ids)
    row: tuple[Any, ...] = engine.rows(f"SELECT min(count), {least} FROM {table}")[0]
    bounds = [value for value in row[1:] if value is not None]
    if row[0] is None or row[0] < 1 or not bounds or min(bounds) < 0 or max(bounds) >= folder.record.vocab:
        raise UserError(f"{folder.path} is damaged: its ids or counts are outside their range; count again")


def check_same_kind(folders: Sequence[CountFolder]) -> None:
    """Refuse to add counts of different things."""
    check_addable(folders, ("order", "sentences"))
