"""Which requests are let in, by Host, Origin, token and size; and the security headers of every response.

By default the studio listens on this machine alone. A foreign page that is open in the same browser must still not
control it: neither through a host name that was made to resolve here (so the Host is checked) nor by sending a form (so
the Origin is checked). Where the studio listens to other machines, it requires a token as well.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import secrets
from collections import deque
from collections.abc import Iterable
from urllib.parse import parse_qsl, quote, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "octavo_token"
MAX_BODY_BYTES = 4 << 20  # of one request
MAX_BODY_SECONDS = 20  # for a request's body to arrive
MAX_PENDING_BYTES = 64 << 20  # of all bodies that are still arriving
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


class RequestGuard:
    """Middleware before the whole app."""

    def __init__(
        self, app: ASGIApp, host_names: Iterable[str] = (), token: str = "", allow_ip_hosts: bool = False
    ) -> None:
        """host_names: the Host headers that are accepted; with allow_ip_hosts, any IP address is too. token: what a
        request must present; empty where none is required."""
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
        headers = Headers(scope=scope)
        try:
            self._check_host(headers)
            self._check_origin(scope, headers)
            if self.token:
                if (address := self._without_token(scope)) is not None:
                    cookie = f"{COOKIE}={self.token}; Path=/; HttpOnly; SameSite=Strict"
                    redirect = {**SECURITY_HEADERS, "location": address, "set-cookie": cookie}
                    await Response(status_code=303, headers=redirect)(scope, receive, send)
                    return
                self._check_token(headers)
            receive = await self._read_body(headers, receive)
        except Refused as refused:
            asks_token = {"www-authenticate": "Bearer"} if refused.status == 401 else {}
            response = JSONResponse({"error": refused.reason}, refused.status, {**SECURITY_HEADERS, **asks_token})
            await response(scope, receive, send)
            return
        await self.app(scope, receive, _with_headers(send))

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


def _with_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in SECURITY_HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return send_with_headers
