"""DuckDB: embedded, on all cores of one machine; what has no room in its memory goes to files."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow

from octavo.engines.engine import Batches, Engine, EngineSettings
from octavo.engines.worker_processes import process_count, read_in_processes
from octavo.errors import UserError

SPILL = "spill"  # the folder of what has no room in memory
DISK_FULL = ("no space left", "max_temp_directory_size", "disk quota")
MIN_MEMORY = 64 << 20  # bytes: below, DuckDB cannot hold one block of each thread's hash table


class DuckDB(Engine):
    """One connection to a database in memory."""

    name = "duckdb"

    def __init__(self, settings: EngineSettings) -> None:
        super().__init__(settings)
        if settings.memory_limit < MIN_MEMORY:
            raise UserError(
                f"duckdb needs a memory limit of at least {MIN_MEMORY:,} bytes: {settings.memory_limit:,} given; "
                "try --memory-limit 1GB"
            )
        self._spill = settings.folder / SPILL
        shutil.rmtree(self._spill, ignore_errors=True)  # of a killed process
        options: dict[str, Any] = {
            "memory_limit": f"{settings.memory_limit}B",
            "temp_directory": str(self._spill),
            "preserve_insertion_order": False,  # only ORDER BY counts; keeping the order of the rest takes memory
        }
        if settings.threads:
            options["threads"] = settings.threads
        self._refused: UserError | None = None  # by what reads a part
        self._connection = duckdb.connect(config=options)
        self._connection.execute("SET enable_progress_bar = false")

    def open_parquet(self, name: str, folder: Path) -> None:
        pattern = str(folder / "*.parquet").replace("'", "''")
        with self._naming_errors():
            self._connection.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS SELECT * FROM read_parquet('{pattern}')")

    def open_batches(
        self, name: str, parts: Sequence[str], read: Batches, schema: pyarrow.Schema, slow: bool = False
    ) -> None:
        processes = process_count(len(parts), self.settings.threads) if slow else 1

        def batches() -> Iterator[pyarrow.RecordBatch]:
            try:
                if processes > 1:
                    yield from read_in_processes(parts, read, processes)
                else:
                    for part in parts:
                        yield from read(part)
            except UserError as error:  # DuckDB would make an error of its own of it
                self._refused = error
                raise

        self._connection.register(name, pyarrow.RecordBatchReader.from_batches(schema, batches()))

    def write(self, query: str, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.write_file(query, folder / "part-00000.parquet")

    def write_file(self, query: str, path: Path) -> None:
        """Run a query into one Parquet file."""
        target = str(path).replace("'", "''")
        with self._naming_errors():
            self._connection.execute(f"COPY ({query}) TO '{target}' (FORMAT parquet)")

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with self._naming_errors():
            rows: list[tuple[Any, ...]] = self._connection.execute(query).fetchall()
            return rows

    def close(self) -> None:
        self._connection.close()
        shutil.rmtree(self._spill, ignore_errors=True)

    @contextmanager
    def _naming_errors(self) -> Iterator[None]:
        """Turn what a larger limit or a larger disk would remedy into a message that says so."""
        try:
            yield
        except duckdb.Error as error:
            if self._refused is not None:
                raise self._refused from error
            if any(words in str(error).lower() for words in DISK_FULL):
                free = shutil.disk_usage(self.settings.folder).free
                raise UserError(
                    f"the disk is full: duckdb failed to write into {self.settings.folder} with {free:,} bytes free; "
                    "free some room and give the same command again"
                ) from error
            if isinstance(error, duckdb.OutOfMemoryException):
                raise UserError(
                    f"duckdb needs more than {self.settings.memory_limit:,} bytes of memory for this; "
                    f"try --memory-limit {max(1, round(2e-9 * self.settings.memory_limit))}GB"
                ) from error
            if isinstance(error, duckdb.IOException | duckdb.InvalidInputException):
                raise UserError(
                    f"duckdb cannot read or write: {str(error).splitlines()[0]}; check the files"
                ) from error
            raise


ENGINE = DuckDB
