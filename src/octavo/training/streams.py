"""A text as parallel streams, read window by window: each stream goes on where its last window ended.

N tokens, B streams, T tokens of a window. What a step reads is a function of the step alone, so that a run can be
resumed at any step, by any number of processes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

RESTARTS = 1 / 32  # of the windows: a model must also learn to find its way into a text from nothing


class Window(NamedTuple):
    """What one step reads: the first T columns go in, the last T are to be predicted."""

    x_BT: Tensor  # B streams of T + 1 tokens
    fresh: bool  # the streams start anew, with begin in front, so no state is carried into this window
    begin: int

    @property
    def rows(self) -> int:
        return len(self.x_BT)

    @property
    def targets(self) -> float:
        """The begin token is never predicted."""
        return float((self.x_BT[:, 1:] != self.begin).sum())

    @property
    def examples(self) -> int:
        return self.x_BT[:, 1:].numel()

    def part(self, start: int, end: int, device: torch.device) -> Tensor:
        return self.x_BT[start:end].to(device, non_blocking=True)


@dataclass(frozen=True)
class Streams:
    """B streams over the text; every epoch cuts it at other places, and now and then all streams start anew."""

    x_N: NDArray[Any]
    begin: int
    batch_size: int
    sequence_length: int
    seed: int

    @classmethod
    def fitting(cls, x_N: NDArray[Any], begin: int, batch_size: int, sequence_length: int, seed: int) -> Streams:
        """Streams as asked for, but fewer and shorter where the text is too small for them."""
        length = max(1, min(sequence_length, len(x_N) - 1))
        return cls(x_N, begin, max(1, min(batch_size, len(x_N) // (length + 1))), length, seed)

    @property
    def steps(self) -> int:
        """Windows of one epoch."""
        return max(1, len(self.x_N) // self.batch_size // self.sequence_length)

    def at(self, step: int) -> Window:
        """The window of a step, counted from the beginning of training."""
        epoch, row = divmod(step, self.steps)
        first = 0 if epoch == 0 else int(np.random.default_rng((self.seed, epoch)).integers(len(self.x_N)))
        apart, length = len(self.x_N) // self.batch_size, self.sequence_length
        start_B = np.arange(self.batch_size) * apart + first + row * length
        at_BT = (start_B[:, None] + np.arange(length + 1)) % len(self.x_N)
        x_BT = torch.from_numpy(self.x_N[at_BT].astype(np.int64))
        fresh = row == 0 or bool(np.random.default_rng((self.seed, epoch, row)).random() < RESTARTS)
        if fresh:
            x_BT[:, 0] = self.begin
        return Window(x_BT, fresh, self.begin)
