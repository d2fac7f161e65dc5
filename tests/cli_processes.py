"""Processes that run octavo's command line, forked from one that has imported everything: an import takes seconds."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
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


class Command:
    """What `subprocess.Popen` is to a program: a command of octavo, or Python code, whose streams are captured."""

    def __init__(
        self, program: Sequence[str] | str, folder: Path | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        self.program, self.place = program, Path(tempfile.mkdtemp())
        streams = [self.place / stream for stream in ("out", "err")]
        for stream in streams:
            stream.touch()  # also for a process that dies before it begins
        words = program if isinstance(program, str) else list(program)
        where = dict(os.environ if environment is None else environment)
        self.process = FORK.Process(target=_run_captured, args=(words, folder or Path.cwd(), where, streams))
        self.process.start()

    def __enter__(self) -> Command:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.process.join()
        shutil.rmtree(self.place, ignore_errors=True)

    @property
    def pid(self) -> int:
        return self.process.pid or 0

    @property
    def returncode(self) -> int | None:
        return self.process.exitcode

    def poll(self) -> int | None:
        return self.process.exitcode

    def send_signal(self, number: int) -> None:
        if self.process.exitcode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for its end; what it has printed to either stream."""
        self.process.join(timeout)
        if self.process.exitcode is None:
            raise subprocess.TimeoutExpired(self.program, timeout or 0.0)
        out, errors = ((self.place / stream).read_text(encoding="utf-8") for stream in ("out", "err"))
        return out, errors


def complete(
    program: Sequence[str] | str, folder: Path, environment: Mapping[str, str], seconds: float
) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run`."""
    with Command(program, folder, environment) as command:
        out, errors = command.communicate(seconds)
        return subprocess.CompletedProcess(program, command.returncode or 0, out, errors)


def _run_captured(
    program: Sequence[str] | str, folder: Path, environment: dict[str, str], streams: Sequence[Path]
) -> None:
    for number, stream in enumerate(streams, 1):
        os.dup2(os.open(stream, os.O_WRONLY), number)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where the tests run in the background
    os.environ.clear()
    os.chdir(folder)
    if isinstance(program, str):
        os.environ.update(environment)
        exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})
    else:
        run_cli(list(program), environment)
