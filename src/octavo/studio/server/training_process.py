"""A training run that the studio starts: one at a time in a folder, as a process of its own, which can be stopped.

The process holds a lock on a file beside the runs for as long as it lives, so a second studio on the same folder, or
the next one after a crash, knows of it; a lock whose process is gone is gone with it. Stopped, it saves a checkpoint.
"""

from __future__ import annotations

import contextlib
import fcntl
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

from octavo.datasets import sources
from octavo.errors import UserError
from octavo.io.run_folder import CONFIG, STATE
from octavo.models import MODELS
from octavo.studio.server.texts import FACTS, FOLDER, Texts
from octavo.studio.server.training_forms import MOST_SECONDS, Value, form_of
from octavo.tasks.run_rows import value_at
from octavo.text import TOKENIZERS
from octavo.training.checkpoint import FILE
from octavo.training.schedule import Budget

LOCK, LOG = ".training.lock", ".training.log"
NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"  # of a run that is started here
GRACE = 40.0  # seconds that a run has to save its checkpoint, before it is ended
LAST = 5.0  # seconds between ending and killing
ALL_IN_ALL = 2 * MOST_SECONDS  # seconds after which a run is stopped, whatever it does
TRIES, PAUSE = 10, 0.03  # another studio may just be looking at the lock
NICER = 5  # the pages come first
LOG_BYTES, LINES = 8192, 12  # of the log's end that are shown


class Occupied(UserError):
    """What is going on, or what is there, does not allow it."""


@dataclass
class Training:
    """A run that was started here, or, without a process, that another studio started."""

    run: str
    command: str  # as one would type it
    began: float
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


class Trainings:
    """The one training run of a folder."""

    def __init__(self, root: Path, device: str = "cpu", grace: float = GRACE) -> None:
        self.root, self.device, self.grace = root, device, grace
        self.texts = Texts(root)
        self._lock = threading.Lock()
        self._mine: Training | None = None
        self._closed = False

    # ------------------------------------------------------------------ asked from the page

    def start(self, model: str, text: str, run: str, seconds: float, settings: Mapping[str, Value]) -> Training:
        """Train a new run; one that is there is not written over."""
        found, form = self.texts.find(text), form_of(model)
        flags = form.flags(settings)
        self._check_new(run)
        budget = ["--budget", f"{seconds:g}s"] if form.steps else []
        words = ["train", model, found.source, *flags, *budget, "--out", str(self.root / run), "--device", self.device]
        return self._begin(run, words, seconds if form.steps else None)

    def resume(self, run: str, path: Path, record: Mapping[str, Any], seconds: float | None = None) -> Training:
        """Go on with a run; `seconds` are those of all its training."""
        if why := self.why_not_resumed(path, record):
            raise UserError(f"{run} cannot be resumed here: {why}; type: {resuming(path)}")
        budget = ["--budget", f"{seconds:g}s"] if seconds is not None else []
        return self._begin(run, ["resume", str(path), *budget], seconds or seconds_of(record))

    def stop(self) -> None:
        """Ask the run to save a checkpoint and end; it is ended after a while if it does not."""
        with self._lock:
            mine = self._mine
        if mine is None or mine.process is None or mine.process.poll() is not None:
            other = self.current()
            if other is not None and other.state == "elsewhere":
                raise Occupied(f"another studio started {other.run}; stop it there, or type: kill -INT {other.pid}")
            raise Occupied("nothing is being trained here, so there is nothing to stop")
        if not mine.stopping.is_set():
            mine.stopping.set()
            threading.Thread(target=self._end, args=(mine.process,), name="stopping", daemon=True).start()

    def current(self) -> Training | None:
        """What is being trained in this folder, or was the last to be trained here."""
        with self._lock:
            mine = self._mine
        if mine is not None and mine.state != "ended":
            return mine
        return self._elsewhere() or mine

    def lines(self) -> list[str]:
        """The last lines that training wrote."""
        try:
            with os.fdopen(_open(self.root / LOG, os.O_RDONLY), "rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - LOG_BYTES))
                told = file.read().decode("utf-8", "replace")
        except OSError:
            return []
        plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", told)
        return [line.rpartition("\r")[2][:300] for line in plain.split("\n") if line.strip()][-LINES:]

    def close(self) -> None:
        """The studio ends: so does what it trains, with a checkpoint."""
        with self._lock:
            self._closed, mine = True, self._mine
        if mine is None or mine.process is None or mine.process.poll() is not None:
            return
        path = self.root / mine.run
        print(f"stopping the training of {mine.run}; go on with: {resuming(path)}", file=sys.stderr, flush=True)
        if mine.stopping.is_set():  # it was asked already, and a second time would end it at once
            with contextlib.suppress(subprocess.TimeoutExpired):
                mine.process.wait(self.grace)
        else:
            mine.stopping.set()
            self._end(mine.process)

    # ------------------------------------------------------------------ what may be resumed

    def why_not_resumed(self, path: Path, record: Mapping[str, Any]) -> str:
        """Why the page cannot go on with a run; empty where it can. A record is not trusted with other files."""
        if path == self.root:
            return "the studio's folder is the run itself"
        if record.get("task") or "facts" in record or not _learns_by_steps(record):
            return "only language models that learn step by step are"
        if not (path / STATE / FILE).is_file():
            return "it has no checkpoint"
        if not all(self._is_below(file) for file in (*path.iterdir(), *(path / STATE).iterdir())):
            return "a link in it leads out of this folder"
        named = [*_list(record, "corpus.source"), *_list(record, "corpus.valid_source")]
        if not named or not all(self._may_read(one) for one in named):
            return "its text is neither a named source on this machine nor below this folder"
        tokenizer = str(value_at(record, "training.text.tokenizer"))
        if tokenizer not in TOKENIZERS and not self._may_read(tokenizer):
            return "its tokenizer was read from a file that is not below this folder"
        return ""

    def _may_read(self, source: str) -> bool:
        if source in sources.SOURCES:
            return sources.SOURCES[source].kind == "text" and sources.where(source) is not None
        return Path(source).is_absolute() and self._is_below(Path(source))

    def _is_below(self, path: Path) -> bool:
        return path.resolve().is_relative_to(self.root)

    # ------------------------------------------------------------------ processes

    def _check_new(self, run: str) -> None:
        if run in (FOLDER, FACTS):
            raise UserError(f"{run} is a folder of the studio's own; choose another name")
        if not re.fullmatch(NAME, run):
            raise UserError(
                f"a run's name has letters, digits, dots, dashes and underscores, 64 at most: {run!r}; try my-run"
            )
        if (self.root / CONFIG).exists():
            raise UserError("this folder is itself a run; start the studio with the folder that runs are in")
        if os.path.lexists(self.root / run):
            raise Occupied(f"there is something called {run} already, which is not written over; choose another name")

    def _begin(self, run: str, words: Sequence[str], seconds: float | None) -> Training:
        began = Training(run, "octavo " + shlex.join(words), time.time(), seconds)
        with self._lock:
            if self._closed:
                raise UserError("the studio is ending; start it again")
            folder = self.texts.ready()  # where no file has the name of a named source
            handle = self._take_lock()
            try:
                with os.fdopen(_open(self.root / LOG, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as log:
                    began.process = subprocess.Popen(
                        [sys.executable, "-P", "-m", "octavo.cli", *words], stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL, stderr=log, cwd=folder, pass_fds=(handle,),
                        start_new_session=True,  # Ctrl-C in the studio's terminal is for the studio, which stops it
                    )  # fmt: skip
                began.pid = began.process.pid
                told = {"pid": began.pid, "run": run, "command": began.command, "began": began.began,
                        "seconds": seconds}  # fmt: skip
                os.ftruncate(handle, 0)
                os.pwrite(handle, json.dumps(told).encode(), 0)
            except OSError as error:
                raise _not_ours(LOG, error) from error
            finally:
                os.close(handle)  # from here on the process alone holds the lock
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, began.pid, NICER)
            self._mine = began
        threading.Thread(target=self._watch, args=(began, began.process), name=f"training {run}", daemon=True).start()
        return began

    def _take_lock(self) -> int:
        try:
            handle = _open(self.root / LOCK, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise _not_ours(LOCK, error) from error
        for _ in range(TRIES):
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return handle
            except BlockingIOError:
                time.sleep(PAUSE)
        os.close(handle)
        other = self._mine if self._mine is not None and self._mine.state != "ended" else self._elsewhere()
        name = other.run if other is not None else "another run"
        raise Occupied(f"{name} is being trained, and it is one at a time; stop it, or wait until it ends")

    def _elsewhere(self) -> Training | None:
        """What another studio trains in this folder: whoever holds the lock is alive."""
        try:
            handle = _open(self.root / LOCK, os.O_RDONLY)
        except OSError:
            return None
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return None
        except BlockingIOError:
            told = _read_lock(handle)
            return Training(
                str(told.get("run", ""))[:100], str(told.get("command", ""))[:1000], _number(told.get("began")) or 0.0,
                _number(told.get("seconds")), pid=int(_number(told.get("pid")) or 0),
            )  # fmt: skip
        finally:
            os.close(handle)

    def _watch(self, training: Training, process: subprocess.Popen[bytes]) -> None:
        """Wait for the end; what takes far too long is stopped."""
        try:
            process.wait(ALL_IN_ALL)
        except subprocess.TimeoutExpired:
            if not training.stopping.is_set():
                training.stopping.set()
                self._end(process)
        finally:
            training.ended.set()

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """Ask, then end, then kill."""
        for number, patience in ((signal.SIGINT, self.grace), (signal.SIGTERM, LAST), (signal.SIGKILL, LAST)):
            if process.poll() is not None:
                return
            process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(patience)
                return


def _open(path: Path, flags: int) -> int:
    """A file of ours beside the runs; a link that somebody put there is not followed."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _not_ours(name: str, error: OSError) -> UserError:
    return UserError(f"cannot train here: {name} is a link or cannot be written ({error.strerror}); delete it")


def resuming(path: Path) -> str:
    """The command that goes on with a run."""
    return f"octavo resume {shlex.quote(str(path))}"


def seconds_of(record: Mapping[str, Any]) -> float | None:
    """The budget of a run, where it is in seconds."""
    try:
        budget = Budget.parse(str(value_at(record, "training.loop.budget")))
    except UserError:
        return None
    return budget.amount if budget.kind == "seconds" else None


def _list(record: Mapping[str, Any], place: str) -> list[str]:
    found = value_at(record, place)
    return [str(one) for one in found] if isinstance(found, list) else []


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and abs(value) < 1e15 else None


def _read_lock(handle: int) -> dict[str, Any]:
    try:
        told = json.loads(os.pread(handle, 10_000, 0))
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def _learns_by_steps(record: Mapping[str, Any]) -> bool:
    spec = MODELS.get(str(record.get("model")))
    return spec is not None and spec.trained_by_gradient
