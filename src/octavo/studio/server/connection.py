"""One connection of a browser, with time limits and a limit on their number.

uvicorn closes a connection that is idle between two requests, but waits for ever for a first request, for the rest of a
request's headers, and for a client to receive its response.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_HEADER_SECONDS = 10  # for a request's headers to arrive, and that a connection may be idle
MAX_STALL_SECONDS = 30  # without the client receiving any part of a response
MAX_CONNECTIONS = 500


class Connection(H11Protocol):
    """uvicorn's connection with timeouts for the client's side."""

    _request_timer: asyncio.TimerHandle | None = None
    _receive_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            transport.abort()
            return
        self._start_request_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        _cancel(self._request_timer)
        _cancel(self._receive_timer)
        super().connection_lost(exc)

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:  # the headers are complete; the guard limits the body's time
            _cancel(self._request_timer)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle is None or self.cycle.response_complete:
            self._start_request_timer()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start_receive_timer(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        super().resume_writing()
        _cancel(self._receive_timer)

    def _start_request_timer(self) -> None:
        _cancel(self._request_timer)
        self._request_timer = self.loop.call_later(MAX_HEADER_SECONDS, self.transport.close)

    def _start_receive_timer(self, left: int) -> None:
        _cancel(self._receive_timer)
        self._receive_timer = self.loop.call_later(MAX_STALL_SECONDS, self._check_progress, left)

    def _check_progress(self, before: int) -> None:
        left = self.transport.get_write_buffer_size()
        if left >= before:
            self.transport.abort()
        else:
            self._start_receive_timer(left)


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
