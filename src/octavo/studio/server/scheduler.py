"""Computing for a page: each request's work is done in a thread, takes turns with the others', and can be stopped.

Work asks its ticket for a turn before each short part of it. There it waits until the others had theirs, and there it
ends if the reader has gone or if it took too long. One part has the machine at a time: a model's own threads keep all
cores busy, and two models at once would only be in each other's way.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, ParamSpec, TypeVar

from starlette.requests import Request

from octavo.errors import UserError

P = ParamSpec("P")
R = TypeVar("R")

THREADS = 8  # requests that are in work at the same time; each has its turns
WAITING = 256  # requests that may be in work or wait for it, before others are sent away
SECONDS = 60.0  # that one request may take
AHEAD = 64  # items of a stream that may be ready before the reader takes them
LOOK_AGAIN = 0.2  # seconds after which one who waits looks whether it is still wanted


class Gone(Exception):
    """The reader has gone away: nobody waits for the rest."""


class Busy(UserError):
    """Too many requests wait."""


class TooLong(UserError):
    """A request took longer than it may."""


class Turns:
    """One at a time, in the order in which they came."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._line: deque[object] = deque()

    @contextmanager
    def take(self, still_wanted: Callable[[], None]) -> Iterator[None]:
        """Wait for one's turn and have it; `still_wanted` is called while waiting, and may raise."""
        me = object()
        with self._changed:
            self._line.append(me)
        try:
            with self._changed:
                while self._line[0] is not me:
                    self._changed.wait(LOOK_AGAIN)
                    still_wanted()
            yield
        finally:
            with self._changed:
                self._line.remove(me)
                self._changed.notify_all()


class Ticket:
    """One request's permission to compute, until it is cancelled or its time is over."""

    def __init__(self, turns: Turns, seconds: float = SECONDS) -> None:
        self._turns, self._seconds = turns, seconds
        self._ends = time.monotonic() + seconds
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        """Nobody waits for this any more."""
        self._cancelled.set()

    def check(self) -> None:
        """Raise Gone or TooLong where the work should end."""
        if self._cancelled.is_set():
            raise Gone
        if time.monotonic() > self._ends:
            raise TooLong(f"this took longer than {self._seconds:g} seconds and was stopped; ask for less at once")

    @contextmanager
    def turn(self) -> Iterator[None]:
        """The machine for a short part of the work: well under a second, where that can be arranged."""
        self.check()
        with self._turns.take(self.check):
            yield


class Work:
    """Where requests are computed."""

    def __init__(self, threads: int = THREADS, waiting: int = WAITING, seconds: float = SECONDS) -> None:
        self.turns, self.seconds = Turns(), seconds
        self._waiting, self._inside = waiting, 0
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="studio")

    async def run(self, request: Request, function: Callable[..., R], *args: Any) -> R:
        """function(ticket, *args) in a thread; it is cancelled where the reader leaves."""
        with self._admitted():
            ticket = Ticket(self.turns, self.seconds)
            watching = asyncio.ensure_future(_watch(request, ticket))
            try:
                return await asyncio.get_running_loop().run_in_executor(self._pool, _begin, function, ticket, *args)
            except asyncio.CancelledError:  # only the server's end does this
                raise Busy("the studio is ending; start it again") from None
            finally:
                ticket.cancel()
                watching.cancel()
                with suppress(asyncio.CancelledError):
                    await watching

    async def stream(self, function: Callable[..., Iterator[R]], *args: Any) -> AsyncIterator[R]:
        """What function(ticket, *args) yields in a thread, as it comes; it is cancelled where nobody takes it."""
        with self._admitted():
            ticket, loop = Ticket(self.turns, self.seconds), asyncio.get_running_loop()
            ready: asyncio.Queue[Any] = asyncio.Queue()
            room, end = threading.Semaphore(AHEAD), object()

            def work() -> None:
                ticket.check()  # it may have waited for a thread
                for item in function(ticket, *args):
                    while not room.acquire(timeout=LOOK_AGAIN):
                        ticket.check()
                    loop.call_soon_threadsafe(ready.put_nowait, item)

            def ended(done: asyncio.Future[None]) -> None:
                if not done.cancelled():
                    done.exception()  # which is raised below, where somebody still listens
                ready.put_nowait(end)

            doing = loop.run_in_executor(self._pool, work)
            doing.add_done_callback(ended)
            try:
                while (item := await ready.get()) is not end:
                    room.release()
                    yield item
                await doing
            finally:
                ticket.cancel()
                doing.cancel()

    @contextmanager
    def _admitted(self) -> Iterator[None]:
        if self._inside >= self._waiting:
            raise Busy(f"{self._inside} requests wait already, which is as many as may; try again in a moment")
        self._inside += 1  # only ever changed on the event loop's thread
        try:
            yield
        finally:
            self._inside -= 1

    def close(self) -> None:
        """Let nothing new begin."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _begin(function: Callable[..., R], ticket: Ticket, *args: Any) -> R:
    ticket.check()  # it may have waited for a thread
    return function(ticket, *args)


async def _watch(request: Request, ticket: Ticket) -> None:
    """Cancel the ticket when the reader disconnects. The body has been read, so nothing else comes."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    ticket.cancel()
