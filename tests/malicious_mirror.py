"""A package index and file server on loopback that attacks whoever downloads from it.

    with MaliciousMirror() as mirror:
        source = mirror.source("zip-bomb", "package")  # or "url"
        words, environment = mirror.command("zip-bomb", "package", cache_folder)

Every attack is one way to answer; "honest" is none, so that a test can see that the same download works. `source` is
the entry of a catalogue that is downloaded from here, `command` runs `octavo data get` of it in a process of its own.
"""

from __future__ import annotations

import gzip
import hashlib
import http.server
import io
import json
import os
import socketserver
import sys
import threading
import time
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from octavo.datasets.catalogue import File, Package, Source

TEXT = b"It was a bright cold day in April.\n" * 20
BOMB_BYTES = 1 << 26
DRIP_SECONDS = 0.2
FOREVER = 1 << 40
WAYS = ("package", "url")


def build_wheel(name: str, members: dict[str, bytes]) -> bytes:
    """A wheel whose package cannot be imported, so that importing it would be noticed."""
    info, file = f"{name}-1.0.dist-info", io.BytesIO()
    about = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": b"",
        "tiny_data/__init__.py": b"raise SystemExit('imported')",
    }
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, data in {**about, **members}.items():
            wheel.writestr(zipfile.ZipInfo(path, (2020, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED)
    return file.getvalue()


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers /simple/tiny-ATTACK/ with a page of links, /files/ATTACK/... with a wheel or a text."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self.close_connection = True
        parts = self.path.strip("/").split("/")
        attack = parts[1].removeprefix("tiny-") if len(parts) > 1 else ""
        with suppress(OSError):  # whoever downloads may go away at any moment
            if parts[0] == "simple" and attack in INDEX_ATTACKS:
                INDEX_ATTACKS[attack](self)
            elif parts[0] == "simple" and attack in ATTACKS:
                self.answer(self.index_page(f"tiny_{attack.replace('-', '_')}-1.0-py3-none-any.whl", attack))
            elif parts[0] == "files" and attack in FILE_ATTACKS:
                name = parts[-1]
                FILE_ATTACKS[attack](self, wheel_of(attack) if name.endswith(".whl") else TEXT)
            else:
                self.answer(b"not here", status=404)

    def index_page(self, name: str, attack: str) -> bytes:
        return f'<!DOCTYPE html><html><body><a href="/files/{attack}/{name}">{name}</a></body></html>'.encode()

    def answer(self, body: bytes, status: int = 200, length: int | None = None, **headers: str) -> None:
        self.send_response(status)
        kind = "text/html" if self.path.startswith("/simple") else "application/octet-stream"
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def stream(self, chunk: bytes, seconds: float = 0.0, length: int | None = None) -> None:
        """Send a chunk again and again, until whoever downloads has gone."""
        self.send_response(200)
        self.send_header("Content-Type", "text/html" if self.path.startswith("/simple") else "application/zip")
        if length is not None:
            self.send_header("Content-Length", str(length))
        self.end_headers()
        while not self.server.is_closing:  # type: ignore[attr-defined]
            self.wfile.write(chunk)
            self.wfile.flush()
            time.sleep(seconds)

    def drip_header(self) -> None:
        self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        while not self.server.is_closing:  # type: ignore[attr-defined]
            self.wfile.write(b"a")
            self.wfile.flush()
            time.sleep(DRIP_SECONDS)


def wheel_of(attack: str) -> bytes:
    """The wheel that the index serves for an attack."""
    name = f"tiny_{attack.replace('-', '_')}"
    bombs = {"zip-bomb": {f"{name}-1.0.dist-info/METADATA": bytes(BOMB_BYTES), "tiny_data/a.txt": bytes(BOMB_BYTES)}}
    return build_wheel(name, bombs.get(attack, {"tiny_data/a.txt": TEXT}))


def redirect(handler: Handler, to: str) -> None:
    handler.answer(b"", status=302, Location=to)


def links(handler: Handler, count: int) -> bytes:
    names = (f"tiny_many_links-1.0.{i}-py3-none-any.whl" for i in range(count))
    return "".join(f'<a href="/files/many-links/{name}">{name}</a>\n' for name in names).encode()


# What is served instead of the file, be it a wheel or a text.
FILE_ATTACKS: dict[str, Callable[[Handler, bytes], None]] = {
    "honest": lambda handler, body: handler.answer(body),
    "wrong-bytes": lambda handler, body: handler.answer(body[:-9] + b"evil" + body[-5:]),
    "zip-bomb": lambda handler, body: handler.answer(body),
    "empty": lambda handler, body: handler.answer(b""),
    "truncated": lambda handler, body: handler.answer(body[: len(body) // 2], length=len(body)),
    "no-answer": lambda handler, body: handler.connection.close(),
    "error": lambda handler, body: handler.answer(b"<html>" * 1000, status=500),
    "huge-length": lambda handler, body: handler.stream(bytes(1 << 16), length=FOREVER),
    "endless": lambda handler, body: handler.stream(bytes(1 << 16)),
    "slow": lambda handler, body: handler.stream(b"a", DRIP_SECONDS),
    "slow-header": lambda handler, body: handler.drip_header(),
    "redirect-loop": lambda handler, body: redirect(handler, handler.path),
    "redirect-on": lambda handler, body: redirect(handler, handler.path.replace("/redirect-on/", "/redirect-on/a/")),
    "redirect-to-file": lambda handler, body: redirect(handler, "file:///etc/passwd"),
    "bad-status": lambda handler, body: handler.wfile.write(b"HTTP/1.1 two hundred\r\n\r\n") and None,
    "gzip-bomb": lambda handler, body: handler.answer(gzip.compress(bytes(BOMB_BYTES)), Content_Encoding="gzip"),
    "traversal": lambda handler, body: handler.answer(
        b"evil", Content_Disposition='attachment; filename="../../evil-1.0-py3-none-any.whl"'
    ),
}  # fmt: skip
# What is served instead of the index's page.
INDEX_ATTACKS: dict[str, Callable[[Handler], None]] = {
    "many-links": lambda handler: handler.answer(links(handler, 300_000)),
    "endless-page": lambda handler: handler.stream(b"<a href='x'>" * 1000),
    "packed-page": lambda handler: handler.answer(gzip.compress(b"<a href='x'>" * (BOMB_BYTES // 12)),
                                                  Content_Encoding="gzip"),
    "slow-page": lambda handler: handler.stream(b"<", DRIP_SECONDS),
    "page-loop": lambda handler: redirect(handler, handler.path),
    "nested-page": lambda handler: handler.answer(b"<div>" * 200_000),
    "traversal-link": lambda handler: handler.answer(
        b'<a href="../../../files/honest/..%2F..%2Fetc%2Fpasswd.whl">tiny_traversal_link-1.0-py3-none-any.whl</a>'
        b'<a href="file:///etc/passwd#tiny_traversal_link-1.0-py3-none-any.whl">x</a>'
    ),
}  # fmt: skip
ATTACKS = (*FILE_ATTACKS, *INDEX_ATTACKS)


def attacks() -> list[tuple[str, str]]:
    """Every attack and the ways of downloading that it is one on; the honest answer is none."""
    found = [(attack, way) for attack in FILE_ATTACKS for way in WAYS if attack != "honest"]
    # A text that is not a package has nothing to unpack, and its name is ours.
    return [pair for pair in found if pair not in (("zip-bomb", "url"), ("gzip-bomb", "package"))] + [
        (attack, "package") for attack in INDEX_ATTACKS
    ]  # fmt: skip


class Server(http.server.ThreadingHTTPServer):
    """Threads end with the process, and streams with the server."""

    daemon_threads, is_closing = True, False

    def handle_error(self, *_: Any) -> None:
        """Whoever downloads may go away at any moment."""


class MaliciousMirror:
    """The server, in threads of this process."""

    def __enter__(self) -> MaliciousMirror:
        self.server = Server(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.is_closing = True
        self.server.shutdown()
        self.thread.join()
        socketserver.TCPServer.server_close(self.server)  # without waiting for threads, which end with the process

    @property
    def environment(self) -> dict[str, str]:
        """What makes pip use this index and nothing else."""
        return {"PIP_INDEX_URL": f"{self.address}/simple", "PIP_CONFIG_FILE": os.devnull, "no_proxy": "*",
                "PIP_RETRIES": "1", "PIP_TIMEOUT": "5", "PIP_FIND_LINKS": "", "PIP_EXTRA_INDEX_URL": ""}  # fmt: skip

    def source(self, attack: str, way: str) -> Source:
        """A source of one text, from here: what it must be is what an honest mirror has."""
        honest = build_wheel(f"tiny_{attack.replace('-', '_')}", {"tiny_data/a.txt": TEXT})
        package = Package(f"tiny-{attack}", "1.0", len(honest), hashlib.sha256(honest).hexdigest())
        url = f"{self.address}/files/{attack}/a.txt"
        inside, origin = (("tiny_data/a.txt",), "") if way == "package" else ((), url)
        file = File("a.txt", len(TEXT), hashlib.sha256(TEXT).hexdigest(), inside, url=origin)
        return Source(f"{attack}-{way}", "", "text", "", (file,), package if way == "package" else None)

    def command(
        self, attack: str, way: str, cache: Path, seconds: float = 5.0
    ) -> tuple[list[str], dict[str, str]]:  # fmt: skip
        """The words and the environment of `octavo data get` in a process of its own, given up after some seconds."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "OCTAVO_DATA"))}
        words = [sys.executable, __file__, json.dumps(asdict(self.source(attack, way))), str(seconds)]
        paths = os.pathsep.join(filter(None, [*(path for path in sys.path if path), kept.get("PYTHONPATH", "")]))
        return words, {**kept, **self.environment, "XDG_CACHE_HOME": str(cache), "PYTHONPATH": paths}


def main(record: str, seconds: str) -> int:
    """octavo data get of a source that is not in the catalogue."""
    from octavo.cli import main as octavo
    from octavo.datasets import bounded_process
    from octavo.datasets.sources import SOURCES

    values = json.loads(record)
    package = Package(**values["package"]) if values["package"] else None
    files = tuple(File(**{**file, "inside": tuple(file["inside"])}) for file in values["files"])
    source = Source(values["name"], "", "text", "", files, package)
    SOURCES[source.name] = source
    bounded_process.ANSWER_SECONDS = float(seconds)
    return octavo(["data", "get", source.name])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
