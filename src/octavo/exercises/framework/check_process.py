"""Exercises computed in a process of their own: a check or a figure may take seconds, and must be able to be stopped.

python -m octavo.exercises.framework.check_process reads one line of JSON for each thing to do and answers with one.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

from octavo.errors import UserError
from octavo.exercises.framework.checking import check_part
from octavo.exercises.framework.limits import end_process, start_process
from octavo.exercises.framework.mathml import prose_as_text
from octavo.exercises.framework.registry import chosen

LOOK = 0.1  # seconds between two looks at whether the answer is still wanted
IDLE = 300.0  # seconds without anything to do after which the process ends
POLITE = 10  # how far it stands back behind the pages


class Apart:
    """Has one process, which is started when first needed and does one thing at a time."""

    def __init__(self) -> None:
        self._one = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._at_end: Callable[[], object] = lambda: None

    def warm(self) -> None:
        """Start the process, where it does not run: soon it will be wanted."""
        if self._one.acquire(blocking=False):
            try:
                self._started()
            finally:
                self._one.release()

    def check(self, exercise: str, part: str, wanted: Callable[[], None]) -> dict[str, Any]:
        """The evidence for one claim; `wanted` is called while waiting, and may raise to stop it."""
        return self._ask({"do": "check", "exercise": exercise, "part": part}, wanted)

    def figure(self, exercise: str, wanted: Callable[[], None]) -> str:
        """An exercise's figure as HTML, empty where it has none."""
        return str(self._ask({"do": "figure", "exercise": exercise}, wanted)["figure"])

    def _ask(self, what: dict[str, Any], wanted: Callable[[], None]) -> dict[str, Any]:
        while not self._one.acquire(timeout=LOOK):
            wanted()
        try:
            reply: dict[str, Any] = json.loads(self._reply(what, wanted))
        except BaseException:  # stopped half-way: what it would still say belongs to nobody
            self.end()
            raise
        finally:
            self._one.release()
        if "refused" in reply:
            raise UserError(reply["refused"])
        return reply

    def _reply(self, what: dict[str, Any], wanted: Callable[[], None]) -> bytes:
        for _ in range(2):  # it may just have ended by itself, for having had nothing to do
            process = self._started()
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                process.stdin.write(json.dumps(what).encode() + b"\n")
                process.stdin.flush()
            except BrokenPipeError:
                self.end()
                continue
            said = b""
            while not said.endswith(b"\n"):
                wanted()
                if select.select([process.stdout], [], [], LOOK)[0]:
                    piece = os.read(process.stdout.fileno(), 1 << 16)
                    if not piece:
                        break
                    said += piece
            if said.endswith(b"\n"):
                return said
            self.end()
        raise UserError("the process that computes exercises ended without an answer; try again")

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self.end()
            quiet = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
            self._process = start_process(
                [sys.executable, "-P", "-m", "octavo.exercises.framework.check_process"], quiet
            )
            self._at_end = weakref.finalize(self, end_process, self._process)
        return self._process

    def end(self) -> None:
        """End the process, if there is one."""
        self._at_end()
        self._process = None


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    """Do one thing."""
    try:
        [exercise] = chosen([asked["exercise"]])
        if asked["do"] == "figure":
            return {"figure": exercise.figure() if exercise.figure else ""}
        part = exercise.part(asked["part"])
        found, problem = check_part(part)
        if found is None:
            return {"id": part.id, "evidence": part.kind, "holds": False, "problem": problem}
        return {"id": part.id, "evidence": part.kind, **found._asdict(), "note": prose_as_text(found.note)}
    except UserError as error:
        return {"refused": str(error)}


def main() -> None:
    os.nice(POLITE)
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what an exercise might print is no reply
    chosen(())  # while nothing is asked yet
    while select.select([sys.stdin], [], [], IDLE)[0]:
        line = sys.stdin.readline()
        if not line:
            return
        print(json.dumps(answer(json.loads(line))), file=replies, flush=True)


if __name__ == "__main__":
    main()
