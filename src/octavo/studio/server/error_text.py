"""The words of an error for a client: one line and a status, without absolute paths or internals.

A user's mistake has its own words. Anything else is logged on the server under a short id, and the client gets
the id: the words of a library may hold paths, values of others, or nothing that helps.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
from pathlib import Path
from typing import NamedTuple

from octavo.errors import UserError
from octavo.studio.server.model_cache import Conflict, NotFound
from octavo.studio.server.scheduler import Busy, RequestTimeout, WorkFailed
from octavo.studio.server.worker_pool import WorkerFailed

LOG = logging.getLogger("octavo.studio")
MAX_MESSAGE_CHARACTERS = 1000
ERROR_STATUS: dict[type[Exception], int] = {  # of users' mistakes; the rest are 400
    NotFound: 404, Conflict: 409, Busy: 503, RequestTimeout: 503,
}  # fmt: skip
# Two names or more after a slash, where no word, address or relative path goes on from before.
ABSOLUTE_PATH = re.compile(r"(?<![\w.~/\\:>-])(?:[A-Za-z]:)?[/\\](?:[^\s/\\'\"`;,()<>|]+[/\\])+([^\s/\\'\"`;,()<>|]*)")
OWN_ADDRESSES = ("/api/", "/web/")


class ErrorAnswer(NamedTuple):
    """The status and the words of an error."""

    status: int
    message: str


def error_answer(error: BaseException, root: Path) -> ErrorAnswer:
    """The answer where an exception was raised; `root` is the folder that its names are relative to."""
    if isinstance(error, WorkFailed) and error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, WorkerFailed):
        return ErrorAnswer(error.status, str(error))
    if isinstance(error, UserError):
        status = next((status for kind, status in ERROR_STATUS.items() if isinstance(error, kind)), 400)
        return ErrorAnswer(status, public_line(str(error), root))
    if isinstance(error, MemoryError):
        return ErrorAnswer(503, "this takes more memory than there is; ask for less, or close other programs")
    if isinstance(error, RecursionError):
        return ErrorAnswer(400, "this is nested too deeply; send it flatter, or choose another run")
    number = secrets.token_hex(4)
    LOG.error("error %s", number, exc_info=error)
    if type(error).__module__ == "pyo3_runtime":  # a panic of a library in Rust, on a file or a text it did not expect
        return ErrorAnswer(400, f"a library could not handle this run's files or this text (error {number}, which the "
                                "terminal explains); try another text, or train the run again")  # fmt: skip
    return ErrorAnswer(
        500, f"that was a bug in octavo, not your mistake (error {number}); the terminal has the details"
    )


def public_line(text: str, root: Path) -> str:
    """The text on one line; paths are relative to the folder of the runs, and others are names alone."""
    line = " ".join(text.split())[:MAX_MESSAGE_CHARACTERS]
    if root.parent != root:
        line = line.replace(f"{root}{os.sep}", "").replace(str(root), "the runs' folder")
    return ABSOLUTE_PATH.sub(_name_alone, line)


def public_command(command: str, root: Path) -> str:
    """A command as one would type it where the studio was started; of a folder elsewhere, only the name is shown."""
    return ABSOLUTE_PATH.sub(_name_alone, command.replace(str(root), shown_folder(root)).replace(" ./", " "))


def shown_folder(root: Path) -> str:
    """The folder of the runs as seen from where the studio was started, or its name alone where it lies elsewhere."""
    here = Path.cwd().resolve()
    return root.relative_to(here).as_posix() if root.is_relative_to(here) else root.name


def _name_alone(match: re.Match[str]) -> str:
    whole = match[0]
    return whole if whole.startswith(OWN_ADDRESSES) else match[1] or re.split(r"[/\\]", whole.rstrip("/\\"))[-1]
