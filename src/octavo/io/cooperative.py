"""Long looks are cut into short parts, so that others get their turn in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TypeVar

T = TypeVar("T")
Turn = Callable[[], AbstractContextManager[None]]  # entered for each part of the computing; it may end it by raising


def in_turns(items: Iterator[T], turn: Turn) -> Iterator[T]:
    """What an iterator gives, each item worked out within a turn."""
    while True:
        with turn():
            try:
                item = next(items)
            except StopIteration:
                return
        yield item
