"""What every verb takes: --quiet and --verbose, how much is said on standard error beside results; --max-bytes."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr

from octavo.errors import UserError
from octavo.io.limits import FLAG
from octavo.io.progress import VERBOSE

QUIET_FLAG, VERBOSE_FLAG = "--quiet", "--verbose"


def take_verbosity(argv: list[str]) -> tuple[list[str], bool, bool]:
    """The words without --quiet and --verbose, and whether each was there."""
    quiet, verbose = QUIET_FLAG in argv, VERBOSE_FLAG in argv
    if quiet and verbose:
        raise UserError(f"{QUIET_FLAG} and {VERBOSE_FLAG} contradict each other; choose one")
    return [word for word in argv if word not in (QUIET_FLAG, VERBOSE_FLAG)], quiet, verbose


def take_max_bytes(argv: list[str]) -> tuple[list[str], str | None]:
    """The words without --max-bytes SIZE, and the size."""
    words, size, at = list[str](), None, 0
    while at < len(argv):
        flag, equals, value = argv[at].partition("=")
        if flag != FLAG:
            words.append(argv[at])
        elif equals:
            size = value
        elif at + 1 < len(argv):
            at, size = at + 1, argv[at + 1]
        else:
            raise UserError(f"{FLAG} takes a size, such as {FLAG} 40GB")
        at += 1
    return words, size


@contextmanager
def with_verbosity(quiet: bool, verbose: bool) -> Iterator[None]:
    """Within it, notes and progress are left out, or more is said; errors are printed either way."""
    if quiet:
        said = io.StringIO()
        try:
            with redirect_stderr(said):
                yield
        except SystemExit as stop:
            if stop.code:  # what is wrong with the flags
                sys.stderr.write(said.getvalue())
            raise
        return
    before, began = VERBOSE.set(verbose), time.perf_counter()
    try:
        yield
    finally:
        VERBOSE.reset(before)
        if verbose:
            seconds, cpu = time.perf_counter() - began, time.process_time()
            print(f"octavo: {seconds:.1f} s, {cpu:.1f} s of computing in this process", file=sys.stderr)
