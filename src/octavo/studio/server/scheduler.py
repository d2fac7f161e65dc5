"""Cooperative scheduling of requests: each is computed in a thread, takes turns with the others, and can be cancelled.

Work asks its ticket for a turn before each short part. There it waits until the others had theirs, and there it ends if
the client has disconnected or the time limit has passed. One part runs at a time: a model's own threads use all cores,
and two models computing together would only slow each other down. A part that takes longer than a turn loses its
exclusive use of the machine, so that it cannot keep the others waiting. What has no short parts is computed in a
process, which can be ended: see worker_pool.py.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

from starlette.requests import Request

from octavo.errors import UserError

R = TypeVar("R")

MAX_THREADS = 8  # requests computed concurrently, taking turns
MAX_PROCESSES = 2  # in which requests are computed that cannot be interrupted
MAX_EXERCISES = 2  # checked or graded: one process does each of the two, and who waits for it should hold no thread
MAX_REQUESTS = 384  # computing or waiting, before others are refused
MAX_CLIENT_REQUESTS = 300  # of one address, which may be that of a class: 50 browsers with 6 connections each
MAX_REQUEST_SECONDS = 60.0
MAX_TURN_SECONDS = 1.0  # of exclusive use of the machine
STOP_SECONDS = 1.0  # in which cancelled work should end; its place is given to the next one then
MAX_LATE_THREADS = 8  # that have been cancelled and have not ended yet
STREAM_BUFFER_ITEMS = 64  # of a stream that may be ready before the client takes them
POLL_SECONDS = 0.2  # between two checks of a waiting thread whether it is still wanted
SHUTTING_DOWN = "the studio is shutting down; start it again"


class ClientDisconnected(Exception):
    """Nobody waits for the rest of this request."""


class WorkFailed(Exception):
    """Work raised something that no future may carry, such as SystemExit or a library's panic: this one's cause."""


class Busy(UserError):
    """Too many requests wait."""


class RequestTimeout(UserError):
    """A request took longer than the limit."""


class FairLock:
    """A lock that is granted in order of arrival, and taken from a holder who keeps it too long."""

    def __init__(self, max_seconds: float = MAX_TURN_SECONDS) -> None:
        self._changed, self._max_seconds, self._since = threading.Condition(), max_seconds, 0.0
        self._queue: deque[object] = deque()  # the first of them holds the lock, since then

    @contextmanager
    def acquire(self, check: Callable[[], None]) -> Iterator[None]:
        """Wait for the lock and hold it; `check` is called while waiting, and may raise to give up."""
        me = object()
        with self._changed:
            self._since = self._since if self._queue else time.monotonic()
            self._queue.append(me)
        try:
            with self._changed:
                while me in self._queue and self._queue[0] is not me:
                    self._changed.wait(POLL_SECONDS)
                    check()
                    if time.monotonic() - self._since > self._max_seconds and self._queue[0] is not me:
                        self._remove(self._queue[0])
            yield
        finally:
            with self._changed:
                self._remove(me)

    def _remove(self, one: object) -> None:
        if one in self._queue:
            if self._queue[0] is one:
                self._since = time.monotonic()
            self._queue.remove(one)
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

    @property
    def seconds_left(self) -> float:
        return self._deadline - time.monotonic()

    def check(self) -> None:
        """Raise ClientDisconnected or RequestTimeout where the work should end."""
        if self._cancelled.is_set():
            raise ClientDisconnected
        if self.seconds_left < 0:
            raise self.timeout()

    def timeout(self) -> RequestTimeout:
        return RequestTimeout(f"this took longer than {self._seconds:g} seconds and was stopped; ask for less")

    @contextmanager
    def turn(self, check: Callable[[], None] | None = None) -> Iterator[None]:
        """Exclusive use of the machine for a short part of the work, well under a second where that is possible.

        While it waits, it calls `check`, which may raise to give up, in place of the ticket's own.
        """
        self.check()
        with self._lock.acquire(check or self.check):
            yield


class FairQueue:
    """Places that are granted to clients in rotation, and to each client's requests in order of arrival."""

    def __init__(self, places: int) -> None:
        self._free = places  # only ever changed on the event loop's thread, like everything here
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    async def acquire(self, client: str) -> None:
        if self._free:
            self._free -= 1
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append(granted)
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                self.release()
            elif (queue := self._waiting.get(client)) is not None and granted in queue:
                queue.remove(granted)
                if not queue:
                    del self._waiting[client]
            raise

    def release(self) -> None:
        """Give the place to the next one."""
        while self._waiting:
            client, queue = self._waiting.popitem(last=False)
            granted = queue.popleft()
            if queue:
                self._waiting[client] = queue
            if not granted.done():
                granted.set_result(None)
                return
        self._free += 1


class Scheduler:
    """Threads in which requests are computed, and places for those that wait for a process to compute for them."""

    def __init__(
        self, threads: int = MAX_THREADS, max_requests: int = MAX_REQUESTS, seconds: float = MAX_REQUEST_SECONDS,
        processes: int = MAX_PROCESSES,
    ) -> None:  # fmt: skip
        self.lock, self.seconds, self.late_threads = FairLock(), seconds, 0
        self._max_requests, self._clients = max_requests, Counter[str]()
        places = {"thread": threads, "process": processes, "exercise": MAX_EXERCISES}
        self._places = {place: FairQueue(count) for place, count in places.items()}
        self._pool = ThreadPoolExecutor(sum(places.values()) + MAX_LATE_THREADS, thread_name_prefix="studio")

    @property
    def admitted_requests(self) -> int:
        return self._clients.total()

    async def run(self, request: Request, function: Callable[..., R], *args: Any, place: str = "thread") -> R:
        """function(ticket, *args) in a thread; cancelled when the client disconnects."""
        async with self._admitted(request, place) as (ticket, left):
            working = self._start(function, ticket, *args)
            try:
                return await _within_time(working, ticket, left)  # type: ignore[no-any-return]
            finally:
                ticket.cancel()
                await self._wait_for_end(working)

    async def stream(
        self, request: Request, function: Callable[..., Iterator[R]], *args: Any, place: str = "thread"
    ) -> AsyncIterator[R]:
        """The items that function(ticket, *args) yields in a thread; cancelled where nobody takes them."""
        async with self._admitted(request, place) as (ticket, left):
            loop, free_slots, end = asyncio.get_running_loop(), threading.Semaphore(STREAM_BUFFER_ITEMS), object()
            ready: asyncio.Queue[Any] = asyncio.Queue()

            def produce(ticket: Ticket) -> None:
                for item in function(ticket, *args):
                    while not free_slots.acquire(timeout=POLL_SECONDS):
                        ticket.check()
                    loop.call_soon_threadsafe(ready.put_nowait, item)

            producing = self._start(produce, ticket)
            producing.add_done_callback(lambda _: ready.put_nowait(end))
            try:
                while (item := await _within_time(ready.get(), ticket, left)) is not end:
                    free_slots.release()
                    yield item
                await producing
            finally:
                ticket.cancel()
                await self._wait_for_end(producing)

    @asynccontextmanager
    async def _admitted(self, request: Request, place: str) -> AsyncIterator[tuple[Ticket, asyncio.Future[None]]]:
        """A ticket, once there is a place, and what is done when the client disconnects; the ticket is cancelled
        then."""
        client, ticket = client_of(request), Ticket(self.lock, self.seconds)
        if self.admitted_requests >= self._max_requests:
            raise Busy(f"{self.admitted_requests} requests are waiting, which is the limit; try again in a moment")
        if (own := self._clients[client]) >= MAX_CLIENT_REQUESTS:
            raise Busy(f"{own} requests from your address are waiting, which is its limit; try again in a moment")
        self._clients[client] += 1  # only ever changed on the event loop's thread
        left = asyncio.ensure_future(_cancel_on_disconnect(request, ticket))
        try:
            await _within_time(self._places[place].acquire(client), ticket, left)
            try:
                yield ticket, left
            finally:
                self._places[place].release()
        finally:
            left.cancel()
            self._clients[client] -= 1
            if not self._clients[client]:
                del self._clients[client]

    def _start(self, function: Callable[..., R], ticket: Ticket, *args: Any) -> asyncio.Future[R]:
        working = asyncio.get_running_loop().run_in_executor(self._pool, _begin, function, ticket, *args)
        # Its error is raised where somebody still waits for it; asyncio shall not report it where nobody does.
        working.add_done_callback(lambda done: done.cancelled() or done.exception())
        return working

    async def _wait_for_end(self, working: asyncio.Future[Any]) -> None:
        """Wait until cancelled work ends, but not for ever: beyond a second its place is given to the next."""
        seconds = STOP_SECONDS if self.late_threads < MAX_LATE_THREADS else None
        try:
            await asyncio.wait({working}, timeout=seconds)
        finally:  # also where this request itself is cancelled while it waits
            if not working.done():
                self.late_threads += 1
                working.add_done_callback(self._end_late)

    def _end_late(self, _: asyncio.Future[Any]) -> None:
        self.late_threads -= 1

    def close(self) -> None:
        """Start nothing new."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def client_of(request: Request) -> str:
    """Whose request it is: the address it came from."""
    client = request.scope.get("client")
    return str(client[0]) if client else ""


def _begin(function: Callable[..., R], ticket: Ticket, *args: Any) -> R:
    ticket.check()  # it may have waited for a thread
    try:
        return function(ticket, *args)
    except BaseException as error:
        if isinstance(error, Exception) and not isinstance(error, StopIteration | StopAsyncIteration):
            raise
        raise WorkFailed from error


async def _within_time(work: Awaitable[Any], ticket: Ticket, left: asyncio.Future[None]) -> Any:
    """The result of the work. Whether it checks its ticket or not, this ends soon after the time is over, and at once
    where the client has left."""
    task = asyncio.ensure_future(work)
    seconds = max(0.0, ticket.seconds_left) + STOP_SECONDS
    try:
        await asyncio.wait({task, left}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:  # the server shuts down; or the reader of a stream has left, who reads no error
        if task is not work:  # what already runs in a thread ends by its ticket
            task.cancel()
        raise Busy(SHUTTING_DOWN) from None
    if task.cancelled():  # it had not begun when the studio closed its threads
        raise Busy(SHUTTING_DOWN)
    if task.done():
        return task.result()
    if task is not work:
        task.cancel()
    ticket.check()
    raise ticket.timeout()


async def _cancel_on_disconnect(request: Request, ticket: Ticket) -> None:
    """Cancel the ticket when the client disconnects. The body has been read, so no other message comes."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    ticket.cancel()
