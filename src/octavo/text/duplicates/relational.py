"""Duplicates as a relational program: plain SQL over integers, that DuckDB and Spark both read.

Lines (or documents) are numbers from 0, in the order of the text; blank lines are left out. Of near duplicates:

    lines       line, hash0, hash1, band0, ...     one row a line, as it is read
    exact       line, kept                         what repeats an earlier line to the byte, and the first such line
    pairsN      line, other                        lines that agree in band N, none of them exact; line < other
    paired      line, other                        of all bands, each once
    candidates  line, other                        sorted
    compared    line, other, millionths            candidates whose shingles are as similar as they must be
    labelsN     line, previous, label              the components' least line, after N rounds
    listed      line, kept, closest, millionths, near      what is removed
    removed     line, kept, closest, millionths, near      sorted

Sorting is a stage of its own: in one query with what it sorts it takes memory beyond DuckDB's limit.

What is similar is decided by the shingles themselves, in integers: MinHash only says what is compared. In a bucket of
many lines each is compared with those of its block of 16 and of the block before it, in the order of the text, so
that a line that occurs in a million variants costs no million times a million comparisons.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from octavo.engines.engine import Engine, integer_schema
from octavo.engines.stages import Stages
from octavo.io.progress import Advance
from octavo.text.chunks import thread_map
from octavo.text.duplicates.config import Bands, DuplicatesConfig
from octavo.text.duplicates.shingles import (
    Int64s,
    band_keys,
    is_blank,
    shared_shingles,
    shingles,
    text_hashes,
)
from octavo.text.duplicates.units import BATCH_BYTES, UnitFile, check_room, open_part

if TYPE_CHECKING:
    import pyarrow

LINES, EXACT, PAIRED, CANDIDATES, COMPARED = "lines", "exact", "paired", "candidates", "compared"
ALL_PAIRS, LISTED, REMOVED = "all_pairs", "listed", "removed"
BLOCK_BITS = 4  # 2^4 lines of a bucket are compared with each other
MILLION = 1_000_000
PAIR_COLUMNS = ("line", "other", "millionths")


def line_columns(bands: Bands) -> list[str]:
    """The columns of the first stage."""
    return ["line", "hash0", "hash1", *(f"band{i}" for i in range(bands.bands))]


def read_lines(part: str, config: DuplicatesConfig, bands: Bands) -> Iterator[pyarrow.RecordBatch]:
    """The hashes of a part's lines."""
    file, start, stop = open_part(part)
    yield from thread_map(lambda cut: lines_batch(file, *cut, config, bands), file.cut(start, stop, BATCH_BYTES))


def lines_batch(file: UnitFile, start: int, stop: int, config: DuplicatesConfig, bands: Bands) -> pyarrow.RecordBatch:
    """The hashes of the lines of a range that are not blank."""
    import pyarrow

    numbered = [(i, text) for i, text in enumerate(file.read(start, stop), start) if not is_blank(text)]
    texts = [text for _, text in numbered]
    columns = [np.array([i for i, _ in numbered], np.int64), *text_hashes(texts).T]
    if config.near and texts:
        check_room(max(map(len, texts)), config.unit)
        columns += list(band_keys(*shingles(texts, config.shingle, config.shingle_unit), bands))
    else:
        columns += [np.zeros(0, np.int64)] * bands.bands
    arrays = [pyarrow.array(np.ascontiguousarray(column)) for column in columns]
    return pyarrow.record_batch(arrays, integer_schema(line_columns(bands)))


def read_similar(part: str, config: DuplicatesConfig, candidates: str) -> Iterator[pyarrow.RecordBatch]:
    """The candidates whose first line is in a part and whose similarity is the threshold's or more."""
    import pyarrow.dataset as dataset

    file, start, stop = open_part(part)
    place = dataset.field("line")
    table = dataset.dataset(candidates, format="parquet").to_table(filter=(place >= start) & (place < stop))
    pair_P2 = np.stack([table[name].to_numpy() for name in ("line", "other")], 1)
    yield from thread_map(lambda batch_P2: similar_batch(file, batch_P2, config), batches(file, pair_P2))


def batches(file: UnitFile, pair_P2: Int64s) -> Iterator[Int64s]:
    """The pairs, about BATCH_BYTES of text at a time."""
    end_P = file.sizes(pair_P2).sum(1).cumsum()
    first = before = 0
    while first < len(pair_P2):
        last = max(first + 1, int(np.searchsorted(end_P, before + BATCH_BYTES, "right")))
        yield pair_P2[first:last]
        first, before = last, int(end_P[last - 1])


def similar_batch(file: UnitFile, pair_P2: Int64s, config: DuplicatesConfig) -> pyarrow.RecordBatch:
    """Those of the pairs that are similar, with the similarity."""
    import pyarrow

    columns = similar_pairs(file, pair_P2, config)
    return pyarrow.record_batch([pyarrow.array(column) for column in columns], integer_schema(PAIR_COLUMNS))


def similar_pairs(file: UnitFile, pair_P2: Int64s, config: DuplicatesConfig) -> list[Int64s]:
    """Those of the pairs that are similar, with the similarity in millionths, rounded down."""
    line_L, index_P2 = np.unique(pair_P2, return_inverse=True)
    left_P, right_P = index_P2.reshape(pair_P2.shape).T
    texts = [file.read(line, line + 1)[0] for line in line_L.tolist()]
    check_room(max(map(len, texts)), config.unit)
    both_P, either_P = shared_shingles(*shingles(texts, config.shingle, config.shingle_unit), left_P, right_P)
    part, whole = config.threshold.as_integer_ratio()
    similar_P = both_P * whole >= either_P * part
    columns = [*pair_P2.T, both_P * MILLION // either_P]
    return [np.ascontiguousarray(column[similar_P]) for column in columns]


EXACT_SQL = f"""SELECT x.line, y.kept FROM {LINES} x JOIN (
    SELECT hash0, hash1, min(line) AS kept FROM {LINES} GROUP BY hash0, hash1 HAVING count(*) > 1
) y ON y.hash0 = x.hash0 AND y.hash1 = x.hash1 WHERE x.line > y.kept"""


def pairs_sql(band: int) -> str:
    """Lines that agree in a band, and repeat nothing to the byte."""
    return f"""WITH keyed AS (
        SELECT x.line, x.band{band} AS bucket FROM {LINES} x LEFT JOIN {EXACT} y ON y.line = x.line WHERE y.line IS NULL
    ), crowded AS (
        SELECT bucket FROM keyed GROUP BY bucket HAVING count(*) > 1
    ), placed AS (
        SELECT x.line, x.bucket,
            (CAST(row_number() OVER (PARTITION BY x.bucket ORDER BY x.line) AS BIGINT) - 1) >> {BLOCK_BITS} AS block
        FROM keyed x JOIN crowded y ON y.bucket = x.bucket
    ), reaching AS (
        SELECT line, bucket, block FROM placed UNION ALL SELECT line, bucket, block + 1 AS block FROM placed
    ) SELECT x.line, y.line AS other
    FROM reaching x JOIN placed y ON y.bucket = x.bucket AND y.block = x.block WHERE x.line < y.line"""


PAIRED_SQL = f"SELECT line, other FROM {ALL_PAIRS} GROUP BY line, other"
CANDIDATES_SQL = f"SELECT line, other FROM {PAIRED} ORDER BY line, other"
LINKS_SQL = f"SELECT line, other FROM {COMPARED} UNION ALL SELECT other AS line, line AS other FROM {COMPARED}"
FIRST_LABELS_SQL = (
    f"SELECT line, line AS previous, line AS label FROM (SELECT line FROM ({LINKS_SQL}) AS links GROUP BY line) AS ends"
)


def labels_sql(table: str) -> str:
    """One round: the least label of a line and of those that are similar to it, and then that line's own label.

    The second step makes the rounds as many as the logarithm of the longest chain.
    """
    return f"""WITH lowest AS (
        SELECT x.line, min(y.label) AS label FROM ({LINKS_SQL}) x JOIN {table} y ON y.line = x.other GROUP BY x.line
    ), merged AS (
        SELECT x.line, x.label AS previous, CASE WHEN y.label < x.label THEN y.label ELSE x.label END AS label
        FROM {table} x JOIN lowest y ON y.line = x.line
    ) SELECT x.line, x.previous, y.label FROM merged x JOIN merged y ON y.line = x.label"""


EXACT_ONLY_SQL = (
    f"SELECT line, kept, kept AS closest, CAST({MILLION} AS BIGINT) AS millionths, CAST(0 AS BIGINT) AS near "
    f"FROM {EXACT}"
)


def removed_sql(labels: str) -> str:
    """What is removed: all lines of a component but its first, and what repeats a line to the byte."""
    return f"""WITH ranked AS (
        SELECT x.line, x.other, x.millionths,
            row_number() OVER (PARTITION BY x.line ORDER BY x.millionths DESC, x.other) AS place
        FROM (SELECT line, other, millionths FROM {COMPARED}
              UNION ALL SELECT other AS line, line AS other, millionths FROM {COMPARED}) x
    ) SELECT line, kept, closest, millionths, near FROM (
        SELECT x.line, y.label AS kept, x.other AS closest, x.millionths, CAST(1 AS BIGINT) AS near
        FROM ranked x JOIN {labels} y ON y.line = x.line WHERE x.place = 1 AND y.label < x.line
        UNION ALL SELECT x.line, coalesce(y.label, x.kept) AS kept, x.kept AS closest,
            CAST({MILLION} AS BIGINT) AS millionths, CAST(0 AS BIGINT) AS near
        FROM {EXACT} x LEFT JOIN {labels} y ON y.line = x.kept
    ) AS every"""


REMOVED_SQL = f"SELECT line, kept, closest, millionths, near FROM {LISTED} ORDER BY line"


class Program:
    """The stages of one job on an engine."""

    def __init__(
        self, engine: Engine, stages: Stages, file: UnitFile, config: DuplicatesConfig, advance: Advance
    ) -> None:
        self.engine, self.stages, self.file, self.config, self.advance = engine, stages, file, config, advance
        self.bands = config.bands  # chosen here and handed to the machines of a cluster

    def run(self) -> Path:
        """The folder of what is removed."""
        read = partial(read_lines, config=self.config, bands=self.bands)
        self._read(LINES, read, line_columns(self.bands))
        self._write(EXACT, EXACT_SQL, LINES)
        if self.config.near:
            self._compare()
            labels = self._components()
            self._write(LISTED, removed_sql(labels), COMPARED, labels, EXACT)
        else:
            self._write(LISTED, EXACT_ONLY_SQL, EXACT)
        self._write(REMOVED, REMOVED_SQL, LISTED)
        return self.stages.rows(REMOVED)

    def _compare(self) -> None:
        """The stages from the bands to the pairs that are similar."""
        pairs = [f"pairs{band}" for band in range(self.bands.bands)]
        for band, name in enumerate(pairs):
            self._write(name, pairs_sql(band), LINES, EXACT)
        self.stages.run(PAIRED, self._write_paired)
        self.advance(1)
        for name in pairs:
            self.stages.remove(name)
        self._write(CANDIDATES, CANDIDATES_SQL, PAIRED)
        compare = partial(read_similar, config=self.config, candidates=str(self.stages.rows(CANDIDATES)))
        self._read(COMPARED, compare, PAIR_COLUMNS)

    def _write_paired(self, folder: Path) -> None:
        """One scan of all bands' files: a union of them takes the buffers of each."""
        self.engine.open_parquet(ALL_PAIRS, self.stages.folder / "pairs*" / "rows")
        self.engine.write(PAIRED_SQL, folder)

    def _components(self) -> str:
        """The table of labels in which no label is lowered any more."""
        number, name = 0, "labels0"
        self._write(name, FIRST_LABELS_SQL, COMPARED, steps=0)
        while True:
            number, previous = number + 1, name
            name = f"labels{number}"
            self._write(name, labels_sql(previous), COMPARED, previous, steps=0)
            self.engine.open_parquet(name, self.stages.rows(name))
            if self.engine.rows(f"SELECT count(*) FROM {name} WHERE label < previous")[0][0] == 0:
                self.advance(1)
                return name

    def _read(self, name: str, read: partial[Iterator[pyarrow.RecordBatch]], columns: Sequence[str]) -> None:
        """A stage that Python gives."""

        def make(folder: Path) -> None:
            self.engine.open_batches(f"{name}_read", self.file.parts(), read, integer_schema(columns))
            self.engine.write(f"SELECT {', '.join(columns)} FROM {name}_read", folder)

        self.stages.run(name, make)
        self.advance(1)

    def _write(self, name: str, query: str, *tables: str, steps: int = 1) -> None:
        """A stage that is a query over earlier ones."""

        def make(folder: Path) -> None:
            for table in tables:
                self.engine.open_parquet(table, self.stages.rows(table))
            self.engine.write(query, folder)

        self.stages.run(name, make)
        self.advance(steps)


def stage_count(config: DuplicatesConfig) -> int:
    """The steps of the progress; the rounds of the components are one."""
    return config.bands.bands + 8 if config.near else 4
