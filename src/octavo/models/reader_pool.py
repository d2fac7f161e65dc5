"""Readers of a model whose state is the tokens read: what was learnt is a function of them, held in tables that wait
to be read on from, so that nothing is read twice where a state follows another one.

B batch, T time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray


class TokenReader(Protocol):
    """Tables that have read tokens, and can forget the last ones."""

    @property
    def history_T(self) -> NDArray[np.int32]:  # noqa: N802
        """The tokens read so far."""

    @property
    def undoable(self) -> int:
        """How many tokens can be taken back."""

    def read(self, x_T: NDArray[Any]) -> object:
        """Read tokens."""

    def undo(self, count: int) -> None:
        """Forget the last tokens as if they had not been read."""


R = TypeVar("R", bound=TokenReader)


class ReaderPool(Generic[R]):
    """Readers that wait; `fresh` makes one that has read nothing."""

    def __init__(self, fresh: Callable[[], R], most: int) -> None:
        self.fresh, self.most = fresh, most
        self.waiting: list[R] = []

    def readers_at(self, x_BT: NDArray[np.int32]) -> list[R]:
        """A reader of its own for each row that has read just what the row says; to be released after use."""
        return [self._reader_at(x_T) for x_T in x_BT]

    def release(self, readers: Sequence[R]) -> None:
        """Hand readers back, for states that follow."""
        self.waiting = [*self.waiting, *readers][-max(self.most, len(readers)) :]

    def _reader_at(self, x_T: NDArray[np.int32]) -> R:
        """The reader that needs to read least, taken out of those that wait."""
        waiting = list(self.waiting)
        shared = [shared_tokens(reader.history_T, x_T) for reader in waiting]
        for i in sorted(range(len(waiting)), key=lambda i: -shared[i]):
            reader = waiting[i]
            length = len(reader.history_T)
            if shared[i] < max(0, length - reader.undoable) or (shared[i] == 0 and length):
                continue
            try:
                self.waiting.remove(reader)
            except ValueError:  # another thread was quicker
                continue
            reader.undo(length - shared[i])
            reader.read(x_T[shared[i] :])
            return reader
        reader = self.fresh()
        reader.read(x_T)
        return reader


def shared_tokens(one_T: NDArray[np.int32], other_T: NDArray[np.int32]) -> int:
    """How many tokens two texts share, counted from the first."""
    most = min(len(one_T), len(other_T))
    differs = np.flatnonzero(one_T[:most] != other_T[:most])
    return int(differs[0]) if len(differs) else most
