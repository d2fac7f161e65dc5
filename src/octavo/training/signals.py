"""Signals that ask training to stop: the first lets it save, the second ends it at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

ASKING = (signal.SIGINT, signal.SIGTERM)


class Stopping:
    """Within it, SIGINT and SIGTERM are recorded in `asked`; a second one ends the process then and there.

    That is safe at any moment, because files appear only when they are whole.
    """

    def __init__(self) -> None:
        self.asked = 0
        self.before: dict[int, Any] = {}

    def __enter__(self) -> Stopping:
        if threading.current_thread() is threading.main_thread():  # elsewhere signals do not arrive
            self.before = {number: signal.signal(number, self._note) for number in ASKING}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _: FrameType | None) -> None:
        if self.asked:
            os._exit(128 + number)
        self.asked = number


class Terminated(KeyboardInterrupt):
    """SIGTERM has come, where nothing waits to be saved."""


@contextmanager
def interrupted_by_sigterm() -> Iterator[None]:
    """Within it, SIGTERM interrupts as Ctrl-C does; a program that has a handler of its own keeps it."""
    ours = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if not ours:
        yield
        return

    def interrupt(*_: object) -> None:
        raise Terminated

    signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
