"""Cooperative scheduling of requests: each is computed in a thread, takes turns with the others, and can be cancelled.

Work asks its ticket for a turn before each short part. There it waits until the others had theirs, and there it ends if
the client has disconnected or the time limit has passed. One part runs at a time: a model's own threads use all cores,
and two models computing together would only slow each other down.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from starlette.requests import Request

from octavo.errors import UserError

R = TypeVar("R")

MAX_THREADS = 8  # requests computed concurrently, taking turns
MAX_REQUESTS = 256  # computing or waiting, before others are refused
MAX_REQUEST_SECONDS = 60.0
STREAM_BUFFER_ITEMS = 64  # of a stream that may be ready before the client takes them
POLL_SECONDS = 0.2  # between two checks of a waiting thread whether it is still wanted


class ClientDisconnected(Exception):
    """Nobody waits for the rest of this request."""


class Busy(UserError):
    """Too many requests wait."""


class RequestTimeout(UserError):
    """A request took longer than the limit."""


class FairLock:
    """A lock that is granted in order of arrival."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._queue: deque[object] = deque()

    @contextmanager
    def acquire(self, check: Callable[[], None]) -> Iterator[None]:
        """Wait for the lock and hold it; `check` is called while waiting, and may raise to give up."""
        me = object()
        with self._changed:
            self._queue.append(me)
        try:
            with self._changed:
                while self._queue[0] is not me:
                    self._changed.wait(POLL_SECONDS)
                    check()
            yield
        finally:
            with self._changed:
                self._queue.remove(me)
                self._changed.notify_all()


class Ticket:
    """One request's permission to compute, until it is cancelled or its time is over."""

    def __init__(self, lock: FairLock, seconds: float = MAX_REQUEST_SECONDS) -> None:
        self._lock, self._seconds = lock, seconds
        self._deadline = time.monotonic() + seconds
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        """Nobody waits for this any more."""
        self._cancelled.set()

    def check(self) -> None:
        """Raise ClientDisconnected or RequestTimeout where the work should end."""
        if self._cancelled.is_set():
            raise ClientDisconnected
        if time.monotonic() > self._deadline:
            raise RequestTimeout(f"this took longer than {self._seconds:g} seconds and was stopped; ask for less")

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Exclusive use of the machine for a short part of the work, well under a second where that is possible."""
        self.check()
        with self._lock.acquire(self.check):
            yield


class Scheduler:
    """A pool of threads in which requests are computed."""

    def __init__(
        self, threads: int = MAX_THREADS, max_requests: int = MAX_REQUESTS, seconds: float = MAX_REQUEST_SECONDS
    ) -> None:
        self.lock, self.seconds = FairLock(), seconds
        self._max_requests, self.admitted_requests = max_requests, 0
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="studio")

    async def run(self, request: Request, function: Callable[..., R], *args: Any) -> R:
        """function(ticket, *args) in a thread; cancelled when the client disconnects."""
        with self._admitted():
            ticket = Ticket(self.lock, self.seconds)
            watching = asyncio.ensure_future(_cancel_on_disconnect(request, ticket))
            try:
                return await asyncio.get_running_loop().run_in_executor(self._pool, _begin, function, ticket, *args)
            except asyncio.CancelledError:  # only the server's shutdown does this
                raise Busy("the studio is shutting down; start it again") from None
            finally:
                ticket.cancel()
                watching.cancel()
                with suppress(asyncio.CancelledError):
                    await watching

    async def stream(self, function: Callable[..., Iterator[R]], *args: Any) -> AsyncIterator[R]:
        """The items that function(ticket, *args) yields in a thread; cancelled where nobody takes them."""
        with self._admitted():
            ticket, loop = Ticket(self.lock, self.seconds), asyncio.get_running_loop()
            ready: asyncio.Queue[Any] = asyncio.Queue()
            free_slots, end = threading.Semaphore(STREAM_BUFFER_ITEMS), object()

            def produce() -> None:
                ticket.check()  # it may have waited for a thread
                for item in function(ticket, *args):
                    while not free_slots.acquire(timeout=POLL_SECONDS):
                        ticket.check()
                    loop.call_soon_threadsafe(ready.put_nowait, item)

            def on_done(done: asyncio.Future[None]) -> None:
                if not done.cancelled():
                    done.exception()  # which is raised below, where somebody still listens
                ready.put_nowait(end)

            producing = loop.run_in_executor(self._pool, produce)
            producing.add_done_callback(on_done)
            try:
                while (item := await ready.get()) is not end:
                    free_slots.release()
                    yield item
                await producing
            finally:
                ticket.cancel()
                producing.cancel()

    @contextmanager
    def _admitted(self) -> Iterator[None]:
        if self.admitted_requests >= self._max_requests:
            raise Busy(f"{self.admitted_requests} requests are waiting, which is the limit; try again in a moment")
        self.admitted_requests += 1  # only ever changed on the event loop's thread
        try:
            yield
        finally:
            self.admitted_requests -= 1

    def close(self) -> None:
        """Start nothing new."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _begin(function: Callable[..., R], ticket: Ticket, *args: Any) -> R:
    ticket.check()  # it may have waited for a thread
    return function(ticket, *args)


async def _cancel_on_disconnect(request: Request, ticket: Ticket) -> None:
    """Cancel the ticket when the client disconnects. The body has been read, so no other message comes."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    ticket.cancel()
