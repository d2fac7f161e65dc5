"""Texts that wait for the same model are read together, each exactly as it would be read alone.

Nobody waits for others to come: while one request has its turn, others queue; whoever gets the next turn reads the
texts of all that wait for its model. Where a model's results would change by it in the last digits, each text is read
by itself.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from octavo.core import LanguageModel
from octavo.inspection.surprisal import Reading, max_batch_tokens, read, read_batch
from octavo.studio.server.scheduler import Ticket

MAX_TEXTS = 64  # read together


class _ReadByAnother(Exception):
    """Somebody else's turn read this text too."""


@dataclass(eq=False)
class WaitingText:
    """A text, and what became of it."""

    model: LanguageModel[Any]
    x_N: Sequence[int]
    candidates: int
    ticket: Ticket
    reading: Reading | None = None
    done: threading.Event = field(default_factory=threading.Event)

    def check(self) -> None:
        """Raise where there is nothing to wait for any more."""
        if self.done.is_set():
            raise _ReadByAnother
        self.ticket.check()


class ReadBatches:
    """The texts that wait to be read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[WaitingText] = []

    def read(self, model: LanguageModel[Any], x_N: Sequence[int], candidates: int, ticket: Ticket) -> Reading:
        """The same as `surprisal.read`. Errors, time limits and cancellation are each request's own."""
        if not 0 < len(x_N) <= max_batch_tokens(model):
            return read(model, x_N, candidates, ticket.turn)
        mine = WaitingText(model, x_N, candidates, ticket)
        with self._lock:
            self._waiting.append(mine)
        try:
            with ticket.turn(mine.check):
                if not mine.done.is_set():
                    _read_together(self._take(mine))
        except _ReadByAnother:
            pass
        finally:
            with self._lock:
                if mine in self._waiting:
                    self._waiting.remove(mine)
        return mine.reading or read(model, x_N, candidates, ticket.turn)  # alone, for an error of its own

    def _take(self, mine: WaitingText) -> list[WaitingText]:
        """This text and others that can be read with it, those that wait longest first."""
        with self._lock:
            taken, room = [mine], max_batch_tokens(mine.model) - len(mine.x_N)
            for other in self._waiting:
                is_alike = other.model is mine.model and other.candidates == mine.candidates
                if other is not mine and is_alike and len(other.x_N) <= room and len(taken) < MAX_TEXTS:
                    taken.append(other)
                    room -= len(other.x_N)
            self._waiting = [other for other in self._waiting if other not in taken]
        return taken


def _read_together(texts: Sequence[WaitingText]) -> None:
    try:
        first = texts[0]
        readings = read_batch(first.model, [text.x_N for text in texts], first.candidates)
        for text, reading in zip(texts, readings, strict=True):
            text.reading = reading
    except Exception:  # whose fault it is shows when each reads its own
        if len(texts) == 1:
            raise
    finally:
        for text in texts:
            text.done.set()
