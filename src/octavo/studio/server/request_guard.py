"""Who may ask: the Host and the Origin of a request, its token and its size; and what every answer must say.

The studio listens on this machine alone unless told otherwise. A page from elsewhere, open in the same browser, must
still not reach it: neither by a name that was made to lead here (so the Host is checked) nor by sending a form (so is
the Origin). Where it listens to other machines, it asks for a token besides.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import re
import secrets
from collections import deque
from collections.abc import Iterable
from urllib.parse import parse_qsl, quote, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "octavo_token"
BODY = 4 << 20  # bytes of a request
BODY_SECONDS = 20  # that its coming may take
COMING = 64 << 20  # bytes of all requests that are still coming
SAFE = ("GET", "HEAD", "OPTIONS")
HOST = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<name>[^\[\]:@/]*))(?::\d{0,5})?")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
OF_PAGES = (  # that octavo wrote into a run's folder: no script, and nothing from outside
    "sandbox allow-popups; default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'"
)
HEADERS = {
    "content-security-policy": POLICY, "x-content-type-options": "nosniff", "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin", "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache", "permissions-policy": "camera=(), microphone=(), geolocation=()",
}  # fmt: skip


class Refused(Exception):
    """A request that is not let in: the status and why."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status, self.why = status, why


class Guard:
    """Stands before the whole app."""

    def __init__(self, app: ASGIApp, names: Iterable[str] = (), token: str = "", numbers: bool = False) -> None:
        """names: the hosts that this studio is called by. numbers: any address in numbers serves too. token: what a
        request must show; empty where none is asked for."""
        self.app, self.token, self.numbers = app, token, numbers
        self.names = {"localhost", "127.0.0.1", "::1", *(name.lower() for name in names)}
        self._coming = 0

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
                if (address := self._with_token(scope)) is not None:
                    await _redirect(address, self.token, send)
                    return
                self._check_token(headers)
            receive = await self._whole(headers, receive)
        except Refused as refused:
            await _refuse(refused, send)
            return
        await self.app(scope, receive, _with_headers(send))

    def _check_host(self, headers: Headers) -> None:
        given = headers.getlist("host")
        name = _host(given[0]) if len(given) == 1 else ""
        if name in self.names or (self.numbers and _is_address(name)):
            return
        raise Refused(421, f"this studio is not called {name!r}; open it by the address it printed, or start it with "
                           "--name and that name")  # fmt: skip

    def _check_origin(self, scope: Scope, headers: Headers) -> None:
        own = {f"{scheme}://{headers.get('host', '').lower()}" for scheme in ("http", "https")}
        for origin in headers.getlist("origin"):
            if origin.lower() not in own:
                raise Refused(403, f"a page of {origin[:100]} asked; only the studio's own pages may")
        elsewhere = headers.get("sec-fetch-site") not in (None, "same-origin", "none")
        opened = scope["method"] in SAFE and headers.get("sec-fetch-mode") == "navigate"  # somebody followed a link
        if elsewhere and not opened:
            raise Refused(403, "a page from elsewhere asked; only the studio's own pages may")

    def _check_token(self, headers: Headers) -> None:
        kind, _, shown = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            given = [shown.strip()]
        else:  # cookies of others on this host, whatever they look like, are not in the way
            pairs = [one.strip().partition("=") for one in headers.get("cookie", "").split(";")]
            given = [value.strip('"') for name, _, value in pairs if name == COOKIE]
        if not any(self._is_token(one) for one in given):
            raise Refused(401, "this studio asks for a token: open the address that it printed, which ends in ?token=…")

    def _is_token(self, shown: str) -> bool:
        return secrets.compare_digest(shown.encode("utf-8", "surrogateescape"), self.token.encode())

    def _with_token(self, scope: Scope) -> str | None:
        """Where the address has the token: the same address without it."""
        pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        if scope["method"] != "GET" or not any(key == "token" and self._is_token(value) for key, value in pairs):
            return None
        rest = urlencode([pair for pair in pairs if pair[0] != "token"])
        path = "/" + quote(str(scope["path"]).lstrip("/\\"))  # never another host's, and one line
        return path + (f"?{rest}" if rest else "")

    async def _whole(self, headers: Headers, receive: Receive) -> Receive:
        """Take the whole body in; one that is too large, by what it says of itself or by what comes, is refused."""
        said = headers.get("content-length", "")
        if said and (not said.isascii() or not said.isdigit()):
            raise Refused(400, f"content-length must be a number: {said[:20]!r}")
        if said and int(said[:20]) > BODY:
            raise Refused(413, f"a request may have {BODY:,} bytes: this has {said[:20]}; send less")
        messages: deque[Message] = deque()
        came, more, counted = 0, True, 0
        try:
            async with asyncio.timeout(BODY_SECONDS):
                while more:
                    message = await receive()
                    messages.append(message)
                    came += len(message.get("body", b""))
                    more = message.get("more_body", False)
                    if came > BODY:
                        raise Refused(413, f"a request may have {BODY:,} bytes: this has more; send less")
                    self._coming, counted = self._coming + came - counted, came
                    if self._coming > COMING:
                        raise Refused(503, "too many large requests come at once; try again in a moment")
        except TimeoutError:
            raise Refused(408, f"a request must come within {BODY_SECONDS} seconds; this did not") from None
        finally:
            self._coming -= counted

        async def kept() -> Message:
            return messages.popleft() if messages else await receive()

        return kept


def _host(value: str) -> str:
    """The name of a Host header, without its port; what has another form is given back as it is."""
    found = HOST.fullmatch(value)
    return value[:100] if found is None else (found["six"] or found["name"] or "").lower()


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _with_headers(send: Send) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sent


async def _refuse(refused: Refused, send: Send) -> None:
    body = json.dumps({"error": refused.why}).encode()
    headers = {**HEADERS, "content-type": "application/json", "content-length": str(len(body))}
    if refused.status == 401:
        headers["www-authenticate"] = "Bearer"
    await _answer(refused.status, headers, body, send)


async def _redirect(address: str, token: str, send: Send) -> None:
    cookie = f"{COOKIE}={token}; Path=/; HttpOnly; SameSite=Strict"
    await _answer(303, {**HEADERS, "location": address, "set-cookie": cookie, "content-length": "0"}, b"", send)


async def _answer(status: int, headers: dict[str, str], body: bytes, send: Send) -> None:
    raw = [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})
