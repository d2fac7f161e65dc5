"""What an engine does: tables out of Parquet files or out of Python, and queries into Parquet files.

Queries are written once, in the SQL that both engines share. It is a small part of it: SELECT, WHERE, GROUP BY, ORDER
BY, UNION ALL, JOIN, CASE; `& | ~ << >>` and `%` on BIGINT, with parentheses around each; and
`CAST(sum(x) AS BIGINT)`, because DuckDB's sums of BIGINT have 128 bits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

if TYPE_CHECKING:
    import pyarrow

Batches = Callable[[str], "Iterator[pyarrow.RecordBatch]"]  # a part's description to its rows


def integer_schema(names: Sequence[str]) -> pyarrow.Schema:
    """Columns of 64-bit integers."""
    import pyarrow

    return pyarrow.schema([(name, pyarrow.int64()) for name in names])


@dataclass(frozen=True)
class EngineSettings:
    """What an engine may use."""

    folder: Path
    """Where it may write what has no room in memory."""
    memory_limit: int
    """Bytes of the engine's own memory: of DuckDB's, of Spark's driver, or of each executor on a cluster."""
    threads: int | None = None
    """None: one a core. Spark's master says it itself."""
    master: str = "local[*]"
    """Of Spark: local[2], spark://HOST:7077, yarn, k8s://..."""


class Engine(ABC):
    """A running engine. Tables have names and last until it is closed."""

    name: ClassVar[str]

    def __init__(self, settings: EngineSettings) -> None:
        self.settings = settings

    @abstractmethod
    def open_parquet(self, name: str, folder: Path) -> None:
        """A table over the Parquet files of a folder, or of all folders whose path fits a pattern with `*`."""

    @abstractmethod
    def open_batches(
        self, name: str, parts: Sequence[str], read: Batches, schema: pyarrow.Schema, slow: bool = False
    ) -> None:
        """A table, to be read once, of what `read` gives for each part, in any order.

        `read` runs here, or on the machines of a cluster: it can be pickled, and the paths in `parts` are read there.
        Where it is `slow`, more work than sending its rows from one process to another, several processes run it.
        """

    @abstractmethod
    def write(self, query: str, folder: Path) -> None:
        """Run a query into Parquet files in a new folder; their names are in the order of its rows."""

    @abstractmethod
    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """The few rows of a query's result."""

    @abstractmethod
    def close(self) -> None:
        """Stop it; what it wrote stays."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
