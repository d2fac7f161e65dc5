"""Processes that run octavo's command line, forked from one that has imported everything: an import takes seconds."""

from __future__ import annotations

import multiprocessing
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.process import BaseProcess

FORK = multiprocessing.get_context("forkserver")
FORK.set_forkserver_preload(["octavo.cli", "octavo.tasks.api", *(
    f"octavo.tasks.{name}" for name in ("language", "masked", "translation", "classification", "images", "facts")
)])  # fmt: skip


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
