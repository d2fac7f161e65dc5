"""A worker process of the studio: it loads runs and computes one request after the other; see worker_pool.py."""

from __future__ import annotations

import json
import os
import queue
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from fastapi.responses import Response

from octavo.studio.routes import ROUTES
from octavo.studio.server.app import Studio, encode_json
from octavo.studio.server.computed_routes import Computed, ComputedRoutes
from octavo.studio.server.error_text import error_answer
from octavo.studio.server.model_cache import ModelCache
from octavo.studio.server.scheduler import ClientDisconnected, FairLock, Ticket
from octavo.studio.server.worker_pool import END, ITEM, REFUSED, WorkerSettings

NICENESS = 5  # the pages have priority


def serve_requests(pipe: Connection, settings: WorkerSettings) -> None:
    """Answer requests until the studio ends or asks nothing for long."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the studio, which ends its workers
    if hasattr(os, "nice"):
        os.nice(NICENESS)
    torch.set_num_threads(settings.threads)
    models = ModelCache(Path(settings.root), settings.max_models, settings.max_bytes, settings.device)
    studio, computed = Studio(models, workers=0), dict[str, Computed]()
    for make_router in ROUTES:
        router = make_router(studio)
        computed |= router.computed if isinstance(router, ComputedRoutes) else {}
    requests: queue.Queue[tuple[Ticket, dict[str, Any]]] = queue.Queue()
    threading.Thread(target=_listen, args=(pipe, requests), name="requests", daemon=True).start()
    with suppress(queue.Empty):
        while True:
            ticket, message = requests.get(timeout=settings.idle_seconds)
            for reply in _replies(ticket, computed[message["path"]], message["asked"], models.root):
                pipe.send_bytes(reply)


def _listen(pipe: Connection, requests: queue.Queue[tuple[Ticket, dict[str, Any]]]) -> None:
    ticket = Ticket(FairLock())
    while True:
        try:
            message = json.loads(pipe.recv_bytes())
        except (EOFError, OSError):
            os._exit(0)  # the studio has ended, whatever is being computed
        if "cancel" in message:
            ticket.cancel()
        else:
            ticket = Ticket(FairLock(), message["seconds"])
            requests.put((ticket, message))


def _replies(ticket: Ticket, computed: Computed, asked: dict[str, Any], root: Path) -> Iterator[bytes]:
    """The messages that answer a request."""
    try:
        result = computed.call(ticket, computed.parse(asked))
        if isinstance(result, Response):
            headers = {name: value for name, value in result.headers.items() if name != "content-length"}
            about = json.dumps({"status": result.status_code, "headers": headers}).encode()
            yield END + about + b"\n" + bytes(result.body)
            return
        for item in result:
            ticket.check()
            yield ITEM + encode_json(item)
        yield END
    except GeneratorExit:  # the studio has ended
        raise
    except ClientDisconnected:
        yield REFUSED
    except BaseException as error:
        status, message = error_answer(error, root)
        yield REFUSED + json.dumps({"status": status, "message": message}).encode()
