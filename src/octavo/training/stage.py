"""What the training loop works on: an objective, a batch for every step, and what validation measures.

B rows of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import torch
from torch import nn

from octavo.training.optimizer import OptimizerConfig

Unit = Literal["tokens", "examples"]


class Batch(Protocol):
    """What one step learns from. The rows are divided among processes and, with accumulation, taken in parts."""

    @property
    def rows(self) -> int: ...

    @property
    def targets(self) -> float:
        """The objective's sum over all rows is divided by it: usually how many predictions are asked for."""
        ...

    @property
    def examples(self) -> int:
        """How much of a budget in the stage's unit it uses."""
        ...

    @property
    def fresh(self) -> bool:
        """Whether it starts from an empty state, where states are carried from batch to batch."""
        ...

    def part(self, start: int, end: int, device: torch.device) -> Any:
        """The objective's input for the rows from `start` to `end`."""
        ...


class RowBatch(NamedTuple):
    """Tensors, or what can be sliced and moved as they can, that have a row for each example."""

    tensors: tuple[Any, ...]
    targets: float
    fresh: bool = True

    @property
    def rows(self) -> int:
        return len(self.tensors[0])

    @property
    def examples(self) -> int:
        return self.rows

    def part(self, start: int, end: int, device: torch.device) -> tuple[Any, ...]:
        return tuple(tensor[start:end].to(device, non_blocking=True) for tensor in self.tensors)


class Objective(nn.Module):
    """The loss of a stage: forward(state, part) gives the sum over a batch's part, and the state after it.

    A module, because torch's tools for several processes and for compiling wrap a module's forward.
    """

    def __init__(self, model: Any, smoothing: float = 0.0) -> None:
        super().__init__()
        self.model, self.smoothing = model, smoothing


@dataclass
class Stage:
    """One training: tasks have one, or several that follow each other on the same model."""

    model: nn.Module
    objective: nn.Module
    """As `Objective` is."""
    batch: Callable[[int], Batch]
    """The n-th batch, which depends on n alone."""
    optimizer: OptimizerConfig
    budget: str
    name: str = ""
    """Where a task has several stages: which one it is."""
    unit: Unit = "examples"
    examples_per_step: int = 0
    """Where it is known: then a step is trained at the learning rate of its middle."""
    steps_per_epoch: int = 0
    start: Callable[[int], Any] = lambda rows: ()
    """The empty state for so many rows."""
    carries: bool = False
    """Truncated back-propagation through time: a batch starts from the state that the one before has left."""
    validate: Callable[[], Mapping[str, float]] | None = None
    """Measures of the present weights on data that are not learnt from."""
    validate_part: Callable[[float], Mapping[str, float]] | None = None
    """The same on a part of these data; without it, validation is made more rarely where it takes long."""
    best: str = ""
    """The measure by which the best weights are chosen; without one, the last weights are the result."""
    higher_is_better: bool = True
    sample: Callable[[], str] | None = None
    """Text for the log, written at each evaluation."""
    describe_loss: Callable[[float], Mapping[str, float]] = lambda loss: {}
    """The loss in other units, for the log."""
    flops_per_example: int = 0
    """Forward; where it is known, progress says how much of the machine's peak is used."""
    fixed_shapes: bool = False
    """Whether all batches have the same shapes, so that compiling pays."""
    usable: bool = True
    """Whether the best weights so far are written as the run's own, so that it can be used while it trains."""
    around: Callable[[], AbstractContextManager[Any]] = nullcontext
    """Entered around the whole training."""

    def better(self, value: float, best: float | None) -> bool:
        """Whether a measure is an improvement on the best one so far."""
        return best is None or (value > best if self.higher_is_better else value < best)
