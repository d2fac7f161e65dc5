"""Cells on a Ray cluster whose machines see the experiment's folder, and its text, at the same places.

A cell travels as JSON and so does its outcome; its run is written into the experiment's folder by the machine that
trains it. A cell whose process or machine is lost is given out again, and is resumed from its last checkpoint.
"""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from octavo import __version__
from octavo.errors import UserError
from octavo.experiments.cell import Cell, Json, Outcome, execute, in_one_line
from octavo.experiments.executor import STOP_SECONDS
from octavo.experiments.progress import Progress
from octavo.experiments.runner import HEADER, file_digest
from octavo.tasks.device import pick_device

CLIENT_PORT = 10001  # of Ray's server for clients
CONNECT_SECONDS, POLL_SECONDS = 10.0, 1.0
MAX_LOSSES = 3  # of processes or machines that worked on a cell, before it counts as failed
SINGLE_THREADED = ("compressor", "proof")  # work that has no use for a second core
ENVIRONMENT = "OCTAVO_"  # begins the names of the variables that cells need to have


@contextmanager
def connected(on: str, jobs: int, cores: int) -> Iterator[RayCluster]:
    """Within it, cells can be executed there; a cluster that was started for it ends with it."""
    known = sys.modules.get("ray")
    was_connected = known is not None and known.is_initialized()
    ray = connect(on)
    try:
        yield RayCluster(ray, jobs, cores)
    finally:
        if not was_connected:
            ray.shutdown()


def connect(on: str) -> Any:
    """Ray, connected to the cluster there; a process that is connected already stays so."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray reports its use to its makers where nobody objects
    try:
        import ray
    except ImportError as error:
        raise UserError(f"--on {on} needs Ray, which is not installed; pip install 'octavo[ray]'") from error
    if ray.is_initialized():
        return ray
    address, before = client_address(on), signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address, log_to_driver=False, logging_level="ERROR")
    except Exception as error:  # of many kinds
        raise UserError(
            f"no Ray cluster answers to --on {on}: {in_one_line(error)}; start one with ray start --head"
        ) from error
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)  # Ray's own handler would exit without saving
    return ray


def client_address(on: str) -> str | None:
    """The address as Ray takes it, with a port; one where nothing listens is refused without many tries."""
    if "://" not in on:
        return None  # Ray finds the cluster that runs here, or that RAY_ADDRESS names, or starts one
    try:
        parts = urlsplit(on)
        host, port = parts.hostname or "", parts.port or CLIENT_PORT
        with socket.create_connection((host, port), CONNECT_SECONDS):
            return f"ray://{f'[{host}]' if ':' in host else host}:{port}"
    except (OSError, ValueError) as error:
        raise UserError(f"no Ray cluster answers to --on {on}: {error}; start one with ray start --head") from error


@dataclass(frozen=True)
class Needs:
    """What a cell asks the cluster for."""

    cores: int
    gpus: int


def needs_of(cell: Cell, cores: int) -> Needs:
    """The cores that were asked for, one where more would idle; and a GPU for what trains or reads on one."""
    device = cell.settings.get("device", cell.options.get("device", "auto"))
    is_neural = bool(cell.budget) or "device" in cell.options
    return Needs(
        1 if cell.work in SINGLE_THREADED else cores, int(is_neural and pick_device(str(device)).type == "cuda")
    )


@dataclass(frozen=True)
class Attempt:
    """A cell that is being executed, and how often it was lost before."""

    cell: Cell
    losses: int = 0


class RayCluster:
    """As many cells at a time as there is room for, or as `jobs` allows."""

    def __init__(self, ray: Any, jobs: int, cores: int) -> None:
        self.ray, self.limit, self.cores = ray, jobs, cores
        self.check_room(Needs(cores, 0))

    @property
    def jobs(self) -> int:
        """How many cells there is room for now."""
        room = sum(int(one.get("CPU", 0)) // self.cores for one in self._machines())
        return max(1, min(room, self.limit) if self.limit > 1 else room)

    def check_room(self, needs: Needs) -> None:
        """Refuse what no machine of the cluster has: Ray would wait for one to join."""
        machines = self._machines()
        if any(one.get("CPU", 0) >= needs.cores and one.get("GPU", 0) >= needs.gpus for one in machines):
            return
        most = max((int(one.get("CPU", 0)) for one in machines if one.get("GPU", 0) >= needs.gpus), default=0)
        gpu = " and a GPU" if needs.gpus else ""
        remedy = f"try --cores {most}" if most else "add such a machine, or take --device cpu"
        raise UserError(f"no machine of the cluster has {needs.cores} cores{gpu}: the largest has {most}; {remedy}")

    def _machines(self) -> list[Mapping[str, float]]:
        return [node["Resources"] for node in self.ray.nodes() if node["Alive"]]

    def execute(self, cells: Iterable[Cell], folder: Path, progress: Progress) -> Iterator[Outcome]:
        waiting, running = iter(cells), dict[Any, Attempt]()
        try:
            while True:
                while len(running) < self.jobs and (cell := next(waiting, None)) is not None:
                    running[self._submit(cell, folder)] = Attempt(cell)
                if not running:
                    return
                ready, _ = self.ray.wait(list(running), num_returns=1, timeout=POLL_SECONDS)
                for reference in ready:
                    attempt = running.pop(reference)
                    outcome = self._outcome(reference, attempt, progress)
                    if outcome is not None:
                        yield outcome
                    else:
                        again = Attempt(attempt.cell, attempt.losses + 1)
                        running[self._submit(attempt.cell, folder)] = again
        except ConnectionError as error:
            raise UserError(
                f"the cluster does not answer any more: {in_one_line(error)}; what is finished is stored, and the same "
                "command goes on"
            ) from error
        except BaseException:
            self._stop(list(running))
            raise

    def _submit(self, cell: Cell, folder: Path) -> Any:
        needs = needs_of(cell, self.cores)
        self.check_room(needs)
        absolute = folder.absolute()
        request = {
            "cell": asdict(cell), "folder": str(absolute), "digest": file_digest(absolute / HEADER),
            "working_directory": os.getcwd(), "version": __version__, "cores": needs.cores,
            "environment": {name: value for name, value in os.environ.items() if name.startswith(ENVIRONMENT)},
        }  # fmt: skip
        # Ray's own retries would be silent, so there are none.
        task = self.ray.remote(execute_request).options(
            num_cpus=needs.cores, num_gpus=needs.gpus, max_retries=0, scheduling_strategy="SPREAD", name=cell.key
        )
        return task.remote(json.dumps(request))

    def _outcome(self, reference: Any, attempt: Attempt, progress: Progress) -> Outcome | None:
        """What came of an attempt; None where it was lost, and is to be repeated."""
        errors = self.ray.exceptions
        try:
            answer: Json = json.loads(self.ray.get(reference))
        except (
            errors.WorkerCrashedError,
            errors.NodeDiedError,
            errors.OutOfMemoryError,
            errors.ObjectLostError,
        ) as lost:
            why = (
                "its machine has left the cluster" if isinstance(lost, errors.NodeDiedError) else "its process has died"
            )
            if attempt.losses < MAX_LOSSES:
                progress.note(f"{attempt.cell.key} is executed again: {why}")
                return None
            return Outcome(
                attempt.cell, error=f"{why}, {attempt.losses + 1} times in all; run the same command to try again"
            )
        except errors.RayError as error:  # octavo is not installed there, say
            return Outcome(attempt.cell, error=f"the cluster could not execute it: {last_line(error)}")
        progress.stream.write(answer["said"])
        if answer["refused"]:
            return Outcome(attempt.cell, error=answer["refused"])
        return Outcome.of(answer["outcome"])

    def _stop(self, references: list[Any]) -> None:
        """Let cells save checkpoints; a second interrupt, or too long a wait, ends them at once."""
        with suppress(ConnectionError, self.ray.exceptions.RayError):  # the cluster may be what is lost
            for reference in references:
                self.ray.cancel(reference)
            self._wait_for_checkpoints(references)

    def _wait_for_checkpoints(self, references: list[Any]) -> None:
        try:
            left = self.ray.wait(references, num_returns=len(references), timeout=STOP_SECONDS)[1] if references else []
        except KeyboardInterrupt:
            left = references
        for reference in left:
            self.ray.cancel(reference, force=True)


def last_line(error: Exception) -> str:
    """What went wrong, without the stack of the process where it did."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def execute_request(text: str) -> str:
    """On a machine of the cluster: a cell's outcome, what was said meanwhile, and why it was refused."""
    import torch

    request, said = json.loads(text), io.StringIO()
    os.environ.update(request["environment"])
    torch.set_num_threads(request["cores"])
    refused, outcome = why_refused(request), None
    if not refused:
        os.chdir(request["working_directory"])
        with redirect_stderr(said):
            outcome = execute(Cell(**request["cell"]), Path(request["folder"])).to_json()
    return json.dumps({"outcome": outcome, "said": said.getvalue(), "refused": refused}, allow_nan=False)


def why_refused(request: Json) -> str:
    """Why this machine cannot execute a cell, and what to do about it; nothing where it can."""
    here, header = socket.gethostname(), Path(request["folder"]) / HEADER
    if request["version"] != __version__:
        return f"machine {here} has octavo {__version__}, not {request['version']}; install the same version everywhere"
    with suppress(OSError):
        if file_digest(header) == request["digest"] and Path(request["working_directory"]).is_dir():
            return ""
    return (
        f"machine {here} does not see {request['folder']} as it is; give --out, and start from, a folder that all "
        "machines of the cluster share"
    )
