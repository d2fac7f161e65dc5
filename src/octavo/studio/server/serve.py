"""Serve the studio, and say where."""

from __future__ import annotations

import ipaddress
import secrets
import socket
import sys
import threading
import webbrowser
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from octavo.errors import UserError
from octavo.studio.server.app import Studio, make_app
from octavo.studio.server.connection import HEADER_SECONDS, Connection
from octavo.studio.server.model_cache import KEPT, KEPT_BYTES, Shelf

HOST, PORT = "127.0.0.1", 8642
NEXT_PORTS = 20  # that are tried where the usual one is taken
ENDING_SECONDS = 3  # that requests in work get when the studio ends


def serve(
    runs: str | Path = "runs", host: str = HOST, port: int | None = None, names: Sequence[str] = (),
    browser: bool = True, device: str = "auto", kept: int = KEPT, memory: int = KEPT_BYTES,
) -> None:  # fmt: skip
    """Show the runs of a folder until interrupted. On another host than this machine's own, a token is asked for."""
    root = Path(runs)
    if not root.is_dir():
        raise UserError(f"there is no folder {root}; make a run first: octavo train ngram shakespeare --out runs/kn5")
    listening = _listen(host, port)
    token = "" if _is_loopback(host) else secrets.token_urlsafe(24)
    studio = Studio(Shelf(root, kept, memory, device))
    app = make_app(studio, token, (host, socket.gethostname(), *names), numbers=bool(token))
    address = _address(host, listening.getsockname()[1], token)
    print(f"octavo studio shows {root} at {address}", flush=True)
    print("stop it with Ctrl-C", file=sys.stderr)
    if browser:
        threading.Timer(0.5, webbrowser.open, (address,)).start()
    try:
        with suppress(KeyboardInterrupt):  # which is how one stops it
            uvicorn.Server(settings(app)).run(sockets=[listening])
    finally:
        studio.close()


def settings(app: FastAPI) -> uvicorn.Config:
    """How the app is served: with a limit on everything that a stranger could make last."""
    return uvicorn.Config(
        app, log_level="warning", http=Connection, ws="none", timeout_keep_alive=HEADER_SECONDS,
        timeout_graceful_shutdown=ENDING_SECONDS, server_header=False, h11_max_incomplete_event_size=1 << 16,
    )  # fmt: skip


def _listen(host: str, port: int | None) -> socket.socket:
    """A socket on the port, or on the next free one where nobody asked for a certain one."""
    ports = [port] if port is not None else [*range(PORT, PORT + NEXT_PORTS), 0]
    for one in ports:
        try:
            family = socket.getaddrinfo(host, one, type=socket.SOCK_STREAM)[0][0]
            return socket.create_server((host, one), family=family, backlog=512)
        except OSError as error:
            why = error
    raise UserError(f"cannot listen on {host}, port {ports[0]}: {why.strerror or why}; try another --port or --host")


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _address(host: str, port: int, token: str) -> str:
    name = socket.gethostname() if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}/" + (f"?token={token}" if token else "")
