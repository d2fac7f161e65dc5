"""A text as parallel lanes, read window by window: each lane goes on where its last window ended.

N tokens, B lanes, T tokens of a window. What a step reads is a function of the step alone, so that a run can be taken
up at any step, by any number of processes.
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

    x_BT: Tensor  # B lanes of T + 1 tokens
    fresh: bool  # the lanes start anew, with begin in front, so no state is carried into this window


@dataclass(frozen=True)
class Lanes:
    """B lanes over the text; every epoch cuts it at other places, and now and then all lanes start anew."""

    x_N: NDArray[Any]
    begin: int
    batch: int
    window: int
    seed: int

    @classmethod
    def fitting(cls, x_N: NDArray[Any], begin: int, batch: int, window: int, seed: int) -> Lanes:
        """Lanes as asked for, but fewer and shorter where the text is too small for them."""
        window = max(1, min(window, len(x_N) - 1))
        return cls(x_N, begin, max(1, min(batch, len(x_N) // (window + 1))), window, seed)

    @property
    def steps(self) -> int:
        """Windows of one epoch."""
        return max(1, len(self.x_N) // self.batch // self.window)

    def at(self, step: int) -> Window:
        """The window of a step, counted from the beginning of training."""
        epoch, row = divmod(step, self.steps)
        first = 0 if epoch == 0 else int(np.random.default_rng((self.seed, epoch)).integers(len(self.x_N)))
        lanes_B = np.arange(self.batch) * (len(self.x_N) // self.batch) + first + row * self.window
        at_BT = (lanes_B[:, None] + np.arange(self.window + 1)) % len(self.x_N)
        x_BT = torch.from_numpy(self.x_N[at_BT].astype(np.int64))
        fresh = row == 0 or bool(np.random.default_rng((self.seed, epoch, row)).random() < RESTARTS)
        if fresh:
            x_BT[:, 0] = self.begin
        return Window(x_BT, fresh)
