"""Batches of pairs of like length: little is filled up, and the n-th depends on n alone.

N pairs, B of a batch, S tokens of the longest source, T of the longest target.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from octavo.errors import UserError
from octavo.text.tokenizers.base import Tokenizer
from octavo.training.stage import RowBatch

IGNORE = -100  # a target that is not asked for
NEAR = 2  # sources whose lengths differ by less may stand beside each other


class Rows(NamedTuple):
    """Lists of tokens end to end; row n is x[start_N1[n] : start_N1[n + 1]]."""

    x: NDArray[np.int64]
    start_N1: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.start_N1) - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.start_N1)

    def row(self, n: int) -> list[int]:
        found: list[int] = self.x[self.start_N1[n] : self.start_N1[n + 1]].tolist()
        return found

    def take(self, at: NDArray[Any]) -> Rows:
        """Some of them."""
        parts = [self.x[self.start_N1[n] : self.start_N1[n + 1]] for n in at.tolist()]
        return Rows(np.concatenate(parts), np.cumsum([0, *map(len, parts)]))

    def padded(self, at_B: NDArray[Any], fill: int) -> NDArray[np.int64]:
        """Those rows as a table, filled up behind."""
        start_B, length_B = self.start_N1[at_B], self.lengths[at_B]
        place_T = np.arange(int(length_B.max(initial=0)))
        real_BT = place_T < length_B[:, None]
        return np.where(real_BT, self.x[np.where(real_BT, start_B[:, None] + place_T, 0)], fill)


class PairBatch(NamedTuple):
    """What one step reads and must answer."""

    source_BS: Tensor
    lengths_B: Tensor  # of the sources; what stands behind fills the batch up
    before_BT: Tensor  # the language, then the target
    after_BT: Tensor  # the target, then the end; IGNORE behind it


def batches_by_length(lengths_N: NDArray[Any], at_N: NDArray[Any], tokens: int) -> Iterator[NDArray[np.int64]]:
    """Those rows in batches of like length, so that little is filled up: `tokens` places of a batch at most."""
    batch: list[int] = []
    for n in at_N[np.argsort(lengths_N[at_N], kind="stable")].tolist():
        if batch and (len(batch) + 1) * int(lengths_N[n]) > tokens:
            yield np.array(batch)
            batch = []
        batch.append(n)
    if batch:
        yield np.array(batch)


def encode_lines(tokenizer: Tokenizer, lines: Sequence[str], end: int) -> Rows:
    """The tokens of each line, and the end behind them."""
    data = [line.encode("utf-8", "surrogateescape") for line in lines]
    starts = np.cumsum([0, *map(len, data)])[:-1]
    if not lines:
        return Rows(np.zeros(0, np.int64), np.zeros(1, np.int64))
    x = tokenizer.encode_documents(b"".join(data), starts.astype(np.int64)).astype(np.int64)
    opened = np.flatnonzero(x == tokenizer.begin)  # in front of every line, the first included
    bounds = np.append(opened, len(x))
    shifted = np.append(x[1:], end)  # the begin of the next line becomes the end of this one
    shifted[bounds[1:] - 1] = end
    return Rows(shifted, bounds)


class PairBatches:
    """Batches by step: every epoch has an order of its own."""

    def __init__(
        self, sources: Rows, targets: Rows, begin_N: NDArray[np.int64], tokens: int, seed: int,
        device: torch.device | str = "cpu",
    ) -> None:  # fmt: skip
        """begin_N is the token that each target begins with; a batch has `tokens` places a side at most."""
        if not len(sources):
            raise UserError("there is no pair to learn from; give some")
        longest = int(max(sources.lengths.max(), targets.lengths.max()))
        if longest > tokens:
            raise UserError(
                f"a batch must hold the longest pair: batch_size={tokens}, it has {longest}; try --batch-size {longest}"
            )
        self.sources, self.targets, self.begin_N = sources, targets, begin_N
        self.tokens, self.seed, self.device = tokens, seed, torch.device(device)
        self.first = [0]  # the step that each epoch begins with, as far as they are known
        self.epoch, self.cuts = -1, np.zeros(1, np.int64)
        self.order_N = np.zeros(0, np.int64)

    def __call__(self, step: int) -> RowBatch:
        while self.first[-1] <= step:
            self._arrange(len(self.first) - 1)
        epoch = bisect_right(self.first, step) - 1
        self._arrange(epoch)
        place = step - self.first[epoch]
        order_M = np.random.default_rng((self.seed, epoch, 1)).permutation(len(self.cuts) - 1)
        n = int(order_M[place])
        return self.batch(self.order_N[self.cuts[n] : self.cuts[n + 1]])

    def batch(self, at_B: NDArray[Any]) -> RowBatch:
        """Those pairs together."""
        after_BT = self.targets.padded(at_B, IGNORE)
        before_BT = np.concatenate([self.begin_N[at_B][:, None], np.maximum(after_BT[:, :-1], 0)], 1)
        parts = self.sources.padded(at_B, 0), self.sources.lengths[at_B], before_BT, after_BT
        x = [torch.from_numpy(part).to(self.device, non_blocking=True) for part in parts]
        return RowBatch(PairBatch(*x), float(self.targets.lengths[at_B].sum()))

    def in_order(self) -> list[NDArray[np.int64]]:
        """All pairs once, cut into batches, the shortest first: for measuring."""
        self._arrange(0)
        return [self.order_N[a:b] for a, b in pairwise(self.cuts.tolist())]

    def _arrange(self, epoch: int) -> None:
        """Sort the epoch's pairs by length, like ones in a random order, and cut them into batches."""
        if epoch == self.epoch:
            return
        rng = np.random.default_rng((self.seed, epoch))
        source_N, target_N = self.sources.lengths, self.targets.lengths
        near_N = (source_N + rng.integers(NEAR, size=len(source_N))) // NEAR
        self.order_N = np.lexsort((rng.random(len(source_N)), target_N, near_N))
        longest_N = np.maximum(source_N, target_N)[self.order_N]
        cuts, widest = [0], 0
        for n, length in enumerate(longest_N.tolist()):
            widest = max(widest, length)
            if (n + 1 - cuts[-1]) * widest > self.tokens:
                cuts.append(n)
                widest = length
        self.cuts, self.epoch = np.array([*cuts, len(longest_N)]), epoch
        if len(self.first) == epoch + 1:
            self.first.append(self.first[-1] + len(cuts))
