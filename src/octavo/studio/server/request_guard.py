"""Which requests are let in, by Host, Origin, token, size and number; and the security headers of every response.

Every request passes here, whatever its address: none is larger, takes longer or comes in greater number than the limits
below allow, and an error is one line of JSON, whatever was raised.

By default the studio listens on this machine alone. A foreign page that is open in the same browser must still not
control it: neither through a host name that was made to resolve here (so the Host is checked) nor by sending a form (so
the Origin is checked). Where the studio listens to other machines, it requires a token as well.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import secrets
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from octavo.studio.server.error_text import error_answer
from octavo.studio.server.scheduler import SHUTTING_DOWN

COOKIE = "octavo_token"
MAX_BODY_BYTES = 4 << 20  # of one request
MAX_BODY_SECONDS = 20  # for a request's body to arrive
MAX_PENDING_BYTES = 64 << 20  # of all bodies that are still arriving
MAX_ANSWER_SECONDS = 150  # for all after the body: waiting for a thread, then for a process, 60 s each, and sending
MAX_OPEN_REQUESTS = 512  # that arrive, wait, are computed or are sent
MAX_CLIENT_OPEN_REQUESTS = 320  # of one address: more than it may have connections
IGNORED_HEADERS = (b"range", b"if-range")  # files are sent whole: they are small
HANG_UP_AFTER = (400, 408, 413, 505)  # the rest of the request may still come, or be taken for another one
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
HOST_HEADER = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<name>[^\[\]:@/]*))(?::\d{0,5})?")
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
REPORT_POLICY = (  # of a run's report page: no script, and nothing from outside
    "sandbox allow-popups; default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'"
)
SECURITY_HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY, "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin", "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache", "permissions-policy": "camera=(), microphone=(), geolocation=()",
}  # fmt: skip


class Refused(Exception):
    """A request that is not let in: the status and the reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


class Disconnected(Exception):
    """The client left before its request was complete."""


class RequestGuard:
    """Middleware before the whole app."""

    def __init__(
        self, app: ASGIApp, host_names: Iterable[str] = (), token: str = "", allow_ip_hosts: bool = False,
        root: Path = Path(),
    ) -> None:  # fmt: skip
        """host_names: the Host headers that are accepted; with allow_ip_hosts, any IP address is too. token: what a
        request must present; empty where none is required. root: the runs' folder, which errors do not show."""
        self.root, self._open_requests = root, Counter[str]()
        self.app, self.token, self.allow_ip_hosts = app, token, allow_ip_hosts
        self.host_names = {"localhost", "127.0.0.1", "::1", *(name.lower() for name in host_names)}
        self._pending_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            else:
                await self.app(scope, receive, send)
            return
        sending = Sending(send)
        try:
            with self._counted(scope):
                await self._answer(scope, receive, sending)
        except KeyboardInterrupt:
            raise
        except asyncio.CancelledError:  # of the server's shutdown, which waits no longer: no error for its log
            if not sending.has_started:
                with suppress(asyncio.CancelledError):
                    await _refusal(Refused(503, SHUTTING_DOWN))(scope, receive, send)
        except Disconnected:
            pass
        except BaseException as error:
            refused = error if isinstance(error, Refused) else Refused(*error_answer(error, self.root))
            if not sending.has_started:
                await _refusal(refused)(scope, receive, send)

    @contextmanager
    def _counted(self, scope: Scope) -> Iterator[None]:
        """Count a request among the open ones, or refuse it."""
        client = str(scope["client"][0]) if scope.get("client") else ""
        whose = {"": (self._open_requests.total(), MAX_OPEN_REQUESTS),
                 " from your address": (self._open_requests[client], MAX_CLIENT_OPEN_REQUESTS)}  # fmt: skip
        for where, (count, most) in whose.items():
            if count >= most:
                raise Refused(503, f"{count} requests{where} are open; try again in a moment")
        self._open_requests[client] += 1  # only ever changed on the event loop's thread
        try:
            yield
        finally:
            self._open_requests[client] -= 1
            if not self._open_requests[client]:
                del self._open_requests[client]

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        _check_frame(scope, headers)
        self._check_host(headers)
        self._check_origin(scope, headers)
        if self.token:
            if (address := self._without_token(scope)) is not None:
                cookie = f"{COOKIE}={self.token}; Path=/; HttpOnly; SameSite=Strict"
                await Response(status_code=303, headers={"location": address, "set-cookie": cookie})(
                    scope, receive, send
                )
                return
            self._check_token(headers)
        receive = await self._read_body(headers, receive)
        scope = {**scope, "headers": [header for header in scope["headers"] if header[0] not in IGNORED_HEADERS]}
        try:
            async with asyncio.timeout(MAX_ANSWER_SECONDS):
                await self.app(scope, receive, send)
        except TimeoutError:
            raise Refused(503, f"this took longer than {MAX_ANSWER_SECONDS} seconds; ask for less") from None

    def _check_host(self, headers: Headers) -> None:
        values = headers.getlist("host")
        name = _host_name(values[0]) if len(values) == 1 else ""
        if name in self.host_names or (self.allow_ip_hosts and _is_ip_address(name)):
            return
        raise Refused(421, f"this studio is not called {name!r}; open it by the address it printed, or start it with "
                           "--name and that name")  # fmt: skip

    def _check_origin(self, scope: Scope, headers: Headers) -> None:
        own = {f"{scheme}://{headers.get('host', '').lower()}" for scheme in ("http", "https")}
        for origin in headers.getlist("origin"):
            if origin.lower() not in own:
                raise Refused(403, f"a page of {origin[:100]} sent this; only the studio's own pages may")
        foreign = headers.get("sec-fetch-site") not in (None, "same-origin", "none")
        followed_link = scope["method"] in SAFE_METHODS and headers.get("sec-fetch-mode") == "navigate"
        if foreign and not followed_link:
            raise Refused(403, "a page from elsewhere sent this; only the studio's own pages may")

    def _check_token(self, headers: Headers) -> None:
        scheme, _, credentials = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            presented = [credentials.strip()]
        else:  # cookies that other programs on this host have set, whatever they look like, do no harm
            pairs = [cookie.strip().partition("=") for cookie in headers.get("cookie", "").split(";")]
            presented = [value.strip('"') for name, _, value in pairs if name == COOKIE]
        if not any(self._is_token(value) for value in presented):
            raise Refused(401, "this studio requires a token: open the address that it printed, which ends in ?token=…")

    def _is_token(self, value: str) -> bool:
        return secrets.compare_digest(value.encode("utf-8", "surrogateescape"), self.token.encode())

    def _without_token(self, scope: Scope) -> str | None:
        """The address without its token, where it has the right one; else None."""
        pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        if scope["method"] != "GET" or not any(key == "token" and self._is_token(value) for key, value in pairs):
            return None
        rest = urlencode([pair for pair in pairs if pair[0] != "token"])
        path = "/" + quote(str(scope["path"]).lstrip("/\\"))  # never another host's, and on one line
        return path + (f"?{rest}" if rest else "")

    async def _read_body(self, headers: Headers, receive: Receive) -> Receive:
        """Read the whole body; one that is too large, as announced or as received, is refused."""
        announced = headers.get("content-length", "")
        if announced and (not announced.isascii() or not announced.isdigit()):
            raise Refused(400, f"content-length must be a number: {announced[:20]!r}")
        if announced and int(announced[:20]) > MAX_BODY_BYTES:
            raise Refused(413, f"a request may have {MAX_BODY_BYTES:,} bytes: this has {announced[:20]}; send less")
        messages: deque[Message] = deque()
        received, more, counted = 0, True, 0
        try:
            async with asyncio.timeout(MAX_BODY_SECONDS):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Disconnected
                    messages.append(message)
                    received += len(message.get("body", b""))
                    more = message.get("more_body", False)
                    if received > MAX_BODY_BYTES:
                        raise Refused(413, f"a request may have {MAX_BODY_BYTES:,} bytes: this has more; send less")
                    self._pending_bytes, counted = self._pending_bytes + received - counted, received
                    if self._pending_bytes > MAX_PENDING_BYTES:
                        raise Refused(503, "too many large requests arrive together; try again in a moment")
        except TimeoutError:
            raise Refused(408, f"a request must arrive within {MAX_BODY_SECONDS} seconds; this did not") from None
        finally:
            self._pending_bytes -= counted

        async def replay() -> Message:
            return messages.popleft() if messages else await receive()

        return replay


def _check_frame(scope: Scope, headers: Headers) -> None:
    """Refuse what two programs could read as different requests, and what is packed."""
    if scope["http_version"] not in ("1.0", "1.1"):
        raise Refused(505, f"HTTP/1.1 is spoken here, not HTTP/{scope['http_version']}; send that")
    if "content-length" in headers and "transfer-encoding" in headers:
        raise Refused(400, "a request has a content-length or comes in chunks, not both; send one of the two")
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise Refused(415, "a request is not packed: content-encoding must be identity; send it as it is")


def _host_name(value: str) -> str:
    """The name in a Host header, without its port; a malformed header is returned as it is."""
    match = HOST_HEADER.fullmatch(value)
    return value[:100] if match is None else (match["six"] or match["name"] or "").lower()


def _is_ip_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class Sending:
    """Sends a response with the security headers, and knows whether it has begun."""

    def __init__(self, send: Send) -> None:
        self._send, self.has_started = send, False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.has_started, headers = True, MutableHeaders(scope=message)
            for name, value in SECURITY_HEADERS.items():
                headers.setdefault(name, value)
        await self._send(message)


def _refusal(refused: Refused) -> Response:
    further = {401: {"www-authenticate": "Bearer"}, 503: {"retry-after": "1"}}.get(refused.status, {})
    if refused.status in HANG_UP_AFTER:
        further = {**further, "connection": "close"}
    return JSONResponse({"error": refused.reason}, refused.status, {**SECURITY_HEADERS, **further})
