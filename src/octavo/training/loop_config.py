"""The settings of the training loop."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from octavo.core import LanguageModel
from octavo.errors import UserError
from octavo.training.schedule import Budget


@dataclass(frozen=True)
class LoopConfig:
    """How long and in what pieces a neural model is trained."""

    budget: str = "180s"
    """How long to train: 180s, 3min, 5000steps or 20Mtokens."""
    batch: int = 0
    """Lanes of text read at once, in all processes together; 0: what suits the model."""
    window: int = 0
    """Tokens of a lane between two changes of the weights; 0: what suits the model."""
    accumulate: int = 1
    """Work through the batch in so many pieces: slower, less memory, the same result but for rounding."""
    checks: int = 10
    """How often to measure the pieces held out and to write a sample."""
    patience: int = 0
    """Stop after so many checks without a better one; 0: never."""
    save_every: float = 30.0
    """Seconds between checkpoints."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """auto: products in bfloat16 where the machine has instructions for them."""
    compile: Literal["auto", "on", "parts", "graph", "off"] = "auto"
    """on: the whole step (minutes); parts: a transformer's blocks (seconds); graph: recorded (GPU); auto: as suits."""
    shard: bool = False
    """With several processes: each keeps a part of the weights (FSDP), for models that do not fit."""
    tensorboard: bool = False
    """Write TensorBoard events into the run's folder too."""

    def __post_init__(self) -> None:
        Budget.parse(self.budget)
        for name in ("accumulate", "checks"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be at least 1: {name}={getattr(self, name)}; try --{name} 1")
        for name in ("batch", "window"):
            if getattr(self, name) < 0:
                raise UserError(f"{name} must not be negative: {name}={getattr(self, name)}; leave it out")
        if self.batch and self.batch % self.accumulate:
            raise UserError(
                f"accumulate must divide the batch: batch={self.batch}, accumulate={self.accumulate}; try a power of 2"
            )
        if self.compile == "graph" and self.accumulate > 1:  # a recording puts its gradient where the last one was
            raise UserError(
                f"a recorded step takes its batch at once: --compile graph, --accumulate {self.accumulate}; "
                "try --compile parts"
            )
        if self.patience < 0 or not self.save_every >= 0:
            raise UserError(f"patience and save_every must not be negative: {self.patience}, {self.save_every}")

    def suiting(self, model: LanguageModel[Any]) -> LoopConfig:
        """With a batch and a window that suit the model, where none were asked for."""
        tokens, window = model.default_batch_shape
        window = self.window or window
        batch = self.batch or -(-max(1, tokens // window) // self.accumulate) * self.accumulate
        return replace(self, batch=batch, window=window)
