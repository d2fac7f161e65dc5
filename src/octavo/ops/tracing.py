"""Intermediate values made visible: models `tap` attention weights, gates and hidden states, `trace` records them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

_traced: ContextVar[dict[str, list[Tensor]] | None] = ContextVar("traced", default=None)


@contextmanager
def trace() -> Iterator[dict[str, list[Tensor]]]:
    """Record the intermediate values that models `tap` inside it: by name, in the order they came."""
    recorded: dict[str, list[Tensor]] = {}
    token = _traced.set(recorded)
    try:
        yield recorded
    finally:
        _traced.reset(token)


def tap(name: str, value: Tensor) -> Tensor:
    """The value itself; inside `trace` it is also recorded under the name."""
    recorded = None if torch.compiler.is_compiling() else _traced.get()  # a compiler cannot follow that
    if recorded is not None:
        recorded.setdefault(name, []).append(value)
    return value


def is_tracing() -> bool:
    """Whether values are recorded: then a path that has them must be taken."""
    return not torch.compiler.is_compiling() and _traced.get() is not None
