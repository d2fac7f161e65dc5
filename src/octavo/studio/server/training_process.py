"""The training process that the studio starts: one at a time in a folder; stopped, it saves a checkpoint.

The process holds a lock on a file beside the runs for as long as it lives, so a second studio on the same folder, or
the next one after a crash, knows of it; the lock of a dead process is released by the system.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from octavo.errors import UserError
from octavo.io import system
from octavo.studio.server.model_cache import Conflict
from octavo.studio.server.resumable import needs_of, why_not_by_files, why_not_by_needs
from octavo.studio.server.scheduler import SHUTTING_DOWN
from octavo.studio.server.text_store import FACTS_FOLDER, TEXTS_FOLDER, TextStore
from octavo.studio.server.training_forms import MAX_SECONDS, Value, form_of
from octavo.tasks.run_rows import value_at
from octavo.training.schedule import Budget

LOCK, LOG = ".training.lock", ".training.log"
RUN_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"  # of a run that is started here
CHECKPOINT_SECONDS = 40.0  # between the interrupt, after which a run saves its checkpoint, and the termination
KILL_SECONDS = 5.0  # between termination and kill
MAX_PROCESS_SECONDS = 2 * MAX_SECONDS  # after which a run is stopped, whatever it does
LOCK_TRIES, LOCK_PAUSE_SECONDS = 10, 0.03  # another studio may be reading the lock at this moment
NICENESS = 5  # the pages have priority
LOG_TAIL_BYTES, LOG_TAIL_LINES = 8192, 12  # that are shown


@dataclass
class TrainingProcess:
    """A training run started here, or, without a process, by another studio."""

    run: str
    command: str  # as one would type it
    started: float
    seconds: float | None  # the budget
    process: subprocess.Popen[bytes] | None = None
    stopping: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)
    pid: int = 0

    @property
    def state(self) -> str:
        if self.process is None:
            return "elsewhere"
        if self.process.poll() is not None:
            return "ended"
        return "stopping" if self.stopping.is_set() else "running"


class TrainingManager:
    """Starts, stops and resumes the one training run of a folder."""

    def __init__(self, root: Path, device: str = "cpu", checkpoint_seconds: float = CHECKPOINT_SECONDS) -> None:
        self.root, self.device, self.checkpoint_seconds = root, device, checkpoint_seconds
        self.texts = TextStore(root)
        self._lock = threading.Lock()
        self._mine: TrainingProcess | None = None
        self._closed = False

    # ------------------------------------------------------------------ requests of the page

    def start(self, model: str, text: str, run: str, seconds: float, settings: Mapping[str, Value]) -> TrainingProcess:
        """Train a new run; an existing one is not overwritten."""
        form = form_of(model)
        source = self.texts.source(text, form.task)
        flags = form.flags(settings)
        self._check_new(run)
        budget = ["--budget", f"{seconds:g}s"] if form.has_budget else []
        words = ["train", model, source, *flags, *budget, "--out", str(self.root / run), "--device", self.device]
        return self.start_process(run, words, seconds if form.has_budget else None)

    def resume(self, run: str, path: Path, record: Mapping[str, Any], seconds: float | None = None) -> TrainingProcess:
        """Resume a run; `seconds` is the budget of all its training."""
        if reason := self.why_not_resumable(path, record):
            raise UserError(f"{run} cannot be resumed here: {reason}; type: {resume_command(path)}")
        budget = ["--budget", f"{seconds:g}s"] if seconds is not None else []
        return self.start_process(run, ["resume", str(path), *budget], seconds or budget_seconds(record))

    def stop(self) -> None:
        """Interrupt the run, which saves a checkpoint and ends; it is terminated after a while if it does not."""
        with self._lock:
            mine = self._mine
        if mine is None or mine.process is None or mine.process.poll() is not None:
            other = self.current()
            if other is not None and other.state == "elsewhere":
                raise Conflict(f"another studio started {other.run}; stop it there, or type: kill -INT {other.pid}")
            raise Conflict("nothing is being trained here, so there is nothing to stop")
        if not mine.stopping.is_set():
            mine.stopping.set()
            threading.Thread(target=self.terminate, args=(mine.process,), name="stopping", daemon=True).start()

    def current(self) -> TrainingProcess | None:
        """The run that is being trained in this folder, or the last one that was trained here."""
        with self._lock:
            mine = self._mine
        if mine is not None and mine.state != "ended":
            return mine
        return self._elsewhere() or mine

    def log_tail(self) -> list[str]:
        """The last lines of the training log."""
        try:
            with os.fdopen(_open(self.root / LOG, os.O_RDONLY), "rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - LOG_TAIL_BYTES))
                text = file.read().decode("utf-8", "replace")
        except OSError:
            return []
        plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
        return [line.rpartition("\r")[2][:300] for line in plain.split("\n") if line.strip()][-LOG_TAIL_LINES:]

    def close(self) -> None:
        """End the training run together with the studio, with a checkpoint."""
        with self._lock:
            self._closed, mine = True, self._mine
        if mine is None or mine.process is None or mine.process.poll() is not None:
            return
        path = self.root / mine.run
        print(f"stopping the training of {mine.run}; resume with: {resume_command(path)}", file=sys.stderr, flush=True)
        if mine.stopping.is_set():  # a second interrupt would end it without a checkpoint
            with contextlib.suppress(subprocess.TimeoutExpired):
                mine.process.wait(self.checkpoint_seconds)
        else:
            mine.stopping.set()
            self.terminate(mine.process)

    # ------------------------------------------------------------------ which runs can be resumed

    def why_not_resumable(self, path: Path, record: Mapping[str, Any]) -> str:
        """Why the page cannot resume a run; empty where it can."""
        return why_not_by_files(path, self.root) or why_not_by_needs(needs_of(record), self.root)

    # ------------------------------------------------------------------ processes

    def _check_new(self, run: str) -> None:
        if run in (TEXTS_FOLDER, FACTS_FOLDER):
            raise UserError(f"{run} is a folder of the studio's own; choose another name")
        if not re.fullmatch(RUN_NAME, run):
            raise UserError(
                f"a run's name has letters, digits, dots, dashes and underscores, 64 at most: {run!r}; try my-run"
            )
        if os.path.lexists(self.root / run):
            raise Conflict(f"{run} exists already and is not overwritten; choose another name")

    def start_process(self, run: str, words: Sequence[str], seconds: float | None) -> TrainingProcess:
        """Start `octavo WORDS` as the training process of the folder."""
        training = TrainingProcess(run, "octavo " + shlex.join(words), time.time(), seconds)
        with self._lock:
            if self._closed:
                raise UserError(SHUTTING_DOWN)
            folder = self.texts.make_folder()  # in which no file has the name of a named source
            handle = self._take_lock()
            try:
                with os.fdopen(_open(self.root / LOG, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as log:
                    training.process = subprocess.Popen(
                        [sys.executable, "-P", "-m", "octavo.cli", *words], stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL, stderr=log, cwd=folder,
                        pass_fds=(handle,) if os.name == "posix" else (),
                        start_new_session=True,  # Ctrl-C in the studio's terminal is for the studio, which stops it
                    )  # fmt: skip
                training.pid = training.process.pid
                holder = {"pid": training.pid, "run": run, "command": training.command, "started": training.started,
                          "seconds": seconds}  # fmt: skip
                system.write_whole(handle, json.dumps(holder).encode())
            except OSError as error:
                raise _not_writable(LOG, error) from error
            finally:
                os.close(handle)  # from here on the process alone holds the lock
            if hasattr(os, "setpriority"):
                with contextlib.suppress(OSError):
                    os.setpriority(os.PRIO_PROCESS, training.pid, NICENESS)
            self._mine = training
        threading.Thread(
            target=self._watch, args=(training, training.process), name=f"training {run}", daemon=True
        ).start()
        return training

    def _take_lock(self) -> int:
        try:
            handle = _open(self.root / LOCK, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise _not_writable(LOCK, error) from error
        for _ in range(LOCK_TRIES):
            try:
                system.lock(handle)
                return handle
            except BlockingIOError:
                time.sleep(LOCK_PAUSE_SECONDS)
        os.close(handle)
        other = self._mine if self._mine is not None and self._mine.state != "ended" else self._elsewhere()
        name = other.run if other is not None else "another run"
        raise Conflict(f"{name} is being trained, and one run is trained at a time; stop it, or wait until it ends")

    def _elsewhere(self) -> TrainingProcess | None:
        """The run that another studio trains in this folder: whoever holds the lock is alive."""
        try:
            handle = _open(self.root / LOCK, os.O_RDONLY)
        except OSError:
            return None
        try:
            system.lock(handle, shared=True)
            return None
        except BlockingIOError:
            try:
                holder = json.loads(system.read_at(handle, 10_000, 0))
            except ValueError:
                holder = {}
            holder = holder if isinstance(holder, dict) else {}
            return TrainingProcess(
                str(holder.get("run", ""))[:100], str(holder.get("command", ""))[:1000],
                number_in(holder.get("started")) or 0.0, number_in(holder.get("seconds")),
                pid=int(number_in(holder.get("pid")) or 0),
            )  # fmt: skip
        finally:
            os.close(handle)

    def _watch(self, training: TrainingProcess, process: subprocess.Popen[bytes]) -> None:
        """Wait for the end; a run that takes far too long is stopped."""
        try:
            process.wait(MAX_PROCESS_SECONDS)
        except subprocess.TimeoutExpired:
            if not training.stopping.is_set():
                training.stopping.set()
                self.terminate(process)
        finally:
            training.ended.set()

    def terminate(self, process: subprocess.Popen[bytes]) -> None:
        """Interrupt, then terminate, then kill."""
        waits = {"SIGINT": self.checkpoint_seconds, "SIGTERM": KILL_SECONDS, "SIGKILL": KILL_SECONDS}
        if os.name == "nt":  # which has no gentle one; the last checkpoint stays
            waits = {"SIGTERM": KILL_SECONDS}
        for number, seconds in ((getattr(signal, name), seconds) for name, seconds in waits.items()):
            if process.poll() is not None:
                return
            process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(seconds)
                return


def _open(path: Path, flags: int) -> int:
    """Open one of the studio's own files beside the runs; a link that somebody put there is not followed."""
    return os.open(path, flags | system.NOT_A_LINK | system.NOT_INHERITED, 0o600)


def _not_writable(name: str, error: OSError) -> UserError:
    return UserError(f"cannot train here: {name} is a link or cannot be written ({error.strerror}); delete it")


def ending_in_words(exit_code: int, has_checkpoint: bool) -> str:
    """How a process ended that was not asked to stop, and what to do."""
    number = -exit_code if exit_code < 0 else exit_code - 128
    if not 0 < number < signal.NSIG:
        return "failed; the end of its log says why"
    name = signal.Signals(number).name if number in set(signal.Signals) else "unknown"
    by_system = ", by the system for lack of memory if nobody did it" if name == "SIGKILL" else ""
    remedy = "resume it from its last checkpoint" if has_checkpoint else "nothing was saved; train it again"
    less = " with less beside it" if by_system else ""
    return f"killed by signal {number} ({name}){by_system}; {remedy}{less}"


def resume_command(path: Path) -> str:
    """The command that resumes a run."""
    return f"octavo resume {shlex.quote(str(path))}"


def budget_seconds(record: Mapping[str, Any]) -> float | None:
    """The training budget of a run, where it is in seconds."""
    try:
        budget = Budget.parse(str(value_at(record, "training.loop.budget")))
    except UserError:
        return None
    return budget.amount if budget.kind == "seconds" else None


def number_in(value: Any) -> float | None:
    """The value of a record, where it is a finite number, and not one of a damaged file."""
    return float(value) if type(value) in (int, float) and abs(value) < 1e15 else None  # which excludes nan
