"""Where the cells of an experiment are executed: on this machine, or on a Ray cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

from octavo.config import Range, check_ranges
from octavo.errors import UserError
from octavo.experiments.executor import Executor, local_executor
from octavo.models.parts.checks import check_positive

LOCAL, RAY = "local", "ray"
CLIENT = "ray://"  # begins the address of a cluster that this machine is no part of
PLACES = f"{LOCAL}, {RAY} or {CLIENT}HOST"


@dataclass(frozen=True)
class Execution:
    """Where models are trained and measured, and how many at a time."""

    jobs: int = 1
    """How many models to work on at a time, each in a process of its own with its share of the cores; on Ray, at most
    so many, and 1: as many as there is room for."""
    on: str = LOCAL
    """local: this machine. ray: the Ray cluster that this machine is part of, or a new one on it alone. ray://HOST: a
    cluster elsewhere, which sees the same folders. Needs pip install 'octavo[ray]'."""
    cores: Annotated[int, Range(1, 4096)] = 1
    """On Ray: how many cores each model asks for. One that trains on a GPU asks for a GPU besides."""

    def __post_init__(self) -> None:
        check_positive("jobs", self.jobs, 2)
        check_ranges(self)
        if self.on not in (LOCAL, RAY) and not (self.on.startswith(CLIENT) and self.on != CLIENT):
            raise UserError(f"on must be {PLACES}: on={self.on}; try --on {RAY}")
        if self.on == LOCAL and self.cores != 1:
            raise UserError(f"cores is for a cluster: cores={self.cores}, on={LOCAL}; give --on {RAY}, or take --jobs")

    @property
    def words(self) -> list[str]:
        """The flags that say so."""
        on = ["--on", self.on] if self.on != LOCAL else []
        return [
            *(["--jobs", str(self.jobs)] if self.jobs > 1 else []), *on,
            *(["--cores", str(self.cores)] if self.cores > 1 else []),
        ]  # fmt: skip


@contextmanager
def open_executor(execution: Execution) -> Iterator[Executor]:
    """What executes cells there; within it, the cluster is connected."""
    if execution.on == LOCAL:
        yield local_executor(execution.jobs)
        return
    from octavo.experiments.ray_cluster import connected  # which needs Ray

    with connected(execution.on, execution.jobs, execution.cores) as executor:
        yield executor
