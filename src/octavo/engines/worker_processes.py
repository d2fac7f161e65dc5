"""Parts read by several processes of this machine, each a Python of its own.

They are started as commands, not by multiprocessing: its children run the user's script again unless it is guarded, and
a fork would copy locks that threads hold. Parts and rows go through pipes; a process ends when its pipe is closed.
"""

from __future__ import annotations

import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from octavo.engines.engine import Batches
from octavo.errors import UserError
from octavo.io.memory import available

if TYPE_CHECKING:
    import pyarrow

COMMAND = "from octavo.engines.worker_processes import serve; serve()"
ROWS_WAITING = 8  # batches that were read and are not used yet
PROCESS_BYTES = 1 << 29  # of memory that each must find free
ENDING_SECONDS = 10.0  # for a process whose pipe is broken


def process_count(parts: int, threads: int | None) -> int:
    """How many processes are worth it: one a core, as far as there are parts and memory."""
    return max(1, min(parts, threads or os.cpu_count() or 1, available() // PROCESS_BYTES))


def read_in_processes(parts: Sequence[str], read: Batches, processes: int) -> Iterator[pyarrow.RecordBatch]:
    """What `read` gives for the parts, in any order, a part a process at a time."""
    pool = _Pool(parts, read, processes)
    try:
        yield from pool.batches()
    finally:
        pool.close()


class _Pool:
    """The processes, and a thread beside each that hands it parts and takes its rows."""

    def __init__(self, parts: Sequence[str], read: Batches, processes: int) -> None:
        self._parts = queue.SimpleQueue[str]()
        for part in parts:
            self._parts.put(part)
        self._rows = queue.Queue[Any](ROWS_WAITING)  # a batch, an exception, or None: a thread has ended
        self._closed = threading.Event()
        self._processes = [_start() for _ in range(processes)]
        self._threads = [threading.Thread(target=self._serve, args=(one, read), daemon=True) for one in self._processes]
        for thread in self._threads:
            thread.start()

    def batches(self) -> Iterator[pyarrow.RecordBatch]:
        running = len(self._threads)
        while running:
            row = self._rows.get()
            if isinstance(row, BaseException):
                raise row
            if row is None:
                running -= 1
            else:
                yield row

    def close(self) -> None:
        self._closed.set()
        for process in self._processes:
            process.kill()
        for thread in self._threads:
            thread.join()
        for process in self._processes:
            process.wait()
            for pipe in (process.stdin, process.stdout):
                with suppress(OSError):
                    pipe.close()  # type: ignore[union-attr]

    def _serve(self, process: subprocess.Popen[bytes], read: Batches) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            pickle.dump(read, process.stdin)
            while not self._closed.is_set():
                try:
                    part = self._parts.get_nowait()
                except queue.Empty:
                    break
                pickle.dump(part, process.stdin)
                process.stdin.flush()
                while (row := pickle.load(process.stdout)) is not None:
                    self._put(row)
        except (EOFError, OSError, pickle.UnpicklingError) as error:
            with suppress(subprocess.TimeoutExpired):
                process.wait(ENDING_SECONDS)  # its pipes are closed before its status is known
            problem = UserError(
                f"a process that read the text was ended from outside, with status {process.poll()}, perhaps for want "
                "of memory; give the same command again"
            )
            problem.__cause__ = error
            self._put(problem)
        except Exception as error:
            self._put(error)
        finally:
            self._put(None)

    def _put(self, row: Any) -> None:
        """Wait for room; nobody takes rows of a pool that was closed."""
        while not self._closed.is_set():
            with suppress(queue.Full):
                self._rows.put(row, timeout=0.1)
                return


def _start() -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1",
                   "TOKENIZERS_PARALLELISM": "false"}  # fmt: skip
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    )


def serve() -> None:
    """Read the parts that come through standard input; write their rows, and None after each part, to the output."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one, and closes the pipe
    given, rows = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no row
    with suppress(EOFError, BrokenPipeError):
        read = pickle.load(given)
        while True:
            part = pickle.load(given)
            try:
                for batch in read(part):
                    pickle.dump(batch, rows)
                pickle.dump(None, rows)
            except Exception as error:
                pickle.dump(_portable(error), rows)
                pickle.dump(None, rows)
            rows.flush()
    os._exit(0)  # the pipes may be broken, and Python would complain of what it could not flush


def _portable(error: Exception) -> Exception:
    """An exception that another process can read: one of ours as its message, which is all that is shown."""
    if isinstance(error, UserError):
        return UserError(str(error))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
