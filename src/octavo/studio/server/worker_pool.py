"""Processes that compute what cannot be interrupted, because a process can be ended.

Most requests compute in threads, in short parts between which they end when nobody waits for them. One long call of
torch, or of a tokenizer with somebody's pattern in it, has no such parts. Requests to runs like these are computed by a
worker process, which loads the run itself and serves one request at a time. A request that is abandoned or takes too
long is cancelled; a worker that does not stop within half a second is ended, and the next request starts another.

On Linux workers are forked from a server process that has imported everything and computed nothing, so that they start
in a moment and share its memory; elsewhere each is a new process, because the libraries of macOS do not survive a fork
and Windows has none. Messages are JSON and bytes, never pickles.
"""

from __future__ import annotations

import json
import multiprocessing
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from octavo.errors import UserError
from octavo.io.run_folder import TENSORS, TOKENIZER
from octavo.studio.server.scheduler import SHUTTING_DOWN, Ticket

MAX_THREAD_BYTES = 96 << 20  # of tensors: a part of the work of a larger model may take a second
INTERRUPTIBLE_TASKS = ("", "language", "facts")  # whose models read and write in short parts
GRACE_SECONDS = 0.5  # for a worker to stop by itself, which leaves it its models
POLL_SECONDS = 0.1  # between two checks whether an answer is still wanted
ITEM, END, REFUSED = b"i", b"e", b"r"  # how a message of a worker begins: an item of a stream, the end, an error
START_METHOD = "forkserver" if sys.platform == "linux" else "spawn"
WORKER_MODULE = "octavo.studio.server.worker"


class WorkerSettings(NamedTuple):
    """What a worker is started with."""

    root: str
    device: str
    max_models: int
    max_bytes: int
    threads: int  # of torch, as many as in the studio itself, so that results are equal to the last bit
    idle_seconds: float = 600.0  # without a request, after which it ends and frees its memory


class WorkerFailed(UserError):
    """What a worker answered in place of a result, with the status of the response."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class WorkerEnded(Exception):
    """The process ended before it answered."""


class WorkerProcess:
    """One worker and the pipe to it."""

    def __init__(self, settings: WorkerSettings) -> None:
        context: Any = multiprocessing.get_context(START_METHOD)
        if START_METHOD == "forkserver":
            context.set_forkserver_preload([WORKER_MODULE])
        from octavo.studio.server.worker import serve_requests  # which imports everything

        self.pipe, theirs = context.Pipe()
        with theirs:
            self.process = context.Process(
                target=serve_requests, args=(theirs, settings), daemon=True, name="studio worker"
            )
            self.process.start()
        self.last_run, self.served = "", 0

    def send(self, message: Mapping[str, Any]) -> None:
        try:
            self.pipe.send_bytes(json.dumps(message).encode())
        except OSError:
            raise WorkerEnded from None

    def receive(self, ticket: Ticket) -> bytes:
        """The next message; the wait ends where nobody wants it any more."""
        while not self.pipe.poll(POLL_SECONDS):
            ticket.check()
        try:
            return self.pipe.recv_bytes()  # type: ignore[no-any-return]
        except (EOFError, OSError):
            raise WorkerEnded from None

    def stop_request(self) -> bool:
        """Cancel the request that it computes; whether it stopped, and can serve another."""
        with suppress(WorkerEnded, EOFError, OSError):
            self.send({"cancel": True})
            while self.pipe.poll(GRACE_SECONDS):
                if self.pipe.recv_bytes()[:1] != ITEM:
                    return True
        return False

    def end(self) -> None:
        """End the process, whatever it does."""
        self.process.kill()
        self.process.join()
        self.pipe.close()


class WorkerPool:
    """The workers of a studio. The scheduler admits as many requests at once as there may be workers."""

    def __init__(self, settings: WorkerSettings) -> None:
        self.settings = settings
        self._lock = threading.Lock()
        self._idle: list[WorkerProcess] = []
        self._all: set[WorkerProcess] = set()
        self._closed = self._is_starting = False

    def messages(self, ticket: Ticket, path: str, run: str, asked: Mapping[str, Any]) -> Iterator[bytes]:
        """The messages with which a worker answers a request: the items of a stream, then the end."""
        while True:
            worker = self._take(run)
            fresh, finished = worker.served == 0, False
            try:
                worker.send({"path": path, "asked": asked, "seconds": ticket.seconds_left})
                while not finished:
                    message = worker.receive(ticket)
                    finished = message[:1] != ITEM
                    yield message
                return
            except WorkerEnded:
                finished = True
                worker.process.join(GRACE_SECONDS)
                if fresh or worker.process.exitcode != 0:  # 0: it had been idle for long and left
                    raise why_ended(worker.process.exitcode) from None
            finally:
                self._give_back(worker, finished or worker.stop_request())

    def warm_up(self) -> None:
        """Start a worker in the background where there is none, so that the next request need not wait for imports."""
        with self._lock:
            is_there = any(worker.process.is_alive() for worker in self._all)  # those that were idle for long are not
            if self._is_starting or is_there or self._closed:
                return
            self._is_starting = True
        threading.Thread(target=self._start_one, name="starting a worker", daemon=True).start()

    def _start_one(self) -> None:
        try:
            with suppress(UserError):  # the request that needs it says so
                self._give_back(self._take(""), True)
        finally:
            self._is_starting = False

    def _take(self, run: str) -> WorkerProcess:
        """An idle worker, one that has the run in memory if possible, or a new one."""
        with self._lock:
            ended = [one for one in self._idle if not one.process.is_alive()]  # they had been idle for long
            self._idle = sorted(set(self._idle) - set(ended), key=lambda one: one.last_run == run)
            worker = self._idle.pop() if self._idle else None
        for one in ended:
            self._give_back(one, False)
        try:
            worker = worker or WorkerProcess(self.settings)  # not under the lock: the first one takes seconds to start
        except (OSError, EOFError) as error:  # the system has no process, memory or pipe left
            reason = getattr(error, "strerror", None) or "it ended at once"
            raise WorkerFailed(
                503, f"no process could be started to compute this: {reason}; close other programs, or try again"
            ) from error
        with self._lock:
            self._all.add(worker)
            closed = self._closed
        if closed:
            self._give_back(worker, False)
            raise UserError(SHUTTING_DOWN)
        worker.last_run = run
        return worker

    def _give_back(self, worker: WorkerProcess, usable: bool) -> None:
        worker.served += 1
        with self._lock:
            if usable and worker.process.is_alive() and not self._closed:
                self._idle.append(worker)
                return
            self._all.discard(worker)
        worker.end()

    def process_ids(self) -> list[int]:
        """Of all workers."""
        with self._lock:
            return [worker.process.pid for worker in self._all]

    def close(self) -> None:
        """End all workers."""
        with self._lock:
            self._closed, workers = True, list(self._all)
            self._idle.clear()
        for worker in workers:
            with suppress(OSError, ValueError):
                worker.process.kill()
                worker.process.join(GRACE_SECONDS)


def why_ended(exit_code: int | None) -> WorkerFailed:
    """The error for a client whose worker ended before it answered."""
    number = -exit_code if exit_code is not None and exit_code < 0 else 0
    name = signal.Signals(number).name if number in set(signal.Signals) else f"exit code {exit_code}"
    memory = ", which the system does where memory runs out" if name == "SIGKILL" else ""
    return WorkerFailed(503, f"the process that computed this was ended ({name}){memory}; ask for less, or try again")


def needs_process(folder: Path, record: Mapping[str, Any]) -> bool:
    """Whether computing with a run may take long without a chance to interrupt it."""
    if record.get("task", "") not in INTERRUPTIBLE_TASKS:
        return True
    tensors, tokenizer = folder / TENSORS, folder / TOKENIZER
    if tensors.is_file() and tensors.stat().st_size > MAX_THREAD_BYTES:
        return True
    return tokenizer.is_file() and _has_pattern(tokenizer, tokenizer.stat().st_mtime_ns)


@lru_cache(maxsize=1024)
def _has_pattern(tokenizer: Path, modified: int) -> bool:
    """Whether a tokenizer splits by somebody's pattern, which may take as long as it likes."""
    return b'"Regex"' in tokenizer.read_bytes()
