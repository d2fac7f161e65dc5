"""What was worked out last, kept for a while: a page asks for one head after another of the same look."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from octavo.studio.server.scheduler import LOOK_AGAIN, Ticket

T = TypeVar("T")
ROOM = 256 << 20  # bytes of all that is kept; the last is kept whatever its size
LONG = 1500  # letters: texts above are looked at one after another, for their looks take room while they are made


class Kept(Generic[T]):
    """Results by the model that they are of and what it was asked. A model that is let go of is not held by them."""

    def __init__(self, room: int = ROOM) -> None:
        self.room = room
        self._lock, self._long = threading.Lock(), threading.Lock()
        self._making: dict[Hashable, threading.Lock] = {}
        self._found: OrderedDict[Hashable, tuple[weakref.ref[object], T, int]] = OrderedDict()

    def get(
        self, of: object, asked: Hashable, letters: int, ticket: Ticket, make: Callable[[], T], size: Callable[[T], int]
    ) -> T:
        """What was made for this, or is made now; who asks for the same meanwhile waits for it."""
        key = (id(of), asked)
        if (found := self._look(key, of)) is not None:
            return found
        with self._lock:
            mine = self._making.setdefault(key, threading.Lock())
        with _held(mine, ticket):
            if (found := self._look(key, of)) is not None:
                return found
            try:
                if letters > LONG:
                    with _held(self._long, ticket):
                        made = make()
                else:
                    made = make()
                self._keep(key, of, made, size(made))
                return made
            finally:
                with self._lock:
                    self._making.pop(key, None)

    def _look(self, key: Hashable, of: object) -> T | None:
        with self._lock:
            entry = self._found.get(key)
            if entry is None or entry[0]() is not of:
                return None
            self._found.move_to_end(key)
            return entry[1]

    def _keep(self, key: Hashable, of: object, made: T, size: int) -> None:
        with self._lock:
            self._found[key] = (weakref.ref(of), made, size)
            self._found.move_to_end(key)
            gone = [old for old, (model, _, _) in self._found.items() if model() is None]
            for old in gone:
                del self._found[old]
            while len(self._found) > 1 and sum(size for _, _, size in self._found.values()) > self.room:
                self._found.popitem(last=False)


@contextmanager
def _held(lock: threading.Lock, ticket: Ticket) -> Iterator[None]:
    """The lock, once it is free; who waits for it may be sent away."""
    while not lock.acquire(timeout=LOOK_AGAIN):
        ticket.check()
    try:
        yield
    finally:
        lock.release()
