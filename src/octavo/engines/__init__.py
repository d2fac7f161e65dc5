"""Engines that run one relational program: DuckDB on one machine, Spark on a cluster."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

from octavo.engines.engine import Engine, EngineSettings
from octavo.errors import UserError, did_you_mean

ENGINES: dict[str, tuple[str, str]] = {  # the module of each, whose ENGINE is its class, and the package it needs
    "duckdb": ("octavo.engines.duckdb_engine", "duckdb"),
    "spark": ("octavo.engines.spark_engine", "pyspark"),
}

__all__ = ["ENGINES", "Engine", "EngineSettings", "check_engine", "has_engine", "open_engine"]


def has_engine(name: str) -> bool:
    """Whether the package that an engine needs is installed."""
    return name in ENGINES and all(find_spec(package) is not None for package in (ENGINES[name][1], "pyarrow"))


def check_engine(name: str) -> None:
    """Refuse an engine that there is not, or whose packages are missing."""
    if name not in ENGINES:
        raise UserError(f"there is no engine {name!r}; {did_you_mean(name, ENGINES, 'see octavo.engines')}")
    if not has_engine(name):
        raise UserError(f"the engine {name} needs {ENGINES[name][1]} and pyarrow: pip install 'octavo[{name}]'")


def open_engine(name: str, settings: EngineSettings) -> Engine:
    """Start an engine; close it, or use it as a context manager."""
    check_engine(name)
    engine: Engine = import_module(ENGINES[name][0]).ENGINE(settings)
    return engine
