"""The latest results of expensive computations, by model and request: a page asks for one head after another of the
same attention maps."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Generic, TypeVar

from octavo.studio.server.scheduler import POLL_SECONDS, Ticket

T = TypeVar("T")
CACHE_BYTES = 256 << 20  # of all results together; the latest is stored whatever its size
SERIAL_CHARACTERS = 1500  # longer texts are computed one after another, because computing them takes much memory


class ResultCache(Generic[T]):
    """Results by the model they belong to and the request. The model is referenced weakly, so it can be freed."""

    def __init__(self, max_bytes: int = CACHE_BYTES) -> None:
        self.max_bytes = max_bytes
        self._lock, self._long_texts = threading.Lock(), threading.Lock()
        self._computing: dict[Hashable, threading.Lock] = {}
        self._entries: OrderedDict[Hashable, tuple[weakref.ref[object], T, int]] = OrderedDict()

    def get(
        self, model: object, request: Hashable, characters: int, ticket: Ticket, compute: Callable[[], T],
        size_of: Callable[[T], int],
    ) -> T:  # fmt: skip
        """The stored result, or the one computed now; concurrent callers of the same request wait for it."""
        key = (id(model), request)
        if (result := self._lookup(key, model)) is not None:
            return result
        with self._lock:
            computing = self._computing.setdefault(key, threading.Lock())
        with acquired(computing, ticket):
            if (result := self._lookup(key, model)) is not None:
                return result
            try:
                with acquired(self._long_texts, ticket) if characters > SERIAL_CHARACTERS else nullcontext():
                    result = compute()
                self._store(key, model, result, size_of(result))
                return result
            finally:
                with self._lock:
                    self._computing.pop(key, None)

    def _lookup(self, key: Hashable, model: object) -> T | None:
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or entry[0]() is not model:  # an id may belong to another object by now
                return None
            self._entries.move_to_end(key)
            return entry[1]

    def _store(self, key: Hashable, model: object, result: T, size: int) -> None:
        with self._lock:
            self._entries[key] = (weakref.ref(model), result, size)
            self._entries.move_to_end(key)
            for old in [old for old, (owner, _, _) in self._entries.items() if owner() is None]:
                del self._entries[old]
            while len(self._entries) > 1 and sum(size for _, _, size in self._entries.values()) > self.max_bytes:
                self._entries.popitem(last=False)


@contextmanager
def acquired(lock: threading.Lock, ticket: Ticket) -> Iterator[None]:
    """Hold the lock once it is free; the wait ends early where the ticket is cancelled."""
    while not lock.acquire(timeout=POLL_SECONDS):
        ticket.check()
    try:
        yield
    finally:
        lock.release()
