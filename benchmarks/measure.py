"""Shared by the benchmarks: the machine, timing in interleaved rounds, medians with their spread, tables, commands.

python benchmarks/measure.py       (print the machine: processor, cores, GPU, versions)
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import torch

from octavo.experiments.compare.cost import describe_machine, versions

MACHINE_PRINTED = "OCTAVO_BENCH_MACHINE_PRINTED"  # set by `make bench`, which prints the machine before its scripts


def parser(description: str) -> argparse.ArgumentParser:
    """A parser whose help is the script's docstring as it stands."""
    return argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)


def print_machine() -> None:
    """One line: processor, cores, threads, GPU and versions; nothing if `make bench` has printed it."""
    if MACHINE_PRINTED in os.environ:
        return
    machine, software = describe_machine("auto"), versions()
    cores, threads = machine["cores"], machine["threads"]
    hardware = f"{machine['processor']}; {cores} core{'s' * (cores != 1)}, {threads} thread{'s' * (threads != 1)}"
    gpu = f"; {machine['gpu']}" if "gpu" in machine else ""
    print(f"{hardware}{gpu}; Python {software['python']}, torch {software['torch']}", flush=True)


def require_gpu() -> None:
    if not torch.cuda.is_available():
        sys.exit("this benchmark needs a CUDA GPU, and there is none here")


# ---------------------------------------------------------------------- results


def median_spread(values: Sequence[float], digits: int = 2, unit: str = "") -> str:
    """The median, and in brackets the least and the greatest value: `0.25 (0.23 to 0.35) s`."""
    median, low, high = (f"{value:,.{digits}f}" for value in (statistics.median(values), min(values), max(values)))
    return (median if len(values) == 1 else f"{median} ({low} to {high})") + (f" {unit}" if unit else "")


def print_header(*names: str) -> None:
    """The first two lines of a Markdown table, the form that docs/benchmarks.md holds results in."""
    print_row(*names)
    print("|" + "---|" * len(names), flush=True)


def print_row(*cells: object) -> None:
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


# ---------------------------------------------------------------------- calls


def time_call(work: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds of one call, the GPU's work included."""
    _wait_for_gpu()
    began = clock()
    work()
    _wait_for_gpu()
    return clock() - began


def time_rounds(
    jobs: Mapping[str, Callable[[], object]],
    rounds: int,
    calls: int = 1,
    warm_up: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Seconds of one call of each job, round by round.

    The jobs alternate, so that other work on the machine disturbs all of them alike. A round is `calls` calls of each
    job. The first `warm_up` rounds, which compile and fill caches, are not counted.
    """
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for number in range(warm_up + rounds):
        for name, job in jobs.items():
            took = time_call(lambda job=job: [job() for _ in range(calls)], clock) / calls  # type: ignore[misc]
            if number >= warm_up:
                seconds[name].append(took)
    return seconds


def rates(amount: float, seconds: Sequence[float]) -> list[float]:
    """`amount` per second, for each of the times."""
    return [amount / each for each in seconds]


def time_on_gpu(work: Callable[[], object], repeats: int, warm_up: int = 5) -> list[float]:
    """Seconds between two CUDA events around each call: the GPU's own time."""
    seconds = []
    for _ in range(warm_up + repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        begin.record()
        work()
        end.record()
        end.synchronize()
        seconds.append(begin.elapsed_time(end) / 1e3)
    return seconds[warm_up:]


def copy_bandwidth() -> float:
    """Bytes per second, read and written, of a copy of 2 GiB in the GPU's memory."""
    source, target = (torch.ones(1 << 31, dtype=torch.uint8, device="cuda") for _ in range(2))
    return 2 * len(source) / statistics.median(time_on_gpu(lambda: target.copy_(source), 10))


def print_profile(work: Callable[[], object], calls: int = 1, kernels: int = 12) -> None:
    """The GPU's own time in its most expensive kernels, per call."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(calls):
            work()
        torch.cuda.synchronize()
    rows = sorted(profile.key_averages(), key=lambda row: -row.self_device_time_total)
    print_header("kernel", "launches", "ms")
    for row in rows[:kernels]:
        print_row(row.key[:80], row.count // calls, f"{row.self_device_time_total / calls / 1e3:.3f}")


def _wait_for_gpu() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


# ---------------------------------------------------------------------- commands


class CommandCost(NamedTuple):
    """What the kernel counts of one process: wall-clock time, peak resident memory, processor time; and its output."""

    seconds: float
    gigabytes: float
    output: str
    processor: float  # seconds, its children's among them


def octavo_command(*arguments: str | Path) -> list[str]:
    """The octavo command of this environment."""
    return [sys.executable, "-m", "octavo.cli", *map(str, arguments)]


def run_command(command: Sequence[str | Path], stdin: Path | None = None) -> CommandCost:
    """Run the command to its end; a failure ends the benchmark with what it printed."""
    began = time.perf_counter()
    with open(stdin or os.devnull, "rb") as source, tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            list(map(str, command)), stdin=source, stdout=output, stderr=subprocess.PIPE, text=True
        )  # fmt: skip
        assert process.stderr is not None
        errors = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        if status:
            sys.exit(f"{' '.join(map(str, command))} failed:\n{errors}")
        output.seek(0)
        return CommandCost(seconds, usage.ru_maxrss * 1024 / 1e9, output.read(), usage.ru_utime + usage.ru_stime)


@contextmanager
def run_studio(runs: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start the studio as a user does; its process and the address that it prints."""
    command = octavo_command("studio", runs, "--no-browser", "--device", "cpu")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if " at http://" not in line:
            sys.exit(f"the studio did not start: {line}")
        yield process, line.rsplit(" at ", 1)[1].strip()
    finally:
        process.terminate()
        process.wait(20)


if __name__ == "__main__":
    parser(__doc__).parse_args()
    print_machine()
