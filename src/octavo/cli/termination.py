"""A command that is asked to end puts away what is half done, as after Ctrl-C."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from octavo.errors import Stopped


@contextmanager
def terminable() -> Iterator[None]:
    """Within it SIGTERM raises Stopped; a second one ends the process at once. Elsewhere than in the main thread, or
    where somebody else handles that signal, nothing changes.
    """
    usual = threading.current_thread() is threading.main_thread() and (
        signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    )
    if not usual:
        yield
        return
    signal.signal(signal.SIGTERM, _stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _stop(number: int, _: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    raise Stopped("asked to end; nothing half-written is left behind", number)
