"""Start the studio's web server and print its address."""

from __future__ import annotations

import gc
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
from octavo.io.system import allow_open_files
from octavo.studio.server.app import Studio, make_app
from octavo.studio.server.connection import MAX_CONNECTIONS, MAX_HEADER_SECONDS, Connection
from octavo.studio.server.model_cache import MAX_MODEL_BYTES, MAX_MODELS, ModelCache

HOST, PORT = "127.0.0.1", 8642
NEXT_PORTS = 20  # that are tried where the default one is taken
SHUTDOWN_SECONDS = 3  # that running requests get when the studio ends


def serve(
    runs: str | Path = "runs", host: str = HOST, port: int | None = None, names: Sequence[str] = (),
    browser: bool = True, device: str = "auto", max_models: int = MAX_MODELS, memory: int = MAX_MODEL_BYTES,
) -> None:  # fmt: skip
    """Serve the runs of a folder until interrupted. On any host but 127.0.0.1, a token is required."""
    root = Path(runs)
    if not root.is_dir():
        raise UserError(f"there is no folder {root}; make a run first: octavo train ngram shakespeare --out runs/kn5")
    allow_open_files(2 * MAX_CONNECTIONS)  # beside connections there are runs, pipes and libraries' own
    listening = open_socket(host, port)
    token = secrets.token_urlsafe(24) if requires_token(host) else ""
    studio = Studio(ModelCache(root, max_models, memory, device))
    app = make_app(studio, token, (host, socket.gethostname(), *names), allow_ip_hosts=bool(token))
    address = studio_url(host, listening.getsockname()[1], token)
    print(f"octavo studio shows {root} at {address}", flush=True)
    print("stop it with Ctrl-C", file=sys.stderr)
    gc.collect()
    gc.freeze()  # what was imported stays: looking through it for garbage would stop every request for a while
    if browser:
        threading.Timer(0.5, webbrowser.open, (address,)).start()
    try:
        with suppress(KeyboardInterrupt):  # which is how one stops it
            uvicorn.Server(settings(app)).run(sockets=[listening])
    finally:
        studio.close()


def settings(app: FastAPI) -> uvicorn.Config:
    """uvicorn's settings, with a time limit on everything that a client could make last."""
    return uvicorn.Config(
        app, log_level="error", http=Connection, ws="none", timeout_keep_alive=MAX_HEADER_SECONDS,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS, server_header=False, h11_max_incomplete_event_size=1 << 16,
    )  # fmt: skip


def open_socket(host: str, port: int | None) -> socket.socket:
    """A socket that listens on the port; where none is given, on the default one or the next that is free."""
    ports = [port] if port is not None else [*range(PORT, PORT + NEXT_PORTS), 0]
    for candidate in ports:
        try:
            family = socket.getaddrinfo(host, candidate, type=socket.SOCK_STREAM)[0][0]
            listening = socket.create_server((host, candidate), family=family, backlog=512)
            # Connections inherit it. asyncio sets it only where a socket names its protocol, which this one does not;
            # without it the second part of an answer waits 40 ms for the client to acknowledge the first.
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return listening
        except OSError as error:
            why = error
    raise UserError(f"cannot listen on {host}, port {ports[0]}: {why.strerror or why}; try another --port or --host")


def requires_token(host: str) -> bool:
    """Whether a token is required: on every address but the default one, by whatever name. What localhost, ::1 or
    another address of the loopback network reach is for the machine's settings to say, not for its name."""
    return host != HOST


def studio_url(host: str, port: int, token: str) -> str:
    """The address to open in a browser."""
    name = socket.gethostname() if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}/" + (f"?token={token}" if token else "")
