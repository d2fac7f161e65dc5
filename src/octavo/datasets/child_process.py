"""Downloading, unpacking and other programs, in a process that can be ended: python -P child_process.py LIMITS WORK ...

It is run by its path, with nothing but Python's own library, so that it starts fast and imports nothing of the user's.
It ends when its parent does, however that ends: its standard input is a pipe from it. What went wrong is one line on
standard error and exit code 3, or 4 where the disk takes no more; anything else that ends it is pip's or the program's.
"""

from __future__ import annotations

import ctypes
import errno
import http.client
import json
import os
import runpy
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

REFUSED, NO_ROOM = 3, 4  # exit codes where standard error has a line that says why
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
SECONDS_WITHOUT_AN_ANSWER = 30.0
CHUNK = 2**16
PR_SET_PDEATHSIG = 1  # of Linux's prctl: the signal that comes when the parent ends


def end_with_parent() -> None:
    """End when the parent has ended: the kernel's signal where there is one, and the end of our input elsewhere."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    threading.Thread(target=_wait_for_end, daemon=True).start()


def _wait_for_end() -> None:
    with suppress(OSError):
        while os.read(0, 1):
            pass
    os._exit(REFUSED)


def set_limits(memory: int, file_bytes: int, seconds: int) -> None:
    """Bound memory, the size of every file, and time, where the system can."""
    try:
        import resource
    except ImportError:  # Windows; the parent still bounds time and what is written
        return
    for kind, most in (("RLIMIT_AS", memory), ("RLIMIT_FSIZE", file_bytes), ("RLIMIT_CPU", seconds)):
        number = getattr(resource, kind, None)
        if number is not None:
            with suppress(OSError, ValueError):
                _, hard = resource.getrlimit(number)
                most = most if hard == resource.RLIM_INFINITY else min(most, hard)
                resource.setrlimit(number, (most, most))


def refuse(reason: str, code: int = REFUSED) -> NoReturn:
    """End with a reason."""
    with suppress(OSError):  # on a full disk there is no room for it either
        print(" ".join(reason.split()), file=sys.stderr, flush=True)
    os._exit(code)


def fetch(url: str, out: str, most: int) -> None:
    """Write what a URL serves, at most so many bytes."""
    request = urllib.request.Request(url, headers={"User-Agent": "octavo"})
    done, length = 0, 0
    try:
        with urllib.request.urlopen(request, timeout=SECONDS_WITHOUT_AN_ANSWER) as answer, open(out, "wb") as file:
            length = int(answer.headers.get("Content-Length") or 0)
            if length > most:
                refuse(f"{url} has {length:,} bytes, more than the {most:,} that were expected")
            while chunk := answer.read(CHUNK) if url.startswith("file:") else answer.read1(CHUNK):
                done += len(chunk)
                if done > most:
                    refuse(f"{url} is longer than the {most:,} bytes that were expected")
                file.write(chunk)
                file.flush()  # whoever watches sees how far it is
    except urllib.error.HTTPError as error:
        refuse(f"{url} answered {error.code} {error.reason}")
    except (OSError, http.client.HTTPException, ValueError) as error:  # URLError and time-outs are OSErrors
        if isinstance(error, OSError) and error.errno in FULL:
            refuse(error.strerror or str(error), NO_ROOM)
        if done:
            refuse(f"{url} broke off after {done:,} bytes: {getattr(error, 'reason', error)}")
        refuse(f"{url} cannot be reached: {getattr(error, 'reason', error)}")
    if done < length:
        refuse(f"{url} broke off after {done:,} of {length:,} bytes")


def unpack(**how: Any) -> None:
    """Make a file of what has arrived."""
    functions = runpy.run_path(str(Path(__file__).with_name("unpack.py")))
    try:
        functions["make_file"](**how)
    except ValueError as error:
        refuse(str(error))
    except MemoryError:
        refuse("it takes more memory than it should")
    except OSError as error:
        refuse(error.strerror or str(error), NO_ROOM if error.errno in FULL else REFUSED)


def run_program(folder: str, *words: str) -> NoReturn:
    """Become another program, in a folder; the limits and, on Linux, the end with our parent go along."""
    os.chdir(folder)
    try:
        if os.name == "posix":
            os.execv(words[0], words)
        os._exit(subprocess.call(words))
    except OSError as error:
        refuse(f"{words[0]} cannot be run: {error.strerror}")


def main(limits: str, work: str, *words: str) -> None:
    """Do one thing."""
    end_with_parent()
    set_limits(*map(int, limits.split(",")))
    if work == "program":
        run_program(*words)
    elif work == "pip":
        sys.argv = ["pip", *words]
        runpy.run_module("pip", run_name="__main__", alter_sys=True)
    elif work == "fetch":
        fetch(words[0], words[1], int(words[2]))
    else:
        unpack(**json.loads(words[0]))


if __name__ == "__main__":
    main(*sys.argv[1:])
