"""A process that downloads, unpacks or is another program, within limits of time, memory and disk; it does not outlive
its parent, other programs on Linux only.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from octavo.datasets import child_process

ANSWER_SECONDS = 60.0  # until the first bytes come, and for everything that takes no time for each byte
SLOWEST_BYTES_PER_SECOND = 1 << 14  # of a download, on average; 98 MB may take 100 minutes
UNPACK_SECONDS = 300.0
MEMORY_BYTES = 1 << 30
EXTRA_BYTES = 1 << 24  # beside what is downloaded: pip's messages, the index's page
MESSAGE_BYTES = 1 << 24  # that are read of what a process says
LOOK_SECONDS = 0.1  # between two looks at how much has arrived
OUTPUT = "output.txt"


class LimitError(Exception):
    """A process was ended because it took too much; the text says of what."""


class Finished(NamedTuple):
    """How a process ended, and what it said on standard output and standard error."""

    code: int
    output: str


def download_seconds(size: int) -> float:
    """How long so many bytes may take to arrive."""
    return ANSWER_SECONDS + size / SLOWEST_BYTES_PER_SECOND


def run_bounded(
    words: Sequence[str], folder: Path, size: int, seconds: float, watch: Callable[[int], None] = lambda count: None,
    memory: int = 0,
) -> Finished:  # fmt: skip
    """Run `child_process` with these words; what it writes, `size` bytes or a little more, must go into `folder`.

    `watch` gets now and then how many bytes lie there; `memory` is in bytes, 0: MEMORY_BYTES. LimitError where a limit
    is reached, OSError where the disk is full.
    """
    most = size + EXTRA_BYTES
    limits = f"{memory or MEMORY_BYTES},{most},{int(seconds) + 1}"
    command = [sys.executable, "-P", str(Path(child_process.__file__)), limits, *words]
    # What pip downloads and unpacks goes through its temporary folder, which is so deleted with ours.
    places = {name: str(folder) for name in ("TMPDIR", "TEMP", "TMP")}
    output = folder / OUTPUT
    with open(output, "wb") as file:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=file, stderr=subprocess.STDOUT, env={**os.environ, **places},
            start_new_session=os.name == "posix",
        )  # fmt: skip
    try:
        until = time.monotonic() + seconds
        while process.poll() is None:
            written = bytes_in(folder)
            watch(written)
            if time.monotonic() > until:
                raise LimitError(f"it took longer than {seconds:,.0f} s")
            if written > 2 * most:  # pip moves what has arrived from one folder to another
                raise LimitError(f"it wrote more than the {size:,} bytes that were expected")
            with suppress(subprocess.TimeoutExpired):
                process.wait(LOOK_SECONDS)
    finally:
        _end(process)
    with open(output, "rb") as file:
        said = file.read(MESSAGE_BYTES)
    words = said.decode(errors="replace")
    full = (reason for reason in map(os.strerror, (errno.ENOSPC, errno.EDQUOT)) if reason in words)
    if process.returncode == child_process.NO_ROOM or (process.returncode and next(full, "")):
        raise OSError(errno.ENOSPC, words.strip().splitlines()[-1] if words.strip() else os.strerror(errno.ENOSPC))
    return Finished(process.returncode, words)


def bytes_in(folder: Path) -> int:
    """The size of all files below a folder, of which some may go meanwhile."""
    count = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                count += os.lstat(os.path.join(root, name)).st_size
    return count


def _end(process: subprocess.Popen[bytes]) -> None:
    """See to it that the process, and what it has started, is no more."""
    assert process.stdin is not None
    if process.poll() is None:
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL) if os.name == "posix" else process.kill()
    process.wait()
    process.stdin.close()
