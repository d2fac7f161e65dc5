"""Running a command and reading what it took; the peak is that of the process itself, as the kernel counts it."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple


class Took(NamedTuple):
    """Wall seconds and peak resident memory of one process."""

    seconds: float
    gigabytes: float
    output: str


def run(command: Sequence[str | Path], stdin: Path | None = None) -> Took:
    """Run the command to its end; a failure ends the benchmark with what it printed."""
    began = time.perf_counter()
    with open(stdin or os.devnull, "rb") as source:
        process = subprocess.Popen(
            list(map(str, command)), stdin=source, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
    assert process.stderr is not None
    output = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{output}")
    return Took(time.perf_counter() - began, usage.ru_maxrss * 1024 / 1e9, output)


def octavo(*arguments: str | Path) -> list[str | Path]:
    """The octavo command of this environment."""
    return [sys.executable, "-m", "octavo.cli", *arguments]


def middle(values: Sequence[float]) -> str:
    """The median and the spread."""
    if len(values) == 1:
        return f"{values[0]:.2f}"
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"
