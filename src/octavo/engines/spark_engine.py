"""Spark 4: the same queries on a cluster. The stages' folder is one that all its machines see."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from octavo.engines.engine import Batches, Engine, EngineSettings
from octavo.errors import UserError

MOST_TASKS = 10_000  # of one table that Python gives: the driver keeps a record of each
LOCAL_PARTITIONS = 8  # of a shuffle on one machine; on a cluster Spark's own number serves
REFUSED = re.compile(r"octavo\.errors\.\w*Error: (.+)")  # by what reads a part, as Spark quotes it
DEFAULTS = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(1 << 20),
    "spark.sql.parquet.compression.codec": "snappy",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}


class Spark(Engine):
    """One Spark session; further settings come from spark-defaults.conf, as everywhere."""

    name = "spark"

    def __init__(self, settings: EngineSettings) -> None:
        super().__init__(settings)
        if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
            raise UserError("spark needs Java 17 or newer, and there is no java; install it, or set JAVA_HOME")
        local = settings.master.startswith("local")
        memory = f"{max(512, settings.memory_limit >> 20)}m"
        builder = SparkSession.builder.master(settings.master).appName("octavo")
        options = {**DEFAULTS, "spark.driver.memory" if local else "spark.executor.memory": memory}
        if local:
            options |= {"spark.local.dir": str(settings.folder), "spark.sql.shuffle.partitions": str(LOCAL_PARTITIONS)}
            options |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
            options |= {"spark.driver.extraJavaOptions": "-XX:+UseParallelGC"}  # 7 % faster here than Java's default
        for key, value in options.items():
            builder = builder.config(key, value)
        with _naming_errors(settings), _workers_python(sys.executable if local else "python3"):
            self._session = builder.getOrCreate()

    def open_parquet(self, name: str, folder: Path) -> None:
        with _naming_errors(self.settings):
            self._session.read.parquet(str(folder.absolute())).createOrReplaceTempView(name)

    def open_batches(
        self, name: str, parts: Sequence[str], read: Batches, schema: pyarrow.Schema, slow: bool = False
    ) -> None:
        from pyspark.sql.pandas.types import from_arrow_schema

        def rows_of(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
            for batch in batches:
                for part in batch.column(0).to_pylist():
                    yield from read(part)

        with _naming_errors(self.settings):
            described = self._session.sparkContext.parallelize(
                [(part,) for part in parts], min(MOST_TASKS, max(1, len(parts)))
            )
            table = self._session.createDataFrame(described, "part string")
            table.mapInArrow(rows_of, from_arrow_schema(schema)).createOrReplaceTempView(name)

    def write(self, query: str, folder: Path) -> None:
        with _naming_errors(self.settings):
            self._session.sql(query).write.parquet(str(folder.absolute()))

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with _naming_errors(self.settings):
            return [tuple(row) for row in self._session.sql(query).collect()]

    def close(self) -> None:
        self._session.stop()


@contextmanager
def _workers_python(python: str) -> Iterator[None]:
    """Within it, a session is opened whose workers run this Python, unless PYSPARK_PYTHON names another."""
    given = os.environ.get("PYSPARK_PYTHON")
    os.environ["PYSPARK_PYTHON"] = given or python
    try:
        yield
    finally:
        if given is None:  # the next session may be another master's
            del os.environ["PYSPARK_PYTHON"]


@contextmanager
def _naming_errors(settings: EngineSettings) -> Iterator[None]:
    """Turn what Spark or its Java says into one line."""
    try:
        yield
    except Exception as error:
        text = str(error)
        if refused := REFUSED.search(text):
            raise UserError(refused[1].strip()) from error
        if "No space left on device" in text:
            raise UserError(
                f"the disk is full: spark failed to write into {settings.folder}; free some room and give the same "
                "command again"
            ) from error
        if "OutOfMemoryError" in text or "too small" in text.lower():
            raise UserError(
                f"spark needs more than {settings.memory_limit:,} bytes of memory for this; try a larger --memory-limit"
            ) from error
        if isinstance(error, PySparkException) or type(error).__module__.startswith(("py4j", "pyspark")):
            line = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
            raise UserError(f"spark at {settings.master} failed: {line.strip()[:300]}; see its log") from error
        raise


ENGINE = Spark
