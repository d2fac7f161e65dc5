"""One connection of a browser: it must ask soon, take its answers, and leave room for others.

uvicorn ends a connection that is idle between two requests, but waits without end for a first one, for the rest of a
request's head, and for an answer to be taken.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_SECONDS = 10  # that a request's head may take to come, and that a connection may be idle
TAKING_SECONDS = 30  # that may pass without anything being taken of an answer
MOST = 500  # connections at once


class Connection(H11Protocol):
    """uvicorn's, with a clock for what the other side may leave undone."""

    _asking: asyncio.TimerHandle | None = None
    _taking: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > MOST:
            transport.abort()
            return
        self._expect_a_request()

    def connection_lost(self, exc: Exception | None) -> None:
        _stopped(self._asking)
        _stopped(self._taking)
        super().connection_lost(exc)

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:  # a request has begun; its body's time is the guard's
            _stopped(self._asking)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle is None or self.cycle.response_complete:
            self._expect_a_request()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._expect_it_to_be_taken(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        super().resume_writing()
        _stopped(self._taking)

    def _expect_a_request(self) -> None:
        _stopped(self._asking)
        self._asking = self.loop.call_later(HEADER_SECONDS, self.transport.close)

    def _expect_it_to_be_taken(self, left: int) -> None:
        _stopped(self._taking)
        self._taking = self.loop.call_later(TAKING_SECONDS, self._see_what_was_taken, left)

    def _see_what_was_taken(self, before: int) -> None:
        left = self.transport.get_write_buffer_size()
        if left >= before:
            self.transport.abort()
        else:
            self._expect_it_to_be_taken(left)


def _stopped(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
