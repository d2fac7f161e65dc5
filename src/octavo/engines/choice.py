"""Which engine works, with how much memory, and where: flags of every verb that needs one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from octavo.engines import EngineSettings, check_engine, open_engine
from octavo.engines.engine import Engine
from octavo.errors import UserError
from octavo.io.limits import parse_size
from octavo.io.memory import available

LEAST_MEMORY = 1 << 28  # bytes: what an engine is given where nothing is said and little is free


@dataclass(frozen=True)
class EngineChoice:
    """An engine for what no in-memory program does."""

    engine: Literal["duckdb", "spark"] = "duckdb"
    """duckdb works in files on this machine, within --memory-limit; spark on a cluster. The result is the same."""
    memory_limit: str = ""
    """Such as 2GB; by default half of what is free. Of a cluster, what each executor has."""
    spark_master: str = "local[*]"
    """spark: local[2], spark://HOST:7077, yarn, ..."""

    def __post_init__(self) -> None:
        if self.memory_limit:
            parse_size(self.memory_limit)
        if self.spark_master != "local[*]" and self.engine != "spark":
            raise UserError(f"only spark has a master: engine={self.engine}; add --engine spark")

    def check(self) -> None:
        """Refuse an engine whose packages are missing."""
        check_engine(self.engine)

    def open(self, folder: Path, name: str = "") -> Engine:
        """Start the engine, or the one that was chosen; the folder is for what has no room in memory."""
        limit = parse_size(self.memory_limit) if self.memory_limit else max(LEAST_MEMORY, available() // 2)
        return open_engine(name or self.engine, EngineSettings(folder, limit, master=self.spark_master))
