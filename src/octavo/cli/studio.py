"""octavo studio."""

from __future__ import annotations

from typing import Annotated

from tyro.conf import Positional, arg

from octavo.cli.flags import Device
from octavo.studio.server.model_cache import MAX_MODELS
from octavo.studio.server.serve import HOST, serve


def studio(
    runs: Annotated[Positional[str], arg(metavar="RUNS")] = "runs", host: str = HOST, port: int | None = None,
    name: tuple[str, ...] = (), browser: bool = True, device: Device = "auto", max_models: int = MAX_MODELS,
    memory: float = 4.0,
) -> None:  # fmt: skip
    """Inspect the models of a folder in the browser. Nothing leaves this machine.

    Example: octavo studio runs

    Args:
        runs: The folder with the runs; nothing outside it is read.
        host: The address to listen on. On any but 127.0.0.1 a token is required; it is printed at the start.
        port: The port to listen on; by default 8642, or the next that is free.
        name: Further host names that this machine is opened by.
        browser: --no-browser prints the address, and opens nothing.
        max_models: How many models stay in memory.
        memory: How many GiB of models stay in memory.
    """
    serve(runs, host, port, name, browser, device, max_models, int(memory * (1 << 30)))


studio.RENAMED = {"kept": "max_models"}  # type: ignore[attr-defined]
