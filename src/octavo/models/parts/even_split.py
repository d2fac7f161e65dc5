"""What stands in a mixture for a part that is not asked.

B batch, T time, V vocabulary.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from octavo.core import LanguageModel


class EvenSplit(LanguageModel[Tensor]):
    """Gives both ways at every node of the binary tree over the ids one half, so a logistic mixture gives it no say."""

    def __init__(self, vocab: int, begin: int, leaves: int) -> None:
        super().__init__()
        self.vocab, self.begin = vocab, begin
        self.logits_V = torch.full((vocab,), -math.inf, dtype=torch.float64)
        self._share(0, leaves, 1 << max(1, (leaves - 1).bit_length()), 0.0)

    def _share(self, first: int, leaves: int, size: int, logp: float) -> None:
        """Share what is left between the ids of a node, which is of so many, up to the last leaf."""
        if size == 1:
            self.logits_V[first] = logp
            return
        middle = first + size // 2
        logp -= math.log(2) if middle < leaves else 0.0
        self._share(first, leaves, size // 2, logp)
        if middle < leaves:
            self._share(middle, leaves, size // 2, logp)

    def start(self, batch: int) -> Tensor:
        return torch.zeros(batch, 0)

    def absorb(self, state: Tensor, x_BT: Tensor) -> tuple[Tensor, Tensor]:
        return self.logits_V.expand(*x_BT.shape, -1), state
