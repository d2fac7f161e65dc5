"""--quiet and --verbose, which every verb takes: how much is said on standard error beside results."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr

from octavo.errors import UserError
from octavo.io.progress import VERBOSE

QUIET_FLAG, VERBOSE_FLAG = "--quiet", "--verbose"


def take_verbosity(argv: list[str]) -> tuple[list[str], bool, bool]:
    """The words without --quiet and --verbose, and whether each was there."""
    quiet, verbose = QUIET_FLAG in argv, VERBOSE_FLAG in argv
    if quiet and verbose:
        raise UserError(f"{QUIET_FLAG} and {VERBOSE_FLAG} contradict each other; choose one")
    return [word for word in argv if word not in (QUIET_FLAG, VERBOSE_FLAG)], quiet, verbose


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
