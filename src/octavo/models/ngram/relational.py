"""Count n-grams as a relational program: the tables of every order, sorted, on an engine that need not hold them.

A window is the n tokens from one place on, fewer where its sequence ends before. All counts follow from how often each
window occurs. From the windows of up to k + 1 tokens come those of up to k: their prefixes add up the counts, and say
how many different words follow (`fanout`); the suffixes of the whole (k + 1)-grams say how many different words precede
(`extension`). Sums are of integers, so their order does not matter, and every order ends sorted as `counting` sorts it.

    windows   key..., count                        one row a window of the text, as it is read
    orderN    key..., count                        grouped and sorted
    orderK    key..., count, extension, fanout     for K = N - 1 to 1
    counts_of_counts   k, n1, n2, n3, n4           of what Kneser-Ney discounts
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from octavo.engines.engine import Engine, integer_schema
from octavo.engines.stages import Stages
from octavo.io.progress import Advance
from octavo.models.ngram.counting import Vocabulary
from octavo.models.ngram.packed_keys import KeyLayout
from octavo.text.token_shards import TokenShards, open_part

if TYPE_CHECKING:
    import pyarrow

WINDOWS_BATCH = 1 << 19  # windows made at once
COUNTS_OF_COUNTS = "counts_of_counts"


def level_name(k: int) -> str:
    """The stage of the k-grams."""
    return f"order{k}"


def windows_schema(layout: KeyLayout, order: int) -> pyarrow.Schema:
    """The columns of windows, and of the counts of the highest order."""
    return integer_schema((*layout.columns(order), "count"))


def read_windows(part: str, order: int, vocabulary: Vocabulary) -> Iterator[pyarrow.RecordBatch]:
    """The windows that begin in a part of the tokens."""
    tokens, first, last = open_part(part)
    for start in range(first, last, WINDOWS_BATCH):
        stop = min(start + WINDOWS_BATCH, last)
        yield windows_batch(tokens.read(start, stop + order - 1), stop - start, order, vocabulary)


def windows_batch(x_N: NDArray[Any], places: int, order: int, vocabulary: Vocabulary) -> pyarrow.RecordBatch:
    """The windows of the first `places` tokens; the tokens after them complete the last windows.

    As in `counting`, none reaches across a begin token, and a sentence's end opens the next one as `begin` does. That
    end is also a 1-gram: one row counts how often.
    """
    import pyarrow

    layout = KeyLayout(vocabulary.size)
    begin, end = vocabulary.begin + 1, 0 if vocabulary.end is None else vocabulary.end + 1
    code_N = np.zeros(places + order - 1, np.int64)
    code_N[: len(x_N)] = x_N
    code_N[: len(x_N)] += 1
    first_B = code_N[:places].copy()
    ended = first_B == end if end else np.zeros(0, np.bool_)
    first_B[ended.nonzero()[0]] = begin
    words = [first_B]
    open_B = np.ones(places, np.bool_)
    for i in range(1, order):
        word_B = code_N[i : i + places]
        if end and i > 1:
            open_B &= code_N[i - 1 : i - 1 + places] != end
        open_B &= word_B != begin
        words.append(word_B * open_B)
    ends = int(ended.sum())
    columns = [*layout.pack(words), np.ones(places, np.int64)]
    if ends:
        alone = [end << layout.shift(0), *([0] * (len(columns) - 2)), ends]
        columns = [np.append(column, value) for column, value in zip(columns, alone, strict=True)]
    return pyarrow.record_batch(columns, windows_schema(layout, order))


def count_windows(
    engine: Engine, stages: Stages, source: TokenShards, order: int, vocabulary: Vocabulary, advance: Advance
) -> None:
    """The first stage: how often each window occurs."""
    layout = KeyLayout(vocabulary.size)

    def make(folder: Path) -> None:
        read = partial(read_windows, order=order, vocabulary=vocabulary)
        engine.open_batches("windows", source.parts(), read, windows_schema(layout, order))
        engine.write(windows_sql("windows", layout, order), folder)

    stages.run(level_name(order), make)
    advance(1)


def windows_sql(table: str, layout: KeyLayout, order: int) -> str:
    """Windows with their counts, grouped and sorted."""
    keys = ", ".join(layout.columns(order))
    by_range = _by_range(keys, f"SELECT * FROM {table}")
    return f"SELECT {keys}, CAST(sum(count) AS BIGINT) AS count FROM ({by_range}) GROUP BY {keys} ORDER BY {keys}"


def _by_range(keys: str, query: str) -> str:
    """The query's rows, divided among machines by ranges of the keys: what is grouped there is in order, too.

    Without it Spark divides rows twice, by hash to group them and by range to sort them. To DuckDB it is a comment.
    """
    return query.replace("SELECT", f"SELECT /*+ REPARTITION_BY_RANGE({keys}) */", 1)


def level_sql(k: int, layout: KeyLayout) -> str:
    """The windows of up to k words, from those of up to k + 1."""
    table, whole = level_name(k + 1), layout.has_sql(k + 1)
    names = layout.columns(k)
    keys = ", ".join(names)
    prefix, suffix = (
        ", ".join(f"{value} AS {name}" for value, name in zip(values, names, strict=True))
        for values in (layout.prefix_sql(k), layout.suffix_sql(k))
    )
    sums = ", ".join(f"CAST(sum({name}) AS BIGINT) AS {name}" for name in ("count", "extension", "fanout"))
    both = f"""SELECT * FROM (
        SELECT {prefix}, count, 0 AS extension, CASE WHEN {whole} THEN 1 ELSE 0 END AS fanout FROM {table}
        UNION ALL SELECT {suffix}, 0 AS count, 1 AS extension, 0 AS fanout FROM {table} WHERE {whole}
    )"""
    return f"SELECT {keys}, {sums} FROM ({_by_range(keys, both)}) GROUP BY {keys} ORDER BY {keys}"


def counts_of_counts_sql(k: int, order: int, layout: KeyLayout, begin: int) -> str:
    """How many k-grams have each of the counts 1 to 4 of what Kneser-Ney discounts."""
    begun = f"{layout.word_sql(0)} = {begin + 1}"
    a = "count" if k == order else f"CASE WHEN {begun} THEN count ELSE extension END"
    never = f" AND NOT {begun}" if k == 1 else ""  # `begin` itself is never predicted
    sums = ", ".join(f"CAST(count(CASE WHEN a = {i} THEN 1 END) AS BIGINT) AS n{i}" for i in range(1, 5))
    return (
        f"SELECT CAST({k} AS BIGINT) AS k, {sums} "
        f"FROM (SELECT {a} AS a FROM {level_name(k)} WHERE {layout.has_sql(k)}{never}) AS counted"
    )


def count_levels(engine: Engine, stages: Stages, order: int, vocabulary: Vocabulary, advance: Advance) -> None:
    """The stages after the first: every lower order, and the counts of counts."""
    layout = KeyLayout(vocabulary.size)
    for k in range(order - 1, 0, -1):

        def make(folder: Path, k: int = k) -> None:
            engine.open_parquet(level_name(k + 1), stages.rows(level_name(k + 1)))
            engine.write(level_sql(k, layout), folder)

        stages.run(level_name(k), make)
        advance(1)

    def make_counts(folder: Path) -> None:
        for k in range(1, order + 1):
            engine.open_parquet(level_name(k), stages.rows(level_name(k)))
        parts = (counts_of_counts_sql(k, order, layout, vocabulary.begin) for k in range(1, order + 1))
        engine.write(" UNION ALL ".join(parts), folder)

    stages.run(COUNTS_OF_COUNTS, make_counts)
    advance(1)
