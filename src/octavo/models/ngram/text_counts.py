"""Counts that others made, as lines of text: `w1 w2 w3<TAB>count`, as SRILM and the Google n-grams have them.

All orders must be there: how often a shorter n-gram occurs beyond what the longer ones begin with is how often it ends
a sentence, or was followed by what the counts leave out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from octavo.engines.engine import Engine
from octavo.errors import UserError
from octavo.io.compressed import stream
from octavo.io.limits import lines_in
from octavo.models.ngram.count_folder import CountFolder, CountRecord, write_count_folder
from octavo.models.ngram.packed_keys import KeyLayout
from octavo.text.tokenizers.closed_vocabulary import BEGIN, END, UNKNOWN, UNKNOWNS, ClosedVocabulary

LINES = 1 << 18  # packed at once
MOST_COUNT = (1 << 62) - 1


def import_text_counts(engine: Engine, paths: Sequence[Path], work: Path, out: Path) -> CountFolder:
    """A folder of counts out of files of lines; `work` is for tables on the way."""
    order, words = _survey(paths)
    names = [*sorted(words - {BEGIN, END, *UNKNOWNS}), END, next((one for one in UNKNOWNS if one in words), UNKNOWN)]
    tokenizer = ClosedVocabulary([*names, BEGIN])
    layout = KeyLayout(tokenizer.vocab)
    _write_orders(paths, order, tokenizer, layout, work)
    for k in range(1, order + 1):
        engine.open_parquet(f"given{k}", work / f"given{k}")
    _check_sums(engine, layout, order, tokenizer)
    parts = (_rest_sql(k, order, layout, tokenizer) for k in range(1, order + 1))
    keys = ", ".join(layout.columns(order))
    engine.write(f"SELECT {keys}, count FROM ({' UNION ALL '.join(parts)}) AS rest", work / "windows")
    engine.open_parquet("counted", work / "windows")
    (total,) = engine.rows("SELECT CAST(sum(count) AS BIGINT) FROM given1")[0]
    record = CountRecord(order, True, int(total), tokenizer.vocab, tuple(map(str, paths)))
    write_count_folder(engine, "counted", record, tokenizer, out)
    return CountFolder(out, record, tokenizer)


def _lines(paths: Sequence[Path]) -> Iterator[tuple[list[str], int]]:
    """The words and the count of every line."""
    for path in paths:
        for number, line in enumerate(lines_in(stream(path), path), 1):
            if not line.strip():
                continue
            ngram, _, count = line.rpartition(b"\t")
            try:
                words, value = ngram.decode().split(), int(count)
            except ValueError:
                words, value = [], 0
            if not words or not 0 < value <= MOST_COUNT:
                raise UserError(
                    f"line {number:,} of {path} is no count: a line is words, a tab and a number above 0; "
                    f"got {line[:60].decode('utf-8', 'replace')!r}"
                )
            yield words, value


def _survey(paths: Sequence[Path]) -> tuple[int, set[str]]:
    """The highest order, and all words; every order must be there."""
    words: set[str] = set()
    orders: set[int] = set()
    for ngram, _ in _lines(paths):
        orders.add(len(ngram))
        words.update(ngram)
    if not orders:
        raise UserError(f"there are no counts in {', '.join(map(str, paths))}; a line is words, a tab and a number")
    if missing := sorted(set(range(1, max(orders) + 1)) - orders):
        raise UserError(
            f"counts of every order up to {max(orders)} are needed, and those of {missing[0]}-grams are missing; "
            "give the files of all orders"
        )
    return max(orders), words


def _write_orders(
    paths: Sequence[Path], order: int, tokenizer: ClosedVocabulary, layout: KeyLayout, work: Path
) -> None:
    """Each order's lines, packed, as a folder of Parquet files."""
    import pyarrow
    import pyarrow.parquet

    ids = {word: i + 1 for i, word in enumerate(tokenizer.words)}
    rows: list[list[tuple[list[int], int]]] = [[] for _ in range(order)]
    written = [0] * order

    def flush(k: int) -> None:
        folder = work / f"given{k}"
        folder.mkdir(parents=True, exist_ok=True)
        word_Mk = np.array([words for words, _ in rows[k - 1]], np.int64).reshape(-1, k)
        count_M = np.array([count for _, count in rows[k - 1]], np.int64)
        columns = [*layout.pack(list(word_Mk.T)), count_M]
        table = pyarrow.table(dict(zip([*layout.columns(k), "count"], columns, strict=True)))
        pyarrow.parquet.write_table(table, folder / f"part-{written[k - 1]:05}.parquet")
        written[k - 1] += 1
        rows[k - 1].clear()

    for words, count in _lines(paths):
        k = len(words)
        rows[k - 1].append(([ids[word] for word in words], count))
        if len(rows[k - 1]) == LINES:
            flush(k)
    for k in range(1, order + 1):
        flush(k)


def _rest_sql(k: int, order: int, layout: KeyLayout, tokenizer: ClosedVocabulary) -> str:
    """The k-grams as windows: as often as they occur beyond what the longer ones begin with."""
    columns = layout.columns(k)
    padded = ", ".join([*(f"given.{name}" for name in columns),
                        *(f"0 AS {name}" for name in layout.columns(order)[len(columns) :])])  # fmt: skip
    summed = f"(SELECT {', '.join(columns)}, sum(count) AS count FROM given{k} GROUP BY {', '.join(columns)})"
    if k == order:
        return f"SELECT {padded}, CAST(given.count AS BIGINT) AS count FROM {summed} AS given"
    rest = "CAST(given.count - coalesce(longer.count, 0) AS BIGINT)"
    ended = f" AND given.key0 <> {(tokenizer.begin + 1) << layout.shift(0)}" if k == 1 else ""
    on = " AND ".join(f"given.{name} = longer.{name}" for name in columns)
    joined = f"{summed} AS given LEFT JOIN {_longer_sql(k, layout)} AS longer ON {on}"
    return f"SELECT {padded}, {rest} AS count FROM {joined} WHERE {rest} > 0{ended}"


def _longer_sql(k: int, layout: KeyLayout) -> str:
    """What the (k + 1)-grams begin with, and how often."""
    names = layout.columns(k)
    prefix = ", ".join(f"{value} AS {name}" for value, name in zip(layout.prefix_sql(k), names, strict=True))
    keys = ", ".join(names)
    return (
        f"(SELECT {keys}, sum(count) AS count FROM (SELECT {prefix}, count FROM given{k + 1}) AS cut GROUP BY {keys})"
    )


def _check_sums(engine: Engine, layout: KeyLayout, order: int, tokenizer: ClosedVocabulary) -> None:
    """Refuse counts that do not add up, and a sentence's beginning or end inside an n-gram."""
    begin, end = tokenizer.begin + 1, tokenizer.words.index(END) + 1
    for k in range(1, order + 1):
        wrong = [f"{layout.word_sql(i)} = {begin}" for i in range(1, k)]
        wrong += [f"{layout.word_sql(i)} = {end}" for i in range(k - 1)]
        if wrong and engine.rows(f"SELECT 1 FROM given{k} WHERE {' OR '.join(wrong)} LIMIT 1"):
            raise UserError(
                f"{BEGIN} can only begin an n-gram, and {END} only end one: among the {k}-grams it does not"
            )
    for k in range(1, order):
        columns = layout.columns(k)
        on = " AND ".join(f"given.{name} = longer.{name}" for name in columns)
        allowed = f" AND given.key0 <> {begin << layout.shift(0)}" if k == 1 else ""  # whose own count some leave out
        summed = f"(SELECT {', '.join(columns)}, sum(count) AS count FROM given{k} GROUP BY {', '.join(columns)})"
        chosen = ", ".join(f"given.{name}" for name in columns)
        joined = f"{summed} AS given JOIN {_longer_sql(k, layout)} AS longer ON {on}"
        where = f"given.count < longer.count{allowed}"
        query = f"SELECT {chosen}, given.count, longer.count FROM {joined} WHERE {where} LIMIT 1"
        for row in engine.rows(query):
            raise UserError(_does_not_add_up(row, k, layout, tokenizer))


def _does_not_add_up(row: tuple[Any, ...], k: int, layout: KeyLayout, tokenizer: ClosedVocabulary) -> str:
    columns = [np.array([value], np.int64) for value in row[:-2]]
    words = " ".join(tokenizer.words[int(layout.words(columns, i)[0])] for i in range(k))
    return (
        f"the counts do not add up: {words!r} occurs {int(row[-2]):,} times, and what begins with it {int(row[-1]):,}; "
        "count again"
    )
