"""One connection of a browser, with time limits and a limit on their number.

uvicorn closes a connection that is idle between two requests, but waits for ever for a first request, for the rest of a
request's headers, and for a client to receive its response. Where there are too many connections, whoever comes next is
still served: the one that has waited longest for its client gives way.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import h11
from starlette.responses import JSONResponse
from uvicorn.protocols.http.h11_impl import H11Protocol

from octavo.studio.server.request_guard import SECURITY_HEADERS

MAX_HEADER_SECONDS = 10  # for a request's headers to arrive, and that a connection may be idle
MAX_STALL_SECONDS = 30  # without the client receiving any part of a response
MAX_CONNECTIONS = 500
MAX_CLIENT_CONNECTIONS = 300  # of one address
MALFORMED = JSONResponse({"error": "this is no HTTP request that can be read; send HTTP/1.1"}, 400, SECURITY_HEADERS)


class Connection(H11Protocol):
    """uvicorn's connection with timeouts for the client's side."""

    _request_timer: asyncio.TimerHandle | None = None
    _receive_timer: asyncio.TimerHandle | None = None
    waits_since: float = 0.0  # for its client

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.waits_since = time.monotonic()
        own = [one for one in self.connections if isinstance(one, Connection) and one.address == self.address]
        if len(own) > MAX_CLIENT_CONNECTIONS:
            self._make_room(own)
        elif len(self.connections) > MAX_CONNECTIONS:
            self._make_room([one for one in self.connections if isinstance(one, Connection)])
        self._start_request_timer()

    @property
    def address(self) -> str:
        return self.client[0] if self.client else ""

    @property
    def waits_for_client(self) -> int:
        """0: a request is being answered. 1: its body arrives. 2: there is none, or its headers arrive."""
        if self.cycle is None or self.cycle.response_complete:
            return 2
        return 1 if self.cycle.more_body and not self.cycle.response_started else 0

    def _make_room(self, connections: Sequence[Connection]) -> None:
        """Close the one that has waited longest for its client; this one, where all others are being answered."""
        others = [one for one in connections if one is not self and one.waits_for_client]
        longest = min(others, key=lambda one: (-one.waits_for_client, one.waits_since), default=self)
        self.connections.discard(longest)  # at once, because the loop learns of its end later
        longest.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Answer a malformed request as every error is answered, where nothing was answered yet, and hang up."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            headers = [*MALFORMED.raw_headers, (b"connection", b"close")]
            for event in (h11.Response(status_code=400, headers=headers), h11.Data(data=bytes(MALFORMED.body)),
                          h11.EndOfMessage()):  # fmt: skip
                self.transport.write(self.conn.send(event) or b"")
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True  # so that it answers nothing any more
            self.cycle.message_event.set()
        self.transport.close()

    def _should_upgrade(self) -> bool:
        return False  # whatever is asked, and without a warning each time

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
        self.waits_since = time.monotonic()
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
