"""Estimate an n-gram model part by part into files, which the model's tables are then mapped from.

The same estimators on the same numbers in the same order as `NGram.fit`, so the same tables to the last bit; memory
holds one part at a time. Stupid backoff and PPM look up what they made of the order below, and take whole orders.
M n-grams, C contexts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from octavo.errors import UserError
from octavo.models.ngram import estimators as estimate
from octavo.models.ngram.config import NGramConfig
from octavo.models.ngram.counting import Level
from octavo.models.ngram.estimators import Estimator, Weights
from octavo.models.ngram.level_files import OrderParts
from octavo.models.ngram.model import DTYPES, MOST_NODES, NGram

Part = tuple[int, Level, Weights]  # some contexts of an order, and the rank of the first
BY_CONTEXT = ("kneser-ney", "mle", "add-k")  # estimators that need no more than a context and what follows it


def takes_whole_orders(config: NGramConfig) -> bool:
    """Whether the estimator needs all n-grams of an order in memory at once."""
    return config.estimator not in BY_CONTEXT


def fit_tables(model: NGram, orders: Iterable[OrderParts], folder: Path) -> None:
    """Estimate the model from the orders' parts; its tables are mapped from files in the folder."""
    tables, estimator = _TableFiles(folder), model.estimator()
    kept = _Kept(folder) if any(model.config.prune) else None
    for order in orders:
        apply: Estimator = estimator
        if model.config.estimator == "kneser-ney":
            apply = partial(estimate.kneser_ney, d=order.discounts)
        weighed: Iterator[Part] = ((low, level, apply(level)) for low, level in order.parts)
        if kept is not None:
            weighed = kept.prune(weighed, model.config.threshold(order.k))
        for _, level, weights in weighed:
            tables.add(level, weights)
    model.set_tables(tables.close())


class _Kept:
    """Which n-grams of an order stay, in a file until the next order is pruned."""

    def __init__(self, folder: Path) -> None:
        self.paths = [folder / "kept0.bin", folder / "kept1.bin"]  # the two are used in turn
        self.kept_C: NDArray[Any] = np.ones(1, np.bool_)

    def prune(self, parts: Iterator[Part], threshold: int) -> Iterator[Part]:
        """The parts of an order, pruned."""
        path = self.paths[0]
        with open(path, "wb") as file:
            for low, level, weights in parts:
                kept_c = torch.from_numpy(np.array(self.kept_C[low : low + level.contexts]))
                file.write(estimate.prune(level, weights, threshold, kept_c).numpy().data)
                yield low, level, weights
        self.kept_C = np.memmap(path, np.bool_, "r") if path.stat().st_size else np.zeros(0, np.bool_)
        self.paths.reverse()


class _TableFiles:
    """The model's tables, written end to end; see `trie` for what they mean."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.nodes = folder, 1
        self._files = {name: open(folder / f"{name}.bin", "wb") for name in DTYPES}  # noqa: SIM115  closed by `close`
        self._alpha_dtype = torch.float32
        self._write("first_C", torch.tensor([1], dtype=torch.int32))
        self._write("word_M", torch.tensor([0], dtype=torch.int32))

    def add(self, level: Level, weights: Weights) -> None:
        """The next contexts, with the n-grams that continue them."""
        if self.nodes == 1:
            self._alpha_dtype = weights.alpha_M.dtype
            self._write("alpha_M", torch.zeros(1, dtype=self._alpha_dtype))
        first_C = torch.bincount(level.context_M, minlength=level.contexts).cumsum(0) + self.nodes
        self.nodes += len(level.word_M)
        if self.nodes > MOST_NODES:
            raise UserError(f"at most {MOST_NODES:,} n-grams fit: {self.nodes:,} and more found; try --prune 0 0 1")
        for name, values in (("first_C", first_C.int()), ("word_M", level.word_M), ("alpha_M", weights.alpha_M),
                             ("gamma_C", weights.gamma_C)):  # fmt: skip
            self._write(name, values)

    def close(self) -> dict[str, Tensor]:
        """The tables, mapped; the last entries stand for the n-gram that is not there."""
        self._write("first_C", torch.tensor([self.nodes], dtype=torch.int32))
        self._write("alpha_M", torch.zeros(1, dtype=self._alpha_dtype))
        self._write("gamma_C", torch.ones(1, dtype=torch.float64))
        tensors = {}
        for name, file in self._files.items():
            file.close()
            dtype = self._alpha_dtype if name == "alpha_M" else DTYPES[name]
            size = Path(file.name).stat().st_size // dtype.itemsize
            tensors[name] = torch.from_file(file.name, shared=True, size=size, dtype=dtype)
        return tensors

    def _write(self, name: str, values: Tensor) -> None:
        self._files[name].write(values.contiguous().numpy().data)
