"""Hostile requests to the studio, made from a seed and from the studio's own description of its API."""

from __future__ import annotations

import base64
import gzip
import json
import random
import re
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import quote

ERROR = frozenset({400, 401, 403, 404, 405, 408, 409, 411, 413, 414, 415, 416, 421, 422, 431, 501, 503, 505})
ANY = ERROR | {200, 206, 303, 304, 307}
STRINGS = [
    "", "kn", "../kn", "/etc/passwd", "..\\kn", "kn\0", "\ud800", "%2e%2e%2f", "a" * 500, "é" * 200, "\u202e", "'",
    '"', "<script>",
    "{{7*7}}", "${jndi:ldap://x}", "; rm -rf /", "CON", "nul.txt", ".", "..", "~", "kn/", "//x", "C:\\x",
    "\r\nX: 1", "\x7f\x01", "0",
    "null", "true", "-1", "NaN", "http://127.0.0.1:1/", "file:///etc/passwd", "a b c " * 300, "[MASK]" * 50,
    "\U0001f600" * 100,
]  # fmt: skip
NUMBERS = ["0", "-1", "1", "NaN", "Infinity", "-Infinity", "1e308", "1e999", "-0.0", "9" * 400, "9" * 5000,
"1e-400", "2147483648",
           "0.1", "1.0", "18446744073709551616", "01", "0x10", "1_000"]  # fmt: skip
NAMES = ("__proto__", "constructor", "self", "run", "text", "more", "", "a" * 300, "\x00", "prompt", "settings")
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "get", "G" * 40)
PATHS = (
    "/%2e%2e/%2e%2e/etc/passwd", "/web/%2e%2e/server/app.py", "/web/..%2f..%2fpyproject.toml", "/web/%00",
    "/%ff%fe", "//evil/x",
    "/web//etc/passwd", "/api/%c0%ae%c0%ae/", "/" + "a" * 4000, "/api/runs/", "/api//runs", "/web/pages/%5c..%5cx",
    "/?" + "a=" * 2000,
    "/api/report?run=../../etc", "/api/report?run=%00", "/api/curve?run=kn&offset=-1",
    "/api/curve?run=kn&offset=1e3", "/favicon.ico",
    "/web/main.js", "/", "/api/openapi.json", "/api/exercises/%2e%2e", "/api/playground/__class__", "*",
    "/api/compare?" + "run=kn&" * 300,
)  # fmt: skip
HOSTS = (
    "localhost",
    "127.0.0.1",
    "[::1]",
    "evil.example",
    "localhost.evil.example",
    "localhost:99999999",
    "",
    "0.0.0.0",
    "[::1",
    "a@b",
)
HEADERS: tuple[tuple[str, str], ...] = (
    ("Origin", "http://evil.example"), ("Origin", "null"), ("Sec-Fetch-Site", "cross-site"), ("Cookie",
    "octavo_token=x; =; ;;=" + "y" * 900),
    ("Authorization", "Bearer " + "x" * 200), ("Authorization", "Basic !!!"), ("Range", "bytes=0-,1-,2-,5-1"),
    ("Range", "bytes=-99999999999"),
    ("If-None-Match", '"' * 50), ("If-Modified-Since", "Thu, 99 Foo 9999"), ("Accept-Encoding",
    "gzip, deflate, br"), ("Expect", "200-ok"),
    ("Content-Encoding", "gzip"), ("Upgrade", "websocket"), ("X-Forwarded-For", "127.0.0.1"), ("X-Forwarded-Host",
    "evil.example"),
    ("X-HTTP-Method-Override", "DELETE"), ("Accept", "text/event-stream"), ("TE", "trailers"), ("X" * 200,
    "y" * 2000), ("Referer", "\t"),
)  # fmt: skip
TYPES = (
    "application/json",
    "application/json; charset=utf-16",
    "text/plain",
    "application/x-www-form-urlencoded",
    "multipart/form-data",
    "*/*",
    "",
)
HEAVY = (
    "check",
    "figure",
    "grade",
    "measure",
    "tree",
    "training",
    "texts",
    "forms",
    "template",
)  # parts of addresses that are asked for rarely


class HostileRequest(NamedTuple):
    """Bytes to send, the class of the request, and which statuses answer it."""

    data: bytes
    kind: str
    allowed: frozenset[int]
    is_head: bool = False


class Generator:
    """Makes requests from a seed and the studio's own description of its API."""

    def __init__(self, openapi: dict[str, Any], runs: list[str], seed: int) -> None:
        self.random, self.runs = random.Random(seed), runs
        self.schemas = openapi.get("components", {}).get("schemas", {})
        self.operations = [
            (method.upper(), path, about)
            for path, methods in openapi["paths"].items()
            for method, about in methods.items()
        ]
        self.light = [one for one in self.operations if not any(word in one[1] for word in HEAVY)]

    def framed(self) -> HostileRequest:
        """A request that is framed well, so that others may follow it on its connection."""
        makers: list[tuple[Callable[[], HostileRequest], int]] = [
            (self._mutated, 60), (self._path, 12), (self._method, 6), (self._header, 10), (self._host, 6),
            (self._nonsense_body, 10),
        ]  # fmt: skip
        return self.random.choices([make for make, _ in makers], [weight for _, weight in makers])[0]()

    def _frame(
        self, kind: str, method: str, path: str, body: bytes = b"", headers: tuple[tuple[str, str], ...] = (),
        allowed: frozenset[int] = ANY, host: str = "localhost",
    ) -> HostileRequest:  # fmt: skip
        lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", *(f"{name}: {value}" for name, value in headers)]
        if body or method not in ("GET", "HEAD"):
            lines.append(f"Content-Length: {len(body)}")
        data = "\r\n".join(lines).encode("latin-1", "replace") + b"\r\n\r\n" + body
        return HostileRequest(data, kind, allowed, method == "HEAD")

    def _mutated(self) -> HostileRequest:
        """A request of the API with one or more of its values replaced."""
        rare = self.random.random() < 0.02
        method, path, about = self.random.choice(self.operations if rare else self.light)
        query = []
        for parameter in about.get("parameters", []):
            value = self._value(parameter["schema"], 0.5)
            if parameter["in"] == "path":
                path = path.replace(f"{{{parameter['name']}}}", quote(str(value), safe="", errors="replace"))
            elif parameter.get("required") or self.random.random() < 0.5:
                values = value if isinstance(value, list) else [value]
                query += [f"{parameter['name']}={quote(str(one), safe='', errors='replace')}" for one in values]
        address, contents = (
            path + ("?" + "&".join(query) if query else ""),
            about.get("requestBody", {}).get("content", {}),
        )
        if not contents:
            return self._frame("values", method, address)
        [(kind, content)] = contents.items()
        if kind == "text/plain":
            text = self.random.choice(STRINGS).encode("utf-8", "replace")
            return self._frame("values", method, address, text, (("Content-Type", kind),))
        return self._frame("values", method, address, self._json(content["schema"]), (("Content-Type", kind),))

    def _json(self, schema: dict[str, Any]) -> bytes:
        hostile = 0.1 if self.random.random() < 0.2 else 0.6  # a few come far, most are refused early
        text = json.dumps(self._value(schema, hostile), ensure_ascii=True)
        if self.random.random() < 0.3:  # a number that Python would not write
            text = re.sub(r"(?<=: )-?\d[\d.e+-]*", lambda _: self.random.choice(NUMBERS), text, count=1)
        if self.random.random() < 0.1:
            name, depth = json.dumps(self.random.choice(NAMES)), self.random.choice((9, 400, 20_000))
            text = text[:-1] + f", {name}: " + "[" * depth + "]" * depth + "}" if len(text) > 2 else text
        return text.encode()

    def _value(self, schema: dict[str, Any], hostile: float) -> Any:
        """A value of the schema; with this probability another one."""
        choice = self.random
        if "$ref" in schema:
            schema = self.schemas[schema["$ref"].rpartition("/")[2]]
        if schema.get("type") == "object":
            properties = schema.get("properties", {})
            required = set(schema.get("required", ()))
            value = {
                name: self._value(one, hostile)
                for name, one in properties.items()
                if name in required or choice.random() < 0.4
            }
            if "run" in value and choice.random() < 0.8:
                value["run"] = choice.choice(self.runs)
            if choice.random() < hostile / 4:
                value[choice.choice(NAMES)] = choice.choice(STRINGS)
            return value
        if choice.random() < hostile:
            return choice.choice((None, True, [], {}, 0, -1, 10**30, 0.5, [[1]], choice.choice(STRINGS)))
        if "enum" in schema:
            return choice.choice(schema["enum"])
        if "anyOf" in schema:
            return self._value(choice.choice(schema["anyOf"]), hostile)
        match schema.get("type"):
            case "integer":
                return choice.choice((schema.get("minimum", 0), min(int(schema.get("maximum", 9)), 1000), 1, 3))
            case "number":
                return choice.choice((schema.get("minimum", 0.5), schema.get("maximum", 1.5), 0.9))
            case "array":
                return [self._value(schema.get("items", {}), hostile) for _ in range(choice.randrange(3))]
            case "boolean":
                return choice.random() < 0.5
        return choice.choice(("The cat sat.", "kn", "a", choice.choice(STRINGS)))

    def _path(self) -> HostileRequest:
        return self._frame("path", self.random.choice(("GET", "GET", "HEAD", "POST")), self.random.choice(PATHS))

    def _method(self) -> HostileRequest:
        method = self.random.choice(METHODS)
        path = (
            "localhost:80"
            if method == "CONNECT" and self.random.random() < 0.5
            else self.random.choice(self.operations)[1]
        )
        return self._frame("method", method, path)

    def _header(self) -> HostileRequest:
        chosen = tuple(self.random.sample(HEADERS, self.random.randint(1, 4)))
        chosen = tuple((name, value) for name, value in chosen if name != "Upgrade" or self.random.random() < 0.5)
        return self._frame(
            "header", "GET", self.random.choice(("/", "/api/runs", "/web/main.js", "/api/models", "/x")), headers=chosen
        )

    def _host(self) -> HostileRequest:
        return self._frame(
            "host", "GET", "/api/models", host=self.random.choice(HOSTS), allowed=frozenset({200, 400, 421})
        )

    def _nonsense_body(self) -> HostileRequest:
        body = self.random.choice((
            b"", b"{", b"[]", b"null", b"\xff\xfe{\0}\0", b"{" * 5000,
            b'{"run":"kn","text":"a"}' * 2, gzip.compress(b'{"run":"kn","text":"a"}'),
            self.random.randbytes(200), b'{"run": "kn", "run": 1, "text": "a"}', b"a=b&c=d",
            base64.b64encode(self.random.randbytes(300)),
            b'{"run":"kn","text":"' + b"a" * 30_000 + b'"}', b'"' + b"\\u0000" * 400 + b'"',
            json.dumps({f"k{n}": n for n in range(6000)}).encode(),
        ))  # fmt: skip
        posts = [one for one in self.light if one[0] == "POST"]
        path, kind = self.random.choice(posts)[1].replace("{name}", "x"), self.random.choice(TYPES)
        headers = (("Content-Type", kind), *((("Content-Encoding", "gzip"),) if self.random.random() < 0.1 else ()))
        return self._frame("body", "POST", path, body, headers, ERROR | {200})

    def broken(self) -> HostileRequest:
        """A request whose frame is broken; its connection is not used again."""
        choice = self.random
        post, get = "POST /api/read HTTP/1.1\r\nHost: localhost\r\n", "GET /api/models HTTP/1.1\r\nHost: localhost\r\n"
        text = choice.choice((
            post + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + get + "\r\n",
            post + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!", post + "Content-Length: -1\r\n\r\n",
            post + "Content-Length: 1e3\r\n\r\n",
            post + "Content-Length: +5\r\n\r\nhello", post + "Content-Length: 5, 5\r\n\r\nhello",
            post + "Content-Length: 99999999999999999999\r\n\r\n",
            post + "Transfer-Encoding: chunked\r\n\r\nzz\r\n\r\n",
            post + "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nx",
            post + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
            post + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
            post + "Transfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n",
            post + "Transfer-Encoding: chunked\r\n\r\n" + "1;" + "a" * 70_000,
            get + "X: " + "a" * 100_000 + "\r\n\r\n", get + "".join(f"X{n}: y\r\n" for n in range(8000)) + "\r\n",
            get + " folded: x\r\n\r\n",
            get + "No colon\r\n\r\n", get + "Bad\x00Name: x\r\n\r\n", get + "X: a\x00b\r\n\r\n",
            get.replace("\r\n", "\n") + "\n", get + "Host: evil\r\n\r\n",
            "GET /api/models HTTP/1.1\r\n\r\n", "GET /api/models HTTP/1.0\r\n\r\n", "GET /api/models\r\n\r\n",
            "GET  /api/models HTTP/1.1\r\n\r\n",
            "GET /api/models HTTP/9.9\r\nHost: localhost\r\n\r\n", "GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
            "GET http://evil/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\x16\x03\x01\x02\x00\x01\x00", "\x00" * 300, "\r\n" * 200,
            "GET / HTTP/1.1\rHost: localhost\r\r", "a" * 70_000,
            get + "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            "Sec-WebSocket-Version: 13\r\n\r\n\x81\x05hello",
            post + "Expect: 100-continue\r\nContent-Length: 10\r\n\r\n", choice.randbytes(200).decode("latin-1"),
        ))  # fmt: skip
        return HostileRequest(text.encode("latin-1"), "frame", ANY)

    def abandoned(self) -> HostileRequest:
        """A request whose client leaves before its answer has come."""
        run = self.random.choice(self.runs)
        path, body = self.random.choice((
            ("read", {"run": run, "text": "a b c " * 3000}), ("write", {"run": run, "prompt": "The",
            "max_tokens": 1000}),
            ("classify/words", {"run": run, "text": "a b c " * 1500}), ("tree", {"run": run, "prompt": "The",
            "branches": 20, "expanded": 60}),
            ("inspect/maps", {"run": run, "text": "the cat " * 100}), ("inspect/curve",
            {"run": run, "text": "the cat " * 60, "back": 400}),
        ))  # fmt: skip
        framed = self._frame(
            "abandoned", "POST", f"/api/{path}", json.dumps(body).encode(), (("Content-Type", "application/json"),)
        )
        cut = len(framed.data) if self.random.random() < 0.7 else self.random.randrange(len(framed.data))
        return framed._replace(data=framed.data[:cut])
