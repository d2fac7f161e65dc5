"""Processes that run octavo's command line, forked from one that has imported everything: an import takes seconds."""

from __future__ import annotations

import multiprocessing
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path

FORK = multiprocessing.get_context("forkserver")
FORK.set_forkserver_preload(["octavo.cli", "octavo.tasks.api", *(
    f"octavo.tasks.{name}" for name in ("language", "masked", "translation", "classification", "images", "facts")
), "octavo.cli.train", "octavo.training.loop", "octavo.scoring.range_coder",
    "torch._dynamo",  # which PyTorch imports where the first optimizer is made
])  # fmt: skip


def start_cli(words: Sequence[str], environment: Mapping[str, str] | None = None) -> BaseProcess:
    """A process that runs a command; it can be killed, and its exit code is the command's."""
    process = FORK.Process(target=run_cli, args=(list(words), dict(environment or {})))
    process.start()
    return process


def start_two(words: Sequence[str]) -> list[BaseProcess]:
    """Two processes that train together, with what torchrun tells them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    return [start_cli(words, {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(2)]


def run_cli(words: list[str], environment: dict[str, str]) -> None:
    """What a process does."""
    os.environ.update(environment)
    from octavo.cli import main

    sys.exit(main(words))


def complete(program: Sequence[str] | str, folder: Path, environment: Mapping[str, str], seconds: float
             ) -> subprocess.CompletedProcess[str]:  # fmt: skip
    """As `subprocess.run`: a command of octavo, or Python code, in a process of its own, whose streams are captured."""
    with tempfile.TemporaryDirectory() as name:
        streams = [Path(name, stream) for stream in ("out", "err")]
        for stream in streams:
            stream.touch()  # also for a process that dies before it begins
        process = FORK.Process(target=_run_captured, args=(program, folder, dict(environment), streams))
        process.start()
        process.join(seconds)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(program, seconds)
        out, errors = (stream.read_text(encoding="utf-8") for stream in streams)
    return subprocess.CompletedProcess(program, process.exitcode, out, errors)


def _run_captured(
    program: Sequence[str] | str, folder: Path, environment: dict[str, str], streams: Sequence[Path]
) -> None:
    for number, stream in enumerate(streams, 1):
        os.dup2(os.open(stream, os.O_WRONLY), number)
    os.environ.clear()
    os.chdir(folder)
    if isinstance(program, str):
        os.environ.update(environment)
        exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})
    else:
        run_cli(list(program), environment)
