"""Loops over numpy arrays, compiled by numba where it is installed (`pip install 'octavo[fast]'`).

Elsewhere the same lines run as plain Python: much slower, with the same results. Such a loop takes numbers, arrays and
named tuples of arrays, and calls nothing but other such loops and `math`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

HAS_NUMBA = find_spec("numba") is not None


def compiled(loop: F) -> F:
    """The loop, compiled when it is first called. No reordering of sums is allowed, so both forms agree.

    Division by zero gives infinity, as numpy has it: a check for it would keep the compiler from dividing in parallel.
    """
    if not HAS_NUMBA:
        return loop
    import numba

    try:
        made: Any = numba.njit(cache=True, fastmath=False, error_model="numpy")(loop)
    except RuntimeError:  # neither the package's folder nor the user's cache can be written
        made = numba.njit(fastmath=False, error_model="numpy")(loop)
    return made  # type: ignore[no-any-return]
