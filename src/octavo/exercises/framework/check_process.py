"""Checks and figures computed in a separate process, because they may take seconds and must be cancellable.

python -m octavo.exercises.framework.check_process reads requests as lines of JSON and answers each with one line.
"""

from __future__ import annotations

import json
import os
import select
import sys
import threading
from collections.abc import Callable
from typing import Any

from octavo.errors import UserError
from octavo.exercises.framework.checking import check_part
from octavo.exercises.framework.limits import POLL_SECONDS, JsonProcess
from octavo.exercises.framework.mathml import prose_as_text
from octavo.exercises.framework.registry import select_exercises

IDLE_SECONDS = 300.0  # without a request, after which the process ends
NICENESS = 10  # so that pages stay responsive while it computes


class CheckProcess(JsonProcess):
    """Client of one process, which is started on the first request and serves one request at a time."""

    def __init__(self) -> None:
        one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        super().__init__("octavo.exercises.framework.check_process", environment=one_thread)
        self._lock = threading.Lock()

    def warm_up(self) -> None:
        """Start the process if it does not run, so that the next request need not wait for its imports."""
        if self._lock.acquire(blocking=False):
            try:
                self.start()
            finally:
                self._lock.release()

    def check(self, exercise: str, part: str, raise_if_cancelled: Callable[[], None]) -> dict[str, Any]:
        """The evidence for one claim; `raise_if_cancelled` is called while waiting, and may raise to stop it."""
        return self._ask({"do": "check", "exercise": exercise, "part": part}, raise_if_cancelled)

    def figure(self, exercise: str, raise_if_cancelled: Callable[[], None]) -> str:
        """An exercise's figure as HTML, empty if it has none."""
        return str(self._ask({"do": "figure", "exercise": exercise}, raise_if_cancelled)["figure"])

    def _ask(self, request: dict[str, Any], raise_if_cancelled: Callable[[], None]) -> dict[str, Any]:
        while not self._lock.acquire(timeout=POLL_SECONDS):
            raise_if_cancelled()
        try:
            reply = self._reply(request, raise_if_cancelled)
        except BaseException:  # a cancelled request must not leave its reply for the next one
            self.end()
            raise
        finally:
            self._lock.release()
        if "refused" in reply:
            raise UserError(reply["refused"])
        return reply

    def _reply(self, request: dict[str, Any], raise_if_cancelled: Callable[[], None]) -> dict[str, Any]:
        for _ in range(2):  # the process may just have ended because it was idle
            try:
                return self.request(request, poll=raise_if_cancelled)
            except (BrokenPipeError, json.JSONDecodeError):
                self.end()
        raise UserError("the process that computes exercises ended without an answer; try again")


def answer_request(request: dict[str, Any]) -> dict[str, Any]:
    """Compute the evidence or the figure that one request asks for."""
    try:
        [exercise] = select_exercises([request["exercise"]])
        if request["do"] == "figure":
            return {"figure": exercise.figure() if exercise.figure else ""}
        part = exercise.part(request["part"])
        evidence, problem = check_part(part)
        if evidence is None:
            return {"id": part.id, "evidence": part.kind, "holds": False, "problem": problem}
        return {"id": part.id, "evidence": part.kind, **evidence._asdict(), "note": prose_as_text(evidence.note)}
    except UserError as error:
        return {"refused": str(error)}


def main() -> None:
    os.nice(NICENESS)
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what an exercise prints must not be read as a reply
    select_exercises(())  # import everything before the first request
    while select.select([sys.stdin], [], [], IDLE_SECONDS)[0]:
        line = sys.stdin.readline()
        if not line:
            return
        print(json.dumps(answer_request(json.loads(line))), file=replies, flush=True)


if __name__ == "__main__":
    main()
